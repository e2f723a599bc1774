"""Numbers in text: CSV and its relatives, plain or compressed by gzip, parsed a block at a time by Arrow."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import gzip
import itertools
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.units import format_bytes
from cohort_gnn.dataset.arrays import IDS_HINT, NUMBERS_HINT, RANGE_HINT
from cohort_gnn.dataset.layouts.table import Table

BOM = b"\xef\xbb\xbf"  # what some programs put before UTF-8
SEPARATORS = {"comma": ",", "tab": "\t", "semicolon": ";", "space": " ", "bar": "|"}
LONGEST_LINE = 64 << 20
PARSED_AT_ONCE = 1 << 20  # bytes, by one thread
NO_ROW = re.compile(rb"\n(?:[#%][^\n]*|[ \r]+(?=\n))")  # a comment, or blanks
BLANKS = bytes.maketrans(b"\t\r", b"  ")
NUMBER = re.compile(r"([+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|[+-]?nan|[+-]?inf(inity)?)?", re.IGNORECASE)
INTEGER = re.compile(r"-?\d+")
LINES_HINT = "--separator, --columns and --header describe the format of the lines"
WHOLE_HINT = "write ids without a fraction: 3, not 3.0; --columns names the columns of ids"


@dataclass(frozen=True)
class TextOptions:
    """How the lines of a text are made.

    Attributes:
        separator: one character; " " stands for any number of blanks and tabs; None: as the first line looks.
        header: whether the first line has names: "yes", "no", or "auto": when a field of it that counts is no number.
        columns: names or numbers from 0 of the columns wanted; a name needs a header.
        judged: numbers of the fields that count for "auto"; None: all.
    """

    separator: str | None = None
    header: str = "auto"
    columns: Sequence[str] | None = None
    judged: Sequence[int] | None = None

    def judged_by(self, wanted: Sequence[str] | None, default: Sequence[int] | None = None) -> TextOptions:
        """The wanted columns alone, or these by default, say whether names come first: others may be text."""
        ends = [end for part in wanted or () for end in part.split(":")]
        if self.header == "auto" and not all(end.isdecimal() for end in ends):
            return dataclasses.replace(self, header="yes")
        return dataclasses.replace(self, judged=[int(end) for end in ends if end.isdecimal()] or default)


class TextFile(Table):
    """A text of numbers; its first lines say how it is made.

    Attributes:
        separator: between fields; a blank stands for any number of blanks.
        lines_before: the first row.
    """

    def __init__(self, path: str | Path, options: TextOptions = TextOptions()):
        self.path = Path(path)
        head = list(itertools.islice(self._rows_of_text(), 2))
        number, line = head[0] if head else (0, "")
        self.separator = options.separator or _separator_of(line)
        fields = split_fields(line, self.separator) if line else []
        judged = [fields[i] for i in options.judged if i < len(fields)] if options.judged else fields
        has_names = options.header == "yes" or (options.header == "auto" and not all(map(_is_number, judged)))
        self.names = fields if has_names else []
        self.titles = self.names or [f"column {i}" for i in range(len(fields))]
        self.lines_before = number + 1 if self.names else number
        row = head[-1][1] if self.names else line
        self._width = len(split_fields(row, self.separator)) if row else 0

    def blocks(
        self, columns: Sequence[int] | None, block_bytes: int, dtype: Any = None
    ) -> Iterator[tuple[np.ndarray, float]]:
        if columns is None:
            parser = _Parser(self, range(len(self.titles)), len(self.titles), dtype or np.float64)
        else:
            parser = _Parser(self, columns, self._width, dtype or np.float64)
        size, lines, rest = max(1, self.path.stat().st_size), self.lines_before, b""
        with self._open() as (file, position):
            for _ in range(lines):
                file.readline(LONGEST_LINE)
            while block := self._guarded(lambda: file.read(block_bytes)):
                text, line_end, rest = (rest + block).rpartition(b"\n")
                if len(rest) > LONGEST_LINE:
                    found, place = f"one of {format_bytes(len(rest))}", f"{self.path}: line {lines + 1}"
                    raise CohortError(place, "lines of numbers", found, "is it a text file?")
                yield parser.rows(text + line_end, lines), min(1.0, position() / size)
                lines += text.count(b"\n") + len(line_end)
            yield parser.rows(rest + b"\n", lines), 1.0

    def names_instead_of_numbers(self, fits: Callable[[list[str]], bool]) -> bool:
        """Whether each of the first two rows is none: then columns hold names."""
        rows = (text for number, text in self._rows_of_text() if number >= self.lines_before)
        return not any(fits(split_fields(text, self.separator)) for text in itertools.islice(rows, 2))

    def _rows_of_text(self) -> Iterator[tuple[int, str]]:
        """The lines that are no comments, each with its number from 0."""
        with self._open() as (file, _):
            for number in itertools.count():
                line = self._guarded(lambda: file.readline(LONGEST_LINE))
                text = line.decode("utf-8", "replace").strip()
                if text.startswith("%%MatrixMarket"):
                    hint = "scipy.io.mmread reads it: cohort.from_tensors() writes a data set of its row and col"
                    raise CohortError(str(self.path), "rows of numbers", "a MatrixMarket file", hint)
                if text and text[0] not in "#%":
                    yield number, text
                if not line:
                    return

    @contextlib.contextmanager
    def _open(self) -> Iterator[tuple[BinaryIO, Callable[[], int]]]:
        """The bytes of the text, and a function that says how far in the file on disk they have come."""
        try:
            raw = open(self.path, "rb")
        except OSError as error:
            raise CohortError(str(self.path), "a readable file", error.strerror or str(error)) from error
        with raw, gzip.GzipFile(fileobj=raw) if self.path.suffix == ".gz" else contextlib.nullcontext(raw) as file:
            if self._guarded(lambda: file.read(len(BOM))) != BOM:
                file.seek(0)
            yield file, raw.tell

    def _guarded(self, read: Callable[[], bytes]) -> bytes:
        try:
            return read()
        except (OSError, EOFError, zlib.error) as error:
            raise CohortError(str(self.path), "a whole text file", str(error), "copy or download it again") from error


class _Parser:
    """Rows [n, columns] of lines of `width` fields."""

    def __init__(self, file: TextFile, columns: Sequence[int], width: int, dtype: Any):
        import pyarrow as pa
        import pyarrow.csv

        self._file, self._columns, self._dtype = file, columns, dtype
        self._needed = max(columns, default=-1) + 1
        self._width = max(width, self._needed)
        self._pa, self._csv = pa, pyarrow.csv
        wanted = [str(i) for i in columns]
        self._convert = self._csv.ConvertOptions(
            include_columns=wanted,
            column_types=dict.fromkeys(wanted, pa.from_numpy_dtype(dtype)),
            null_values=[] if dtype is np.int64 else [""],
        )

    def rows(self, text: bytes, lines_before: int) -> np.ndarray:
        """The rows of whole lines."""
        lines = self._without_comments(text)
        if not self._columns or not lines or lines.isspace():
            return np.empty((0, len(self._columns)), self._dtype)
        at_once = PARSED_AT_ONCE
        while any(lines.find(b"\n", at, at + at_once) < 0 for at in range(0, len(lines), at_once)):
            at_once *= 2  # a line is longer
        names = [str(i) for i in range(self._width)]
        try:
            table = self._csv.read_csv(
                self._pa.BufferReader(self._in_arrows_memory(lines)),
                self._csv.ReadOptions(column_names=names, block_size=2 * at_once),
                self._csv.ParseOptions(delimiter=self._file.separator),
                self._convert,
            )
        except self._pa.ArrowCancelled as error:  # by Ctrl-C, which Python may not have noticed yet
            raise KeyboardInterrupt from error
        except (self._pa.ArrowException, ValueError) as error:
            raise self._refused(text, lines_before, str(error)) from error
        out = np.empty((table.num_rows, len(self._columns)), self._dtype)
        for i, column in enumerate(table.columns):
            out[:, i] = column.to_numpy()
        return out

    def _in_arrows_memory(self, lines: bytes) -> Any:
        """A copy that threads of Arrow, which may outlive Python, free without it."""
        held = self._pa.allocate_buffer(len(lines))
        np.frombuffer(held, np.uint8)[:] = np.frombuffer(lines, np.uint8)
        return held

    def _without_comments(self, text: bytes) -> bytes:
        """The lines that are rows, and one blank where any number of blanks separate fields."""
        text = b"\n" + text
        blanks_separate = self._file.separator == " "
        if any(mark in text for mark in ((b"#", b"%") if blanks_separate else (b"#", b"%", b" "))):
            text = NO_ROW.sub(b"", text)
        if blanks_separate:
            text = text.translate(BLANKS)
            while b"  " in text:
                text = text.replace(b"  ", b" ")
            text = text.replace(b" \n", b"\n").replace(b"\n ", b"\n")
        return text

    def _refused(self, text: bytes, lines_before: int, found: str) -> CohortError:
        """What is wrong with the first line that is no row."""
        for number, line in enumerate(text.decode("utf-8", "replace").split("\n"), lines_before + 1):
            fields = split_fields(line, self._file.separator)
            if not line.strip() or line[0] in "#%" or self._fits(fields):
                continue
            place = f"{self._file.path}: line {number}"
            if len(fields) < self._needed:
                return CohortError(place, f"at least {self._needed} fields", str(len(fields)), LINES_HINT)
            if len(fields) != self._width:
                return CohortError(place, f"{self._width} fields, as in the first line", str(len(fields)), LINES_HINT)
            bad = next(fields[i] for i in self._columns if not self._is_one(fields[i]))
            names = self._file.names_instead_of_numbers(self._fits)
            hint = LINES_HINT if not names else IDS_HINT if self._dtype is np.int64 else NUMBERS_HINT
            if names and _is_number(bad):
                hint = RANGE_HINT if INTEGER.fullmatch(bad) else WHOLE_HINT
            kind = "an integer" if self._dtype is np.int64 else "a number"
            return CohortError(place, kind, f'"{bad[:40]}"', hint)
        return CohortError(str(self._file.path), "lines of numbers", found, LINES_HINT)

    def _fits(self, fields: list[str]) -> bool:
        return len(fields) == self._width and all(self._is_one(fields[i]) for i in self._columns)

    def _is_one(self, field: str) -> bool:
        """Whether a field is a number of the type that is read."""
        if self._dtype is not np.int64:
            return _is_number(field)
        return INTEGER.fullmatch(field) is not None and -(2**63) <= int(field) < 2**63


def split_fields(line: str, separator: str) -> list[str]:
    parts = line.split() if separator == " " else line.split(separator)
    if '"' in line and separator != " ":
        with contextlib.suppress(csv.Error):
            parts = next(csv.reader([line], delimiter=separator))
    return [part.strip().strip('"') for part in parts]


def _separator_of(line: str) -> str:
    for candidate in ("\t", ",", ";", "|"):
        if candidate in line:
            return candidate
    return " "


def _is_number(text: str) -> bool:
    return NUMBER.fullmatch(text) is not None
