"""Tables in Parquet files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.files import demand_regular
from cohort_gnn.dataset.tables.table import ColumnKind, TableFile

if TYPE_CHECKING:
    import pyarrow as pa

ROW_BYTES = {"texts": 32}  # what a column is taken to have
LIST_BYTES = 256  # of numbers, which may be lists


class ParquetFile(TableFile):
    """A Parquet file whose columns hold numbers, lists of numbers of one length, or texts."""

    def __init__(self, path: str | Path):
        import pyarrow as pa
        import pyarrow.parquet as pq

        self.path = Path(path)
        self._errors = (pa.ArrowException, OSError)
        demand_regular(self.path)
        try:
            self._file = pq.ParquetFile(path)
        except self._errors as error:
            found = "another, or one that is cut off"
            raise CohortError(str(path), "a Parquet file", found, "copy it again, or write it again") from error
        self.names = self.titles = list(self._file.schema_arrow.names)
        twice = next((name for place, name in enumerate(self.names) if name in self.names[:place]), None)
        if twice is not None:  # Arrow reads columns by name
            raise CohortError(str(path), "columns of different names", f"several of the name {twice}", "rename them")
        if not self.names:
            raise CohortError(str(path), "at least one column", "none", "write the table with its columns")
        index = self._index()
        self.index = [self.names.index(name) for name in index if isinstance(name, str) and name in self.names]
        self.row_ids = next((ids for ids in map(_range_of, index) if ids is not None), None)

    def count(self) -> int:
        return self._file.metadata.num_rows

    def pieces(
        self, columns: Sequence[int], kind: ColumnKind, block_bytes: int
    ) -> Iterator[tuple[list[pa.Array | pa.ChunkedArray], float]]:
        if max(columns, default=-1) >= len(self.names):
            expected = f"at least {max(columns) + 1} columns"
            raise CohortError(str(self.path), expected, ", ".join(self.names), "--columns names others")
        names, done = [self.names[i] for i in columns], 0
        at_once = max(1, block_bytes // (ROW_BYTES.get(kind, LIST_BYTES) * max(1, len(names))))
        try:
            for batch in self._file.iter_batches(at_once, columns=names):
                done += len(batch)
                yield [batch.column(name) for name in names], done / max(1, self.count())
        except self._errors as error:
            raise CohortError(str(self.path), "a whole Parquet file", "damaged data", "copy it again") from error

    def _index(self) -> list:
        """What pandas says of the index of its table: names of columns, or a range."""
        try:
            found = json.loads((self._file.schema_arrow.metadata or {})[b"pandas"])["index_columns"]
        except (KeyError, TypeError, ValueError):
            return []
        return found if isinstance(found, list) else []


def _range_of(index: Any) -> range | None:
    """The ids of rows that pandas keeps as a range, where they are not 0, 1, 2, ..."""
    try:
        ids = range(int(index["start"]), int(index["stop"]), int(index["step"]))
    except (KeyError, TypeError, ValueError):
        return None
    return None if ids == range(len(ids)) else ids
