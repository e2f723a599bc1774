"""Writing files that a reader never sees half done, and remembering in them what took time to find out."""

import contextlib
import json
import math
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from cohort.base.errors import CohortError

Value = TypeVar("Value")


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Gives the name under which to write what then takes the file's place in one step; an error leaves it as it was.

    Several processes may do so at once.
    """
    temporary = temporary_of(path)
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        unlink_quietly(temporary)


def write_atomically(path: Path, text: str) -> None:
    """Replaces a file in one step; several processes may do so at once."""
    with replacing(path) as temporary:
        temporary.write_text(text)


def write_durably(path: Path, data: bytes) -> None:
    """Replaces a file in one step that a loss of power does not undo: the old or the new one is there, whole."""
    with replacing(path) as temporary, open(temporary, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    _sync_folder(path.parent)


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


def json_of(value, indent: int | None = None) -> str:
    """JSON that every reader takes: null stands for what is no finite number."""
    return json.dumps(_finite(value), indent=indent)


def _finite(value):
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def unlink_quietly(path: Path) -> None:
    """Removes a file where that is possible: where it is not, an error before this says why."""
    with contextlib.suppress(OSError):
        path.unlink()


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


def temporary_of(path: Path) -> Path:
    """What a file is called while this process writes it."""
    return path.with_name(f"{path.name}.{os.getpid()}.tmp")


def remove_temporaries(path: Path) -> None:
    """Removes what processes that were killed while they wrote a file have left of it."""
    for temporary in path.parent.glob(f"{path.name}.*.tmp"):
        temporary.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def user_cache() -> Path:
    """Where things are remembered that no folder of the user's own has: in XDG_CACHE_HOME or ~/.cache."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    folder = Path(given) if os.path.isabs(given) else Path("/", os.path.expanduser("~"), ".cache")
    return folder / "cohort"


def remember(path: Path, text: str, say: Callable[[str], None]) -> None:
    """Writes a file, and its folder; where that is impossible, says so: it is then found out again the next time."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text)
    except OSError as error:
        say(f"warning: this will not be remembered: {error}")


def remembered(path: Path, parse: Callable[[str], Value], say: Callable[[str], None]) -> Value | None:
    """What ``parse`` makes of a file; None when there is none, or (this is said) when it is damaged.

    Args:
        parse: raises ValueError, KeyError or TypeError for what nobody has written.
    """
    try:
        return parse(path.read_text())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        say(f"{path} is damaged, and made again: {error!r}")
        return None
