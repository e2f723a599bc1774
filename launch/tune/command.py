"""``cohort tune``: finds the options with the shortest epoch by short real runs, and writes them to run.toml."""

import argparse
import contextlib
import functools
import logging
import math
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.files import demand_writable
from cohort_gnn.launch.options.devices import resolve_device
from cohort_gnn.launch.options.own_code import demand_named_here
from cohort_gnn.launch.options.parser import add_dataset, add_options, kind, spec_of
from cohort_gnn.launch.run.folder import made_writable, new_run_folder, sole_use
from cohort_gnn.launch.run.job import open_to_train
from cohort_gnn.launch.run.stopping import Stopped, ignore_stop_signals, stop_on_signals
from cohort_gnn.launch.tune.output import Screen, TuneResults, conclude, write
from cohort_gnn.launch.tune.search import Point, Space, TimeBound, explore
from cohort_gnn.launch.tune.space import CACHE_RATIOS, Room, axes_of, options_at, same_as, start_of
from cohort_gnn.launch.tune.trial import OPTIONS_FILE, Trial
from cohort_gnn.spec.meta import read_meta
from cohort_gnn.spec.run import RunSpec
from cohort_gnn.spec.types import AboveZero, Ratios

LOG = logging.getLogger(__name__)

TRIAL_EPOCHS = 3
RESULTS = ("run.toml", "tune.json")
EARLIER = "earlier"  # the folder of a tuning that is to be replaced, until there is another result


def register(parser) -> None:
    """Adds the arguments of the command."""
    parser.description = (
        f"{__doc__} Cache ratio, SMs of the sampler, slots, reuse and compression vary one by one,"
        " except the options on the command line. A --config file sets the start values. All GPUs get the same ratio."
    )
    add_dataset(parser)
    text = f"epochs of each trial; the first is not counted (default {TRIAL_EPOCHS})"
    out = "folder for results and trials (default tune-NAME-TIME)"
    add_options(parser, RunSpec, epochs=text, out=out)
    text = "TOML file of start values; options on the command line take precedence, and are not varied"
    parser.add_argument("--config", type=Path, help=text)
    parser.add_argument(
        "--minutes", type=kind(AboveZero), default=10.0, help="time limit for all trials together (default 10)"
    )
    parser.add_argument(
        "--cache-ratios",
        type=kind(Ratios),
        metavar="R[,R...]",
        help="candidates for --cache-ratio, each for all GPUs; ratios that do not fit are skipped (default"
        f" {','.join(f'{ratio:g}' for ratio in CACHE_RATIOS)})",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace an earlier tuning in the folder --out")
    parser.set_defaults(func=tune)


def tune(args: argparse.Namespace) -> int:
    """Runs the command; returns 0 when it has a best trial, 128 + n after signal n, with the results so far."""
    if getattr(args, "epochs", TRIAL_EPOCHS) < 2:
        raise CohortError("--epochs", "at least 2, of which the first is not counted", str(args.epochs))
    if args.cache_ratios and hasattr(args, "cache_ratio"):
        raise CohortError("--cache-ratio, --cache-ratios", "one of the two", "both")
    tuning = Tuning(args)
    results, out = tuning.results, getattr(args, "out", None)
    if out:
        _earlier_trials(out, args.overwrite)  # refused without waiting for a run in this folder
    results.out = (made_writable(out) if out else new_run_folder(results.out)).absolute()
    with sole_use(results.out), _earlier_aside(results, args.overwrite):
        stop_on_signals()
        code = 0
        try:
            tuning.search()
        except Stopped as stop:
            outcome = f"what was found is in {results.out}" if results.trials else "no trial had ended"
            LOG.info(f"stopped by signal {stop.number}; {outcome}")
            code = 128 + stop.number
        finally:
            ignore_stop_signals()
        if results.trials:
            conclude(results, tuning.quiet)
        return code


def _earlier_trials(out: Path, overwrite: bool) -> list[Path]:
    """The trials of a tuning that is to be replaced, or that found nothing.

    Raises:
        CohortError: the folder has what no tuning has written, or results that are not to be replaced.
    """
    trials = [folder for folder in out.glob("trial-*") if folder.name[6:].isdigit()]
    foreign, hint = [folder for folder in trials if not (folder / OPTIONS_FILE).is_file()], "choose another --out"
    if (out / "run.json").exists():
        raise CohortError(str(out), "a new folder", "the folder of a run", hint)
    if (out / "tune.json").exists() or (out / EARLIER / "tune.json").exists():
        if not overwrite:
            hint = f"{hint}; --overwrite replaces it"
            raise CohortError(str(out), "a new folder", "the folder of an earlier tuning", hint)
    else:
        foreign += [out / name for name in (*RESULTS, EARLIER) if (out / name).exists()]
    if foreign:
        raise CohortError(str(out), "a new folder", f"{foreign[0].name}, which no tuning has written", hint)
    return trials


@contextlib.contextmanager
def _earlier_aside(results: TuneResults, overwrite: bool) -> Iterator[None]:
    """Keeps the results of an earlier tuning in a folder of their own, which goes when there are others."""
    _make_fresh(results.out, overwrite)
    try:
        yield
    finally:
        earlier = results.out / EARLIER
        if earlier.exists() and not results.trials:
            LOG.info(f"the earlier tuning is in {earlier}")
        elif earlier.exists():
            with demand_writable(results.out):
                shutil.rmtree(earlier)


def _make_fresh(out: Path, overwrite: bool) -> None:
    """Moves the results of an earlier tuning aside, and removes what is left of one without; see `_earlier_trials`."""
    with demand_writable(out):
        trials, earlier = _earlier_trials(out, overwrite), out / EARLIER
        if not (out / "tune.json").exists():
            for trial in trials:
                shutil.rmtree(trial)
            (out / "run.toml").unlink(missing_ok=True)
            return
        if earlier.exists():
            shutil.rmtree(earlier)
        earlier.mkdir()
        for name in (*(trial.name for trial in trials), *RESULTS):
            with contextlib.suppress(FileNotFoundError):
                os.replace(out / name, earlier / name)


class Tuning:
    """The trials of one command, from the options as given to the best ones; trial 1 is in the folder trial-01."""

    def __init__(self, args: argparse.Namespace):
        data, spec = open_to_train(args.dataset), spec_of(args, RunSpec)
        demand_named_here(args, spec)
        self._meta = read_meta(data.path)
        self._args, self.quiet, device = args, getattr(args, "quiet", False), resolve_device(spec.device)
        start = start_of(spec, is_prepared=any(table.encoded_rows is not None for table in data.node_types.values()))
        self._axes, fixed = axes_of(args, device, data)
        out = Path(f"tune-{args.dataset.resolve().name}-{time.strftime('%Y%m%d-%H%M%S')}")
        epochs = getattr(args, "epochs", TRIAL_EPOCHS)
        self.results = TuneResults(out, data.path, device, epochs, start, fixed, [])
        self._options_at = options_at(args, start)
        self._room = Room(spec, self._meta, data) if device == "cuda" else None

    def search(self) -> None:
        """Runs trials until the search ends or the time is over.

        Raises:
            CohortError: the run with the options as given failed, or the time was over before it ended.
        """
        same = functools.partial(same_as, device=self.results.device, meta=self._meta)
        space = Space(self._axes, self._room.fits if self._room else lambda point: True, same)
        bound = TimeBound(60 * self._args.minutes)
        with Screen(bound, self.quiet) as screen:
            explore(space, self.results.start, lambda point: self._measure(point, bound, screen), bound)
            self._confirm(bound, screen)
        self.results.is_stopped = False

    def _confirm(self, bound: TimeBound, screen: Screen) -> None:
        """Runs the options as given and the best ones again, one after the other: when trial 1 ran, the machine may
        have been busy with something else. Where there is no time for both, neither runs."""
        results, promising = self.results, self.results.promising
        if promising is results.trials[0] or not bound.allows_another(2):
            return
        costs = []
        for trial in (results.trials[0], promising):
            again = replace(trial, folder=trial.folder / "again", failure="", times=None)
            screen.begins(again, results)
            again.run(results.dataset, results.epochs, bound.left, screen.tick)
            screen.ended(again, results)
            costs.append(again.cost)
        if math.inf not in costs:
            results.trials[0].again, promising.again = costs
        write(results)

    def _measure(self, point: Point, bound: TimeBound, screen: Screen) -> float:
        results = self.results
        number = len(results.trials) + 1
        trial = Trial(number, results.out / f"trial-{number:02}", point, self._options_at(point))
        screen.begins(trial, results)
        trial.run(results.dataset, results.epochs, bound.left, screen.tick)
        if number == 1 and trial.is_over_time:
            least = f"time for one run of {results.epochs} epochs at least"
            hint = "use more --minutes, or fewer --epochs"
            raise CohortError(f"--minutes {self._args.minutes:g}", least, trial.failure, hint)
        if number == 1 and trial.failure:
            raise CohortError.from_text(trial.message)
        if number == 1 and self._room:
            self._room.learn(trial.peak_bytes)
        results.trials.append(trial)
        screen.ended(trial, results)
        write(results)
        return trial.cost
