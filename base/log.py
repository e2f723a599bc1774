"""Messages for the user: they go to the logger ``cohort_gnn`` and its children, one for each module.

A script sees none of them unless it calls ``logging.basicConfig(level=logging.INFO)``. Cohort's programs print them,
and `cohort train` also writes them to RUN/trainer.log.
"""

import contextlib
import logging
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

_LOG = logging.getLogger("cohort_gnn")
_LOG.addHandler(logging.NullHandler())


def record(log: logging.Logger, text: str) -> None:
    """Logs a line for files alone: people do not see it, or see it in another form."""
    log.info(text, extra={"is_shown": False})


class _Lines(logging.Handler):
    """Prints each record as a line on the current ``sys.stdout`` or ``sys.stderr``, which a progress bar may have
    replaced. Errors of writing are ignored."""

    def __init__(self, stream: str):
        super().__init__()
        self._stream = stream

    def emit(self, record: logging.LogRecord) -> None:
        if not getattr(record, "is_shown", True):
            return
        warning = "warning: " if record.levelno == logging.WARNING else ""
        with contextlib.suppress(OSError):
            print(f"cohort: {warning}{record.getMessage()}", file=getattr(sys, self._stream), flush=True)


class _StampedLines(logging.Handler):
    """Writes each record with its time to what ``sys.stderr`` was at first, the log of a program."""

    def __init__(self):
        super().__init__()
        self._file = sys.stderr

    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(OSError):
            print(_stamped(record), file=self._file, flush=True)


class RunLog(logging.Handler):
    """The records of a command that starts programs. The log of the first program begins with the earlier records and
    gets the later ones, except errors, which quote this log."""

    def __init__(self):
        super().__init__()
        self._path: Path | None = None
        self._lines: list[str] = []

    def begin(self, path: Path) -> None:
        """Creates the log with the earlier records; later ones are appended."""
        path.write_text("".join(self._lines))
        self._path, self._lines = path, []

    def emit(self, record: logging.LogRecord) -> None:
        line = _stamped(record) + "\n"
        if self._path is None:
            self._lines.append(line)
        elif record.levelno < logging.ERROR:
            with contextlib.suppress(OSError), open(self._path, "a") as file:
                file.write(line)


def _stamped(record: logging.LogRecord) -> str:
    warning = f"{record.levelname.lower()}: " if record.levelno >= logging.WARNING else ""
    return f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(record.created))} {warning}{record.getMessage()}"


@contextlib.contextmanager
def shown(stream: str) -> Iterator[None]:
    """Inside, the lines are shown on ``"stdout"`` or ``"stderr"``."""
    with handled(_Lines(stream)):
        yield


@contextlib.contextmanager
def logged() -> Iterator[None]:
    """For a program whose standard error is its log: inside, records are written to the log with their times, and are
    printed on standard output unless that is the log, too."""
    with contextlib.ExitStack() as opened:
        opened.enter_context(handled(_StampedLines()))
        if not os.path.sameopenfile(sys.stdout.fileno(), sys.stderr.fileno()):
            opened.enter_context(shown("stdout"))
        yield


@contextlib.contextmanager
def handled(by: logging.Handler) -> Iterator[None]:
    """Inside, a handler gets the records."""
    level = _LOG.level
    _LOG.addHandler(by)
    _LOG.setLevel(logging.INFO)
    try:
        yield
    finally:
        _LOG.removeHandler(by)
        _LOG.setLevel(level)
