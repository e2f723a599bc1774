"""What an importer finds in a source: edges and rows as streams, labels and splits as arrays when asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import scipy  # its packages load on first use

from cohort.base.errors import CohortError
from cohort.dataset import arrays
from cohort.dataset.array_file import ArrayFile
from cohort.dataset.layouts.parquet_file import ParquetFile
from cohort.dataset.layouts.text_file import TextFile, shortened

ROWS_AT_ONCE = 4096  # of a sparse matrix

# Both ends of some edges, int64 [n] each, and how much of the source is read, in [0, 1].
EdgeChunk = tuple[np.ndarray, np.ndarray, float]


@dataclass(frozen=True)
class Edges:
    """Edges src -> dst as a stream that can be read again.

    Attributes:
        place: for messages.
        chunks: chunks(block_bytes) gives them in pieces of about that many bytes.
        ends: of a table, the columns of sources and destinations.
        others: its other columns.
    """

    place: str
    chunks: Callable[[int], Iterator[EdgeChunk]]
    ends: tuple[str, str] | None = None
    others: tuple[str, ...] = ()


@dataclass(frozen=True)
class Weights:
    """A weight for each edge, in the order of the edges, as a stream.

    Attributes:
        place: for messages.
        chunks: chunks(block_bytes) gives numbers [n] at a time.
        column: of the edges' table, the one that has them.
    """

    place: str
    chunks: Callable[[int], Iterator[np.ndarray]]
    column: str = ""


class WeightReader:
    """Hands out a stream of weights, as many at a time as there are edges."""

    def __init__(self, weights: Weights, block_bytes: int):
        self._place, self._chunks = weights.place, weights.chunks(block_bytes)
        self._read, self._left = 0, np.empty(0, np.float32)

    def take(self, count: int) -> np.ndarray:
        """float32 [count]: the next ones."""
        parts = [self._left]
        while (missing := count - sum(map(len, parts))) > 0:
            part = next(self._chunks, None)
            if part is None:
                raise CohortError(
                    self._place, "one weight for each edge", f"{self._read + count - missing} for more edges"
                )
            parts.append(arrays.edge_weights(self._place, part))
        found = np.concatenate(parts)
        self._read, self._left = self._read + count, found[count:]
        return np.ascontiguousarray(found[:count])

    def finish(self) -> None:
        """Raises CohortError when there are more weights than edges."""
        if len(self._left) or any(len(part) for part in self._chunks):
            raise CohortError(self._place, f"{self._read} weights, one per edge", "more")


@dataclass(frozen=True)
class Rows:
    """Feature rows as a stream.

    Attributes:
        dtype: the name that meta.json has for it.
        chunks: chunks(block_bytes) gives [n, D] at a time.
        matrix: all of them, where they are in memory anyway.
    """

    place: str
    dtype: str
    chunks: Callable[[int], Iterator[np.ndarray]]
    matrix: np.ndarray | scipy.sparse.csr_matrix | None = None


@dataclass
class Graph:
    """A graph of another format.

    Attributes:
        edge_weights: of edges that have them.
        num_nodes: where the source says it; else the feature rows do, or the edges.
        labels: gives numbers [V] or [V, 1], or [V, labels]; NaN and -1: none.
        any_task: the labels are as the source has them; else the reader made classes of them.
        splits: gives train, val and test ids, or bool masks [V].
        splits_from: where they are from, for messages.
        reverse, dedupe, self_loops: what the other library does to the edges when it loads them.
    """

    name: str
    edges: Edges
    features: Rows | None = None
    edge_weights: Weights | None = None
    labels: Callable[[], tuple[str, np.ndarray]] | None = None
    splits: Callable[[], list[np.ndarray]] | None = None
    splits_from: str = "the source"
    num_nodes: int | None = None
    num_classes: int | None = None
    reverse: bool = False
    dedupe: bool = False
    self_loops: str = "keep"
    any_task: bool = False
    notes: list[str] = field(default_factory=list)

    def columns_told(self) -> str:
        """Which columns of a table of edges are what, in words; "" when there is no table."""
        if self.edges.ends is None:
            return ""
        weight = self.edge_weights.column if self.edge_weights else ""
        unused = [title for title in self.edges.others if title != weight]
        told = " -> ".join(self.edges.ends) + (f", weights {weight}" if weight else "")
        return told + (f" ({shortened(unused)} not used)" if unused else "") + "; "

    def take_splits(self, path: Path, there: dict[str, Callable[[], np.ndarray]], names: Sequence[str]) -> None:
        """Takes those of three splits, ids or bool masks called `names`, that a file has; the others are empty."""

        def read(key: str) -> np.ndarray:
            if key not in there:
                return np.empty(0, np.int64)
            ids = there[key]()
            arrays.demand_shape(f"{path}: {key}", ids, (None,))
            return ids if ids.dtype.kind == "b" else arrays.integers(f"{path}: {key}", ids)

        missing = [key for key in names if key not in there]
        self.splits = self.splits or (lambda: [read(key) for key in names])
        self.splits_from = path.name + (f", which has no {' and no '.join(missing)}" if missing else "")


def edges_of_arrays(place: str, src: np.ndarray, dst: np.ndarray) -> Edges:
    """Edges in memory: integers [E] each."""

    def chunks(block_bytes: int) -> Iterator[EdgeChunk]:
        at_once = max(1, block_bytes // 16)
        for first in range(0, len(src), at_once):
            last = min(first + at_once, len(src))
            yield _int64(src[first:last]), _int64(dst[first:last]), last / len(src)

    return Edges(place, chunks)


def edges_of_files(place: str, src: ArrayFile, dst: ArrayFile) -> Edges:
    """Edges whose ends are in two files, integers [E] each."""
    for end in (src, dst):
        demand_integers(end)
    if src.shape != dst.shape or len(src.shape) != 1:
        raise CohortError(dst.place, f"as many destinations as {src.place} has sources", f"{src.shape}, {dst.shape}")

    def chunks(block_bytes: int) -> Iterator[EdgeChunk]:
        at_once = max(1, block_bytes // 16)
        done = 0
        pairs = zip(src.rows(at_once * src.row_bytes), dst.rows(at_once * dst.row_bytes), strict=True)
        for sources, destinations in pairs:
            done += len(sources)
            yield _int64(sources), _int64(destinations), done / len(src)

    return Edges(place, chunks)


def edges_of_pairs(pairs: ArrayFile) -> Edges:
    """Edges in one file, integers [2, E] or [E, 2]."""
    demand_integers(pairs)
    if len(pairs.shape) != 2 or 2 not in pairs.shape:
        raise CohortError(pairs.place, "shape [2, E] or [E, 2]", f"shape {list(pairs.shape)}")
    count = pairs.shape[0] * pairs.shape[1] // 2
    if (pairs.shape[0] == 2) != pairs.fortran:
        return _edges_of_halves(pairs.reshaped(2 * count))
    pairs = pairs.reshaped(count, 2)

    def chunks(block_bytes: int) -> Iterator[EdgeChunk]:
        done = 0
        for rows in pairs.rows(max(1, block_bytes // 16) * pairs.row_bytes):
            done += len(rows)
            ends = _int64(rows)
            yield ends[:, 0], ends[:, 1], done / len(pairs)

    return Edges(pairs.place, chunks)


def _edges_of_halves(flat: ArrayFile) -> Edges:
    """Edges of integers [2 E]: all sources lie before all destinations."""
    count = len(flat) // 2

    def chunks(block_bytes: int) -> Iterator[EdgeChunk]:
        at_once = max(1, block_bytes // 16) * flat.row_bytes
        done = 0
        halves = zip(flat.rows(at_once, 0, count), flat.rows(at_once, count, 2 * count), strict=True)
        for sources, destinations in halves:
            done += len(sources)
            yield _int64(sources), _int64(destinations), done / count

    return Edges(flat.place, chunks)


def edges_of_columns(place: str, indptr: np.ndarray, columns: ArrayFile) -> Edges:
    """Edges of a CSR: row i and columns[indptr[i]:indptr[i + 1]] are the edges i -> column.

    Args:
        indptr: integers [V + 1], ascending from 0 to the number of columns; looked at here.
        columns: integers [E].
    """
    demand_integers(columns)
    if indptr[0] != 0 or indptr[-1] != len(columns) or (indptr[1:] < indptr[:-1]).any():
        expected = f"values that ascend from 0 to {len(columns)}"
        raise CohortError(place, expected, f"{indptr[0]} .. {indptr[-1]}, or a step down")

    def chunks(block_bytes: int) -> Iterator[EdgeChunk]:
        done = 0
        for destinations in columns.rows(max(1, block_bytes // 16) * columns.row_bytes):
            first, done = done, done + len(destinations)
            row = int(np.searchsorted(indptr, first, side="right")) - 1
            last_row = int(np.searchsorted(indptr, done, side="left"))
            counts = np.diff(np.clip(indptr[row : last_row + 1], first, done))
            yield np.repeat(np.arange(row, last_row, dtype=np.int64), counts), _int64(destinations), done / len(columns)

    return Edges(place, chunks)


def edges_of_text(file: TextFile, columns: tuple[int, int]) -> Edges:
    """Edges of two columns of a text, one a line."""

    def chunks(block_bytes: int) -> Iterator[EdgeChunk]:
        for rows, fraction in file.blocks(np.int64, columns, block_bytes):
            yield rows[:, 0], rows[:, 1], fraction

    ends = [file.titles[i] if i < file.num_fields else f"column {i}" for i in columns]  # reading refuses the latter
    return _edges_of_table(str(file.path), chunks, file.titles, ends)


def edges_of_parquet(file: ParquetFile, columns: list[str]) -> Edges:
    """Edges of two columns of a table."""

    def chunks(block_bytes: int) -> Iterator[EdgeChunk]:
        done = 0
        for src, dst in file.batches(columns, max(1, block_bytes // 16)):
            for name, ends in zip(columns, (src, dst), strict=True):
                arrays.integers(f"{file.path}: column {name}", ends)
            done += len(src)
            yield _int64(src), _int64(dst), done / file.num_rows

    return _edges_of_table(str(file.path), chunks, file.names, columns)


def _edges_of_table(place: str, chunks: Callable, titles: Sequence[str], ends: Sequence[str]) -> Edges:
    return Edges(place, chunks, (ends[0], ends[1]), tuple(title for title in titles if title not in ends))


def weights_of_array(place: str, weights: np.ndarray) -> Weights:
    """Weights in memory: numbers [E] or [E, 1]."""
    return Weights(place, lambda block_bytes: iter([weights]))


def weights_of_file(file: ArrayFile) -> Weights:
    """Weights in a file: numbers [E] or [E, 1]."""
    return Weights(file.place, file.rows)


def weights_of_text(file: TextFile, column: int) -> Weights:
    """A column of a text, a weight a line."""

    def chunks(block_bytes: int) -> Iterator[np.ndarray]:
        for rows, _ in file.blocks(np.float32, [column], block_bytes):
            yield rows[:, 0]

    return Weights(f"{file.path}: column {column}", chunks, file.titles[column])


def weights_of_parquet(file: ParquetFile, column: str) -> Weights:
    """A column of a table."""

    def chunks(block_bytes: int) -> Iterator[np.ndarray]:
        for (weights,) in file.batches([column], max(1, block_bytes // 16)):
            yield weights

    return Weights(f"{file.path}: column {column}", chunks, column)


def rows_of_matrix(place: str, x: np.ndarray | scipy.sparse.csr_matrix, dtype: str | None = None) -> Rows:
    """Rows in memory, [V, D]; a sparse matrix is made dense piece by piece."""

    def chunks(block_bytes: int) -> Iterator[np.ndarray]:
        for first in range(0, x.shape[0], ROWS_AT_ONCE):
            rows = x[first : first + ROWS_AT_ONCE]
            yield rows if isinstance(rows, np.ndarray) else _dense(place, rows)

    return Rows(place, dtype or x.dtype.name, chunks, x)


def _dense(place: str, rows: scipy.sparse.csr_matrix) -> np.ndarray:
    try:
        return rows.toarray()
    except (MemoryError, ValueError) as error:
        raise CohortError(place, "dense rows that memory holds", f"shape {list(rows.shape)}", str(error)) from error


def rows_of_file(file: ArrayFile) -> Rows:
    """Rows of an array [V, D] on disk."""
    arrays.demand_shape(file.place, file, (None, None))

    def chunks(block_bytes: int) -> Iterator[np.ndarray]:
        for rows in file.rows(block_bytes):
            yield arrays.features(file.place, rows)

    return Rows(file.place, arrays.feature_dtype(file.dtype).name, chunks)


def rows_of_text(file: TextFile, columns: list[int] | None = None) -> Rows:
    """Rows of a text: all of its columns, or these, as float32."""
    chosen = list(range(file.num_fields)) if columns is None else columns

    def chunks(block_bytes: int) -> Iterator[np.ndarray]:
        for rows, _ in file.blocks(np.float32, chosen, block_bytes, only_these=columns is None):
            yield rows

    return Rows(str(file.path), "float32", chunks if chosen else lambda block_bytes: iter(()))


def rows_of_parquet(file: ParquetFile, columns: list[str]) -> Rows:
    """Rows of columns of numbers, or of lists of them, as float32."""

    def chunks(block_bytes: int) -> Iterator[np.ndarray]:
        for parts in file.batches(columns, max(1, block_bytes // (4 * 64 * len(columns)))):
            yield np.column_stack(parts).astype(np.float32)

    return Rows(str(file.path), "float32", chunks)


def demand_integers(file: ArrayFile) -> None:
    """Raises CohortError unless the array holds integers."""
    if file.dtype.kind not in "iu":
        raise CohortError(file.place, "integers", f"dtype {file.dtype}", "convert it with array.astype(numpy.int64)")


def _int64(ids: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(ids, dtype=np.int64)
