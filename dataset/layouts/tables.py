"""Edge lists, feature rows, labels and splits of any of the table formats: .npy, .npz, text, Parquet, bare numbers."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset import arrays
from cohort_gnn.dataset.array_file import Array, Bfloat16Array, open_raw
from cohort_gnn.dataset.layouts.foreign import demand_no_foreign
from cohort_gnn.dataset.layouts.streams import Edges, Rows, Weights
from cohort_gnn.dataset.layouts.tensor_files import ARRAYS, file_of, open_array
from cohort_gnn.dataset.tables import values
from cohort_gnn.dataset.tables.arrow_table import ArrowFile, ParquetFile
from cohort_gnn.dataset.tables.column_names import edge_columns, end_columns
from cohort_gnn.dataset.tables.duck_table import NAMED, DuckTable
from cohort_gnn.dataset.tables.first_line import EDGE_LISTS, kind_suffix
from cohort_gnn.dataset.tables.ids import demand_no_ids, integers_of, named_ids
from cohort_gnn.dataset.tables.known_files import demand_fetched, demand_unknown
from cohort_gnn.dataset.tables.parts import Parts, is_pattern, part_files
from cohort_gnn.dataset.tables.table import READ_AT_ONCE, TableFile, shortened
from cohort_gnn.dataset.tables.text_file import TextFile
from cohort_gnn.dataset.tables.text_options import ALL, GUESSED, NONE, TextOptions, Wanted
from cohort_gnn.dataset.tables.timestamps import Clock

TEXT_SUFFIXES = (".csv", ".tsv", ".txt", *EDGE_LISTS)
TABLES = ("csv", "parquet", "arrow", "duckdb")
KNOWN = "a .npy, .pt, .safetensors, .csv or .parquet file"
RAW_DTYPES = ("float32", "float16", "bfloat16", "uint8")
COLUMNS_CURE = "--columns SRC,DST, as names or numbers from 0"


@dataclass(frozen=True)
class RawLayout:
    """What a file of bare numbers does not say itself: columns and type; the type also of a .npy file of uint16."""

    dim: int | None = None
    dtype: str | None = None


def kind_of(path: Path) -> str | None:
    """ "npy", "npz", "csv", "parquet", "arrow", "duckdb", "pt" or "safetensors", by the name of the file or of all
    parts; else None."""
    if NAMED.fullmatch(str(path)):
        return "duckdb"
    path = file_of(path)
    if path.is_dir() or is_pattern(path):
        kinds = {kind_of(file) for file in part_files(path)}
        return kinds.pop() if len(kinds) == 1 and kinds <= set(TABLES) else None
    last = kind_suffix(path)
    if last in TEXT_SUFFIXES:
        return "csv"
    return {
        ".npy": "npy",
        ".mtx": "mtx",
        ".npz": "npz",
        ".parquet": "parquet",
        ".pq": "parquet",
        ".arrow": "arrow",
        ".feather": "arrow",
        ".pt": "pt",
        ".safetensors": "safetensors",
    }.get(last)


def open_table(path: Path, options: TextOptions = GUESSED, wanted: Wanted = ALL, kind: str | None = None) -> TableFile:
    """The table in a text or a Parquet file, or in the files of a folder or of a pattern.

    Args:
        kind: "csv" or "parquet"; None: as the file's name says.
    """
    if path.is_dir() or is_pattern(path):
        return Parts(path, _parts_of(path, kind), lambda file: open_table(file, options, wanted, kind))
    kind = kind or kind_of(path)
    demand_fetched(path)
    if kind not in TABLES:
        demand_unknown(path, KNOWN)
        raise CohortError(str(path), KNOWN, f"a file {path.name}", "give it one of these names")
    if kind == "csv":
        return TextFile(path, options, wanted)
    table = DuckTable(path) if kind == "duckdb" else ParquetFile(path) if kind == "parquet" else ArrowFile(path)
    if options.in_yaml and options.null is not None and _is_number(options.null):
        hint = "make nulls of it first: NULLIF(column, number) in SQL, replace(number, None) in pandas"
        raise CohortError(f"{path}: null", "a text, for columns that have types", options.null, hint)
    table.said = options
    return table


def _is_number(text: str) -> bool:
    try:
        return bool(np.isfinite(float(text)))
    except ValueError:
        return False


def _parts_of(source: Path, kind: str | None) -> list[Path]:
    """The files of a table in several files, all of one kind.

    Raises:
        CohortError: there are none, or files of other kinds are among them.
    """
    files = part_files(source)
    kinds = {file: kind or kind_of(file) for file in files}
    first = next((kinds[file] for file in files if kinds[file] in TABLES), None)
    hint = f"a pattern names the parts: '{source}/*.parquet'" if source.is_dir() else "check the pattern"
    if first is None:
        raise CohortError(str(source), "parts of a table: .parquet or .csv files", "none", hint)
    if odd := [file.name for file in files if kinds[file] != first]:
        raise CohortError(str(source), f"parts of one kind: {first}", f"also {shortened(odd)}", hint)
    return files


def wanted_of_edges(
    columns: Sequence[str] | None, beside: Sequence[str] = (), types: tuple[str, str] | None = None
) -> Wanted:
    """The columns of an edge list between integers. Its endpoints, or names of columns, say if names come first.

    Args:
        columns: of the ends; None: as the names say.
        beside: other columns that are read.
        types: of the nodes at both ends.
    """
    numbers = tuple(int(end) for end in columns or ("0", "1") if end.isdecimal())
    chosen = [*(columns or ()), *beside]
    return Wanted(chosen or None, numbers, edges=True, says_names=lambda fields: bool(end_columns(fields, types)))


def read_edges(
    path: Path,
    destinations: Path | None,
    options: TextOptions,
    columns: Sequence[str] | None = None,
    beside: Sequence[str] = (),
    kind: str | None = None,
) -> Edges:
    """The edges of an array ([2, E] or [E, 2]), of two ([E] each), of a text or of a Parquet file.

    Args:
        columns: of a table, names or numbers of the two ends.
        beside: its other columns that are read.
        kind: one of ARRAYS or TABLES; None: as the file's name says.
    """
    kind = kind or kind_of(path)
    if destinations is not None:
        sources, targets = open_array(path, kind), open_array(destinations, kind_of(destinations))
        return Edges.from_arrays(f"{path}, {destinations}", sources, targets)
    if kind in ARRAYS:
        return Edges.from_pairs(open_array(path, kind))
    table = open_table(path, options, wanted_of_edges(columns, beside), kind)
    if len(table.titles) < 2:
        hint = f"each line has a source and a destination; {options.says('separator', 'space')} (comma, tab, ...)"
        raise CohortError(str(path), "lines of at least two fields", f"{len(table.titles)}", hint)
    if columns is None:
        return Edges.from_table(table, edge_columns(table, COLUMNS_CURE, kind_suffix(path) in EDGE_LISTS))
    numbers = table.choose(columns)
    if len(numbers) != 2:
        raise CohortError("--columns", "two columns", ",".join(columns))
    return Edges.from_table(table, numbers)


def read_columns(
    path: Path,
    what: str,
    option: str,
    chosen: str | Sequence[str],
    options: TextOptions,
    wanted: Wanted,
    kind: str,
    clock: Clock | None = None,
) -> Weights | Rows:
    """What edges have beside their ends, in columns of an edge list in a text or a Parquet file.

    Args:
        what: "weights", "times" or "features".
        option: that names the columns, for messages.
        chosen: names or numbers from 0; of weights and times, one.
        wanted: of the edges.
        clock: of times that are timestamps or dates.
    """
    if kind not in TABLES:
        hint = f"pass a file of them with --edge-{what} FILE"
        raise CohortError(option, "an edge list of text or Parquet", f"a file {path.name}", hint)
    table = open_table(path, options, wanted, kind)
    numbers = table.choose([chosen] if isinstance(chosen, str) else chosen)
    if what == "features":
        return Rows.from_table(table, numbers)
    return Weights.from_table(table, numbers[0], what == "times", clock)


def read_weights(
    path: Path, are_times: bool = False, options: TextOptions = GUESSED, clock: Clock | None = None
) -> Weights:
    """The weights or times [E] of an array, or of a text or a Parquet file of one column.

    Args:
        clock: of times that are timestamps or dates.
    """
    if (kind := kind_of(path)) in ARRAYS:
        return Weights.from_array(open_array(path, kind), are_times)
    table = open_table(path, options)
    demand_part_order(table)
    if len(table.titles) != 1:
        what, option = ("time", "--time-column") if are_times else ("weight", "--weight-column")
        hint = f"of an edge list, {option} names the column"
        raise CohortError(str(path), f"one column, with one {what} per edge", f"{len(table.titles)} columns", hint)
    return Weights.from_table(table, 0, are_times, clock)


def read_rows(path: Path, raw: RawLayout = RawLayout(), options: TextOptions = GUESSED, ids: str | None = None) -> Rows:
    """Rows of an array, of a file of bare numbers, or of edges in all columns of a text or a Parquet file.

    Args:
        ids: "none": none of the table's columns has ids.
    """
    if (kind := kind_of(path)) in ARRAYS:
        return rows_of_array(open_array(path, kind), raw.dtype, "--feature-dtype ")
    if kind in TABLES:
        table = open_table(path, options)
        demand_part_order(table)
        if ids != NONE:
            demand_only_features(table, options)
        return Rows.from_table(table)
    if raw.dim is None or path.is_dir():
        demand_no_foreign(path)
    demand_unknown(path, f"{KNOWN}, or bare numbers")
    if raw.dim is None:
        hint = "a file of bare numbers needs --feature-dim D (and --feature-dtype)"
        raise CohortError(str(path), KNOWN, f"a file {path.name}", hint)
    dtype = raw.dtype or "float32"
    if dtype not in RAW_DTYPES:
        raise CohortError("--feature-dtype", " or ".join(RAW_DTYPES), dtype)
    is_bfloat16 = dtype == "bfloat16"
    file = open_raw(path, "uint16" if is_bfloat16 else dtype, raw.dim)
    return Rows.from_file(file, "bfloat16" if is_bfloat16 else None)


def rows_of_array(file: Array, dtype: str | None, option: str) -> Rows:
    """Rows of an array; uint16 may be the bits of bfloat16, or numbers, as `dtype` says.

    Args:
        option: how the user says dtype.
    """
    if isinstance(file, Bfloat16Array):
        return Rows.from_file(file.bits, "bfloat16")
    if file.dtype.newbyteorder("=") != np.uint16:
        return Rows.from_file(file)
    if dtype not in ("bfloat16", "float32"):
        cure = f"{option}bfloat16: they are its bits; {option}float32: they are numbers"
        raise CohortError(file.place, "numbers, or the bits of bfloat16", "dtype uint16, which may be either", cure)
    if dtype == "bfloat16":
        return Rows.from_file(file, "bfloat16")
    arrays.demand_shape(file.place, file, (None, None))

    def chunks(block_bytes: int):
        return (rows.astype(np.float32) for rows in file.rows(max(1, block_bytes // max(1, 2 * file.row_bytes))))

    return Rows(file.place, "float32", chunks)


def demand_only_features(table: TableFile, options: TextOptions) -> None:
    """Raises CohortError where a column of a table of edges' features looks like one of ids."""
    named = named_ids(table)
    for column, name in enumerate(table.titles):
        if len(table.titles) > 1 and (column in named or integers_of(table, column, False) is not None):
            actual = f"{name} among them, which looks like ids"
            hint = f"leave it out, or say that it is a feature: {options.says('id-column', NONE)}"
            raise CohortError(str(table.path), "only columns of features", actual, hint)


def read_array(path: Path, options: TextOptions = GUESSED) -> np.ndarray:
    """A small array: labels, ids or a mask; the table's columns, or the file's array."""
    if (kind := kind_of(path)) in ARRAYS:
        return open_array(path, kind).read()
    table = open_table(path, options)
    demand_part_order(table)
    return table.read()


def read_ids(path: Path, options: TextOptions = GUESSED) -> np.ndarray:
    """Integers, or a bool mask [V]."""
    if (kind := kind_of(path)) in ARRAYS:
        return open_array(path, kind).read()
    table = open_table(path, options)
    demand_part_order(table)
    if len(table.titles) > 1:
        actual = f"{len(table.titles)}: {shortened(table.titles)}"
        raise CohortError(str(path), "one column, of ids", actual, "write the column of ids alone: to_csv(index=False)")
    return table.read(dtype=None if _is_mask(table) else np.int64)


def _is_mask(table: TableFile) -> bool:
    """Whether the first column of a table has bools."""
    import pyarrow as pa

    first = [] if table.options is not None else next(table.pieces([0], "numbers", READ_AT_ONCE), ([], 1.0))[0]
    return any(pa.types.is_boolean(values.plain(array).type) for array in first)


def read_splits(paths: Sequence[Path], options: TextOptions = GUESSED) -> Callable[[], list[np.ndarray]]:
    return lambda: [read_ids(path, options) for path in paths]


def demand_part_order(table: TableFile) -> None:
    """Raises CohortError for parts of a table whose names leave it open which rows come first, where that matters."""
    if isinstance(table, Parts) and table.has_open_order:
        expected = "parts whose names sort as their numbers do, since row i is node or edge i"
        folder = os.path.commonpath(table.files)
        actual = shortened([os.path.relpath(file, folder) for file in table.files])
        hint = "give the numbers leading zeros (part-02, part-10); of nodes, --id-column says whose rows are whose"
        raise CohortError(str(table.path), expected, actual, hint)


def demand_order(
    table: TableFile, others: Sequence[int], options: TextOptions, ids: np.ndarray | None = None, first: int = 0
) -> None:
    """Raises CohortError if a column of a table of nodes that is not chosen has ids in another order than the rows.

    Args:
        ids: of the nodes, where they are known.
        first: the number of the node of the first row.
    """
    option = "id" if options.in_yaml else "id-column"

    def cure(name: str) -> str:
        if first:
            return f"{options.says(option, NONE)}: row i is the new node {first} + i, whatever its {name}"
        hint = f"{options.says(option, name)}: the rows are those of the nodes with these ids"
        return f"{hint}; {options.says(option, NONE)}: row i is node i; or sort the table by {name}"

    demand_no_ids(table, others, "node", cure, ids, first)
