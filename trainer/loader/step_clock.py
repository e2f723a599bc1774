"""Wait, train and all-reduce seconds of steps."""

import contextlib
import time
from collections.abc import Iterator

import torch


class StepClock:
    """Wait, train and all-reduce time of steps.

    Wait is the idle time of the trainer's stream between the end of one step (or the start of the epoch) and the start
    of the next; train is forward to optimizer step, less the all-reduce: adding up over the ranks, and waiting for the
    slowest of them to do so. On a GPU all come from events on the current stream; on the CPU from the wall clock. Their
    sum is the epoch's time.

    Attributes:
        begun, ended: marks of the last step: an event; on the CPU time.monotonic().
    """

    def __init__(self, device: torch.device):
        self.start = time.perf_counter()
        self._steps = _Intervals(device)
        self._all_reduces = _Intervals(device)

    def step_begins(self) -> None:
        """The batch is there; the step's work comes next."""
        self.begun = self._steps.mark()

    def step_ended(self) -> None:
        """The optimizer step is on the stream."""
        self.ended = self._steps.mark()

    @contextlib.contextmanager
    def all_reduce(self) -> Iterator[None]:
        """A context around an all-reduce; the work that follows on the stream has the sum."""
        self._all_reduces.mark()
        yield
        self._all_reduces.mark()

    def totals(self) -> tuple[float, float, float]:
        """(wait, train, all-reduce) seconds so far; waits for the stream."""
        wait, step = self._steps.totals()
        _, all_reduce = self._all_reduces.totals()
        return wait, step - all_reduce, all_reduce

    def wait_share(self) -> float:
        """Wait's share of the steps evaluated so far, without waiting for the GPU."""
        wait, step = self._steps.so_far()
        return wait / (wait + step) if wait + step > 0 else 0.0


def mark(device: torch.device):
    """Marks the current moment: an event on the GPU's current stream; on the CPU time.monotonic()."""
    if device.type != "cuda":
        return time.monotonic()
    event = torch.cuda.Event(enable_timing=True)
    event.record(torch.cuda.current_stream(device))
    return event


def seconds_between(before, after) -> float:
    """Seconds between two marks, both of which a GPU must have passed."""
    return after - before if isinstance(after, float) else before.elapsed_time(after) / 1e3


class _Intervals:
    """Seconds between marks: from the first to the second, from the second to the third, and so on in turn."""

    def __init__(self, device: torch.device):
        self._device, self._on_gpu = device, device.type == "cuda"
        self._marks: list = []
        self._done = [0.0, 0.0]  # seconds of intervals already evaluated: even ones, odd ones
        self.mark()

    def totals(self) -> tuple[float, float]:
        """Seconds of the even and of the odd intervals; waits for the stream."""
        self._evaluate(up_to=len(self._marks) - 1)
        return self._done[0], self._done[1]

    def so_far(self) -> tuple[float, float]:
        """The same for those evaluated so far, without waiting for the GPU."""
        return self.totals() if not self._on_gpu else (self._done[0], self._done[1])

    def mark(self):
        """Ends an interval and begins the next; returns the mark between them."""
        self._marks.append(mark(self._device))
        last = self._marks[-1]
        if self._on_gpu and len(self._marks) > 512:
            self._evaluate(up_to=len(self._marks) // 4 * 2)
        return last

    def _evaluate(self, up_to: int) -> None:
        """Adds up the intervals between marks 0 .. up_to (an even number: whole pairs), and forgets them."""
        up_to -= up_to % 2
        if up_to <= 0:
            return
        if self._on_gpu:
            self._marks[up_to].synchronize()
        for i in range(up_to):
            self._done[i % 2] += seconds_between(self._marks[i], self._marks[i + 1])
        del self._marks[:up_to]
