"""The full check of a data set."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset import _native


class Problem(NamedTuple):
    """A problem found by check(): the parts of a CohortError."""

    place: str
    expected: str
    found: str
    hint: str

    def __str__(self) -> str:
        return str(self.error())

    def error(self) -> CohortError:
        return CohortError(*self)


def check(path: str | os.PathLike) -> list[Problem]:
    """Checks every element of a data set's arrays; an empty list means that there is no problem. Encoded rows, which
    `cohort dataset check` also checks, are not among them: see `cohort.ibp.load`."""
    return [Problem(*problem) for problem in _native.check(os.fspath(path))]


def demand_in_range(path: str | os.PathLike, look: Callable[[], None] | None = None) -> None:
    """Looks at all that is used as an index: offsets, neighbours, labels and ids of splits.

    Args:
        look: is called about 20 times a second, and may raise what ends it.

    Raises:
        CohortError: for the first one that is out of range.
    """
    _native.demand_in_range(os.fspath(path), look)
