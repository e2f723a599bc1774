"""Edge lists, feature rows, labels and splits of any of the table formats: .npy, .npz, text, Parquet, bare numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset.array_file import open_npy, open_raw
from cohort_gnn.dataset.layouts.graph import Edges, Rows, Weights
from cohort_gnn.dataset.layouts.parquet_file import ParquetFile
from cohort_gnn.dataset.layouts.table import Table
from cohort_gnn.dataset.layouts.text_file import TextFile, TextOptions

TEXT_SUFFIXES = (".csv", ".tsv", ".txt", ".edges", ".el", ".edgelist")
GUESSED = TextOptions()
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


def open_table(path: Path, options: TextOptions = GUESSED) -> Table:
    """The table in a text or a Parquet file."""
    kind = kind_of(path)
    if kind not in ("csv", "parquet"):
        raise CohortError(str(path), "a .npy, .csv or .parquet file", f"a file {path.name}")
    return TextFile(path, options) if kind == "csv" else ParquetFile(path)


def read_edges(path: Path, destinations: Path | None, options: TextOptions) -> Edges:
    """The edges of a .npy file ([2, E] or [E, 2]), of two ([E] each), of a text or of a Parquet file."""
    if destinations is not None:
        return Edges.of_arrays(f"{path}, {destinations}", open_npy(path), open_npy(destinations))
    if kind_of(path) == "npy":
        return Edges.of_pairs(open_npy(path))
    table = ParquetFile(path) if kind_of(path) == "parquet" else TextFile(path, _of_edges(options))
    if len(table.titles) < 2:
        hint = "each line has a source and a destination; --separator says what is between them"
        raise CohortError(str(path), "lines of at least two fields", f"{len(table.titles)}", hint)
    ends = table.choose(options.columns or _edge_columns(path, table.names))
    if len(ends) != 2:
        raise CohortError("--columns", "two columns", ",".join(options.columns or ()))
    return Edges.of_table(table, ends)


def read_columns(
    path: Path, what: str, option: str, columns: str | Sequence[str], options: TextOptions
) -> Weights | Rows:
    """What edges have beside their ends, in columns of an edge list in a text or a Parquet file.

    Args:
        what: "weights", "times" or "features".
        option: that names the columns, for messages.
        columns: names or numbers from 0; of weights and times, one.
    """
    if kind_of(path) not in ("csv", "parquet"):
        hint = f"pass a file of them with --edge-{what} FILE"
        raise CohortError(option, "an edge list of text or Parquet", f"a file {path.name}", hint)
    table = open_table(path, _of_edges(options))
    numbers = table.choose([columns] if isinstance(columns, str) else columns)
    return Rows.of_table(table, numbers) if what == "features" else Weights.of_table(table, numbers[0], what == "times")


def read_weights(path: Path, are_times: bool = False) -> Weights:
    """The weights or times [E] of a .npy file, or of a text or a Parquet file of one column."""
    if kind_of(path) == "npy":
        return Weights.of_array(open_npy(path), are_times)
    table = open_table(path)
    if len(table.titles) != 1:
        what, option = ("time", "--time-column") if are_times else ("weight", "--weight-column")
        hint = f"of an edge list, {option} names the column"
        raise CohortError(str(path), f"one column, with one {what} per edge", f"{len(table.titles)} columns", hint)
    return Weights.of_table(table, 0, are_times)


def _of_edges(options: TextOptions) -> TextOptions:
    """The two fields of an edge say whether names come first."""
    return options.judged_by(options.columns, default=(0, 1))


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
    """Feature rows of a .npy file, of a text or a Parquet file, or of a file of bare numbers."""
    if kind_of(path) == "npy":
        return Rows.of_file(open_npy(path))
    if kind_of(path) in ("csv", "parquet"):
        return Rows.of_table(open_table(path))
    if raw.dim is None:
        hint = "a file of bare numbers needs --feature-dim D (and --feature-dtype)"
        raise CohortError(str(path), "a .npy, .csv or .parquet file", f"a file {path.name}", hint)
    if raw.dtype not in RAW_DTYPES:
        raise CohortError("--feature-dtype", " or ".join(RAW_DTYPES), raw.dtype)
    is_bfloat16 = raw.dtype == "bfloat16"
    file = open_raw(path, "uint16" if is_bfloat16 else raw.dtype, raw.dim)
    return Rows.of_file(file, "bfloat16" if is_bfloat16 else None)


def read_array(path: Path) -> np.ndarray:
    """A small array: labels, ids or a mask; the table's columns, or the .npy file."""
    return open_npy(path).read() if kind_of(path) == "npy" else open_table(path).read()


def read_ids(path: Path) -> np.ndarray:
    """Integers, or a bool mask [V]."""
    return TextFile(path).read(dtype=np.int64) if kind_of(path) == "csv" else read_array(path)


def splits_of(paths: Sequence[Path]) -> Callable[[], list[np.ndarray]]:
    return lambda: [read_ids(path) for path in paths]
