"""``cohort train --resume RUN``: a run goes on with the options that it was started with."""

import argparse
import contextlib
import json
import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from cohort.base.errors import CohortError, not_a_run
from cohort.base.files import remove_temporaries

CHECKPOINT, METRICS = "checkpoint.pt", "metrics.jsonl"  # the trainer's: METRICS has a line an epoch
ASIDE = ".before"
RESULTS = (
    "summary.json",
    METRICS,
    "plan.json",
    "timeline.json",
    "trace.json",
    "model.pt",
    "report.html",
    CHECKPOINT,
)
FREE = {"checkpoint_every", "tensorboard", "prometheus"}  # may change: nothing that the run computes depends on them
NO_OPTIONS = {"help", "config", "out", "resume", "overwrite", "quiet"}  # of the command, not of the run


def arguments_of(args: argparse.Namespace) -> dict:
    """The member "arguments" of run.json: {option: value as JSON has it}, by which a contradiction is found later."""
    names = {action.dest for action in args.config_parser._actions} - NO_OPTIONS
    return {name: _plain(getattr(args, name)) for name in sorted(names)}


def _plain(value):
    """As it comes back from JSON; paths are absolute."""
    return json.loads(json.dumps(value, default=lambda path: str(Path(path).absolute())))


def resumed(args: argparse.Namespace) -> dict:
    """What becomes run.json of the run that goes on.

    Raises:
        CohortError: there is no such run, or an option says something else than it was started with; more epochs are
            none, as no step depends on how many there will be.
    """
    run = _read(args.resume / "run.json")
    _refuse_contradictions(args, run["arguments"])
    if "dataset" in args.given:
        _find_again(run, args.dataset.absolute())
    for name in (FREE | {"epochs"}) & args.given:
        run["trainer"][name] = run["arguments"][name] = _plain(getattr(args, name))
    run["trainer"]["quiet"] = args.quiet
    if run["trainer"].get("profile") and (args.resume / CHECKPOINT).exists():
        print("cohort: --profile: a run that goes on makes no trace", file=sys.stderr)
    return run | {"resume": True}


def _find_again(run: dict, dataset: Path) -> None:
    """A data set that was moved, and what was made beside it."""
    before = Path(run["sampler"]["dataset"])

    def moved(file: str) -> str:
        return str(dataset / Path(file).relative_to(before)) if Path(file).is_relative_to(before) else file

    sampler, parts = run["sampler"], run["trainer"].get("partition")
    sampler["dataset"] = run["arguments"]["dataset"] = str(dataset)
    if "hotness" in sampler:
        sampler["hotness"] = moved(sampler["hotness"])
    if "rank_hotness" in sampler:
        sampler["rank_hotness"] = [moved(file) for file in sampler["rank_hotness"]]
    if parts:
        parts["parts"] = moved(parts["parts"])


def make_at_home(run: dict, out: Path) -> None:
    """A run whose folder was moved, or is a copy, keeps its files there.

    Raises:
        CohortError: the counts by which its cache is planned are gone.
    """
    sampler, trainer = run["sampler"], run["trainer"]
    if "plan_file" in sampler:
        sampler["plan_file"] = str(out / "plan.json")
    counts = [Path(file) for file in (*sampler.get("rank_hotness", ()), sampler.get("hotness")) if file]
    gone = [file for file in counts if not file.exists()]
    if gone and Path(sampler["dataset"]).is_dir():
        command = f"cohort plan {shlex.quote(sampler['dataset'])} --fanout {_shown(trainer['fanout'])}"
        command += f" --batch-size {trainer['batch_size']} --gpus {sampler['num_ranks']}"
        if "rank_hotness" in sampler:
            command += f" --partition --cliques {sampler['cliques']}"
        hint = f"make them again: {command}"
        raise CohortError(str(gone[0]), "the counts that the cache is planned by", "none", hint)


def _read(path: Path) -> dict:
    try:
        run = json.loads(path.read_text())
        members = (run.get(name) for name in ("arguments", "data", "sampler"))
        if run["trainer"]["task"] == "train" and "mps" in run and all(isinstance(each, dict) for each in members):
            return run
        reason = "that of another command or version"
    except FileNotFoundError:
        raise not_a_run(path.parent) from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        reason = f"{type(error).__name__}: {error}"
    raise CohortError(str(path), "what cohort train has written", reason, "name the folder that it had as --out")


def _refuse_contradictions(args: argparse.Namespace, arguments: dict) -> None:
    hint = "leave it out, or start another run without --resume"
    if "out" in args.given and args.out.absolute() != args.resume.absolute():
        raise CohortError("--out", f"{args.resume}, where the run goes on", str(args.out), hint)
    for name in sorted(args.given - FREE - NO_OPTIONS - {"dataset"}):
        found, earlier = _plain(getattr(args, name)), arguments.get(name)
        are_more = name == "epochs" and isinstance(earlier, int) and found > earlier
        if found != earlier and not are_more:
            place = f"--{name.replace('_', '-')}"
            least = "at least " if name == "epochs" else ""
            expected = f"{least}{_shown(earlier)}, as {args.resume / 'run.json'} has it"
            raise CohortError(place, expected, _shown(found), hint)


def _shown(value) -> str:
    """As on the command line, about."""
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def demand_results_of_a_run(out: Path) -> None:
    """Raises CohortError where a folder has files that a run would replace, and that no run has written."""
    foreign = [name for name in RESULTS if (out / name).exists()]
    if foreign and not (out / "run.json").exists() and not (out / ASIDE).exists():
        found = f"{foreign[0]}, and no run.json beside it"
        raise CohortError(str(out), "a new folder, or that of a run", found, "choose another --out, or move the file")


def demand_no_epochs(out: Path) -> None:
    """Raises CohortError where a run has finished an epoch in the folder, or left a checkpoint of its first."""
    try:
        num_epochs = (out / METRICS).read_bytes().count(b"\n")
    except OSError:  # no such file; what else is wrong with the folder is said when it is written to
        num_epochs = 0
    if num_epochs or (out / CHECKPOINT).exists():
        found = f"a run of {num_epochs} epoch{'s' * (num_epochs > 1)}" if num_epochs else "a run in its first epoch"
        raise CohortError(str(out), "a new folder", found, f"--resume {out} goes on with it; --overwrite replaces it")


@contextlib.contextmanager
def set_aside(out: Path, is_said: bool) -> Iterator[None]:
    """Inside, what an earlier run has left in a folder is not there; its results come back where the new one gets
    nowhere.

    Args:
        is_said: tell the user that they go.

    Raises:
        CohortError: see demand_results_of_a_run.
    """
    demand_results_of_a_run(out)
    remove_parts(out)
    is_a_run, results = (out / "run.json").exists(), [name for name in RESULTS if (out / name).exists()]
    if results and is_said:
        print(f"cohort: {out} had an earlier run's results, which go; --resume would have gone on", file=sys.stderr)
    if results:
        (out / ASIDE).mkdir()
        for name in filter(lambda name: (out / name).exists(), ("run.json", *results)):
            os.replace(out / name, out / ASIDE / name)
    if is_a_run:
        for pattern in ("report-*.png", "trainer-*.log", "tensorboard/events.out.tfevents.*"):
            for path in out.glob(pattern):
                path.unlink(missing_ok=True)
    try:
        yield
    finally:
        bring_back(out)


def bring_back(out: Path) -> None:
    """Of what lies aside, also since a start was killed: removes it where a newer run has got somewhere."""
    if not (out / ASIDE).is_dir():
        return
    has_begun = (out / "run.json").exists() and ((out / METRICS).exists() or (out / CHECKPOINT).exists())
    if not has_begun:
        (out / "run.json").unlink(missing_ok=True)  # there only with all that belongs to it, wherever this is killed
        for path in sorted((out / ASIDE).iterdir(), key=lambda path: path.name == "run.json"):
            os.replace(path, out / path.name)
        print(f"cohort: the results of the earlier run in {out} are still there", file=sys.stderr)
    shutil.rmtree(out / ASIDE)


def remove_parts(out: Path) -> None:
    """Removes files that a run was killed over while it wrote them, and results of one before that lie aside."""
    shutil.rmtree(out / ASIDE, ignore_errors=True)
    for name in (*RESULTS, "run.json"):
        remove_temporaries(out / name)
    for part in out.glob("trace-*.part"):
        part.unlink(missing_ok=True)
