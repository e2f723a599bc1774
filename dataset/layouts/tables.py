"""Edge lists, feature rows, labels and splits of any of the table formats: .npy, .npz, text, Parquet, bare numbers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cohort.base.errors import CohortError
from cohort.dataset.array_file import ArrayFile, open_npy, open_raw
from cohort.dataset.layouts.graph import (
    Edges,
    Rows,
    Weights,
    edges_of_files,
    edges_of_pairs,
    edges_of_parquet,
    edges_of_text,
    rows_of_file,
    weights_of_file,
    weights_of_parquet,
    weights_of_text,
)
from cohort.dataset.layouts.parquet_file import ParquetFile
from cohort.dataset.layouts.text_file import TextFile, TextOptions

TEXT_SUFFIXES = (".csv", ".tsv", ".txt", ".edges", ".el", ".edgelist")
RAW_DTYPES = ("float32", "float16", "bfloat16", "uint8")
EDGE_COLUMNS = [
    *(("src", "dst"), ("source", "target"), ("source", "destination"), ("from", "to"), ("head", "tail"), ("u", "v")),
    *(("src_id", "dst_id"), ("source_id", "target_id"), ("from_id", "to_id"), ("head_id", "tail_id")),
]


@dataclass(frozen=True)
class RawLayout:
    """What a file of bare numbers does not say itself: columns and type."""

    dim: int | None = None
    dtype: str = "float32"


def kind_of(path: Path) -> str | None:
    """ "npy", "npz", "csv", "parquet" or "pt" by the file's name, or None."""
    suffixes = [suffix for suffix in path.suffixes if suffix != ".gz"]
    last = suffixes[-1].lower() if suffixes else ""
    if last in TEXT_SUFFIXES:
        return "csv"
    return {".npy": "npy", ".npz": "npz", ".parquet": "parquet", ".pq": "parquet", ".pt": "pt"}.get(last)


def read_edges(path: Path, destinations: Path | None, options: TextOptions) -> Edges:
    """The edges of a .npy file ([2, E] or [E, 2]), of two ([E] each), of a text or of a Parquet file."""
    kind = kind_of(path)
    if destinations is not None:
        return edges_of_files(f"{path}, {destinations}", open_npy(path), open_npy(destinations))
    if kind == "npy":
        return edges_of_pairs(open_npy(path))
    if kind == "parquet":
        table = ParquetFile(path)
        return edges_of_parquet(table, table.demand(options.columns or _edge_columns(path, table.names)))
    file = TextFile(path, _of_edges(options))
    columns = options.columns or _edge_columns(path, file.names or ())
    if file.num_fields < 2:
        hint = "each line has a source and a destination; --separator says what is between them"
        raise CohortError(str(path), "lines of at least two fields", f"{file.num_fields}", hint)
    ends = file.column(columns[0]), file.column(columns[1])
    if ends[0] == ends[1]:
        raise CohortError("--columns", "two different columns", ", ".join(columns))
    return edges_of_text(file, ends)


def read_weight_column(path: Path, column: str, options: TextOptions) -> Weights:
    """The weights in a column, named or numbered from 0, of an edge list in a text or a Parquet file."""
    kind = kind_of(path)
    if kind == "parquet":
        table = ParquetFile(path)
        return weights_of_parquet(table, table.demand([column])[0])
    if kind != "csv":
        hint = "pass the weights with --edge-weights FILE"
        raise CohortError("--weight-column", "an edge list of text or Parquet", f"a file {path.name}", hint)
    file = TextFile(path, _of_edges(options))
    return weights_of_text(file, file.column(column))


def read_weights(path: Path) -> Weights:
    """The weights [E] of a .npy file, or of a text or a Parquet file of one column."""
    kind = kind_of(path)
    if kind == "npy":
        return weights_of_file(open_npy(path))
    if kind == "parquet":
        table = ParquetFile(path)
        _demand_one_column(path, len(table.names))
        return weights_of_parquet(table, table.names[0])
    if kind == "csv":
        file = TextFile(path)
        _demand_one_column(path, file.num_fields)
        return weights_of_text(file, 0)
    raise CohortError(str(path), "a .npy, .csv or .parquet file", f"a file {path.name}")


def _demand_one_column(path: Path, count: int) -> None:
    if count != 1:
        hint = "of an edge list, --weight-column names the column"
        raise CohortError(str(path), "one column, with one weight per edge", f"{count} columns", hint)


def _of_edges(options: TextOptions) -> TextOptions:
    """The two fields of an edge say whether names come first: others may be text."""
    if options.header != "auto" or options.columns is None:
        return dataclasses.replace(options, judged=(0, 1))
    if not all(column.isdecimal() for column in options.columns):
        return dataclasses.replace(options, header="yes")
    return dataclasses.replace(options, judged=[int(column) for column in options.columns])


def _edge_columns(path: Path, names: Sequence[str]) -> list[str]:
    """The columns that are named as edges' usually are; the only two, or the first of columns without names."""
    by_lower = {name.lower(): name for name in names}
    for pair in EDGE_COLUMNS:
        if set(pair) <= by_lower.keys():
            return [by_lower[name] for name in pair]
    if len(names) > 2:
        hint = "say which are the edges' source and destination: --columns A,B"
        raise CohortError(str(path), "columns named src and dst or alike", ", ".join(names), hint)
    return ["0", "1"]


def read_rows(path: Path, raw: RawLayout = RawLayout()) -> Rows:
    """Feature rows of a .npy file, or of a file of bare numbers."""
    if kind_of(path) == "npy":
        return rows_of_file(open_npy(path))
    if raw.dim is None:
        hint = "a file of bare numbers needs --feature-dim D (and --feature-dtype)"
        raise CohortError(str(path), "a .npy, .csv or .parquet file", f"a file {path.name}", hint)
    return raw_rows(path, raw)


def raw_rows(path: Path, raw: RawLayout) -> Rows:
    """Rows of a file of bare numbers."""
    if raw.dtype not in RAW_DTYPES:
        raise CohortError("--feature-dtype", " or ".join(RAW_DTYPES), raw.dtype)
    if raw.dtype != "bfloat16":
        return rows_of_file(open_raw(path, raw.dtype, raw.dim))
    file = open_raw(path, "uint16", raw.dim)
    return Rows(str(path), "bfloat16", file.rows)


def read_array(path: Path) -> np.ndarray:
    """A small array: labels, ids or a mask; the text's columns, the table's columns, or the .npy file."""
    kind = kind_of(path)
    if kind == "npy":
        return open_npy(path).read()
    if kind == "parquet":
        table = ParquetFile(path)
        parts = [np.column_stack(columns) for columns in table.batches(table.names, 1 << 20)]
        return _squeezed(np.concatenate(parts) if parts else np.empty((0, 1), np.int64))
    if kind == "csv":
        return _squeezed(TextFile(path).read(np.float64))
    raise CohortError(str(path), "a .npy, .csv or .parquet file", f"a file {path.name}")


def read_ids(path: Path) -> np.ndarray:
    """Integers, or a bool mask [V]."""
    if kind_of(path) == "csv":
        return _squeezed(TextFile(path).read(np.int64))
    return read_array(path)


def labels_of(path: Path) -> Callable[[], tuple[str, np.ndarray]]:
    return lambda: (str(path), read_array(path))


def labels_of_file(file: ArrayFile) -> Callable[[], tuple[str, np.ndarray]]:
    return lambda: (file.place, file.read())


def splits_of(paths: Sequence[Path]) -> Callable[[], list[np.ndarray]]:
    return lambda: [read_ids(path) for path in paths]


def _squeezed(array: np.ndarray) -> np.ndarray:
    if array.size == 0:
        return np.empty(0, np.int64)
    return array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array
