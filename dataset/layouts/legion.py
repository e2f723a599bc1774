"""Legion's binary files: edge_src (int64 offsets [V + 1]), edge_dst (int32 [E]), features (float32), labels (int32),
trainingset, validationset, testingset (int32 ids)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset.array_file import open_raw
from cohort_gnn.dataset.layouts.graph import Graph
from cohort_gnn.dataset.layouts.streams import Edges, Rows

SETS = ("trainingset", "validationset", "testingset")


def is_legion(source: Path) -> bool:
    return (source / "edge_src").is_file() and (source / "edge_dst").is_file()


def read_legion(source: Path) -> Graph:
    """The graph of a folder: row v of the CSR are the edges v -> edge_dst."""
    columns = open_raw(source / "edge_dst", "<i4")
    if open_raw(source / "edge_src", "<i8").shape[0] < 2:
        raise CohortError(str(source / "edge_src"), "int64 offsets [V + 1]", "fewer than two", "see FORMAT.md")
    indptr = np.memmap(source / "edge_src", dtype="<i8", mode="r")
    num_nodes = len(indptr) - 1
    labels = source / "labels"
    graph = Graph.homogeneous(
        name=source.resolve().name,
        edges=Edges.from_columns(str(source / "edge_src"), indptr, columns),
        features=_features(source / "features", num_nodes) if (source / "features").exists() else None,
        labels=open_raw(labels, "<i4") if labels.exists() else None,
        num_nodes=num_nodes,
    )
    there = {name: open_raw(source / name, "<i4").read for name in SETS if (source / name).exists()}
    if there:
        graph.take_splits(source, there, SETS)
    return graph


def _features(path: Path, num_nodes: int) -> Rows:
    size = path.stat().st_size
    if size == 0 or size % (4 * num_nodes):
        expected = f"float32 [{num_nodes}, D]: a multiple of {4 * num_nodes} bytes"
        raise CohortError(str(path), expected, f"{size} bytes", "the files do not belong together")
    return Rows.from_file(open_raw(path, "<f4", size // (4 * num_nodes)))
