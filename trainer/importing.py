"""Names of the user's own classes."""

import importlib
from typing import Any

from cohort_gnn.base.errors import CohortError


def imported(place: str, name: str) -> Any:
    """What "package.module:Name" names; modules of the current folder are found.

    Raises:
        CohortError: there is none.
    """
    module, _, attribute = name.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        hint = "modules are looked for in the current folder and in this Python's packages"
        raise CohortError(f"{place} {name}", "package.module:Class", str(error), hint) from error
