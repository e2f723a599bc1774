"""Numbers in text: CSV and its relatives, plain or compressed by gzip, parsed a block at a time by the C++ library."""

from __future__ import annotations

import contextlib
import gzip
import itertools
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from cohort.base.errors import CohortError
from cohort.dataset import _native
from cohort.dataset.arrays import NUMBERS_HINT

COMMENTS = "#%"
BOM = b"\xef\xbb\xbf"  # what some programs put before UTF-8
SEPARATORS = {"comma": ",", "tab": "\t", "semicolon": ";", "space": " ", "bar": "|"}
LONGEST_LINE = 64 << 20
NUMBER = re.compile(r"([+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|[+-]?nan|[+-]?inf)?", re.IGNORECASE)
PARSERS = {np.int64: _native.CsvIntegers, np.float32: _native.CsvFloats, np.float64: _native.CsvDoubles}


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


class TextFile:
    """A text of numbers; its first lines say how it is made.

    Attributes:
        names: of the columns, or None.
        num_fields: of the first row.
        titles: names, or "column 0" and so on.
    """

    def __init__(self, path: str | Path, options: TextOptions = TextOptions()):
        self.path = Path(path)
        number, line = self._first_line()
        self.separator = options.separator or _separator_of(line)
        fields = split_fields(line, self.separator)
        judged = [fields[i] for i in options.judged if i < len(fields)] if options.judged else fields
        has_header = options.header == "yes" or (options.header == "auto" and not all(map(_is_number, judged)))
        self.names = fields if has_header and line else None
        self.num_fields = len(fields) if line else 0
        self.titles = self.names or [f"column {i}" for i in range(self.num_fields)]
        self._lines_before = number + 1 if self.names else number

    def column(self, wanted: str) -> int:
        """The place of a column that is given by name or number."""
        if self.names and wanted in self.names:
            return self.names.index(wanted)
        if wanted.isdecimal() and int(wanted) < self.num_fields:
            return int(wanted)
        found = ", ".join(self.names) if self.names else f"{self.num_fields} columns without names"
        raise CohortError(str(self.path), f"a column {wanted}", found, "--columns names them, or numbers them from 0")

    def blocks(
        self, dtype: type, columns: Sequence[int], block_bytes: int, only_these: bool = False
    ) -> Iterator[tuple[np.ndarray, float]]:
        """Rows [n, columns] of int64, float32 or float64, and how much of the file is read, in [0, 1]."""
        parser = PARSERS[dtype](
            place=str(self.path),
            separator=self.separator,
            comments=COMMENTS,
            columns=list(columns),
            only_these=only_these,
            lines_before=self._lines_before,
        )
        size = max(1, self.path.stat().st_size)
        with open_text(self.path) as (file, position):
            for _ in range(self._lines_before):
                file.readline(LONGEST_LINE)
            while True:
                block = self._read(file, block_bytes)
                try:
                    rows = parser.feed(block, not block)
                except CohortError as error:
                    if error.found.startswith('"') and self._begins_with_text(columns):
                        raise CohortError(error.place, error.expected, error.found, NUMBERS_HINT) from error
                    raise
                yield rows, min(1.0, position() / size)
                if not block:
                    return

    def read(self, dtype: type, columns: Sequence[int] | None = None) -> np.ndarray:
        """All rows [n, columns]; without `columns` all of them."""
        chosen = range(self.num_fields) if columns is None else columns
        if not chosen:
            return np.empty((0, 0), dtype)
        blocks = [rows for rows, _ in self.blocks(dtype, chosen, 1 << 24, only_these=columns is None)]
        return np.concatenate(blocks)

    def _first_line(self) -> tuple[int, str]:
        """The number from 0 of the first line that is no comment, and its text; "" when there is none."""
        number = -1
        for number, text in self._lines():
            if text.startswith("%%MatrixMarket"):
                hint = "scipy.io.mmread reads it: cohort.from_tensors() writes a data set of its row and col"
                raise CohortError(str(self.path), "rows of numbers", "a MatrixMarket file", hint)
            if text and text[0] not in COMMENTS:
                return number, text
        return number + 1, ""

    def _begins_with_text(self, columns: Sequence[int]) -> bool:
        """Whether each of the first two rows has text in one of the columns: then these hold names, no numbers."""
        rows = (text for number, text in self._lines() if number >= self._lines_before)
        rows = (split_fields(text, self.separator) for text in rows if text and text[0] not in COMMENTS)
        return all(
            not all(_is_number(fields[i]) for i in columns if i < len(fields)) for fields in itertools.islice(rows, 2)
        )

    def _lines(self) -> Iterator[tuple[int, str]]:
        """The lines, each with its number from 0."""
        with open_text(self.path) as (file, _):
            for number in itertools.count():
                if not (line := self._read_line(file)):
                    return
                yield number, line.decode("utf-8", "replace").strip()

    def _read_line(self, file: BinaryIO) -> bytes:
        return self._guarded(lambda: file.readline(LONGEST_LINE))

    def _read(self, file: BinaryIO, count: int) -> bytes:
        return self._guarded(lambda: file.read(count))

    def _guarded(self, read) -> bytes:
        try:
            return read()
        except (OSError, EOFError, zlib.error) as error:
            raise CohortError(str(self.path), "a whole text file", str(error), "copy or download it again") from error


@contextlib.contextmanager
def open_text(path: Path) -> Iterator[tuple[BinaryIO, object]]:
    """The bytes of a text, and a function that says how far in the file on disk they have come."""
    try:
        raw = open(path, "rb")
    except OSError as error:
        raise CohortError(str(path), "a readable file", error.strerror or str(error)) from error
    with raw, gzip.GzipFile(fileobj=raw) if path.suffix == ".gz" else contextlib.nullcontext(raw) as file:
        try:
            if file.read(len(BOM)) != BOM:
                file.seek(0)
        except (OSError, EOFError, zlib.error) as error:
            raise CohortError(str(path), "a whole text file", str(error), "copy or download it again") from error
        yield file, raw.tell


def choose_columns(place: str, names: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """Where columns are that are given by name, by number from 0, or as FIRST:LAST (both among them), in that order.

    Raises:
        CohortError: for one that there is not, or that is given twice.
    """

    def find(column: str) -> int:
        if column in names:
            return names.index(column)
        if column.isdecimal() and int(column) < len(names):
            return int(column)
        found = shortened(names)
        raise CohortError(place, f"a column {column}", found, "columns have names, or numbers from 0; FIRST:LAST")

    chosen: list[int] = []
    for part in wanted:
        ends = [part] if part in names else part.split(":", 1)
        first, last = find(ends[0]), find(ends[-1])
        if first > last or set(chosen) & set(range(first, last + 1)):
            raise CohortError(place, "each column once, FIRST:LAST in their order", ",".join(wanted))
        chosen += range(first, last + 1)
    return chosen


def options_for(wanted: Sequence[str] | None) -> TextOptions:
    """The wanted columns alone, as `choose_columns` takes them, say whether names come first: others may be text."""
    ends = [end for part in wanted or () for end in part.split(":")]
    if not all(end.isdecimal() for end in ends):
        return TextOptions(header="yes")
    return TextOptions(judged=[int(end) for end in ends] or None)


def spans(names: Sequence[str], without: Sequence[str]) -> str:
    """The other columns, as `choose_columns` takes them: neighbours as FIRST:LAST."""
    runs = (list(run) for fits, run in itertools.groupby(names, key=lambda name: name not in without) if fits)
    return ",".join(run[0] + (f":{run[-1]}" if len(run) > 1 else "") for run in runs)


def shortened(names: Sequence[str]) -> str:
    """Names in a row; of many the first two and the last."""
    return ", ".join(names if len(names) <= 6 else [*names[:2], "...", names[-1]])


def split_fields(line: str, separator: str) -> list[str]:
    parts = line.split() if separator == " " else line.split(separator)
    return [part.strip().strip('"') for part in parts]


def _separator_of(line: str) -> str:
    for candidate in ("\t", ",", ";", "|"):
        if candidate in line:
            return candidate
    return " "


def _is_number(text: str) -> bool:
    return NUMBER.fullmatch(text) is not None
