"""What a person sees of a run: a progress bar, then a table."""

import statistics
import time

import torch
from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress

from cohort.base.tables import Table
from cohort.base.units import format_bytes
from cohort.channel import TIERS
from cohort.trainer.messages import Console, unless_unheard
from cohort.trainer.models.targets import Targets, targets_of
from cohort.trainer.report.cache_report import measured
from cohort.trainer.report.callback import Callback
from cohort.trainer.report.floor import told
from cohort.trainer.report.metrics import EpochReport, RunReport
from cohort.trainer.report.start import start_line

UPDATE_SECONDS = 0.2
REDUCE = "all-reduce s"
DISPENSABLE = ("host bytes", "sample s", "fetch s", REDUCE, "loss")  # columns, as they give way in a narrow terminal


class Progress(Callback):
    """A bar over the seeds of all epochs, with epoch, loss, seeds/s and wait share, a line an epoch, and the table at
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
        self._loss = _DelayedScalar()

    def epoch_begins(self, trainer, epoch: int) -> None:
        self._bar.start()

    def step_ended(self, trainer, batch) -> None:
        """Counts a step; looks at the numbers only a few times a second, and never waits for the GPU."""
        if trainer.task != "train":
            return
        self._seeds += batch.num_seeds * self._num_ranks
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
        """A line of the epoch, on a terminal above the bar; also on a pipe."""
        rate = report.num_seeds / report.seconds if report.seconds > 0 else 0.0
        times = f"{report.seconds:.3f} s, wait {report.wait_seconds:.3f} s"
        parts = [f"loss {report.loss:.4f}", *_validation(report, trainer.targets), times, f"{rate:,.0f} seeds/s"]
        with unless_unheard():
            line = f"epoch {report.epoch + 1}/{self._num_epochs}: {', '.join(parts)}"
            self._bar.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def epochs_end(self, trainer) -> None:
        with unless_unheard():
            self._bar.update(self._task, **self._position())  # the last steps came without an update
            self._bar.stop()

    def run_ended(self, trainer, report: RunReport) -> None:
        if self._was_done:
            trainer.say(f"all {self._num_epochs} epochs are done; {test_result(report)}")
        print_table(report, trainer.quiet)

    def _position(self) -> dict:
        return {"completed": self._done + self._seeds, "epoch": f"{self._epoch}/{self._num_epochs}"}


def _validation(report: EpochReport, targets: Targets) -> list[str]:
    """What validation found of an epoch, if there was one."""
    value = report.val_metrics.get(targets.metric)
    if value is None:
        return []
    return [f"validation {100 * value:.2f} %" if targets.is_share else f"validation {targets.title} {value:.4g}"]


class _DelayedScalar:
    """Reads a scalar; one of a GPU one update late, so that nobody waits for it."""

    def __init__(self):
        self._copy = None
        self._ready = None
        self._text = "-"

    def latest(self, value: torch.Tensor) -> str:
        if not value.is_cuda:
            return f"{value.item():.4f}"
        if self._copy is not None and self._ready.query():
            self._text = f"{self._copy.item():.4f}"
            self._copy = None
        if self._copy is None:
            self._copy = value.to("cpu", non_blocking=True)
            self._ready = torch.cuda.Event()
            self._ready.record()
        return self._text


def print_table(report: RunReport, quiet: bool) -> None:
    """The final table: where each epoch's time went, bytes read, accuracy."""
    if not quiet:
        with unless_unheard():
            _print_table(report)


def _print_table(report: RunReport) -> None:
    ranks = report.num_ranks > 1
    targets = targets_of(report.task)
    names = ["epoch", "seconds", "wait s", "train s", REDUCE, "sample s", "fetch s", "host bytes", "loss"]
    names.append("val %" if report.task == "classification" else targets.title + " %" * targets.is_share)
    names = [name for name in names if ranks or name != REDUCE]
    title = f"{report.num_ranks} ranks, the first on {report.device}" if ranks else report.device
    shown = report.epochs if len(report.epochs) <= 8 else report.epochs[:3] + report.epochs[-4:]
    console = _console()
    rows = [row for epoch in shown for row in _rows(epoch, targets)]
    kept = fitting([names, *rows], console.width)
    table = Table(f"Cohort on {title}", [names[i] for i in kept], [[row[i] for i in kept] for row in rows])
    console.print(table.as_rich())
    if len(kept) < len(names):
        left_out = ", ".join(name for i, name in enumerate(names) if i not in kept)
        console.print(f"left out on this narrow terminal: {left_out} (cohort report shows them)")
    if report.epochs:
        last = report.epochs[-1]
        console.print(
            f"a batch: {last.num_edges / last.num_batches:,.0f} edges, {last.num_nodes / last.num_batches:,.0f} nodes"
            f"{' before the last hop' if report.last_hop_global else ''};"
            f"{' the first layer reads rows in place;' if report.rows_in_place else ''}"
            f" sample and fetch run in the sampler, in parallel with wait and train{_between(report.epochs)}"
        )
        console.print(_tier_table(report).as_rich())
        if report.floor:
            console.print(told(report.floor["epochs"][-1], last), highlight=False, soft_wrap=True)
    if report.start:
        console.print(start_line(report.start), highlight=False, soft_wrap=True)
    console.print(test_result(report))


def test_result(report: RunReport) -> str:
    """How good the model was in the test, and which epoch's it was."""
    targets = targets_of(report.task)
    found = f"test {targets.title} {_told(report.test_metrics, targets)}"
    if targets.metric not in report.val_metrics:
        return f"{found}, after the last epoch (no validation nodes)"
    return f"{found}, at the best validation {_told(report.val_metrics, targets)}"


def _console() -> Console:
    """Of the terminal's width; what is no terminal, a file say, takes lines of any."""
    console = Console()
    return console if console.is_terminal else Console(width=10_000)


def fitting(rows: list[list[str]], width: int) -> list[int]:
    """The columns of a table that go into a width: all, or those that are left without some of DISPENSABLE."""
    widths = [max(map(len, column)) + 2 for column in zip(*rows, strict=True)]  # and what parts it from the next
    kept = list(range(len(widths)))
    for name in DISPENSABLE:
        if sum(widths[i] for i in kept) <= width:
            break
        kept = [i for i in kept if rows[0][i] != name]
    return kept


def _between(epochs: list[EpochReport]) -> str:
    if len(epochs) < 2:
        return ""
    seconds = statistics.median(epoch.between_seconds for epoch in epochs[1:])
    return f"; {seconds:.3f} s between two epochs (median), for validation and results"


def _tier_table(report: RunReport) -> Table:
    """Where a batch's feature rows came from, a row a rank and tier, beside what the plan expected where it did."""
    plans = (report.cache or {}).get("predicted") or []
    # A plan counts a row once a batch; rows in place are read by each edge.
    foretold = not report.rows_in_place and any(plan["hit_rate"] for plan in plans)
    expected = ("rows % planned", "bytes planned") if foretold else ()
    table = Table("Rows of a batch", ["from", "rows %", "bytes", "GB/s", *expected])
    for rank, found in enumerate(measured(report.epochs)):
        for tier in TIERS:
            if not report.cache and not found["bytes"][tier]:
                continue
            rate = found["gb_per_s"][tier]
            row = [f"{100 * found['hit_rate'][tier]:.1f}", format_bytes(found["bytes"][tier])]
            row.append("-" if rate is None else f"{rate:.1f}")
            if foretold:
                row += [f"{100 * plans[rank]['hit_rate'][tier]:.1f}", format_bytes(plans[rank]["bytes"][tier])]
            table.rows.append([f"r{rank} {tier}" if report.num_ranks > 1 else tier, *row])
    return table


def _rows(epoch: EpochReport, targets: Targets) -> list[list[str]]:
    """The epoch's row, or one a rank, "r0" and so on: what concerns all of them stands in the first."""
    whole = [
        format_bytes(epoch.host_bytes),
        f"{epoch.loss:.3f}",
        _told(epoch.val_metrics, targets).removesuffix(" %"),
    ]
    names = ["seconds", "wait_seconds", "train_seconds", "all_reduce_seconds", "sample_seconds", "fetch_seconds"]
    if not epoch.ranks:
        names.remove("all_reduce_seconds")
        return [[str(epoch.epoch + 1), *(f"{getattr(epoch, name):.3f}" for name in names), *whole]]
    rows = [[f"r{rank}", *(f"{times[name]:.3f}" for name in names)] for rank, times in enumerate(epoch.ranks)]
    rows[0][0] = f"{epoch.epoch + 1} r0"
    return [row + (whole if row is rows[0] else [""] * len(whole)) for row in rows]


def _told(metrics: dict[str, float], targets: Targets) -> str:
    """The metric by which models are compared; "-" where nobody measured it."""
    value = metrics.get(targets.metric)
    if value is None:
        return "-"
    return f"{100 * value:.2f} %" if targets.is_share else f"{value:.4g}"
