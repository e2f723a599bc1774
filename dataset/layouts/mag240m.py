"""OGB-LSC's MAG240M: meta.pt, split_dict.pt and processed/ with arrays for each type and relation."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset import arrays
from cohort_gnn.dataset.array_file import open_npy
from cohort_gnn.dataset.layouts.graph import Graph, Nodes, by_relation, relation_of
from cohort_gnn.dataset.layouts.streams import Edges, Labels, Rows
from cohort_gnn.dataset.layouts.torch_files import load_arrays

TARGET, FOLDER = "paper", "mag240m_kddcup2021"
SPLITS = (("train",), ("valid",), ("test-dev", "test-whole", "test"))
HINT = "save its arrays as tensors: torch.save({key: torch.as_tensor(value) for key, value in found.items()}, FILE)"


def find_mag240m(source: Path) -> Path | None:
    """The folder that has meta.pt and processed/."""
    for folder in (source, source / FOLDER):
        if (folder / "meta.pt").exists() and any(folder.glob("processed/*___*___*")):
            return folder
    return None


def read_mag240m(source: Path) -> Graph:
    """The graph of a folder such as mag240m_kddcup2021."""
    folder = find_mag240m(source)
    if folder is None:
        raise CohortError(str(source), "a folder with meta.pt and processed/A___NAME___B", "none", "see FORMAT.md")
    meta = load_arrays(folder / "meta.pt", HINT)
    for key, value in meta.items():
        if not isinstance(value, int) or value < 1:
            raise CohortError(f"{folder / 'meta.pt'}: {key}", "a number of at least 1", str(value)[:80])
    counts = {key: value for key, value in meta.items() if key != "num_classes"}
    rows = {type_: folder / "processed" / type_ / "node_feat.npy" for type_ in counts}
    relations = (
        (relation_of(str(path), path.name, "___"), Edges.from_pairs(open_npy(path / "edge_index.npy")))
        for path in sorted(folder.glob("processed/*___*___*"))
    )
    path = folder / "processed" / TARGET / "node_label.npy"

    def labels() -> np.ndarray:
        return arrays.class_labels(str(path), open_npy(path).read(), counts[TARGET])

    return Graph(
        name="mag240m",
        place=str(folder),
        nodes={
            type_: Nodes(count, Rows.from_file(open_npy(rows[type_])) if rows[type_].exists() else None)
            for type_, count in counts.items()
        },
        edges=by_relation(str(folder), relations),
        target=TARGET,
        labels=Labels(str(path), labels),
        splits=lambda: _splits(folder / "split_dict.pt", labels()),
        splits_from="split_dict.pt",
        num_classes=meta.get("num_classes"),
        notes=["the labels of test papers are not published: the test split has only papers with a label"],
    )


def _splits(path: Path, labels: np.ndarray) -> list[np.ndarray]:
    members = load_arrays(path, HINT)
    out = []
    for keys in SPLITS:
        there = [key for key in keys if key in members]
        if not there:
            raise CohortError(str(path), f"the key {' or '.join(keys)}", ", ".join(map(str, members)) or "none")
        ids = arrays.integers(f"{path}: {there[0]}", np.asarray(members[there[0]]))
        arrays.demand_nodes(f"{path}: {there[0]}", ids, len(labels))
        out.append(ids)
    return [*out[:2], out[2][labels[out[2]] >= 0]]
