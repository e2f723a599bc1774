"""Digests of the features of nodes and of their lists of in-neighbours alone, which need nothing of PyTorch."""

import hashlib
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import numpy as np

from cohort_gnn.dataset import StoredGraph
from cohort_gnn.dataset import _native as dataset_native
from cohort_gnn.spec.graph import EdgeType

DigestsOf: TypeAlias = tuple[str | EdgeType, str]  # a node type or an edge type, and what of it, as `described` says


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
