"""Columns of ids, integers or texts, and the nodes that they name."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset import _native
from cohort_gnn.dataset.layouts.graph import EdgeChunk, Edges
from cohort_gnn.dataset.layouts.parquet_file import ParquetFile
from cohort_gnn.dataset.layouts.table import Table
from cohort_gnn.dataset.layouts.text_file import TextFile

if TYPE_CHECKING:
    import pyarrow as pa

ID_BYTES = 32  # what a text is taken to have
MIN_BLOCK = 1 << 20


class NodeIds:
    """The ids of the nodes of a type, in the order of the nodes.

    Attributes:
        type: of the nodes, for messages.
        is_text: they are texts, else integers.
        nbytes: of memory that they need.
    """

    def __init__(self, type_: str, table: Table, column: int):
        import pyarrow as pa

        self.type, self.place = type_, f"{table.path}: column {table.titles[column]}"
        parts = [batch[0] for batch, _ in text_columns(table, [column], MIN_BLOCK)]
        ids = pa.chunked_array(parts or [pa.array([], pa.int64())])
        with contextlib.suppress(pa.ArrowInvalid):  # then they are texts
            ids = ids.cast(pa.int64())
        self.is_text, self._texts = ids.type != pa.int64(), ids
        self.num_nodes = len(ids)
        self.nbytes = ids.nbytes
        if self.is_text:
            self._demand_once(ids, len(ids.unique()))
            return
        self._texts, numbers = None, ids.to_numpy()
        order = np.argsort(numbers, kind="stable")
        ascending = numbers[order]
        self._demand_once(ids, int(np.count_nonzero(np.diff(ascending))) + min(1, len(ids)))
        self._map, self.nbytes = _native.IdMap(ascending, order), 2 * ids.nbytes

    def _demand_once(self, ids: pa.ChunkedArray, distinct: int) -> None:
        import pyarrow.compute as pc

        if distinct < len(ids):
            values, counts = ids.value_counts().flatten()
            again = pc.index(pc.greater(counts, 1), True).as_py()
            raise CohortError(self.place, "an id named once", f"{values[again]} in {counts[again]} rows")

    def nodes(self, place: str, ids: pa.Array | np.ndarray, first: int) -> np.ndarray:
        """int64 [n]: the nodes of ids, which are those of the edges from the number `first` on."""
        import pyarrow.compute as pc

        if self._texts is not None:
            found = pc.index_in(ids, value_set=self._texts).fill_null(-1).to_numpy(zero_copy_only=False)
            found = found.astype(np.int64)
        else:
            numbers = np.asarray(ids)
            found = np.empty(len(numbers), np.int64)
            self._map.find(numbers, found)
        bad = np.flatnonzero(found < 0)
        if len(bad):
            expected = f"an id of type {self.type} ({self.place})"
            raise CohortError(f"{place} of edge {first + bad[0]}", expected, str(ids[int(bad[0])]))
        return found


def text_columns(
    table: Table, columns: Sequence[int], block_bytes: int, nulls: bool = False
) -> Iterator[tuple[list[pa.Array], float]]:
    """Columns of texts, and of integers where the file says so, some rows at a time; how much is read, in [0, 1].

    Args:
        nulls: some may be missing.

    Raises:
        CohortError: for a damaged file, and for a missing text.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    names = [table.titles[i] for i in columns]
    text = pa.large_string()
    read = _of_parquet if isinstance(table, ParquetFile) else _of_text
    try:
        for batch, fraction in read(table, names, block_bytes):
            arrays = [batch.column(name) for name in names]
            arrays = [array.cast(pa.int64() if pa.types.is_integer(array.type) else text) for array in arrays]
            for name, array in zip(names, arrays, strict=True):
                array.validate(full=True)  # texts may be no UTF-8
                empty = pc.equal(array, "").true_count if array.type == text else 0
                if (array.null_count or empty) and not nulls:
                    place, found = f"{table.path}: column {name}", f"{empty} empty texts"
                    found = f"{array.null_count} nulls" if array.null_count else found
                    raise CohortError(place, "a value in each row", found, "leave their rows out")
            yield arrays, fraction
    except pa.ArrowCancelled as error:  # by Ctrl-C, which Python may not have noticed yet
        raise KeyboardInterrupt from error
    except (pa.ArrowException, OSError, EOFError) as error:
        found = " ".join(str(error).split())
        raise CohortError(str(table.path), f"columns {', '.join(names)} of texts or integers", found) from error


def _of_parquet(table: Table, names: list[str], block_bytes: int) -> Iterator[tuple[pa.RecordBatch, float]]:
    import pyarrow.parquet as pq

    file, done = pq.ParquetFile(table.path), 0
    for batch in file.iter_batches(max(1, block_bytes // (ID_BYTES * len(names))), columns=names):
        done += len(batch)
        yield batch, done / file.metadata.num_rows


def _of_text(table: Table, names: list[str], block_bytes: int) -> Iterator[tuple[pa.RecordBatch, float]]:
    import pyarrow as pa
    from pyarrow import csv

    assert isinstance(table, TextFile)
    with pa.OSFile(str(table.path)) as raw:
        size = max(1, raw.size())
        file = pa.CompressedInputStream(raw, "gzip") if table.path.suffix == ".gz" else raw
        kinds = csv.ConvertOptions(include_columns=names, column_types=dict.fromkeys(names, pa.large_string()))
        options = csv.ReadOptions(
            block_size=max(MIN_BLOCK, block_bytes // 4), column_names=table.titles, skip_rows=table.lines_before
        )
        with csv.open_csv(file, options, csv.ParseOptions(delimiter=table.separator), kinds) as reader:
            for batch in reader:
                yield batch, min(1.0, raw.tell() / size)


def with_ids(edges: Edges, table: Table | None, ends: Sequence[int], of: Sequence[NodeIds | None]) -> Edges:
    """The edges between the nodes that ids name: those of the sources, and those of the targets; None: nodes already.

    Args:
        edges: the same with integers.
        table: where they are from, with the columns `ends`.
    """
    names = [edges.place, edges.place] if table is None else [f"{table.path}: {table.titles[i]}" for i in ends]
    texts = [ids is not None and ids.is_text for ids in of]
    if any(texts) and table is None:
        raise CohortError(edges.place, "a table, where ids are texts", "an array of numbers", "use .csv or .parquet")

    def values(block_bytes: int) -> Iterator[tuple[list, float]]:
        if table is None or not any(texts) and isinstance(table, TextFile):
            yield from (([src, dst], fraction) for src, dst, fraction in edges.chunks(block_bytes))
            return
        for batch, fraction in text_columns(table, ends, block_bytes):
            yield [_kept(*end) for end in zip(names, batch, texts, strict=True)], fraction

    def chunks(block_bytes: int) -> Iterator[EdgeChunk]:
        done = 0
        for both, fraction in values(block_bytes):
            src, dst = (
                np.asarray(end) if ids is None else ids.nodes(name, end, done)
                for name, end, ids in zip(names, both, of, strict=True)
            )
            yield src, dst, fraction
            done += len(src)

    return Edges(edges.place, chunks)


def _kept(place: str, column: pa.Array, as_text: bool) -> pa.Array | np.ndarray:
    """The column as texts, or as integers."""
    import pyarrow as pa

    try:
        return column.cast(pa.large_string()) if as_text else column.cast(pa.int64()).to_numpy()
    except pa.ArrowInvalid as error:
        raise CohortError(place, "integers", str(error)) from error
