"""The ranks of a machine make the same loaders: each says in its channel's folder what its loader is, and reads the
others' words."""

import json
from collections.abc import Callable
from pathlib import Path

from cohort.base.errors import CohortError
from cohort.base.files import write_whole
from cohort.trainer.loader.machine import SAME_LOADERS, Machine, wait_for_rank


def demand_same_loader(
    folders: list[Path], machine: Machine, number: int, identity: dict, check: Callable[[], None], limit_seconds: float
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
    write_whole(files[machine.place.local_rank], json.dumps(identity))
    for local_rank, file in enumerate(files):
        wait_for_file_of(machine, local_rank, file, check, limit_seconds)
    found = [json.loads(file.read_text()) for file in files]
    for name, value in found[0].items():
        of_ranks = dict(zip(machine.ranks, (of_rank[name] for of_rank in found), strict=True))
        others = {rank: other for rank, other in of_ranks.items() if other != value}
        if others and name == "input_nodes":  # digests, which nobody wants to read
            ranks = ", ".join(map(str, others))
            hint = "pass all of them on every rank: Cohort divides the batches itself"
            raise CohortError(name, "the same on every rank", f"other ones on rank {ranks}", hint)
        if others:
            others = {machine.ranks[0]: value} | others
            told = ", ".join(f"{other!r} on rank {rank}" for rank, other in others.items())
            raise CohortError(name, "the same on every rank", told, SAME_LOADERS)


def wait_for_file_of(
    machine: Machine, local_rank: int, file: Path, check: Callable[[], None], limit_seconds: float
) -> None:
    """Waits for a file that a rank of this machine writes when it makes its loader (see wait_for_rank)."""
    late = CohortError(f"local rank {local_rank}", f"its loader within {limit_seconds:.0f} s", "none", SAME_LOADERS)

    def has_ended() -> bool:
        return machine.has_ended(local_rank)

    wait_for_rank(machine.ranks[local_rank], file.exists, has_ended, check, limit_seconds, late)
