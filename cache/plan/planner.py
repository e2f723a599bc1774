"""The planner (plan.h) for Python."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cohort.cache import _native

MAX_CLIQUE_GPUS = _native.MAX_CLIQUE_GPUS
# Whether a GPU's cache of so many bytes has room for all feature rows as they are, and for what finds them.
holds_all_raw_rows = _native.holds_all_raw_rows
# "none" (each alone), "all", "2x4" (two of four) or "3+5", and how many GPUs there are, as lists of GPUs. It raises a
# CohortError for another text, a clique of more than MAX_CLIQUE_GPUS, or other sizes than GPUs in all.
cliques_named = _native.cliques_named
ELEMENT_BYTES = {"uint8": 1, "float16": 2, "bfloat16": 2, "float32": 4, "int32": 4, "int64": 8}


@dataclass(frozen=True)
class Links:
    """What each tier gives a GPU: (local, peer, host).

    Attributes:
        bytes_per_second: bandwidths, descending.
        seconds_per_line: fixed cost of each line of 128 bytes, on top.
    """

    bytes_per_second: tuple[float, float, float]
    seconds_per_line: tuple[float, float, float] = (0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Counts:
    """What the sampler did in `num_batches` batches.

    Attributes:
        node_reads: uint32 [V], batches that read the node's feature row.
        expansions: uint32 [V], times the node's neighbours were drawn.
        edges_read: uint64 [V], neighbours drawn in all of these.
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
    def stand_in(cls, policy: str, indptr: np.ndarray, indices: np.ndarray, picks: int) -> "Counts":
        """Counts without sampling, to compare with: they order the nodes, and say nothing of a batch.

        Args:
            policy: "degree": a node is read as often as it has out-edges, and drawn from each time; "random": by
                chance, always the same.
            indptr: int64 [V + 1].
            indices: int32 or int64 [E].
            picks: most neighbours drawn from a list; -1: all.
        """
        found = _native.stand_in(policy, np.ascontiguousarray(indptr, np.int64), np.ascontiguousarray(indices), picks)
        return cls(1, found.reads, found.reads, found.edges_read)


def load_counts(path: Path) -> Counts:
    """The counts of a file that pre-sampling wrote (FORMAT.md).

    Raises:
        CohortError: it is missing or damaged.
    """
    file = _native.Hotness.load(str(path))
    arrays = (file.node_reads, file.expansions, file.edges_read)
    return Counts(file.num_batches, *arrays, file.max_batch_nodes, file.max_batch_edges, file.promised)


def raw_row_bytes(data) -> int:
    """Bytes of a raw feature row of an opened data set."""
    return data.feature_dim * ELEMENT_BYTES[data.feature_dtype]


def stored_row_bytes(data, coded: bool) -> int | np.ndarray:
    """Bytes that feature rows take where they are kept: of every row, or uint32 [V].

    Args:
        data: an opened data set. One that is not prepared has a codec fitted to a sample of its rows: then a mean.
        coded: kept encoded; else raw.

    Raises:
        CohortError: rows above 65536 bytes; encoded rows that are damaged or of another shape.
    """
    raw = None if data.x is None else data.x.view(np.uint8)
    encoded = "" if data.encoded_rows is None else str(data.encoded_rows)
    shape = (data.num_nodes, data.feature_dim, data.feature_dtype)
    return _native.stored_row_bytes(raw, encoded, *shape, raw_row_bytes(data), coded)


def plan(
    indptr: np.ndarray,
    counts: Counts | Sequence[Counts],
    *,
    index_bytes: int,
    row_bytes: int | np.ndarray,
    cliques: Sequence[Sequence[int]],
    budget_bytes: Sequence[int],
    links: Links,
    host_row_bytes: int | np.ndarray | None = None,
    topology: bool = True,
    entry_bytes: int = 8,
    scratch_bytes: int = 0,
    recent: tuple[int, int] = (0, 0),
):
    """Where each feature row and neighbour list goes.

    Args:
        indptr: int64 [V + 1].
        counts: of all GPUs; or one a clique, where cliques have seeds of their own.
        index_bytes: of an entry of `indices`, 4 or 8.
        row_bytes: of every stored feature row, or uint32 [V] for rows packed back to back.
        cliques: every GPU 0..G-1 once; a GPU without peers alone.
        budget_bytes: int [G].
        host_row_bytes: as `row_bytes`, of rows in host memory, when they are stored there in another way.
        topology: False: neighbour lists are read elsewhere, and no business of the plan.
        entry_bytes: of the directory, a row of the clique, on each of its GPUs.
        scratch_bytes: working memory of each GPU.
        recent: rows of so many batches before are copied instead of read from a peer or the host; bytes of such a row.

    Returns:
        cohort.cache._native.Plan: `gpu(i)` with slabs and expected use a batch by tier (local, peer, host, recent),
        `clique(i)` with every row of a clique and its owner, `seconds` a batch summed over GPUs.

    Raises:
        CohortError: input that contradicts itself.
    """
    bitmap_bytes = _native.bitmap_bytes(len(indptr) - 1)
    return _native.plan(
        np.ascontiguousarray(indptr, np.int64),
        index_bytes=index_bytes,
        row_bytes=_bytes(row_bytes),
        host_row_bytes=None if host_row_bytes is None else _bytes(host_row_bytes),
        lists=topology,
        counts=[_native_counts(each) for each in ([counts] if isinstance(counts, Counts) else counts)],
        cliques=[list(clique) for clique in cliques],
        budget_bytes=list(budget_bytes),
        bytes_per_second=list(links.bytes_per_second),
        seconds_per_line=list(links.seconds_per_line),
        index=[bitmap_bytes, entry_bytes, scratch_bytes],
        recent=recent,
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


def _bytes(of_rows: int | np.ndarray):
    return of_rows if isinstance(of_rows, int) else np.ascontiguousarray(of_rows, np.uint32)
