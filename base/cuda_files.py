"""Files that CUDA leaves in shared memory when a process ends."""

import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path

from cohort.base.programs import runs

ROOT = Path("/dev/shm")
NAME = re.compile(r"cuda\.shm\.[0-9a-f]+\.([0-9a-f]+)\.[0-9a-f]+", re.IGNORECASE)  # user, process, number


def remove_cuda_files(pids: Iterable[int], since: float) -> None:
    """Removes what CUDA has left in shared memory of processes that have ended: ``cuda.shm.UID.PID.N``.

    NVIDIA documents no such name. The driver writes its numbers in hexadecimal; a file also stays where its PID, read
    as a decimal number, is that of a process that runs. Files of other users and older ones stay.

    Args:
        pids: of the processes; those that still run keep their files.
        since: when the first of them was started, as time.time() has it.
    """
    pids = set(pids)
    for path in ROOT.glob("cuda.shm.*") if pids else ():
        named = _pids_of(path.name)
        if not named & pids or any(map(runs, named)):
            continue
        try:
            status = path.lstat()
            if status.st_uid == os.getuid() and status.st_ctime >= since and stat.S_ISREG(status.st_mode):
                path.unlink()
        except FileNotFoundError:  # another process has removed it
            continue


def _pids_of(name: str) -> set[int]:
    """The processes that may be meant; none by another name."""
    found = NAME.fullmatch(name)
    if not found:
        return set()
    return {int(found[1], 16)} | ({int(found[1])} if found[1].isdecimal() else set())
