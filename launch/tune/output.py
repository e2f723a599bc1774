"""The output of ``cohort tune``: progress, the table, tune.json and run.toml."""

import json
import logging
import shlex
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.text import Text

from cohort_gnn.base.files import demand_writable, write_whole
from cohort_gnn.base.tables import TextTable, print_tables
from cohort_gnn.base.units import format_bytes
from cohort_gnn.launch.options.own_code import own_code_words
from cohort_gnn.launch.options.parser import as_text
from cohort_gnn.launch.report.results import one_line
from cohort_gnn.launch.tune.search import CLEAR_GAIN, Point, TimeBound, best
from cohort_gnn.launch.tune.space import as_toml
from cohort_gnn.launch.tune.trial import Trial
from cohort_gnn.spec.results import TIMES

LOG = logging.getLogger(__name__)

MOST_NOISE = 0.04  # of an epoch: more is a gain, however much epochs differed
MAX_FAILURE = 120  # characters of a failure in the table; tune.json has all of them
SHOWN_TIMES = {"seconds": "epoch s", "wait_seconds": "wait s", "train_seconds": "train s"} | {
    "sample_seconds": "sample s",
    "fetch_seconds": "fetch s",
}


@dataclass
class TuneResults:
    """What tuning has found.

    Attributes:
        out: the folder that gets it.
        start: the options as given.
        fixed: {option that was not varied: why}.
        is_stopped: the search has not come to its end, nor to that of its time.
    """

    out: Path
    dataset: Path
    device: str
    epochs: int
    start: Point
    fixed: dict[str, str]
    trials: list[Trial]
    is_stopped: bool = True

    @property
    def best(self) -> Trial:
        """The trial to use: the first, with the options as given, unless the trial that search.best takes is faster by
        more than the difference between epochs with the same options, also where both ran again. The first trial must
        not have failed."""
        trials, known = self.promising, self.trials[0]
        if trials.again is not None and known.again is not None:
            return trials if known.again - trials.again > noise_of(trials, known) else known
        return trials

    @property
    def promising(self) -> Trial:
        """The trial to use by the first run of each."""
        trials, known = best(self.trials), self.trials[0]
        return trials if known.cost - trials.cost > noise_of(trials, known) else known


def noise_of(*trials: Trial) -> float:
    """Seconds by which epochs differ though their options are the same; at most MOST_NOISE of an epoch, as a mean of
    several differs less than they do."""
    least = min(trial.cost for trial in trials)
    return min(max(CLEAR_GAIN * least, *(trial.spread for trial in trials)), MOST_NOISE * least)


def changes(point: Point, start: Point) -> str:
    """What makes a trial: "cache-ratio 0.1, slots 4"."""
    texts = [f"{_option(name)} {as_text(value)}" for name, value in point.items() if value != start[name]]
    return ", ".join(texts) or "the options as given"


def _option(name: str) -> str:
    return name.replace("_", "-")


class Screen:
    """A bar over the time, with the trial that runs and the best so far, on standard error; nothing when quiet."""

    def __init__(self, bound: TimeBound, quiet: bool):
        self._bound = bound
        self._bar = Progress(
            BarColumn(bar_width=20),
            TextColumn("{task.fields[left]} left  {task.description}", markup=False),
            console=Console(stderr=True, quiet=quiet, highlight=False, soft_wrap=True),
        )
        self._task = self._bar.add_task("", total=bound.seconds, left="")

    def __enter__(self):
        self._bar.start()
        return self

    def __exit__(self, *_):
        self._bar.stop()

    def begins(self, trial: Trial, results: TuneResults) -> None:
        so_far = ""
        if results.trials:
            so_far = f"; best so far {results.best.cost:.4f} s: {changes(results.best.point, results.start)}"
        self._bar.update(self._task, description=f"trial {trial.number}: {changes(trial.point, results.start)}{so_far}")
        self.tick()

    def tick(self) -> None:
        left = max(0.0, self._bound.left)
        self._bar.update(self._task, completed=self._bound.seconds - left, left=f"{left // 60:.0f}:{int(left) % 60:02}")

    def ended(self, trial: Trial, results: TuneResults) -> None:
        result = f"failed: {one_line(trial.failure)}" if trial.failure else f"epoch {trial.cost:.4f} s"
        self._bar.console.print(Text(f"trial {trial.number}: {changes(trial.point, results.start)}: {result}"))


def conclude(results: TuneResults, quiet: bool) -> None:
    """Writes all results; unless quiet, prints the table and where they are."""
    write(results)
    if quiet:
        return
    print_tables(trial_table(results))
    number = results.best.number
    print(f"best: trial {number}, {changes(results.best.point, results.start)}: epoch {results.best.cost:.4f} s")
    first, fastest = results.trials[0], min(results.trials, key=lambda candidate: candidate.cost)
    if results.promising.again is not None:
        promising = results.promising
        summary = f"trial {promising.number} took {promising.again:.4f} s, the options as given {first.again:.4f} s"
        print(f"both ran again, one after the other: {summary}")
    elif results.promising is not first:
        print("each trial ran once: with more --minutes, the best and the options as given would run again")
    elif fastest.cost < first.cost:
        summary = f"trial {fastest.number}, {changes(fastest.point, results.start)}"
        noise = f"within the difference of {noise_of(fastest, first):.4f} s between epochs with the same options"
        print(f"{summary}, took {first.cost - fastest.cost:.4f} s less: {noise}")
    data, options, trial = map(_quoted, (results.dataset, results.out / "run.toml", results.best.folder))
    named = "".join(f" {word}" for word in own_code_words(results.best.options))
    print(f"use it:     cohort train {data} --config {options}{named}")
    print(f"report:     cohort report {trial} (name several trials to compare them)")
    print(f"trials: {results.out / 'tune.json'}")


def _quoted(path: Path) -> str:
    """As a shell takes it."""
    return shlex.quote(str(path))


def write(results: TuneResults) -> None:
    """Writes tune.json, and run.toml with the best options.

    Raises:
        CohortError: the folder cannot be written.
    """
    chosen = results.best
    line = (
        f"# cohort tune: trial {chosen.number} of {len(results.trials)}, {results.epochs} epochs on {results.dataset}:"
        f" an epoch took {chosen.cost:.4f} s (as given: {results.trials[0].cost:.4f} s)\n"
    )
    with demand_writable(results.out):
        write_whole(results.out / "tune.json", json.dumps(_as_json(results), indent=2) + "\n")
        write_whole(results.out / "run.toml", one_line(line.rstrip()) + "\n" + as_toml(chosen.options))


def _as_json(results: TuneResults) -> dict:
    """All that was tried, in seconds and bytes."""
    return {
        "dataset": str(results.dataset),
        "device": results.device,
        "epochs": results.epochs,
        "stopped": results.is_stopped,
        "not_varied": results.fixed,
        "best": results.best.number,
        "trials": [
            {"trial": trial.number, "folder": trial.folder.name, "options": trial.point}
            | {name: trial.times and trial.times[name] for name in TIMES}
            | {name: getattr(trial, name) for name in ("host_bytes", "hit_rate", "planned_hit_rate")}
            | {
                "again_seconds": trial.again,
                "spread_seconds": trial.spread,
                "wall_seconds": trial.wall_seconds,
                "failure": trial.failure or None,
            }
            for trial in results.trials
        ],
    }


def trial_table(results: TuneResults) -> TextTable:
    """A row per trial: the options in which trials differ, times, bytes, and what came of it."""
    points = [trial.point for trial in results.trials]
    differing = [name for name in results.start if len({str(point[name]) for point in points}) > 1]
    columns = ["trial", *map(_option, differing), *SHOWN_TIMES.values()]
    columns += ["host bytes", "hit % planned", "hit %", "result"]
    rows = []
    for trial in results.trials:
        result = "best" if trial is results.best else "as given" if trial.number == 1 else ""
        if trial.failure:
            result = f"failed: {one_line(trial.failure)[:MAX_FAILURE]}"
        numbers = ["-"] * (len(SHOWN_TIMES) + 3)
        if trial.times is not None and trial.host_bytes is not None:
            rates = (trial.planned_hit_rate, trial.hit_rate)
            numbers = [f"{trial.times[name]:.4f}" for name in SHOWN_TIMES] + [format_bytes(trial.host_bytes)]
            numbers += ["-" if rate is None else f"{100 * rate:.2f}" for rate in rates]
        options = [as_text(trial.point[name]) for name in differing]
        rows.append([str(trial.number), *options, *numbers, result])
    note = "medians of the epochs after the first; host bytes: of a batch of training; hit: rows not from the host"
    if results.fixed:
        note += f"\nnot varied: {', '.join(f'{_option(name)} ({why})' for name, why in results.fixed.items())}"
    return TextTable("Trials", columns, rows, note)
