"""A trial of ``cohort tune``: one run of ``cohort train`` as a child process, and what it took."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.files import demand_writable
from cohort_gnn.base.programs import end_processes, end_with_parent, python, start_logged
from cohort_gnn.launch.options.own_code import own_code_words
from cohort_gnn.launch.report.results import LISTS, ROWS, ranks_of, read_run
from cohort_gnn.launch.report.tables import median_times
from cohort_gnn.launch.run.stopping import pause
from cohort_gnn.launch.run.supervise import POLL_SECONDS
from cohort_gnn.launch.tune.search import Point
from cohort_gnn.launch.tune.space import as_toml

STOP_SECONDS = 15.0  # a launcher has ended its programs within 5 s, but host memory that was pinned takes longer
LOG_FILE = "tune.log"
OPTIONS_FILE = "options.toml"


@dataclass
class Trial:
    """Options, and what a run with them took.

    Attributes:
        number: from 1.
        point: the options that tuning may vary.
        options: all of ``cohort train`` that are not its defaults.
        failure: why there are no numbers; empty when there are.
        message: all that the run said of its failure.
        is_over_time: the run was ended since no time was left.
        wall_seconds: of the whole run.
        times: medians of the epochs after the first, by name, in seconds.
        host_bytes: that a batch of training read from host memory, rows and neighbour lists.
        hit_rate, planned_hit_rate: the share of rows that came from elsewhere; None: nothing was planned.
        spread: seconds between the fastest and the slowest of the epochs after the first.
        again: the cost of a second run; None: there was none.
        peak_bytes: what a GPU needed beside its slots; None without a GPU or with a cache.
    """

    number: int
    folder: Path
    point: Point
    options: dict
    failure: str = ""
    message: str = ""
    is_over_time: bool = False
    wall_seconds: float = 0.0
    times: dict[str, float] | None = None
    host_bytes: float | None = None
    hit_rate: float | None = None
    planned_hit_rate: float | None = None
    spread: float = 0.0
    again: float | None = None
    peak_bytes: int | None = None

    @property
    def cost(self) -> float:
        """Seconds of an epoch; math.inf when the run failed."""
        return self.times["seconds"] if self.times else math.inf

    def run(self, dataset: Path, epochs: int, seconds: float, tick: Callable[[], None]) -> None:
        """Runs it, for at most so many seconds, and reads what it left.

        Args:
            tick: called a few times a second.

        Raises:
            CohortError: the folder cannot be written.
            Stopped: a stop signal has come.
        """
        begin = time.monotonic()
        with demand_writable(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            options = self.folder / OPTIONS_FILE
            options.write_text(as_toml(self.options))
            command = python("-m", "cohort_gnn", "train", str(dataset), "--config", str(options))
            command += own_code_words(self.options)
            command += ["--epochs", str(epochs), "--out", str(self.folder), "--overwrite", "--quiet"]
            process = start_logged(command, self.folder / LOG_FILE, preexec_fn=end_with_parent)
        try:
            while process.poll() is None and time.monotonic() - begin < seconds:
                tick()
                pause(POLL_SECONDS)
            code = process.poll()
        finally:
            end_processes([process], STOP_SECONDS)
        self.wall_seconds = time.monotonic() - begin
        if code == 0:
            self._read()
        else:
            self._fail(code)

    def _read(self) -> None:
        try:
            run = read_run(self.folder)
        except CohortError as error:
            self.failure = self.message = str(error)
            return
        rows, lists = run.uses(ROWS), run.uses(LISTS)
        self.times = median_times(run)
        seconds = [ranks_of(epoch)[0]["seconds"] for epoch in run.settled]
        self.spread = max(seconds) - min(seconds)
        self.host_bytes = rows["host"].bytes + lists["host"].bytes
        self.hit_rate = 1 - rows["host"].share
        if rows["host"].planned_share is not None:
            self.planned_hit_rate = 1 - rows["host"].planned_share
        self.peak_bytes = run.summary["trainer_peak_bytes"]

    def _fail(self, code: int | None) -> None:
        """Says why: `code` is the run's exit code, or None where it was ended."""
        said = (self.folder / LOG_FILE).read_text(errors="replace").strip()
        if code is None:
            self.is_over_time = True
            self.failure = self.message = f"the time was over after {self.wall_seconds:.0f} s"
        else:
            said = "\n".join(line for line in said.splitlines() if not line.startswith("cohort: to continue:"))
            silent = f"{self.folder / LOG_FILE}: expected why the run has failed, found no word, and exit code {code}"
            self.failure = _cause_in(said) or silent
            self.message = said.removeprefix("cohort: ") or f"{silent}\n  hint: is the disk full?"


def _cause_in(said: str) -> str:
    """The line of a run's output that says why it failed: a program's own error, or how it ended."""
    lines = [line.strip() for line in said.splitlines() if not line.strip().startswith("hint:")]
    for start in ("it said: ", "cohort: the "):
        if cause := next((line for line in lines if line.startswith(start)), ""):
            return cause.removeprefix("it said: ").removeprefix("cohort: ")
    return lines[-1].removeprefix("cohort: ") if lines else ""
