"""Columns of numbers in a file, read some rows at a time, and how columns are named."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cohort_gnn.base.errors import CohortError

READ_AT_ONCE = 1 << 24  # bytes, where all rows are read into memory
IDS = ("id", "node_id")
NO_FEATURES = (*IDS, "label", "labels", "y")  # what columns are called that a model must not learn from


class Table(ABC):
    """A file of rows.

    Attributes:
        titles: names of the columns, or "column 0" and so on.
        names: the titles where they come from the file, else none.
    """

    path: Path
    titles: list[str]
    names: list[str]

    @abstractmethod
    def blocks(
        self, columns: Sequence[int] | None, block_bytes: int, dtype: Any = None
    ) -> Iterator[tuple[np.ndarray, float]]:
        """Rows [n, columns] at a time, and how much of the file is read, in [0, 1].

        Args:
            columns: numbers of the columns, in this order; None: all.
            dtype: int64, float32 or float64; None: as the file has them.
        """

    def read(self, columns: Sequence[int] | None = None, dtype: Any = None) -> np.ndarray:
        """All rows: [n, columns], of one column [n]."""
        parts = [rows for rows, _ in self.blocks(columns, READ_AT_ONCE, dtype) if rows.size]
        rows = np.concatenate(parts) if parts else np.empty((0, 1), np.int64)
        return rows[:, 0] if rows.shape[1] == 1 else rows

    def choose(self, wanted: Sequence[str] | None) -> list[int]:
        """Numbers of the wanted columns; None: of all."""
        if wanted is None:
            return list(range(len(self.titles)))
        return choose_columns(str(self.path), self.titles, wanted)


def choose_columns(place: str, names: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """Where columns are that are given by name, by number from 0, or as FIRST:LAST (both among them), in that order.

    Raises:
        CohortError: for one that there is not, that is given twice, or whose name several columns have.
    """

    def find(column: str) -> int:
        if column in names:
            places = [number for number, name in enumerate(names) if name == column]
            if len(places) > 1:
                found = f"columns {' and '.join(map(str, places))} of this name"
                raise CohortError(place, f"one column {column}", found, "give the number of the column that is meant")
            return places[0]
        if column.isdecimal() and int(column) < len(names):
            return int(column)
        found = shortened(names)
        raise CohortError(place, f"a column {column}", found, "columns have names, or numbers from 0; FIRST:LAST")

    chosen: list[int] = []
    for part in wanted:
        ends = [part] if part in names else part.split(":", 1)
        first, last = find(ends[0]), find(ends[-1])
        if first > last or set(chosen) & set(range(first, last + 1)):
            raise CohortError(place, "each column once, FIRST:LAST in their order", ",".join(wanted))
        chosen += range(first, last + 1)
    return chosen


def spans(names: Sequence[str], without: Sequence[str]) -> str:
    """The other columns, as `choose_columns` takes them: neighbours as FIRST:LAST."""
    runs = (list(run) for fits, run in itertools.groupby(names, key=lambda name: name not in without) if fits)
    return ",".join(run[0] + (f":{run[-1]}" if len(run) > 1 else "") for run in runs)


def shortened(names: Sequence[str]) -> str:
    """Names in a row; of many the first two and the last."""
    return ", ".join(names if len(names) <= 6 else [*names[:2], "...", names[-1]])
