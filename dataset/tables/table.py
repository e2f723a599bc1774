"""Columns of a file, read some rows at a time: the same rules for every kind of table."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.spelling import did_you_mean
from cohort_gnn.dataset.arrays import Vanished
from cohort_gnn.dataset.tables import values
from cohort_gnn.dataset.tables.text_options import GUESSED, NONE, TextOptions

if TYPE_CHECKING:
    import pyarrow as pa

    Arrays = list[pa.Array | pa.ChunkedArray]
    Pieces = Iterator[tuple[Arrays, float]]

READ_AT_ONCE = 1 << 24  # bytes, where all rows are read into memory
FILL_HINT = (
    "fill them in, leave out the columns that have them, or in a graph.yaml say nulls: mean, of a feature, or"
    " null_time: always, of nodes that are always there"
)

# How columns are read: as int64, as float64, as float64 that become float32 (no integer is rounded then), or as texts
# and integers.
ColumnKind = Literal["integers", "numbers", "features", "texts"]


class TableFile(ABC):
    """A file of rows.

    Attributes:
        titles: names of the columns, or "column 0" and so on.
        names: the titles where they come from the file, else none.
        index: the numbers of columns that the program that wrote the file calls its index.
        row_ids: an index that the file has without a column, other than 0, 1, 2, ...
        options: of a text, what the user says of it; None: the file's columns have types.
        said: what the user says of any table, of which `null` counts for columns with types, too.
    """

    path: Path
    titles: list[str]
    names: list[str]
    index: list[int]
    row_ids: range | None = None
    options: TextOptions | None = None
    said: TextOptions = GUESSED

    @abstractmethod
    def pieces(self, columns: Sequence[int], kind: ColumnKind, block_bytes: int) -> Pieces:
        """Columns as Arrow has them, some rows at a time, and how much of the file is read, in [0, 1]."""

    @abstractmethod
    def count(self) -> int:
        """The number of rows."""

    def place(self, column: int) -> str:
        return f"{self.path}: {self._called(column)}"

    def _called(self, column: int) -> str:
        """What messages call a column; one without a name has "column 0" or the like as its title."""
        title = self.titles[column] if column < len(self.titles) else str(column)
        return title if title.startswith("column ") else f"column {title}"

    def blocks(
        self, columns: Sequence[int] | None, block_bytes: int, dtype: Any = None, nulls: bool = False
    ) -> Iterator[tuple[np.ndarray, float]]:
        """Rows [n, columns] at a time, and how much of the file is read, in [0, 1].

        Args:
            columns: numbers of the columns, in this order; None: all.
            dtype: int64 or float32: each row has a value, finite and not rounded if it is an integer; None: as the file
                has them, NaN for none.
            nulls: float32 may be missing, too.
        """
        for parts, fraction in self.columns(columns, block_bytes, dtype, nulls):
            yield np.column_stack(parts) if parts else np.empty((0, 0)), fraction

    def columns(
        self, columns: Sequence[int] | None, block_bytes: int, dtype: Any = None, nulls: bool = False
    ) -> Iterator[tuple[list[np.ndarray], float]]:
        """What `blocks` has side by side: each column [n], or [n, k] of lists, without a copy where Arrow has such an
        array."""
        numbers = list(range(len(self.titles)) if columns is None else columns)
        kinds: dict[Any, ColumnKind] = {np.int64: "integers", np.float32: "features"}
        kind, done, lists_only = kinds.get(dtype, "numbers"), 0, dtype is None or nulls
        pieces = self.pieces(numbers, kind, block_bytes)
        lengths: dict[int, tuple[int, ...]] = {}
        vanished = [Vanished(self.place(column)) for column in numbers]
        for arrays, fraction in pieces:
            values.demand_types(self, numbers, arrays, kind)
            if any(map(values.null_lists if lists_only else values.nulls, arrays)):
                raise self._without_values(numbers, kind, arrays, pieces, lists_only)
            parts = [
                values.numbers(self, column, array, kind, done) for column, array in zip(numbers, arrays, strict=True)
            ]
            if dtype is np.float32 and not nulls and not all(np.isfinite(part).all() for part in parts):
                raise self._without_values(numbers, kind, arrays, pieces)
            for column, part in zip(numbers, parts, strict=True):
                if len(part) and lengths.setdefault(column, part.shape[1:]) != part.shape[1:]:
                    raise values.lengths_differ(self.place(column))
            for seen, array, part in zip(vanished, arrays, parts, strict=True):
                values.note_vanished(seen, array, part)
            done += len(parts[0]) if parts else 0
            yield parts, fraction
        for seen in vanished:
            seen.demand_none()

    def read(self, columns: Sequence[int] | None = None, dtype: Any = None, nulls: bool = False) -> np.ndarray:
        """All rows, as `blocks` has them: [n, columns], of one column [n]."""
        parts = [rows for rows, _ in self.blocks(columns, READ_AT_ONCE, dtype, nulls) if rows.size]
        rows = np.concatenate(parts) if parts else np.empty((0, 1), np.int64)
        return rows[:, 0] if rows.shape[1] == 1 else rows

    def texts(
        self, columns: Sequence[int], block_bytes: int, nulls: bool = False
    ) -> Iterator[tuple[list[pa.ChunkedArray], float]]:
        """Columns of texts, and of integers where the file says so, some rows at a time; how much is read, in [0, 1].

        Args:
            nulls: some may be missing.
        """
        pieces = self.pieces(columns, "texts", block_bytes)
        for arrays, fraction in pieces:
            texts = [
                values.texts(self.place(column), column_texts)
                for column, column_texts in zip(columns, arrays, strict=True)
            ]
            if not nulls and any(column_texts.null_count or values.empty(column_texts) for column_texts in texts):
                raise self._without_values(columns, "texts", arrays, pieces)
            yield texts, fraction

    def categories(self, column: int, array: pa.Array | pa.ChunkedArray) -> pa.ChunkedArray:
        """large_string of a column's texts, integers and bools; what the user calls a null is one."""
        import pyarrow as pa
        import pyarrow.compute as pc

        names = values.categories(self.place(column), self.titles[column], array)
        if self.options is not None or self.said.null in (None, NONE):  # a text file was read so
            return names
        is_null = pc.is_in(names, value_set=pa.array(["", self.said.null], pa.large_string()))
        return pc.if_else(is_null, pa.scalar(None, pa.large_string()), names)

    def choose(self, wanted: Sequence[str] | None) -> list[int]:
        """Numbers of the wanted columns; None: of all."""
        if wanted is None:
            return list(range(len(self.titles)))
        return choose_columns(str(self.path), self.titles, wanted)

    def _without_values(
        self, columns: Sequence[int], kind: ColumnKind, arrays: Arrays, rest: Pieces, lists_only: bool = False
    ) -> CohortError:
        """What is missing in the whole table, of all columns: in these arrays and in the rest; before, nothing is."""
        nulls, odd, large = (dict.fromkeys(columns, 0) for _ in range(3))
        for arrays_here, _ in itertools.chain([(arrays, 0.0)], rest):
            for column, array in zip(columns, arrays_here, strict=True):
                nulls[column] += (values.null_lists if lists_only else values.nulls)(array)
                if not lists_only:
                    odd[column] += values.empty(array) if kind == "texts" else values.not_finite(array)
                if kind == "features":
                    large[column] += values.not_finite(array, np.float32) - values.not_finite(array)
        what = ("empty text", "empty texts") if kind == "texts" else ("NaN or infinity",) * 2
        beyond = ("number beyond float32", "numbers beyond float32")
        missing = [
            f"{count:,} {words[count > 1]} in {self.titles[column]}"
            for words, counts in ((("null", "nulls"), nulls), (what, odd), (beyond, large))
            for column, count in counts.items()
            if count
        ]
        return CohortError(str(self.path), "a value in each row", shortened(missing, 20), FILL_HINT)


def choose_columns(place: str, names: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """Where columns are that are given by name, by number from 0, or as FIRST:LAST (both among them), in that order.

    Raises:
        CohortError: for one that there is not, that is given twice, or whose name several columns have.
    """

    def find(column: str) -> int:
        if column in names:
            places = [number for number, name in enumerate(names) if name == column]
            if len(places) > 1:
                actual = f"columns {' and '.join(map(str, places))} of this name"
                raise CohortError(place, f"one column {column}", actual, "give the number of the column that is meant")
            if column.isdecimal() and int(column) < len(names) and places[0] != int(column):
                actual = f"column {places[0]} of this name, and column {column} of this number"
                raise CohortError(place, f"one column {column}", actual, "rename the columns: f0 instead of 0")
            return places[0]
        if column.isdecimal() and int(column) < len(names):
            return int(column)
        hint = did_you_mean(column, names) or "columns have names, or numbers from 0; FIRST:LAST"
        raise CohortError(place, f"a column {column}", shortened(names) or "none", hint)

    chosen: list[int] = []
    for part in wanted:
        bounds = [part] if part in names else part.split(":", 1)
        first, last = find(bounds[0]), find(bounds[-1])
        if first > last or set(chosen) & set(range(first, last + 1)):
            raise CohortError(place, "each column once, FIRST:LAST in their order", ",".join(wanted))
        chosen += range(first, last + 1)
    return chosen


def spans(names: Sequence[str], without: Sequence[str]) -> str:
    """The other columns, as `choose_columns` takes them: neighbours as FIRST:LAST."""
    runs = (list(run) for fits, run in itertools.groupby(names, key=lambda name: name not in without) if fits)
    return ",".join(run[0] + (f":{run[-1]}" if len(run) > 1 else "") for run in runs)


def shortened(names: Sequence[str], at_most: int = 6) -> str:
    """Names in a row; of many the first two and the last."""
    return ", ".join(names if len(names) <= at_most else [*names[:2], "...", names[-1]])
