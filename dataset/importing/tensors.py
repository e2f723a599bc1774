"""Data sets from tensors in memory: torch or NumPy."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset import arrays
from cohort_gnn.dataset.array_file import MemoryArray
from cohort_gnn.dataset.arrays import MASKS
from cohort_gnn.dataset.importing.convert import write_graph
from cohort_gnn.dataset.importing.options import ConvertOptions
from cohort_gnn.dataset.layouts.graph import Graph
from cohort_gnn.dataset.layouts.streams import Edges, Rows, Weights
from cohort_gnn.dataset.layouts.torch_files import rows_of_tensor
from cohort_gnn.dataset.meta import SPLITS
from cohort_gnn.spec.types import checked_arguments

SCIPY_HINT = "matrix = {}.tocoo(); edge_index = numpy.stack([matrix.row, matrix.col]); edge_weight = matrix.data"
OF_MATRIX = "  # of a matrix [sources, targets]; weights can stay out if all are 1"


@checked_arguments
def from_tensors(
    out: str | os.PathLike,
    *,
    x: Any,
    y: Any = None,
    edge_index: Any = None,
    indptr: Any = None,
    indices: Any = None,
    edge_weight: Any = None,
    edge_time: Any = None,
    node_time: Any = None,
    edge_attr: Any = None,
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
        y: the labels. For the ``task`` "classification": integers [V], -1 for nodes without a label; "regression":
            numbers [V], NaN for none; "multilabel": 0 and 1 [V, labels], -1 (in floats NaN) for unknown. A y of [V, 1]
            is stored as [V], except for "multilabel". None: classification, and no node has a label.
        edge_index: integers [2, E], row 0 sources, row 1 destinations.
        indptr: integers [V + 1], with indices instead of edge_index: the start of each node's in-neighbours in indices.
        indices: integers [E], in-neighbours of node 0, of node 1, and so on.
        edge_weight: numbers [E] or [E, 1], in the order of the edges; stored as float32.
        edge_time: integers [E], the time of each edge, in the order of the edges; not together with edge_weight. The
            in-neighbours of each node are then stored in the order of time.
        node_time: integers [V], since when each node exists; -2^63: always. An edge exists from the later of its own
            time and its source's. Not together with edge_weight.
        edge_attr: [E, D] features of edges, in the order of the edges; types as of x.
        train_ids: integers [any] or a bool mask [V]; unlabelled nodes of a mask are left out. Without this and the next
            two arguments, the labelled nodes are divided at random by `split`.
        val_ids: like train_ids.
        test_ids: like train_ids.
        overwrite: replace an existing data set `out`.

    Raises:
        CohortError: for tensors that do not fit together, or if `out` exists.
    """
    out = new_folder(out, overwrite)
    rows, num_nodes = rows_of("x", x)
    if (edge_index is None) == (indptr is None or indices is None):
        raise CohortError("from_tensors", "edge_index, or indptr and indices", "both or neither")
    if edge_index is not None:
        endpoints = arrays.edges("edge_index: ", *ends_of("edge_index", edge_index), num_nodes)
    else:
        endpoints = _expand(indptr, indices, num_nodes)
    edges = replace(
        Edges.in_memory("the edges", *endpoints),
        weights=weights_in("edge_weight", edge_weight),
        times=weights_in("edge_time", edge_time, are_times=True),
        features=None if edge_attr is None else rows_of("edge_attr", edge_attr)[0],
    )
    graph = Graph.homogeneous(
        edges,
        rows,
        name=name or out.name,
        labels=labels_of(y, task),
        splits=splits_of(dict(zip(SPLITS, (train_ids, val_ids, test_ids), strict=True))),
        num_nodes=num_nodes,
        node_times=weights_in("node_time", node_time, are_times=True),
        num_classes=num_classes,
    )
    write_graph(graph, out, ConvertOptions(task=task, split=split, seed=seed, overwrite=overwrite))
    return out


def new_folder(out: str | os.PathLike, overwrite: bool) -> Path:
    """Raises CohortError if the folder exists and may not be replaced."""
    out = Path(out).expanduser()
    if os.path.lexists(out) and not overwrite:
        hint = "choose another name, or give overwrite=True"
        raise CohortError(str(out), "a new folder", "an existing one", hint)
    return out


def rows_of(place: str, x: Any) -> tuple[Rows, int]:
    """Features [V, D], and V; bfloat16 as its bits in uint16."""
    if str(getattr(x, "dtype", "")) == "torch.bfloat16":
        return rows_of_tensor(place, x.cpu()), len(x)
    rows = arrays.features(place, _numpy(place, x))
    return Rows.from_matrix(place, rows), len(rows)


def demand_rows(place: str, x: Any, num_nodes: Any) -> None:
    """Raises CohortError unless there are as many rows as nodes; `num_nodes` None: not declared."""
    if num_nodes is not None and np.shape(x)[:1] != (int(num_nodes),):
        actual, hint = str(next(iter(np.shape(x)), "a single number")), "give each node a row, or leave num_nodes out"
        raise CohortError(place, f"num_nodes = {int(num_nodes)} rows", actual, hint)


def masks_of(data: Any) -> dict[str, np.ndarray | None]:
    """bool [V] of each split, as far as a Data or the store of a node type has them."""
    masks = {split: getattr(data, name, None) for split, name in zip(SPLITS, MASKS, strict=True)}
    return {
        split: None if mask is None else arrays.mask(name, _numpy(name, mask), name)
        for (split, mask), name in zip(masks.items(), MASKS, strict=True)
    }


def labels_of(y: Any, task: str) -> MemoryArray | None:
    """The labels, which the conversion looks at; classes are only integers here."""
    if y is None:
        if task != "classification":
            raise CohortError(f"task={task!r}", "labels", "no y", "pass y")
        return None
    targets = _numpy("y", y)
    if task == "classification":
        if targets.ndim == 2 and 1 in targets.shape:
            targets = targets.reshape(-1)
        if targets.dtype.kind not in "iu" or targets.ndim != 1:
            hint = 'numbers to predict: task="regression"; 0 and 1 [V, labels]: task="multilabel"; else pass y.long()'
            raise CohortError("y", "integers [V], one class per node", f"{targets.dtype} {list(targets.shape)}", hint)
    return MemoryArray("y", targets)


def _numpy(place: str, tensor: Any) -> np.ndarray:
    if hasattr(tensor, "detach"):
        try:
            tensor = tensor.detach().cpu().numpy()
        except TypeError as error:  # sparse, or of a type that numpy lacks
            actual, hint = f"{tensor.dtype}, {tensor.layout}", "pass tensor.float()"
            if str(tensor.layout) != "torch.strided":
                hint = "pass tensor.to_dense()"
            raise CohortError(place, "a dense tensor of numbers that numpy has", actual, hint) from error
    array = np.asarray(tensor)
    if array.dtype.kind not in "biuf":
        hint = arrays.TIMES_HINT if array.dtype.kind in "mM" else ""
        actual = f"dtype {array.dtype}"
        if hasattr(tensor, "toarray"):
            actual, hint = f"a {type(tensor).__name__} of SciPy", f"pass {place}.toarray()"
        raise CohortError(place, "a tensor or array of numbers", actual, hint)
    return array


def ends_of(place: str, edge_index: Any) -> tuple[np.ndarray, np.ndarray]:
    """Sources and targets [E] each."""
    is_scipy = hasattr(edge_index, "tocoo")
    if is_scipy or str(getattr(edge_index, "layout", "torch.strided")) != "torch.strided":
        hint = (
            SCIPY_HINT.format("edge_index")
            if is_scipy
            else arrays.MATRIX_HINT.format("edge_index") + "edge_index = edges"
        )
        actual = f"a sparse matrix, {type(edge_index).__name__ if is_scipy else edge_index.layout}"
        raise CohortError(place, "pairs of nodes, integers [2, any]", actual, hint + OF_MATRIX)
    pairs = _numpy(place, edge_index)
    if pairs.ndim == 2 and len(pairs) != 2 and pairs.shape[1] == 2:
        raise CohortError(place, "shape [2, any]", f"shape {list(pairs.shape)}", "pass edge_index.T")
    arrays.demand_shape(place, pairs, (2, None))
    return pairs[0], pairs[1]


def _expand(indptr: Any, indices: Any, num_nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """In-neighbours per node as edges."""
    starts = arrays.integers("indptr", _numpy("indptr", indptr), (num_nodes + 1,))
    sources = arrays.integers("indices", _numpy("indices", indices))
    degrees = np.diff(starts)
    arrays.demand_offsets("indptr", starts, len(sources))
    return arrays.edges("indices: ", sources, np.repeat(np.arange(num_nodes), degrees), num_nodes)


def weights_in(place: str, weights: Any, are_times: bool = False) -> Weights | None:
    """Weights or times of edges, to be read."""
    return None if weights is None else Weights.from_array(MemoryArray(place, _numpy(place, weights)), are_times)


def splits_of(splits: dict[str, Any]) -> Callable[[], list[np.ndarray]] | None:
    """A function that gives ids or masks of the three splits, which may be None each; None if all are."""
    if all(ids is None for ids in splits.values()):
        return None
    return lambda: [np.empty(0, np.int64) if ids is None else _numpy(place, ids) for place, ids in splits.items()]
