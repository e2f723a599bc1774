"""Tables in Parquet files, a batch of rows at a time. Needs pyarrow, which nothing else here does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from cohort.base.errors import CohortError


class ParquetFile:
    """A table of numbers.

    Attributes:
        names: of the columns.
        num_rows: of the table.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        try:
            import pyarrow as pa
            import pyarrow.parquet as pq
        except ImportError as error:
            found = f"none ({error})"
            raise CohortError(str(path), "the package pyarrow", found, "python -m pip install pyarrow") from error
        self._errors = (pa.ArrowException, OSError)
        try:
            self._file = pq.ParquetFile(path)
        except self._errors as error:
            raise CohortError(str(path), "a Parquet file", str(error)) from error
        self.names = list(self._file.schema_arrow.names)
        self.num_rows = self._file.metadata.num_rows

    def demand(self, columns: Sequence[str]) -> list[str]:
        """The names of columns that are given by name or number."""
        out = []
        for column in columns:
            if column not in self.names and column.isdecimal() and int(column) < len(self.names):
                column = self.names[int(column)]
            if column not in self.names:
                raise CohortError(str(self.path), f"a column {column}", ", ".join(self.names), "--columns names them")
            out.append(column)
        return out

    def batches(self, columns: Sequence[str], rows_at_once: int) -> Iterator[list[np.ndarray]]:
        """Of each column: [n], or [n, k] for a column of lists of one length."""
        try:
            for batch in self._file.iter_batches(rows_at_once, columns=list(columns)):
                yield [self._numbers(name, batch.column(name)) for name in columns]
        except self._errors as error:
            raise CohortError(str(self.path), "a whole Parquet file", str(error), "copy it again") from error

    def _numbers(self, name: str, column) -> np.ndarray:
        import pyarrow as pa

        place = f"{self.path}: column {name}"
        if column.null_count:
            raise CohortError(place, "a value in each row", f"{column.null_count} nulls", "fill them, e.g. with 0")
        lists = pa.types.is_list(column.type) or pa.types.is_large_list(column.type)
        if lists or pa.types.is_fixed_size_list(column.type):
            values, rows = column.flatten(), len(column)
            flat = self._numbers(f"{name}, its lists", values)
            if rows and (len(flat) % rows or lists and (np.diff(column.offsets.to_numpy()) != len(flat) // rows).any()):
                raise CohortError(place, "lists of one length", "different ones")
            return flat.reshape(rows, -1)
        out = column.to_numpy(zero_copy_only=False)
        if out.dtype.kind not in "biuf":
            raise CohortError(place, "numbers", str(column.type), "convert the column, or choose others by --columns")
        return out
