"""Columns of ids in tables whose rows are nodes or edges: named so, or integers of which none comes twice."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

import numpy as np

from cohort_gnn.base.distinct import has_repeats
from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset.tables import values
from cohort_gnn.dataset.tables.column_names import is_id_name
from cohort_gnn.dataset.tables.table import TableFile

SAMPLE_BYTES = 1 << 18


def named_ids(table: TableFile) -> list[int]:
    """The columns that are called as columns of ids are, or that the program that wrote the table calls its index."""
    return [i for i, name in enumerate(table.titles) if i in table.index or (table.names and is_id_name(name))]


def demand_no_ids(
    table: TableFile,
    others: Sequence[int],
    kind: str,
    cure: Callable[[str], str],
    ids: np.ndarray | None = None,
    first: int = 0,
) -> None:
    """Raises CohortError if one of the columns that are not chosen has ids in another order than the rows.

    Args:
        kind: "node" or "edge".
        cure: what to do about the column of this name.
        ids: of the rows; None: their numbers.
        first: the number of the first row. What is not called as ids are may count rows of the file, from 0.
    """
    which = f"row i to be {kind} {f'{first} + ' if first else ''}i"
    known = [first, first + 1] if ids is None and first else [] if ids is None else list(ids[:2])
    if table.row_ids is not None and list(table.row_ids[:2]) != known[: len(table.row_ids)]:
        actual = f"an index of pandas from {table.row_ids[0]} in steps of {table.row_ids.step}"
        hint = f"table.reset_index() makes a column of it, reset_index(drop=True) drops it; {cure('index')}"
        raise CohortError(str(table.path), which, actual, hint)
    if len(table.titles) < 2:
        return
    named = named_ids(table)
    for i in [column for column in named if column in others] if named else others:
        numbers = integers_of(table, i, is_named=i in named)
        if numbers is None:
            continue
        wanted = np.arange(first, first + len(numbers)) if ids is None else ids
        if len(wanted) != len(numbers):
            continue  # another error says so
        is_called = table.names and is_id_name(table.titles[i])
        if first and not is_called and np.array_equal(numbers, np.arange(len(numbers))):
            continue
        off = np.flatnonzero(numbers != wanted)
        if len(off):
            name, row = table.titles[i], int(off[0])
            expected = f"{which}: {name} {wanted[row]} in row {row}"
            raise CohortError(str(table.path), expected, f"{name} {numbers[row]:.0f}", cure(name))


def integers_of(table: TableFile, column: int, is_named: bool) -> np.ndarray | None:
    """[n]: the numbers of a column that may have ids: one with distinct integers, or one named like ids; None for other
    columns."""
    try:
        if not is_named and not _looks_distinct(table, column):
            return None
        numbers = table.read([column], np.float64 if is_named else np.int64)
        if is_named and np.array_equal(numbers, np.floor(numbers)):
            numbers = table.read([column], np.int64) if np.abs(numbers).max(initial=0) > 2**53 else numbers
    except (CohortError, ValueError, TypeError):  # of texts, only integers number rows
        with contextlib.suppress(CohortError):  # of bytes that are no texts
            return _integers_of_texts(table, column, is_named)
        return None
    if numbers.ndim != 1 or not is_named and has_repeats(numbers):
        return None
    return numbers


def _integers_of_texts(table: TableFile, column: int, is_named: bool) -> np.ndarray | None:
    """int64 [n] of a column of texts, among columns with types, that are integers; None: it is no such column."""
    if table.options is not None:
        return None
    parts: list[np.ndarray] = []
    for (array,), _ in table.pieces([column], "texts", SAMPLE_BYTES):
        if not values.is_text(values.type_of_values(array.type)) or array.null_count:
            return None
        integers = values.integers_of_texts(values.texts(table.place(column), array))
        if integers is None:
            return None
        parts.append(integers.to_numpy())
        if not is_named and (len(parts[0]) < 2 or has_repeats(parts[-1])):
            return None
    numbers = np.concatenate(parts) if parts else np.empty(0, np.int64)
    return numbers if is_named or len(numbers) > 0 and not has_repeats(numbers) else None


def _looks_distinct(table: TableFile, column: int) -> bool:
    """Whether the first rows of a column have integers, none twice."""
    for rows, _ in table.blocks([column], SAMPLE_BYTES, np.int64):
        return rows.shape[1] == 1 and len(rows) > 1 and not has_repeats(rows)
    return False
