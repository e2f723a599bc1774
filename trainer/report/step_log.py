"""When steps ran and their batches were made, on one clock for both programs: that of time.monotonic()."""

import time
from dataclasses import dataclass

import torch

from cohort.channel import TIERS

Span = tuple[float, float]  # begin and end, in seconds of time.monotonic()


@dataclass(frozen=True)
class Step:
    """A step of the trainer, and the making of its batch.

    Attributes:
        task: "train" or "validate".
        epoch: from 0.
        batch: its number in the pass.
        wait: from the end of the step before, or the beginning of the pass, to the begin of this one.
        work: of the step; all-reduces are in it.
        sample, fetch: the sampler's, of the step's batch; None for one without seeds.
        nodes, edges: of the batch.
        row_bytes: of its feature rows, as stored, by where they were read.
    """

    task: str
    epoch: int
    batch: int
    wait: Span
    work: Span
    sample: Span | None
    fetch: Span | None
    nodes: int
    edges: int
    row_bytes: dict[str, int]


class StepLog:
    """The first steps of a pass.

    Args:
        device: the trainer's; on a GPU its work is waited for.
        task, epoch: of the pass, which begins now.
        limit: how many steps to keep.
    """

    def __init__(self, device: torch.device, task: str, epoch: int, limit: int):
        self._task, self._epoch, self._limit = task, epoch, limit
        self._clock = _MarkClock(device)
        self._marks: list[tuple] = []  # of each step's begin and end
        self._batches: list[dict] = []
        self._begin = None

    @property
    def num_steps(self) -> int:
        """How many are kept."""
        return len(self._batches)

    def step_begins(self, mark) -> None:
        """A step begins at this mark of the pass's StepClock."""
        self._begin = mark

    def step_ended(self, mark, slot) -> None:
        """The step has ended; `slot` has its batch. Nothing happens when enough steps are kept."""
        if self.num_steps < self._limit:
            self._marks.append((self._begin, mark))
            self._batches.append(_facts(slot))

    def steps(self) -> list[Step]:
        """What was kept; waits for the last of these steps."""
        before = self._clock.start
        steps = []
        for marks, batch in zip(self._marks, self._batches, strict=True):
            begin, end = map(self._clock.seconds, marks)
            steps.append(Step(self._task, self._epoch, wait=(before, begin), work=(begin, end), **batch))
            before = end
        return steps


def _facts(slot) -> dict:
    """Members of a Step. (A slot itself, kept, would not go back to the sampler.)"""
    sample_begin, sample_end, fetch_begin, fetch_end = (us / 1e6 for us in slot.spans)
    return {
        "batch": slot.step,
        "sample": (sample_begin, sample_end) if slot.num_seeds else None,
        "fetch": (fetch_begin, fetch_end) if slot.num_seeds else None,
        "nodes": sum(slot.num_sampled_nodes),
        "edges": sum(slot.num_sampled_edges),
        "row_bytes": {tier: stored for tier, (_, stored, _) in zip(TIERS, slot.row_tiers, strict=True)},
    }


class _MarkClock:
    """Brings marks of a StepClock to time.monotonic(): on a GPU by one event whose time both clocks know.

    Attributes:
        start: when it was made.
    """

    def __init__(self, device: torch.device):
        self.start = time.monotonic()
        self._event = None
        if device.type == "cuda":
            self._event = torch.cuda.Event(enable_timing=True)
            torch.cuda.current_stream(device).synchronize()  # the event's time is then when it is recorded
            before = time.monotonic()
            self._event.record()
            self._event.synchronize()
            self.start = (before + time.monotonic()) / 2

    def seconds(self, mark) -> float:
        if self._event is None:
            return mark
        mark.synchronize()
        return self.start + self._event.elapsed_time(mark) / 1e3
