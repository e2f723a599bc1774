"""Digests of what a model reads of each node and of each list of in-neighbours: two of them say what has changed."""

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import torch

from cohort_gnn.dataset import StoredGraph
from cohort_gnn.dataset import _native as dataset_native
from cohort_gnn.dataset.stored_graph import Relation
from cohort_gnn.spec.graph import EdgeType
from cohort_gnn.trainer.predict.full_blocks import pieces_below
from cohort_gnn.trainer.predict.node_rows import ArrayRows, PreparedRows, features_of
from cohort_gnn.trainer.predict.row_digests import Digests, DigestsOf, described, new_digests

DECODED_AT_ONCE = 64 << 20  # bytes of rows

Part: TypeAlias = tuple[str, ArrayRows | PreparedRows | np.ndarray]  # of rows: what it is called, and its values


def digests_of(
    data: StoredGraph, model: Any, spans: Mapping[EdgeType, Any], made: Mapping[DigestsOf, np.ndarray] | None = None
) -> Digests:
    """Reads all features and edges once.

    Args:
        spans: has the edge types whose times say which edges count.
        made: those of the data set that are there already.
    """
    nodes, lists, made = {}, {}, made or {}
    for name, table in data.node_types.items():
        parts: list[Part] = []
        if table.feature_dim:
            parts.append(("features", features_of(table)))
        if model.ages is not None and name in model.ages.spans and table.node_times is not None:
            parts.append(("times", table.node_times))
        there = made.get((name, _description(parts)))
        nodes[name] = _digests(parts, table.num_nodes, None) if there is None else there
    for relation, edges in data.edge_types.items():
        parts = _parts_of_lists(edges, relation in spans, relation in model.edge_dims)
        there = made.get((relation, _description(parts)))
        lists[relation] = _digests(parts, len(edges.indptr) - 1, edges.indptr) if there is None else there
    return Digests(nodes, lists)


def digests_of_lists(edges: Relation, with_times: bool, with_rows: bool) -> np.ndarray:
    """uint64 [targets]: of the sources of each target, with the times and the features of its edges, or without."""
    return _digests(_parts_of_lists(edges, with_times, with_rows), len(edges.indptr) - 1, edges.indptr)


def _parts_of_lists(edges: Relation, with_times: bool, with_rows: bool) -> list[Part]:
    parts: list[Part] = [("sources", edges.indices)]
    if with_times and edges.edge_times is not None:
        parts.append(("times", edges.edge_times))
    if with_rows and edges.edge_table is not None:
        parts.append(("features", features_of(edges.edge_table)))
    return parts


def _description(parts: list[Part]) -> str:
    return described((name, values.dtype) for name, values in parts)


def _digests(parts: list[Part], count: int, indptr: np.ndarray | None) -> np.ndarray:
    """uint64 [count]: of rows, or of those that an indptr, int64 [count + 1], leads to.

    Args:
        parts: what the rows are called, and their values: [n, dim], or [n].
    """
    digests, indptr = new_digests(_description(parts), count), None if indptr is None else np.asarray(indptr)
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
