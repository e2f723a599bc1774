"""What measurements by short runs of ``cohort train`` share: their options, the runs, and a line a run."""

import argparse
import json
import time
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.console import Console
from shapes import add_data_or_shape, resolve_data

from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.files import write_whole
from cohort_gnn.base.machine import devices
from cohort_gnn.launch.options.devices import resolve_device
from cohort_gnn.launch.options.parser import CommandParser, add_options, as_text, kind, spec_of
from cohort_gnn.launch.report.results import Run, read_run
from cohort_gnn.launch.tune.search import TimeBound
from cohort_gnn.launch.tune.space import train_options
from cohort_gnn.launch.tune.trial import Trial
from cohort_gnn.spec.results import TIMES
from cohort_gnn.spec.run import RunSpec
from cohort_gnn.spec.types import AboveZero

BATCH_SIZE_TEXT = "seeds per batch (default: the shape's, or 8192)"
READ_TIERS = ("local", "peer", "host", "disk", "remote")  # what is copied from batches before is not fetched
COUNTS = {"edges": "num_edges", "seeds": "num_seeds", "batches": "num_batches"}


def trial_parser(
    description: str, name: str, epochs: int, minutes: float = 10.0, **texts: str | None
) -> argparse.ArgumentParser:
    """A parser of options of ``cohort train``, of --shape and --minutes; Trials takes the arguments that it parses.

    Args:
        name: of the measurement, and of its folder in .bench.
        epochs, minutes: defaults of --epochs, of a run, and --minutes.
        texts: as of add_options.
    """
    parser = CommandParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_data_or_shape(parser)
    text = f"epochs of a run, of which the first is not counted (default {epochs})"
    out = f"folder for lines, picture and runs (default .bench/{name})"
    add_options(parser, RunSpec, epochs=text, out=out, batch_size=BATCH_SIZE_TEXT, **texts)
    parser.add_argument("--config", type=Path, help="a TOML file of options of cohort train; arguments win")
    parser.add_argument(
        "--minutes", type=kind(AboveZero), default=minutes, help=f"bound of all runs (default {minutes:g})"
    )
    parser.set_defaults(name=name, trial_epochs=epochs)
    return parser


class Trials:
    """Runs on a data set, one after the other; `lines` has one of each, as OUT/NAME.jsonl has behind older ones.

    Args:
        args: as a trial_parser has parsed them.

    Attributes:
        base: the options of ``cohort train`` that are given, without its defaults.
        is_over_time: a run was ended, or not begun, since no time was left.
    """

    def __init__(self, args: argparse.Namespace):
        self.epochs = getattr(args, "epochs", args.trial_epochs)
        if getattr(args, "epochs", 2) < 2:
            raise CohortError("--epochs", "at least 2, of which the first is not counted", str(self.epochs))
        self.dataset, batch_size = resolve_data(args)
        self.spec = spec_of(args, RunSpec, batch_size=batch_size)
        self.device = resolve_device(self.spec.device)
        self.base = {"batch_size": self.spec.batch_size} | train_options(args)
        self.out = getattr(args, "out", Path(".bench") / args.name).absolute()
        self.gpus = {gpu["ordinal"]: gpu.get("name", gpu["uuid"]) for gpu in devices()["gpus"]}
        self.lines: list[dict] = []
        self._num_runs = 0
        self.is_over_time = False
        self.bound = TimeBound(60 * args.minutes)
        self.name = args.name
        self._lines_file = self.out / f"{self.name}.jsonl"
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        try:
            self.out.mkdir(parents=True, exist_ok=True)
            self._lines_file.open("a").close()
        except OSError as error:
            place = str(self.out)
            raise CohortError(place, "a folder that can be written", str(error), "choose another --out") from error

    def run(self, told: dict, options: dict, dataset: Path | None = None) -> dict:
        """The line of a run: what is told of it, with its failure or with what it took.

        Args:
            options: of ``cohort train``.
            dataset: another one.
        """
        self._num_runs += 1
        number = self._num_runs
        trial = Trial(number, self.out / f"run-{number:02}", {}, options)
        text = f"run {number}, " + ", ".join(f"{name} {as_text(value)}" for name, value in told.items())
        if self.bound.allows_another():
            with self._console.status(text), self.bound.timing():
                trial.run(dataset or self.dataset, self.epochs, self.bound.left, lambda: None)
        else:
            trial.failure, trial.is_over_time = "no time was left", True
        self.is_over_time |= trial.is_over_time
        self._console.print(f"{text}: {trial.failure or f'epoch {trial.cost:.4f} s'}", markup=False)
        found = {"failure": trial.failure} if trial.failure else numbers_of(trial)
        self.add(told | {"options": options} | found)
        return self.lines[-1]

    def add(self, line: dict) -> None:
        """Appends a line."""
        self.lines.append(self._told() | line)
        with open(self._lines_file, "a") as file:
            file.write(json.dumps(self.lines[-1], default=str) + "\n")

    def _told(self) -> dict:
        return {
            "bench": self.name,
            "dataset": self.dataset.name,
            "device": self.device,
            "machine": list(self.gpus.values()),
            "epochs": self.epochs,
            "time": time.strftime("%Y-%m-%dT%H:%M:%S"),
        }


def numbers_of(trial: Trial) -> dict:
    """Of a trial that ended: median times of an epoch, and means of what all ranks together read in one."""
    return {name: trial.times[name] for name in TIMES} | counts_of(read_run(trial.folder))


def counts_of(run: Run) -> dict[str, float]:
    """Of an epoch of a run: edges sampled, seeds, batches, and the rows that were fetched."""
    counts = {name: fmean(epoch[key] for epoch in run.settled) for name, key in COUNTS.items()}
    tiers = [[epoch["row_tiers"][tier]["rows"] for tier in READ_TIERS] for epoch in run.settled]
    return counts | {"rows": fmean(map(sum, tiers))}


def write_png(path: Path, data: bytes) -> None:
    """Writes a picture.

    Raises:
        CohortError: it cannot be written.
    """
    try:
        write_whole(path, data)
    except OSError as error:
        raise CohortError(str(path), "a file that can be written", str(error), "name another place") from error


def as_words(options: dict[str, Any]) -> list[str]:
    """Options as on a command line."""
    words = []
    for name, value in options.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            words += [f"--{flag}", ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)]
    return words
