"""Digests of what a model reads of each node and of each list of in-neighbours: two of them say what has changed."""

import hashlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from cohort_gnn.dataset import StoredGraph
from cohort_gnn.dataset import _native as dataset_native
from cohort_gnn.dataset.stored_graph import Relation
from cohort_gnn.spec.graph import EdgeType
from cohort_gnn.trainer.predict.full_blocks import pieces_below
from cohort_gnn.trainer.predict.node_rows import ArrayRows, PreparedRows, features_of

DECODED_AT_ONCE = 64 << 20  # bytes of rows
COMPARED_AT_ONCE = 1 << 20  # digests


@dataclass(frozen=True)
class Changes:
    """What has changed in a graph.

    Attributes:
        first_new: by node type, the number of nodes that were there: those from it on are new.
        nodes: by node type, int64 [any], ascending: the nodes that were there whose features or times are others.
        lists: by edge type, int64 [any], ascending: the target nodes that were there whose in-neighbours, or the times
            or features of whose edges, are others.
    """

    first_new: Mapping[str, int]
    nodes: Mapping[str, np.ndarray]
    lists: Mapping[EdgeType, np.ndarray]


@dataclass(frozen=True, eq=False)
class Digests:
    """Of a graph, as a model reads it.

    Attributes:
        nodes: uint64 [nodes] of each type.
        lists: uint64 [targets] of each edge type.
    """

    nodes: Mapping[str, np.ndarray]
    lists: Mapping[EdgeType, np.ndarray]

    def since(self, before: "Digests") -> Changes:
        """What has changed since other digests were made."""
        first_new = {name: min(len(before.nodes[name]), len(digests)) for name, digests in self.nodes.items()}
        return Changes(
            first_new,
            {name: _others(before.nodes[name], digests) for name, digests in self.nodes.items()},
            {relation: _others(before.lists[relation], digests) for relation, digests in self.lists.items()},
        )


def _others(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """int64 [any]: where two arrays differ, as far as both have elements."""
    both = min(len(before), len(after))

    def others_from(first: int) -> np.ndarray:
        some = slice(first, min(first + COMPARED_AT_ONCE, both))
        return first + np.flatnonzero(before[some] != after[some])

    with ThreadPoolExecutor(torch.get_num_threads()) as threads:
        others = threads.map(others_from, range(0, both, COMPARED_AT_ONCE))
        return np.concatenate([np.empty(0, np.int64), *others])


def digests_of(data: StoredGraph, model: Any, spans: Mapping[EdgeType, Any]) -> Digests:
    """Reads all features and edges once.

    Args:
        spans: has the edge types whose times say which edges count.
    """
    nodes, lists = {}, {}
    for name, table in data.node_types.items():
        parts: list[tuple[str, ArrayRows | PreparedRows | np.ndarray]] = []
        if table.feature_dim:
            parts.append(("features", features_of(table)))
        if model.ages is not None and name in model.ages.spans and table.node_times is not None:
            parts.append(("times", table.node_times))
        nodes[name] = _digests(parts, table.num_nodes, None)
    for relation, edges in data.edge_types.items():
        lists[relation] = digests_of_lists(edges, relation in spans, relation in model.edge_dims)
    return Digests(nodes, lists)


def digests_of_lists(edges: Relation, with_times: bool, with_rows: bool) -> np.ndarray:
    """uint64 [targets]: of the sources of each target, with the times and the features of its edges, or without."""
    parts: list[tuple[str, ArrayRows | PreparedRows | np.ndarray]] = [("sources", edges.indices)]
    if with_times and edges.edge_times is not None:
        parts.append(("times", edges.edge_times))
    if with_rows and edges.edge_table is not None:
        parts.append(("features", features_of(edges.edge_table)))
    return _digests(parts, len(edges.indptr) - 1, np.asarray(edges.indptr))


def _digests(
    parts: list[tuple[str, ArrayRows | PreparedRows | np.ndarray]], count: int, indptr: np.ndarray | None
) -> np.ndarray:
    """uint64 [count]: of rows, or of those that an indptr, int64 [count + 1], leads to.

    Args:
        parts: what the rows are called, and their values: [n, dim], or [n].
    """
    described = "".join(f"{name} {values.dtype} " for name, values in parts)  # the same bytes may be other numbers
    begin = int.from_bytes(hashlib.sha256(described.encode()).digest()[:8])
    digests = torch.full((count,), begin, dtype=torch.uint64).numpy()  # by all cores
    for _, values in parts:
        if isinstance(values, PreparedRows):
            _digest_decoded(values, digests, indptr)
            continue
        rows = values.array if isinstance(values, ArrayRows) else np.asarray(values).reshape(-1, 1)
        dataset_native.digest_rows(rows.view(np.uint8), digests, indptr)
    return digests


def _digest_decoded(rows: PreparedRows, digests: np.ndarray, indptr: np.ndarray | None) -> None:
    """The digests of decoded rows, some at a time."""

    def cost(first: int, last: int) -> int:
        return rows.row_bytes * int(last - first if indptr is None else indptr[last] - indptr[first])

    for first, last in pieces_below(DECODED_AT_ONCE, len(digests), cost):
        begin, end = (first, last) if indptr is None else map(int, indptr[[first, last]])
        decoded = rows.take(torch.arange(begin, end)).contiguous().view(torch.uint8).numpy()
        offsets = None if indptr is None else indptr[first : last + 1] - begin
        dataset_native.digest_rows(decoded, digests[first:last], offsets)
