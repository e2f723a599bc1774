"""Renumbering the nodes of a data set, so that nodes that are drawn often lie together."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from cohort_gnn.dataset.array_file import MemoryArray
from cohort_gnn.dataset.check import demand_in_range
from cohort_gnn.dataset.columns import read_columns, write_columns
from cohort_gnn.dataset.importing.edge_data import EdgeData
from cohort_gnn.dataset.layouts.streams import EdgeChunk, Edges, Rows, Weights
from cohort_gnn.dataset.meta import SPLITS, write_meta, write_targets
from cohort_gnn.dataset.original_ids import FILE, RENAMED, original_ids, write_ids
from cohort_gnn.dataset.reader import Dataset, open_one_type
from cohort_gnn.dataset.stored_graph import demand_raw
from cohort_gnn.dataset.tasks import Task, open_task, tasks_of, write_task

SORT_BYTES = 4_000_000_000  # of memory for edges; others go through a file


def renumber(folder: Path, out: str | os.PathLike) -> np.ndarray:
    """Writes the data set of `folder`, nodes numbered by in-degree, without features of nodes, into the existing folder
    `out`: with the ids that nodes had in their source, and what columns and classes are called.

    Returns:
        old_of_new: int64 [V], largest in-degree first, ties by number; also kept in old_of_new.npy.
    """
    demand_in_range(folder)
    data, out = open_one_type(folder, prefer_raw=True), Path(out)
    old_of_new = np.argsort(-np.diff(data.indptr), kind="stable")
    new_of_old = np.empty_like(old_of_new)
    new_of_old[old_of_new] = np.arange(data.num_nodes)
    np.save(out / "old_of_new.npy", old_of_new)
    edges = _write_edges(data, new_of_old, out)
    files = write_targets(out, data.y[old_of_new], [np.sort(new_of_old[getattr(data, split)]) for split in SPLITS])
    features = {"file": "features.npy", "dim": data.feature_dim, "dtype": data.feature_dtype}
    target = {"task": data.task, "label_dtype": data.y.dtype.name, "num_classes": data.num_classes} | files
    nodes = {"count": data.num_nodes, "features": features}
    if data.node_times is not None:
        np.save(out / "node_times.npy", data.node_times[old_of_new])
        nodes["node_times"] = "node_times.npy"
    write_meta(out, data.name, [nodes], [edges], target, has_names=False)
    for name in tasks_of(folder):
        write_task(out, _renumbered(open_task(folder, name), new_of_old))
    _write_ids(folder, out, old_of_new)
    write_columns(out, read_columns(folder))
    return np.load(out / "old_of_new.npy", mmap_mode="r")


def _renumbered(task: Task, new_of_old: np.ndarray) -> Task:
    """The task with the new numbers of its nodes."""

    def renumber_rows(rows: Any) -> Any:
        nodes = {part: getattr(rows, part, None) for part in ("nodes", "sources", "targets")}
        return replace(rows, **{part: new_of_old[ids] for part, ids in nodes.items() if ids is not None})

    return replace(task, splits={split: renumber_rows(rows) for split, rows in task.splits.items()})


def _write_ids(folder: Path, out: Path, old_of_new: np.ndarray) -> None:
    """Writes the original ids of the nodes in their new order, if there are some."""
    ids = original_ids(folder)
    if ids is not None and (folder / RENAMED).exists():
        np.save(out / RENAMED, ids.to_numpy()[old_of_new])
    elif ids is not None:
        write_ids(out / FILE, iter([ids.take(old_of_new)]))


def _write_edges(data: Dataset, new_of_old: np.ndarray, out: Path) -> dict[str, Any]:
    """Neighbours in ascending order of their times, if they have any, and of the new numbers; returns what meta.json
    says of the edges."""

    def numbers(array: np.ndarray | None, are_times: bool) -> Weights | None:
        return None if array is None else Weights.from_array(MemoryArray(str(data.path), array), are_times)

    table, features = data.edge_table, None
    if table is not None:
        features = Rows.from_matrix(str(data.path), demand_raw(table.x, table.encoded_rows), table.feature_dtype)
    beside = numbers(data.edge_weights, False), numbers(data.edge_times, True), features
    old = Edges.from_columns(str(data.path), data.indptr, MemoryArray(str(data.path), data.indices))

    def renumbered(block_bytes: int) -> Iterator[EdgeChunk]:
        for targets, sources, fraction in old.chunks(block_bytes):
            yield new_of_old[sources], new_of_old[targets], fraction

    edges = Edges("edges", renumbered, None, (), *beside)
    return EdgeData(edges, SORT_BYTES).sort(out, memory_bytes=SORT_BYTES, num_nodes=data.num_nodes)[1]
