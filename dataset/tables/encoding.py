"""Columns of unlike types become the feature rows of one table: numbers with nulls, categories, parts of timestamps.

What an encoding needs from the data (means, deviations, vocabularies) is taken from the rows of the training split
alone, and is kept in the data set, so that other tables can be encoded likewise."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset.arrays import Vanished
from cohort_gnn.dataset.columns import KEYS_HINT, Column, FittedColumn
from cohort_gnn.dataset.tables import values
from cohort_gnn.dataset.tables.arrow_table import ArrowRows
from cohort_gnn.dataset.tables.classes import demand_no_null_word
from cohort_gnn.dataset.tables.moments import Moments
from cohort_gnn.dataset.tables.table import READ_AT_ONCE, ColumnKind, TableFile, shortened
from cohort_gnn.dataset.tables.timestamps import part_of, timestamps

if TYPE_CHECKING:
    import pyarrow as pa

UNKNOWN = "unknown"  # the category of texts that no training row has
BOOLS = {"false", "true"}
FINE = 1 << 16  # so many times what float64 rounds is the least deviation of numbers that are standardized


@dataclass(frozen=True)
class DeclaredColumns:
    """Columns of a table that become feature rows.

    Attributes:
        table: the file.
        columns: pairs of a column's number and how its features are made.
        place: of the declaration, for messages.
        fit_all: the encoding is fitted to all rows, not to those of the training split alone.
        unknown: of the rows that `encoded` gave last, those whose text no category has, and one such text, by the
            number of the column.
    """

    table: TableFile
    columns: Sequence[tuple[int, Column]]
    place: str
    fit_all: bool = False
    unknown: dict[int, tuple[int, str]] = field(default_factory=dict, compare=False)

    @staticmethod
    def from_entries(table: TableFile, entries: Sequence[str | Column], place: str, fit_all: bool) -> DeclaredColumns:
        """Columns as a description names them; a text alone names numbers."""
        chosen: list[tuple[int, Column]] = []
        for entry in entries:
            how = entry if isinstance(entry, Column) else Column(column=entry)
            how.demand_sound(f"{place}.{how.column}")
            chosen += [(number, how) for number in table.choose([how.column])]
        numbers = [number for number, _ in chosen]
        if len(set(numbers)) < len(numbers):
            again = next(number for number in numbers if numbers.count(number) > 1)
            raise CohortError(place, "each column once", f"{table.titles[again]} again", "leave one of the two out")
        return DeclaredColumns(table, chosen, place, fit_all)

    def fit(self, rows: np.ndarray | None, block_bytes: int = READ_AT_ONCE) -> list[FittedColumn]:
        """What the encodings have from these rows.

        Args:
            rows: bool [rows of the table]; None: all rows.
        """
        statistics = [_Statistics(self.table, number, how) for number, how in self.columns]
        for arrays, first in self._blocks(block_bytes):
            for column, array in zip(statistics, arrays, strict=True):
                column.add(array, first, None if rows is None else rows[first : first + len(array)])
        return [column.fitted() for column in statistics]

    def demand_same(self, fitted: Sequence[FittedColumn], where: str) -> None:
        """Raises CohortError unless the columns of another data set are these."""
        expected = [(column.column, column.how) for column in fitted]
        actual = [(self.table.titles[number], how) for number, how in self.columns]
        if expected != actual:
            pairs = itertools.zip_longest(expected, actual, fillvalue=("none", None))
            wanted, declared = next(pair for pair in pairs if pair[0] != pair[1])
            hint = f"declare the columns as those of {where} were"
            raise CohortError(self.place, f"the columns of {where}: {_described(*wanted)}", _described(*declared), hint)

    def encoded(self, fitted: Sequence[FittedColumn], block_bytes: int) -> Iterator[np.ndarray]:
        """float32 [n, D] at a time: the feature rows."""
        self.unknown.clear()
        for arrays, first in self._blocks(block_bytes):
            yield np.column_stack(
                [
                    _encoded(self.table, number, column, array, first, self.unknown)
                    for (number, _), column, array in zip(self.columns, fitted, arrays, strict=True)
                ]
            )

    def unknown_told(self, where: str) -> list[str]:
        """A line for each column with rows whose category the data set `where` does not know."""
        return [
            f"{self.table.place(number)}: rows with a category that {where} does not know: {count:,}, such as {text!r}"
            for number, (count, text) in sorted(self.unknown.items())
        ]

    def _blocks(self, block_bytes: int) -> Iterator[tuple[list[pa.ChunkedArray], int]]:
        """The columns, some rows at a time, and the number of the first row. Texts and numbers of a text file are
        parsed by different rules, so they are read side by side."""
        import pyarrow as pa

        kinds = [_kind_of(how) for _, how in self.columns]
        streams = {}
        for kind in dict.fromkeys(kinds):
            numbers = [number for (number, _), other in zip(self.columns, kinds, strict=True) if other == kind]
            streams[kind] = _Stream(arrays for arrays, _ in self.table.pieces(numbers, kind, block_bytes))
        first = 0
        while count := min(stream.rows() for stream in streams.values()):
            taken = {kind: iter(stream.take(count)) for kind, stream in streams.items()}
            arrays = [next(taken[kind]) for kind in kinds]
            yield (
                [array if isinstance(array, pa.ChunkedArray) else pa.chunked_array([array]) for array in arrays],
                first,
            )
            first += count


def encoded_columns(fitted: Sequence[FittedColumn], columns: Mapping[str, Sequence], place: str) -> np.ndarray:
    """float32 [n, D]: the feature rows of values of declared columns, encoded as those of a data set were.

    Args:
        columns: a list of n values for each column, None where there is none.
        place: of the columns, for messages.

    Raises:
        CohortError: a column is missing or unknown, lists differ in length, or values are of another kind.
    """
    import pyarrow as pa

    wanted = [column.column for column in fitted]
    if set(columns) != set(wanted):
        raise CohortError(place, f"the columns {', '.join(wanted)}", ", ".join(map(str, columns)) or "none")
    try:
        table = pa.table({name: pa.array(columns[name]) for name in wanted})
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise CohortError(place, "lists of equal length, of values of one type", str(error)[:200]) from error
    rows = ArrowRows(place, table)
    declared = DeclaredColumns(rows, [(number, column.how) for number, column in enumerate(fitted)], place)
    blocks = list(declared.encoded(fitted, READ_AT_ONCE))
    return np.concatenate(blocks) if blocks else np.empty((0, sum(len(column.names) for column in fitted)), np.float32)


def _kind_of(how: Column) -> ColumnKind:
    """How the values of a column are read: large numbers are standardized before float32 would round them."""
    if how.kind != "number":
        return "texts"
    return "numbers" if how.standardize else "features"


def _described(name: str, how: Column | None) -> str:
    return name if how is None else f"{name} {msgspec.json.encode(how).decode()}"


class _Stream:
    """Columns in blocks, of which as many rows are taken as are wanted."""

    def __init__(self, blocks: Iterator[list]):
        self._blocks = blocks
        self._block: list | None = []

    def rows(self) -> int:
        """How many rows the block has; 0 at the end."""
        while self._block is not None and not (self._block and len(self._block[0])):
            self._block = next(self._blocks, None)
        return 0 if self._block is None else len(self._block[0])

    def take(self, count: int) -> list:
        assert self._block is not None
        block, self._block = self._block, [array.slice(count) for array in self._block]
        return [array.slice(0, count) for array in block]


class _Statistics:
    """What the training rows say of a column."""

    def __init__(self, table: TableFile, number: int, how: Column):
        self._table, self._number, self._how = table, number, how
        self._name, self._place = table.titles[number], table.place(number)
        self._moments, self._vanished = Moments(), Vanished(self._place)
        self._vocabulary: set[str] = set()
        self._width: int | None = None

    def add(self, array: pa.ChunkedArray, first: int, rows: np.ndarray | None) -> None:
        """Adds a block of the column; `rows`: which of its rows count."""
        how = self._how
        if how.kind == "number":
            numbers, missing = _numbers(self._table, self._number, how, array, first)
            if len(numbers) and (self._width or numbers.shape[1]) != numbers.shape[1]:
                raise values.lengths_differ(self._place)
            self._width = numbers.shape[1] if len(numbers) else self._width
            if not how.standardize:
                values.note_vanished(self._vanished, array, numbers[~missing].astype(np.float32))
            if how.standardize or how.nulls == "mean":
                self._moments.add(numbers[~missing if rows is None else ~missing & rows])
        elif how.kind == "time":
            parts = _parts(self._place, how, array, first)
            if how.standardize:
                self._moments.add(parts if rows is None else parts[rows])
        else:
            texts = self._table.categories(self._number, array)
            if self._table.options is not None:
                demand_no_null_word(self._table, self._place, texts)
            kept = texts if rows is None else texts.filter(_as_mask(rows))
            self._vocabulary.update(text for text in kept.unique().to_pylist() if text is not None)
            if len(self._vocabulary) > how.at_most:
                expected = f"at most {how.at_most:,} categories"
                actual = f"more: {shortened(sorted(self._vocabulary)[:3])}, ..."
                hint = "at_most: N admits N, each of which is a feature; kind: code makes one feature of all"
                raise CohortError(self._place, expected, actual, hint)

    def _demand_told_apart(self, means: np.ndarray, deviations: np.ndarray) -> None:
        """Raises CohortError for numbers from 2^53 on that differ by little more than float64 rounds, such as ids, and
        for numbers whose squares it does not hold."""
        if not np.isfinite(deviations).all():
            hint = "divide all of them by one number, or leave the column out"
            raise CohortError(self._place, "numbers below 1e154, whose squares float64 holds", "larger ones", hint)
        lost = (np.abs(means) >= 2.0**53) & (deviations < FINE * np.spacing(np.abs(means)))
        if lost.any():
            i = int(lost.argmax())
            actual = f"numbers near {means[i]:.0f} with the deviation {deviations[i]:.0f}"
            hint = "subtract one number from all of them, or leave the column out; kind: category is for ids"
            raise CohortError(self._place, "numbers that float64 tells apart", actual, hint)

    def fitted(self) -> FittedColumn:
        how, name = self._how, self._name
        self._vanished.demand_none()
        mean = deviation = vocabulary = None
        if how.standardize or how.nulls == "mean":
            if not self._moments.count:
                hint = "nulls: zero needs none; leave standardize out"
                raise CohortError(self._place, "a value in a row of the training split", "none", hint)
            means, deviations = self._moments.mean_and_deviation()
            if how.standardize:
                self._demand_told_apart(means, deviations)
            mean, deviation = means.tolist(), deviations.tolist()
        if how.kind == "number":
            names = [name] if self._width in (None, 1) else [f"{name}[{i}]" for i in range(self._width)]
            names += [f"{name} is null"] if how.nulls != "refuse" else []
        elif how.kind == "time":
            names = [f"{name}.{part}" for part in how.parts]
        else:
            vocabulary = sorted(self._vocabulary)
            names = [f"{name}={text}" for text in (UNKNOWN, *vocabulary)] if how.kind == "category" else [name]
        return FittedColumn(column=name, how=how, names=names, mean=mean, deviation=deviation, vocabulary=vocabulary)


def _encoded(
    table: TableFile,
    number: int,
    column: FittedColumn,
    array: pa.ChunkedArray,
    first: int,
    unknown: dict[int, tuple[int, str]],
) -> np.ndarray:
    """float32 [n, features of the column]. `unknown`: as of `DeclaredColumns`, to which these rows are added."""
    how = column.how
    if how.kind == "number":
        return _encoded_numbers(table, number, column, array, first)
    if how.kind == "time":
        return _standardized(_parts(table.place(number), how, array, first), column)
    texts = table.categories(number, array)
    codes = _codes(table.place(number), column, texts, first)
    odd = np.flatnonzero((codes == 0) & ~np.asarray(texts.is_null()))
    if len(odd):
        count, text = unknown.get(number, (0, texts[int(odd[0])].as_py()))
        unknown[number] = count + len(odd), text
    if how.kind == "code":
        return codes.astype(np.float32)[:, None]
    rows = np.zeros((len(codes), len(column.names)), np.float32)
    rows[np.arange(len(codes)), codes] = 1
    return rows


def _encoded_numbers(
    table: TableFile, number: int, column: FittedColumn, array: pa.ChunkedArray, first: int
) -> np.ndarray:
    how = column.how
    numbers, missing = _numbers(table, number, how, array, first)
    width = len(column.names) - (how.nulls != "refuse")
    if numbers.shape[1] != width:
        raise CohortError(table.place(number), f"values of {width} numbers", f"{numbers.shape[1]}", KEYS_HINT)
    numbers[missing] = column.mean if how.nulls == "mean" else 0
    numbers = _standardized(numbers, column)
    if (bad := ~np.isfinite(numbers).all(axis=1)).any():
        row = int(bad.argmax())
        expected = f"a number near the mean {column.mean} in units of the deviation {column.deviation}"
        hint = "leave the row out; is the column in the unit that it had?"
        raise CohortError(f"{table.place(number)}, row {first + row}", expected, str(array[row].as_py())[:40], hint)
    return numbers if how.nulls == "refuse" else np.column_stack([numbers, missing.astype(np.float32)])


def _parts(place: str, how: Column, array: pa.ChunkedArray, first: int) -> np.ndarray:
    """float64 [n, parts] of timestamps."""
    stamps = timestamps(place, values.plain(array), how.zone, first)
    return np.column_stack([part_of(stamps, part) for part in how.parts]).astype(np.float64)


def _standardized(numbers: np.ndarray, column: FittedColumn) -> np.ndarray:
    """float32 of float64 [n, k], whose columns have the mean 0 and the deviation 1 if that was declared."""
    if column.how.standardize:
        deviation = np.asarray(column.deviation)
        numbers = (numbers - np.asarray(column.mean)) / np.where(deviation > 0, deviation, 1)
    with np.errstate(over="ignore"):  # such numbers become infinity, which is refused
        return numbers.astype(np.float32)


def _numbers(
    table: TableFile, number: int, how: Column, array: pa.ChunkedArray, first: int
) -> tuple[np.ndarray, np.ndarray]:
    """float64 [n, numbers of a value], and bool [n]: which values are missing, whose numbers mean nothing. Only numbers
    that are standardized may be others than those of float32."""
    import pyarrow.compute as pc

    place, array = table.place(number), values.plain(array)
    if fault := values.type_fault(array, table.titles[number], "features"):
        raise CohortError(place, *fault)
    lists = values.is_list(array.type)
    missing = np.asarray(array.is_null())
    if how.nan == "null" and not lists:
        missing = missing | np.asarray(pc.is_nan(array.cast("float64")).fill_null(False))
    if missing.any() and how.nulls == "refuse":
        hint = "nulls: zero or mean fills them in, with a feature that says where they were"
        raise CohortError(f"{place}, row {first + int(missing.argmax())}", "a value", "none", hint)
    if lists and missing.any():
        raise CohortError(f"{place}, row {first + int(missing.argmax())}", "a list", "none", "fill it in")
    numbers = values.numbers(table, number, array, _kind_of(how), first).reshape(len(array), -1).astype(np.float64)
    odd = ~np.isfinite(numbers).all(axis=1) & ~missing
    if odd.any():
        row = int(odd.argmax())
        actual = str(array[row].as_py())[:40]
        hint = "leave it out, or fill it in"
        if "nan" in actual and not lists:
            hint = "nan: null takes NaN for a null; infinity is refused"
        expected = "a finite number" if how.standardize else "a number that float32 holds"
        raise CohortError(f"{place}, row {first + row}", expected, actual, hint)
    return numbers, missing


def are_bools(texts: list[str]) -> bool:
    """Whether texts are one or both bools, which a source may write in another case: True, as pandas does, is true."""
    lowered = {text.lower() for text in texts}
    return lowered <= BOOLS and len(lowered) == len(texts)


def _codes(place: str, column: FittedColumn, texts: pa.ChunkedArray, first: int) -> np.ndarray:
    """int64 [n]: the number of each text in the vocabulary from 1; 0: it is not there."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if texts.null_count and column.how.nulls == "refuse":
        row = first + int(np.asarray(texts.is_null()).argmax())
        raise CohortError(f"{place}, row {row}", "a category", "none", f"nulls: {UNKNOWN} counts it as {UNKNOWN}")
    known = column.vocabulary or []
    if are_bools(known):
        known, texts = [text.lower() for text in known], pc.utf8_lower(texts)
    codes = pc.index_in(texts, value_set=pa.array(known, pa.large_string())).fill_null(-1)
    return codes.to_numpy().astype(np.int64) + 1


def _as_mask(rows: np.ndarray) -> pa.Array:
    import pyarrow as pa

    return pa.array(rows, pa.bool_())
