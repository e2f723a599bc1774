"""Classes of the user's that a command runs: only those that its own command line names, never those that a file alone
names, since a run's folder or a file of options may be a stranger's."""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cohort_gnn.base.errors import CohortError
from cohort_gnn.launch.options.parser import as_text, given_in
from cohort_gnn.spec.options import flag_of
from cohort_gnn.spec.run import RunSpec

OPTIONS = ("model", "loss", "callbacks")


def own_code_words(options: Mapping[str, Any]) -> list[str]:
    """The words of a command line that name the user's classes among these options, {name: value}."""
    named = {flag_of(name): as_text(options.get(name) or "") for name in OPTIONS}
    return [word for flag, text in named.items() if ":" in text for word in (flag, text)]


def demand_named_here(args: argparse.Namespace, spec: RunSpec, run_json: Path | None = None) -> None:
    """Checks that the command line names all of the user's classes among the options of a run.

    Args:
        args: the command line.
        spec: the options, with those of files.
        run_json: the file with the options that neither the command line nor a --config file has.

    Raises:
        CohortError: only a file names one.
    """
    for name in OPTIONS:
        words = own_code_words({name: getattr(spec, name)})
        if words and name not in vars(args):
            file = args.config if name in given_in(args, RunSpec) else run_json
            expected, actual = "a class that the command line names, too", f"{words[1]} in the file alone"
            hint = f"its code would run: if you trust it, add {' '.join(words)}"
            hint += f" (of cohort.train: {name}={getattr(spec, name)!r})"
            if name == "callbacks":
                hint += "; callbacks = [] in a --config file leaves callbacks out"
            raise CohortError(f"{file}: {name}", expected, actual, hint)
