"""The start of a run, until its first batch: shown while it lasts, and recorded in the summary."""

import json
import logging
import math
import time
from collections.abc import Callable
from itertools import zip_longest
from pathlib import Path

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from cohort_gnn.base.units import format_bytes, format_seconds
from cohort_gnn.trainer.report.messages import Console, unless_unheard

LOG = logging.getLogger(__name__)
LOOK_SECONDS = 0.2


def start_parts(folder: Path) -> list[dict]:
    """What the sampler of the channel in ``folder`` has begun, in order (sampler/start_log.h): {"part", "bytes" that it
    goes through (0: not counted), "seconds" (None: it has not ended)}."""
    path = folder / "start.jsonl"
    whole = path.read_text().rpartition("\n")[0] if path.exists() else ""  # the last line may be half written
    lines = [json.loads(line) for line in whole.splitlines()]
    return [
        {"part": line["part"], "bytes": line["bytes"], "seconds": after and after["at"] - line["at"]}
        for line, after in zip_longest(lines, lines[1:])
        if line["part"]
    ]


class StartBar:
    """Says what the sampler does while a trainer waits for it: a bar on a terminal, elsewhere a line now and then;
    nothing when quiet.

    Args:
        log_seconds: between two lines; None: there are none.
    """

    def __init__(self, folder: Path, quiet: bool, log_seconds: float | None = None):
        self._folder, self._log_seconds = folder, math.inf if quiet else log_seconds or math.inf
        self._began = self._last_line = time.monotonic()
        text = TextColumn("{task.description}")
        self._bar = Progress(text, BarColumn(), TimeElapsedColumn(), console=Console(quiet=quiet), transient=True)
        self._task = self._bar.add_task("starting", total=None)
        self._shown, self._last_look = 0, 0.0

    def __enter__(self) -> Callable[[], None]:
        """Returns what is to be called now and then."""
        self._bar.start()
        return self._look

    def __exit__(self, *_):
        with unless_unheard():
            self._bar.stop()

    def _look(self) -> None:
        now = time.monotonic()
        if now - self._last_look < LOOK_SECONDS:
            return
        self._last_look = now
        parts = start_parts(self._folder)
        if len(parts) > self._shown:
            self._shown = len(parts)
            size = f", {format_bytes(parts[-1]['bytes'])}" if parts[-1]["bytes"] else ""
            self._bar.reset(self._task, total=None, description=parts[-1]["part"] + size)
        if now - self._last_line >= self._log_seconds:
            self._last_line = now
            task = self._bar.tasks[self._task].description
            line = f"waiting for the first batch since {format_seconds(now - self._began)}: {task}"
            LOG.info(line, extra={"is_shown": not self._bar.console.is_terminal})


def start_summary(folder: Path, began: float, loaded_at: float, first_batch_at: float) -> dict:
    """The summary's member ``start``: seconds to the first batch, those of the sampler's parts, and beside them those
    in which the trainer loaded its packages.

    Args:
        folder: of rank 0's channel.
        began, loaded_at, first_batch_at: monotonic seconds when the first of the run's programs was started, when this
            one had its packages, and when the first batch came.
    """
    parts = [part for part in start_parts(folder) if part["seconds"] is not None]
    return {"seconds": first_batch_at - began, "packages_seconds": loaded_at - began, "parts": parts}
