"""Writes a frame as its users would, by pandas, polars, DuckDB or pyarrow."""

from __future__ import annotations

import bz2
import csv
import gzip
import lzma
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
from frames import SEPARATORS, Column, Frame

PARTS = 0.15  # of the tables are written in several files
PACK: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": lambda text: bytes(pa.compress(text, "zstd")),
}


@dataclass(frozen=True)
class File:
    """What was written, and how.

    Attributes:
        path: a file, or a folder of parts.
        told: the call, for messages.
        separator, header: of a CSV, as the options of an import say them.
    """

    path: Path
    told: str
    separator: str = ","
    header: bool = True
    is_csv: bool = False

    def names(self, frame: Frame, columns: Sequence[Column]) -> list[str]:
        """What an import calls some columns of the frame: by number, where the file has no names."""
        first = 0 if frame.index is None else 1
        return [c.name if self.header else str(first + frame.names.index(c.name)) for c in columns]


def write(frame: Frame, stem: Path, draw: random.Random, plain: bool) -> File:
    """Writes the frame beside others; a plain one as a table with names, separated by commas."""
    tool = draw.choice(("pandas",) if frame.index is not None else ("pandas", "polars", "duckdb", "pyarrow"))
    is_parquet = draw.random() < 0.35 or any(pa.types.is_nested(column.type) for column in frame.columns)
    frame = frame if is_parquet and tool in ("duckdb", "pyarrow") else frame.with_texts_of_uuids()
    options = _Csv(",", True, "") if plain or is_parquet else _Csv.drawn(draw)
    is_arrow = is_parquet and tool in ARROW and draw.random() < 0.3
    suffix, write_csv = ".parquet" if is_parquet else f".csv{options.packed}", _packed(CSV[tool])
    suffix, write_columns = (draw.choice((".arrow", ".feather")), ARROW[tool]) if is_arrow else (suffix, PARQUET[tool])
    written = File(stem, "", options.separator, options.header, not is_parquet)
    if draw.random() >= PARTS or len(frame) < 2:
        path = stem.with_suffix(suffix)
        call = write_columns(frame, path, draw) if is_parquet else write_csv(frame, path, draw, options)
        return replace(written, path=path, told=f"{tool}: {call}")
    folder = stem.with_name(f"{stem.name}.parts")
    folder.mkdir()
    cuts = sorted(draw.choices(range(1, len(frame)), k=draw.choice((1, 2, 5))))
    pattern = draw.choice(("part-{:05}", "data_{}", "{:08}-a1b2c3"))
    calls = []
    for number, (begin, end) in enumerate(zip([0, *cuts], [*cuts, len(frame)], strict=True)):
        path, rows = folder / (pattern.format(number) + suffix), frame.rows(begin, end)
        rows = rows.shuffled(draw) if number and options.header and draw.random() < 0.5 else rows
        calls.append(write_columns(rows, path, draw) if is_parquet else write_csv(rows, path, draw, options))
    if draw.random() < 0.3:
        (folder / "_SUCCESS").touch()
    return replace(written, path=folder, told=f"{tool}, {len(calls)} parts of {cuts}: {calls[0]}")


@dataclass(frozen=True)
class _Csv:
    separator: str
    header: bool
    null: str
    quote_all: bool = False
    decimal_comma: bool = False
    windows: bool = False
    bom: bool = False
    packed: str = ""

    @staticmethod
    def drawn(draw: random.Random) -> _Csv:
        separator = draw.choice(SEPARATORS)
        return _Csv(
            separator=separator,
            header=draw.random() < 0.85,
            null=draw.choice(("", "", "", "NA", "NULL", "nan")),
            quote_all=draw.random() < 0.15,
            decimal_comma=separator == ";" and draw.random() < 0.4,
            windows=draw.random() < 0.1,
            bom=draw.random() < 0.1,
            packed=draw.choice(("", *PACK)) if draw.random() < 0.25 else "",
        )


def _packed(write_csv: Callable[..., str]) -> Callable[..., str]:
    """Writes a CSV and compresses it, as one stream or as two, which some programs append to each other."""

    def write_and_pack(frame: Frame, path: Path, draw: random.Random, options: _Csv) -> str:
        if not options.packed:
            return write_csv(frame, path, draw, options)
        plain = path.with_suffix("")
        call = write_csv(frame, plain, draw, options)
        text = plain.read_bytes()
        cut = draw.randint(0, len(text)) if draw.random() < 0.2 else 0
        pack = PACK[options.packed]
        path.write_bytes((pack(text[:cut]) if cut else b"") + pack(text[cut:]))
        plain.unlink()
        return f"{call}, {options.packed} of {2 if cut else 1}"

    return write_and_pack


def to_pandas(frame: Frame, draw: random.Random) -> pd.DataFrame:
    """With NumPy's types, pandas' nullable ones or Arrow's, but never with integers that float64 rounds."""
    table = frame.table()
    exact = all(abs(value) < 2**53 for column in frame.columns if column.has_nulls for value in _integers(column))
    kind = draw.choice(("numpy", "nullable", "arrow") if exact else ("nullable", "arrow"))
    if kind == "arrow":
        out = table.to_pandas(types_mapper=pd.ArrowDtype)
    else:
        out = table.to_pandas(integer_object_nulls=kind == "nullable")
        if kind == "nullable":
            out = out.astype({c.name: _nullable(c.type) for c in frame.columns if c.has_nulls and _nullable(c.type)})
    if frame.index is not None:
        steps = set(np.diff(frame.index).tolist())
        out.index = frame.index
        if len(steps) == 1 and 0 not in steps:  # what a slice or a filter of pandas 3 leaves
            out.index = pd.RangeIndex(frame.index[0], frame.index[-1] + min(steps), min(steps))
    return out


def _integers(column) -> list[int]:
    return [value for value in column.values if isinstance(value, int)]


def _nullable(type_: pa.DataType) -> str:
    return {"int64": "Int64", "int32": "Int32", "int8": "Int8", "uint64": "UInt64", "bool": "boolean"}.get(
        str(type_), ""
    )


# --- CSV: each returns what it called ---------------------------------------------------------------------------------


def _pandas_csv(frame: Frame, path: Path, draw: random.Random, options: _Csv) -> str:
    given: dict[str, Any] = {
        "index": frame.index is not None,
        "sep": options.separator,
        "header": options.header,
        "na_rep": options.null,
        "decimal": "," if options.decimal_comma else ".",
        "quoting": csv.QUOTE_ALL if options.quote_all else csv.QUOTE_MINIMAL,
        "lineterminator": "\r\n" if options.windows else "\n",
        "encoding": "utf-8-sig" if options.bom else "utf-8",
    }
    to_pandas(frame, draw).to_csv(path, **given)
    return f"to_csv({given})"


def _polars_csv(frame: Frame, path: Path, draw: random.Random, options: _Csv) -> str:
    given: dict[str, Any] = {
        "separator": options.separator,
        "include_header": options.header,
        "null_value": options.null,
        "decimal_comma": options.decimal_comma,
        "quote_style": "always" if options.quote_all else draw.choice(("necessary", "non_numeric")),
        "line_terminator": "\r\n" if options.windows else "\n",
        "include_bom": options.bom,
    }
    pl.from_arrow(frame.table()).write_csv(path, **given)
    return f"write_csv({given})"


def _duckdb_csv(frame: Frame, path: Path, draw: random.Random, options: _Csv) -> str:
    given: dict[str, Any] = {"sep": options.separator, "header": options.header, "na_rep": options.null}
    if options.quote_all:
        given["quoting"] = csv.QUOTE_ALL
    duckdb.from_arrow(frame.table()).write_csv(str(path), **given)
    return f"write_csv({given})"


def _pyarrow_csv(frame: Frame, path: Path, draw: random.Random, options: _Csv) -> str:
    plain_texts = not any(pa.types.is_string(c.type) or pa.types.is_large_string(c.type) for c in frame.columns)
    styles = ("needed", "all_valid", "none") if plain_texts else ("needed", "all_valid")
    given: dict[str, Any] = {
        "include_header": options.header,
        "delimiter": options.separator,
        "quoting_style": "all_valid" if options.quote_all else draw.choice(styles),
    }
    pyarrow.csv.write_csv(frame.table(), path, pyarrow.csv.WriteOptions(**given))
    return f"write_csv({given})"


# --- Parquet ----------------------------------------------------------------------------------------------------------


def _few_rows(table: pa.Table, least: int) -> int:
    """Of a row group: a large file has 200 of them, not thousands, which take seconds to read."""
    return max(least, len(table) // 200)


def _pandas_parquet(frame: Frame, path: Path, draw: random.Random) -> str:
    given = {} if frame.index is not None else {"index": draw.choice((None, False))}
    to_pandas(frame, draw).to_parquet(path, **given)
    return f"to_parquet({given})"


def _polars_parquet(frame: Frame, path: Path, draw: random.Random) -> str:
    table, compression = frame.table(), draw.choice(("zstd", "snappy", "uncompressed"))
    given = {"compression": compression, "row_group_size": draw.choice((None, _few_rows(table, 5)))}
    pl.from_arrow(table).write_parquet(path, **given)
    return f"write_parquet({given})"


def _duckdb_parquet(frame: Frame, path: Path, draw: random.Random) -> str:
    duckdb.from_arrow(frame.table()).write_parquet(str(path))
    return "write_parquet()"


def _pyarrow_parquet(frame: Frame, path: Path, draw: random.Random) -> str:
    table = frame.table()
    given = {"row_group_size": draw.choice((None, _few_rows(table, 7))), "version": draw.choice(("1.0", "2.6"))}
    texts = [i for i, c in enumerate(frame.columns) if pa.types.is_string(c.type)]
    if texts and draw.random() < 0.3:  # a categorical column
        i = draw.choice(texts)
        table = table.set_column(i, table.column_names[i], table.column(i).dictionary_encode())
    pq.write_table(table, path, **given)
    return f"write_table({given})"


def _polars_arrow(frame: Frame, path: Path, draw: random.Random) -> str:
    given: dict[str, Any] = {"compression": draw.choice(("zstd", "lz4", "uncompressed"))}
    pl.from_arrow(frame.table()).write_ipc(path, **given)
    return f"write_ipc({given})"


def _pyarrow_arrow(frame: Frame, path: Path, draw: random.Random) -> str:
    given = {"compression": draw.choice(("zstd", "lz4", "uncompressed")), "chunksize": draw.choice((None, 7))}
    pyarrow.feather.write_feather(frame.table(), path, **given)
    return f"write_feather({given})"


CSV: dict[str, Callable[[Frame, Path, random.Random, _Csv], str]] = {
    "pandas": _pandas_csv,
    "polars": _polars_csv,
    "duckdb": _duckdb_csv,
    "pyarrow": _pyarrow_csv,
}
PARQUET: dict[str, Callable[[Frame, Path, random.Random], str]] = {
    "pandas": _pandas_parquet,
    "polars": _polars_parquet,
    "duckdb": _duckdb_parquet,
    "pyarrow": _pyarrow_parquet,
}
ARROW: dict[str, Callable[[Frame, Path, random.Random], str]] = {"polars": _polars_arrow, "pyarrow": _pyarrow_arrow}
