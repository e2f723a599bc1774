"""The training pass of an epoch while it runs: what a rank has summed up, put aside and taken up again."""

import copy
import time

import torch

from cohort_gnn.spec.results import EpochReport
from cohort_gnn.trainer.loader.step_clock import StepClock


class RunningEpoch:
    """How far a rank is in an epoch.

    Args:
        epoch: from 0.
        device: the trainer's.
        step: how many of the epoch's steps are done.
        report: of these steps, as ``asdict`` gives it; None: of none.

    Attributes:
        report: counts of this rank; its times are up to the last ``pause()``.
    """

    def __init__(self, epoch: int, device: torch.device, step: int = 0, report: dict | None = None):
        self.epoch, self.step, self._device = epoch, step, device
        self.report = EpochReport(**copy.deepcopy(report)) if report else EpochReport(epoch)
        self._clock: StepClock | None = None
        self._ended_before: float | None = None  # when the last pause() of the epoch before was
        self._paused: float | None = None

    def next(self) -> "RunningEpoch":
        """The epoch after this one, which is done."""
        epoch = RunningEpoch(self.epoch + 1, self._device)
        epoch._ended_before = self._paused
        return epoch

    def go_on(self) -> StepClock:
        """Starts the clock of the epoch's time, and returns it; a clock that runs already goes on."""
        if self._clock is not None:
            return self._clock
        self._clock = StepClock(self._device)
        if self._ended_before is not None:
            self.report.between_seconds = self._clock.start - self._ended_before
            self._ended_before = None
        return self._clock

    def add(self, slot) -> None:
        """Counts a step."""
        self.report.add(slot)
        self.step += 1

    def pause(self) -> None:
        """Adds the clock's times to the report, if one runs; waits for the stream."""
        if self._clock is None:
            return
        wait, train, all_reduce = self._clock.totals()
        self.report.wait_seconds += wait
        self.report.train_seconds += train
        self.report.all_reduce_seconds += all_reduce
        self._paused = time.perf_counter()
        self.report.seconds += self._paused - self._clock.start
        self._clock = None
