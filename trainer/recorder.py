"""What a run records of its steps: a timeline of some of them."""

from pathlib import Path

import torch

from cohort.trainer.ranks import Ranks
from cohort.trainer.step_log import Step, StepLog
from cohort.trainer.timeline import rows_of, write_timeline

TIMELINE_STEPS = 40


class Recorder:
    """Records steps of one rank: the first of the second epoch, or of the first where there is only one.

    Args:
        device: the trainer's.
        num_epochs: of the run.
    """

    def __init__(self, device: torch.device, num_epochs: int):
        self._device = device
        self._timeline_epoch = min(1, num_epochs - 1)
        self._epoch: int | None = None  # that runs now
        self._log: StepLog | None = None  # of the pass that runs now, where it is recorded
        self._shown: list[Step] = []

    def epoch_begins(self, epoch: int) -> None:
        self._epoch = epoch

    def pass_begins(self, task: str) -> None:
        """A pass to "train" or "validate" begins, and ends the one before."""
        self._end_pass()
        is_shown = task == "train" and self._epoch == self._timeline_epoch
        self._log = StepLog(self._device, task, self._epoch, TIMELINE_STEPS) if is_shown else None

    def step_begins(self, mark) -> None:
        """A step of the pass begins at this mark of its StepClock."""
        if self._log:
            self._log.step_begins(mark)

    def step_ended(self, mark, slot) -> None:
        """The step on the slot's batch has ended."""
        if self._log:
            self._log.step_ended(mark, slot)

    def epoch_ended(self, ranks: Ranks, out: Path) -> None:
        """Writes what is complete; all ranks call it."""
        self._end_pass()
        if self._epoch == self._timeline_epoch:
            rows = ranks.gather(rows_of(self._shown))
            if ranks.rank == 0:
                write_timeline(out / "timeline.json", self._epoch, rows)
        self._epoch = None

    def _end_pass(self) -> None:
        if self._log:
            self._shown = self._log.steps()
        self._log = None
