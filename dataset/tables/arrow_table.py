"""Tables whose columns have names and types of Arrow: Parquet files, and files of Arrow's own format (Feather)."""

from __future__ import annotations

import json
import math
import os
import struct
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.files import demand_regular
from cohort_gnn.dataset.tables.ahead import ahead, one_ahead
from cohort_gnn.dataset.tables.known_files import known_file
from cohort_gnn.dataset.tables.table import ColumnKind, TableFile

if TYPE_CHECKING:
    import pyarrow as pa

ROW_BYTES = {"texts": 32, "integers": 16}  # what a column is taken to have
LIST_BYTES = 256  # of numbers, which may be lists
FIXED_SIZES = ("BOOLEAN", "INT32", "INT64", "FLOAT", "DOUBLE")  # Parquet's types of values of at most 8 bytes
GROUPS_AHEAD = 2
# Columns are read through small buffers: what is decompressed stays in a cache of the processor.
READ_OPTIONS = {"buffer_size": 1 << 16, "pre_buffer": False}
SIGNATURE_BYTES = 28  # behind the footer of an encrypted Parquet file that is itself not encrypted
STREAM = b"\xff\xff\xff\xff"  # before its messages
ENCRYPTED_HINT = "write it without encryption, or pass to cohort.from_tables what pyarrow reads of it with its keys"
MOST_ROWS = 1 << 17  # of integers and texts at once: on their way to the sorter they stay in a cache of the processor


class ArrowTable(TableFile):
    """A file whose columns hold numbers, lists of numbers of one length, or texts.

    Attributes:
        format: what the file is, for messages.
    """

    format: str

    def __init__(self, path: str | Path):
        import pyarrow as pa

        self.path = Path(path)
        self._errors = (pa.ArrowException, OSError, UnicodeDecodeError)
        demand_regular(self.path)
        try:
            schema = self._open()
        except self._errors as error:
            raise CohortError(str(path), self.format, *_other_kind(self.path, self.format)) from error
        self.names = self.titles = list(schema.names)
        twice = next((name for place, name in enumerate(self.names) if name in self.names[:place]), None)
        if twice is not None:  # Arrow reads columns by name
            raise CohortError(str(path), "columns of different names", f"several of the name {twice}", "rename them")
        if not self.names:
            raise CohortError(str(path), "at least one column", "none", "write the table with its columns")
        index = _index(schema)
        self.index = [self.names.index(name) for name in index if isinstance(name, str) and name in self.names]
        self.row_ids = next((ids for ids in map(_range_of, index) if ids is not None), None)

    def pieces(
        self, columns: Sequence[int], kind: ColumnKind, block_bytes: int
    ) -> Iterator[tuple[list[pa.Array | pa.ChunkedArray], float]]:
        if max(columns, default=-1) >= len(self.names):
            expected = f"at least {max(columns) + 1} columns"
            raise CohortError(str(self.path), expected, ", ".join(self.names), "--columns names others")
        names, done = [self.names[i] for i in columns], 0
        at_once = max(1, block_bytes // (ROW_BYTES.get(kind, LIST_BYTES) * max(1, len(names))))
        at_once = min(at_once, MOST_ROWS) if kind in ROW_BYTES else at_once
        try:
            for batch in self._batches(names, at_once, block_bytes):
                done += len(batch)
                yield [batch.column(name) for name in names], done / max(1, self.count())
        except self._errors as error:
            raise CohortError(
                str(self.path), f"a whole file, {self.format}", "damaged data", "copy it again"
            ) from error

    @abstractmethod
    def _open(self) -> pa.Schema:
        """Opens the file."""

    @abstractmethod
    def _batches(self, names: list[str], at_once: int, block_bytes: int) -> Iterator[pa.RecordBatch]:
        """These columns, at most so many rows at a time; what is decoded at once has about ``block_bytes``."""


class ParquetFile(ArrowTable):
    """A Parquet file."""

    format = "a Parquet file"

    def _open(self) -> pa.Schema:
        import pyarrow.parquet as pq

        with open(self.path, "rb") as file:
            file.seek(max(0, self.path.stat().st_size - 8))
            footer_bytes, magic = struct.unpack("<I4s", file.read(8).rjust(8))
        encrypted = CohortError(str(self.path), self.format, "an encrypted one", ENCRYPTED_HINT)
        if magic == b"PARE":
            raise encrypted
        self._file = pq.ParquetFile(self.path, **READ_OPTIONS)
        if footer_bytes - self._file.metadata.serialized_size == SIGNATURE_BYTES:  # its columns end the process
            raise encrypted
        return self._file.schema_arrow

    def count(self) -> int:
        return self._file.metadata.num_rows

    def _batches(self, names: list[str], at_once: int, block_bytes: int) -> Iterator[pa.RecordBatch]:
        if self._most_bytes_of_groups(names) > block_bytes:
            yield from one_ahead(self._file.iter_batches(at_once, columns=names))
            return
        groups = range(self._file.num_row_groups)
        for table in ahead((partial(self._group, names, number) for number in groups), GROUPS_AHEAD):
            yield from table.to_batches(at_once)

    def _group(self, names: list[str], number: int) -> pa.Table:
        """A row group. Threads do not share an open file."""
        import pyarrow.parquet as pq

        with pq.ParquetFile(self.path, metadata=self._file.metadata, **READ_OPTIONS) as file:
            # As many groups are read at once as there are ends of edges; more columns are decoded side by side.
            return file.read_row_group(number, columns=names, use_threads=len(names) > GROUPS_AHEAD)

    def _most_bytes_of_groups(self, names: list[str]) -> float:
        """Of these columns of one row group, in memory; infinite for columns whose values have no fixed size."""
        metadata = self._file.metadata
        inner = tuple(f"{name}." for name in names)
        leaves = {i: metadata.schema.column(i) for i in range(metadata.num_columns)}
        leaves = {i: leaf for i, leaf in leaves.items() if leaf.path in names or leaf.path.startswith(inner)}
        if not all(leaf.physical_type in FIXED_SIZES for leaf in leaves.values()):
            return math.inf
        groups = map(metadata.row_group, range(metadata.num_row_groups))
        return max((sum(8 * group.column(i).num_values for i in leaves) for group in groups), default=0)


class ArrowFile(ArrowTable):
    """A file of Arrow's own format: Feather (version 2), .arrow of polars and pyarrow."""

    format = "an Arrow (Feather) file"
    _num_rows: int | None = None

    def _open(self) -> pa.Schema:
        import pyarrow as pa

        with pa.memory_map(str(self.path)) as file, pa.ipc.open_file(file) as reader:
            return reader.schema

    def count(self) -> int:
        if self._num_rows is None:
            self._num_rows = sum(batch.num_rows for batch in self._read(self.names[:1]))
        return self._num_rows

    def _batches(self, names: list[str], at_once: int, block_bytes: int) -> Iterator[pa.RecordBatch]:
        for batch in one_ahead(self._read(names)):
            for begin in range(0, batch.num_rows, at_once):
                yield batch.slice(begin, at_once)

    def _read(self, names: list[str]) -> Iterator[pa.RecordBatch]:
        """These columns; others are not decompressed."""
        import pyarrow as pa

        columns = pa.ipc.IpcReadOptions(included_fields=sorted(map(self.names.index, names)))
        with pa.memory_map(str(self.path)) as file, pa.ipc.open_file(file, options=columns) as reader:
            for number in range(reader.num_record_batches):
                yield reader.get_batch(number)


class ArrowStream(ArrowFile):
    """Rows that are read once, as they come from another library.

    Args:
        path: what messages call the table.
        batches: the rows; they are taken by the first one who reads.
    """

    format = "an Arrow stream"

    def __init__(self, path: str | Path, schema: pa.Schema, batches: Iterator[pa.RecordBatch]):
        self._schema, self._rows_read = schema, 0
        self._unread: Iterator[pa.RecordBatch] | None = batches
        super().__init__(path)

    def _open(self) -> pa.Schema:
        return self._schema

    def count(self) -> int:
        """The number of rows that have been read."""
        return self._rows_read

    def _read(self, names: list[str]) -> Iterator[pa.RecordBatch]:
        batches, self._unread = self._unread, None
        if batches is None:
            raise CohortError(str(self.path), "rows that are read once", "a second reader")
        for batch in batches:
            self._rows_read += batch.num_rows
            yield batch


class ArrowRows(ArrowFile):
    """A table in memory.

    Args:
        path: what messages call the table.
    """

    format = "a table"

    def __init__(self, path: str | Path, table: pa.Table):
        self._table = table
        super().__init__(path)

    def _open(self) -> pa.Schema:
        return self._table.schema

    def _read(self, names: list[str]) -> Iterator[pa.RecordBatch]:
        yield from self._table.select(names).to_batches()


def _other_kind(path: Path, format: str) -> tuple[str, str]:
    """What a file is that cannot be opened as one of this format, and the cure."""
    known = known_file(path)
    if known is not None and known[0] != format:
        return known
    with open(path if path.is_file() else os.devnull, "rb") as file:
        if file.read(4) == STREAM:
            read = f"pyarrow.ipc.open_stream('{path.name}').read_all()"
            return "a stream of Arrow", f"pyarrow.feather.write_feather({read}, 'table.feather') makes a file of it"
    return "another, or one that is cut off", "copy it again, or write it again"


def _index(schema: pa.Schema) -> list:
    """What pandas says of the index of its table: names of columns, or a range."""
    try:
        columns = json.loads((schema.metadata or {})[b"pandas"])["index_columns"]
    except (KeyError, TypeError, ValueError):
        return []
    return columns if isinstance(columns, list) else []


def _range_of(index: Any) -> range | None:
    """The ids of rows that pandas keeps as a range, where they are not 0, 1, 2, ..."""
    try:
        ids = range(int(index["start"]), int(index["stop"]), int(index["step"]))
    except (KeyError, TypeError, ValueError):
        return None
    return None if ids == range(len(ids)) else ids
