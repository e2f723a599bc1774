"""``cohort train --resume RUN``: a run goes on with the options that it was started with."""

import contextlib
import dataclasses
import logging
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.files import remove_temporaries
from cohort_gnn.launch.options.devices import resolve_device
from cohort_gnn.launch.options.parser import as_given, values_of
from cohort_gnn.spec import files
from cohort_gnn.spec.options import Affects, flag_of, names_that_affect
from cohort_gnn.spec.run import RunSpec, TrainerSpec, from_json
from cohort_gnn.spec.run_file import read_run_json

LOG = logging.getLogger(__name__)

ASIDE = ".before"
RESULTS = (
    files.SUMMARY,
    files.METRICS,
    files.PLAN,
    files.TIMELINE,
    files.MODEL,
    files.REPORT,
    files.CHECKPOINT,
    files.TEST_SCORES,
)


def resumed(folder: Path, wanted: dict[str, Any]) -> tuple[dict, RunSpec]:
    """(run.json of a run that goes on, its options with those given).

    Raises:
        CohortError: there is no such run, or an option that affects batches or losses differs from that of the run;
            more epochs are allowed, as no step depends on their number.
    """
    run = read_run_json(folder, "trainer", "data", "sampler")
    has_task = run["trainer"].get("task") in ("node", "link") or run["trainer"].get("task_name")
    trains = has_task and "mps" in run and "device" in run["sampler"]
    if not (trains and isinstance(run["sampler"].get("dataset"), str) and type(run["sampler"].get("num_ranks")) is int):
        actual, hint = "the file of another command or version", "pass the folder that was its --out"
        raise CohortError(str(folder / files.RUN), "the run.json of cohort train", actual, hint)
    earlier = RunSpec(**values_of(from_json(run["trainer"], TrainerSpec, str(folder / files.RUN))))
    earlier = dataclasses.replace(earlier, time_encoding=earlier.time_encoding or "none")
    hint = "leave it out, or start another run without --resume"

    def refuse(name: str, expected: str, actual: Any) -> CohortError:
        place = flag_of(name)
        return CohortError(place, f"{expected}, as {folder / files.RUN} has it", as_given(actual), hint)

    for name in sorted(names_that_affect(RunSpec, Affects.BATCHES | Affects.LOSS) & set(wanted)):
        before, same = getattr(earlier, name), wanted[name] == getattr(earlier, name)
        if name == "device":
            before, same = run["sampler"]["device"], resolve_device(wanted[name]) == run["sampler"]["device"]
        if name in ("seed_order", "class_weights") and not {"shuffle", "balanced", None} & {before, wanted[name]}:
            same = True  # a file may have moved: demand_same_data() and demand_same_weights() compare what it has
        if name == "init" and None not in (before, wanted[name]):
            same = wanted[name].absolute() == before.absolute()
        if not same:
            raise refuse(name, as_given(before), wanted[name])
    if wanted.get("epochs", earlier.epochs) < earlier.epochs:
        raise refuse("epochs", f"at least {earlier.epochs}", wanted["epochs"])
    if earlier.lr_schedule != "constant" and wanted.get("epochs", earlier.epochs) != earlier.epochs:
        raise refuse("epochs", f"{earlier.epochs}, by which --lr-schedule {earlier.lr_schedule} goes", wanted["epochs"])
    spec = dataclasses.replace(earlier, **{"quiet": False} | wanted | {"out": folder})
    num_ranks = run["sampler"]["num_ranks"]
    for name, count in (("gpus", len(spec.gpus or [0])), ("ranks", spec.ranks or 1)):
        if name in wanted and count != num_ranks:
            raise refuse(name, f"{num_ranks} trainer{'s' * (num_ranks > 1)}", wanted[name])
    return run, spec


def demand_same_weights(earlier: dict, now: TrainerSpec) -> None:
    """Raises CohortError where the losses of classes have other weights than the run's before."""
    if earlier.get("weights_of_classes", now.weights_of_classes) != now.weights_of_classes:
        expected, hint = "the weights that the run was started with", "name their file, or start a new run"
        raise CohortError("--class-weights", expected, f"others in {now.class_weights}", hint)


def demand_new(out: Path, overwrite: bool) -> None:
    """Checks that a folder can be that of a new run.

    Args:
        overwrite: the run may replace another one.

    Raises:
        CohortError: it has files that a run would replace, and that no run has written; or a run has finished an epoch
            there, or left a checkpoint of its first, and is not to be replaced.
    """
    foreign = [name for name in RESULTS if (out / name).exists()]
    if foreign and not (out / files.RUN).exists() and not (out / ASIDE).exists():
        actual = f"{foreign[0]}, but no run.json beside it"
        hint = "choose another --out, or move the file"
        raise CohortError(str(out), "a new folder or the folder of a run", actual, hint)
    try:
        num_epochs = (out / files.METRICS).read_bytes().count(b"\n")
    except OSError:  # no such file; what else is wrong with the folder is said when it is written to
        num_epochs = 0
    if not overwrite and (num_epochs or (out / files.CHECKPOINT).exists()):
        actual = f"a run of {num_epochs} epoch{'s' * (num_epochs > 1)}" if num_epochs else "a run in its first epoch"
        hint = f"--resume {out} continues it; --overwrite replaces it (of cohort.train: resume=True, overwrite=True)"
        raise CohortError(str(out), "a new folder", actual, hint)


def demand_weights(init: Path, out: Path | None) -> None:
    """Checks that a run may start with the weights of the run in the folder `init`.

    Raises:
        CohortError: the folder has no weights, or is that of the run that would replace them.
    """
    place = f"--init {init}"
    if not (init / files.MODEL).is_file():
        hint = "pass the folder that was the --out of cohort train"
        raise CohortError(place, f"the folder of a run with {files.MODEL}", "none", hint)
    if out and out.is_dir() and out.samefile(init):
        hint = f"--resume {init} continues that run; otherwise choose another --out"
        raise CohortError(place, "another folder than --out", str(out), hint)


@contextlib.contextmanager
def set_aside(out: Path, is_said: bool) -> Iterator[None]:
    """Moves the results of an earlier run in a folder aside; brings them back at the end if the new run has none.

    Args:
        is_said: log a message about these results.
    """
    remove_parts(out)
    results = [name for name in RESULTS if (out / name).exists()]
    if results and is_said:
        LOG.info(f"deleting the results of an earlier run in {out} (--resume continues a run)")
    if (out / files.RUN).exists():
        for pattern in ("report-*.png", "trainer-*.log", "tensorboard/events.out.tfevents.*"):
            for path in out.glob(pattern):
                path.unlink(missing_ok=True)
    if results:
        _move((files.RUN, *results), out, out / ASIDE)
    try:
        yield
    finally:
        bring_back(out)


def bring_back(out: Path) -> None:
    """Brings results back that were moved aside, also by a killed start; removes them if a newer run has begun."""
    if not (out / ASIDE).is_dir():
        return
    has_begun = (out / files.RUN).exists() and ((out / files.METRICS).exists() or (out / files.CHECKPOINT).exists())
    if not has_begun:
        (out / files.RUN).unlink(missing_ok=True)
        _move((*RESULTS, files.RUN), out / ASIDE, out)
        LOG.info(f"the results of the earlier run in {out} are still there")
    shutil.rmtree(out / ASIDE)


def _move(names: Iterable[str], source: Path, target: Path) -> None:
    """Moves those of a run's files that exist, in this order: if this is killed, run.json exists only where all of its
    files do."""
    target.mkdir(exist_ok=True)
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            os.replace(source / name, target / name)


def remove_parts(out: Path) -> None:
    """Removes files that a killed run was writing, and results of an earlier run that were moved aside."""
    shutil.rmtree(out / ASIDE, ignore_errors=True)
    for name in (*RESULTS, files.RUN):
        remove_temporaries(out / name)
