"""Writing labels, splits and meta.json of a data set. The native library reads and checks them; FORMAT.md says how."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

META = "meta.json"
SPLITS = ("train_ids", "val_ids", "test_ids")
TYPED_VERSION = 3


def array_files(meta: dict[str, Any]) -> list[str]:
    """The files of all arrays that a meta.json names."""
    types = [*meta.get("nodes", []), *meta.get("edges", []), meta.get("target", {})]
    described = [*types, *(type_.get("features", {}) for type_ in types), meta.get("edge_features", {})]
    files = [value for each in described for value in each.values() if str(value).endswith(".npy")]
    return [*meta.get("files", {}).values(), *files]


def write_targets(folder: Path, labels: np.ndarray, splits: Sequence[np.ndarray], prefix: str = "") -> dict[str, str]:
    """Writes labels and splits; returns the names of their files, as meta.json has them."""
    arrays = {"labels": labels} | dict(zip(SPLITS, splits, strict=True))
    for name, array in arrays.items():
        np.save(folder / f"{prefix}{name}.npy", array)
    return {name: f"{prefix}{name}.npy" for name in arrays}


def write_meta(folder: Path, version: int, name: str, members: dict[str, Any]) -> None:
    """Writes meta.json."""
    meta = {"format": "cohort-dataset", "version": version, "name": name.encode(errors="replace").decode()} | members
    (folder / META).write_text(json.dumps(meta, indent=2) + "\n")


def write_meta_of_one_type(
    folder: Path,
    *,
    name: str,
    task: str,
    label_dtype: str,
    files: dict[str, str],
    edge_features: dict[str, Any] | None = None,
    **sizes: int | str,
) -> None:
    """Writes meta.json of a data set of one node type, whose arrays are written.

    Args:
        files: of labels and splits.
        edge_features: file, dim and dtype of the features of edges; None: they have none.
        sizes: num_nodes, num_edges, feature_dim, feature_dtype and num_classes.
    """
    arrays = {array: f"{array}.npy" for array in ("indptr", "indices", "features")}
    numbers = {name: f"{name}.npy" for name in ("edge_weights", "edge_times")}
    arrays |= {name: file for name, file in numbers.items() if (folder / file).exists()}
    of_task = {} if task == "classification" else {"task": task, "label_dtype": label_dtype}
    of_edges = {} if edge_features is None else {"edge_features": edge_features}
    write_meta(folder, 2 if of_task else 1, name, sizes | {"files": arrays | files} | of_edges | of_task)
