"""run.json of a run, as it is read back."""

import json
from pathlib import Path
from typing import Any

from cohort_gnn.base.errors import CohortError, not_a_run
from cohort_gnn.spec import files


def read_run_json(folder: Path, *members: str, expected: str = "the run.json of cohort train") -> dict[str, Any]:
    """A run's run.json, in which these members are objects.

    Raises:
        CohortError: the folder is no run's, or the file is damaged.
    """
    path = folder / files.RUN
    try:
        run = json.loads(path.read_text())
        if not all(isinstance(run[name], dict) for name in members):
            raise TypeError("the file of another command or version")
        return run
    except (FileNotFoundError, NotADirectoryError):
        raise not_a_run(folder) from None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        found = f"{type(error).__name__}: {error}"[:200]
        raise CohortError(str(path), expected, found, "pass the folder that was its --out") from error
