"""Reading whole files, writing files that a reader never sees half done, and remembering in them what took time."""

import contextlib
import errno
import fcntl
import logging
import os
import re
import shutil
import struct
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, TypeVar

from cohort_gnn.base.errors import CohortError, found_full, why

LOG = logging.getLogger(__name__)
COPIED_AT_ONCE = 1 << 26  # bytes
FICLONERANGE = 0x4020940D  # of linux/fs.h

Value = TypeVar("Value")


def demand_regular(path: str | Path) -> None:
    """Raises CohortError for a folder, a pipe or a device."""
    if Path(path).exists() and not Path(path).is_file():
        actual = "a folder" if Path(path).is_dir() else "a pipe or a device"
        raise CohortError(str(path), "a file", actual, "write the content into a file, which is read more than once")


def read_regular(path: Path, expected: str, hint: str) -> bytes | None:
    """The content of a file; None: there is none.

    Raises:
        CohortError: it cannot be read, or is a folder, a pipe or a device.
    """
    demand_regular(path)
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise CohortError(str(path), expected, why(error), hint) from error


class BegunFile(NamedTuple):
    """What is going to take a file's place: its name until then, and its descriptor."""

    path: Path
    descriptor: int


def begun_file(path: Path) -> contextlib.AbstractContextManager[BegunFile]:
    """Begins what `replacing` goes on with; removed in the end, if that has not put it in its place."""
    return _temporary(path)


@contextlib.contextmanager
def replacing(path: Path, synced: bool = True, begun: BegunFile | None = None) -> Iterator[Path]:
    """Gives the name under which to write what then takes the file's place in one step; an error leaves it as it was.

    The old or the new file is there, whole, also when the process is killed. Several processes may write it at once.

    Args:
        synced: also when the machine loses power. False: for what is written again and again beside other work.
        begun: what `begun_file` gave, where it has begun.
    """
    with contextlib.nullcontext(begun) if begun else _temporary(path) as (temporary, descriptor):
        yield temporary
        if synced:
            _sync(descriptor)
        os.replace(temporary, path)
        if synced:
            folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                _sync(folder)
            finally:
                os.close(folder)


def write_whole(path: Path, data: str | bytes | memoryview, synced: bool = True) -> None:
    """Writes a file as `replacing` does, text as UTF-8."""
    with replacing(path, synced) as temporary:
        temporary.write_bytes(data.encode() if isinstance(data, str) else data)


@contextlib.contextmanager
def temporary_folder(path: Path) -> Iterator[Path]:
    """A folder beside a file that is being made, removed with all in it in the end."""
    with _temporary(path, is_folder=True) as (temporary, _):
        yield temporary


@contextlib.contextmanager
def scratch_folder(name: str) -> Iterator[Path]:
    """A folder in TMPDIR that this user alone reads, removed with all in it in the end; so are those of the name that
    are left of this user's processes that were killed."""
    with temporary_folder(Path(tempfile.gettempdir(), f"cohort-{name}-{os.getuid()}")) as folder:
        folder.chmod(0o700)
        yield folder


def is_temporary(path: Path) -> bool:
    """Whether a file is in a folder of `temporary_folder`, and nobody finds it later."""
    return any(re.fullmatch(r".+\.\d+-[0-9a-f]{8}\.tmp", folder.name) for folder in path.parents)


def remove_temporaries(path: Path) -> None:
    """Removes the temporary files of a file whose writers have ended or were killed, where that is possible."""
    name = re.compile(re.escape(path.name) + r"\.\d+-[0-9a-f]{8}\.tmp")
    with contextlib.suppress(OSError):
        for left in filter(name.fullmatch, os.listdir(path.parent)):
            with contextlib.suppress(OSError):
                descriptor = os.open(path.parent / left, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # unless it is locked
                    _remove(path.parent / left)
                finally:
                    os.close(descriptor)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


@contextlib.contextmanager
def _temporary(path: Path, is_folder: bool = False) -> Iterator[BegunFile]:
    """Makes a temporary file or folder beside a file; removes it at the end."""
    remove_temporaries(path)
    temporary, descriptor = _locked(path, is_folder)
    try:
        yield BegunFile(temporary, descriptor)
    finally:
        with contextlib.suppress(OSError):  # an error before this one says why
            _remove(temporary)
        os.close(descriptor)


def _locked(path: Path, is_folder: bool) -> tuple[Path, int]:
    """Makes and locks a file or folder named as in base/whole_file.h; remove_temporaries leaves locked ones."""
    flags = os.O_RDONLY | os.O_DIRECTORY if is_folder else os.O_RDWR | os.O_CREAT | os.O_EXCL
    while True:
        temporary = path.with_name(f"{path.name}.{os.getpid()}-{os.urandom(4).hex()}.tmp")
        try:
            if is_folder:
                temporary.mkdir()
        except FileExistsError:
            continue
        try:
            descriptor = os.open(temporary, flags, 0o666)
        except FileExistsError:
            continue
        except FileNotFoundError:
            if is_folder:  # removed by another process before it was opened; mkdir() says if its parent is gone
                continue
            raise
        with contextlib.suppress(OSError):  # a file system without locks has none for remove_temporaries either
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        with contextlib.suppress(FileNotFoundError):  # removed by another process before it was locked
            if os.path.samestat(os.lstat(temporary), os.fstat(descriptor)):
                return temporary, descriptor
        os.close(descriptor)


def _sync(descriptor: int) -> None:
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a file system that keeps nothing back
            raise


def copy_bytes(
    source: int, target: int, offset: int, count: int, is_stopped: Callable[[], bool] = lambda: False
) -> bool:
    """Copies bytes of a file behind those of another, of which the position is the end; both are descriptors.

    Args:
        is_stopped: is asked between pieces of the copy, whether the rest is not wanted.

    Returns:
        Whether the files share blocks now, as XFS and Btrfs let them: no bytes were copied, and a later write to a
        block takes room on the disk.
    """
    position, block = os.lseek(target, 0, os.SEEK_CUR), os.fstatvfs(target).f_bsize
    head = -offset % block
    middle = (count - head) // block * block
    are_shared = False
    if middle > 0 and (offset - position) % block == 0:
        _copy(source, target, offset, position, head, is_stopped)
        are_shared = _share(source, target, offset + head, position + head, middle)
    done = head + middle if are_shared else 0
    _copy(source, target, offset + done, position + done, count - done, is_stopped)
    os.lseek(target, position + count, os.SEEK_SET)
    return are_shared


def is_in_memory(path: Path) -> bool:
    """Whether a file is in a file system of memory, tmpfs, in which one thread cannot write as fast as several."""
    device = path.stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    mounts = (line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines())
    return any(words[2] == number and words[words.index("-") + 1] == "tmpfs" for words in mounts)


def _share(source: int, target: int, offset: int, position: int, count: int) -> bool:
    """Has whole blocks of a file be those of another, too; False: the file system cannot, or not here."""
    try:
        fcntl.ioctl(target, FICLONERANGE, struct.pack("qQQQ", source, offset, count, position))
    except OSError:  # if it was for want of room, the copy in its place says so
        return False
    return True


def _copy(source: int, target: int, offset: int, position: int, count: int, is_stopped: Callable[[], bool]) -> None:
    while count and not is_stopped():
        try:
            done = os.copy_file_range(source, target, min(count, COPIED_AT_ONCE), offset, position)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EXDEV, errno.EPERM):
                raise
            done = os.pwrite(target, os.pread(source, min(count, COPIED_AT_ONCE), offset), position)
        if not done:
            raise OSError(errno.EIO, "the file ends early")
        offset, position, count = offset + done, position + done, count - done


def demand_room(folder: Path, count: int) -> None:
    """Raises OSError where a disk has no room for so many more bytes."""
    if count:
        with tempfile.TemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, count)


@contextlib.contextmanager
def demand_writable(
    place: Path, expected: str = "a folder that can be written", hint: str = "choose another --out"
) -> Iterator[None]:
    """Inside, an OSError becomes the CohortError of a place where nothing can be written."""
    try:
        yield
    except OSError as error:
        raise CohortError(str(place), expected, found_full(error) or why(error), hint) from error


def demand_output(out: Path, inputs: Iterable[Path] = ()) -> None:
    """Looks at where a file is to be written before anything is computed.

    Raises:
        CohortError: there is no such folder, a folder has the name, or it is one of the files that are read.
    """
    if not out.absolute().parent.is_dir():
        hint = "make it, or choose another file to write"
        raise CohortError(str(out.absolute().parent), "an existing folder", "none", hint)
    if out.is_dir():
        raise CohortError(str(out), "a file to write", "a folder", "name a file in it")
    for path in inputs:
        if out.absolute() == path.absolute() or (out.exists() and path.exists() and out.samefile(path)):
            raise CohortError(str(out), "another file to write than to read", f"the same as {path}", "choose another")


class FileWriter:
    """Writes files beside its owner's other work, in the order in which they were given.

    As a context: leaving it waits until everything is written. What a write raises is raised by one of the next calls,
    or then.
    """

    MOST_WAITING = 2

    def __init__(self):
        self._thread = ThreadPoolExecutor(1, "file-writer")
        self._waiting: deque[Future] = deque()

    def __enter__(self) -> "FileWriter":
        return self

    def __exit__(self, *_) -> None:
        try:
            self._wait(0)
        finally:
            self._thread.shutdown()

    def write(self, call: Callable[[], None]) -> None:
        """Has a file written by ``call``; waits while MOST_WAITING others are not done."""
        self._wait(self.MOST_WAITING - 1)
        self._waiting.append(self._thread.submit(call))

    def _wait(self, most: int) -> None:
        while len(self._waiting) > most:
            self._waiting.popleft().result()


def user_cache() -> Path:
    """The folder of what Cohort keeps from run to run for this user: in XDG_CACHE_HOME or ~/.cache."""
    cache_home = os.environ.get("XDG_CACHE_HOME", "")
    folder = Path(cache_home) if os.path.isabs(cache_home) else Path("/", os.path.expanduser("~"), ".cache")
    return folder / "cohort"


def remembered(path: Path, parse: Callable[[str], Value], make: Callable[[], str]) -> Value:
    """Returns what ``parse`` makes of a file's text. If the file is missing or damaged, ``make`` gives the text, which
    is then written to the file. A damaged file is logged, and so is one that cannot be written: the next call makes
    the text again.

    Args:
        parse: raises ValueError, KeyError or TypeError for a damaged text.
    """
    try:
        return parse(path.read_text())
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, ValueError, KeyError, TypeError) as error:
        LOG.info(f"{path} is damaged and will be made again: {error!r}")
    text = make()
    value = parse(text)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text)
    except OSError as error:
        LOG.warning(f"the result is not kept for later runs: {error}")
    return value
