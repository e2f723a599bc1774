"""What a run has left in its folder, read back and checked."""

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from types import GenericAlias, new_class
from typing import Any, NamedTuple, NotRequired, TypedDict, get_type_hints

import msgspec

from cohort_gnn.base.errors import CohortError, not_a_run
from cohort_gnn.base.files import read_regular
from cohort_gnn.base.structures import line_of_json, misfit
from cohort_gnn.spec import files
from cohort_gnn.spec.graph import GraphTypes
from cohort_gnn.spec.options import options_of
from cohort_gnn.spec.results import (
    OF_RANK,
    TIERS,
    ByTier,
    EpochReport,
    GraphSizes,
    ListReads,
    RowReads,
    RunReport,
    Started,
    add_tiers,
)
from cohort_gnn.spec.run import RunSpec

# Options whose values are those of the sampler.
SETTLED = ("dataset", "device", "num_ranks", "gpus", "topology", "cache_bytes", "cache_policy")


@dataclass(frozen=True)
class ReadKind:
    """Rows or lists that a batch reads by tier: the names of their numbers in summary.json."""

    title: str
    count: str
    tiers: str  # of an epoch
    share: str  # of a plan
    bytes: str


ROWS = ReadKind("Feature rows", "rows", "row_tiers", "hit_rate", "bytes")
LISTS = ReadKind("Neighbour lists", "lists", "list_tiers", "list_hit_rate", "list_bytes")


class TierUse(NamedTuple):
    """What a batch of training reads from one tier, on average; planned: what the cache's plan said of it."""

    reads: float
    share: float  # of all reads of the kind
    bytes: float
    gb_per_s: float | None
    planned_share: float | None
    planned_bytes: float | None


class HeldPart(NamedTuple):
    """What caches hold of a node type or of a relation, as planned.

    Attributes:
        name: of the type, or "source name target".
        size: nodes of the type, or lists of the relation.
        held: rows or lists of each rank, and their bytes.
    """

    name: str
    size: int
    held: list[tuple[int, int]]


@dataclass
class Run:
    """A run that has finished an epoch.

    Attributes:
        summary: summary.json, checked.
        options: the members of run.json that say what was asked for, by name.
        rank_names: where each rank ran: "GPU 3", or "r1" on the CPU; of several machines "m0 GPU 3".
        held: of plan.json the member "ranks", checked; empty without one. Of several machines the first one's.
        parts: what caches hold of each node type with features and of each relation, where there are several.
        starts, graph: what was started, on what: as run.json has it; empty in one of an earlier version.
    """

    folder: Path
    summary: dict
    options: dict
    rank_names: list[str]
    held: list[dict]
    parts: list["HeldPart"]
    starts: list[Started]
    graph: GraphSizes | None

    @property
    def epochs(self) -> list[dict]:
        return self.summary["epochs"]

    @property
    def settled(self) -> list[dict]:
        """The epochs that shares and rates are taken from: all but the first, where there are others."""
        return self.epochs[1:] or self.epochs

    def uses(self, kind: ReadKind, rank: int | None = None) -> dict[str, TierUse]:
        """What a batch of a rank, or of any of them, reads: {tier: TierUse}; planned for several ranks: the mean."""
        ranks = range(len(self.rank_names)) if rank is None else [rank]
        parts = [ranks_of(epoch)[i] for epoch in self.settled for i in ranks]
        batches = max(1, sum(part["num_batches"] for part in parts))
        sums: dict[str, Counter[str]] = {tier: Counter() for tier in TIERS}
        for part in parts:
            add_tiers(sums, part[kind.tiers])
        reads = sum(tier[kind.count] for tier in sums.values())
        plans = (self.summary["cache"] or {}).get("predicted")
        if kind is ROWS and self.summary["rows_in_place"]:
            plans = None  # they count a row once a batch, and those in place are read by each edge
        planned = [plans[i] for i in ranks] if plans else []
        return {
            tier: TierUse(
                total[kind.count] / batches,
                total[kind.count] / reads if reads else 0.0,
                total["bytes"] / batches,
                total["bytes"] / total["seconds"] / 1e9 if total.get("seconds") else None,
                _mean([plan[kind.share] and plan[kind.share][tier] for plan in planned]),
                _mean([plan[kind.bytes] and plan[kind.bytes][tier] for plan in planned]),
            )
            for tier, total in sums.items()
        }

    def used_tiers(self, kind: ReadKind) -> list[str]:
        """The tiers from which some rank has read, or is planned to read."""
        uses = [self.uses(kind, rank) for rank in range(len(self.rank_names))]
        return [tier for tier in TIERS if any(by_tier[tier].reads or by_tier[tier].planned_share for by_tier in uses)]


def ranks_of(epoch: dict) -> list[dict]:
    """Times and reads of an epoch, one a rank."""
    return epoch["ranks"] or [epoch]


def one_line(value) -> str:
    """A text, or a member of a JSON file, with escapes for line breaks and all else that does not print."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def _mean(numbers: list[float | None]) -> float | None:
    known = [number for number in numbers if number is not None]
    return sum(known) / len(known) if known and len(known) == len(numbers) else None


def read_run(folder: Path) -> Run:
    """The run in a folder that `cohort train --out` has written.

    Raises:
        CohortError: it is no such folder, no epoch was finished, or a file is damaged or of another version.
    """
    run = _read(folder / files.RUN, _Run)
    if run is None:
        raise not_a_run(folder)
    summary = _read(folder / files.SUMMARY, _Summary)
    since = _epochs_since(folder / files.METRICS, len(summary["epochs"]) if summary else 0)
    if summary is None and since:
        actual = f"none beside {files.METRICS} of {len(since)} epoch{'s' * (len(since) > 1)}"
        hint = f"was the disk full? cohort train --resume {folder} finishes the run, and writes it"
        raise CohortError(str(folder / files.SUMMARY), "the results of the run", actual, hint)
    if summary is None or not summary["epochs"]:
        actual = "no summary.json" if summary is None else "none in summary.json"
        hint = f"wait for the first one; if the run has failed, {folder / 'trainer.log'} and sampler.log say why"
        raise CohortError(str(folder), "a run that has finished an epoch", actual, hint)
    summary["epochs"] += since
    plan = _read(folder / files.PLAN, _Plan) if summary["cache"] else None
    machine_ranks = run["machines"]["places"] if "machines" in run else None
    _check_ranks(folder, summary, plan if machine_ranks is None else None)
    if plan and machine_ranks and len(plan["ranks"]) > len(machine_ranks):
        raise CohortError(str(folder / files.PLAN), f"at most {len(machine_ranks)} ranks", str(len(plan["ranks"])))
    names = [
        option.name for option in options_of(RunSpec) if not option.is_hidden and option.name not in ("quiet", "mps")
    ]
    options = {name: run["sampler"].get(name) for name in SETTLED}
    options |= {name: run["trainer"].get(name) for name in names if name not in SETTLED}
    options |= {"mps": run.get("mps"), "time_sliced": run.get("time_sliced")}
    return Run(
        folder,
        summary,
        {name: value for name, value in options.items() if value is not None},
        _rank_names(run["sampler"].get("gpus"), machine_ranks, summary),
        plan["ranks"] if plan else [],
        _parts(folder, plan["ranks"]) if plan else [],
        run.get("starts", []),
        run.get("graph"),
    )


def _parts(folder: Path, held: list[dict]) -> list[HeldPart]:
    """See `Run.parts`.

    Raises:
        CohortError: the plan is of other types than the run.
    """
    types = _read(folder / files.RUN, _RunOfTypes)["trainer"].get("types")
    if types is None:
        return []
    rows = [rank["features"].get("types", []) for rank in held]
    lists = [rank["topology"].get("relations", []) for rank in held]  # none: they are read elsewhere
    counts, dims, edge_types = types.counts, types.feature_dims, types.edge_types
    good = all(len(rank_parts) == len(dims) for rank_parts in rows) and dims.keys() == counts.keys()
    good = good and all(len(rank_parts) in (0, len(edge_types)) for rank_parts in lists)
    if not good or any(target not in counts for _, _, target in edge_types):
        place = f"{folder / files.PLAN}: ranks"
        raise CohortError(place, "the node types and edge types of run.json", "other types", _OTHER_VERSION)
    parts = [
        HeldPart(name, counts[name], [(rank_parts[i]["rows"], rank_parts[i]["bytes"]) for rank_parts in rows])
        for i, (name, dim) in enumerate(dims.items())
        if dim
    ]
    if not all(lists):
        return parts
    return parts + [
        HeldPart(
            " ".join(name), counts[name[2]], [(rank_parts[i]["lists"], rank_parts[i]["bytes"]) for rank_parts in lists]
        )
        for i, name in enumerate(edge_types)
    ]


def _rank_names(gpus, machine_ranks: list[str] | None, summary: dict) -> list[str]:
    num_ranks = len(ranks_of(summary["epochs"][0]))
    if machine_ranks is not None and len(machine_ranks) == num_ranks:
        return [one_line(name) for name in machine_ranks]
    if isinstance(gpus, list) and len(gpus) == num_ranks:
        return [f"GPU {one_line(gpu)}" for gpu in gpus]
    return [one_line(summary["device"]).upper()] if num_ranks == 1 else [f"r{rank}" for rank in range(num_ranks)]


def _check_ranks(folder: Path, summary: dict, plan: dict | None) -> None:
    """Raises CohortError unless every list that has a member for each rank has as many as there are ranks."""
    num_ranks = summary["num_ranks"]
    epochs = enumerate(summary["epochs"])
    sizes = {f"summary.json: epochs[{i}].ranks": len(ranks_of(epoch)) for i, epoch in epochs}
    if summary["cache"]:
        sizes["summary.json: cache.predicted"] = len(summary["cache"]["predicted"])
    if plan:
        sizes["plan.json: ranks"] = len(plan["ranks"])
    for name, size in sizes.items():
        if size != num_ranks:
            raise CohortError(str(folder / name), f"one for each of {num_ranks} ranks", str(size), _OTHER_VERSION)


WRITTEN = "the JSON that cohort train writes"
_OTHER_VERSION = "if another version of cohort wrote it, report with that version, or train again"


def _dict_of(name: str, members: dict[str, Any]) -> type:
    """The type of dicts with these members, all of which are required: a TypedDict that is not written out, since its
    members are those that runs write."""
    return new_class(name, (TypedDict,), exec_body=lambda body: body.update(__annotations__=members))


_METRICS = dict[str, float | None]
_EPOCH = get_type_hints(EpochReport) | {"loss": float | None, "val_metrics": _METRICS}
_EPOCH |= {"row_tiers": ByTier[RowReads], "list_tiers": ByTier[ListReads]}
_Part = _dict_of("_Part", {name: _EPOCH[name] for name in OF_RANK})
_Epoch = _dict_of("_Epoch", _EPOCH | {"ranks": GenericAlias(list, _Part)})
_RUN = get_type_hints(RunReport) | {"val_metrics": _METRICS, "test_metrics": _METRICS}
_RUN |= {"loss_name": NotRequired[str]}
_Summary = _dict_of("_Summary", _RUN | {"epochs": GenericAlias(list, _Epoch)})


class _Rows(TypedDict):
    rows: int
    bytes: int


class _HeldRows(_Rows):
    types: NotRequired[list[_Rows]]


class _HeldLists(ListReads):
    relations: NotRequired[list[ListReads]]


class _Held(TypedDict):
    budget_bytes: int
    index_bytes: int
    used_bytes: int
    alpha: float
    features: _HeldRows
    topology: _HeldLists


class _Plan(TypedDict):
    ranks: list[_Held]


class _TrainerOfTypes(TypedDict):
    types: NotRequired[GraphTypes | None]


class _RunOfTypes(TypedDict):
    trainer: _TrainerOfTypes


class _Machines(TypedDict):
    places: list[str]


class _Run(TypedDict):
    sampler: dict
    trainer: dict
    mps: NotRequired[bool]
    time_sliced: NotRequired[bool]
    starts: NotRequired[list[Started]]
    graph: NotRequired[GraphSizes]
    machines: NotRequired[_Machines]


def _epochs_since(path: Path, num_epochs: int) -> list[dict]:
    """Of metrics.jsonl the epochs that summary.json does not have, of a run that is under way or was killed. A last
    line without its end is left out."""
    *lines, _ = (read_regular(path, WRITTEN, "train again") or b"").split(b"\n")
    return [_decoded(line, f"{path}: line {i + 1}", _Epoch) for i, line in enumerate(lines) if i >= num_epochs]


def _read(path: Path, shape: type):
    """A JSON file that has the members of `shape`, and maybe others, which are left out; None when there is none."""
    text = read_regular(path, WRITTEN, "train again")
    return None if text is None else _decoded(text, str(path), shape)


def _decoded(text: bytes, place: str, shape: type):
    """JSON that has the members of `shape`, and maybe others, which are left out."""
    try:
        return msgspec.json.decode(text, type=shape)
    except msgspec.ValidationError as error:
        member, expected, actual = misfit(error)
        place = f"{place}: {member}".removesuffix(": ")
        raise CohortError(place, expected or "the members that cohort train writes", actual, _OTHER_VERSION) from None
    except (ValueError, RecursionError) as error:
        line, actual = line_of_json(text)
        place = f"{place}: {line}".removesuffix(": ")
        raise CohortError(place, WRITTEN, actual, "train again") from error
