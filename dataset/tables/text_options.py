"""How the lines of a text are made, where the text leaves it open, and how the user says it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass

SEPARATORS = {"comma": ",", "tab": "\t", "semicolon": ";", "space": " ", "bar": "|"}
NONE = "none"  # of --comment: no line is a comment; of --null: no text is a null; of --id-column: no column has ids


@dataclass(frozen=True)
class TextOptions:
    """What the user says of a text.

    Attributes:
        separator: one character; " " stands for any number of blanks and tabs; None: as the file's name or line says.
        header: whether the first line has names: "yes", "no", or "auto": as the first line says, if it can be read in
            one way only.
        comment: characters; a line that begins with one of them is no row; "none": each line is one; None: lines before
            the first edge that begin with # or % are none.
        null: a text that is a null, beside empty fields; "none": there is none; None: nobody said.
        table: what the options call the table, such as "features"; "" where they mean all tables.
        in_yaml: the options are keys of graph.yaml.
    """

    separator: str | None = None
    header: str = "auto"
    comment: str | None = None
    null: str | None = None
    table: str = ""
    in_yaml: bool = False

    def says(self, option: str, value: str) -> str:
        """How the user says it: "--header features=yes", or "header: yes" in graph.yaml."""
        if self.in_yaml:
            return f"{option}: {value if value.isalnum() else repr(value)}"
        return f"--{option} " + shlex.quote(f"{self.table}={value}" if self.table else value)


@dataclass(frozen=True)
class Wanted:
    """What is read of a table; its first line is judged by it.

    Attributes:
        columns: names or numbers from 0, or FIRST:LAST; None: all.
        numbers: the fields that are read as numbers; None: those of the columns.
        edges: the rows are edges between integers.
        says_names: whether fields are names of columns, by what they say.
    """

    columns: Sequence[str] | None = None
    numbers: Sequence[int] | None = None
    edges: bool = False
    says_names: Callable[[list[str]], bool] = lambda fields: False


GUESSED, ALL = TextOptions(), Wanted()
