"""Stop signals: noted when they come, heeded where a command waits.

A handler that raised would do so anywhere, also between two steps of a library that must not be separated: an exception
within ``Popen.poll`` can leave its lock held, and whoever then waits for that process waits for ever.
"""

import contextlib
import signal
import time
from collections.abc import Iterator

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_under_nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN  # before anything here ignores it
_noted: int | None = None  # the stop signal that has come, and that nobody has heeded yet


class Stopped(BaseException):
    """The launcher itself was told to stop, by this signal."""

    def __init__(self, number: int):
        self.number = number


def stop_on_signals() -> None:
    """From now on the first of SIGINT, SIGTERM and SIGHUP (but under nohup) makes `heed_stop` and `pause` raise."""
    for number in STOP_SIGNALS:
        if number != signal.SIGHUP or not _under_nohup:
            signal.signal(number, _note)


def _note(number: int, _frame) -> None:
    global _noted
    ignore_stop_signals()
    _noted = number


def heed_stop() -> None:
    """Raises Stopped, once, when a stop signal has come."""
    global _noted
    if _noted is not None:
        number, _noted = _noted, None
        raise Stopped(number)


def pause(seconds: float) -> None:
    """Sleeps for so many seconds, a fraction of one, then heeds a stop signal."""
    time.sleep(seconds)
    heed_stop()


@contextlib.contextmanager
def handlers_kept() -> Iterator[None]:
    """Afterwards stop signals do what they did before."""
    global _noted
    handlers = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        _noted = None
        for number, handler in handlers.items():
            signal.signal(number, handler)


def ignore_stop_signals() -> None:
    """For the end of a run, which is bounded and must not be cut short."""
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
