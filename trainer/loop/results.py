"""What a run leaves: summary.json, metrics.jsonl and model.pt."""

import copy
import functools
import logging
import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from torch import Tensor

from cohort_gnn.base.files import write_whole
from cohort_gnn.spec import files
from cohort_gnn.spec.results import EpochReport, RunReport, hardly_better
from cohort_gnn.trainer.loop.checkpoint import on_cpu
from cohort_gnn.trainer.models.targets import is_better
from cohort_gnn.trainer.models.weights import save_model
from cohort_gnn.trainer.report.cache_report import ReadsByRank
from cohort_gnn.trainer.report.callback import Callback
from cohort_gnn.trainer.report.messages import unless_full, unless_missing
from cohort_gnn.trainer.report.start import start_summary

LOG = logging.getLogger(__name__)
Guard = Callable[[Path], AbstractContextManager[None]]  # what becomes of an error of writing the file
SUMMARY_GROWTH = 16  # the summary is written again with 1/16 more epochs: its cost an epoch does not grow with the run


class Results(Callback):
    """Keeps the results of a run, and the weights of the epoch that did best, and writes them.

    Args:
        began, loaded_at: seconds of time.monotonic() when the run began, and this program had its packages.
    """

    def __init__(self, began: float, loaded_at: float):
        self._start = began, loaded_at

    def run_begins(self, trainer) -> None:
        """In a resumed run, the files get the epochs of its checkpoint, and no others."""
        self._reads, self._lines, self._num_summarized = ReadsByRank(), EpochLines(trainer.out / files.METRICS), 0
        self._has_diverged = not all(math.isfinite(report.loss) for report in trainer.report.epochs)
        self._seconds_before = trainer.report.seconds
        for report in trainer.report.epochs:
            self._count(trainer, report)
        if trainer.report.epochs or self._lines.path.exists():
            self._write_lines(trainer, self._lines.replace)

    def epoch_ended(self, trainer, report: EpochReport) -> None:
        trainer.report.epochs.append(report)
        self._tell_seconds(trainer)  # for the checkpoint, too
        trainer.report.add_bytes(report.row_tiers)
        self._count(trainer, report)
        if is_best(report, trainer.report, trainer.monitor):
            trainer.best_model = copy.deepcopy(trainer.model.state_dict())
            self._keep_model(trainer, unless_full)
        if not math.isfinite(report.loss) and not self._has_diverged:
            self._has_diverged = True
            if trainer.ranks.rank == 0:
                since = f"the loss has not been finite since epoch {report.epoch + 1}"
                LOG.warning(f"{since}: cohort dataset check finds NaN in the data; otherwise a smaller --lr may help")
        self._write_lines(trainer, self._lines.add)
        is_last = trainer.stops_early or report.epoch + 1 == trainer.options.epochs
        if is_last or SUMMARY_GROWTH * len(trainer.report.epochs) >= (SUMMARY_GROWTH + 1) * self._num_summarized:
            self._write_summary(trainer, unless_full, synced=False)

    def run_stops(self, trainer) -> None:
        if len(trainer.report.epochs) > self._num_summarized:
            self._write_summary(trainer, unless_full, synced=False)

    def run_ended(self, trainer, report: RunReport) -> None:
        targets = trainer.targets
        for split, metrics in {"test": report.test_metrics, "val": report.val_metrics}.items():
            comparison = hardly_better(targets.metric, metrics.get(targets.metric), report.baselines.get(split))
            if comparison and trainer.ranks.rank == 0 and trainer.options.max_batches is None:
                message = f"{'test' if split == 'test' else 'validation'} {comparison}"
                LOG.warning(message, extra={"is_shown": not trainer.quiet})
                break
        self._keep_model(trainer, unless_missing)  # a disk may have been full when it was the best
        # Its errors are raised when the run's last lines are written.
        trainer.writer.write(functools.partial(self._write_summary, trainer, unless_missing, synced=True))

    def _tell_seconds(self, trainer) -> None:
        trainer.report.seconds = self._seconds_before + time.monotonic() - self._start[0]

    def _count(self, trainer, report: EpochReport) -> None:
        self._reads.add(report)
        if trainer.report.cache:
            trainer.report.cache["measured"] = self._reads.shares()

    def _keep_model(self, trainer, guard: Guard) -> None:
        """For cohort predict; not of a run that is only to be measured."""
        if trainer.ranks.rank == 0 and trainer.options.max_batches is None:
            trainer.writer.write(functools.partial(_save, trainer.out, on_cpu(trainer.best_model), guard))

    def _write_lines(self, trainer, write: Callable[[list[EpochReport]], None]) -> None:
        if trainer.ranks.rank == 0:
            with unless_full(self._lines.path):
                write(trainer.report.epochs)

    def _write_summary(self, trainer, guard: Guard, synced: bool) -> None:
        report, source = trainer.report, trainer.source
        self._tell_seconds(trainer)
        if report.start is None and source.first_batch_at is not None:
            report.start = start_summary(source.folder, *self._start, source.first_batch_at)
        if trainer.ranks.rank == 0:
            with guard(trainer.out / files.SUMMARY):
                report.write(trainer.out / files.SUMMARY, synced)
                self._num_summarized = len(report.epochs)


def _save(run: Path, weights: dict[str, Tensor], guard: Guard) -> None:
    with guard(run / files.MODEL):
        save_model(run, weights)


def is_best(epoch: EpochReport, run: RunReport, metric: str) -> bool:
    """Whether to keep the epoch's weights, as the run then says: best in validation by this
    metric, or the last without it."""
    if metric in epoch.val_metrics and metric in run.val_metrics:
        if not is_better(metric, epoch.val_metrics[metric], run.val_metrics[metric]):
            return False
    run.val_accuracy, run.val_metrics, run.best_epoch = epoch.val_accuracy, epoch.val_metrics, epoch.epoch
    return True


class EpochLines:
    """RUN/metrics.jsonl: a JSON object a line and epoch. An epoch adds its line at the end.

    Of a process that was killed the last line may be a part of one, without its end. `replace` drops it.
    """

    def __init__(self, path: Path):
        self.path, self._num_epochs, self._size = path, 0, 0  # whole lines, and their bytes

    def replace(self, epochs: list[EpochReport]) -> None:
        """Makes the file that of these epochs, in one step."""
        data = _lines_of(epochs)
        write_whole(self.path, data, synced=False)
        self._num_epochs, self._size = len(epochs), len(data)

    def add(self, epochs: list[EpochReport]) -> None:
        """Adds the lines of those of the run's epochs that the file does not have; more than one where a full disk has
        refused some.

        Raises:
            OSError: they cannot be written; the file has whole lines, as before.
        """
        if not self._size or not self.path.exists() or self.path.stat().st_size != self._size:
            return self.replace(epochs)  # the first lines, or somebody has changed them
        data = _lines_of(epochs[self._num_epochs :])
        with self.path.open("r+b", buffering=0) as file:
            file.seek(self._size)
            try:
                left = memoryview(data)
                while left:
                    left = left[file.write(left) :]
            except OSError:
                file.truncate(self._size)
                raise
        self._num_epochs, self._size = len(epochs), self._size + len(data)
        return None


def _lines_of(epochs: list[EpochReport]) -> bytes:
    return "".join(epoch.line() + "\n" for epoch in epochs).encode()
