"""Columns of ids, integers or texts, and the nodes that they name."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset import _native
from cohort_gnn.dataset.layouts.streams import EdgeChunk, Edges
from cohort_gnn.dataset.tables import values
from cohort_gnn.dataset.tables.ahead import ahead
from cohort_gnn.dataset.tables.table import TableFile
from cohort_gnn.dataset.tables.text_file import TextFile

if TYPE_CHECKING:
    import pyarrow as pa

MIN_BLOCK = 1 << 20
LOOKUPS_AHEAD = 3  # blocks of edges whose ids are looked up, or have been, while one is used
SKIP_HINT = "to leave such rows without an edge"
NUMBERS_HINT = (
    "texts that are all integers are compared as numbers, 007 as 7: give ids that are not a letter, in all tables; else"
    " keep one row of each node"
)
SEPARATOR = "\x1f"  # between the parts of a key of several columns


@dataclass(frozen=True)
class KnownNodes:
    """Nodes of a type that there are already; those of a table follow them.

    Attributes:
        place: the data set that has them.
        ids: int64 or large_string [count]; None: they have none.
    """

    place: str
    count: int
    ids: pa.Array | None = None


class NodeIds:
    """The ids of the nodes of a type, in the order of the nodes.

    Args:
        before: ids of nodes that come before those of the table.

    Attributes:
        type: of the nodes, for messages.
        table, columns: which have them; several columns make texts, with SEPARATOR between them.
        is_text: they are texts, else integers.
        nbytes: of memory that they need.
    """

    def __init__(self, type_: str, table: TableFile | None, columns: Sequence[int], before: pa.Array | None = None):
        import pyarrow as pa

        self.type, self.table, self.columns, self._before = type_, table, columns, before
        self._once_hint = "keep one row of each node"
        self.place = "those that the data set has" if table is None else _place_of(table, columns)
        parts: list[pa.Array] = []
        if table is not None:
            parts = [chunk for ids, _ in key_blocks(table, columns, MIN_BLOCK) for chunk in ids.chunks]
        if len({part.type for part in parts}) > 1:  # of several files
            parts = [part.cast(pa.large_string()) for part in parts]
        ids = pa.chunked_array(parts or [pa.array([], pa.int64())])
        if before is None:
            if ids.type != pa.int64() and (whole := values.integers_of_texts(ids)) is not None:
                ids, self._once_hint = whole, NUMBERS_HINT
        else:
            added = _kept(self.place, ids, as_text=before.type != pa.int64())
            chunks = added.chunks if isinstance(added, pa.ChunkedArray) else [pa.array(added)]
            ids = pa.chunked_array([before, *chunks], before.type)
        self.is_text, self.num_nodes = ids.type != pa.int64(), len(ids)
        if self.is_text:
            self._texts = _native.TextMap(*_buffers(pa.concat_arrays(ids.chunks)))
            self.nbytes = self._texts.nbytes
            self._demand_once(ids, self._texts.distinct)
            return
        numbers = values.to_numpy(ids)
        order = np.argsort(numbers, kind="stable")
        ascending = numbers[order]
        self._demand_once(ids, int(np.count_nonzero(np.diff(ascending))) + min(1, len(ids)))
        self._map, self.nbytes = _native.IdMap(ascending, order), 2 * ids.nbytes

    def _demand_once(self, ids: pa.ChunkedArray, distinct: int) -> None:
        import pyarrow.compute as pc

        if distinct < len(ids):
            values, counts = ids.value_counts().flatten()
            again = pc.index(pc.greater(counts, 1), True).as_py()
            if self._before is not None and pc.index(self._before, values[again]).as_py() >= 0:
                actual = f"{_shown(values[again])}, which is there"
                raise CohortError(self.place, "an id named once", actual, "leave rows of nodes that are there out")
            actual = f"{_shown(values[again])} in {counts[again]} rows"
            raise CohortError(self.place, "an id named once", actual, self._once_hint)

    def blocks(self) -> Iterator[pa.Array]:
        """The ids in the order of the nodes, some at a time: int64 or large_string."""
        import pyarrow as pa

        if self._before is not None:
            yield self._before
        if self.table is None:
            return
        for ids, _ in key_blocks(self.table, self.columns, MIN_BLOCK):
            kept = _kept(self.place, ids, self.is_text)
            yield pa.concat_arrays(kept.chunks) if isinstance(kept, pa.ChunkedArray) else pa.array(kept)

    def read(self, table: TableFile, columns: Sequence[int]) -> np.ndarray:
        """int64 [rows]: the nodes whose ids are in columns, each of which is known."""
        parts: list[np.ndarray] = []
        for ids, _ in key_blocks(table, columns, MIN_BLOCK):
            parts.append(self.nodes_of_rows(_place_of(table, columns), ids, sum(map(len, parts))))
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    def nodes_of_rows(self, place: str, ids: pa.ChunkedArray, first: int) -> np.ndarray:
        """int64 [n]: the nodes whose ids are in a block of a column, integers or texts, from row `first` on."""
        return self.nodes(place, _kept(place, ids, self.is_text), first, what="row")

    def nodes(
        self, place: str, ids: pa.ChunkedArray | np.ndarray, first: int, skip_unknown: bool = False, what: str = "edge"
    ) -> np.ndarray:
        """int64 [n]: the nodes of ids, which are those of the edges from the number `first` on.

        Args:
            skip_unknown: the node of other ids is -1; else they are refused.
            what: has the ids: "edge" or "row".
        """
        nodes = np.empty(len(ids), np.int64)
        if isinstance(ids, np.ndarray):
            self._map.find(ids, nodes)
        else:
            done = 0
            for chunk in ids.chunks:
                self._texts.find(*_buffers(chunk), nodes[done : done + len(chunk)])
                done += len(chunk)
        bad = np.flatnonzero(nodes < 0)
        if len(bad) and not skip_unknown:
            expected = f"an id of type {self.type} ({self.place})"
            hint = "unknown_ids: skip leaves such edges out" if what == "edge" else "leave such rows out"
            odd = ids[int(bad[0])]
            raise CohortError(f"{place} of {what} {first + bad[0]}", expected, _shown(odd), f"{self.alike(odd)}{hint}")
        return nodes

    def alike(self, id_: object) -> str:
        """Says which id of a node differs from an unknown one only by blanks, case or composed letters; or nothing."""
        import pyarrow as pa

        text = str(id_)
        if not self.is_text:
            return ""
        forms = [text.strip(), *(unicodedata.normalize(form, text) for form in ("NFC", "NFD"))]
        forms += [text.lower(), text.upper(), text.title(), text.strip().lower()]
        nodes = np.empty(len(forms), np.int64)
        self._texts.find(*_buffers(pa.array(forms, pa.large_string())), nodes)
        there = [form for form, node in zip(forms, nodes, strict=True) if node >= 0]
        return f"there is {there[0]!r}, written otherwise than {text!r}: write both alike; " if there else ""


def key_blocks(
    table: TableFile, columns: Sequence[int], block_bytes: int, nulls: bool = False
) -> Iterator[tuple[pa.ChunkedArray, float]]:
    """The ids in a column, or in several that make one, some rows at a time, and how much is read, in [0, 1].

    Args:
        nulls: ids may be missing; whole numbers of a column that has nulls may be floats, as pandas writes them.
    """
    blocks = table.pieces(columns, "texts", block_bytes) if nulls else table.texts(columns, block_bytes)
    for arrays, fraction in blocks:
        if nulls:
            arrays = [_or_null(table, column, array) for column, array in zip(columns, arrays, strict=True)]
        yield arrays[0] if len(arrays) == 1 else _joined(table, columns, arrays), fraction


def _place_of(table: TableFile, columns: Sequence[int]) -> str:
    """What messages call the columns of a key."""
    if len(columns) == 1:
        return table.place(columns[0])
    return f"{table.path}: columns {', '.join(table.titles[column] for column in columns)}"


def _shown(id_: object) -> str:
    """An id in a message; the parts of one of several columns with commas between them."""
    return str(id_).replace(SEPARATOR, ", ")


def _or_null(table: TableFile, column: int, array: pa.Array | pa.ChunkedArray) -> pa.ChunkedArray:
    """int64 or texts, some of which are missing."""
    import pyarrow as pa
    import pyarrow.compute as pc

    place, array = table.place(column), values.plain(array)
    if pa.types.is_floating(array.type):
        array = array.cast(pa.float64())  # of half floats, Arrow computes little
        array = pc.if_else(pc.is_nan(array), None, array)
        whole = pc.and_(pc.equal(array, pc.floor(array)), pc.less(pc.abs(array), 2.0**53))
        if not pc.all(whole, min_count=0).as_py():
            raise CohortError(place, "whole numbers below 2^53 as keys", "others", "convert the column to integers")
        array = array.cast(pa.int64())
    texts = values.texts(place, array)
    return texts if table.options is None else pc.if_else(pc.equal(texts, ""), None, texts)


def _joined(table: TableFile, columns: Sequence[int], keys: Sequence[pa.ChunkedArray]) -> pa.ChunkedArray:
    """The parts of keys, each as one text; null where a part is."""
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = [part.cast(pa.large_string()) for part in keys]
    for column, text in zip(columns, texts, strict=True):
        if pc.any(pc.match_substring(text, SEPARATOR), min_count=0).as_py():
            raise CohortError(table.place(column), "texts without U+001F", "one with it", "replace it")
    return pc.binary_join_element_wise(*texts, pa.scalar(SEPARATOR, pa.large_string()))


class RowEdges:
    """The edges from each row of a table to the node that its key names, and what was left out of them.

    Args:
        table: row i is source i.
        columns: of the key.
        ids: of the targets; None: the key is a row number.
        skip: rows without a key ("nulls"), and rows whose key no node has ("unknown_ids"), have no edge; where skip has
            them not, they are refused.
        first: source of row 0.

    Attributes:
        unknown: keys that no node has, in what has been read.
    """

    def __init__(
        self, table: TableFile, columns: Sequence[int], ids: NodeIds | None, skip: Collection[str], first: int = 0
    ):
        self._table, self._columns, self._ids, self._skip, self._first = table, columns, ids, skip, first
        self._nulls = self.unknown = self._rows = 0

    def chunks(self, block_bytes: int) -> Iterator[EdgeChunk]:
        """The edges, some at a time."""
        place = _place_of(self._table, self._columns)
        self._nulls = self.unknown = self._rows = 0
        for keys, fraction in key_blocks(self._table, self._columns, block_bytes, nulls="nulls" in self._skip):
            there = np.asarray(keys.is_valid())
            sources = self._rows + np.flatnonzero(there)
            keys = keys.drop_null() if keys.null_count else keys
            self._rows, self._nulls = self._rows + len(there), self._nulls + len(there) - len(sources)
            if not len(keys):
                continue
            if self._ids is None:
                yield self._first + sources, np.asarray(_kept(place, keys, as_text=False)), fraction
                continue
            targets = self._ids.nodes(place, _kept(place, keys, self._ids.is_text), 0, skip_unknown=True)
            unknown = np.flatnonzero(targets < 0)
            if len(unknown) and "unknown_ids" not in self._skip:
                expected = f"an id of type {self._ids.type} ({self._ids.place})"
                odd = keys[int(unknown[0])]
                hint = f"{self._ids.alike(odd)}{SKIP_HINT}: unknown_ids: skip"
                raise CohortError(f"{place} of row {sources[unknown[0]]}", expected, _shown(odd), hint)
            self.unknown += len(unknown)
            yield self._first + np.delete(sources, unknown), np.delete(targets, unknown), fraction

    def left_out(self) -> str:
        """What the last reading left out, in words; "" where all rows have edges."""
        counts = {"without a key": self._nulls, "with keys that no row has": self.unknown}
        parts = [f"{count:,} {what}" for what, count in counts.items() if count]
        return f"{' and '.join(parts)}, of {self._rows:,} rows" if parts else ""


def with_ids(
    edges: Edges,
    table: TableFile | None,
    columns: Sequence[int],
    node_ids: Sequence[NodeIds | None],
    skip_unknown: bool = False,
) -> Edges:
    """The edges with nodes in place of ids. `node_ids`: of the sources, and of the targets; None: they are nodes.

    Args:
        edges: the same with integers.
        table: the edges' table; `columns`: of sources and targets.
        skip_unknown: ids that no node has are node -1.
    """
    names = [edges.place, edges.place] if table is None else [f"{table.path}: {table.titles[i]}" for i in columns]
    texts = [ids is not None and ids.is_text for ids in node_ids]
    if any(texts) and table is None:
        raise CohortError(edges.place, "a table, where ids are texts", "an array of numbers", "use .csv or .parquet")

    def both_ends(block_bytes: int) -> Iterator[tuple[list, float]]:
        if table is None or not any(texts) and isinstance(table, TextFile):
            yield from (([src, dst], fraction) for src, dst, fraction in edges.chunks(block_bytes))
            return
        for batch, fraction in table.texts(columns, block_bytes):
            yield [_kept(*end) for end in zip(names, batch, texts, strict=True)], fraction

    def nodes_of(both: list, first: int, fraction: float) -> EdgeChunk:
        src, dst = (
            np.asarray(end) if ids is None else ids.nodes(name, end, first, skip_unknown)
            for name, end, ids in zip(names, both, node_ids, strict=True)
        )
        return src, dst, fraction

    def lookups(block_bytes: int) -> Iterator[Callable[[], EdgeChunk]]:
        done = 0
        for both, fraction in both_ends(block_bytes):
            yield partial(nodes_of, both, done, fraction)
            done += len(both[0])

    def chunks(block_bytes: int) -> Iterator[EdgeChunk]:
        return ahead(lookups(block_bytes), LOOKUPS_AHEAD)

    return Edges(edges.place, chunks, has_unknown=skip_unknown)


def known_edges(edges: Edges) -> np.ndarray:
    """bool [E]: the edges of which no end is -1, an id that no node has."""
    parts = [(src >= 0) & (dst >= 0) for src, dst, _ in edges.chunks(MIN_BLOCK)]
    return np.concatenate(parts) if parts else np.empty(0, bool)


def _buffers(texts: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Offsets, int64 [n + 1], and bytes, uint8 [any], of a large_string without nulls."""
    _, offsets, content = texts.buffers()
    begins = np.frombuffer(offsets, np.int64, len(texts) + 1, 8 * texts.offset) if len(texts) else np.zeros(1, np.int64)
    return begins, np.frombuffer(content or b"", np.uint8)


def _kept(place: str, column: pa.ChunkedArray, as_text: bool) -> pa.ChunkedArray | np.ndarray:
    """The column as texts, or as integers."""
    import pyarrow as pa

    if as_text:
        return column.cast(pa.large_string())
    if column.type == pa.int64():
        return values.to_numpy(column)
    numbers = values.integers_of_texts(column)
    if numbers is None:
        odd = column[values.first_bad(column, "integers") or 0].as_py()
        hint = "ids are compared as numbers where those of the nodes are all integers"
        raise CohortError(place, "integers, as the ids of the nodes are", f'"{odd[:40]}"', hint)
    if numbers.null_count:
        hint = f"empty texts are no ids: NULLIF({place.rpartition('column ')[2]}, '') in SQL makes nulls of them"
        raise CohortError(place, "integers, as the ids of the nodes are", '""', hint)
    return values.to_numpy(numbers)
