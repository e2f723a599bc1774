"""What a run measures: each epoch, a line of RUN/metrics.jsonl, and RUN/summary.json. Its keys are stable."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Generic, NotRequired, TypedDict, TypeVar

import msgspec

from cohort_gnn.base.files import write_whole

TIMES = ("seconds", "wait_seconds", "train_seconds", "all_reduce_seconds", "sample_seconds", "fetch_seconds")
OF_RANK = (*TIMES, "between_seconds", "num_batches", "row_tiers", "list_tiers")  # of an epoch, what each rank has of it
Of = TypeVar("Of")


class ByTier(TypedDict, Generic[Of]):
    """In the order of a slot's counts: GPU, other GPU, host memory, pool of rows of earlier batches, disk,
    memory of other machines."""

    local: Of
    peer: Of
    host: Of
    recent: Of
    disk: Of
    remote: Of


class RowReads(TypedDict):
    rows: int
    bytes: int  # as stored
    seconds: float


class ListReads(TypedDict):
    lists: int  # from which neighbours were drawn
    bytes: int  # of these neighbours, and of what says where the lists are


TIERS = tuple(ByTier.__annotations__)


CONSTANT = {"accuracy": "the most common class", "micro_f1": "the most common labels", "rmse": "the mean"}
GAIN = 0.05  # share of the possible gain over a constant answer: a model below it has hardly learned anything


def hardly_better(name: str, value: float | None, baseline: float | None) -> str:
    """A message that a model's metric is hardly better than that of one answer for all nodes; "" if it is better, or
    unknown."""
    if value is None or baseline is None or name not in CONSTANT:
        return ""
    is_error = name == "rmse"
    gained, possible_gain = (baseline - value, baseline) if is_error else (value - baseline, 1 - baseline)
    if gained >= GAIN * possible_gain and gained > 0 or (is_error and baseline == 0):
        return ""
    achieved, constant = (f"{number:.4g}" if is_error else f"{100 * number:.2f} %" for number in (value, baseline))
    return f"{name} {achieved} is hardly better than naming {CONSTANT[name]} for every node: {constant}"


def _no_reads(counts_type: type) -> dict:
    return {tier: dict.fromkeys(counts_type.__annotations__, 0) for tier in TIERS}


def add_tiers(sums: dict, more: dict) -> None:
    """Adds counts by tier, {tier: {name: number}}, to others, in place."""
    for tier, numbers in more.items():
        for name, number in numbers.items():
            sums[tier][name] += number


class Started(TypedDict):
    """A member of run.json's "starts", one for each time that the run was started or resumed."""

    command: str
    date: str  # local, with the time zone's offset
    host: str
    cpu: str  # cores that it may use, and their model
    gpus: list[str]  # names of those that it uses
    versions: dict[str, str]  # by package
    slurm_job: NotRequired[str]


class GraphSizes(TypedDict):
    """run.json's "graph"; numbers by node type or relation where these have names."""

    num_nodes: int
    num_edges: int
    num_classes: int
    splits: dict[str, int]  # nodes of each
    feature_dims: dict[str, int]  # by node type; "" is one without a name
    node_types: NotRequired[dict[str, int]]
    edge_types: NotRequired[dict[str, int]]


@dataclass
class EpochReport:
    """One epoch of training. All times in seconds; sample and fetch are the sampler's, beside the trainer's.

    With several ranks the times are those of rank 0, the loss and the counts are those of all, and ``ranks`` has the
    times and what was read of each.

    Attributes:
        between_seconds: from the end of the epoch before, whose validation and results come in it, to this one's begin.
        validate_seconds: of the validation after this epoch.
        val_metrics: how good the model is in validation, by name: "accuracy"; "rmse" and "mae"; or "micro_f1", as the
            data set's task is. Empty without validation.
        host_bytes: of feature rows read from host memory, encoded where they are kept so.
        row_tiers, list_tiers: ByTier[RowReads] and ByTier[ListReads].
        coarse: training read features with an error, of which RunReport.coarse_error is the bound.
    """

    epoch: int
    seconds: float = 0.0
    wait_seconds: float = 0.0
    train_seconds: float = 0.0
    all_reduce_seconds: float = 0.0
    sample_seconds: float = 0.0
    fetch_seconds: float = 0.0
    between_seconds: float = 0.0
    validate_seconds: float = 0.0
    loss: float = 0.0
    val_accuracy: float | None = None
    val_metrics: dict[str, float] = field(default_factory=dict)
    num_batches: int = 0
    num_seeds: int = 0
    num_nodes: int = 0
    num_edges: int = 0
    host_bytes: int = 0
    row_tiers: dict = field(default_factory=lambda: _no_reads(RowReads))
    list_tiers: dict = field(default_factory=lambda: _no_reads(ListReads))
    ranks: list[dict] = field(default_factory=list)
    coarse: bool = False

    def line(self) -> str:
        """The report as JSON."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_line(cls, line: str) -> "EpochReport":
        """What ``line()`` gave; where a number was not finite, it is NaN."""
        members = json.loads(line)
        members["loss"] = _number(members["loss"])
        members["val_metrics"] = {name: _number(value) for name, value in members["val_metrics"].items()}
        return cls(**members)

    def add(self, slot) -> None:
        """Counts a batch, unless it is the empty one of a rank for which none is left."""
        self.num_batches += slot.num_seeds > 0
        self.num_seeds += slot.num_inputs
        self.num_nodes += sum(slot.num_sampled_nodes)
        self.num_edges += sum(slot.num_sampled_edges)
        add_tiers(self.row_tiers, _named(slot.row_tiers, RowReads))
        add_tiers(self.list_tiers, _named(slot.list_tiers, ListReads))
        self.host_bytes = self.row_tiers["host"]["bytes"]
        self.sample_seconds += slot.sample_us / 1e6
        self.fetch_seconds += slot.fetch_us / 1e6

    def merge(self, reports: Sequence["EpochReport"]) -> None:
        """Makes this the report of all ranks; ``reports`` has that of each."""
        if len(reports) == 1:
            return
        self.ranks = [{name: getattr(report, name) for name in OF_RANK} for report in reports]
        for name in ("num_batches", "num_seeds", "num_nodes", "num_edges", "host_bytes"):
            setattr(self, name, sum(getattr(report, name) for report in reports))
        self.row_tiers, self.list_tiers = _no_reads(RowReads), _no_reads(ListReads)
        for report in reports:
            add_tiers(self.row_tiers, report.row_tiers)
            add_tiers(self.list_tiers, report.list_tiers)


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def _named(tiers: list[tuple], counts_type: type) -> dict:
    """Counts of a slot, a tuple a tier, as {tier: {name: number}}."""
    names = counts_type.__annotations__
    return {tier: dict(zip(names, counts, strict=True)) for tier, counts in zip(TIERS, tiers, strict=True)}


class StartPart(TypedDict):
    part: str
    bytes: int
    seconds: float


class Start(TypedDict):
    seconds: float  # to the first batch
    packages_seconds: float  # to when the trainer had its packages
    parts: list[StartPart]  # of the sampler, before its first batch


class Expected(TypedDict):
    hit_rate: ByTier[float] | None  # None: nobody counted
    bytes: ByTier[float] | None
    list_hit_rate: ByTier[float] | None
    list_bytes: ByTier[float] | None


class Cache(TypedDict):
    predicted: list[Expected]  # of a batch of each rank
    measured: list[dict]


class Floor(TypedDict):
    seconds: float
    bottleneck: str


class Floors(TypedDict):
    epochs: list[Floor]


@dataclass
class RunReport:
    """What RUN/summary.json holds.

    Attributes:
        task: the data set's.
        loss_name: which loss that of the epochs is, in words.
        val_metrics: as an epoch's, at the best of them.
        rows_in_place: batches named rows of a table of all rows.
        last_hop_global: num_nodes of epochs is without nodes that only the last hop reached.
        coarse_epochs: training read features with an error in the first so many epochs.
        coarse_error: the bound of this error, relative to each feature; 0: there were no such epochs.
        baselines: of "val" and "test", what the metric would be if all nodes got the same answer; of links none.
        seconds: from the start of the run's programs to what was written last, of all parts of a resumed run.
        trainer_peak_bytes: of a run without a cache, on a GPU: what it takes there beside the slots; of all ranks the
            most.
        start: of its last beginning.
    """

    test_accuracy: float | None = None
    val_accuracy: float | None = None
    best_epoch: int | None = None
    task: str = "classification"
    loss_name: str = ""
    val_metrics: dict[str, float] = field(default_factory=dict)
    test_metrics: dict[str, float] = field(default_factory=dict)
    device: str = ""
    num_ranks: int = 1
    time_sliced: bool = False
    rows_in_place: bool = False
    last_hop_global: bool = False
    coarse_epochs: int = 0
    coarse_error: float = 0.0
    epochs: list[EpochReport] = field(default_factory=list)
    bytes: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TIERS, 0))
    baselines: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    trainer_peak_bytes: int | None = None
    start: Start | None = None
    floor: Floors | None = None
    cache: Cache | None = None

    def add_bytes(self, row_tiers: dict) -> None:
        """Counts the feature rows that a pass has read, of all ranks."""
        for tier, read in row_tiers.items():
            self.bytes[tier] += read["bytes"]

    def members(self) -> dict:
        """All members, each epoch as its line: what a checkpoint has of it."""
        return asdict(replace(self, epochs=[])) | {"epochs": [epoch.line() for epoch in self.epochs]}

    def take_up(self, earlier: dict) -> None:
        """Makes the results of an earlier part of the run, members() of its report, the begin of this one's."""
        for name in ("val_accuracy", "val_metrics", "best_epoch", "bytes", "seconds"):
            setattr(self, name, earlier[name])
        self.epochs = [EpochReport.from_line(line) for line in earlier["epochs"]]

    def write(self, path: Path, synced: bool) -> None:
        """Writes the summary as `write_whole` does; null stands for what is no finite number."""
        write_whole(path, msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n", synced)
