"""The folder that a run, or a tuning, has for itself."""

import contextlib
import fcntl
import logging
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.files import demand_writable

LOG = logging.getLogger(__name__)

OWNER_SECONDS = 1.0  # for a command that was killed a moment ago
LOCK_SECONDS = 60.0  # for processes of a run that was killed: memory that was pinned takes seconds to be given back


def made_writable(out: Path) -> Path:
    """The folder, which is made if need be.

    Raises:
        CohortError: nothing can be written there.
    """
    with demand_writable(out):
        out.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=out).close()
    return out


def new_run_folder(path: Path) -> Path:
    """Makes a folder of that name; of NAME-2 and so on where there is one already.

    Raises:
        CohortError: there is no place to make it in.
    """
    with demand_writable(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        folder, number = path, 1
        while True:
            with contextlib.suppress(FileExistsError):
                folder.mkdir()
                return folder
            number += 1
            folder = path.with_name(f"{path.name}-{number}")


@contextlib.contextmanager
def sole_use(out: Path) -> Iterator[tuple[int, ...]]:
    """Holds a run's folder against other runs; yields descriptors by which processes hold it as long as they live.

    Raises:
        CohortError: another run works there.
    """
    folder = os.open(out, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield (folder,) if _lock(folder, out) else ()
    finally:
        os.close(folder)


def _lock(folder: int, out: Path) -> bool:
    """Locks the folder; False on a file system without locks of folders."""
    begin, is_said = time.monotonic(), False
    while True:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            owner, waited = _owner_of(folder), time.monotonic() - begin
            if waited > (OWNER_SECONDS if owner else LOCK_SECONDS):
                actual = f"one that a run uses (process {owner})" if owner else "one that processes of a run still use"
                hint = "wait for its end, or choose another --out"
                raise CohortError(str(out), "a folder that no other run uses", actual, hint) from None
            if not is_said and not owner:
                LOG.info(
                    f"processes of a run that has ended use {out}: waiting up to {LOCK_SECONDS:.0f} s for their end"
                )
            is_said = is_said or not owner
            time.sleep(0.05)
        except OSError:
            return False


def _owner_of(folder: int) -> int:
    """The process that has locked a folder and still lives: a command at work, for which it makes no sense to wait. 0:
    it has ended, and processes that it started hold the folder; or it is not known, as on another machine."""
    inode = str(os.fstat(folder).st_ino)
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/locks").read_text().splitlines():
            _, kind, _, _, pid, where, *_ = line.split()
            if kind == "FLOCK" and where.rpartition(":")[2] == inode:
                state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
                return 0 if state in "ZX" else int(pid)
    return 0
