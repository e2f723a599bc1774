"""Where the programs of this installation lie, and the start of a sampler."""

import os
import subprocess
from pathlib import Path

import cohort
from cohort.base.errors import CohortError


def program(name: str) -> str:
    """The path of one of Cohort's own programs (``cohort-sampler``, ``cohort-inspect``).

    Raises:
        CohortError: the installation lacks it.
    """
    package = Path(cohort.__file__).parent  # the package itself, or the link tree <build>/python/cohort
    for folder in (package / "bin", package.parent.parent / "bin"):
        if os.access(folder / name, os.X_OK):
            return str(folder / name)
    raise CohortError(name, f"a program in {package / 'bin'}", "none", "build or install cohort again")


def start_sampler(run_json: Path, log: Path) -> subprocess.Popen:
    """Starts ``cohort-sampler run_json`` with its output in ``log``."""
    with open(log, "ab") as file:
        return subprocess.Popen(
            [program("cohort-sampler"), str(run_json)], stdin=subprocess.DEVNULL, stdout=file, stderr=file
        )


def log_tail(log: Path, lines: int = 15) -> str:
    """The last lines of a log, indented, for an error message."""
    if not log.exists():
        return "(no log)"
    text = log.read_text(errors="replace").splitlines()[-lines:]
    return "\n".join("    " + line for line in text) or "    (the log is empty)"
