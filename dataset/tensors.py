"""Data sets from tensors in memory: torch or NumPy."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cohort.base.errors import CohortError
from cohort.dataset import arrays
from cohort.dataset.writer import SPLITS, random_splits, write_dataset


def from_tensors(
    out: str | os.PathLike,
    *,
    x: Any,
    y: Any,
    edge_index: Any = None,
    indptr: Any = None,
    indices: Any = None,
    edge_weight: Any = None,
    train_ids: Any = None,
    val_ids: Any = None,
    test_ids: Any = None,
    split: Sequence[float] = (0.6, 0.2, 0.2),
    seed: int = 0,
    num_classes: int | None = None,
    task: str = "classification",
    name: str | None = None,
    overwrite: bool = False,
) -> Path:
    """Writes tensors (torch or NumPy) as a data set and returns its folder.

    Args:
        x: [V, D] features; torch.bfloat16 is kept.
        y: what there is to learn, by ``task``: classes, integers [V], -1 for nodes without a label; "regression":
            numbers [V], NaN for none; "multilabel": 0 and 1 [V, labels], -1 (of floats NaN) where it is unknown.
        edge_index: integers [2, E], row 0 sources, row 1 destinations.
        indptr, indices: instead of edge_index, in-neighbours per node: integers [V + 1] and [E].
        edge_weight: numbers [E] or [E, 1], in the order of the edges given; kept as float32.
        train_ids, val_ids, test_ids: integers [any] or bool masks [V]; without any of them, random parts by `split`.

    Raises:
        CohortError: for tensors that do not fit together.
    """
    feature_dtype = "bfloat16" if str(getattr(x, "dtype", "")) == "torch.bfloat16" else None
    rows = _bfloat16_bits(x) if feature_dtype else arrays.features("x", _numpy("x", x))
    num_nodes = rows.shape[0]
    if (edge_index is None) == (indptr is None or indices is None):
        raise CohortError("from_tensors", "edge_index, or indptr and indices", "both or neither")
    graph = _edges(edge_index, num_nodes) if edge_index is not None else _expand(indptr, indices, num_nodes)
    targets = _numpy("y", y)
    if task == "classification":
        labels = arrays.labels("y", targets.reshape(-1), num_nodes)
    else:
        labels = arrays.targets("y", targets, num_nodes, task)
    given = dict(zip(SPLITS, (train_ids, val_ids, test_ids), strict=True))
    write_dataset(
        out,
        graph=graph,
        x=rows,
        labels=labels,
        splits=_splits(given, labels, split, seed),
        edge_weights=_weights(edge_weight, len(graph[0])),
        feature_dtype=feature_dtype,
        num_classes=num_classes,
        task=task,
        name=name,
        overwrite=overwrite,
    )
    return Path(out)


def from_pyg(data: Any, out: str | os.PathLike, *, overwrite: bool = False, **options: Any) -> Path:
    """Writes a torch_geometric Data (x, edge_index, y, optional train/val/test masks and weights) as a data set.

    Weights are `edge_weight`, or an `edge_attr` of one number an edge.

    Args:
        options: handed on to from_tensors (task, split, seed, num_classes, name, ...).
    """
    for attribute in ("x", "edge_index", "y"):
        if getattr(data, attribute, None) is None:
            hint = "fill it in, or use from_tensors"
            raise CohortError("from_pyg", f"a Data object with {attribute}", f"none in {data}", hint)
    masks = {f"{part}_ids": getattr(data, f"{part}_mask", None) for part in ("train", "val", "test")}
    return from_tensors(
        out,
        x=data.x,
        y=data.y,
        edge_index=data.edge_index,
        overwrite=overwrite,
        **{"edge_weight": _weights_of(data), **masks, **options},
    )


def _numpy(place: str, tensor: Any) -> np.ndarray:
    if hasattr(tensor, "detach"):
        tensor = tensor.detach().cpu().numpy()
    array = np.asarray(tensor)
    if array.dtype.kind not in "biuf":
        raise CohortError(place, "a tensor or array of numbers", f"dtype {array.dtype}")
    return array


def _bfloat16_bits(x: Any) -> np.ndarray:
    """uint16 [V, D]"""
    import torch

    arrays.demand_shape("x", x, (None, None))
    return x.detach().cpu().contiguous().view(torch.int16).numpy().view(np.uint16)


def _edges(edge_index: Any, num_nodes: int) -> tuple[np.ndarray, np.ndarray]:
    ends = _numpy("edge_index", edge_index)
    arrays.demand_shape("edge_index", ends, (2, None))
    return arrays.edges("edge_index: ", ends[0], ends[1], num_nodes)


def _expand(indptr: Any, indices: Any, num_nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """In-neighbours per node as edges."""
    starts = arrays.integers("indptr", _numpy("indptr", indptr), (num_nodes + 1,))
    sources = arrays.integers("indices", _numpy("indices", indices))
    degrees = np.diff(starts)
    if starts[0] != 0 or starts[-1] != len(sources) or (degrees < 0).any():
        expected = f"values that ascend from 0 to {len(sources)}"
        raise CohortError("indptr", expected, f"{starts[0]} .. {starts[-1]}, or a step down")
    return arrays.edges("indices: ", sources, np.repeat(np.arange(num_nodes), degrees), num_nodes)


def _weights(edge_weight: Any, num_edges: int) -> np.ndarray | None:
    """float32 [E]"""
    if edge_weight is None:
        return None
    weights = arrays.edge_weights("edge_weight", _numpy("edge_weight", edge_weight))
    arrays.demand_shape("edge_weight", weights, (num_edges,))
    return weights


def _weights_of(data: Any) -> Any:
    """A Data object's edge_weight, or its edge_attr where that is one number an edge."""
    weights, attributes = getattr(data, "edge_weight", None), getattr(data, "edge_attr", None)
    if weights is not None or attributes is None:
        return weights
    return attributes if attributes.dim() == 1 or attributes.shape[1:] == (1,) else None


def _splits(given: dict[str, Any], labels: np.ndarray, parts: Sequence[float], seed: int) -> list[np.ndarray]:
    if all(ids is None for ids in given.values()):
        return random_splits(labels, parts, seed)
    return [np.empty(0, np.int64) if ids is None else _ids(place, ids, labels) for place, ids in given.items()]


def _ids(place: str, ids: Any, labels: np.ndarray) -> np.ndarray:
    """A mask [V] or ids [any] as ids; a mask's nodes without a label are left out."""
    array = _numpy(place, ids)
    if array.dtype.kind != "b":
        return arrays.integers(place, array)
    arrays.demand_shape(place, array, labels.shape[:1])
    return np.flatnonzero(array & arrays.labelled(labels))
