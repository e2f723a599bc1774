"""What an import did to the edges and features of its source: import.json, by which more can be appended alike."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from cohort_gnn.dataset.structured import read_structured
from cohort_gnn.spec.graph import EdgeType

FILE = "import.json"
OPTIONS = ("transpose", "dedupe", "self_loops", "row_normalize", "pca", "time_unit")  # called as on the command line


class Treatment(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The content of import.json: options of `cohort dataset import` as they were in effect.

    Attributes:
        reverse: each edge also came in the other direction; of several types, in relations of their own.
        dedupe: equal edges once.
        time_unit: of times that were timestamps or dates, such as "s"; None: integers.
        drops_ids: nodes had ids in the source, which were not kept (--no-ids).
        called: of a graph of one type, the edge type as the description of its tables named it; None: nothing did.
        ends: the names of the columns of sources and targets, by "source.name.target", of edges in tables.
    """

    format: Literal["cohort-import"] = "cohort-import"
    version: Literal[1] = 1
    transpose: bool
    reverse: bool
    dedupe: bool
    self_loops: str
    row_normalize: bool = False
    pca: int | None = None
    time_unit: str | None = None
    drops_ids: bool = False
    called: EdgeType | None = None
    ends: dict[str, tuple[str, str]] = {}


def other_options(before: Treatment | None, after: Treatment | None) -> list[str]:
    """The options of `cohort dataset import` that were others for one of two data sets, as far as both are known."""
    if before is None or after is None:
        return []
    options = {"reverse": "reverse-edges"} | {name: name.replace("_", "-") for name in OPTIONS}
    pairs = {option: (getattr(before, name), getattr(after, name)) for name, option in options.items()}
    if None in pairs["time-unit"]:
        del pairs["time-unit"]
    return [f"--{option}" for option, (one, other) in pairs.items() if one != other]


def write_treatment(folder: Path, treatment: Treatment) -> None:
    """Writes import.json."""
    (folder / FILE).write_bytes(msgspec.json.format(msgspec.json.encode(treatment), indent=1) + b"\n")


def copy_treatment(folder: Path, out: Path) -> None:
    """Writes import.json of a data set to another folder; one that is there goes."""
    (out / FILE).unlink(missing_ok=True)
    if (treatment := read_treatment(folder)) is not None:
        write_treatment(out, treatment)


def read_treatment(folder: Path) -> Treatment | None:
    """What import.json of a data set says; None: there is none, as in data sets that no import wrote.

    Raises:
        CohortError: the file is damaged.
    """
    if not (folder / FILE).exists():
        return None
    hint = "import the data set again"
    return read_structured(folder / FILE, "JSON", Treatment, "what an import did to its source", hint)


def numbers_text(folder: Path) -> str:
    """A warning about ids that the import did not keep; "" where it kept them, or nodes had none."""
    treatment = read_treatment(folder)
    if treatment is None or not treatment.drops_ids:
        return ""
    return f"{folder} was imported with --no-ids: nodes are called by their numbers, not by the ids of its source"
