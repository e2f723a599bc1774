"""What is wrong with rows of a text that Arrow does not read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset.arrays import IDS_HINT, NUMBERS_HINT, RANGE_HINT
from cohort_gnn.dataset.tables import values
from cohort_gnn.dataset.tables.first_line import NO_DECIMAL, NULL_WORDS, is_number
from cohort_gnn.dataset.tables.table import ColumnKind, shortened

if TYPE_CHECKING:
    from cohort_gnn.dataset.tables.text_file import Parser, TextFile

INTEGER = re.compile(r"[+-]?[0-9]+")
DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+")
LINES_HINT = "--separator, --columns and --header describe the format of the lines"
DECIMAL_HINT = "numbers are decimal: 16, not 0x10; 1000, not 1_000; ids may be texts if id of a graph.yaml says so"
SEVERAL_HINT = "write the numbers of a field as columns, as lists in Parquet, or as an array: numpy.save('x.npy', rows)"
WHOLE_HINT = "write ids without a fraction: 3, not 3.0; --columns names the columns of ids"


def refusal(
    file: TextFile, parser: Parser, text: bytes, lines_before: int, columns: Sequence[int], kind: ColumnKind
) -> CohortError:
    """The error of the first row of a block that has another number of fields, or else of the first field that is no
    number; other columns that have such fields are named, too."""
    import pyarrow as pa

    width = max(file.width, max(columns) + 1)
    for number, line, fields in parser.lines(text):
        place = f"{file.path}: line {lines_before + number}"
        if len(fields) == width:
            continue
        hint = LINES_HINT
        if line[:1] in ("#", "%") and not file.comment:
            hint = f"{file.options.says('comment', line[0])} leaves out the lines that begin so"
        if len(fields) < max(columns) + 1:
            return CohortError(place, f"at least {max(columns) + 1} fields", str(len(fields)), hint)
        return CohortError(place, f"{width} fields, as in the first line", str(len(fields)), hint)
    try:
        rows, quoted = parser._rows(text, len(text))
        texts = parser.read(rows, quoted, "texts")
    except (pa.ArrowException, ValueError):
        for number, _, fields in parser.lines(text):
            if odd := next((fields[i] for i in columns if "\ufffd" in fields[i]), None):
                cure = f"iconv -f LATIN1 -t UTF-8 {file.path.name} > utf8-{file.path.name}"
                return CohortError(f"{file.path}: line {lines_before + number}", "text in UTF-8", f'"{odd[:40]}"', cure)
        for number, bare in enumerate(text.split(b"\n"), lines_before + 1):
            if bare.strip(b"\r") and not bare.strip(file.blanks):
                cure = f"grep -v '^[[:blank:]]*$' {file.path.name} > rows-{file.path.name}"
                return CohortError(f"{file.path}: line {number}", f"{width} fields", "blanks alone", cure)
        actual = "other bytes, or a quote that is not closed"
        return CohortError(f"{file.path}: after line {lines_before}", "lines of text in UTF-8", actual, LINES_HINT)
    bad = {column: values.first_bad(array, kind) for column, array in zip(columns, texts, strict=True)}
    rows_of = {column: row for column, row in bad.items() if row is not None}
    if not rows_of:
        return CohortError(str(file.path), "rows of numbers", "others", LINES_HINT)
    column = min(rows_of, key=lambda index: (rows_of[index], index))
    cells = texts[list(columns).index(column)]
    cell = cells[rows_of[column]].as_py()
    odd_from_the_start = rows_of[column] == 0 and (len(cells) == 1 or values.first_bad(cells.slice(1, 1), kind) == 0)
    actual = f'"{cell[:40]}"'
    others = [file.titles[index] for index in rows_of if index != column and index < len(file.titles)]
    if others:
        actual += f" in {file.titles[column]}, and the like in {shortened(others, 20)}"
    at = parser.line_of(text, rows_of[column], lines_before)
    expected = "an integer" if kind == "integers" else "a number"
    return CohortError(f"{file.path}: line {at}", expected, actual, _cure(file, cell, kind, odd_from_the_start))


def _cure(file: TextFile, cell: str, kind: ColumnKind, odd_from_the_start: bool) -> str:
    """What to do about a field; `odd_from_the_start`: its column has none that is right."""
    if cell[:1] in ("#", "%") and not file.comment:
        return f"{file.options.says('comment', cell[0])} leaves out the lines that begin so"
    if DECIMAL_COMMA.fullmatch(cell):
        return values.DECIMALS_HINT
    if len(parts := cell.split()) > 1 and all(map(is_number, parts)):
        return f"{file.options.says('separator', 'space')}, where blanks are between the fields"
    several = [part.strip() for part in re.split("[,;]", cell.strip("[]() "))]
    if kind != "integers" and len(several) > 1 and all(map(is_number, several)):
        return SEVERAL_HINT
    if NO_DECIMAL.fullmatch(cell.strip(values.BLANKS)):
        return DECIMAL_HINT
    if cell.strip().lower() in NULL_WORDS and file.options.null is None:
        return f"{file.options.says('null', cell)}, where it is a null"
    if not odd_from_the_start:
        return LINES_HINT
    if kind != "integers":
        return NUMBERS_HINT
    if is_number(cell):
        return RANGE_HINT if INTEGER.fullmatch(cell) else WHOLE_HINT
    return IDS_HINT
