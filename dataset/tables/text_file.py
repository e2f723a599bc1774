"""Tables in text: CSV and its relatives, plain or compressed, parsed a block at a time by Arrow."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.files import demand_regular
from cohort_gnn.base.units import format_bytes
from cohort_gnn.dataset import arrays
from cohort_gnn.dataset.tables import first_line, values
from cohort_gnn.dataset.tables.bad_rows import refusal
from cohort_gnn.dataset.tables.compressed import guarded, opened
from cohort_gnn.dataset.tables.known_files import TEXT, known_file
from cohort_gnn.dataset.tables.table import ColumnKind, TableFile
from cohort_gnn.dataset.tables.text_options import ALL, GUESSED, NONE, TextOptions, Wanted

if TYPE_CHECKING:
    import pyarrow as pa

BOM = b"\xef\xbb\xbf"  # what some programs put before UTF-8
HEAD_BYTES = 1 << 18
LINE_BYTES = 4096
LONGEST_LINE = 64 << 20
PARSED_AT_ONCE = 1 << 20  # bytes, by one thread
LINE_FEED = b"\n"
HEXADECIMAL = (b"0x", b"0X")
BACKSLASH = b'\\"'
TEXT_BEHIND = re.compile(rb'"(?:[^"]++|"")*+"\s*\S')  # the quote that closes a field
BLANKS = bytes.maketrans(b"\t\r", b"  ")
COUNTED_AT_ONCE = 1 << 24  # bytes
JODIE = "comma_separated_list_of_features"  # the last name in files of JODIE
JODIE_HINT = (
    "this last name of JODIE stands for several columns, and users and items are each numbered from 0: PyG's"
    " JODIEDataset reads it, and cohort.from_tensors takes its src, dst, t and msg"
)


class TextFile(TableFile):
    """A table in text. Lines that can be read in several ways are refused unless the options decide.

    Attributes:
        separator: between fields; a blank stands for any number of blanks.
        blanks: a line of these alone is empty.
        width: how many fields a row has.
    """

    options: TextOptions

    def __init__(self, path: str | Path, options: TextOptions = GUESSED, wanted: Wanted = ALL):
        self.path, self.options, self.said = Path(path), options, options
        demand_regular(self.path)
        self.comment = b"" if options.comment in (None, NONE) else options.comment.encode()
        start = self._start()
        self._head = self._first_bytes(start)
        before = b"#%" if options.comment is None and wanted.edges else self.comment
        begin = self._next_row(start, before)
        line = self._text(begin)
        self.separator = first_line.separator_of(self.path, line, options)
        self.blanks = b" \r\n" if self.separator == "\t" else b" \t\r\n"
        fields = first_line.fields_of(line, self.separator) if line else []
        if line and options.comment is None and line[0] in "#%":
            raise self._row_or_comment(begin, line)
        commented = begin > self._next_row(start, b"")
        has_names = bool(fields) and first_line.has_names(
            self.path, self._line(begin), fields, options, wanted, commented
        )
        self.names = fields if has_names else []
        self.titles = [name or f"column {i}" for i, name in enumerate(fields)]
        if not has_names:
            self.titles = [f"column {i}" for i in range(len(fields))]
        self.index = [0] if has_names and (fields[0] == "" or fields[0].startswith("Unnamed: ")) else []
        self.width = len(fields)
        self._begin = self._row_end(begin) if has_names else begin
        self._find_rows(start, before, has_names)
        self.lines_before = self._head.count(b"\n", 0, self._begin)
        del self._head

    def pieces(
        self, columns: Sequence[int], kind: ColumnKind, block_bytes: int
    ) -> Iterator[tuple[list[pa.Array | pa.ChunkedArray], float]]:
        parser = Parser(self, columns, kind)
        for text, end, lines, fraction in self._blocks(block_bytes):
            table = parser.parsed(text, end, lines)
            if table is not None:
                yield table, fraction

    def count(self) -> int:
        return sum(len(columns[0]) for columns, _ in self.pieces([0], "texts", COUNTED_AT_ONCE))

    # --- the first lines --------------------------------------------------------------------------------------------

    def _start(self) -> int:
        """Where the table starts in the text: a format whose first lines are none of it says where they end."""
        return 0

    def _first_bytes(self, start: int) -> bytes:
        """The first bytes, with two whole rows of the table at least, if the file has them."""
        with self._open() as (file, _):
            head = self._guarded(lambda: file.read(start + HEAD_BYTES))
            while head.count(b"\n", start) < 2 and len(head) < start + LONGEST_LINE:
                more = self._guarded(lambda: file.read(HEAD_BYTES))
                if not more:
                    break
                head += more
        if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
            hint = f"iconv -f UTF-16 -t UTF-8 {self.path.name} > utf8-{self.path.name}"
            raise CohortError(str(self.path), "a text in UTF-8", "a text in UTF-16", hint)
        known = known_file(self.path, head[start:])
        if known and known != TEXT:
            raise CohortError(str(self.path), "rows of text", *known)
        if b"\0" in head:
            raise CohortError(str(self.path), "a text in UTF-8", "bytes of 0", "is it a text file?")
        if b"\r" in head.rstrip() and b"\n" not in head:
            hint = f"tr '\\r' '\\n' < {self.path.name} > lines-{self.path.name}"
            raise CohortError(str(self.path), "lines that end with a line feed", "carriage returns alone", hint)
        return head

    def _row_end(self, begin: int) -> int:
        """Where the row that begins here ends, behind its line feed; line feeds in quotes are its own."""
        end = begin
        while (end := self._head.find(b"\n", end)) >= 0:
            end += 1
            if self._head.count(b'"', begin, end) % 2 == 0:
                return end
        return len(self._head)

    def _next_row(self, begin: int, comment: bytes, blanks: bytes = b" \t\r\n") -> int:
        """The next line that is neither empty nor a comment."""
        while begin < len(self._head):
            end = self._head.find(b"\n", begin) + 1 or len(self._head)
            line = self._head[begin:end].strip(blanks)
            if line and line[0] not in comment:
                return begin
            begin = end
        return begin

    def _find_rows(self, start: int, comment: bytes, has_names: bool) -> None:
        """Where rows begin: not with the comments before an edge; an empty line is a row of one column."""
        if has_names and comment and self.options.comment is None:
            self._demand_no_comment(self._next_row(self._begin, b"", self.blanks))
        first = self._next_row(self._begin, comment, self.blanks)
        if self.width > 1:
            self._begin = first
        elif not has_names:
            self._begin = start
        line = self._text(first, row_pattern(self.separator)) if has_names else ""
        fields = first_line.fields_of(line, self.separator) if line else []
        if fields and len(fields) != self.width:
            number, actual = self._line(first), f"{len(fields)}: {', '.join(fields)[:60]}"
            hint = f"{self.options.says('separator', 'comma')} (tab, semicolon, ...) says what is between them"
            if self.names[-1] == JODIE:
                hint = JODIE_HINT
            elif len(fields) == 2 * self.width:
                hint += f"; {values.DECIMALS_HINT}"
            elif len(fields) == self.width + 1:
                hint += "; the column of row names needs a name, too"
            raise CohortError(f"{self.path}: line {number}", f"{self.width} fields, as there are names", actual, hint)

    def _demand_no_comment(self, begin: int) -> None:
        """Refuses a line behind the names that may be an edge, or a comment before the first edge."""
        line = self._text(begin, row_pattern(self.separator))
        if line and line[0] in "#%" and len(first_line.fields_of(line, self.separator)) == self.width:
            raise self._row_or_comment(begin, line)

    def _row_or_comment(self, begin: int, line: str) -> CohortError:
        hint = f"{self.options.says('comment', line[0])}: lines that begin so are none; "
        hint += f"{self.options.says('comment', NONE)}: they are lines like the others"
        return CohortError(f"{self.path}: line {self._line(begin)}", "a row, or a comment", f'"{line[:40]}"', hint)

    def _text(self, begin: int, pattern: bytes = b"") -> str:
        """The row that begins here; `pattern`: of rows, where it is known."""
        match = re.compile(pattern).match(self._head, begin) if pattern else None
        text = self._head[begin : match.end() if match else self._row_end(begin)]
        return text.decode("utf-8", "replace").strip(" \r\n")

    def _line(self, begin: int) -> int:
        return self._head.count(b"\n", 0, begin) + 1

    # --- blocks -----------------------------------------------------------------------------------------------------

    def _blocks(self, block_bytes: int) -> Iterator[tuple[bytes, int, int, float]]:
        """Bytes, how many of them are whole rows, the lines before them, and how much of the file is read."""
        size, lines, rest = max(1, self.path.stat().st_size), self.lines_before, b""
        rows = re.compile(b"(?:%b)*+" % row_pattern(self.separator))
        with self._open() as (file, position):
            file.read(self._begin)
            while block := self._guarded(lambda: file.read(block_bytes)):
                text = rest + block if rest else block
                end = _end_of(rows, text) if b'"' in text else text.rfind(b"\n") + 1
                if len(text) - end > LONGEST_LINE:
                    actual = f"one of {format_bytes(len(text) - end)}"
                    place = f"{self.path}: line {lines + 1 + text.count(LINE_FEED, 0, end)}"
                    raise CohortError(place, "lines of numbers", actual, "is it a text file, and is each quote closed?")
                yield text, end, lines, min(1.0, position() / size)
                lines += text.count(b"\n", 0, end)
                rest = text[end:]
            if rest:
                if b'"' in rest and _end_of(rows, rest + LINE_FEED) <= len(rest):
                    place = f"{self.path}: after line {lines}"
                    hint = f"close it, or write the table again; {self.options.says('separator', 'comma')} (tab, ...)"
                    raise CohortError(place, "quotes that are closed", "one that is open at the end of the file", hint)
                yield rest, len(rest), lines, 1.0

    @contextlib.contextmanager
    def _open(self) -> Iterator[tuple[_Behind, Callable[[], int]]]:
        """The bytes of the text from its start, and a function that gives the position in the file on disk."""
        with opened(self.path) as (file, position):
            first = self._guarded(lambda: file.read(len(BOM)))
            yield _Behind(file, b"" if first == BOM else first), position

    def _guarded(self, read: Callable[[], bytes]) -> bytes:
        return guarded(self.path, read)


class _Behind:
    """A file of which the first bytes have been read."""

    def __init__(self, file: Any, first: bytes):
        self._file, self._first = file, first

    def read(self, count: int) -> bytes:
        """At most so many bytes; none at the end only."""
        first, self._first = self._first[:count], self._first[count:]
        return first + self._file.read(count - len(first)) if count > len(first) else first

    def readline(self, most: int) -> bytes:
        """The next line with its line feed, or its first bytes; the last line may have none."""
        while (end := self._first.find(b"\n") + 1) == 0 and len(self._first) < most:
            more = self._file.read(LINE_BYTES)
            if not more:
                break
            self._first += more
        end = min(end or len(self._first), most)
        line, self._first = self._first[:end], self._first[end:]
        return line


class Parser:
    """Columns of the rows of a text."""

    def __init__(self, file: TextFile, columns: Sequence[int], kind: ColumnKind):
        import pyarrow as pa
        import pyarrow.csv

        self._file, self._kind, self._pa, self._csv = file, kind, pa, pyarrow.csv
        self._columns = list(columns)
        self._null = [] if file.options.null in (None, NONE) else [file.options.null]
        self._width = max(file.width, max(columns, default=-1) + 1)
        marks = re.escape(file.comment)
        self._comment = re.compile(b"\n[%b][^\n]*(?=\n)" % marks) if marks else None
        row = row_pattern(file.separator)
        self._row_or_comment = re.compile(b"((?:(?![%b])%b)++)|[%b][^\n]*+\n?" % (marks, row, marks)) if marks else None

    def parsed(self, text: bytes, end: int, lines_before: int) -> list[pa.ChunkedArray] | None:
        """The columns of the first `end` bytes, which are whole rows; None: there are none.

        Raises:
            CohortError: for a row of another length, and for a field that is no number.
        """
        rows, quoted = self._rows(text, end)
        if not self._columns or not rows or self._width > 1 and not rows.strip(self._file.blanks):
            return None
        if quoted and self._kind == "texts" and BACKSLASH in rows:
            self._demand_doubled_quotes(text[:end], lines_before)
        try:
            columns = self._integers(rows, quoted) if self._kind == "integers" else self.read(rows, quoted, self._kind)
        except self._pa.ArrowCancelled as error:  # by Ctrl-C, which Python may not have noticed yet
            raise KeyboardInterrupt from error
        except (self._pa.ArrowException, ValueError) as error:
            raise refusal(self._file, self, text[:end], lines_before, self._columns, self._kind) from error
        if self._kind == "features":
            self._demand_exact(columns, rows, quoted, text[:end], lines_before)
        return columns

    def _demand_doubled_quotes(self, text: bytes, lines_before: int) -> None:
        """Refuses a backslash before a quote in quotes, as Spark writes it: Arrow ends the text there."""
        mark = re.escape(self._file.separator.encode())
        field = re.compile(b"(?:^|%b)(%b)" % (mark, field_pattern(mark)))
        for number, line, _ in self.lines(text):
            fields = field.findall(line.encode()) if BACKSLASH.decode() in line else []
            if odd := [fields[i] for i in self._columns if i < len(fields) and TEXT_BEHIND.match(fields[i])]:
                hint = "in Spark .option('escape', '\"') of the writer, of pandas no escapechar; or write Parquet"
                place = f"{self._file.path}: line {lines_before + number}"
                raise CohortError(place, 'quotes in quotes that are doubled: ""', odd[0].decode()[:40], hint)

    def _integers(self, rows: bytes, quoted: bool) -> list[pa.ChunkedArray]:
        """The columns of rows as int64; ArrowInvalid or ValueError: one is none. Arrow reads 0x10 as 16, and no +16."""
        if not any(begin in rows for begin in HEXADECIMAL):
            with contextlib.suppress(self._pa.ArrowInvalid):
                return self.read(rows, quoted, "integers")
        columns = [values.integers_of_texts(texts) for texts in self.read(rows, quoted, "texts")]
        whole = [column for column in columns if column is not None]
        if len(whole) < len(columns):
            raise ValueError("a text that is no integer")
        return whole

    def read(self, rows: bytes, quoted: bool, kind: ColumnKind) -> list[pa.ChunkedArray]:
        """The columns of rows, as numbers or texts."""
        pa, csv = self._pa, self._csv
        types = {"integers": pa.int64(), "texts": pa.large_string()}
        wanted = [str(i) for i in self._columns]
        convert = csv.ConvertOptions(
            include_columns=wanted,
            column_types=dict.fromkeys(wanted, types.get(kind, pa.float64())),
            null_values=["", *self._null],
            strings_can_be_null=True,
            quoted_strings_can_be_null=kind != "texts" or bool(self._null),
        )
        parse = csv.ParseOptions(
            delimiter=self._file.separator, newlines_in_values=quoted, ignore_empty_lines=self._width > 1
        )
        at_once = PARSED_AT_ONCE
        while at_once < len(rows) and any(
            rows.find(b"\n", at, at + at_once) < 0 for at in range(0, len(rows) - at_once, at_once)
        ):
            at_once *= 2  # a line is longer
        names = [str(i) for i in range(self._width)]
        # Threads of Arrow, which may outlive Python, free this memory without it.
        held = pa.allocate_buffer(len(rows))
        np.frombuffer(held, np.uint8)[:] = np.frombuffer(rows, np.uint8)
        try:
            options = csv.ReadOptions(column_names=names, block_size=2 * at_once)
            return csv.read_csv(pa.BufferReader(held), options, parse, convert).columns
        except pa.ArrowInvalid:
            if not quoted:
                raise
            options = csv.ReadOptions(column_names=names, block_size=len(rows) + 1)  # a row may have many lines
            return csv.read_csv(pa.BufferReader(held), options, parse, convert).columns

    def _rows(self, text: bytes, end: int) -> tuple[bytes, bool]:
        """The lines that are rows, one blank where any number of blanks separate fields; whether quotes are in them."""
        rows = text if end == len(text) else text[:end]
        quoted = b'"' in rows and self._file.separator != " "
        if self._comment is not None and any(bytes([mark]) in rows for mark in self._file.comment):
            rows = rows if rows.endswith(b"\n") else rows + b"\n"
            if quoted and self._row_or_comment is not None:
                rows = self._row_or_comment.sub(lambda match: match[1] or b"", rows)
            else:
                rows = self._comment.sub(b"", b"\n" + rows)[1:]
        if self._file.separator == " ":
            rows = rows.translate(BLANKS)
            while b"  " in rows:
                rows = rows.replace(b"  ", b" ")
            rows = rows.replace(b" \n", b"\n").replace(b"\n ", b"\n").removeprefix(b" ")
        return rows, quoted

    def _demand_exact(self, columns: list, rows: bytes, quoted: bool, text: bytes, lines_before: int) -> None:
        """Refuses integers that float32 would round."""
        import pyarrow.compute as pc

        extremes = (pc.min_max(column).as_py().values() for column in columns)
        if all(end is None or abs(end) < arrays.EXACT for both in extremes for end in both):
            return
        written = self.read(rows, quoted, "texts")
        for number, column, texts in zip(self._columns, columns, written, strict=True):
            numbers = column.to_numpy()
            with np.errstate(over="ignore"):  # such numbers become infinity, which is refused
                small = numbers.astype(np.float32)
            integers = pc.match_substring_regex(texts, r"^\s*[+-]?\d+\s*$").fill_null(False).to_numpy()
            for i in np.flatnonzero((np.abs(numbers) >= arrays.EXACT) & integers):
                if not np.isfinite(small[i]) or int(texts[int(i)].as_py()) != int(small[i]):
                    place = f"{self._file.path}: line {self.line_of(text, int(i), lines_before)}"
                    raise values.rounding_error(
                        f"{place}, {self._file.titles[number]}", texts[int(i)].as_py(), small[i]
                    )

    def line_of(self, text: bytes, row: int, lines_before: int) -> int:
        """The line in the file of a row of a block."""
        for number, _, _ in self.lines(text):
            if row == 0:
                return lines_before + number
            row -= 1
        return lines_before + 1

    def lines(self, text: bytes) -> Iterator[tuple[int, str, list[str]]]:
        """The rows of a block: the number of the first line of each, from 1, its text and its fields."""
        pattern, at, number = re.compile(row_pattern(self._file.separator)), 0, 1
        while at < len(text):
            match = pattern.match(text, at)
            end = match.end() if match else text.find(b"\n", at) + 1 or len(text)
            row = text[at:end]
            is_comment = self._file.comment and row[:1] and row[:1] in self._file.comment
            if not is_comment and (self._width == 1 or row.strip(self._file.blanks)):
                line = row.decode("utf-8", "replace").strip("\r\n" if self._file.separator != " " else None)
                yield number, line, first_line.fields_of(line, self._file.separator)
            number, at = number + row.count(b"\n"), end


def _end_of(rows: re.Pattern[bytes], text: bytes) -> int:
    """Where the rows at the beginning of a text end."""
    match = rows.match(text)
    return match.end() if match else 0


def row_pattern(separator: str) -> bytes:
    """A row with its line feed, as Arrow reads it."""
    if separator == " ":
        return b"[^\n]*+\n"
    mark = re.escape(separator.encode())
    field = field_pattern(mark)
    return b"%b(?:%b%b)*+\n" % (field, mark, field)


def field_pattern(mark: bytes) -> bytes:
    """A field between separators: one that begins with a quote may hold separators and lines."""
    return b'(?:"(?:[^"]++|"")*+"[^%b\n]*+|(?!")[^%b\n]*+)' % (mark, mark)
