"""`cohort dataset describe`: proposes a graph.yaml for the tables of a database, for somebody to read and to change.

What the source says (keys of RelBench's manifests and of DuckDB's constraints) is taken. What it leaves open is
proposed from names and values, and a comment says so."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset import arrays
from cohort_gnn.dataset.importing.databases import Database, TableKeys, find_database
from cohort_gnn.dataset.importing.proposed_keys import has_distinct, is_called_id, propose_keys
from cohort_gnn.dataset.layouts import tables
from cohort_gnn.dataset.tables import values
from cohort_gnn.dataset.tables.table import READ_AT_ONCE, TableFile
from cohort_gnn.dataset.tables.timestamps import PER_SECOND, UNITS

if TYPE_CHECKING:
    import pyarrow as pa

FEW = 64  # texts of a column that are proposed as categories
PARTS = ["year", "month", "day", "weekday", "hour"]
PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./ -]*(?<! )")
WORDS = {"true", "false", "yes", "no", "on", "off", "null", "y", "n", "none"}  # of YAML, none of which is a text


class Values:
    """What the values of a column say of how it may be a feature."""

    def __init__(self) -> None:
        import pyarrow as pa

        self.type: pa.DataType = pa.null()
        self.rows = self.nulls = 0
        self.texts: set[str] = set()
        self.lengths: set[int] = set()
        self.nan = self.infinite = self.rounded = self.is_binary = False
        self.unit = "s"  # the longest of which all timestamps are whole numbers

    def add(self, array: pa.Array | pa.ChunkedArray) -> None:
        """Looks at a block of the column."""
        import pyarrow as pa
        import pyarrow.compute as pc

        self.type = array.type
        self.rows, self.nulls = self.rows + len(array), self.nulls + array.null_count
        if values.is_list(array.type):
            self.lengths.update(pc.unique(pc.list_value_length(array)).to_pylist())
        elif _is_bytes(array):
            self.is_binary = True
        elif values.is_text(array.type) and len(self.texts) <= FEW:
            self.texts.update(text for text in array.unique().to_pylist() if text is not None)
        elif pa.types.is_floating(array.type):
            self.nan |= bool(pc.any(pc.is_nan(array), min_count=0).as_py())
            self.infinite |= bool(pc.any(pc.is_inf(array), min_count=0).as_py())
        elif pa.types.is_integer(array.type) and len(array) > array.null_count:
            bounds = pc.min_max(array).as_py()
            self.rounded |= max(abs(bounds["min"]), abs(bounds["max"])) > arrays.EXACT
        elif pa.types.is_timestamp(array.type):
            self._divide(array.cast(pa.timestamp(array.type.unit)).cast(pa.int64()).drop_null().to_numpy())

    def _divide(self, stamps: np.ndarray) -> None:
        per_second, at = PER_SECOND[self.type.unit], UNITS.index(self.unit)
        while (divisor := per_second // PER_SECOND[UNITS[at]]) > 1 and (stamps % divisor).any():
            at += 1
        self.unit = UNITS[at]

    def may_be_ids(self) -> bool:
        """Whether it has integers, and more than a few."""
        import pyarrow as pa

        return pa.types.is_integer(self.type) and self.rows > FEW

    def is_time(self) -> bool:
        """Whether it has timestamps or dates."""
        import pyarrow as pa

        return pa.types.is_timestamp(self.type) or pa.types.is_date(self.type)

    def has_no_zone(self) -> bool:
        import pyarrow as pa

        return pa.types.is_timestamp(self.type) and self.type.tz is None

    def unit_of_times(self) -> str:
        """The longest unit of which its times are whole numbers, of timestamps at most seconds."""
        import pyarrow as pa

        return "days" if pa.types.is_date(self.type) else self.unit

    def feature(self, name: str) -> tuple[str | dict[str, Any] | None, str]:
        """An entry of ``features``, or None and the reason."""
        import pyarrow as pa

        type_ = self.type
        if self.nulls == self.rows:
            return None, "no values"
        if self.is_binary:
            return None, f"{type_} that is no text"
        if values.is_text(type_):
            if len(self.texts) > FEW:
                return None, f"texts, more than {FEW}"
            if 2 < len(self.texts) == self.rows - self.nulls:
                return None, "texts, each of which comes once"
            return {"column": name, "kind": "category", "nulls": "unknown"}, ""
        if self.is_time():
            if self.nulls:
                return None, f"times, {self.nulls:,} of which are missing"
            zone = {"zone": "UTC"} if getattr(type_, "tz", None) else {}
            return {"column": name, "kind": "time", "parts": PARTS} | zone | {"standardize": True}, ""
        if values.is_list(type_):
            one_length = len(self.lengths) == 1 and not self.nulls
            numbers = pa.types.is_integer(type_.value_type) or pa.types.is_floating(type_.value_type)
            return ({"column": name}, "") if one_length and numbers else (None, str(type_))
        if not (pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_boolean(type_)):
            is_decimal = pa.types.is_decimal(type_)
            return None, f"{type_}: CAST({name} AS DOUBLE) in SQL makes a number of it" if is_decimal else str(type_)
        if self.rounded or self.infinite:
            return None, "integers that float32 rounds" if self.rounded else "infinite values"
        entry: dict[str, Any] = {"column": name}
        entry |= {"nulls": "mean"} if self.nulls or self.nan else {}
        entry |= {"nan": "null"} if self.nan else {}
        return entry | {"standardize": True}, ""


def _is_bytes(array: pa.Array | pa.ChunkedArray) -> bool:
    """Whether a column that may have texts has other bytes."""
    import pyarrow as pa

    if not (pa.types.is_binary(array.type) or pa.types.is_large_binary(array.type)):
        return False
    try:
        array.cast(pa.large_string())
    except pa.ArrowInvalid:
        return True
    return False


def describe(source: Path) -> str:
    """A graph.yaml for a folder of tables (Parquet or Arrow), a folder of RelBench, or a file of DuckDB. Paths in it
    are relative to the folder, or to that of the file.

    Raises:
        CohortError: there are no tables, or one is damaged.

    Example:
        >>> Path("shop/graph.yaml").write_text(describe(Path("shop")))
    """
    database = find_database(source)
    opened = {name: _open(database.folder / table.file) for name, table in database.tables.items()}
    for name in [name for name, table in opened.items() if not table.count()]:
        _leave_out(database, opened.pop(name), name)
    if not opened:
        raise CohortError(str(source), "tables with rows", "none", "fill them first")
    for name, table in database.tables.items():  # which the source may say wrongly
        opened[name].choose(list(dict.fromkeys([*table.id, *table.key_columns, *([table.time] if table.time else [])])))
    columns = {name: _values(table) for name, table in opened.items()}
    propose_keys(
        database.tables,
        opened,
        {name: {title: stats.type for title, stats in described.items()} for name, described in columns.items()},
    )
    for name, table in database.tables.items():
        if table.time_is_open:
            _propose_time(table, columns[name])
    times = [columns[name][table.time] for name, table in database.tables.items() if table.time]
    times += [
        _values(tables.open_table(database.folder / entry[split]), entry["time"])[entry["time"]]
        for entry in database.tasks.values()
        for split in ("train", "val", "test")
        if split in entry and "time" in entry
    ]
    unit = max((time.unit_of_times() for time in times), key=UNITS.index, default="s")
    lines = ["# Proposed by cohort dataset describe: columns become features only if they are under features."]
    lines += [f"# {note}." for note in database.notes]
    lines.append("nodes:")
    for name, table in database.tables.items():
        lines += [
            f"  {_flow(name)}:",
            *(f"    {line}" for line in _node_type(table, opened[name], columns[name], unit)),
        ]
    lines += ["tasks:"] if database.tasks else []
    for name, entry in database.tasks.items():
        if "time" in entry:
            entry |= {"time_unit": unit, "time_zone": "UTC"}
        lines += [f"  {_flow(name)}:", *(f"    {key}: {_flow(value)}" for key, value in entry.items())]
    return "\n".join(lines) + "\n"


def _open(file: Path) -> TableFile:
    """A table; raises CohortError for a folder whose files are several tables."""
    try:
        return tables.open_table(file)
    except CohortError as error:
        if not file.is_dir():
            raise
        hint = f"tables in a folder are described together by cohort dataset describe {file}; else {error.hint}"
        raise CohortError(error.place, error.expected, error.found, hint) from error


def _leave_out(database: Database, opened: TableFile, name: str) -> None:
    """Takes a table without rows out of a database, and the keys that lead to it."""
    del database.tables[name]
    database.notes.append(f"left out: {opened.path.name}, which has no rows")
    for table in database.tables.values():
        table.keys = [key for key in table.keys if key["to"] != name]


def settled(proposal: str) -> list[str]:
    """What a proposal decides where the source leaves something open, as its comments say it, with the names of tables.

    Example:
        >>> settled(describe(Path("shop")))
        ["customers: time_zone: UTC (or the zone whose clocks they show)", ...]
    """
    lines, name = [], ""
    for line in proposal.splitlines()[1:]:
        if re.match("  [^ ]", line):
            name = line.strip()
        entry, mark, comment = ("", "# ", line.strip()[2:]) if line.strip()[:2] == "# " else line.partition("  # ")
        if mark:
            text = f"{entry.strip()} ({comment})" if entry else comment
            lines.append(f"{name} {text}" if line[0] == " " else text)
    return lines


def _values(table: TableFile, column: str | None = None) -> dict[str, Values]:
    """What the columns of a table have, or one of them."""
    numbers = table.choose(None if column is None else [column])
    columns = {table.titles[number]: Values() for number in numbers}
    for parts, _ in table.pieces(numbers, "features", READ_AT_ONCE):
        for stats, part in zip(columns.values(), parts, strict=True):
            stats.add(values.plain(part))
    return columns


def _propose_time(table: TableKeys, columns: dict[str, Values]) -> None:
    """Takes the only column of timestamps or dates for the time."""
    table.times = [name for name, stats in columns.items() if stats.is_time() and name not in table.id]
    table.time = table.times[0] if len(table.times) == 1 else None


def _node_type(table: TableKeys, opened: TableFile, columns: dict[str, Values], unit: str) -> Iterator[str]:
    """The lines of a node type."""
    id_by_name = "  # by its name: check it" if table.id_is_open else ""
    keys_by_name = "  # by names and values: check them" if table.keys_are_open else ""
    yield f"file: {_flow(table.file)}"
    if table.id:
        yield f"id: {_flow(table.id[0] if len(table.id) == 1 else table.id)}{id_by_name}"
    else:
        yield "id: none  # no primary key: keys of other tables cannot name its rows"
    if table.keys:
        yield f"keys:{keys_by_name}"
        yield from (f"  - {_flow(key)}" for key in table.keys)
    if table.time:
        yield from _time(table.time, columns[table.time], unit)
    elif table.times:
        yield f"# no time: one of {', '.join(table.times)} may be it; without one, rows are always there"
    features, others = [], []
    for name, stats in columns.items():
        if name in (*table.id, *table.key_columns, table.time):
            continue
        entry, reason = stats.feature(name)
        comment = ""
        if name in table.perhaps:
            where = " and ".join(table.perhaps[name])
            comment = f"its values are ids of {where}: if it names one, put it under keys" if where else ""
            if is_called_id(name):
                entry, reason = None, comment or "called as an id: name it under keys, or kind: category"
        may_be_id = stats.may_be_ids() and (table.id_is_open or table.keys_are_open)
        if may_be_id and has_distinct(opened, opened.titles.index(name)):
            entry, reason = None, "integers, each of which comes once"
        if name in table.hidden:
            entry, reason = None, f"hidden from tasks: {table.hidden[name]}"
        if entry is None:
            others.append(f"{name} ({reason})")
        else:
            features.append(f"{_flow(entry)}  # {comment}" if comment else _flow(entry))
    if features:
        yield "features:"
        yield from (f"  - {entry}" for entry in features)
    yield from (f"# no feature: {other}" for other in others)


def _time(name: str, stats: Values, unit: str) -> Iterator[str]:
    """The lines of the time of a node type."""
    yield f"time: {_flow(name)}"
    if stats.is_time():
        yield f"time_unit: {unit}"
    if stats.is_time() and stats.has_no_zone():
        yield "time_zone: UTC  # or the zone whose clocks they show"
    if stats.nulls:
        yield f"null_time: always  # {stats.nulls:,} of {stats.rows:,}"


def _flow(value: Any) -> str:
    """A value in YAML, in one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_flow(member)}" for key, member in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str) and not (PLAIN.fullmatch(value) and (value == "none" or value.lower() not in WORDS)):
        return json.dumps(value, ensure_ascii=False)
    return str(value)
