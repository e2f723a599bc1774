"""--tensorboard: scalars of each epoch, and the options of the run, as events for TensorBoard."""

import json
from typing import TYPE_CHECKING

from cohort_gnn.spec.options import options_of
from cohort_gnn.spec.results import EpochReport, RunReport
from cohort_gnn.spec.run import TrainerSpec
from cohort_gnn.trainer.report.callback import Callback
from cohort_gnn.trainer.report.messages import unless_full

if TYPE_CHECKING:
    from cohort_gnn.trainer.loop.trainer import Trainer

PARTS = ("wait", "train", "all_reduce", "sample", "fetch")


class TensorBoard(Callback):
    """Rank 0 writes RUN/tensorboard: scalars of an epoch stand at its number from 1, those of the test at the last; and
    the options, which the tab "hparams" compares between runs by loss, validation and test."""

    def run_begins(self, trainer: "Trainer") -> None:
        """Events of epochs that a resumed run does again no longer count."""
        if trainer.ranks.rank == 0:
            from torch.utils.tensorboard import SummaryWriter

            done = len(trainer.report.epochs)
            self._events = SummaryWriter(trainer.out / "tensorboard", purge_step=done + 1 if done else None)
            with unless_full(trainer.out / "tensorboard"):
                for summary in hparams_of(trainer):
                    self._events.file_writer.add_summary(summary)
                self._events.flush()

    def epoch_ended(self, trainer: "Trainer", report: EpochReport) -> None:
        rate = float(trainer.optimizer.param_groups[0]["lr"])  # a tensor on a GPU
        self._write(trainer, scalars_of(report) | {"learning_rate": rate})

    def run_ended(self, trainer: "Trainer", report: RunReport) -> None:
        self._write(trainer, {f"{name}/test": value for name, value in report.test_metrics.items()})

    def _write(self, trainer: "Trainer", scalars: dict[str, float]) -> None:
        if trainer.ranks.rank == 0:
            with unless_full(trainer.out / "tensorboard"):
                for name, value in scalars.items():
                    self._events.add_scalar(name, value, len(trainer.report.epochs))
                self._events.flush()


def hparams_of(trainer: "Trainer"):
    """Summaries of the options that have a value, with what runs are compared by: the metric of validation and test."""
    from torch.utils.tensorboard.summary import hparams

    values = {
        option.name: getattr(trainer.options, option.name) for option in options_of(TrainerSpec) if not option.is_hidden
    }
    plain = {
        name: value if isinstance(value, bool | int | float | str) else json.dumps(value, default=str)
        for name, value in values.items()
        if value is not None
    }
    metric = trainer.monitor
    return hparams(plain, dict.fromkeys(("loss/train", f"{metric}/val", f"{metric}/test"), 0.0))


def scalars_of(report: EpochReport) -> dict[str, float]:
    """{"group/name": value} of an epoch: loss, accuracy or alike, seconds, bytes of rows and shares of rows by tier."""
    scalars = {"loss/train": report.loss}
    scalars |= {f"{name}/val": value for name, value in report.val_metrics.items()}
    scalars["seconds/epoch"] = report.seconds
    scalars |= {f"seconds/{part}": getattr(report, f"{part}_seconds") for part in PARTS}
    scalars |= {f"bytes/{tier}": read["bytes"] for tier, read in report.row_tiers.items()}
    rows = sum(read["rows"] for read in report.row_tiers.values())
    return scalars | {f"share/{tier}": read["rows"] / max(1, rows) for tier, read in report.row_tiers.items()}
