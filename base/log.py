"""Where lines for the user go that are no result: to the logger ``cohort_gnn`` and its children, one a module.

A script hears nothing of it unless it asks: ``logging.basicConfig(level=logging.INFO)``. Cohort's programs show it.
"""

import contextlib
import logging
import sys
from collections.abc import Iterator

_LOG = logging.getLogger("cohort_gnn")
_LOG.addHandler(logging.NullHandler())


class _Lines(logging.Handler):
    """Shows each record as a line of its own, on what ``sys.stdout`` or ``sys.stderr`` is then: a progress bar stands
    in its place for a while. Where it cannot be written nothing ends."""

    def __init__(self, stream: str):
        super().__init__()
        self._stream = stream

    def emit(self, record: logging.LogRecord) -> None:
        warning = "warning: " if record.levelno == logging.WARNING else ""
        with contextlib.suppress(OSError):
            print(f"cohort: {warning}{record.getMessage()}", file=getattr(sys, self._stream), flush=True)


@contextlib.contextmanager
def shown(stream: str) -> Iterator[None]:
    """Inside, the lines are shown on ``"stdout"`` or ``"stderr"``."""
    lines, level = _Lines(stream), _LOG.level
    _LOG.addHandler(lines)
    _LOG.setLevel(logging.INFO)
    try:
        yield
    finally:
        _LOG.removeHandler(lines)
        _LOG.setLevel(level)
