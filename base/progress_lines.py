"""Lines of progress of long work, for a pipe or the log of a job, where no bar can be drawn."""

import time
from collections.abc import Callable

from cohort_gnn.base.units import format_seconds

LINE_SECONDS = 30.0


class ProgressLines:
    """Says now and then how far work is: "layers: 42 %, ends in about 3 min 20 s".

    Args:
        say: gets each line.
    """

    def __init__(self, say: Callable[[str], None]):
        self._say, self._what = say, ""
        self._began = self._last = time.monotonic()

    def at(self, what: str, fraction: float) -> None:
        """Counts: so much of the work of this name is done."""
        now = time.monotonic()
        if what != self._what:
            self._what, self._began = what, now
        if now - self._last < LINE_SECONDS:
            return
        self._last, left = now, ""
        if 0 < fraction < 1 and now > self._began:
            left = f", ends in about {format_seconds((now - self._began) * (1 - fraction) / fraction)}"
        self._say(f"{what}: {100 * fraction:.0f} %{left}")
