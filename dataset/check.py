"""The full check of a data set."""

from __future__ import annotations

import os
from typing import NamedTuple

from cohort.base.errors import CohortError
from cohort.dataset import _native


class Problem(NamedTuple):
    """One thing wrong: the words of a CohortError."""

    place: str
    expected: str
    found: str
    hint: str

    def __str__(self) -> str:
        return str(self.error())

    def error(self) -> CohortError:
        return CohortError(*self)


def check(path: str | os.PathLike) -> list[Problem]:
    """Looks at every element of a data set; an empty list means that all is well."""
    return [Problem(*problem) for problem in _native.check(os.fspath(path))]
