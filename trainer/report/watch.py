"""How a run goes, for programs that watch it: scalars for TensorBoard, and a text file for Prometheus."""

import time
from pathlib import Path

from cohort.base.files import write_whole
from cohort.trainer.messages import unless_full
from cohort.trainer.report.metrics import EpochReport

WRITE_SECONDS = 5.0  # between two files for Prometheus while an epoch goes on
PARTS = ("wait", "train", "all_reduce", "sample", "fetch")


class Watch:
    """Tells of a run as it goes; of nothing where nobody asked. As a context: leaving it says that nothing runs.

    Args:
        out: the run's folder; TensorBoard's events go to ``out``/tensorboard.
        tensorboard: whether to write events, one of each scalar an epoch.
        prometheus: a file in the format of Prometheus's text collectors, replaced in one step; None: none.
        num_ranks: of the run, whose first trainer this is.

    Raises:
        ImportError: the package tensorboard is not there.
    """

    def __init__(self, out: Path, tensorboard: bool = False, prometheus: Path | None = None, num_ranks: int = 1):
        self._events = None
        if tensorboard:
            from torch.utils.tensorboard import SummaryWriter

            self._events = SummaryWriter(out / "tensorboard")
        self._file = prometheus
        self._run, self._num_ranks = out.name, num_ranks
        self._epochs = self._seeds = 0
        self._folder = out / "tensorboard"
        self._scalars: dict[str, float] = {}
        self._last_write = -WRITE_SECONDS
        self._has_ended = False

    def __enter__(self) -> "Watch":
        return self

    def __exit__(self, *_) -> None:
        """A run that fails, or is stopped, runs no more."""
        if self._file and not self._has_ended:
            self._write(running=False)

    def take_up(self, epochs: int, num_seeds: int) -> None:
        """The run has done so many epochs and seeds before; what was told of later epochs does not count."""
        self._epochs, self._seeds = epochs, num_seeds
        if self._events:
            from torch.utils.tensorboard import SummaryWriter

            self._events.close()
            self._events = SummaryWriter(self._folder, purge_step=epochs + 1)

    def step(self, num_seeds: int) -> None:
        """Counts a step of this rank; the others take as many seeds."""
        self._seeds += num_seeds * self._num_ranks
        if self._file and time.monotonic() - self._last_write >= WRITE_SECONDS:
            self._write(running=True)

    def epoch_ended(self, report: EpochReport) -> None:
        """Tells what the epoch was like; its number is one more than ``report.epoch``."""
        self._epochs = report.epoch + 1
        self._scalars = scalars_of(report)
        if self._events:
            with unless_full(self._folder):
                for name, value in self._scalars.items():
                    self._events.add_scalar(name, value, self._epochs)
                self._events.flush()
        if self._file:
            self._write(running=True)

    def run_ended(self, test_metrics: dict[str, float]) -> None:
        """Tells that the run has ended well."""
        self._has_ended = True
        of_test = {f"{name}/test": value for name, value in test_metrics.items()}
        self._scalars |= of_test
        if self._events:
            with unless_full(self._folder):
                for name, value in of_test.items():
                    self._events.add_scalar(name, value, self._epochs)
                self._events.close()
        if self._file:
            self._write(running=False)

    def _write(self, running: bool) -> None:
        with unless_full(self._file):
            write_whole(self._file, self._text(running), synced=False)
        self._last_write = time.monotonic()

    def _text(self, running: bool) -> str:
        run = self._run.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        lines = []
        for name, kind, value in (
            ("running", "gauge", int(running)),
            ("updated_timestamp_seconds", "gauge", time.time()),
            ("epochs_total", "counter", self._epochs),
            ("seeds_total", "counter", self._seeds),
        ):
            lines += [f"# TYPE cohort_{name} {kind}", f'cohort_{name}{{run="{run}"}} {value}']
        groups: dict[str, list[str]] = {}  # a metric's lines stand together, behind its type
        for name, value in self._scalars.items():
            group, _, label = name.partition("/")
            lines_of_group = groups.setdefault(group, [f"# TYPE cohort_{group} gauge"])
            lines_of_group.append(f'cohort_{group}{{run="{run}",of="{label}"}} {value}')
        lines += [line for of_group in groups.values() for line in of_group]
        return "\n".join(lines) + "\n"


def scalars_of(report: EpochReport) -> dict[str, float]:
    """{"group/name": value} of an epoch: loss, accuracy or alike, seconds, bytes of rows and shares of rows by tier."""
    scalars = {"loss/train": report.loss}
    scalars |= {f"{name}/val": value for name, value in report.val_metrics.items()}
    scalars["seconds/epoch"] = report.seconds
    scalars |= {f"seconds/{part}": getattr(report, f"{part}_seconds") for part in PARTS}
    scalars |= {f"bytes/{tier}": read["bytes"] for tier, read in report.row_tiers.items()}
    rows = sum(read["rows"] for read in report.row_tiers.values())
    return scalars | {f"share/{tier}": read["rows"] / max(1, rows) for tier, read in report.row_tiers.items()}
