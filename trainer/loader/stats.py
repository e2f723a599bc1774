"""Times of an epoch of a NeighborLoader, and the reads of its batches."""

from dataclasses import dataclass

import torch

from cohort_gnn.spec.results import EpochReport
from cohort_gnn.trainer.loader.step_clock import StepClock


@dataclass(frozen=True)
class LoaderStats:
    """An epoch of one rank's loader: its batches so far, and the times of the finished steps.

    A step is the work of the loop between receiving a batch and requesting the next. On a GPU, CUDA events measure both
    times on PyTorch's current stream: wait is the time in which the stream was idle, even if the host was ahead.

    Attributes:
        epoch: number of the epoch, from 0.
        batches: number of batches that had seeds.
        wait_seconds: time from the end of each step, or the start of the epoch, until the next batch arrived.
        busy_seconds: time of the steps; on a CPU also that in which other programs had its cores.
        rows: number of feature rows by source: {"local": this GPU's cache, "peer": another GPU's cache, "host":
            host memory, "recent": earlier batches, "disk": the file of encoded rows, "remote":
            the memory of another machine}.
        bytes: bytes of these rows, as stored.
        hit_rate: share of the rows that came neither from host memory nor from farther away; 0 without rows.
    """

    epoch: int
    batches: int
    wait_seconds: float
    busy_seconds: float
    rows: dict[str, int]
    bytes: dict[str, int]
    hit_rate: float


class EpochMeter:
    """Measures an epoch, which begins now.

    Args:
        device: where its batches are.
    """

    def __init__(self, epoch: int, device: torch.device):
        self._read = EpochReport(epoch)
        self._clock = StepClock(device)

    def step_begins(self, slot) -> None:
        """The slot's batch is there."""
        self._read.add(slot)
        self._clock.step_begins()

    def step_ended(self) -> None:
        """The next batch is asked for."""
        self._clock.step_ended()

    def stats(self) -> LoaderStats:
        """So far; waits for the stream."""
        wait, busy, _ = self._clock.totals()
        rows, stored = ({tier: read[name] for tier, read in self._read.row_tiers.items()} for name in ("rows", "bytes"))
        hit_rate = (
            1 - (rows["host"] + rows["disk"] + rows["remote"]) / sum(rows.values()) if any(rows.values()) else 0.0
        )
        return LoaderStats(self._read.epoch, self._read.num_batches, wait, busy, rows, stored, hit_rate)
