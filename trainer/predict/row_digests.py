"""Digests, what has changed since others were made, and those of the features of nodes and of their lists of
in-neighbours alone: what of it needs nothing of PyTorch."""

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from cohort_gnn.dataset import StoredGraph
from cohort_gnn.dataset import _native as dataset_native
from cohort_gnn.spec.graph import EdgeType

COMPARED_AT_ONCE = 1 << 20  # digests

DigestsOf: TypeAlias = tuple[str | EdgeType, str]  # a node type or an edge type, and what of it, as `described` says


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

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
        others = threads.map(others_from, range(0, both, COMPARED_AT_ONCE))
        return np.concatenate([np.empty(0, np.int64), *others])


def described(parts: Iterable[tuple[str, Any]]) -> str:
    """What rows are made of: names and dtypes, as the same bytes may be other numbers."""
    return "".join(f"{name} {dtype} " for name, dtype in parts)


def new_digests(description: str, count: int) -> np.ndarray:
    """uint64 [count]: of no rows yet."""
    return np.full(count, int.from_bytes(hashlib.sha256(description.encode()).digest()[:8]), np.uint64)


def plain_digests(data: StoredGraph, look: Callable[[], None]) -> dict[DigestsOf, np.ndarray]:
    """uint64 [nodes] and [targets]: of raw features, and of sources.

    Args:
        look: is called about 20 times a second, and may raise what ends it.
    """
    digests: dict[DigestsOf, np.ndarray] = {}

    def add(
        name: str | EdgeType, part: tuple[str, Any], rows: np.ndarray, count: int, indptr: np.ndarray | None
    ) -> None:
        key = name, described([part])
        digests[key] = new_digests(key[1], count)
        dataset_native.digest_rows(rows.view(np.uint8), digests[key], indptr, look)

    for name, table in data.node_types.items():
        if table.x is not None:
            add(name, ("features", f"torch.{table.feature_dtype}"), table.x, table.num_nodes, None)
    for relation, edges in data.edge_types.items():
        indptr, rows = np.asarray(edges.indptr), edges.indices.reshape(-1, 1)
        add(relation, ("sources", rows.dtype), rows, len(indptr) - 1, indptr)
    return digests
