"""Signals that end a process by an exception, so that nothing of it is left behind."""

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator

SECONDS_UNTIL_AGAIN = 0.01  # between two looks


class EndedBySignal(SystemExit):
    """What the handler of a signal raises; the exit code is 128 + number."""

    def __init__(self, number: int):
        super().__init__(128 + number)
        self.number = number


def leave(number: int, _frame) -> None:
    """A handler."""
    raise EndedBySignal(number)


def _send_after(has_ended: list[bool], number: int) -> None:
    while not has_ended[0]:
        time.sleep(SECONDS_UNTIL_AGAIN)
    os.kill(os.getpid(), number)


@contextlib.contextmanager
def lost_signals_repeated() -> Iterator[None]:
    """Inside, a signal comes again whose exception Python has dropped: it drops all that are raised in a ``__del__``
    and in the callback of a weak reference, and each import calls one of those."""
    before = sys.unraisablehook

    def hook(unraisable) -> None:
        error = unraisable.exc_value
        if isinstance(error, EndedBySignal):
            number = error.number
            if signal.getsignal(number) is signal.SIG_IGN:  # since it came
                signal.signal(number, leave)
        elif isinstance(error, KeyboardInterrupt):
            number = signal.SIGINT
        else:
            before(unraisable)
            return
        has_ended = [False]  # from the hook itself an exception would be dropped, too
        threading.Thread(target=_send_after, args=(has_ended, number), daemon=True).start()
        has_ended[0] = True  # no call comes after this, so no handler runs before the return

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = before
