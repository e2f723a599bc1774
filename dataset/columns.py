"""What the feature columns of a data set were in its tables, and the names of its classes: columns.json."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import msgspec

from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.files import read_regular
from cohort_gnn.base.structures import misfit
from cohort_gnn.spec.graph import EdgeType

FILE = "columns.json"
PARTS = ("year", "month", "day", "weekday", "hour", "minute", "second")  # of a timestamp
MOST_CODES = 1 << 24  # that float32 holds
AS_BEFORE_HINT = "import its tables with --columns-from and the data set of the run"
KEYS_HINT = "dataset/FORMAT.md lists the keys of a column, under graph.yaml"

Kind = Literal["number", "category", "code", "time"]


class Column(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A column of a table, or several that are treated alike, and how features are made of it.

    Attributes:
        column: name, number from 0, or FIRST:LAST.
        kind: "number" (also bool, and lists of one length); "category" (texts, integers or bools: one feature for each
            text of the training rows, 0 or 1, after one for all others); "code" (one feature: the number of the
            category from 1, and 0 for all others); "time" (a feature for each of ``parts``).
        nulls: "refuse"; of numbers "zero" or "mean" (of the training rows), with one more feature that is 1 where the
            value is missing; of categories and codes "unknown": the category of texts that no training row has.
        nan: what NaN is among numbers: "refuse", or "null".
        standardize: of numbers and parts of times, subtract the mean and divide by the standard deviation of the
            training rows; nulls do not count.
        parts: of a timestamp: year, month, day, weekday (0: Monday), hour, minute, second.
        zone: of timestamps that are instants: the time zone whose clocks show the parts, such as Europe/Berlin.
        at_most: categories that a column may have.
    """

    column: str
    kind: Kind = "number"
    nulls: Literal["refuse", "zero", "mean", "unknown"] = "refuse"
    nan: Literal["refuse", "null"] = "refuse"
    standardize: bool = False
    parts: list[str] = []
    zone: str | None = None
    at_most: int = 256

    def demand_sound(self, place: str) -> None:
        """Raises CohortError for keys that do not go together."""
        texts, numbers = self.kind in ("category", "code"), self.kind == "number"
        for key, fits, expected in (
            ("nulls", self.nulls == "refuse" or texts == (self.nulls == "unknown") and self.kind != "time",
             "refuse or unknown" if texts else "refuse, zero or mean" if numbers else "refuse"),
            ("nan", numbers or self.nan == "refuse", "nothing, but for numbers"),
            ("nan", self.nan == "refuse" or self.nulls != "refuse", "nulls: zero or mean beside nan: null"),
            ("standardize", not texts or not self.standardize, "nothing, but for numbers and times"),
            ("parts", bool(self.parts) == (self.kind == "time"), "of a time, at least one; of others none"),
            ("parts", set(self.parts) <= set(PARTS) and len(set(self.parts)) == len(self.parts),
             f"each once of {', '.join(PARTS)}"),
            ("zone", self.kind == "time" or self.zone is None, "nothing, but for times"),
            ("at_most", 1 <= self.at_most <= MOST_CODES, f"an integer from 1 to {MOST_CODES:,}"),
        ):  # fmt: skip
            if not fits:
                raise CohortError(f"{place}.{key}", expected, str(getattr(self, key)), KEYS_HINT)


class FittedColumn(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A column, and what its encoding has from the training rows.

    Attributes:
        column: name in the table.
        how: as it was declared.
        names: of the features that are made of it.
        mean, deviation: of each number of a value, where it is standardized or its nulls are filled by the mean.
        vocabulary: the texts of the training rows, ascending.
    """

    column: str
    how: Column
    names: list[str]
    mean: list[float] | None = None
    deviation: list[float] | None = None
    vocabulary: list[str] | None = None


class RelationColumns(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The feature columns of a relation's edges."""

    type: EdgeType
    columns: list[FittedColumn]


class Columns(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """The content of columns.json.

    Attributes:
        nodes: by node type.
        plain: the names of columns that are features as they are, by node type, or by "source.name.target" of edges.
        classes: the name of each class, or of each label; empty where labels are numbers.
    """

    format: Literal["cohort-columns"] = "cohort-columns"
    version: Literal[1] = 1
    nodes: dict[str, list[FittedColumn]] = {}
    edges: list[RelationColumns] = []
    plain: dict[str, list[str]] = {}
    classes: list[str] = []


def write_columns(folder: Path, columns: Columns) -> None:
    """Writes columns.json, if there is something to say; one that is there goes."""
    (folder / FILE).unlink(missing_ok=True)
    if columns != Columns():
        text = {"format": columns.format, "version": columns.version} | msgspec.to_builtins(columns)
        (folder / FILE).write_bytes(msgspec.json.format(msgspec.json.encode(text), indent=1) + b"\n")


def first_difference(before: Columns, after: Columns) -> str | None:
    """The first that a model of `before` takes for something else in `after`: "features", "features of edges" or
    "classes"; names of classes and of plain columns need not be known of both. None: nothing."""
    others = [name for name in before.plain if after.plain.get(name, before.plain[name]) != before.plain[name]]
    if before.nodes != after.nodes or any("." not in name for name in others):
        return "features"
    if before.edges != after.edges or others:
        return "features of edges"
    return "classes" if after.classes and before.classes != after.classes else None


def read_columns(folder: str | os.PathLike) -> Columns:
    """What columns.json of a data set says; nothing where there is none.

    Raises:
        CohortError: the file is damaged.

    Example:
        >>> read_columns("data/payments").classes
        ['no', 'yes']
    """
    path, hint = Path(folder) / FILE, "import the data set again"
    text = read_regular(path, "the columns of a data set", hint)
    if text is None:
        return Columns()
    try:
        return msgspec.json.decode(text, type=Columns)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        member, expected, actual = misfit(error)
        raise CohortError(f"{path}: {member}".removesuffix(": "), expected or "JSON", actual, hint) from None
