"""Which rank this process is, and how the ranks of a machine find each other: by the environment that torchrun gives,
or by torch.distributed where it is initialised."""

import contextlib
import functools
import itertools
import json
import os
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch.distributed as dist

from cohort_gnn.base.errors import CohortError, warn_user
from cohort_gnn.base.machine import STARTERS, machine_identity, variables_shown
from cohort_gnn.base.programs import start_time_of
from cohort_gnn.trainer.loader.source import wait_for

NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
PATIENCE_SECONDS = 5.0  # how long another rank is waited for in silence
LATE_SECONDS = 60.0  # after which a rank of this machine that was never seen counts as ended: it should have started
SAME_LOADERS = "every rank must make the same loaders, in the same order"
FIRST_THE_GROUP = "call torch.distributed.init_process_group() before NeighborLoader()"
numbers = itertools.count()  # of what the ranks of this process's parent share


@dataclass(frozen=True)
class ProcessRank:
    """Which of the run's trainers this process is, as torchrun counts them.

    Attributes:
        rank, size: among all trainers of the run; batch b of a pass is for rank b mod size.
        local_rank, local_size: among those on this machine, which share one sampler.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1


@dataclass(frozen=True)
class RanksHere:
    """The ranks of this machine, which share a sampler.

    Attributes:
        process_rank: that of this process.
        ranks: their numbers among all ranks, by local rank.
        name: known to them alone.
        has_ended: whether the process of a local rank is known to have ended.
    """

    process_rank: ProcessRank = ProcessRank()
    ranks: tuple[int, ...] = (0,)
    name: str = ""
    has_ended: Callable[[int], bool] = lambda local_rank: False


def ranks_here(limit_seconds: float) -> RanksHere:
    """The ranks of this process's machine. All ranks ask in the same order: those that torch.distributed alone knows
    wait here for each other.

    Raises:
        CohortError: there seem to be several ranks, but which one this is is unknown; or one does not ask in time.
    """
    process_rank = launcher_rank(os.environ)
    if dist.is_available() and dist.is_initialized():
        rank, size = dist.get_rank(), dist.get_world_size()
        if size == 1:
            return RanksHere()
        if process_rank is None or (process_rank.rank, process_rank.size) != (rank, size):
            return _ranks_of_group(rank, size, limit_seconds)
    elif process_rank is None:
        demand_alone(os.environ)
        return RanksHere()
    if process_rank.local_size == 1:
        return RanksHere(process_rank, (process_rank.rank,))
    first = process_rank.rank - process_rank.local_rank
    parent, restarts = os.getppid(), os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    name = f"{parent}-{start_time_of(parent)}-{restarts}-{next(numbers)}"
    ranks = tuple(range(first, first + process_rank.local_size))
    siblings.look(process_rank.local_rank)
    return RanksHere(
        process_rank, ranks, name, lambda local_rank: siblings.has_ended(local_rank, process_rank.local_rank)
    )


def has_other_ranks() -> bool:
    """Whether this process is one of several ranks, as far as its environment and torch.distributed say.

    Raises:
        CohortError: as `launcher_rank`.
    """
    process_rank = launcher_rank(os.environ)
    size = dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
    return max(size, process_rank.size if process_rank else 1) > 1


def launcher_rank(environment: Mapping[str, str]) -> ProcessRank | None:
    """The rank that torchrun or ``cohort run`` gives to a process; None where they started none.

    Raises:
        CohortError: a variable is no number, or they contradict each other.
    """
    if any(name not in environment for name in NAMES):
        return None
    shown = variables_shown(environment, NAMES)
    try:
        process_rank = ProcessRank(*(int(environment[name]) for name in NAMES))
    except ValueError as error:
        raise CohortError(", ".join(NAMES), "integers, as torchrun sets them", shown) from error
    rank, size, local_rank, local_size = (number for number in vars(process_rank).values())
    if not (0 <= local_rank <= rank < size and local_rank < local_size <= size):
        raise CohortError(", ".join(NAMES), "ranks below the sizes, as torchrun sets them", shown)
    return process_rank


def demand_alone(environment: Mapping[str, str]) -> None:
    """Checks that a process without a rank from torchrun or torch.distributed trains alone.

    Raises:
        CohortError: the environment has some of these variables alone, or srun or mpirun has started several processes.
    """
    if environment.get("WORLD_SIZE") == "1":
        return
    variables = {name: environment[name] for name in NAMES if name in environment}
    variables |= {name: size for _, name in STARTERS[1:] if (size := environment.get(name, "1")) != "1"}
    if variables:
        expected = "all of them, or an initialised torch.distributed, which knows the ranks"
        hint = f"{FIRST_THE_GROUP}, or set WORLD_SIZE=1 for a process that trains alone"
        raise CohortError(", ".join(NAMES), expected, variables_shown(variables, variables), hint)


def demand_same_rank(process_rank: ProcessRank) -> None:
    """Checks that torch.distributed, which may have been initialised after the loader was made, agrees with its rank.

    Raises:
        CohortError: it knows this process as another rank than the loader does.
    """
    if not (dist.is_available() and dist.is_initialized()):
        return
    rank, size = dist.get_rank(), dist.get_world_size()
    if (rank, size) != (process_rank.rank, process_rank.size):
        expected = f"one of rank {rank} of {size}, as torch.distributed has it"
        raise CohortError(
            "the loader", expected, f"one of rank {process_rank.rank} of {process_rank.size}", FIRST_THE_GROUP
        )


def wait_for_rank(
    rank: int,
    is_there: Callable[[], bool],
    has_ended: Callable[[], bool],
    check: Callable[[], None],
    limit_seconds: float,
    late: CohortError,
) -> None:
    """Waits for what another rank leaves when it makes its loader (see wait_for). After some seconds it warns once; a
    rank that has ended is waited for no longer."""
    next_look, warned = time.monotonic() + PATIENCE_SECONDS, False

    def look() -> None:
        nonlocal next_look, warned
        check()
        if time.monotonic() < next_look:
            return
        next_look = time.monotonic() + 1
        if has_ended() and not is_there():
            raise CohortError(f"rank {rank}", "the same loader as on this rank", "its process has ended", SAME_LOADERS)
        if not warned:
            warn_user(f"waiting for rank {rank} to make the same loader")
        warned = True

    wait_for(is_there, look, limit_seconds, late)


def _ranks_of_group(rank: int, size: int, limit_seconds: float) -> RanksHere:
    """The ranks of this machine, found by the store of torch.distributed, to which every rank writes its machine."""
    store = dist.distributed_c10d._get_default_store()
    own: dict = {"machine": machine_identity(), "pid": os.getpid(), "name": uuid.uuid4().hex}
    own["started"] = start_time_of(own["pid"])
    try:
        number = store.add(f"cohort/{rank}", 1)
        store.set(f"cohort/{number}/{rank}", json.dumps(own))
        records = []
        for other in range(size):
            late = CohortError(f"rank {other}", f"its loader within {limit_seconds:.0f} s", "none", SAME_LOADERS)
            there = functools.partial(store.check, [f"cohort/{number}/{other}"])
            wait_for_rank(other, there, lambda: False, lambda: None, limit_seconds, late)
            records.append(json.loads(store.get(f"cohort/{number}/{other}")))
    except CohortError:
        raise
    except RuntimeError as error:
        hint = "the rank that keeps it, rank 0 as a rule, may have ended"
        raise CohortError("the store of torch.distributed", "an answer", str(error), hint) from error
    ranks = tuple(other for other, record in enumerate(records) if record["machine"] == own["machine"])
    here = [records[other] for other in ranks]

    def has_ended(local_rank: int) -> bool:
        return start_time_of(here[local_rank]["pid"]) != here[local_rank]["started"]

    return RanksHere(ProcessRank(rank, size, ranks.index(rank), len(ranks)), ranks, here[0]["name"], has_ended)


class Siblings:
    """The processes of this one's parent, by local rank. A rank that was never seen may not have started yet."""

    def __init__(self):
        self._looked = 0.0  # for the first time
        self._seen: set[int] = set()

    def look(self, own_local_rank: int) -> set[int]:
        """The local ranks that are running; an empty set if that cannot be known."""
        self._looked = self._looked or time.monotonic()
        there = _local_ranks()
        if own_local_rank not in there:  # the environments do not have the ranks
            return set()
        self._seen |= there
        return there

    def has_ended(self, local_rank: int, own_local_rank: int) -> bool:
        """Whether a local rank has ended; False if that cannot be known."""
        there = self.look(own_local_rank)
        is_late = time.monotonic() > self._looked + LATE_SECONDS
        return bool(there) and local_rank not in there and (local_rank in self._seen or is_late)


siblings = Siblings()


def _local_ranks() -> set[int]:
    """The local ranks in the environments of the parent's children."""
    variables: set[bytes] = set()
    try:
        tasks = Path(f"/proc/{os.getppid()}/task").glob("*/children")
        for pid in " ".join(task.read_text() for task in tasks).split():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # one that has ended
                variables.update(Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))
    except OSError:
        return set()
    named = (entry.partition(b"=") for entry in variables)
    return {int(value) for name, _, value in named if name == b"LOCAL_RANK" and value.isdigit()}
