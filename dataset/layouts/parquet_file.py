"""Tables in Parquet files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset import arrays
from cohort_gnn.dataset.layouts.table import Table

ROW_BYTES = 256  # what a column is taken to have, as it may hold lists of numbers


class ParquetFile(Table):
    """A Parquet file whose columns hold numbers, or lists of numbers of one length; read as the file has them, numbers
    may be null, and are NaN then."""

    def __init__(self, path: str | Path):
        import pyarrow as pa
        import pyarrow.parquet as pq

        self.path = Path(path)
        self._errors = (pa.ArrowException, OSError)
        try:
            self._file = pq.ParquetFile(path)
        except self._errors as error:
            raise CohortError(str(path), "a Parquet file", str(error)) from error
        self.names = self.titles = list(self._file.schema_arrow.names)
        twice = next((name for place, name in enumerate(self.names) if name in self.names[:place]), None)
        if twice is not None:  # Arrow reads columns by name
            raise CohortError(str(path), "columns of different names", f"several of the name {twice}", "rename them")

    @property
    def num_rows(self) -> int:
        return self._file.metadata.num_rows

    def blocks(
        self, columns: Sequence[int] | None, block_bytes: int, dtype: Any = None
    ) -> Iterator[tuple[np.ndarray, float]]:
        names = self.names if columns is None else [self.names[i] for i in columns]
        at_once, done = max(1, block_bytes // (ROW_BYTES * len(names))), 0
        try:
            for batch in self._file.iter_batches(at_once, columns=names):
                parts = [self._numbers(name, batch.column(name), dtype) for name in names]
                if dtype is np.int64:
                    parts = [arrays.integers(f"{self.path}: column {names[i]}", part) for i, part in enumerate(parts)]
                done += len(batch)
                rows = np.column_stack(parts)
                yield rows.astype(dtype or rows.dtype, copy=False), done / self.num_rows
        except self._errors as error:
            raise CohortError(str(self.path), "a whole Parquet file", str(error), "copy it again") from error

    def _numbers(self, name: str, column, dtype: Any) -> np.ndarray:
        import pyarrow as pa

        place = f"{self.path}: column {name}"
        lists = pa.types.is_list(column.type) or pa.types.is_large_list(column.type)
        in_lists = lists or pa.types.is_fixed_size_list(column.type)
        if column.null_count and (in_lists or dtype is not None):
            hint = "fill them in, or leave their rows out"
            raise CohortError(place, "a value in each row", f"{column.null_count} nulls", hint)
        if in_lists:
            values, rows = column.flatten(), len(column)
            flat = self._numbers(f"{name}, its lists", values, dtype)
            if rows and (len(flat) % rows or lists and (np.diff(column.offsets.to_numpy()) != len(flat) // rows).any()):
                raise CohortError(place, "lists of one length", "different ones")
            return flat.reshape(rows, -1)
        if column.null_count and pa.types.is_boolean(column.type):
            column = column.cast(pa.uint8())
        out = column.to_numpy(zero_copy_only=False)
        if out.dtype.kind not in "biuf":
            hint = "convert the column, or choose others by --columns"
            if pa.types.is_temporal(column.type):
                hint = arrays.TIMES_HINT
            elif pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
                hint = f"{arrays.IDS_HINT}; --columns chooses others" if dtype is np.int64 else arrays.NUMBERS_HINT
            raise CohortError(place, "numbers", str(column.type), hint)
        return out
