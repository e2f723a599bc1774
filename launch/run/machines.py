"""The machines of a run: torchrun, srun or Kubernetes starts ``cohort train`` once on each."""

import contextlib
import fcntl
import json
import logging
import multiprocessing
import os
import socket
import struct
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.machine import STARTERS, variables_shown
from cohort_gnn.base.programs import end_processes, python, start_time_of
from cohort_gnn.launch.options.parser import as_given
from cohort_gnn.launch.run.row_owners import features_here, row_owners
from cohort_gnn.launch.run.stopping import heed_stop
from cohort_gnn.launch.run.supervise import POLL_SECONDS, ReportedFailure, begin_child
from cohort_gnn.spec.options import Affects, flag_of, names_that_affect
from cohort_gnn.spec.run import RunSpec

LOG = logging.getLogger(__name__)
NOTICE_SECONDS = 5.0  # after which a machine that waits for others says so
START_SECONDS = 600.0  # in which all machines must join; the default is torchrun's
LAST_WORDS_SECONDS = 2.0  # in which the others learn why this machine ends
STORE_SECONDS = 3.0  # at most, for the end of the process that keeps the store; see FAREWELL_SECONDS of meeting.py
LEAST_SECONDS = 120.0  # that trainers wait for each other in a step
REFUSED_SECONDS = 30.0  # in which the others learn that this machine cannot take part
STOP_SECONDS = 1.0
SIOCGIFADDR = 0x8915
SAME_COMMAND = "start every machine with the same command"
SAME_DATA = "give every machine the same data set: copies of one folder, or one folder on a shared file system"


@dataclass(frozen=True)
class Machine:
    """Which of the run's machines this is.

    Attributes:
        rank, size: its number, and how many there are.
        host, port: of the store of torch.distributed by which they meet.
        keeps_store: whether this machine must hold it: machine 0 where no torchrun does.
        agent: tells the processes of one torchrun from those of others, also after a restart; "": started otherwise.
    """

    rank: int
    size: int
    host: str
    port: int
    keeps_store: bool
    agent: str


def this_machine(environment: Mapping[str, str]) -> Machine | None:
    """What the environment says; None for a run on one machine.

    Raises:
        CohortError: several launchers were started on a machine, or the environment has a part of a place.
    """
    environment = {name: value for name, value in environment.items() if value}  # an empty one is not set
    rank_name, size_name = next((names for names in STARTERS if names[1] in environment), STARTERS[0])
    if environment.get(size_name, "1") == "1" and (size_name in environment or rank_name not in environment):
        return None
    job_processes = environment.get("PET_NPROC_PER_NODE", "")  # by PyTorchJob; "auto": it counts machines
    processes = environment.get("LOCAL_WORLD_SIZE") or environment.get("SLURM_NTASKS_PER_NODE")
    processes = processes or (job_processes if job_processes.isdecimal() else "1")
    if processes != "1":
        hint = "torchrun --nproc-per-node 1, srun --ntasks-per-node=1, or a PyTorchJob without nprocPerNode: --gpus"
        hint += " says how many trainers it starts; for runs that have nothing to do with each other set WORLD_SIZE=1"
        raise CohortError("LOCAL_WORLD_SIZE", "1: one cohort train per machine", processes, hint)
    places = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    shown = variables_shown(environment, places) or "none of them"
    try:
        rank, size, port = (int(environment[name]) for name in (rank_name, size_name, "MASTER_PORT"))
        host = environment["MASTER_ADDR"]
        if not (0 <= rank < size and 0 < port < 1 << 16 and host):
            raise ValueError
    except (KeyError, ValueError):
        hint = "start it by torchrun, which sets all; for a run on this machine only, set WORLD_SIZE=1"
        raise CohortError(", ".join(places), "the place of this machine among several", shown, hint) from None
    by_agent = environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    agent = f"{os.getppid()}-{start_time_of(os.getppid())}" if "TORCHELASTIC_RUN_ID" in environment else ""
    return Machine(rank, size, host, port, rank == 0 and not by_agent, agent)


def folder_of_machine(out: Path, machine: Machine | None) -> Path:
    """Where a machine writes; on a disk that they share, each has a folder of its own."""
    return out / f"machine-{machine.rank}" if machine and machine.rank else out


class Meeting:
    """The messages between this machine and the others, through a process that talks to their store.

    Args:
        machine: this one.
        silent_seconds: after which another machine counts as gone.
        start_seconds: in which all come.
    """

    def __init__(self, machine: Machine, silent_seconds: float, start_seconds: float = START_SECONDS):
        self.machine, self._start_seconds = machine, start_seconds
        self.has_met = False  # or is about to
        self.lost = ""  # why the run cannot go on, when another machine says so
        about = asdict(machine) | {"silent_seconds": silent_seconds, "start_seconds": start_seconds}
        self._pipe, theirs = multiprocessing.Pipe()
        command = python("-m", "cohort_gnn.launch.run.meeting", json.dumps(about), str(theirs.fileno()))
        env = os.environ | {"TORCH_CPP_LOG_LEVEL": "FATAL"}  # that a store is gone or not there is said once, by us
        none, fds = subprocess.DEVNULL, [theirs.fileno()]
        self._process = subprocess.Popen(
            command, env=env, stdin=none, stdout=none, pass_fds=fds, preexec_fn=begin_child
        )
        theirs.close()
        self._all_done = False

    def _tell(self, **words) -> None:
        with contextlib.suppress(OSError):  # it has ended, and its last words say why
            self._pipe.send(words)

    def _heard(self, seconds: float) -> dict[str, Any]:
        """What the process says within so many seconds; empty: nothing."""
        try:
            return self._pipe.recv() if self._pipe.poll(seconds) else {}
        except (EOFError, OSError):
            return {"lost": "the process that speaks to the other machines has ended"}

    def exchange(self, facts: dict[str, Any]) -> tuple[str, list[dict]]:
        """(a name for this attempt of the run, the facts of every machine by rank), when all have come.

        Raises:
            CohortError: one does not come in time, or there is no store.
        """
        self._tell(host=socket.gethostname(), **facts)
        self.has_met = True
        if not (line := self._heard(NOTICE_SECONDS)):
            machine, limit = self.machine, self._start_seconds
            where = f"machine {machine.rank} of {machine.size} waits for the others at {machine.host}:{machine.port}"
            LOG.info(f"{where} for up to {limit:g} s; start the same command on every machine")
            line = self._heard(2 * self._start_seconds + LEAST_SECONDS)
        if "facts" not in line:
            hint = "see the other machines: each must run the same command, and reach MASTER_ADDR:MASTER_PORT"
            self.lost = reason = line.get("lost", "no answer of the process that asks for them")
            expected = line.get("expected", f"{self.machine.size} machines")
            raise CohortError(f"machine {self.machine.rank}", expected, reason, line.get("hint", hint))
        for rank, theirs in enumerate(line["facts"]):
            if "refused" in theirs:
                place = f"machine {rank} ({theirs['host']})"
                raise CohortError(place, "a machine that trains", theirs["refused"], "correct this on that machine")
        return line["round"], line["facts"]

    def refuses(self, reason: str) -> None:
        """Tells machines that join now or soon that this one has refused the run."""
        self._tell(host=socket.gethostname(), refused=reason)
        self._heard(REFUSED_SECONDS)

    def begins(self, channels: list[Path]) -> None:
        """From now on, reports to the others what the processes of these channels do."""
        self._tell(channels=[str(folder) for folder in channels])

    def knows_stopped(self, process: str) -> None:
        """This process of the machine is stopped ("": none is). As long as it is, the machine counts as silent."""
        self._tell(stopped=process)

    def looks(self) -> str:
        """Why the run cannot go on; "": it can."""
        self._hear(0)
        return self.lost

    def _hear(self, seconds: float) -> None:
        if not self.lost and not self._all_done:
            line = self._heard(seconds)
            self.lost, self._all_done = line.get("lost", ""), "all_done" in line

    def announce_end(self, reason: str) -> None:
        """Tells the others why this machine ends the run."""
        self._tell(ends=reason)
        time.sleep(LAST_WORDS_SECONDS)

    def waits_for_all(self) -> str:
        """Waits until all machines are done; they are watched meanwhile, which bounds the wait. Returns as `looks`."""
        self._tell(done=True)
        while not self.lost and not self._all_done:
            self._hear(POLL_SECONDS)
            heed_stop()
        return self.lost

    def close(self) -> None:
        """Ends the process; one that keeps the store ends when the others have read why the run does."""
        if self.lost and self.machine.keeps_store:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=STORE_SECONDS)
        end_processes([self._process], STOP_SECONDS)
        self._pipe.close()


def meeting_if_any(machine: Machine | None, silent_seconds: float) -> AbstractContextManager[Meeting | None]:
    """As `meeting_of`; None on one machine."""
    return contextlib.nullcontext() if machine is None else meeting_of(machine, silent_seconds)


@contextlib.contextmanager
def meeting_of(machine: Machine, silent_seconds: float, start_seconds: float = START_SECONDS) -> Iterator[Meeting]:
    """The meeting of the machines (see `Meeting`).

    Raises:
        ReportedFailure: for an error before the machines meet, which is said at once; then the others hear of it.
    """
    meeting = Meeting(machine, silent_seconds, start_seconds)
    try:
        yield meeting
    except CohortError as error:
        if meeting.has_met:
            raise
        LOG.error(f"{error}\nother machines that start within {REFUSED_SECONDS:g} s hear of this")
        meeting.refuses(str(error))
        raise ReportedFailure(1) from error
    finally:
        meeting.close()


def join_machines(run: dict, meeting: Meeting, listener: socket.socket) -> None:
    """Gives ``run`` (what becomes run.json) its member "machines", when all have joined and agree.

    "rank", "hosts": this machine, and the names of all. "first_rank", "num_ranks": the first of its trainers, and how
    many all have. "places": where each trainer runs, by rank. "store": where trainers meet, see trainer/loop/ranks.py.
    "interface": of the network, for gloo. "has_checkpoint": whether this machine goes on with a run; ``run["resume"]``
    becomes true on all where it is on one. "agent": see `Machine`. Where each machine keeps a part of the feature rows,
    ``run["sampler"]`` gets "row_owners", and its sampler answers on ``listener``.

    Raises:
        CohortError: a machine has another data set, or other options.
    """
    machine = meeting.machine
    names = names_that_affect(RunSpec, Affects.BATCHES | Affects.LOSS | Affects.COURSE)
    same = {flag_of(name): run["trainer"][name] for name in sorted(names - {"device"})}
    same |= {"--feature-placement": run["trainer"]["feature_placement"]}
    same |= {"--device": run["sampler"]["device"]}
    own = {"num_ranks": run["sampler"]["num_ranks"], "same": same, "data": run["data"]}
    own |= {"address": address_towards(machine), "resume": bool(run.get("resume")), "gpus": run["sampler"].get("gpus")}
    own |= {"features": features_here(run), "row_port": listener.getsockname()[1]}
    name, facts = meeting.exchange(own)
    for rank, theirs in enumerate(facts):
        place, first = f"machine {rank} ({theirs['host']})", f"machine 0 ({facts[0]['host']})"
        for what, value in facts[0]["same"].items():
            if (actual := theirs["same"].get(what)) != value:
                expected = f"{as_given(value)}, as {first} has it"
                raise CohortError(f"{place}: {what}", expected, as_given(actual), SAME_COMMAND)
        if others := [what for what, digest in facts[0]["data"].items() if theirs["data"].get(what) != digest]:
            actual = f"one with other {', '.join(others)}"
            raise CohortError(f"{place}: the data set", f"the data set of {first}", actual, SAME_DATA)
    sizes = [theirs["num_ranks"] for theirs in facts]
    places = []
    for rank, theirs in enumerate(facts):
        own_places = [f"GPU {gpu}" for gpu in theirs["gpus"] or []]
        places += [f"m{rank} {place}" for place in own_places or [f"r{trainer}" for trainer in range(sizes[rank])]]
    run["machines"] = {
        "rank": machine.rank,
        "hosts": [theirs["host"] for theirs in facts],
        "first_rank": sum(sizes[: machine.rank]),
        "num_ranks": sum(sizes),
        "places": places,
        "store": {
            "host": machine.host,
            "port": machine.port,
            "prefix": f"cohort/{name}/trainers",
            "seconds": max(LEAST_SECONDS, 2 * run["trainer"]["machine_seconds"]),
        },
        "interface": interface_of([theirs["address"] for theirs in facts], machine.rank),
        "has_checkpoint": bool(run.get("resume")),
        "agent": machine.agent,
    }
    if any(theirs["features"] == "partitioned" for theirs in facts):
        seconds = run["trainer"]["machine_seconds"]
        run["sampler"]["row_owners"] = row_owners(facts, machine.rank, listener, name, seconds, machine.host)
        run["sampler"]["ahead"] = run["trainer"]["ahead"]
    run["resume"] = any(theirs["resume"] for theirs in facts)


def address_towards(machine: Machine) -> str:
    """This machine's address on the way to the store; "" where that is not IPv4 or not known."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((machine.host, machine.port))  # sends nothing
        return probe.getsockname()[0]
    return ""


def interface_of(addresses: list[str], rank: int) -> str:
    """The network interface for gloo; "": its own choice.

    A machine that keeps the store reaches it over its loopback, where no other machine reaches it.
    """
    are_loopback = [address.startswith("127.") for address in addresses]
    if not addresses[rank] or (are_loopback[rank] and not all(are_loopback)):
        return ""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # one without an address
                answer = fcntl.ioctl(probe, SIOCGIFADDR, struct.pack("256s", name[:15].encode()))
                if socket.inet_ntoa(answer[20:24]) == addresses[rank]:
                    return name
    return ""
