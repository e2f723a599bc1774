"""Where the time of an epoch goes, and what a run leaves behind."""

import json
import logging
import math
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path

from cohort.base.files import json_of, write_whole
from cohort.channel import TIERS

LOG = logging.getLogger(__name__)


def _no_rows() -> dict:
    return {tier: {"rows": 0, "bytes": 0, "seconds": 0.0} for tier in TIERS}


def _no_lists() -> dict:
    return {tier: {"lists": 0, "bytes": 0} for tier in TIERS}


def add_tiers(sums: dict, more: dict) -> None:
    """Adds counts by tier, {tier: {name: number}}, to others, in place."""
    for tier, numbers in more.items():
        for name, number in numbers.items():
            sums[tier][name] += number


@dataclass
class EpochReport:
    """One epoch of training. All times in seconds; sample and fetch are the sampler's, beside the trainer's.

    With several ranks the times are those of rank 0, the loss and the counts are those of all, and ``ranks`` has the
    times and what was read of each.

    Attributes:
        between_seconds: from the end of the epoch before, whose validation and results come in it, to this one's begin.
        val_metrics: how good the model is in validation, by name: "accuracy"; "rmse" and "mae"; or "micro_f1", as the
            data set's task is. Empty without validation.
        host_bytes: of feature rows read from host memory, encoded where they are kept so.
        row_tiers: feature rows by where they were read: how many, their stored bytes, the time of these reads.
        list_tiers: neighbour lists likewise: how many were drawn from, the bytes of the neighbours drawn and of what
            says where the lists are.
    """

    epoch: int
    seconds: float = 0.0
    wait_seconds: float = 0.0
    train_seconds: float = 0.0
    all_reduce_seconds: float = 0.0
    sample_seconds: float = 0.0
    fetch_seconds: float = 0.0
    between_seconds: float = 0.0
    loss: float = 0.0
    val_accuracy: float | None = None
    val_metrics: dict = field(default_factory=dict)
    num_batches: int = 0
    num_seeds: int = 0
    num_nodes: int = 0
    num_edges: int = 0
    host_bytes: int = 0
    row_tiers: dict = field(default_factory=_no_rows)
    list_tiers: dict = field(default_factory=_no_lists)
    ranks: list[dict] = field(default_factory=list)
    _line = None  # of line()

    def line(self) -> str:
        """The report of an epoch that is done, as JSON. It is made once, and does not change any more."""
        self._line = self._line or json_of(asdict(self))
        return self._line

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
        self.num_seeds += slot.num_seeds
        self.num_nodes += sum(slot.num_sampled_nodes)
        self.num_edges += sum(slot.num_sampled_edges)
        add_tiers(self.row_tiers, _named(slot.row_tiers, ("rows", "bytes", "seconds")))
        add_tiers(self.list_tiers, _named(slot.list_tiers, ("lists", "bytes")))
        self.host_bytes = self.row_tiers["host"]["bytes"]
        self.sample_seconds += slot.sample_us / 1e6
        self.fetch_seconds += slot.fetch_us / 1e6

    def merge(self, reports: list["EpochReport"]) -> None:
        """Makes this the report of all ranks; ``reports`` has that of each."""
        if len(reports) == 1:
            return
        own = [item.name for item in fields(self) if item.name.endswith("seconds")]
        own += ["num_batches", "row_tiers", "list_tiers"]
        self.ranks = [{name: getattr(report, name) for name in own} for report in reports]
        for name in ("num_batches", "num_seeds", "num_nodes", "num_edges", "host_bytes"):
            setattr(self, name, sum(getattr(report, name) for report in reports))
        self.row_tiers, self.list_tiers = _no_rows(), _no_lists()
        for report in self.ranks:
            add_tiers(self.row_tiers, report["row_tiers"])
            add_tiers(self.list_tiers, report["list_tiers"])


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def _named(tiers: list[tuple], names: tuple[str, ...]) -> dict:
    """Counts of a slot, a tuple a tier, as {tier: {name: number}}."""
    return {tier: dict(zip(names, numbers, strict=True)) for tier, numbers in zip(TIERS, tiers, strict=True)}


@dataclass
class RunReport:
    """What RUN/summary.json holds. The keys are stable."""

    test_accuracy: float | None = None
    val_accuracy: float | None = None
    best_epoch: int | None = None
    task: str = "classification"  # the data set's
    val_metrics: dict = field(default_factory=dict)  # as an epoch's, at the best of them
    test_metrics: dict = field(default_factory=dict)
    device: str = ""
    num_ranks: int = 1
    time_sliced: bool = False
    rows_in_place: bool = False  # batches had no features of their own: the model read those of the data set
    last_hop_global: bool = False  # num_nodes of epochs is without nodes that only the last hop reached
    epochs: list[EpochReport] = field(default_factory=list)
    bytes: dict = field(default_factory=lambda: {"host": 0, "peer": 0, "local": 0, "recent": 0})

    # Of a run without a cache, on a GPU: what it takes there beside the slots (gpu_memory.py); of all ranks the most.
    trainer_peak_bytes: int | None = None

    # Of its last beginning, to the first batch: {"seconds", "packages_seconds", "parts"}, see start.py.
    start: dict | None = None

    # The least time of each epoch: {"step_seconds", "epochs": [...]}, see floor.py.
    floor: dict | None = None

    # Of a run with a cache: {"predicted": a rank, "measured": a rank}, see cache_report.py.
    cache: dict | None = None

    def add_bytes(self, row_tiers: dict) -> None:
        """Counts the feature rows that a pass has read, of all ranks."""
        for tier, read in row_tiers.items():
            self.bytes[tier] += read["bytes"]

    def members(self) -> dict:
        """All members, each epoch as its line: what a checkpoint has of it."""
        lines = [epoch.line() for epoch in self.epochs]
        return asdict(replace(self, epochs=[])) | {"epochs": lines}

    def take_up(self, earlier: dict) -> None:
        """Makes the results of an earlier part of the run, members() of its report, the begin of this one's."""
        for name in ("val_accuracy", "val_metrics", "best_epoch", "bytes"):
            setattr(self, name, earlier[name])
        self.epochs = [EpochReport.from_line(line) for line in earlier["epochs"]]

    def write(self, path: Path, synced: bool) -> None:
        """Writes the summary as `write_whole` does."""
        members = self.members()
        texts = {name: json_of(value, indent=2).replace("\n", "\n  ") for name, value in members.items()}
        texts["epochs"] = "[\n    " + ",\n    ".join(members["epochs"]) + "\n  ]"
        text = ",\n  ".join(f'"{name}": {text}' for name, text in texts.items())
        write_whole(path, "{\n  " + text + "\n}\n", synced)


def write_metrics(path: Path, epochs: list[EpochReport]) -> None:
    """Replaces RUN/metrics.jsonl in one step: a JSON object a line and epoch. Lines that a full disk has refused come
    with the next one."""
    write_whole(path, "".join(epoch.line() + "\n" for epoch in epochs), synced=False)


def warn_of_divergence(epochs: list[EpochReport]) -> None:
    """Says once that the loss is no number any more: in the first epoch of which that is true, which is the last."""
    diverged = [epoch for epoch in epochs if not math.isfinite(epoch.loss)]
    if len(diverged) == 1 and diverged[0] is epochs[-1]:
        number = diverged[0].epoch + 1
        LOG.warning(f"the loss has not been finite since epoch {number}: a smaller --lr may help")
