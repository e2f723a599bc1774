"""run.json of a run, as it is read back."""

import json
from pathlib import Path
from typing import Any

from cohort_gnn.base.errors import CohortError, not_a_run
from cohort_gnn.base.files import read_regular
from cohort_gnn.base.structures import line_of_json
from cohort_gnn.spec import files
from cohort_gnn.spec.run import with_current_names

HINT = "pass the folder that was its --out"


def read_run_json(folder: Path, *members: str, expected: str = "the run.json of cohort train") -> dict[str, Any]:
    """A run's run.json, in which these members are objects; its options have the names of this version.

    Raises:
        CohortError: the folder is no run's, or the file is damaged.
    """
    path = folder / files.RUN
    text = read_regular(path, expected, HINT)
    if text is None:
        raise not_a_run(folder)
    try:
        run = json.loads(text)
    except (ValueError, RecursionError) as error:
        line, actual = line_of_json(text)
        raise CohortError(f"{path}: {line}".removesuffix(": "), expected, actual, HINT) from error
    missing = [name for name in members if not isinstance(run, dict) or not isinstance(run.get(name), dict)]
    if missing:
        actual = f"no {' and no '.join(missing)} in it: the file of another command or version"
        raise CohortError(str(path), expected, actual, HINT)
    if isinstance(run, dict) and isinstance(run.get("trainer"), dict):
        run["trainer"] = with_current_names(run["trainer"])
    return run
