"""Process groups of `ShardedRows`."""

from __future__ import annotations

import datetime
import weakref
from typing import ClassVar

import torch.distributed as dist

from cohort_gnn.base.errors import CohortError


def _world() -> weakref.ref:
    return weakref.ref(dist.group.WORLD)


class Groups:
    """Process groups of the same ranks, which a later `ShardedRows` of these ranks takes when this one is closed.

    A group of NCCL takes seconds to begin. And torch before 2.12 gives a new group the name of one that was destroyed,
    so that ranks find the addresses of the old one in the store, and wait for each other.

    Free groups are torch's alone: one that lived on when the script has ended its own would end the process by abort().
    """

    _free: ClassVar[dict[tuple, list[weakref.ref[dist.ProcessGroup]]]] = {}

    def __init__(self, ranks: list[int]):
        self._ranks = ranks
        self._taken: list[tuple[tuple, dist.ProcessGroup]] = []

    def taken(self, backend: str, timeout_s: float) -> dist.ProcessGroup:
        """A free group, or a new one."""
        key = (_world(), backend, timeout_s, *self._ranks)
        for old in [other for other in self._free if other[0] != key[0]]:  # ended with their world
            del self._free[old]
        free = self._free.get(key)
        group = (free.pop(0)() if free else None) or self._new(backend, timeout_s)
        self._taken.append((key, group))
        return group

    def give_back(self, is_whole: bool) -> None:
        """Makes the groups free, or destroys them after a failed exchange."""
        for key, group in self._taken:
            if is_whole and dist.is_initialized() and key[0] == _world():
                self._free.setdefault(key, []).append(weakref.ref(group))
            else:
                dist.destroy_process_group(group)
        self._taken = []

    def _new(self, backend: str, timeout_s: float) -> dist.ProcessGroup:
        timeout = datetime.timedelta(seconds=timeout_s)
        try:
            return dist.new_group(self._ranks, timeout=timeout, backend=backend, use_local_synchronization=True)
        except RuntimeError as error:
            hint = "see the end of each rank's output: every rank of the group makes a ShardedRows"
            expected = f"all {len(self._ranks)} ranks within {timeout_s:g} s"
            raise CohortError("ShardedRows", expected, str(error).partition("\n")[0], hint) from error
