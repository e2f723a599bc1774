"""Data sets from tables of other libraries: pandas, polars, DuckDB, pyarrow, and whatever gives Arrow's streams."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from cohort_gnn.base.errors import CohortError, why
from cohort_gnn.base.files import temporary_folder
from cohort_gnn.base.structures import misfit
from cohort_gnn.dataset.importing.beside import AS_IT_IS
from cohort_gnn.dataset.importing.importer import write_source
from cohort_gnn.dataset.importing.options import ConvertOptions
from cohort_gnn.dataset.layouts.described import described_graph
from cohort_gnn.dataset.layouts.description import Description
from cohort_gnn.dataset.tables import values
from cohort_gnn.dataset.tables.arrow_table import ArrowStream
from cohort_gnn.dataset.tables.table import TableFile
from cohort_gnn.dataset.tasks import SPLITS
from cohort_gnn.spec.graph import EdgeType

if TYPE_CHECKING:
    import pyarrow as pa

PLACE = "from_tables"
FILES_HINT = "tables in files: import_graph() of a graph.yaml, or pyarrow.dataset.dataset(FILE)"
STREAM_HINT = (
    "pandas 2.2, polars 1.3, DuckDB 1.2 and pyarrow give one, or newer; of a polars LazyFrame, take "
    "frame.collect(), of a table of Iceberg table.scan()"
)
TYPE_HINT = "convert the column, or leave it out: astype(str) in pandas, cast(polars.String) in polars"
UNORDERED = ("to_arrow_batch_reader", "to_pyarrow_dataset")  # of scans of Iceberg and tables of Delta Lake
READ_ONCE = {"source", "target", "reverse_of"}  # keys of edges that are read with their ends, in one pass
EXAMPLES = {
    "nodes": '{"user": {"table": users}}',
    "edges": '{("user", "pays", "user"): {"table": pays}}',
    "tasks": '{"churn": {"train": rows}}',
}
KEYS_HINT = "the keys are those of graph.yaml (dataset/FORMAT.md), with table in place of file"


def from_tables(
    out: str | os.PathLike,
    *,
    nodes: Mapping[str, Mapping[str, Any]],
    edges: Mapping[EdgeType, Mapping[str, Any]] | None = None,
    tasks: Mapping[str, Mapping[str, Any]] | None = None,
    target: str | None = None,
    name: str | None = None,
    note: Callable[[str], None] = lambda text: None,
    **options: Any,
) -> Path:
    """Writes tables as a data set. Each table is read once, some rows at a time, into a file beside ``out`` that is
    removed in the end; the last one of edges, if it has nothing but their ends, goes straight into the data set. The
    rules are those of tables in files (dataset/FORMAT.md).

    A table is a pandas or polars DataFrame, a pyarrow Table, RecordBatchReader or Dataset, a DuckDB relation, a
    DeltaTable, a scan of pyiceberg, or any other object with ``__arrow_c_stream__``. Rows of Delta Lake and Iceberg
    have no order, so their nodes need ``id``.

    Args:
        nodes: {node type: its table and what its columns mean}, by the keys of a node type in ``graph.yaml``, with
            ``table`` in place of ``file``: ``id`` (column of the ids that edges use, integers or texts; without it,
            row i is node i), ``features`` (list of columns), ``label`` (a column, or a list of them), ``split`` (a
            column with train, val, test or nothing), ``time`` (column: since when a node exists), ``count`` (of nodes,
            without a table).
        edges: {(source type, name, target type): its table and what its columns mean}: ``source`` and ``target``
            (columns; by default those whose names say it, such as src and dst), ``weight``, ``time``, ``features``
            (columns), ``reverse_of``; None: the ``keys`` of node types are the edges.
        tasks: {name of a task: what its keys are in ``graph.yaml``}, with tables as ``train``, ``val`` and ``test``.
        target: the node type to learn; by default the only one that has labels.
        name: of the data set; by default the name of the folder.
        note: function that gets messages for the user.
        options: fields of ``ConvertOptions``: ``task``, ``split`` (shares of the nodes), ``seed``, ``memory`` (bytes),
            ``reverse``, ``overwrite`` and others, as of `cohort dataset import`.

    Returns:
        The folder of the data set.

    Raises:
        CohortError: a table is missing, is no table, ends early or has values that are refused. Nothing is left then.
        TypeError: there is no option of a name.

    Example:
        >>> import duckdb, cohort_gnn as cohort
        >>> users = duckdb.sql("SELECT id, age, income, is_fraud::INT AS fraud FROM 'users.parquet'")
        >>> pays = duckdb.sql("SELECT payer, payee, at FROM 'payments/*.parquet'")
        >>> cohort.dataset.from_tables(
        ...     "data/payments",
        ...     nodes={"user": {"table": users, "id": "id", "features": ["age", "income"], "label": "fraud"}},
        ...     edges={("user", "pays", "user"): {"table": pays, "source": "payer", "target": "payee", "time": "at"}},
        ... )
    """
    ConvertOptions.named(options)  # refuses wrong ones before a table is read
    folder = Path(out)
    folder.parent.mkdir(parents=True, exist_ok=True)
    named = {"target": target, "name": name or folder.resolve().name}
    with described_tables(folder, nodes, edges or {}, tasks, **named) as (path, description, streams):
        graph = described_graph(path, description, streams)
        write_source(graph, folder, "yaml", AS_IT_IS, note=without_folder(path.parent, note), **options)
    return folder


def without_folder(folder: Path, note: Callable[[str], None]) -> Callable[[str], None]:
    """The same function of texts, which do not name the folder."""
    return lambda text: note(text.replace(f"{folder}{os.sep}", ""))


@contextlib.contextmanager
def described_tables(
    folder: Path,
    nodes: Mapping[str, Mapping[str, Any]],
    edges: Mapping[EdgeType, Mapping[str, Any]],
    tasks: Mapping[str, Mapping[str, Any]] | None = None,
    **named: str | None,
) -> Iterator[tuple[Path, Description, Mapping[str, TableFile]]]:
    """Tables as `from_tables` takes them, in files beside a folder: the path of a description, which is not there, the
    description, and the tables that are read as streams. Errors inside do not name the files."""
    for what, tables in (("nodes", nodes), ("edges", edges), ("tasks", tasks or {})):
        if not isinstance(tables, Mapping) or not all(isinstance(keys, Mapping) for keys in tables.values()):
            example = EXAMPLES[what]
            actual = type(tables).__name__ if not isinstance(tables, Mapping) else "another value in it"
            raise CohortError(f"{PLACE}: {what}", f"a dict of dicts, such as {example}", actual, KEYS_HINT)
    streams: dict[str, TableFile] = {}
    last = list(edges)[-1:]  # what opens another table may end a stream that is open, as a connection of DuckDB does
    with temporary_folder(folder.with_name(f"{folder.name}.tables")) as kept:
        _demand_own_readers(nodes, edges, tasks or {})
        described = {
            "nodes": {type_: _kept(keys, kept, f"nodes.{type_}") for type_, keys in nodes.items()},
            "tasks": {task: _kept_splits(keys, kept, f"tasks.{task}") for task, keys in (tasks or {}).items()},
            "edges": [
                {"type": list(type_)}
                | _kept(keys, kept, f"edges.{'.'.join(type_)}", streams if [type_] == last else None)
                for type_, keys in edges.items()
            ],
        } | named
        try:
            description = msgspec.convert(described, Description)
        except msgspec.ValidationError as error:
            member, expected, actual = misfit(error)
            raise CohortError(f"{PLACE}: {member}".removesuffix(": "), expected, actual, KEYS_HINT) from None
        try:
            yield kept / PLACE, description, streams
        except CohortError as error:
            if not error.expected:
                raise
            parts = (error.place, error.expected, error.found, error.hint)
            raise CohortError(*(part.replace(f"{kept}{os.sep}", "") for part in parts)) from error


def _kept(
    keys: Mapping[str, Any], folder: Path, place: str, streams: dict[str, TableFile] | None = None
) -> dict[str, Any]:
    """The keys of a description, whose table is in a file now, or among the streams if its rows are read once."""
    if "file" in keys or "format" in keys:
        raise CohortError(f"{PLACE}: {place}", "a table in memory", "a file", FILES_HINT)
    described = dict(keys)
    table = described.pop("table", None)
    if table is not None:
        if place.startswith("nodes.") and keys.get("id") is None and any(hasattr(table, name) for name in UNORDERED):
            expected, actual = "a column of ids, as the rows of this table have no order", "no id"
            raise CohortError(f"{PLACE}: {place}", expected, actual, "name it: id")
        path, reader = folder / place.replace(os.sep, "_"), _stream_of(table, place)
        if streams is not None and described.keys() <= READ_ONCE:
            streams[path.name] = ArrowStream(path, reader.schema, _batches(reader, place))
        else:
            _write(reader, path, place)
        described |= {"file": path.name, "format": "arrow"}
    return described


def _demand_own_readers(
    nodes: Mapping[str, Mapping[str, Any]], edges: Mapping[EdgeType, Mapping[str, Any]], tasks: Mapping[str, Mapping]
) -> None:
    """Raises CohortError for a reader that is given twice: its rows would be missing the second time."""
    import pyarrow as pa

    tables = [(f"nodes.{type_}", keys.get("table")) for type_, keys in nodes.items()]
    tables += [(f"tasks.{task}.{split}", keys.get(split)) for task, keys in tasks.items() for split in SPLITS]
    tables += [(f"edges.{'.'.join(type_)}", keys.get("table")) for type_, keys in edges.items()]
    first_place: dict[int, str] = {}
    for place, table in tables:
        if isinstance(table, pa.RecordBatchReader) and first_place.setdefault(id(table), place) != place:
            expected, actual = "a reader of its own, whose rows are read once", f"that of {first_place[id(table)]}"
            raise CohortError(
                f"{PLACE}: {place}", expected, actual, "pass a table, such as reader.read_all(), for both"
            )


def _kept_splits(keys: Mapping[str, Any], folder: Path, place: str) -> dict[str, Any]:
    """The keys of a task, whose tables are in files now."""
    splits = {split: keys[split] for split in SPLITS if keys.get(split) is not None}
    files = {split: _kept({"table": table}, folder, f"{place}.{split}")["file"] for split, table in splits.items()}
    return dict(keys) | files | {"format": "arrow"}


def _stream_of(table: Any, place: str) -> pa.RecordBatchReader:
    """The rows of a table, some at a time."""
    import pyarrow as pa

    if isinstance(table, pa.RecordBatchReader):
        return table
    try:
        if hasattr(table, "__arrow_c_stream__"):
            return pa.RecordBatchReader.from_stream(table)
        if callable(scanner := getattr(table, "scanner", None)):  # a pyarrow Dataset
            return scanner().to_reader()
        for name in UNORDERED:
            if callable(read := getattr(table, name, None)):
                return _stream_of(read(), place)
    except (pa.ArrowException, OSError, ValueError, TypeError, OverflowError) as error:
        actual = why(error, ": ".join(map(str, error.args)))[:300]
        raise CohortError(f"{PLACE}: {place}", "a table that Arrow has types for", actual, TYPE_HINT) from error
    raise CohortError(f"{PLACE}: {place}", "a table with __arrow_c_stream__", _named(table), _cure_of(table))


def _cure_of(table: Any) -> str:
    """What makes a table of something else."""
    if isinstance(table, str | os.PathLike):
        return FILES_HINT
    is_plain = isinstance(table, Mapping | list) or type(table).__module__.partition(".")[0] == "numpy"
    return "pandas.DataFrame(table) is one" if is_plain else STREAM_HINT


def _named(table: Any) -> str:
    """Its type, and the version of the library that it is from."""
    library = type(table).__module__.partition(".")[0]
    version = getattr(sys.modules.get(library), "__version__", None)
    return type(table).__name__ + (f" of {library} {version}" if version else "")


def _write(reader: pa.RecordBatchReader, path: Path, place: str) -> None:
    """Writes all rows of a stream to a file of Arrow's format, without dictionaries: a file has one a column."""
    import pyarrow as pa

    fields = [field.with_type(values.plain_type(field.type)) for field in reader.schema]
    schema = pa.schema(fields, reader.schema.metadata)
    try:
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, schema) as writer:
            for batch in _batches(reader, place):
                if batch.num_rows:  # pyarrow 26 may write an empty one so that the file cannot be read
                    columns = [
                        values.plain(column) if pa.types.is_dictionary(column.type) else column
                        for column in batch.columns
                    ]
                    writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
    except pa.ArrowException as error:
        expected = "a table that Arrow's files hold"
        raise CohortError(f"{PLACE}: {place}", expected, f"{error}"[:300], TYPE_HINT) from error
    except OSError as error:
        expected, hint = f"disk space for its rows in {path.parent.parent}", "free some space or write to another disk"
        raise CohortError(f"{PLACE}: {place}", expected, why(error), hint) from error


def _batches(reader: Iterable[pa.RecordBatch], place: str) -> Iterator[pa.RecordBatch]:
    """What the stream gives; whatever its library raises is the error of an import."""
    try:
        yield from reader
    except Exception as error:
        raise CohortError(f"{PLACE}: {place}", "rows until the end of the table", f"{error}"[:200]) from error
