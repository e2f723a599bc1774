"""--tensorboard: scalars of each epoch, as events for TensorBoard."""

from typing import TYPE_CHECKING

from cohort_gnn.spec.results import EpochReport, RunReport
from cohort_gnn.trainer.messages import unless_full
from cohort_gnn.trainer.report.callback import Callback

if TYPE_CHECKING:
    from cohort_gnn.trainer.loop.trainer import Trainer

PARTS = ("wait", "train", "all_reduce", "sample", "fetch")


class TensorBoard(Callback):
    """Rank 0 writes RUN/tensorboard: scalars of an epoch stand at its number from 1, those of the test at the last."""

    def run_begins(self, trainer: "Trainer") -> None:
        """Events of epochs that a resumed run does again no longer count."""
        if trainer.ranks.rank == 0:
            from torch.utils.tensorboard import SummaryWriter

            done = len(trainer.report.epochs)
            self._events = SummaryWriter(trainer.out / "tensorboard", purge_step=done + 1 if done else None)

    def epoch_ended(self, trainer: "Trainer", report: EpochReport) -> None:
        self._write(trainer, scalars_of(report))

    def run_ended(self, trainer: "Trainer", report: RunReport) -> None:
        self._write(trainer, {f"{name}/test": value for name, value in report.test_metrics.items()})

    def _write(self, trainer: "Trainer", scalars: dict[str, float]) -> None:
        if trainer.ranks.rank == 0:
            with unless_full(trainer.out / "tensorboard"):
                for name, value in scalars.items():
                    self._events.add_scalar(name, value, len(trainer.report.epochs))
                self._events.flush()


def scalars_of(report: EpochReport) -> dict[str, float]:
    """{"group/name": value} of an epoch: loss, accuracy or alike, seconds, bytes of rows and shares of rows by tier."""
    scalars = {"loss/train": report.loss}
    scalars |= {f"{name}/val": value for name, value in report.val_metrics.items()}
    scalars["seconds/epoch"] = report.seconds
    scalars |= {f"seconds/{part}": getattr(report, f"{part}_seconds") for part in PARTS}
    scalars |= {f"bytes/{tier}": read["bytes"] for tier, read in report.row_tiers.items()}
    rows = sum(read["rows"] for read in report.row_tiers.values())
    return scalars | {f"share/{tier}": read["rows"] / max(1, rows) for tier, read in report.row_tiers.items()}
