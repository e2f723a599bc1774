"""Data sets of several node types for tests, written without the library: json and NumPy alone."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

META = {
    "format": "cohort-dataset",
    "version": 3,
    "name": "small",
    "nodes": [
        {"type": "author", "count": 3},
        {"type": "paper", "count": 4, "features": {"file": "x.npy", "dim": 2, "dtype": "float32"}},
    ],
    "edges": [
        {"type": ["author", "writes", "paper"], "count": 5, "indptr": "w.indptr.npy", "indices": "w.indices.npy"},
        {
            "type": ["paper", "rev_writes", "author"],
            "count": 5,
            "indptr": "r.indptr.npy",
            "indices": "r.indices.npy",
            "reverse_of": 0,
        },
        {"type": ["paper", "cites", "paper"], "count": 3, "indptr": "c.indptr.npy", "indices": "c.indices.npy"},
    ],
    "target": {
        "type": "paper",
        "task": "classification",
        "label_dtype": "int64",
        "num_classes": 3,
        "labels": "y.npy",
        "train_ids": "train.npy",
        "val_ids": "val.npy",
        "test_ids": "test.npy",
    },
}
ARRAYS = {
    "w.indptr": np.array([0, 2, 2, 4, 5]),
    "w.indices": np.array([0, 1, 0, 2, 2], np.int32),
    "r.indptr": np.array([0, 2, 3, 5]),
    "r.indices": np.array([0, 2, 0, 2, 3], np.int32),
    "c.indptr": np.array([0, 1, 1, 3, 3]),
    "c.indices": np.array([3, 0, 1]),
    "x": np.arange(8, dtype=np.float32).reshape(4, 2),
    "y": np.array([0, 2, -1, 1]),
    "train": np.array([0, 1]),
    "val": np.array([3]),
    "test": np.array([], np.int64),
}


def write_by_hand(folder: Path, meta: dict | None = None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "meta.json").write_text(json.dumps(meta or META))
    for name, array in ARRAYS.items():
        np.save(folder / f"{name}.npy", array)
    return folder


def read_by_hand(folder: Path) -> dict:
    """The whole data set as FORMAT.md describes it: node types, relations as lists of (source, target), the target."""
    meta = json.loads((folder / "meta.json").read_text())
    assert meta["format"] == "cohort-dataset" and meta["version"] == 3
    nodes, relations = {}, {}
    for entry in meta["nodes"]:
        features = entry.get("features")
        x = None
        if features:
            x = np.load(folder / features["file"])
            assert x.shape == (entry["count"], features["dim"])
            assert x.dtype == ("uint16" if features["dtype"] == "bfloat16" else features["dtype"])
        nodes[entry["type"]] = (entry["count"], x)
    for entry in meta["edges"]:
        source, name, target = entry["type"]
        indptr, indices = np.load(folder / entry["indptr"]), np.load(folder / entry["indices"])
        assert len(indptr) == nodes[target][0] + 1 and len(indices) == entry["count"] == indptr[-1]
        assert not len(indices) or 0 <= indices.min() <= indices.max() < nodes[source][0]
        pairs = [(int(u), v) for v in range(len(indptr) - 1) for u in indices[indptr[v] : indptr[v + 1]]]
        reverse_of = entry.get("reverse_of")
        relations[source, name, target] = (pairs, None if reverse_of is None else meta["edges"][reverse_of]["type"])
    target = dict(meta["target"])
    for key in ("labels", "train_ids", "val_ids", "test_ids"):
        target[key] = np.load(folder / target[key])
    return {"name": meta["name"], "nodes": nodes, "relations": relations, "target": target}
