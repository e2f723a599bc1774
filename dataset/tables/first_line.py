"""Recognises the separator and names of columns in the first line of a text; options decide what it leaves open."""

from __future__ import annotations

import contextlib
import csv
import re
from pathlib import Path

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset.tables.compressed import PROGRAMS
from cohort_gnn.dataset.tables.text_options import SEPARATORS, TextOptions, Wanted

EDGE_LISTS = (".edges", ".el", ".edgelist")  # names of files that begin with an edge
NUMBER = re.compile(r"([+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|[+-]?nan|[+-]?inf(inity)?)", re.IGNORECASE)
NO_DECIMAL = re.compile(r"[+-]?(0x[\da-f]+|0b[01]+|0o[0-7]+|\d{1,3}(_\d{3})+(\.\d*)?)", re.IGNORECASE)  # 0x10, 1_000
NO_VALUE = ("", "na", "n/a", "#n/a", "null", "none", "-", "?")  # what a field has in the place of a value
NULL_WORDS = (*NO_VALUE, "nan", "<na>", "nil")  # texts that may be nulls


def kind_suffix(path: Path) -> str:
    """The suffix that says what is in a file, in small letters: ".csv" of edges.csv.gz."""
    suffixes = [suffix for suffix in path.suffixes if suffix.lower() not in PROGRAMS]
    return suffixes[-1].lower() if suffixes else ""


def separator_of(path: Path, line: str, options: TextOptions) -> str:
    """What separates the fields.

    Raises:
        CohortError: it may be one or the other.
    """
    bare, suffix = re.sub(r'"[^"]*"', "", line), kind_suffix(path)
    if options.separator is not None:
        if options.separator not in ("\t", " ") and "\t" in bare and options.separator not in bare:
            name = next((name for name, mark in SEPARATORS.items() if mark == options.separator), options.separator)
            cure = options.says("separator", "tab")
            raise CohortError(f"{path}: line 1", f"fields with a {name} between them", "a tab", cure)
        return options.separator
    if suffix == ".tsv":
        return "\t"
    marks = [mark for mark in ("\t", ",", ";", "|") if mark in bare]
    if len(marks) > 1:
        names = [name for name, mark in SEPARATORS.items() if mark in marks]
        cure = " or ".join(options.says("separator", name) for name in names)
        raise CohortError(f"{path}: line 1", "one kind of separator", " and ".join(names), cure)
    if marks == ["\t"] and "\t" not in bare.strip() and " " in bare.strip():
        cure = f"{options.says('separator', 'tab')} or {options.says('separator', 'space')}"
        raise CohortError(f"{path}: line 1", "one kind of separator", "blanks, and a tab at an end", cure)
    return marks[0] if marks else "," if suffix == ".csv" else " "


def fields_of(line: str, separator: str) -> list[str]:
    """The fields of a line, without blanks and quotes around them."""
    if separator == " ":
        return [field.strip('"') for field in line.split()]
    fields = line.split(separator)
    if '"' in line:
        with contextlib.suppress(csv.Error):
            fields = next(csv.reader([line], delimiter=separator), [])
    return [field.strip() for field in fields]


def has_names(
    path: Path, number: int, fields: list[str], options: TextOptions, wanted: Wanted, after_comments: bool
) -> bool:
    """Whether the first line, of this number, has the names of the columns.

    Raises:
        CohortError: it may as well be a row.
    """
    if options.header != "auto":
        return options.header == "yes"
    bounds = [end for part in wanted.columns or () for end in (part, *part.split(":", 1)) if end]
    if any(not end.isdecimal() and ":" not in end for end in bounds):
        return True
    if wanted.says_names(fields):
        return True
    judged = wanted.numbers if wanted.numbers is not None else [int(end) for end in bounds if end.isdecimal()] or None
    read = fields if judged is None else [fields[i] for i in judged if i < len(fields)]
    if not all(map(_may_be_value, read)):
        return True
    if wanted.edges and (after_comments or kind_suffix(path) in EDGE_LISTS):
        return False
    actual = f'"{", ".join(fields)[:60]}", which may be either'
    cure = f"{options.says('header', 'yes')}: it has the names of the columns; "
    cure += f"{options.says('header', 'no')}: it is a row"
    raise CohortError(f"{path}: line {number}", "names of columns, or a row", actual, cure)


def _may_be_value(field: str) -> bool:
    """Whether a field may stand where a number is read, also one that is refused there."""
    return is_number(field) or NO_DECIMAL.fullmatch(field) is not None or field.lower() in NO_VALUE


def is_number(text: str) -> bool:
    return NUMBER.fullmatch(text) is not None
