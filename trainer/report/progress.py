"""What a person sees of a run while it trains: a progress bar, a line an epoch, the result of the test."""

import time

import torch
from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress

from cohort_gnn.spec.metrics import OF_TASK, metric_text, title_of
from cohort_gnn.spec.results import EpochReport, RunReport
from cohort_gnn.trainer.report.callback import Callback
from cohort_gnn.trainer.report.messages import Console, unless_unheard

UPDATE_SECONDS = 0.2


class Progress(Callback):
    """A bar over the seeds of all epochs, with epoch, loss, seeds/s and wait share, a line an epoch, and the test at
    the end; nothing when quiet. It shows what one rank sees, times the number of ranks: they go in step."""

    def run_begins(self, trainer) -> None:
        running, num_seeds = trainer.running, trainer.sizes["train"]
        self._num_epochs, self._num_ranks = trainer.options.epochs, trainer.ranks.size
        self._was_done = running.epoch >= self._num_epochs
        in_epoch = running.step * trainer.options.batch_size * self._num_ranks
        self._done = running.epoch * num_seeds + min(in_epoch, num_seeds)  # by an earlier part of the run
        self._epoch = min(running.epoch + 1, self._num_epochs)
        self._bar = RichProgress(
            TextColumn("epoch {task.fields[epoch]}"),
            BarColumn(bar_width=None),
            TaskProgressColumn(),
            TextColumn("loss {task.fields[loss]}  {task.fields[rate]} seeds/s  wait {task.fields[wait]}"),
            TimeRemainingColumn(),
            console=Console(quiet=trainer.quiet or self._was_done),
        )
        self._begin, self._last_update, self._seeds = time.perf_counter(), 0.0, 0
        self._task = self._bar.add_task(
            "train", total=self._num_epochs * num_seeds, **self._position(), loss="-", rate="-", wait="-"
        )
        self._loss = DelayedScalar()

    def epoch_begins(self, trainer, epoch: int) -> None:
        self._bar.start()

    def step_ended(self, trainer, batch) -> None:
        """Counts a step; looks at the numbers only a few times a second, and never waits for the GPU."""
        if trainer.task != "train":
            return
        self._seeds += batch.num_inputs * self._num_ranks
        self._epoch = trainer.running.epoch + 1
        now = time.perf_counter()
        if now - self._last_update < UPDATE_SECONDS:
            return
        self._last_update = now
        step = trainer.step
        self._bar.update(
            self._task,
            **self._position(),
            loss=self._loss.latest(self._num_ranks * step.loss_sum / step.num_labelled.clamp(min=1)),
            rate=f"{self._seeds / (now - self._begin):,.0f}",
            wait=f"{100 * trainer.clock.wait_share():.0f} %",
        )

    def epoch_ended(self, trainer, report: EpochReport) -> None:
        """A line of the epoch, on a terminal above the bar; also on a pipe. The bar has the epoch's numbers then."""
        seconds = max(report.seconds, 1e-9)
        with unless_unheard():
            line = epoch_line(report, self._num_epochs, trainer.monitor)
            self._bar.console.print(line, markup=False, highlight=False, soft_wrap=True)
            numbers = {"loss": f"{report.loss:.4f}", "rate": f"{report.num_seeds / seconds:,.0f}"}
            share = f"{100 * report.wait_seconds / seconds:.0f} %"
            self._bar.update(self._task, **self._position(), **numbers, wait=share)

    def epochs_end(self, trainer) -> None:
        with unless_unheard():
            self._bar.update(self._task, **self._position())  # the last steps came without an update
            self._bar.stop()

    def run_ended(self, trainer, report: RunReport) -> None:
        if self._was_done:
            done = "the only epoch is" if self._num_epochs == 1 else f"all {self._num_epochs} epochs are"
            trainer.say(f"{done} done; {test_result(report)}")
        elif not trainer.quiet:
            with unless_unheard():
                self._bar.console.print(test_result(report), highlight=False, soft_wrap=True)

    def _position(self) -> dict:
        return {"completed": self._done + self._seeds, "epoch": f"{self._epoch}/{self._num_epochs}"}


class DelayedScalar:
    """Reads a scalar; one of a GPU one update late, so that nobody waits for it.

    Attributes:
        text: what was read last.
    """

    def __init__(self):
        self._copied: tuple[torch.Tensor, torch.cuda.Event] | None = None  # and when it is there
        self.text = "-"

    def latest(self, value: torch.Tensor) -> str:
        if not value.is_cuda:
            self.text = f"{value.item():.4f}"
            return self.text
        if self._copied is not None and self._copied[1].query():
            self.text = f"{self._copied[0].item():.4f}"
            self._copied = None
        if self._copied is None:
            copy = value.to("cpu", non_blocking=True)
            self._copied = copy, torch.cuda.current_stream().record_event()
        return self.text


def epoch_line(report: EpochReport, num_epochs: int, metric: str) -> str:
    """What an epoch came to; ``metric`` is the one by which epochs are compared."""
    rate = f"{report.num_seeds / max(report.seconds, 1e-9):,.0f} seeds/s"
    parts = [f"loss {report.loss:.4f}", f"{report.seconds:.3f} s, wait {report.wait_seconds:.3f} s", rate]
    if metric in report.val_metrics:
        title = "" if metric in ("accuracy", "micro_f1") else f"{title_of(metric)} "
        parts.insert(1, f"validation {title}{metric_text(metric, report.val_metrics[metric])}")
    return f"epoch {report.epoch + 1}/{num_epochs}: {', '.join(parts)}"


def test_result(report: RunReport) -> str:
    """How good the model was in the test, and which epoch's it was."""
    metric = next(iter(report.val_metrics or report.test_metrics), OF_TASK[report.task][0])
    result = f"test {title_of(metric)} {metric_text(metric, report.test_metrics.get(metric))}"
    if metric not in report.val_metrics:
        return f"{result}, after the last epoch (no validation)"
    return f"{result}, at the best validation {metric_text(metric, report.val_metrics[metric])}"
