"""The ranks of a machine make the same loaders: each says in its channel's folder what its loader is, and reads the
others' words."""

import json
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path

from cohort.base.errors import CohortError
from cohort.base.files import write_atomically
from cohort.trainer.ranks import Place
from cohort.trainer.source import wait_for_file

PATIENCE_SECONDS = 5.0  # how long another rank is waited for in silence
HINT = "every rank must make the same loaders, in the same order"


def demand_same_loader(
    folders: list[Path], place: Place, number: int, identity: dict, check: Callable[[], None], limit_seconds: float
) -> None:
    """Waits until every rank of this machine has made a loader, and compares them.

    Args:
        folders: of the ranks' channels, by local rank.
        number: of the loader, among those that share the sampler.
        identity: what its batches follow from, in numbers and text.
        check: raises when the sampler has ended.

    Raises:
        CohortError: the loaders differ (every rank is told the same), or one is missing.
    """
    files = [folder / f"loader-{number}.json" for folder in folders]
    write_atomically(files[place.local_rank], json.dumps(identity))
    for rank, file in enumerate(files):
        expected = f"its loader within {limit_seconds:.0f} s"
        late = CohortError(f"local rank {rank}", expected, "none", HINT)
        wait_for_rank(file, rank, place, check, limit_seconds, late)
    found = [json.loads(file.read_text()) for file in files]
    first = place.rank - place.local_rank
    for name, value in found[0].items():
        others = {first + rank: of_rank[name] for rank, of_rank in enumerate(found) if of_rank[name] != value}
        if others and name == "input_nodes":  # digests, which nobody wants to read
            ranks = ", ".join(map(str, others))
            hint = "give every rank all of them: Cohort divides the batches itself"
            raise CohortError(name, "the same on every rank", f"other ones on rank {ranks}", hint)
        if others:
            told = ", ".join(f"{other!r} on rank {rank}" for rank, other in ({first: value} | others).items())
            raise CohortError(name, "the same on every rank", told, HINT)


def wait_for_rank(
    file: Path, local_rank: int, place: Place, check: Callable[[], None], limit_seconds: float, late: CohortError
) -> None:
    """Waits for a file that another rank of this machine writes when it makes its loader (see wait_for_file). After
    some seconds it warns once; a rank that has ended is waited for no longer."""
    name = f"rank {place.rank - place.local_rank + local_rank}"
    next_look, warned = time.monotonic() + PATIENCE_SECONDS, False

    def look() -> None:
        nonlocal next_look, warned
        check()
        if time.monotonic() < next_look:
            return
        next_look = time.monotonic() + 1
        if _has_ended(local_rank, place) and not file.exists():
            raise CohortError(name, "the same loader as on this rank", "its process has ended", HINT)
        if not warned:
            warnings.warn(f"waiting for {name} to make the same loader", stacklevel=2)
        warned = True

    wait_for_file(file, look, limit_seconds, late)


def _has_ended(local_rank: int, place: Place) -> bool:
    """Whether this process's parent has no process of that local rank any more; False where that cannot be known."""
    try:
        tasks = Path(f"/proc/{os.getppid()}/task").glob("*/children")
        siblings = " ".join(task.read_text() for task in tasks).split()
        variables = {entry for pid in siblings for entry in _environment(pid)}
    except OSError:
        return False
    ours, theirs = (f"LOCAL_RANK={rank}".encode() for rank in (place.local_rank, local_rank))
    return ours in variables and theirs not in variables  # without ours, ranks were not told by the environment


def _environment(pid: str) -> list[bytes]:
    """The variables that a process was started with; none of one that has ended."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError):
        return []
