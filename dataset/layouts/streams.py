"""Arrays of a source as streams: edges with weights, times and features, and rows; labels as arrays on demand."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import scipy  # its packages load on first use

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset import arrays
from cohort_gnn.dataset.array_file import Array, ArrayFile, Bfloat16Array, MemoryArray
from cohort_gnn.dataset.columns import FittedColumn
from cohort_gnn.dataset.tables.classes import named_classes
from cohort_gnn.dataset.tables.encoding import DeclaredColumns
from cohort_gnn.dataset.tables.table import TableFile, shortened
from cohort_gnn.dataset.tables.timestamps import Clock, times_or

ROWS_AT_ONCE = 4096  # of a sparse matrix
EDGE_BYTES = 16
ONES = "ones"  # in the place of a file of rows: one column of ones


class Selection(Protocol):
    """bool [n], of which slices are taken."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: slice) -> np.ndarray: ...


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
        weights: of edges that have them.
        times: of edges that have them, and no weights.
        features: rows in the order of the edges, where they have some.
        has_unknown: ends may be -1, for ids that no node has; such edges are to be left out.
        selected: which of them are meant; None: all.
        left_out: says, once all were read, what of the source is no edge; "" where all is.
    """

    place: str
    chunks: Callable[[int], Iterator[EdgeChunk]]
    ends: tuple[str, str] | None = None
    others: tuple[str, ...] = ()
    weights: Weights | None = None
    times: Weights | None = None
    features: Rows | None = None
    has_unknown: bool = False
    selected: Selection | None = None
    left_out: Callable[[], str] = str

    def only(self, kept: np.ndarray) -> Edges:
        """These edges, bool [E], with what they have beside."""

        def chunks(block_bytes: int) -> Iterator[EdgeChunk]:
            done = 0
            for src, dst, fraction in self.chunks(block_bytes):
                keep = kept[done : done + len(src)]
                done += len(src)
                yield src[keep], dst[keep], fraction

        beside: dict[str, Any] = {name: getattr(self, name) for name in ("weights", "times", "features")}
        for name, stream in beside.items():
            if stream is not None:
                beside[name] = replace(stream, chunks=_only(stream, kept))
        if beside["features"] is not None:
            beside["features"] = replace(beside["features"], matrix=None)
        return replace(self, chunks=chunks, has_unknown=False, selected=None, **beside)

    def describe_columns(self) -> str:
        """Which columns of a table are what, in words; "" when there is no table."""
        if self.ends is None:
            return ""
        weight, time = (numbers.column if numbers else "" for numbers in (self.weights, self.times))
        features = self.features.columns if self.features else ()
        unused = [title for title in self.others if title not in (weight, time, *features)]
        text = " -> ".join(self.ends)
        text += (f", weights {weight}" if weight else "") + (f", times {time}" if time else "")
        text += f", features {shortened(features)}" if features else ""
        return text + (f" ({shortened(unused)} not used)" if unused else "") + "; "

    def with_column(self, column: Weights | Rows) -> Edges:
        """The edges with these weights, times or features."""
        if isinstance(column, Rows):
            return replace(self, features=column)
        return replace(self, times=column) if column.are_times else replace(self, weights=column)

    @staticmethod
    def _in_pieces(place: str, count: int, pieces: Callable[[int], Iterator[tuple[np.ndarray, np.ndarray]]]) -> Edges:
        """Edges of pieces(edges at once), integers [n] each; `count` in all."""

        def chunks(block_bytes: int) -> Iterator[EdgeChunk]:
            done = 0
            for endpoints in pieces(max(1, block_bytes // EDGE_BYTES)):
                done += len(endpoints[0])
                src, dst = (arrays.as_int64(place, ids) for ids in endpoints)
                yield src, dst, done / count

        return Edges(place, chunks)

    @staticmethod
    def from_arrays(place: str, src: Array, dst: Array) -> Edges:
        """Edges whose ends are in two arrays, integers [E] each."""
        for end in (src, dst):
            demand_integers(end)
        if src.shape != dst.shape or len(src.shape) != 1:
            expected = f"as many destinations as {src.place} has sources"
            raise CohortError(dst.place, expected, f"{src.shape}, {dst.shape}")
        return Edges._in_pieces(place, len(src), lambda at_once: zip(src.rows(at_once), dst.rows(at_once), strict=True))

    @staticmethod
    def in_memory(place: str, src: np.ndarray, dst: np.ndarray) -> Edges:
        """Edges of two arrays in memory, integers [E] each."""
        return Edges.from_arrays(place, MemoryArray(place, src), MemoryArray(place, dst))

    @staticmethod
    def from_pairs(pairs: Array, rows: bool = False) -> Edges:
        """Edges in one file, integers [2, E] or [E, 2]; 2 x 2 are [2, E], with `rows` [E, 2]."""
        pairs = demand_integers(pairs)
        if len(pairs.shape) != 2 or 2 not in pairs.shape:
            raise CohortError(pairs.place, "shape [2, E] or [E, 2]", f"shape {list(pairs.shape)}")
        count = pairs.shape[0] * pairs.shape[1] // 2
        sources_first = pairs.shape[0] == 2 and not (rows and pairs.shape[1] == 2)
        if sources_first != pairs.fortran:  # all sources lie before all destinations
            return Edges.from_arrays(pairs.place, pairs.reshaped(count), pairs.reshaped(count, first=count))
        pairs = pairs.reshaped(count, 2)
        return Edges._in_pieces(
            pairs.place, count, lambda at_once: ((block[:, 0], block[:, 1]) for block in pairs.rows(at_once))
        )

    @staticmethod
    def from_columns(place: str, indptr: np.ndarray, columns: Array) -> Edges:
        """Edges of a CSR: row i and columns[indptr[i]:indptr[i + 1]] are the edges i -> column.

        Args:
            indptr: integers [V + 1], ascending from 0 to the number of columns; looked at here.
            columns: integers [E].
        """
        demand_integers(columns)
        arrays.demand_offsets(place, indptr, len(columns))

        def pieces(at_once: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
            done = 0
            for destinations in columns.rows(at_once):
                first, done = done, done + len(destinations)
                row = int(np.searchsorted(indptr, first, side="right")) - 1
                last_row = int(np.searchsorted(indptr, done, side="left"))
                counts = np.diff(np.clip(indptr[row : last_row + 1], first, done))
                yield np.repeat(np.arange(row, last_row, dtype=np.int64), counts), destinations

        return Edges._in_pieces(place, len(columns), pieces)

    def transposed(self) -> Edges:
        """The same edges in the other direction."""
        return replace(self, chunks=lambda size: ((dst, src, done) for src, dst, done in self.chunks(size)))

    def both_ways(self) -> Edges:
        """These edges, and behind them their reverses, with what they have beside."""

        def twice(chunks: Callable[[int], Iterator[np.ndarray]]) -> Callable[[int], Iterator[np.ndarray]]:
            return lambda size: itertools.chain(chunks(size), chunks(size))

        beside: dict[str, Any] = {name: getattr(self, name) for name in ("weights", "times", "features")}
        beside = {name: numbers and replace(numbers, chunks=twice(numbers.chunks)) for name, numbers in beside.items()}
        if beside["features"] is not None:
            beside["features"] = replace(beside["features"], matrix=None)
        return replace(Edges.from_parts(self.place, [self, self.transposed()]), **beside)

    @staticmethod
    def from_parts(place: str, parts: Sequence[Edges]) -> Edges:
        """The edges of several files, one after the other."""

        def chunks(block_bytes: int) -> Iterator[EdgeChunk]:
            for number, part in enumerate(parts):
                for src, dst, fraction in part.chunks(block_bytes):
                    yield src, dst, (number + fraction) / len(parts)

        return Edges(place, chunks)

    @staticmethod
    def from_table(table: TableFile, columns: Sequence[int]) -> Edges:
        """Edges of two columns, one a row."""

        def chunks(block_bytes: int) -> Iterator[EdgeChunk]:
            for parts, fraction in table.columns(columns, block_bytes, np.int64):
                src, dst, *_ = (column for part in parts for column in np.atleast_2d(part.T))
                yield src, dst, fraction

        titles = table.titles
        src, dst = (titles[i] if i < len(titles) else f"column {i}" for i in columns)  # reading refuses these
        others = tuple(title for title in titles if title not in (src, dst))
        return Edges(str(table.path), chunks, (src, dst), others)


@dataclass(frozen=True)
class Weights:
    """A weight for each edge, or a time, in the order of the edges, as a stream; or a time for each node.

    Attributes:
        place: for messages.
        chunks: chunks(block_bytes) gives numbers [n] at a time.
        column: of the edges' table, the one that has them.
        are_times: integers, kept as int64; else float32.
        unit: of timestamps or dates, such as "s"; None: integers.
    """

    place: str
    chunks: Callable[[int], Iterator[np.ndarray]]
    column: str = ""
    are_times: bool = False
    unit: str | None = None

    def converted(self, numbers: np.ndarray) -> np.ndarray:
        """float32 [n], or int64 [n], as the data set has them."""
        return (arrays.edge_times if self.are_times else arrays.edge_weights)(self.place, numbers)

    @staticmethod
    def from_array(array: Array, are_times: bool = False) -> Weights:
        """Weights or times in an array: numbers [E] or [E, 1]."""
        if not array.shape:
            raise CohortError(array.place, "a number for each edge or node", "a single number")
        return Weights(
            array.place, lambda block_bytes: array.rows(max(1, block_bytes // EDGE_BYTES)), are_times=are_times
        )

    @staticmethod
    def from_table(
        table: TableFile, column: int, are_times: bool = False, clock: Clock | None = None, none: int | None = None
    ) -> Weights:
        """A column of a table, a weight or a time a row.

        Args:
            clock: the times are timestamps or dates.
            none: the time of a null; None: nulls are refused.
        """
        if none is not None:
            stream = lambda size: times_or(none, table, column, clock, size)  # noqa: E731
            unit = None if clock is None else clock.unit
            return Weights(table.place(column), stream, table.titles[column], are_times, unit)
        if clock is not None:
            stream = lambda size: clock.read(table, column, size)  # noqa: E731
            return Weights(table.place(column), stream, table.titles[column], are_times, clock.unit)

        def chunks(block_bytes: int) -> Iterator[np.ndarray]:
            try:
                yield from (rows for rows, _ in table.blocks([column], block_bytes, dtype))
            except CohortError as error:
                if not are_times or not error.expected.startswith(("an integer", "integers", "numbers")):
                    raise
                raise CohortError(error.place, error.expected, error.found, arrays.TIMES_HINT) from error

        dtype = np.int64 if are_times else np.float32
        name = table.titles[column] if table.names else str(column)
        return Weights(f"{table.path}: column {name}", chunks, table.titles[column], are_times)


class WeightReader:
    """Hands out a stream of weights or times, as many at a time as there are edges."""

    def __init__(self, weights: Weights, block_bytes: int):
        self._weights, self._chunks = weights, weights.chunks(block_bytes)
        self._place, self._what = weights.place, "time" if weights.are_times else "weight"
        self._read, self._left = 0, weights.converted(np.empty(0, np.int64))

    def take(self, count: int) -> np.ndarray:
        """float32 or int64 [count]: the next ones."""
        parts = [self._left]
        while (missing := count - sum(map(len, parts))) > 0:
            part = next(self._chunks, None)
            if part is None:
                actual = f"only {self._read + count - missing}"
                raise CohortError(self._place, f"one {self._what} for each edge", actual)
            parts.append(self._weights.converted(part))
        numbers = np.concatenate(parts)
        self._read, self._left = self._read + count, numbers[count:]
        return np.ascontiguousarray(numbers[:count])

    def finish(self) -> None:
        """Raises CohortError when there are more weights than edges."""
        if len(self._left) or any(len(part) for part in self._chunks):
            raise CohortError(self._place, f"{self._read} {self._what}s, one per edge", "more")


@dataclass(frozen=True)
class Rows:
    """Feature rows as a stream.

    Attributes:
        dtype: the name that meta.json has for it.
        chunks: chunks(block_bytes) gives [n, D] at a time.
        matrix: all of them, where they are in memory anyway.
        columns: names of those of a table that they are made of, where not all are.
        titles: the same, of all as well, where the table names them and none is encoded.
        declared: columns of unlike types, whose encoding is fitted to training rows before the rows can be read.
        fitted: how the columns were encoded.
        width: D where a source without rows says it; 0: it does not.
    """

    place: str
    dtype: str
    chunks: Callable[[int], Iterator[np.ndarray]]
    matrix: np.ndarray | scipy.sparse.csr_matrix | None = None
    columns: tuple[str, ...] = ()
    titles: tuple[str, ...] = ()
    declared: DeclaredColumns | None = None
    fitted: tuple[FittedColumn, ...] = ()
    width: int = 0

    def none(self) -> np.ndarray:
        """[0, D]: the rows of a source that has none."""
        return np.empty((0, self.width), np.uint16 if self.dtype == "bfloat16" else self.dtype)

    @staticmethod
    def from_declared(declared: DeclaredColumns) -> Rows:
        """Rows that are encoded once `fit` has been called."""
        names = tuple(declared.table.titles[number] for number, _ in declared.columns)
        return Rows(str(declared.table.path), "float32", lambda size: iter(()), columns=names, declared=declared)

    def fit(self, rows: np.ndarray | None, before: Sequence[FittedColumn] | None = None, where: str = "") -> Rows:
        """The rows that declared columns become.

        Args:
            rows: bool [V], those that the encoding is fitted to; None: all.
            before: how the columns of the data set `where` were encoded, which is done again.
        """
        declared = self.declared
        assert declared is not None
        if before is not None:
            declared.demand_same(before, where)
        fitted = tuple(declared.fit(rows) if before is None else before)
        width = sum(len(column.names) for column in fitted)
        chunks = lambda size: declared.encoded(fitted, size)  # noqa: E731
        return replace(self, chunks=chunks, fitted=fitted, declared=None, width=width)

    @staticmethod
    def ones(place: str, count: int) -> Rows:
        """One column of ones, uint8 [count, 1], for nodes without features."""
        return Rows.from_matrix(place, np.broadcast_to(np.uint8(1), (count, 1)))

    @staticmethod
    def from_matrix(place: str, x: np.ndarray | scipy.sparse.csr_matrix, dtype: str | None = None) -> Rows:
        """Rows in memory, [V, D]; a sparse matrix is made dense piece by piece."""

        def chunks(block_bytes: int) -> Iterator[np.ndarray]:
            for first in range(0, x.shape[0], ROWS_AT_ONCE):
                rows = x[first : first + ROWS_AT_ONCE]
                yield rows if isinstance(rows, np.ndarray) else _dense(place, rows)

        return Rows(place, dtype or x.dtype.name, chunks, x)

    @staticmethod
    def from_file(file: ArrayFile | MemoryArray, dtype: str | None = None) -> Rows:
        """Rows of an array [V, D] on disk or mapped from it; `dtype`: where it holds the bits of another type."""
        arrays.demand_shape(file.place, file, (None, None))
        if dtype is None:
            arrays.demand_no_bits(file.place, file.dtype)

        def chunks(block_bytes: int) -> Iterator[np.ndarray]:
            vanished = arrays.Vanished(file.place)
            for rows in file.rows(max(1, block_bytes // max(1, file.row_bytes))):
                yield rows if dtype else arrays.features(file.place, rows, vanished)
            vanished.demand_none()

        return Rows(file.place, dtype or arrays.feature_dtype(file.dtype).name, chunks, width=file.shape[1])

    @staticmethod
    def from_parts(place: str, parts: Sequence[Rows]) -> Rows:
        """The rows of several files, one after the other."""
        dtypes = {part.dtype for part in parts}
        if len(dtypes) != 1:
            raise CohortError(place, "files of one type", ", ".join(sorted(dtypes)) or "no file")

        def chunks(block_bytes: int) -> Iterator[np.ndarray]:
            columns = None
            for part in parts:
                for rows in part.chunks(block_bytes):
                    columns = columns or rows.shape[1]
                    arrays.demand_shape(part.place, rows, (None, columns))
                    yield rows

        return Rows(place, parts[0].dtype, chunks)

    @staticmethod
    def from_table(table: TableFile, columns: Sequence[int] | None = None) -> Rows:
        """Rows of a table: all of its columns, or these, as float32."""

        def chunks(block_bytes: int) -> Iterator[np.ndarray]:
            return (rows for rows, _ in table.blocks(columns, block_bytes, np.float32))

        chosen = tuple(table.titles[i] for i in columns or ())
        titles = (chosen or tuple(table.titles)) if table.names else ()
        width = len(chosen or table.titles)
        return Rows(str(table.path), "float32", chunks, columns=chosen, titles=titles, width=width)


@dataclass(frozen=True)
class Labels:
    """Numbers [V] or [V, 1], or [V, labels], that are read when asked for; NaN and -1: none.

    Attributes:
        ids: gives the id of the node of each row; None: row i is node i.
        numbers: reads them as numbers to regress, of which no integer is rounded; None: as `read` does.
        classes: reads the classes, and their names, where they have some: float64 [V], NaN for none.
        outputs: the names of several labels.
    """

    place: str
    read: Callable[[], np.ndarray]
    ids: Callable[[], np.ndarray] | None = None
    numbers: Callable[[], np.ndarray] | None = None
    classes: Callable[[], tuple[np.ndarray, list[str]] | None] = lambda: None
    outputs: tuple[str, ...] = ()

    @staticmethod
    def from_table(
        table: TableFile,
        columns: Sequence[int],
        several: bool,
        ids: Callable[[], np.ndarray] | None = None,
        classes: Sequence[str] | None = None,
    ) -> Labels:
        """Columns of a table, [V], or [V, columns] with `several`, also of one; `classes`: their names in order."""

        def shaped(labels: np.ndarray) -> np.ndarray:
            return labels.reshape(len(labels), -1) if several else labels

        place = f"{table.path}: column {', '.join(table.titles[i] for i in columns)}"
        return Labels(
            place,
            lambda: shaped(table.read(columns)),
            ids,
            lambda: shaped(table.read(columns, np.float32, nulls=True)),
            lambda: named_classes(table, columns[0], classes) if len(columns) == 1 else None,
            tuple(table.titles[i] for i in columns) if len(columns) > 1 else (),
        )


def _only(stream: Weights | Rows, kept: np.ndarray) -> Callable[[int], Iterator[np.ndarray]]:
    """The chunks of a stream with one entry for each edge, without those of other edges than these."""

    def chunks(block_bytes: int) -> Iterator[np.ndarray]:
        done = 0
        for entries in stream.chunks(block_bytes):
            done += len(entries)
            if done > len(kept):
                break
            yield entries[kept[done - len(entries) : done]]
        if done != len(kept):
            actual = "more" if done > len(kept) else str(done)
            raise CohortError(stream.place, f"{len(kept)} rows, one for each edge", actual)

    return chunks


def _dense(place: str, rows: scipy.sparse.csr_matrix) -> np.ndarray:
    try:
        return rows.toarray()
    except (MemoryError, ValueError) as error:
        raise CohortError(
            place, "dense rows that memory holds", f"shape {list(rows.shape)}", "leave columns out"
        ) from error


def demand_integers(array: Array) -> ArrayFile | MemoryArray:
    """The array; raises CohortError unless it holds integers."""
    if isinstance(array, Bfloat16Array) or array.dtype.kind not in "iu":
        raise CohortError(array.place, "integers", f"dtype {array.dtype}", "convert it with array.astype(numpy.int64)")
    return array
