"""What a run records of its steps: a timeline of some of them, and, when it is profiled, a trace."""

from pathlib import Path

import torch

from cohort.spec import files
from cohort.trainer.messages import unless_full
from cohort.trainer.ranks import Ranks
from cohort.trainer.report.kernel_trace import KernelTrace
from cohort.trainer.report.profiler_ranges import ProfilerRanges
from cohort.trainer.report.step_log import Step, StepLog
from cohort.trainer.report.timeline import rows_of, write_timeline
from cohort.trainer.report.trace import merge, write_part

TIMELINE_STEPS = 40
PROFILED_EPOCHS, PROFILED_STEPS = 2, 500


class Recorder:
    """Records steps of one rank.

    RUN/timeline.json: the first training steps of the second epoch, or of the last where there is none.
    RUN/trace.json: the first steps of the first two epochs, validation included. With it, trainers of GPUs show their
    steps of all epochs to profilers.

    Args:
        device: the trainer's.
        num_epochs: of the run.
        profile: whether to make a trace.
        first_whole: the first epoch that is run from its beginning, before which none is shown; None: the run has a
            timeline already.
    """

    def __init__(self, device: torch.device, num_epochs: int, profile: bool = False, first_whole: int | None = 0):
        self._device = device
        self._timeline_epoch = None if first_whole is None else min(max(1, first_whole), num_epochs - 1)
        self._num_profiled = min(PROFILED_EPOCHS, num_epochs) if profile else 0
        self._epoch: int | None = None  # that runs now
        self._task = ""  # of the pass that runs now
        self._log: StepLog | None = None  # of that pass, where it is recorded
        self._shown: list[Step] = []  # in the timeline
        self._traced: list[Step] = []
        self._kernels = KernelTrace(device) if profile and device.type == "cuda" else None
        self._kernels_run = False
        self._ranges = ProfilerRanges(profile and device.type == "cuda")

    def epoch_begins(self, epoch: int) -> None:
        self._epoch = epoch
        if self._kernels and epoch == 0:
            self._kernels.start()
            self._kernels_run = True

    def pass_begins(self, task: str) -> None:
        """A pass to "train" or "validate" begins, and ends the one before; outside of epochs nothing is recorded."""
        self._end_pass()
        self._task = task
        if self._epoch is not None:
            self._ranges.pass_begins(task)
        wanted = max(TIMELINE_STEPS * self._is_shown(), self._room_in_trace())
        self._log = StepLog(self._device, task, self._epoch, wanted) if wanted else None

    def step_begins(self, mark) -> None:
        """A step of the pass begins at this mark of its StepClock."""
        if self._log:
            self._log.step_begins(mark)
        self._ranges.step_begins()

    def step_ended(self, mark, slot) -> None:
        """The step on the slot's batch has ended."""
        self._ranges.step_ended()
        if self._log:
            self._log.step_ended(mark, slot)
            if self._log.num_steps >= self._room_in_trace():
                self._stop_kernels()

    def epoch_ended(self, ranks: Ranks, out: Path) -> None:
        """Writes to the run's folder what is complete; all ranks call it."""
        self._end_pass()
        if self._epoch == self._timeline_epoch:
            rows = ranks.gather(rows_of(self._shown))
            if ranks.rank == 0 and any(spans for of_rank in rows for spans in of_rank.values()):
                with unless_full(out / files.TIMELINE):
                    write_timeline(out / files.TIMELINE, self._epoch, rows)
        if self._epoch + 1 == self._num_profiled:
            self._write_trace(ranks, out)
        self._epoch = None

    def _is_shown(self) -> bool:
        return self._task == "train" and self._epoch == self._timeline_epoch

    def _room_in_trace(self) -> int:
        is_traced = self._epoch is not None and self._epoch < self._num_profiled
        return PROFILED_STEPS - len(self._traced) if is_traced else 0

    def _end_pass(self) -> None:
        """Brings the pass's steps to the clock of both programs."""
        self._ranges.pass_ends()
        if not self._log:
            return
        steps, self._log = self._log.steps(), None
        if self._is_shown():
            self._shown = steps[:TIMELINE_STEPS]
        self._traced += steps[: self._room_in_trace()]

    def _stop_kernels(self) -> None:
        if self._kernels_run:
            self._kernels.stop()
            self._kernels_run = False

    def _write_trace(self, ranks: Ranks, out: Path) -> None:
        self._stop_kernels()
        parts = [out / f"trace-{rank}.part" for rank in range(ranks.size)]
        with unless_full(parts[ranks.rank]):
            write_part(parts[ranks.rank], ranks.rank, self._traced, self._kernels.events() if self._kernels else [])
        self._traced, self._kernels = [], None
        ranks.gather(None)  # all parts are there
        if ranks.rank == 0:
            with unless_full(out / files.TRACE):
                merge(parts, out / files.TRACE)
