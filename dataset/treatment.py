"""What an import did to the edges and features of its source: import.json, by which more can be appended alike."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from cohort_gnn.dataset.structured import read_structured

FILE = "import.json"


class Treatment(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The content of import.json: options of `cohort dataset import` as they were in effect.

    Attributes:
        reverse: each edge also came in the other direction; of several types, in relations of their own.
        dedupe: equal edges once.
        time_unit: of times that were timestamps or dates, such as "s"; None: integers.
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


def write_treatment(folder: Path, treatment: Treatment) -> None:
    """Writes import.json."""
    (folder / FILE).write_bytes(msgspec.json.format(msgspec.json.encode(treatment), indent=1) + b"\n")


def read_treatment(folder: Path) -> Treatment | None:
    """What import.json of a data set says; None: there is none, as in data sets that no import wrote.

    Raises:
        CohortError: the file is damaged.
    """
    if not (folder / FILE).exists():
        return None
    hint = "import the data set again"
    return read_structured(folder / FILE, "JSON", Treatment, "what an import did to its source", hint)
