"""Renumbering the nodes of a data set, so that nodes that are drawn often lie together."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from cohort.dataset import _native
from cohort.dataset.array_file import MemoryArray
from cohort.dataset.check import demand_in_range
from cohort.dataset.layouts.graph import edges_of_columns
from cohort.dataset.meta import SPLITS, write_meta_of_one_type, write_targets
from cohort.dataset.reader import Dataset, open_one_type

BLOCK_BYTES = 32_000_000  # of edges at once
SORT_BYTES = 4_000_000_000  # of memory for edges; others go through a file


def renumber(folder: Path, out: str | os.PathLike) -> np.ndarray:
    """Writes the data set of `folder`, nodes numbered by in-degree, without features, into the existing folder `out`.

    Returns:
        old_of_new: int64 [V], largest in-degree first, ties by number; also kept in old_of_new.npy.
    """
    demand_in_range(folder)
    data, out = open_one_type(folder, prefer_raw=True), Path(out)
    old_of_new = np.argsort(-np.diff(data.indptr), kind="stable")
    new_of_old = np.empty_like(old_of_new)
    new_of_old[old_of_new] = np.arange(data.num_nodes)
    np.save(out / "old_of_new.npy", old_of_new)
    _write_edges(data, new_of_old, out)
    files = write_targets(out, data.y[old_of_new], [np.sort(new_of_old[getattr(data, split)]) for split in SPLITS])
    sizes = ("num_nodes", "num_edges", "feature_dim", "feature_dtype", "num_classes")
    of_data = {name: getattr(data, name) for name in ("name", "task", *sizes)}
    write_meta_of_one_type(out, label_dtype=data.y.dtype.name, files=files, **of_data)
    return np.load(out / "old_of_new.npy", mmap_mode="r")


def _write_edges(data: Dataset, new_of_old: np.ndarray, out: Path) -> None:
    """Neighbours in ascending order of their times, if they have any, and of the new numbers."""
    sorter = _native.EdgeSorter(
        folder=out,
        memory_bytes=SORT_BYTES,
        place="edges",
        num_nodes=data.num_nodes,
        weighted=data.edge_weights is not None,
        timed=data.edge_times is not None,
    )
    edges = edges_of_columns(str(data.path), data.indptr, MemoryArray(str(data.path), data.indices))
    done = 0
    for targets, sources, _ in edges.chunks(BLOCK_BYTES):
        first, done = done, done + len(targets)
        of_edges = [None if all_ is None else all_[first:done] for all_ in (data.edge_weights, data.edge_times)]
        sorter.add(new_of_old[sources], new_of_old[targets], None, *of_edges)
    sorter.write(out, lambda written: None)
