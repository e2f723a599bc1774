"""Proposes primary and foreign keys of tables whose source does not say them, by the names of columns and by values."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset.importing.databases import TableKeys
from cohort_gnn.dataset.layouts.node_ids import NodeIds, RowEdges
from cohort_gnn.dataset.tables import values
from cohort_gnn.dataset.tables.table import READ_AT_ONCE, TableFile

if TYPE_CHECKING:
    import pyarrow as pa

CALLED_ID = re.compile(r"(?i:(^|_|-|\b)(id|fk|uuid|guid)(_|-|\b|$))|[a-z](Id|ID)$")
LEAST_SHARE = 0.1  # of the ids of a table, where a column of integers with another name may have them


def propose_keys(
    tables: Mapping[str, TableKeys], opened: Mapping[str, TableFile], types: Mapping[str, Mapping[str, pa.DataType]]
) -> None:
    """Proposes what the source leaves open: ids, then foreign keys by names, then by values; `types`: of the columns of
    each table."""
    for name, table in tables.items():
        if table.id_is_open:
            _propose_id(name, table, opened[name])
    _propose_shared_ids(tables, opened)
    for name, table in tables.items():
        if table.keys_are_open:
            _propose_by_names(table, list(types[name]), tables)
    if not any(table.keys_are_open for table in tables.values()):
        return
    ids = {
        name: NodeIds(name, opened[name], opened[name].choose(table.id))
        for name, table in tables.items()
        if len(table.id) == 1
    }
    for name, table in tables.items():
        for column, type_ in types[name].items() if table.keys_are_open else ():
            if column not in (*table.id, *table.key_columns):
                _propose_by_values(table, opened[name], column, type_, ids)


def is_called_id(column: str) -> bool:
    """Whether a column is called as ids are, of whatever: editor_id, id_parent, postId."""
    return CALLED_ID.search(column) is not None


def has_distinct(table: TableFile, column: int) -> bool:
    """Whether a column has integers or texts, none of which is missing or comes twice."""
    import pyarrow as pa

    parts: list[Any] = []
    for (array,), _ in table.pieces([column], "features", READ_AT_ONCE):
        part = values.plain(array)
        if not (pa.types.is_integer(part.type) or values.is_text(part.type)) or part.null_count:
            return False
        if len(part.unique()) < len(part):
            return False
        parts += getattr(part, "chunks", [part])
    return bool(parts) and len((whole := pa.chunked_array(parts)).unique()) == len(whole)


def _propose_id(name: str, table: TableKeys, opened: TableFile) -> None:
    """Takes the first column for the primary key that is called so, and whose values come once."""
    known = {"id", *_names_of_ids(name)}
    for number, title in enumerate(opened.titles):
        if title.lower() in known and has_distinct(opened, number):
            table.id = [title]
            return


def _propose_shared_ids(others: Mapping[str, TableKeys], opened: Mapping[str, TableFile]) -> None:
    """Takes a column for the primary key of a table without one if its values come once, and those of a column of this
    name in another table are mostly among them; of several such tables, the one with the most rows."""
    without = [name for name, table in others.items() if table.id_is_open and not table.id]
    for name in sorted(without, key=lambda name: -opened[name].count()):
        for number, title in enumerate(opened[name].titles):
            readers = [table for other, table in opened.items() if other != name and title in table.titles]
            is_taken = any(_is_called_as_id_of(title, other, table) for other, table in others.items())
            if readers and not is_taken and has_distinct(opened[name], number):
                ids = NodeIds(name, opened[name], [number])
                if any(_shares(table, title, ids)[0] > 0.5 for table in readers):
                    others[name].id = [title]
                    break


def _propose_by_names(table: TableKeys, columns: Sequence[str], others: Mapping[str, TableKeys]) -> None:
    """Takes columns for foreign keys that are called as the ids of other tables."""
    for column in columns:
        for other, keys in others.items():
            if column not in (*table.id, *table.key_columns) and _is_called_as_id_of(column, other, keys):
                table.keys.append({"column": column, "to": other})


def _propose_by_values(
    table: TableKeys, opened: TableFile, column: str, type_: pa.DataType, ids: Mapping[str, NodeIds]
) -> None:
    """Takes a column for a foreign key that is called as ids are, or has texts, if its values are ids of one table
    alone; keeps what else may be one."""
    import pyarrow as pa

    is_called, is_text = is_called_id(column), values.is_text(type_)
    if not (is_text or pa.types.is_integer(type_) or is_called and pa.types.is_floating(type_)):
        return
    shares = {name: _shares(opened, column, known) for name, known in ids.items()}
    if is_called or is_text:
        fits = [name for name, (key_share, _) in shares.items() if key_share > 0.5]
    else:
        fits = [name for name, (key_share, id_share) in shares.items() if key_share == 1 and id_share > LEAST_SHARE]
    if len(fits) == 1 and (is_called or is_text):
        table.keys.append({"column": column, "to": fits[0]})
    elif fits or is_called:
        table.perhaps[column] = fits


def _shares(opened: TableFile, column: str, ids: NodeIds) -> tuple[float, float]:
    """The share of the keys in a column that are ids, and the share of the ids that come there."""
    edges = RowEdges(opened, opened.choose([column]), ids, {"nulls", "unknown_ids"})
    seen, known = np.zeros(ids.num_nodes, bool), 0
    try:
        for _, nodes, _ in edges.chunks(READ_AT_ONCE):
            seen[nodes] = True
            known += len(nodes)
            if not known:
                break
    except CohortError:  # texts are no integers, and 0.5 is no key
        return 0, 0
    return known / max(1, known + edges.unknown), seen.sum() / max(1, len(seen))


def _is_called_as_id_of(column: str, other: str, keys: TableKeys) -> bool:
    """Whether a column is called as the primary key of a table, or as that of a table of this name would be."""
    names = {*_names_of_ids(other), *(name.lower() for name in keys.id if name.lower() != "id")}
    return len(keys.id) == 1 and column.lower() in names


def _names_of_ids(table: str) -> Iterator[str]:
    """How a column of the ids of a table may be called, in small letters: customer, customer_id of customers."""
    name = table.lower()
    for word in dict.fromkeys([name, re.sub(r"ies$", "y", name), name.removesuffix("s")]):
        yield from (word, f"{word}_id", f"{word}id", f"id_{word}")
