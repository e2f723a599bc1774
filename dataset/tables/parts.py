"""Tables in several files: a folder, or what a pattern matches, as Spark, DuckDB, polars and dask write them."""

from __future__ import annotations

import glob
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset.tables.ahead import ahead
from cohort_gnn.dataset.tables.table import ColumnKind, TableFile, shortened

if TYPE_CHECKING:
    import pyarrow as pa

    from cohort_gnn.dataset.tables.table import Pieces

NO_VALUE = "__HIVE_DEFAULT_PARTITION__"  # what Hive calls the folder of rows whose column is null
DIGITS = re.compile(r"(\d+)")
DUCKLAKE = re.compile(r"ducklake-[0-9a-f-]{36}(-delete)?\.parquet")
ICEBERG = re.compile(r"(v\d+|\d{5,}-[0-9a-f-]{36})(\.gz)?\.metadata\.json")  # names of the metadata of a table


def are_integers(values: Iterable[str | None]) -> bool:
    """Whether the values of a folder's name are integers, as far as there are some."""
    return all(value is None or re.fullmatch(r"[+-]?\d{1,18}", value) for value in values)


def is_pattern(path: Path) -> bool:
    """Whether a path that does not exist is a pattern such as edges/*.parquet."""
    return glob.has_magic(str(path)) and not path.exists()


def part_files(source: Path) -> list[Path]:
    """The files in a folder and in its folders, or those that match a pattern, in the order of the numbers in their
    names. Names that begin with "_" or "." are left out: Spark's _SUCCESS, checksums, metadata.

    Raises:
        CohortError: the folder is one of Delta Lake, DuckLake, Iceberg or Hudi, whose log or catalog says which rows
            are the table.
    """
    if is_pattern(source):
        matches = [Path(name) for name in glob.glob(str(source), recursive=True)]
        files = [file for match in matches for file in (_files_in(match) if match.is_dir() else [match])]
    else:
        files = _files_in(source) if source.is_dir() else []
    for folder in dict.fromkeys(folder for file in files for folder in file.absolute().parents):
        if (format := _lake_of(folder)) is not None:
            actual = f"a folder of {format}, in which files with rows that were removed stay"
            read = "DeltaTable(FOLDER), table.scan() of Iceberg, or duckdb.sql('FROM lake.TABLE') of DuckLake"
            hint = f"give cohort.from_tables what its library reads: {read}"
            raise CohortError(str(source), "files that are a table together", actual, hint)
    return sorted(files, key=_by_numbers)


def _lake_of(folder: Path) -> str | None:
    """The format of tables that have such a folder."""
    if (folder / "_delta_log").is_dir():
        return "Delta Lake"
    if (folder / ".hoodie").is_dir():
        return "Hudi"
    if any(DUCKLAKE.fullmatch(path.name) for path in folder.glob("ducklake-*.parquet")):
        return "DuckLake"
    names = (path.name for path in (folder / "metadata").glob("*.metadata.json"))
    return "Iceberg" if any(map(ICEBERG.fullmatch, names)) else None


def _files_in(folder: Path) -> list[Path]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return [path for path in files if not any(name[0] in "_." for name in path.relative_to(folder).parts)]


def _by_numbers(path: Path) -> list[tuple[int, int, str]]:
    """A key that sorts part-2 before part-10."""
    words = DIGITS.split(str(path))
    return [(1, int(word), "") if i % 2 else (0, 0, word) for i, word in enumerate(words)]


class Parts(TableFile):
    """One table in several files, whose rows follow each other. Files may have their columns in different orders.

    Folders called NAME=VALUE (Hive partitions) add a column NAME, unless the files have one of this name: integers if
    all values are integers, otherwise texts.

    Attributes:
        files: in the order of their rows.
        has_open_order: the numbers in the files' names sort otherwise than the names do, so that it is open which row
            is the first.
    """

    def __init__(self, source: Path, files: Sequence[Path], open_part: Callable[[Path], TableFile]):
        self.path, self.files, self._open = source, list(files), open_part
        self.has_open_order = sorted(map(str, files)) != list(map(str, files))
        self._current: TableFile | None = None
        first = open_part(self.files[0])
        self.options, self.said = first.options, first.said
        self.names, self._num_columns = list(first.names), len(first.titles)
        self._row_ids = [(first.row_ids, first.count())]
        for file in self.files[1:]:
            part = open_part(file)
            self._demand_alike(first, part)
            self._row_ids.append((part.row_ids, part.count() if part.row_ids or first.row_ids else 0))
        self._add_partitions(first.titles)
        self.titles = [*first.titles, *self._partitions]
        self.names = [*self.names, *self._partitions] if self.names else []
        self.index = list(first.index)
        self.row_ids = self._odd_row_ids()

    def pieces(
        self, columns: Sequence[int], kind: ColumnKind, block_bytes: int
    ) -> Iterator[tuple[list[pa.Array | pa.ChunkedArray], float]]:
        if max(columns, default=-1) >= len(self.titles):
            expected = f"at least {max(columns) + 1} columns"
            raise CohortError(str(self.path), expected, ", ".join(self.titles), "--columns names others")
        sizes = [file.stat().st_size for file in self.files]
        total, done = max(1, sum(sizes)), 0
        stored = [column for column in columns if column < self._num_columns]
        starts = (partial(self._start, file, stored, kind, block_bytes) for file in self.files)
        for number, (size, (part, pieces)) in enumerate(zip(sizes, ahead(starts, 1), strict=True)):
            self._current = part
            for arrays, fraction in pieces:
                by_column = dict(zip(stored, arrays, strict=False))
                rows = len(arrays[0])
                yield (
                    [
                        by_column[column] if column in by_column else self._constant(number, column, rows)
                        for column in columns
                    ],
                    (done + fraction * size) / total,
                )
            done += size
        self._current = None

    def _start(
        self, file: Path, columns: Sequence[int], kind: ColumnKind, block_bytes: int
    ) -> tuple[TableFile, Pieces]:
        """A part, and the pieces of these columns, the first of which has been read."""
        part = self._open(file)
        places = [part.titles.index(self.titles[i]) if part.names else i for i in columns]
        # A part without the columns that are wanted still says how many rows it has.
        pieces = part.pieces(places or [0], kind, block_bytes)
        first = list(itertools.islice(pieces, 1))
        return part, itertools.chain(first, pieces)

    def count(self) -> int:
        return sum(self._open(file).count() for file in self.files)

    def place(self, column: int) -> str:
        path = self.path if self._current is None else self._current.path
        return f"{path}: {self._called(column)}"

    def _demand_alike(self, first: TableFile, part: TableFile) -> None:
        """Raises CohortError for a part that has other columns than the first one."""
        expected = f"the columns of {first.path.name}: {shortened(first.titles)}"
        if bool(part.names) != bool(first.names):
            actual = "names of columns" if part.names else "no names of columns"
            raise CohortError(str(part.path), expected, actual, "write all parts with names, or none")
        same = sorted(part.titles) == sorted(first.titles) if first.names else len(part.titles) == len(first.titles)
        if same:
            return
        missing = [name for name in first.titles if name not in part.titles]
        more = [name for name in part.titles if name not in first.titles]
        actual = "; ".join(f"{word} {shortened(names)}" for word, names in (("no", missing), ("also", more)) if names)
        hint = "name the parts of one table: a folder of its own, or a pattern such as 'folder/part-*.parquet'"
        raise CohortError(str(part.path), expected, actual or shortened(part.titles), hint)

    def _add_partitions(self, titles: Sequence[str]) -> None:
        """Reads NAME=VALUE of the folders between the source and its files."""
        self._partitions: dict[str, list[str | None]] = {}
        values = [self._values_of(file) for file in self.files]
        names = list(values[0])
        for file, pairs in zip(self.files, values, strict=True):
            if list(pairs) != names:
                expected = f"folders {'/'.join(f'{name}=...' for name in names) or 'without NAME=VALUE'}"
                actual = "/".join(f"{name}=..." for name in pairs) or "none"
                raise CohortError(str(file), expected, actual, "all parts of a table have the same folders")
        for name in names:
            if name not in titles:
                self._partitions[name] = [pairs[name] for pairs in values]
                self._demand_distinct(name)

    def _demand_distinct(self, name: str) -> None:
        """Raises CohortError for folders that are different, but one integer, such as day=1 and day=01."""
        texts = dict.fromkeys(value for value in self._partitions[name] if value is not None)
        if not are_integers(texts):
            return
        first: dict[int, str] = {}
        for text in texts:
            other = first.setdefault(int(text), text)
            if other != text:
                actual = f"{name}={other} and {name}={text}, which are one integer"
                hint = "rename one of the folders, or move its files into the other"
                raise CohortError(str(self.path), f"a folder for each value of {name}", actual, hint)

    def _values_of(self, file: Path) -> dict[str, str | None]:
        pairs = {}
        fixed = itertools.takewhile(lambda part: not glob.has_magic(part), self.path.parts)
        begin = len(list(fixed)) if is_pattern(self.path) else len(self.path.parts)
        for folder in file.parent.parts[begin:]:
            name, equals, value = folder.partition("=")
            if equals and name:
                pairs[unquote(name)] = None if value == NO_VALUE else unquote(value)
        return pairs

    def _constant(self, number: int, column: int, rows: int) -> pa.Array:
        """The value that a part has in a column of its folder's name."""
        import pyarrow as pa

        values = self._partitions[self.titles[column]]
        integers = are_integers(values)
        type_ = pa.int64() if integers else pa.string()
        value = values[number]
        return pa.nulls(rows, type_) if value is None else pa.repeat(int(value) if integers else value, rows)

    def _odd_row_ids(self) -> range | None:
        """The index of pandas of a part, where the parts' indices do not number the rows of all from 0."""
        begin = 0
        for row_ids, count in self._row_ids:
            if row_ids is not None and row_ids != range(begin, begin + len(row_ids)):
                return row_ids
            begin += count
        return None
