"""Starts processes, watches them, names the one that failed, and leaves nothing behind."""

import contextlib
import logging
import math
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cohort_gnn.base.cuda_files import remove_cuda_files
from cohort_gnn.base.early import EarlyProgram
from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.files import is_temporary
from cohort_gnn.base.machine import STARTERS
from cohort_gnn.base.programs import (
    describe_channel,
    end_processes,
    end_with_parent,
    how_ended,
    is_stopped,
    log_tail,
    start_logged,
)
from cohort_gnn.launch.run.mps import Mps
from cohort_gnn.launch.run.stopping import pause

if TYPE_CHECKING:
    from cohort_gnn.launch.run.machines import Meeting

LOG = logging.getLogger(__name__)

POLL_SECONDS = 0.05
GRACE_SECONDS = 0.3  # before a report, so that it has all processes that fail together
STOP_SECONDS = 1.0
SAVE_SECONDS = 4.0  # for trainers to finish their step and write a checkpoint
OTHERS_SECONDS = 6.0  # in which a trainer's error may turn out to be that another machine has ended
STOPPED_SECONDS = 2.0  # after which a stopped process is reported
ROWS_SECONDS = 3.0  # the same for the error of a sampler that asks other machines for rows


class ReportedFailure(Exception):
    """A run within a command has ended badly and has said why: the command ends with its exit code."""

    def __init__(self, code: int):
        super().__init__(f"exit code {code}")
        self.code = code


@dataclass
class Child:
    """A process of the run."""

    role: str  # "sampler" or "trainer": also its member in a channel's description
    name: str  # the role, with the rank where there are several
    rank: int  # of a trainer
    process: subprocess.Popen
    log: Path
    early: EarlyProgram | None = None  # as which it began


class Supervisor:
    """The processes of one run.

    Args:
        channels: folders of the run's channels, by rank.
        mps: the daemon the processes use, or None on the CPU.
        inherited: descriptors that the processes hold open as long as they live.
        meeting: with the other machines of the run, if there are any.
    """

    def __init__(
        self,
        channels: list[Path],
        mps: Mps | None,
        inherited: tuple[int, ...] = (),
        meeting: "Meeting | None" = None,
    ):
        self.channels, self.mps, self.inherited, self.meeting = channels, mps, inherited, meeting
        self.children: list[Child] = []
        self._began = time.time()
        self._stopped: Child | None = None  # one that SIGSTOP holds, since when, and whether that is said
        self._stopped_since, self._stop_is_said = 0.0, False

    def start(
        self,
        role: str,
        argv: list[str],
        log: Path,
        env: dict[str, str],
        rank: int = 0,
        show_output: bool = False,
        append: bool = False,
        descriptors: tuple[int, ...] = (),
        early: EarlyProgram | None = None,
    ) -> None:
        """Starts the sampler, or the trainer of a rank's channel; its output goes to ``log``, standard output to the
        terminal when ``show_output``. It alone gets the ``descriptors``; with ``append`` the log keeps what it has. The
        program that has begun ``early``, if any, is told the last word of ``argv``, and is started if it has ended."""
        name = f"trainer of rank {rank}" if role == "trainer" and len(self.channels) > 1 else role
        env = env | (self.mps.env if self.mps else {})
        descriptors += self.inherited
        process = early.tell(argv[-1], log, env, append, descriptors) if early else None
        if process is None:
            early = None
            how = {"preexec_fn": begin_child, "pass_fds": descriptors}
            process = start_logged(argv, log, env, show_output, append, **how)
        self.children.append(Child(role, name, rank, process, log, early))

    def watch(self) -> int:
        """Waits until all trainers, those of other machines too, end well (0) or any process fails (1: the failure is
        reported on standard error).

        Raises:
            Stopped: a stop signal has come.
        """
        trainers = [child for child in self.children if child.role == "trainer"]
        server_known = False
        while True:
            if not server_known and self.mps and (self.channels[0] / "channel").exists():
                self.mps.remember_server()
                server_known = True
            if all(trainer.process.poll() == 0 for trainer in trainers):
                lost = self.meeting.waits_for_all() if self.meeting else ""
                if lost:
                    LOG.error(lost)
                return 1 if lost else 0
            failed = [child for child in self.children if child.process.poll()]
            if failed or (self.mps and self.mps.died()):
                self._report_failure()
                return 1
            if self.meeting and (lost := self.meeting.looks()):
                LOG.error(lost)
                return 1
            self._look_for_stopped()
            pause(POLL_SECONDS)

    def _look_for_stopped(self) -> None:
        """Says that a process is stopped, to the user and to the other machines: it has not failed, and the run waits
        for it."""
        stopped = next((child for child in self.children if is_stopped(child.process.pid)), None)
        if stopped is not self._stopped:
            if self.meeting and self._stop_is_said:
                self.meeting.knows_stopped("")
            self._stopped, self._stopped_since, self._stop_is_said = stopped, time.monotonic(), False
        if stopped and not self._stop_is_said and time.monotonic() - self._stopped_since > STOPPED_SECONDS:
            self._stop_is_said, pid = True, stopped.process.pid
            LOG.warning(f"the {stopped.name} is stopped (SIGSTOP): the run waits till kill -CONT {pid} lets it go on")
            if self.meeting:
                self.meeting.knows_stopped(f"the {stopped.name} (process {pid})")

    def _others_failure(self) -> str:
        """What other machines say of the end of the run. A process here may hear of it first, and then says so by its
        exit code: a trainer whose all-reduce fails or that ends with the others at the word of one that was told to, or
        a sampler that asks them for rows."""
        if not self.meeting or (self.mps and self.mps.died()):
            return ""
        may_be_others = (None, os.EX_UNAVAILABLE, 128 + signal.SIGTERM)
        began = time.monotonic()
        while not (lost := self.meeting.looks()):
            first = next(iter(self._ended()[0]), None)
            if first and first.process.returncode not in may_be_others:
                return ""  # the others wait for this machine's reason
            if time.monotonic() - began > (ROWS_SECONDS if first and first.role == "sampler" else OTHERS_SECONDS):
                break
            pause(POLL_SECONDS)
        return lost

    def _ended(self) -> tuple[list[Child], dict[str, dict]]:
        """Children that have ended, or say that they have failed, in this order; and what each child says of itself."""
        stages = self._stages()
        failed_at = {name: stage["failed_at_us"] for name, stage in stages.items() if "failed_at_us" in stage}

        def when(child: Child) -> float:
            """By its own account; a process that was killed could not say so and comes first."""
            return failed_at.get(child.name, 0 if (child.process.returncode or 0) < 0 else math.inf)

        # One that says that it has failed may take a while to end.
        ended = [child for child in self.children if child.process.poll() or child.name in failed_at]
        return sorted(ended, key=when), stages

    def _report_failure(self) -> None:
        time.sleep(GRACE_SECONDS)
        if others := self._others_failure():
            LOG.error(others)
            return
        for child in self.children:
            if child.early:
                child.early.save_words(child.log)
        ended, stages = self._ended()
        lines = []
        if self.mps and self.mps.died():
            lines.append(f"{self.mps.died()}; its clients cannot continue (CUDA error 806)")
        for i, child in enumerate(ended):
            stage = stages.get(child.name, {})
            what = "the" if i == 0 and not lines else "  then the"
            code = child.process.returncode
            how = "has failed" if code is None else how_ended(code)
            lines.append(f"{what} {child.name} (process {child.process.pid}) {how}")
            lines.append(f"  its last stage: {stage.get('stage', 'not started')} (batch {stage.get('batch', 0)})")
            if stage.get("error"):
                lines.append(f"  it said: {_own_words(stage['error'], [earlier.process.pid for earlier in ended[:i]])}")
            place = "" if is_temporary(child.log) else f" ({child.log})"
            lines.append(f"  end of its log{place}:\n{log_tail(child.log)}")
        LOG.error("\n".join(lines))
        if self.meeting:
            reason = (re.sub(r"\s*\n\s*", "; ", line.strip()) for line in lines[:3] if "end of its log" not in line)
            self.meeting.announce_end("; ".join(reason))

    def _stages(self) -> dict[str, dict]:
        """What each child says of itself in its channel, by its name."""
        try:
            said = [describe_channel(folder) for folder in self.channels]
        except CohortError:  # the sampler ended before it had them, or it is of another build: the logs say which
            return {}
        samplers = [rank_channel["sampler"] for rank_channel in said]
        first_failed = min(samplers, key=lambda party: party.get("failed_at_us", math.inf))
        trainers = [child for child in self.children if child.role == "trainer"]
        return {"sampler": first_failed} | {trainer.name: said[trainer.rank]["trainer"] for trainer in trainers}

    def stop_trainers(self) -> None:
        """Ends the trainers, while the sampler still runs: they finish their step and write a checkpoint. Bounded."""
        self._end([child for child in self.children if child.role == "trainer"], SAVE_SECONDS)

    def stop(self) -> None:
        """Ends what still runs, bounded, and removes the files that CUDA leaves of it."""
        self._end(self.children, STOP_SECONDS)
        remove_cuda_files([child.process.pid for child in self.children], self._began)

    def _end(self, children: list[Child], seconds: float) -> None:
        """Asks them, then takes them off the GPU, then kills them."""
        end_processes((child.process for child in children), seconds, self.mps.terminate_client if self.mps else None)


def _own_words(said: str, reported: list[int]) -> str:
    """What a process said, without the words of another one that it quotes, if those were reported before."""
    words, quotes, _ = said.partition("; its last stage is ")
    is_quoted = quotes and any(f"(process {pid})" in words for pid in reported)
    return words if is_quoted else said


def rank_environment(rank: int, num_ranks: int, interface: str = "lo", first: int = 0, size: int = 0) -> dict[str, str]:
    """What tells a trainer its place among several, as torchrun does; nothing for a single one.

    Args:
        rank, num_ranks: among those of this machine.
        interface: of the network, for gloo; "": its own choice. NCCL gets the loopback, where no other machine is.
        first, size: where there are several machines, the rank of this one's first trainer, and how many all have.
    """
    size = size or num_ranks
    if size == 1:
        return {}
    threads = max(1, len(os.sched_getaffinity(0)) // num_ranks)
    defaults = {"OMP_NUM_THREADS": str(threads)} | ({"GLOO_SOCKET_IFNAME": interface} if interface else {})
    defaults |= {"NCCL_SOCKET_IFNAME": interface} if interface == "lo" and size == num_ranks else {}
    place = {"RANK": first + rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": num_ranks}
    return {name: os.environ.get(name, value) for name, value in defaults.items()} | {
        name: str(value) for name, value in place.items()
    }


def trainer_alone(is_alone: bool) -> str | None:
    """The program of a run's only trainer. None: there are others, or it is one of several machines' trainers, which
    find their places in their environments."""
    has_place = any(os.environ.get(name, "") not in ("", "1") for _, name in STARTERS)
    return "cohort_gnn.trainer" if is_alone and not has_place else None


@contextlib.contextmanager
def begun(module: str | None) -> Iterator[EarlyProgram | None]:
    """Inside, a program loads its packages, and waits to be told what there is to do; none without a module."""
    if module is None:
        yield None
        return
    early = EarlyProgram(module, begin_child)
    try:
        yield early
    finally:
        early.drop()


def begin_child() -> None:
    """For preexec_fn: it ends with us, and what a terminal tells all of us (Ctrl-C, that it closes) is our business."""
    end_with_parent()
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
