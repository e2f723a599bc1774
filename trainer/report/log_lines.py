"""Lines of progress: in the run's log, and on standard output where no terminal shows a bar."""

import logging
import time

from cohort_gnn.base.log import record
from cohort_gnn.base.units import format_seconds
from cohort_gnn.spec.results import EpochReport, RunReport
from cohort_gnn.trainer.report.callback import Callback
from cohort_gnn.trainer.report.messages import Console, unless_unheard
from cohort_gnn.trainer.report.progress import UPDATE_SECONDS, DelayedScalar, epoch_line, test_result

LOG = logging.getLogger(__name__)


class LogLines(Callback):
    """Of rank 0, every --log-seconds: which batch of how many a pass has reached, the loss, seeds a second since the
    line before, how the epoch was divided into waiting and training, and when the run may end. Seeds are those of this
    rank times the number of ranks, which go in step. The log also gets a line an epoch, and the result of the test."""

    def run_begins(self, trainer) -> None:
        options, running = trainer.options, trainer.running
        self._is_mute, self._is_quiet = trainer.ranks.rank > 0, trainer.quiet
        self._was_done = running.epoch >= options.epochs  # then Progress says all that there is
        self._console, self._every = Console(), options.log_seconds
        self._num_epochs, self._num_ranks = options.epochs, trainer.ranks.size
        self._loss = DelayedScalar()
        in_epoch = min(running.step * options.batch_size * self._num_ranks, trainer.sizes["train"])
        self._left = max(0, self._num_epochs - running.epoch) * trainer.sizes["train"] - in_epoch  # seeds of training
        self._trained = 0  # seeds, since the first epoch began
        self._began = self._last_line = self._last_update = time.monotonic()
        self._seeds = self._steps = 0  # since the last line, and of the pass

    def epoch_begins(self, trainer, epoch: int) -> None:
        if self._trained == 0:
            self._began = time.monotonic()

    def pass_begins(self, trainer) -> None:
        self._steps = trainer.running.step if trainer.task == "train" else 0
        self._seeds, self._last_line = 0, time.monotonic()

    def step_ended(self, trainer, batch) -> None:
        """Never waits for the GPU; the loss is that of a moment ago."""
        if self._is_mute:
            return
        seeds, is_training = batch.num_inputs * self._num_ranks, trainer.task == "train"
        self._steps, self._seeds = self._steps + 1, self._seeds + seeds
        self._trained += seeds * is_training
        now = time.monotonic()
        if is_training and now - self._last_update >= UPDATE_SECONDS:
            self._last_update, step = now, trainer.step
            self._loss.latest(self._num_ranks * step.loss_sum / step.num_labelled.clamp(min=1))
        if now - self._last_line < self._every:
            return
        self._say(self._line(trainer, now, is_training))
        self._seeds, self._last_line = 0, now

    def epoch_ended(self, trainer, report: EpochReport) -> None:
        if not self._is_mute:
            record(LOG, epoch_line(report, self._num_epochs, trainer.monitor))

    def run_ended(self, trainer, report: RunReport) -> None:
        if not (self._is_mute or self._was_done):
            record(LOG, test_result(report))

    def _line(self, trainer, now: float, is_training: bool) -> str:
        epoch = trainer.running.epoch
        title = f"epoch {epoch + 1}/{self._num_epochs}" if epoch < self._num_epochs else "test"
        title += "" if is_training or title == "test" else ", validation"
        wait = trainer.clock.wait_share()
        parts = [f"loss {self._loss.text}"] * is_training
        parts.append(f"{self._seeds / max(now - self._last_line, 1e-9):,.0f} seeds/s")
        parts.append(f"wait {100 * wait:.0f} %, train {100 * (1 - wait):.0f} %")
        if is_training and self._trained < self._left:
            seconds = (now - self._began) * (self._left - self._trained) / max(1, self._trained)
            end = time.strftime("%a %H:%M:%S", time.localtime(time.time() + seconds))
            parts.append(f"ends in about {format_seconds(seconds)} ({end})")
        return f"{title}, batch {self._steps:,} of {trainer.num_steps:,}: {', '.join(parts)}"

    def _say(self, line: str) -> None:
        record(LOG, line)
        if not self._is_quiet and not self._console.is_terminal:
            with unless_unheard():
                self._console.print(line, markup=False, highlight=False, soft_wrap=True)
