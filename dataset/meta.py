"""Writing labels, splits and meta.json of a data set. The native library reads and checks them; FORMAT.md says how."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

META = "meta.json"
SPLITS = ("train_ids", "val_ids", "test_ids")


def array_files(meta: dict[str, Any]) -> list[str]:
    """The files of all arrays that a meta.json names."""
    types = [*meta.get("nodes", []), *meta.get("edges", []), meta.get("target", {})]
    described = [*types, *(type_.get("features", {}) for type_ in types), meta.get("edge_features", {})]
    files = [value for entry in described for value in entry.values() if str(value).endswith(".npy")]
    return [*meta.get("files", {}).values(), *files]


def write_targets(folder: Path, labels: np.ndarray, splits: Sequence[np.ndarray], prefix: str = "") -> dict[str, str]:
    """Writes labels and splits; returns the names of their files, as meta.json has them."""
    arrays = {"labels": labels} | dict(zip(SPLITS, splits, strict=True))
    for name, array in arrays.items():
        np.save(folder / f"{prefix}{name}.npy", array)
    return {name: f"{prefix}{name}.npy" for name in arrays}


def write_meta(
    folder: Path,
    name: str,
    nodes: Sequence[dict[str, Any]],
    edges: Sequence[dict[str, Any]],
    target: dict[str, Any],
    has_names: bool = True,
) -> None:
    """Writes meta.json of a data set whose arrays are written: version 3, which has the names of types; without names,
    version 1, or, for labels that are no classes, version 2.

    Args:
        nodes: of each node type, type, count, features (file, dim and dtype; missing: it has none) and node_times (a
            file, if it has some).
        edges: of each edge type, type, count and what `EdgeData.sort` returns of its files.
        target: type, task, label_dtype and num_classes of the labels, and what `write_targets` returns.
    """
    version, members = 3, {"nodes": nodes, "edges": edges, "target": target}
    if not has_names:
        version, members = _plain_members(nodes[0], edges[0], target)
    meta = {"format": "cohort-dataset", "version": version, "name": name.encode(errors="replace").decode()} | members
    (folder / META).write_text(json.dumps(meta, indent=2) + "\n")


def _plain_members(nodes: dict[str, Any], edges: dict[str, Any], target: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """The version and the members of a meta.json without names of types."""
    rows = nodes["features"]
    members = {
        "num_nodes": nodes["count"],
        "num_edges": edges["count"],
        "feature_dim": rows["dim"],
        "feature_dtype": rows["dtype"],
        "num_classes": target["num_classes"],
        "files": {"indptr": edges["indptr"], "indices": edges["indices"], "features": rows["file"]}
        | {array: nodes[array] for array in ("node_times",) if array in nodes}
        | {array: edges[array] for array in ("edge_weights", "edge_times") if array in edges}
        | {array: target[array] for array in ("labels", *SPLITS)},
    }
    members |= {"edge_features": edges["features"]} if "features" in edges else {}
    if target["task"] == "classification":
        return 1, members
    return 2, members | {"task": target["task"], "label_dtype": target["label_dtype"]}
