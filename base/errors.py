"""The error every part of Cohort raises for bad input: place, expected, found, cure. And warnings."""

import errno
import os
import re
import sys
import warnings
from pathlib import Path

PACKAGE = __name__.partition(".")[0]


class CohortError(RuntimeError):
    """What a user can repair. Its text has one shape everywhere: place, expected, found, hint.

    Examples:
        >>> print(cohort.CohortError("--fanout", "integers", "ten", "such as --fanout 10,5"))
        --fanout: expected integers, found ten
          hint: such as --fanout 10,5

    Args:
        place: file, argument or process concerned.
        expected: what should have been there.
        found: what was there.
        hint: what to do about it; left out of the text when empty.
    """

    def __init__(self, place: str, expected: str, found: str, hint: str = ""):
        text = f"{place}: expected {expected}, found {found}"
        super().__init__(f"{text}\n  hint: {hint}" if hint else text)
        self.place, self.expected, self.found, self.hint = place, expected, found, hint

    @classmethod
    def from_text(cls, text: str) -> "CohortError":
        """The error with this text, as the native libraries phrase it."""
        error = cls.__new__(cls)
        RuntimeError.__init__(error, text)
        error.place, error.expected, error.found, error.hint = text, "", "", ""
        return error


def not_a_run(folder: Path, hint: str = "name the folder that cohort train was given as --out") -> CohortError:
    """The error for a folder that was named as a run's and has no run.json."""
    actual = "no run.json in it" if folder.is_dir() else "a file" if folder.exists() else "no such folder"
    if (folder / "meta.json").exists():
        actual = "the folder of a data set"
    if (folder / "tune.json").exists():
        actual, hint = "the folder of cohort tune", f"name one of its runs, such as {folder / 'trial-01'}"
    return CohortError(str(folder), "the folder of a run", actual, hint)


def why(error: BaseException, otherwise: str = "another error") -> str:
    """The system's message of an OSError, such as "No such file or directory"; of another error, `otherwise`."""
    return (isinstance(error, OSError) and error.strerror) or otherwise


def found_full(error: OSError) -> str:
    """What the system says of a disk that has no room, or of a limit to files; "" of another error. NumPy and fwrite()
    say nothing: "12 requested and 0 written"."""
    if error.errno is None and " requested and " in str(error):
        return os.strerror(errno.ENOSPC)
    if error.errno == errno.EFBIG:
        return f"{why(error)} (the limit of this shell: ulimit -f)"
    return why(error) if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""


def why_not_loaded(error: Exception) -> str:
    """What ``torch.load(weights_only=True)`` found in a file, on one line, without its advice to load it anyway."""
    text = str(error)
    named = re.search(r"GLOBAL ([\w.]+)|Unsupported class ([\w.]+)", text)
    if named:
        return f"a pickle that names {named[1] or named[2]:.80}"
    text = text.rpartition("WeightsUnpickler error:")[2].strip()
    return text.partition("\n")[0][:200] or type(error).__name__


def warn_user(text: str) -> None:
    """Warns, and points to the line of the first caller outside this package."""
    level, frame = 1, sys._getframe()
    while frame.f_globals.get("__name__", "").partition(".")[0] == PACKAGE and frame.f_back is not None:
        level, frame = level + 1, frame.f_back
    warnings.warn(text, stacklevel=level)
