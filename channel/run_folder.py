"""The folder in shared memory that one run's channel lives in.

It belongs to the process that made it: that process holds a lock on the file ``lock`` inside. A folder whose lock can
be taken has lost its owner, so the next run removes it.
"""

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from pathlib import Path

from cohort_gnn.base.errors import CohortError, why
from cohort_gnn.base.machine import shared_memory_root


def rank_folders(run_folder: Path, num_ranks: int) -> list[Path]:
    """The folder of each rank's channel: that of rank 0 is the run's."""
    return [run_folder, *(run_folder / f"rank-{rank}" for rank in range(1, num_ranks))]


def meeting_point(name: str) -> Path:
    """The path of a link to a run folder, by which processes that know this name find the folder that they share.

    It leads nowhere once the folder is gone.

    Raises:
        CohortError: another user may have made the link.
    """
    root = shared_memory_root()
    if root.exists():
        demand_own(root)
    return root / f"meet-{name}"


def demand_own(root: Path) -> None:
    """Checks that a folder in shared memory is ours: other users can make folders there, also one with our name.

    Raises:
        CohortError: the folder is not this user's alone.
    """
    status = root.lstat()
    cure = "remove it, or give it mode 700 (chmod)"
    if status.st_uid != os.getuid():  # /dev/shm lets nobody else remove it
        cure = f"user {status.st_uid} or root can remove it; till then: mkdir -m 700 {root}-own,"
        cure += f" and set COHORT_SHM={root}-own"
    if stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077:
        return
    expected = f"a folder that only user {os.getuid()} may enter (drwx------)"
    actual = f"{stat.filemode(status.st_mode)} of user {status.st_uid}"
    raise CohortError(str(root), expected, actual, cure)


class RunFolder:
    """A fresh folder, mode 0700, removed by ``remove()`` or, when its owner died, by the next run.

    Attributes:
        path: the folder.
        swept: folders of dead runs that were removed on the way.
    """

    def __init__(self):
        root = shared_memory_root()
        try:
            root.mkdir(mode=0o700, exist_ok=True)
            demand_own(root)
            with _locked(root / "sweep.lock"):
                self.swept = _sweep(root)
                self.path = Path(tempfile.mkdtemp(prefix="run-", dir=root))
                self._lock = open(self.path / "lock", "w")  # noqa: SIM115 (held for the folder's life)
                fcntl.flock(self._lock, fcntl.LOCK_EX)
        except OSError as error:
            hint = "mount /dev/shm, make room in it, or set COHORT_SHM"
            raise CohortError(str(root), "a folder that can be made, with room in it", why(error), hint) from error

    @property
    def lock(self) -> int:
        """The file descriptor of the lock: a process that inherits it owns the folder too."""
        return self._lock.fileno()

    def remove(self) -> None:
        """Removes the folder and all in it; a second call does nothing."""
        if self.path.exists():
            with _locked(self.path.parent / "sweep.lock"):  # or a sweep would find the lock gone half-way
                shutil.rmtree(self.path)
        self._lock.close()


@contextlib.contextmanager
def _locked(path: Path):
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _sweep(root: Path) -> list[Path]:
    """Removes the folders under ``root`` whose owner is dead, and links that lead nowhere; returns the folders."""
    dead = []
    for folder in sorted(root.glob("run-*")):
        try:
            lock = open(folder / "lock", "w")  # noqa: SIM115
        except FileNotFoundError:  # its owner is removing it now
            continue
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            try:
                shutil.rmtree(folder)
            except OSError:  # a process of the dead run is ending and removes it, or still writes: the next run's turn
                continue
            dead.append(folder)
    for link in root.glob("meet-*"):
        if not link.exists():
            link.unlink(missing_ok=True)
    return dead
