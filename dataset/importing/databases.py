"""The tables of a database and what is known of their keys: RelBench's manifests, DuckDB's constraints, or names."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset.layouts import tables
from cohort_gnn.dataset.structured import read_structured
from cohort_gnn.dataset.tables.duck_table import connected, tables_of

MANIFEST = "manifest.yaml"
RELBENCH_HINT = "a folder of RelBench has manifest.yaml and db/*.parquet, and tasks/NAME/manifest.yaml for each task"
TEXT_HINT = "of text files, DuckDB makes Parquet: COPY (FROM 'x.csv') TO 'x.parquet'"
TYPED = ("parquet", "arrow")  # kinds of files whose columns have types
SPLITS = ("train", "val", "test")
TARGETS: dict[str, dict[str, str]] = {  # of RelBench's task types
    "binary_classification": {"targets": "classification", "metric": "auroc"},
    "multiclass_classification": {"targets": "classification", "metric": "accuracy"},
    "multilabel_classification": {"targets": "multilabel"},
    "regression": {"targets": "regression", "metric": "nmae"},
}
M = TypeVar("M", bound=msgspec.Struct)


@dataclass
class TableKeys:
    """A table of a database.

    Attributes:
        file: relative to the folder of the description.
        id: columns of the primary key.
        time: column.
        keys: foreign keys, as in graph.yaml.
        hidden: columns that tasks hide, and which tasks.
        id_is_open, keys_are_open, time_is_open: the source does not say them.
        times: columns that may be the time, where the source does not say it.
        perhaps: other columns that may be foreign keys, and the tables whose ids they have.
    """

    file: str
    id: list[str] = field(default_factory=list)
    time: str | None = None
    keys: list[dict[str, Any]] = field(default_factory=list)
    hidden: dict[str, str] = field(default_factory=dict)
    id_is_open: bool = False
    keys_are_open: bool = False
    time_is_open: bool = False
    times: list[str] = field(default_factory=list)
    perhaps: dict[str, list[str]] = field(default_factory=dict)

    @property
    def key_columns(self) -> list[str]:
        """The columns of foreign keys."""
        columns = [key["column"] for key in self.keys]
        return [name for column in columns for name in ([column] if isinstance(column, str) else column)]


@dataclass
class Database:
    """A database.

    Attributes:
        folder: to which files are relative.
        tables: by name.
        tasks: entries of graph.yaml by name.
        notes: what was left out.
    """

    folder: Path
    tables: dict[str, TableKeys]
    tasks: dict[str, dict[str, Any]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def find_database(source: Path) -> Database:
    """The tables of a folder, of a folder of RelBench, or of a file of DuckDB.

    Raises:
        CohortError: there are none, or a manifest is damaged.
    """
    database = _database_of(source)
    if not database.tables:
        raise CohortError(str(source), "at least one table", "none", "views in the schema main are tables, too")
    return _with_type_names(database)


def _with_type_names(database: Database) -> Database:
    """The same with names that node types may have: other signs are "_"."""
    names: dict[str, str] = {}
    for name in database.tables:
        plain = re.sub(r"[^A-Za-z0-9_-]", "_", name)[:60]
        tries = itertools.chain([plain], (f"{plain}_{number}" for number in itertools.count(2)))
        names[name] = next(other for other in tries if other not in names.values())
    for table in database.tables.values():
        table.keys = [key | {"to": names.get(key["to"], key["to"])} for key in table.keys]
    for entry in database.tasks.values():
        entry |= {key: names.get(entry[key], entry[key]) for key in ("nodes", "to") if key in entry}
    database.tables = {names[name]: table for name, table in database.tables.items()}
    return database


def _database_of(source: Path) -> Database:
    """What a source says, by the names that it has for its tables."""
    if not source.exists():
        raise CohortError(str(source), "a folder of tables, or a file of DuckDB", "no such file or folder")
    if not source.is_dir():
        if tables.kind_of(source) is not None:
            hint = f"name the folder of the tables: {source.parent}"
            raise CohortError(str(source), "a folder of tables, or a file of DuckDB", "another file", hint)
        return _duckdb_database(source)
    if is_relbench(source):
        return _relbench_database(source)
    there = sorted(path for path in source.iterdir() if path.name[0] not in "_.")
    files = [path for path in there if tables.kind_of(path) in TYPED]
    if not files:
        raise CohortError(str(source), "tables whose columns have types: .parquet or .arrow files", "none", TEXT_HINT)
    by_name: dict[str, Path] = {}
    for path in files:
        if (other := by_name.setdefault(path.name.split(".")[0], path)) != path:
            hint = "rename one; files of one table are in a folder of their own, which file in graph.yaml names"
            raise CohortError(str(source), "tables of different names", f"{other.name} and {path.name}", hint)
    return Database(
        source,
        {
            name: TableKeys(path.name, id_is_open=True, keys_are_open=True, time_is_open=True)
            for name, path in by_name.items()
        },
        notes=[
            f"left out: {path.name}, whose columns have no types; {TEXT_HINT}"
            for path in there
            if tables.kind_of(path) == "csv"
        ],
    )


def is_relbench(source: Path) -> bool:
    """Whether a folder looks like one of RelBench."""
    return (source / MANIFEST).exists() and (source / "db").is_dir()


def _duckdb_database(source: Path) -> Database:
    """The tables of a file of DuckDB, with its constraints."""
    by_name = {name: TableKeys(f"{source.name}:{name}", time_is_open=True) for name in tables_of(source)}
    columns = "table_name, constraint_type, constraint_column_names, referenced_table, referenced_column_names"
    with connected(source) as connection:
        rows = connection.sql(
            f"SELECT {columns} FROM duckdb_constraints() WHERE schema_name = 'main' ORDER BY ALL"
        ).fetchall()
        others = connection.sql(
            "SELECT table_schema || '.' || table_name FROM information_schema.tables "
            "WHERE table_schema <> 'main' ORDER BY 1"
        ).fetchall()
    notes = [f"left out: {name}, which is not in the schema main; a view there may show it" for (name,) in others]
    for name, kind, own, _, _ in rows:
        if kind == "PRIMARY KEY":
            by_name[name].id = list(own)
    for name, kind, own, to, ids in rows:
        if kind == "FOREIGN KEY" and list(ids) == by_name[to].id:
            by_name[name].keys.append({"column": own[0] if len(own) == 1 else list(own), "to": to})
        elif kind == "FOREIGN KEY":
            what = f"{name}.{', '.join(own)} is a foreign key of {', '.join(ids)} of {to}"
            notes.append(f"{what}, which is not its primary key: no relation")
    for table in by_name.values():
        table.id_is_open, table.keys_are_open = not table.id, not table.keys
    return Database(source.parent, by_name, notes=notes)


class _TableOf(msgspec.Struct, kw_only=True):
    """A table of RelBench."""

    pkey: str | None = None
    time_col: str | None = None
    fkeys: dict[str, str] = {}


class _Manifest(msgspec.Struct, kw_only=True):
    """manifest.yaml of RelBench, as far as it is read."""

    tables: dict[str, _TableOf]
    test_timestamp: Any = None


class _TaskManifest(msgspec.Struct, kw_only=True):
    """manifest.yaml of a task of RelBench, as far as it is read."""

    task_type: str
    kind: str = ""
    entity_table: str | None = None
    entity_col: str | None = None
    target_col: str | None = None
    time_col: str | None = None
    src_entity_table: str | None = None
    src_entity_col: str | None = None
    dst_entity_table: str | None = None
    dst_entity_col: str | None = None
    eval_k: int | None = None
    num_eval_timestamps: int = 1
    remove_columns: list[tuple[str, str]] = []


def _relbench_database(source: Path) -> Database:
    """The tables and tasks of a folder of RelBench."""
    manifest = _read(source / MANIFEST, _Manifest)
    by_name = {
        name: TableKeys(
            f"db/{name}.parquet",
            id=[table.pkey] if table.pkey else [],
            time=table.time_col,
            keys=[{"column": column, "to": to} for column, to in table.fkeys.items()],
        )
        for name, table in manifest.tables.items()
    }
    database = Database(source, by_name)
    for path in sorted((source / "tasks").glob(f"*/{MANIFEST}")):
        task, name = _read(path, _TaskManifest), path.parent.name
        files = {split: f"tasks/{name}/{split}.parquet" for split in SPLITS}
        files = {split: file for split, file in files.items() if (source / file).exists()}
        entry = _task_of(task, manifest)
        if entry is None or "train" not in files:
            reason = f"task type {task.task_type}" if entry is None else "no train.parquet"
            database.notes.append(f"task {name} is left out: {reason}")
            continue
        database.tasks[name] = entry | files
        autocompleted = [(task.entity_table, task.target_col)] if task.kind == "autocomplete" else []
        for table_name, column in (*task.remove_columns, *autocompleted):
            if table_name in by_name and column:
                before = by_name[table_name].hidden.get(column)
                by_name[table_name].hidden[column] = f"{before}, {name}" if before else name
    return database


def _task_of(task: _TaskManifest, manifest: _Manifest) -> dict[str, Any] | None:
    """The entry of graph.yaml; None: the manifest lacks something."""
    link = task.task_type == "recommendation"
    table = task.src_entity_table if link else task.entity_table
    if table not in manifest.tables:
        return None
    id_column = (task.src_entity_col if link else task.entity_col) or manifest.tables[table].pkey
    label = task.dst_entity_col if link else task.target_col
    if not id_column or not label or not link and task.task_type not in TARGETS:
        return None
    time = task.time_col or (manifest.tables[table].time_col if task.kind == "autocomplete" else None)
    entry: dict[str, Any] = {"nodes": table, "id": id_column, "label": label} | ({"time": time} if time else {})
    if task.num_eval_timestamps > 1 and manifest.test_timestamp is not None and time:
        entry["rows_until"] = str(manifest.test_timestamp)  # the test has later times, whose models see no more
    if not link:
        return entry | TARGETS[task.task_type]
    return entry | {"to": task.dst_entity_table} | ({"metric": f"map@{task.eval_k}"} if task.eval_k else {})


def _read(path: Path, kind: type[M]) -> M:
    return read_structured(path, "YAML", kind, "a manifest of RelBench", RELBENCH_HINT)
