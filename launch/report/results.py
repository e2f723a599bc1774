"""What a run has left in its folder, read back and checked."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from cohort.base.errors import CohortError, not_a_run
from cohort.channel import TIERS
from cohort.spec.options import options_of
from cohort.spec.run import RunSpec

TIMELINE_ROWS = ("sample", "fetch", "train")
SETTLED = (
    "dataset",
    "device",
    "num_ranks",
    "gpus",
    "topology",
    "cache_bytes",
    "cache_policy",
)  # as the sampler is told
TIMES = ("seconds", "wait_seconds", "train_seconds", "all_reduce_seconds", "sample_seconds", "fetch_seconds")


class Kind(NamedTuple):
    """What a batch reads by tier: where the numbers of it stand in summary.json, and its name in plan.json."""

    title: str
    count: str
    tiers: str  # of an epoch
    share: str  # of a plan
    bytes: str
    plan: str


ROWS = Kind("Feature rows", "rows", "row_tiers", "hit_rate", "bytes", "features")
LISTS = Kind("Neighbour lists", "lists", "list_tiers", "list_hit_rate", "list_bytes", "topology")


class TierUse(NamedTuple):
    """What a batch of training reads from one tier, on average; planned: what the cache's plan said of it."""

    reads: float
    share: float  # of all reads of the kind
    bytes: float
    gb_per_s: float | None
    planned_share: float | None
    planned_bytes: float | None


@dataclass
class Run:
    """A run that has finished an epoch.

    Attributes:
        summary: summary.json, checked.
        options: the members of run.json that say what was asked for, by name.
        places: where each rank ran: "GPU 3", or "r1" on the CPU.
        held: of plan.json the member "ranks", checked; empty without one.
        timeline: timeline.json, checked; None without one.
    """

    folder: Path
    summary: dict
    options: dict
    places: list[str]
    held: list[dict]
    timeline: dict | None = None

    @property
    def epochs(self) -> list[dict]:
        return self.summary["epochs"]

    @property
    def settled(self) -> list[dict]:
        """The epochs that shares and rates are taken from: all but the first, where there are others."""
        return self.epochs[1:] or self.epochs

    def uses(self, kind: Kind, rank: int | None = None) -> dict[str, TierUse]:
        """What a batch of a rank, or of any of them, reads: {tier: TierUse}; planned for several ranks: the mean."""
        ranks = range(len(self.places)) if rank is None else [rank]
        parts = [ranks_of(epoch)[i] for epoch in self.settled for i in ranks]
        batches = max(1, sum(part["num_batches"] for part in parts))
        sums = {tier: _sum([part[kind.tiers][tier] for part in parts]) for tier in TIERS}
        reads = sum(tier[kind.count] for tier in sums.values())
        plans = (self.summary["cache"] or {}).get("predicted")
        if kind is ROWS and self.summary.get("rows_in_place"):
            plans = None  # they count a row once a batch, and those in place are read by each edge
        planned = [plans[i] for i in ranks] if plans else []
        return {
            tier: TierUse(
                found[kind.count] / batches,
                found[kind.count] / reads if reads else 0.0,
                found["bytes"] / batches,
                found["bytes"] / found["seconds"] / 1e9 if found.get("seconds") else None,
                _mean([plan[kind.share] and plan[kind.share][tier] for plan in planned]),
                _mean([plan[kind.bytes] and plan[kind.bytes][tier] for plan in planned]),
            )
            for tier, found in sums.items()
        }


def ranks_of(epoch: dict) -> list[dict]:
    """Times and reads of an epoch, one a rank."""
    return epoch["ranks"] or [epoch]


def one_line(value) -> str:
    """A text, or a member of a JSON file, with escapes for line breaks and all else that does not print."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


def _sum(records: list[dict]) -> dict:
    return {name: sum(record[name] for record in records) for name in records[0]}


def _mean(numbers: list[float | None]) -> float | None:
    return None if not numbers or None in numbers else sum(numbers) / len(numbers)


def read_run(folder: Path) -> Run:
    """The run in a folder that `cohort train --out` has written.

    Raises:
        CohortError: it is no such folder, no epoch was finished, or a file is damaged or of another version.
    """
    run = _read(folder / "run.json", _RUN)
    if run is None:
        raise not_a_run(folder)
    summary = _read(folder / "summary.json", _SUMMARY)
    if summary is None or not summary["epochs"]:
        found = "no summary.json" if summary is None else "none in summary.json"
        hint = f"wait for the first one; if the run has failed, {folder / 'trainer.log'} and sampler.log say why"
        raise CohortError(str(folder), "a run that has finished an epoch", found, hint)
    plan = _read(folder / "plan.json", _PLAN) if summary["cache"] else None
    timeline = _read(folder / "timeline.json", _TIMELINE)
    _check_ranks(folder, summary, plan, timeline)
    names = [each.name for each in options_of(RunSpec) if each.name not in ("quiet", "mps")]
    options = {name: run["sampler"].get(name) for name in SETTLED}
    options |= {name: run["trainer"].get(name) for name in names if name not in SETTLED}
    options |= {"mps": run.get("mps"), "time_sliced": run.get("time_sliced")}
    return Run(
        folder,
        summary,
        {name: value for name, value in options.items() if value is not None},
        _places(run["sampler"].get("gpus"), summary),
        plan["ranks"] if plan else [],
        timeline,
    )


def _places(gpus, summary: dict) -> list[str]:
    num_ranks = len(ranks_of(summary["epochs"][0]))
    if isinstance(gpus, list) and len(gpus) == num_ranks:
        return [f"GPU {one_line(gpu)}" for gpu in gpus]
    return [one_line(summary["device"]).upper()] if num_ranks == 1 else [f"r{rank}" for rank in range(num_ranks)]


def _check_ranks(folder: Path, summary: dict, plan: dict | None, timeline: dict | None) -> None:
    """Raises CohortError unless every list that has a member for each rank has as many as there are ranks."""
    num_ranks = summary["num_ranks"]
    epochs = enumerate(summary["epochs"])
    sizes = {f"summary.json: epochs[{i}].ranks": len(ranks_of(epoch)) for i, epoch in epochs}
    if summary["cache"]:
        sizes["summary.json: cache.predicted"] = len(summary["cache"]["predicted"])
    if plan:
        sizes["plan.json: ranks"] = len(plan["ranks"])
    if timeline:
        sizes["timeline.json: ranks"] = len(timeline["ranks"])
    for name, size in sizes.items():
        if size != num_ranks:
            raise CohortError(str(folder / name), f"one for each of {num_ranks} ranks", str(size), _OTHER_VERSION)


_OTHER_VERSION = "if another version of cohort wrote it, report with that version, or train again"


def _read(path: Path, shape: dict) -> dict | None:
    """A JSON file of the given shape (see _check); None when there is none."""
    try:
        value = json.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise CohortError(str(path), "the JSON that cohort train writes", str(error), "train again") from error
    _check(value, shape, f"{path}: ")
    return value


class _Maybe(NamedTuple):
    shape: object  # of what may also be null


_NUMBER, _TEXT, _METRICS = "a number", "a text", "an object of numbers"
_ROWS_BY_TIER = {tier: dict.fromkeys(("rows", "bytes", "seconds"), _NUMBER) for tier in TIERS}
_LISTS_BY_TIER = {tier: dict.fromkeys(("lists", "bytes"), _NUMBER) for tier in TIERS}
_PART = dict.fromkeys((*TIMES, "num_batches"), _NUMBER) | {"row_tiers": _ROWS_BY_TIER, "list_tiers": _LISTS_BY_TIER}
_BY_TIER = _Maybe(dict.fromkeys(TIERS, _NUMBER))
_PREDICTED = dict.fromkeys((kind_name for kind in (ROWS, LISTS) for kind_name in (kind.share, kind.bytes)), _BY_TIER)
_SUMMARY = {
    "device": _TEXT,
    "num_ranks": _NUMBER,
    "val_accuracy": _Maybe(_NUMBER),
    "val_metrics": _METRICS,
    "test_metrics": _METRICS,
    "test_accuracy": _Maybe(_NUMBER),
    "epochs": [_PART | {"epoch": _NUMBER, "ranks": [_PART]}],
    "cache": _Maybe({"predicted": [_PREDICTED]}),
    "floor": _Maybe({"epochs": [{"seconds": _NUMBER, "bottleneck": _TEXT}]}),
}
_HELD = dict.fromkeys(("budget_bytes", "index_bytes", "used_bytes", "alpha"), _NUMBER) | {
    kind.plan: {kind.count: _NUMBER, "bytes": _NUMBER} for kind in (ROWS, LISTS)
}
_PLAN = {"ranks": [_HELD]}
_RUN = {"sampler": {}, "trainer": {}}
_SPAN = "a begin and an end"
_TIMELINE = {"epoch": _NUMBER, "ranks": [dict.fromkeys(TIMELINE_ROWS, [_SPAN])]}


def _check(value, shape, place: str) -> None:
    """Raises CohortError where a value has not the shape.

    Args:
        shape: a dict: an object that has at least these members, each of its shape; a list: a list of what its one
            member says; _NUMBER (a finite one), _TEXT, _SPAN, _METRICS, or _Maybe of a shape.
        place: how the error names the value.
    """
    if isinstance(shape, _Maybe):
        if value is not None:
            _check(value, shape.shape, place)
    elif isinstance(shape, dict):
        _expect(isinstance(value, dict), place, "an object", value)
        for name, inner in shape.items():
            if inner is _METRICS and name not in value:  # earlier versions have accuracies alone
                continue
            member = f"{place}{name}" if place.endswith(": ") else f"{place}.{name}"
            _expect(name in value, member, "a member of this name", "none")
            _check(value[name], inner, member)
    elif isinstance(shape, list):
        _expect(isinstance(value, list), place, "a list", value)
        for i, item in enumerate(value):
            _check(item, shape[0], f"{place}[{i}]")
    else:
        _expect(_KINDS[shape](value), place, shape, value)


def _are_metrics(value) -> bool:
    return isinstance(value, dict) and all(each is None or _is_number(each) for each in value.values())


def _is_text(value) -> bool:
    return isinstance(value, str)


def _is_span(value) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(_is_number, value)) and value[0] <= value[1]


def _is_number(value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


_KINDS = {_NUMBER: _is_number, _METRICS: _are_metrics, _TEXT: _is_text, _SPAN: _is_span}


def _expect(is_so: bool, place: str, expected: str, found) -> None:
    if not is_so:
        raise CohortError(place.removesuffix(": "), expected, str(found)[:60], _OTHER_VERSION)
