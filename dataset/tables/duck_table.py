"""Tables in a file of DuckDB, by the names that users give: FILE.duckdb:TABLE."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cohort_gnn.base.errors import CohortError, why
from cohort_gnn.base.spelling import did_you_mean
from cohort_gnn.dataset.tables.arrow_table import ArrowTable
from cohort_gnn.dataset.tables.known_files import DUCKDB, known_file

if TYPE_CHECKING:
    import pyarrow as pa

NAMED = re.compile(r"(.+?\.duckdb):(.+)", re.IGNORECASE | re.DOTALL)
LEAST_VERSION = (1, 2)  # 1.0 does not say where foreign keys lead, pyarrow cannot read relations of 1.1.0
PACKAGE_HINT = "python -m pip install 'duckdb>=1.2'"


@contextlib.contextmanager
def connected(file: Path, table: str = "") -> Iterator[Any]:
    """A connection that only reads the file; `table`: that is read, for messages.

    Raises:
        CohortError: DuckDB is missing or too old, or cannot read the file.
    """
    try:
        import duckdb
    except ImportError as error:
        raise CohortError(str(file), "the package duckdb", f"none ({error})", PACKAGE_HINT) from error
    if tuple(map(int, duckdb.__version__.split(".")[:2])) < LEAST_VERSION:
        raise CohortError(str(file), "DuckDB 1.2 or newer", duckdb.__version__, PACKAGE_HINT)
    if not file.exists():
        raise CohortError(str(file), "a file of DuckDB", "no such file", "check the path")
    if (known := known_file(file)) is not None and known[0] != DUCKDB[0]:  # DuckDB loads an extension for some
        raise CohortError(str(file), "a file of DuckDB", *known)
    is_open = False
    try:
        with duckdb.connect(str(file), read_only=True) as connection:
            is_open = True
            yield connection
    except duckdb.Error as error:
        actual = why(error, str(error))[:200]
        if is_open and table:
            hint = "mend or drop the view, if it is one"
            raise CohortError(f"{file}:{table}", "a table or view that DuckDB reads", actual, hint) from error
        hint = "close the program that writes it; a file of a newer DuckDB needs that version"
        raise CohortError(str(file), "a file that DuckDB reads", actual, hint) from error


def tables_of(file: Path) -> list[str]:
    """The names of the tables and views in a file, ascending.

    Raises:
        CohortError: as `connected` does, and for the catalog of a DuckLake.
    """
    with connected(file) as connection:
        rows = connection.sql("SELECT table_name FROM information_schema.tables WHERE table_schema = 'main'").fetchall()
    names = sorted(name for (name,) in rows)
    if "ducklake_snapshot" in names:
        hint = f"in DuckDB: ATTACH 'ducklake:{file}' AS lake; COPY (FROM lake.TABLE) TO 'TABLE.parquet'"
        raise CohortError(str(file), "a file of DuckDB with tables", "the catalog of a DuckLake", hint)
    return names


class DuckTable(ArrowTable):
    """A table, or a view, in a file of DuckDB, whose rows come in the order in which they were written."""

    format = "a table of DuckDB"

    def _open(self) -> pa.Schema:
        named = NAMED.fullmatch(str(self.path))
        assert named is not None
        self._file, self._table = Path(named[1]), named[2]
        if self._table not in (known := tables_of(self._file)):
            hint = did_you_mean(self._table, known)
            raise CohortError(str(self._file), f"one of the tables {', '.join(known) or '(none)'}", self._table, hint)
        with connected(self._file, self._table) as connection, _interruptible(connection) as run:
            count = connection.sql(f"SELECT count(*) FROM {_quoted(self._table)}")
            self._num_rows = run(count.fetchall)[0][0]
            return run(_reader, connection, f"SELECT * FROM {_quoted(self._table)} LIMIT 0", 1).schema

    def count(self) -> int:
        return self._num_rows

    def _batches(self, names: list[str], at_once: int, block_bytes: int) -> Iterator[pa.RecordBatch]:
        columns = ", ".join(map(_quoted, dict.fromkeys(names)))
        with connected(self._file, self._table) as connection, _interruptible(connection) as run:
            connection.execute("SET preserve_insertion_order = true")
            reader = run(_reader, connection, f"SELECT {columns} FROM {_quoted(self._table)}", at_once)
            while (batch := run(next, reader, None)) is not None:
                yield batch


@contextlib.contextmanager
def _interruptible(connection: Any) -> Iterator[Callable[..., Any]]:
    """What calls a function of DuckDB in another thread, so that a signal ends its query: in the main thread DuckDB
    looks for signals rarely, perhaps after minutes, and raises another exception in place of the handler's."""
    with ThreadPoolExecutor(1) as thread:

        def run(call: Callable[..., Any], *arguments: Any) -> Any:
            try:
                return thread.submit(call, *arguments).result()
            except BaseException:
                connection.interrupt()
                raise

        yield run


def _reader(connection: Any, query: str, at_once: int) -> pa.RecordBatchReader:
    """The rows of a query, at most so many at a time; before 2.0 DuckDB called its function otherwise."""
    relation = connection.sql(query)
    name = "to_arrow_reader" if hasattr(relation, "to_arrow_reader") else "fetch_arrow_reader"
    return getattr(relation, name)(at_once)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
