"""What a run leaves: summary.json, metrics.jsonl and model.pt."""

import copy
import functools
import logging
import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from torch import Tensor

from cohort_gnn.base.files import write_whole
from cohort_gnn.spec import files
from cohort_gnn.spec.results import EpochReport, RunReport
from cohort_gnn.trainer.loop.checkpoint import on_cpu
from cohort_gnn.trainer.messages import unless_full, unless_missing
from cohort_gnn.trainer.models.targets import Targets, is_better
from cohort_gnn.trainer.models.weights import save_model
from cohort_gnn.trainer.report.cache_report import ReadsByRank
from cohort_gnn.trainer.report.callback import Callback
from cohort_gnn.trainer.report.start import start_told

LOG = logging.getLogger(__name__)
Guard = Callable[[Path], AbstractContextManager[None]]  # what becomes of an error of writing the file


class Results(Callback):
    """Keeps the results of a run, and the weights of the epoch that did best, and writes them.

    Args:
        began, loaded_at: seconds of time.monotonic() when the run began, and this program had its packages.
    """

    def __init__(self, began: float, loaded_at: float):
        self._start = began, loaded_at

    def run_begins(self, trainer) -> None:
        """Of a run that is resumed the files hold the epochs of its checkpoint, and no others."""
        self._reads = ReadsByRank()
        for report in trainer.report.epochs:
            self._count(trainer, report)
        if trainer.report.epochs or (trainer.out / files.METRICS).exists():
            self._write_metrics(trainer)

    def epoch_ended(self, trainer, report: EpochReport) -> None:
        trainer.report.epochs.append(report)
        trainer.report.add_bytes(report.row_tiers)
        self._count(trainer, report)
        if is_best(report, trainer.report, trainer.targets):
            trainer.best_model = copy.deepcopy(trainer.model.state_dict())
            self._keep_model(trainer, unless_full)
        diverged = [epoch.epoch + 1 for epoch in trainer.report.epochs if not math.isfinite(epoch.loss)]
        if trainer.ranks.rank == 0 and diverged == [report.epoch + 1]:  # said once
            LOG.warning(f"the loss has not been finite since epoch {diverged[0]}: a smaller --lr may help")
        self._write_metrics(trainer)
        self._write_summary(trainer, unless_full, synced=False)

    def run_ended(self, trainer, report: RunReport) -> None:
        self._keep_model(trainer, unless_missing)  # a disk may have been full when it was the best
        # What fails there is raised when the run's last lines are told.
        trainer.writer.write(functools.partial(self._write_summary, trainer, unless_missing, synced=True))

    def _count(self, trainer, report: EpochReport) -> None:
        self._reads.add(report)
        if trainer.report.cache:
            trainer.report.cache["measured"] = self._reads.shares()

    def _keep_model(self, trainer, guard: Guard) -> None:
        """For cohort predict; not of a run that is only to be measured."""
        if trainer.ranks.rank == 0 and trainer.options.max_batches is None:
            trainer.writer.write(functools.partial(_save, trainer.out, on_cpu(trainer.best_model), guard))

    def _write_metrics(self, trainer) -> None:
        if trainer.ranks.rank == 0:
            with unless_full(trainer.out / files.METRICS):
                write_metrics(trainer.out / files.METRICS, trainer.report.epochs)

    def _write_summary(self, trainer, guard: Guard, synced: bool) -> None:
        report, source = trainer.report, trainer.source
        if report.start is None and source.first_batch_at is not None:
            report.start = start_told(source.folder, *self._start, source.first_batch_at)
        if trainer.ranks.rank == 0:
            with guard(trainer.out / files.SUMMARY):
                report.write(trainer.out / files.SUMMARY, synced)


def _save(run: Path, weights: dict[str, Tensor], guard: Guard) -> None:
    with guard(run / files.MODEL):
        save_model(run, weights)


def is_best(epoch: EpochReport, run: RunReport, targets: Targets) -> bool:
    """Whether to keep the epoch's weights, as the run then says: best in validation, or the last without it."""
    metric = targets.metric
    if metric in epoch.val_metrics and metric in run.val_metrics:
        if not is_better(targets, epoch.val_metrics[metric], run.val_metrics[metric]):
            return False
    run.val_accuracy, run.val_metrics, run.best_epoch = epoch.val_accuracy, epoch.val_metrics, epoch.epoch
    return True


def write_metrics(path: Path, epochs: list[EpochReport]) -> None:
    """Replaces RUN/metrics.jsonl in one step: a JSON object a line and epoch. Lines that a full disk has refused come
    with the next one."""
    write_whole(path, "".join(epoch.line() + "\n" for epoch in epochs), synced=False)
