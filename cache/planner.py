"""The planner (plan.h) for Python."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cohort_gnn.cache import _native

MAX_CLIQUE_GPUS = _native.MAX_CLIQUE_GPUS
NETWORK_BYTES_PER_SECOND = _native.NETWORK_BYTES_PER_SECOND  # of a machine: assumed, 100 Gbit/s Ethernet
# "none" (each alone), "all", "2x4" (two of four) or "3+5", and how many GPUs there are, as lists of GPUs. It raises a
# CohortError for another text, a clique of more than MAX_CLIQUE_GPUS, or other sizes than GPUs in all.
cliques_named = _native.cliques_named
ELEMENT_BYTES = {"uint8": 1, "float16": 2, "bfloat16": 2, "float32": 4, "int32": 4, "int64": 8}


@dataclass(frozen=True)
class PlanRows:
    """The feature rows of one node type.

    Attributes:
        num_rows: nodes of the type.
        row_bytes: of every stored row, or uint32 [num_rows] of rows packed back to back; 0: the type has no features.
        host_row_bytes: as `row_bytes`, of rows in host memory, when they are stored there in another way.
    """

    num_rows: int
    row_bytes: int | np.ndarray
    host_row_bytes: int | np.ndarray | None = None


@dataclass(frozen=True)
class PlanLists:
    """The neighbour lists of one relation.

    Attributes:
        indptr: int64 [nodes of the target type + 1].
        index_bytes: of an entry of `indices`, 4 or 8.
    """

    indptr: np.ndarray
    index_bytes: int


@dataclass(frozen=True)
class PlanLinks:
    """What each tier gives a GPU: (local, peer, host).

    Attributes:
        bytes_per_second: bandwidths, descending.
        seconds_per_line: fixed cost of each line of 128 bytes, on top.
    """

    bytes_per_second: tuple[float, float, float]
    seconds_per_line: tuple[float, float, float] = (0.0, 0.0, 0.0)


class PlanEdges(NamedTuple):
    """The edges of one relation.

    Attributes:
        indptr: int64 [nodes of the target type + 1].
        indices: int32 or int64 [E], nodes of the source type.
        first: the first node of the source type and of the target type, when those of all types are numbered through.
    """

    indptr: np.ndarray
    indices: np.ndarray
    first: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Counts:
    """What the sampler did in `num_batches` batches.

    Attributes:
        node_reads: uint32 [rows], batches that read the row; the rows of the node types follow each other.
        expansions: uint32 [lists], times neighbours were drawn from the list; the lists of the relations follow each
            other.
        edges_read: uint64 [lists], neighbours read in all of these: those drawn, or by layers all of the list.
        max_batch_nodes, max_batch_edges: of the largest batch seen; 0 when unknown.
        promised: reads, and expansions, to expect in as many other batches, float64 [any] each, by count; where they
            are empty, counts are taken as they are.
    """

    num_batches: int
    node_reads: np.ndarray
    expansions: np.ndarray
    edges_read: np.ndarray
    max_batch_nodes: int = 0
    max_batch_edges: int = 0
    promised: tuple[Sequence[float], Sequence[float]] = ((), ())

    @classmethod
    def stand_in(cls, policy: str, relations: Sequence[PlanEdges], num_nodes: int, picks: int) -> "Counts":
        """Counts without sampling, for comparisons: they rank the nodes, and say nothing about a batch.

        Args:
            policy: "degree": a node is read as often as it has out-edges, and drawn from each time; "random": by
                chance, always the same.
            relations: in order.
            num_nodes: of all types.
            picks: most neighbours drawn from a list; -1: all.
        """
        arrays = [
            (np.ascontiguousarray(relation.indptr, np.int64), np.ascontiguousarray(relation.indices), *relation.first)
            for relation in relations
        ]
        counts = _native.stand_in(policy, arrays, num_nodes, picks)
        return cls(1, counts.reads, counts.expansions, counts.edges_read)


def load_counts(path: Path) -> Counts:
    """The counts of a file that pre-sampling wrote (FORMAT.md).

    Raises:
        CohortError: it is missing or damaged.
    """
    file = _native.Hotness.load(str(path))
    arrays = (file.node_reads, file.expansions, file.edges_read)
    return Counts(file.num_batches, *arrays, file.max_batch_nodes, file.max_batch_edges, file.promised)


def raw_row_bytes(data) -> int:
    """Bytes of a raw feature row of an opened data set, or of one of its node types; 0 without features."""
    return data.feature_dim * ELEMENT_BYTES[data.feature_dtype] if data.feature_dim else 0


def holds_all_raw_rows(budget_bytes: int, tables: Sequence[tuple[int, int]]) -> bool:
    """Whether a GPU's cache of so many bytes has room for all feature rows as they are, and for what finds them.

    Args:
        tables: rows, and bytes of a row, of each node type.
    """
    return budget_bytes >= sum(_native.bytes_of_all_raw_rows(*table) for table in tables)


def stored_row_bytes(data, coded: bool) -> int | np.ndarray:
    """Bytes that feature rows take where they are kept: of every row, or uint32 [V].

    Args:
        data: an opened data set, or one of its node types. One that is not prepared has a codec fitted to a sample of
            its rows: then a mean.
        coded: kept encoded; else raw.

    Raises:
        CohortError: rows above 65536 bytes; encoded rows that are damaged or of another shape.
    """
    if data.feature_dim == 0:
        return 0
    raw = None if data.x is None else data.x.view(np.uint8)
    encoded = "" if data.encoded_rows is None else str(data.encoded_rows)
    shape = (data.num_nodes, data.feature_dim, data.feature_dtype)
    return _native.stored_row_bytes(raw, encoded, *shape, raw_row_bytes(data), coded)


def plan(
    tables: Sequence[PlanRows],
    relations: Sequence[PlanLists],
    counts: Counts | Sequence[Counts],
    *,
    cliques: Sequence[Sequence[int]],
    budget_bytes: Sequence[int],
    links: PlanLinks,
    entry_bytes: int = 8,
    scratch_bytes: int = 0,
    pool_slots: int = 0,
    machines: int = 1,
    network_bytes_per_second: float = NETWORK_BYTES_PER_SECOND,
):
    """Where each feature row and neighbour list goes.

    Args:
        tables: of each node type.
        relations: of each relation; none: neighbour lists are read elsewhere, and not planned.
        counts: of all GPUs; or one a clique, where cliques have seeds of their own.
        cliques: every GPU 0..G-1 once; a GPU without peers alone.
        budget_bytes: int [G].
        entry_bytes: of the directory, a row of the clique, on each of its GPUs.
        scratch_bytes: working memory of each GPU.
        pool_slots: rows of earlier batches are found in a pool of each table, with room for the batches of so many
            slots; 0: they are not.
        machines: that keep a part of the rows each; the GPUs are those of the first. A row of another machine takes
            the network's time on top of that of host memory.
        network_bytes_per_second: that a machine gets from the others; its GPUs share it.

    Returns:
        _native.Plan: `gpu(i)` with slabs and expected use a batch by tier (local, peer, host, recent,
        disk: 0, remote),
        `clique(i)` with every row of a clique and its owner, `seconds` a batch summed over GPUs.

    Raises:
        CohortError: input that contradicts itself.
    """
    return _native.plan(
        tables=[(table.num_rows, _bytes(table.row_bytes), _bytes(table.host_row_bytes)) for table in tables],
        relations=[(np.ascontiguousarray(lists.indptr, np.int64), lists.index_bytes) for lists in relations],
        counts=[_native_counts(part) for part in ([counts] if isinstance(counts, Counts) else counts)],
        cliques=[list(clique) for clique in cliques],
        budget_bytes=list(budget_bytes),
        bytes_per_second=list(links.bytes_per_second),
        seconds_per_line=list(links.seconds_per_line),
        entry_bytes=entry_bytes,
        scratch_bytes=scratch_bytes,
        pool_slots=pool_slots,
        machines=machines,
        network_bytes_per_second=network_bytes_per_second,
    )


def _native_counts(counts: Counts) -> tuple:
    arrays = (counts.node_reads, counts.expansions, counts.edges_read)
    dtypes = (np.uint32, np.uint32, np.uint64)
    promised = [list(map(float, promise)) for promise in counts.promised]
    return (
        counts.num_batches,
        *(np.ascontiguousarray(array, dtype) for array, dtype in zip(arrays, dtypes, strict=True)),
        promised,
    )


def _bytes(row_bytes: int | np.ndarray | None):
    return row_bytes if row_bytes is None or isinstance(row_bytes, int) else np.ascontiguousarray(row_bytes, np.uint32)
