"""How a trainer stops on a signal."""

import contextlib
import signal
from collections.abc import Iterator
from typing import NoReturn

from cohort_gnn.base.ending import EndedBySignal


class StopRequest:
    """Ends the process with exit code 128 + signal: at once, or, inside ``later()``, when the loop there looks.

    Attributes:
        number: of the signal that has come; 0: none.
    """

    def __init__(self):
        self.number = 0
        self._waits = False

    @property
    def asked(self) -> bool:
        """Whether a signal has come."""
        return self.number > 0

    def on_signal(self, number: int, _frame) -> None:
        """The signal's handler."""
        self.number = number
        if not self._waits:
            self.leave()

    @contextlib.contextmanager
    def later(self) -> Iterator[None]:
        """Inside, a signal only sets ``asked``, so that a step is never cut in two; the end of the block obeys it."""
        self._waits = True
        try:
            yield
        finally:
            self._waits = False
        if self.asked:
            self.leave()

    def leave(self) -> NoReturn:
        """Ends the process; where another rank has the signal and this one not yet, as if it had come."""
        raise EndedBySignal(self.number or signal.SIGTERM)
