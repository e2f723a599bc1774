"""DIR of ``cohort train``: a data set, or a folder of tables that becomes one."""

import argparse
import logging
from pathlib import Path

from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.progress_lines import ProgressLines
from cohort_gnn.dataset.reader import is_dataset
from cohort_gnn.launch.options.parser import group
from cohort_gnn.launch.run.machines import Machine

LOG = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of a DIR that is no data set."""
    tables = group(parser, "DIR is a folder of tables: one of RelBench, or with graph.yaml")
    tables.add_argument(
        "--import-to",
        type=Path,
        metavar="DATA",
        help="folder of the data set that is made of DIR, and taken again by later runs while DIR has the same files"
        " (default data/NAME, with the name of DIR)",
    )
    tables.add_argument(
        "--as-proposed",
        action="store_true",
        help="take what cohort dataset describe proposes for a DIR without graph.yaml, as cohort dataset import does",
    )


def dataset_of(args: argparse.Namespace, machine: Machine | None, is_quiet: bool) -> Path:
    """The folder of the data set to train on: DIR, or what is made of its tables.

    Raises:
        CohortError: for tables that cannot be imported, and for options about them beside a data set.
    """
    source: Path = args.dataset
    if is_dataset(source) or not _is_database(source):
        for flag, is_given in {"--import-to": args.import_to is not None, "--as-proposed": args.as_proposed}.items():
            if is_given:
                expected = "a folder of RelBench, or of tables with a graph.yaml that names tasks"
                raise CohortError(flag, expected, str(source), "leave it out, or name such a folder")
        return source
    from cohort_gnn.dataset.importing.kept import keep_imported

    out = args.import_to or Path("data") / source.resolve().name
    if machine is not None:
        hint = f"once, before the run: cohort dataset import {source} {out}"
        raise CohortError(str(source), "a data set, for a run of several machines", "a folder of tables", hint)
    progress = (lambda what, fraction: None) if is_quiet else ProgressLines(LOG.info).at
    keep_imported(source, out, as_proposed=args.as_proposed, note=LOG.info, progress=progress)
    return out


def _is_database(source: Path) -> bool:
    from cohort_gnn.dataset.importing.kept import is_database  # with all importers, which take 0.06 s to load

    return is_database(source)
