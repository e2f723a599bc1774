"""Files that CUDA leaves in shared memory when a process ends."""

import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path

from cohort_gnn.base.programs import runs

ROOT = Path("/dev/shm")
NAME = re.compile(r"cuda\.shm\.[0-9a-f]+\.([0-9a-f]+)\.[0-9a-f]+", re.IGNORECASE)  # user, process, number


def remove_cuda_files(pids: Iterable[int], since: float) -> None:
    """Removes what CUDA has left in shared memory of processes that have ended: ``cuda.shm.UID.PID.N``.

    NVIDIA documents no such name; the driver writes its numbers in hexadecimal. Files of other users and older ones
    stay.

    Args:
        pids: of the processes; those that still run keep their files.
        since: when the first of them was started, as time.time() has it.
    """
    ended = {pid for pid in pids if not runs(pid)}
    for path in ROOT.glob("cuda.shm.*") if ended else ():
        match = NAME.fullmatch(path.name)
        if not match or int(match[1], 16) not in ended:
            continue
        try:
            status = path.lstat()
            if status.st_uid == os.getuid() and status.st_ctime >= since and stat.S_ISREG(status.st_mode):
                path.unlink()
        except FileNotFoundError:  # another process has removed it
            continue
