"""The least time that an epoch can take, and its bottleneck: a lower bound to compare the measured time with."""

import functools
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import cast

import torch

from cohort_gnn.spec.results import TIERS, EpochReport, Floors, RunReport
from cohort_gnn.trainer.report.callback import Callback
from cohort_gnn.trainer.report.start import start_parts

WARM_UP_STEPS = {"cuda": 3, "cpu": 1}
GROUPS = 5  # of steps one after the other; the fastest counts
GROUP_SECONDS, MOST_STEPS = 0.02, 20  # of a group on a GPU, whose begin and end take time: little of it
LIMIT_SECONDS = 5.0  # after which no group but the first begins
CPU_SHARE = 0.1  # of the training's seconds: the same on a CPU, whose steps take much of a short run
FAR = [TIERS.index(tier) for tier in ("disk", "remote")]
NETWORK = "measuring the network"  # the sampler, as it starts
LINK_TIERS = ("host", "disk", "remote")  # whose rows reach a GPU from host memory
PARTS = ("trainer", "sampler", "pcie", "nvlink", "disk", "network")


class LowerBound(Callback):
    """What bounds the epochs of a run from below.

    An epoch takes at least: its steps, each as long as one on a batch that lies ready while nothing else runs; its
    sampling, each batch as fast as the fastest; the bytes of rows and lists from host memory, and those from peers, at
    the rates that the links were measured to give; its rows from a disk, at the rate of the drive; the rows that a
    machine gets from others, at the rate that the network alone had at the start. On the CPU there are no links, and
    fetching counts as sampling, unless rows are far: then fetches of several batches overlap.

    Args:
        device: the trainer's.
        bytes_per_second: of the links (local, peer, host); None: they bound nothing.
        disk_rows_per_second: of the drive, which all ranks share; None: it bounds nothing.
    """

    def __init__(
        self, device: torch.device, bytes_per_second: list[float] | None, disk_rows_per_second: float | None = None
    ):
        self._on_gpu = device.type == "cuda"
        self._links = bytes_per_second if self._on_gpu else None
        self._disk = disk_rows_per_second
        self.sample_seconds_an_edge = math.inf  # of the fastest batch so far; math.inf: none had edges
        self.step_seconds = 0.0  # of a whole batch, of the slowest rank
        self.network: list[tuple[int, float]] = []  # of each rank: its number on its machine, which gets a byte so fast

    def state(self) -> dict[str, float]:
        return {"sample_seconds_an_edge": self.sample_seconds_an_edge}

    def load_state(self, state: dict[str, float]) -> None:
        self.sample_seconds_an_edge = state["sample_seconds_an_edge"]

    def step_ended(self, trainer, batch) -> None:
        if trainer.task == "train":
            self.add(batch)

    def run_ended(self, trainer, report: RunReport) -> None:
        """Times steps of a copy of the model on a batch that is there already, while the sampler is idle."""
        batch_size, source = trainer.options.batch_size, trainer.source
        asked = trainer.passes.ask("train", trainer.options.fanout, shuffle=True)
        for slot in trainer.passes.slots(asked, "train", 1):
            ready = slot
        copied = _step_of_a_copy(trainer) if ready.num_seeds > 0 else None
        if copied:
            step = functools.partial(copied, ready)
            trained_seconds = sum(epoch.train_seconds for epoch in report.epochs)
            self.step_seconds = self.time_step(step, trained_seconds) * batch_size / ready.num_inputs
        network = trainer.ranks.local_rank, _network_seconds(source.folder)
        self.join(trainer.ranks.gather((self.step_seconds, self.sample_seconds_an_edge, network)))
        shares_sms = self._on_gpu and source.sampler_sms == 0
        floors = [self.bounds(epoch, batch_size, trainer.ranks.size, shares_sms) for epoch in report.epochs]
        report.floor = cast(Floors, {"step_seconds": self.step_seconds, "epochs": floors})  # more than readers need

    def add(self, slot) -> None:
        """Looks at a batch of training."""
        edges = sum(slot.num_sampled_edges)
        if edges > 0:
            overlaps = self._on_gpu or any(slot.row_tiers[tier][0] for tier in FAR)
            taken_us = slot.sample_us + (0 if overlaps else slot.fetch_us)
            self.sample_seconds_an_edge = min(self.sample_seconds_an_edge, taken_us / 1e6 / edges)

    def join(self, others: list[tuple[float, float, tuple[int, float]]]) -> None:
        """Combines the measurements of all ranks: the slowest steps, the fastest batch, and the networks.

        Args:
            others: of each rank: step_seconds, sample_seconds_an_edge, and (its number on its machine, seconds in which
                the machine gets a byte from others, if it is the first there).
        """
        steps, samples, network = zip(*others, strict=True)
        self.step_seconds, self.sample_seconds_an_edge = max(steps), min(samples)
        self.network = list(network)

    def time_step(self, step: Callable[[], object], trained_seconds: float = math.inf) -> float:
        """Seconds of a training step, one after the other, while nothing else runs; of a run that trained so long."""
        limit = LIMIT_SECONDS if self._on_gpu else min(LIMIT_SECONDS, CPU_SHARE * trained_seconds)
        end = time.perf_counter() + limit
        least = self._seconds(step, WARM_UP_STEPS["cuda" if self._on_gpu else "cpu"])
        for group in range(GROUPS):
            if group == 0 or time.perf_counter() < end:
                num_steps = max(1, min(MOST_STEPS, round(GROUP_SECONDS / least))) if self._on_gpu else 1
                least = min(least, self._seconds(step, num_steps))
        return least

    def _seconds(self, step: Callable[[], object], count: int) -> float:
        self._wait()
        begin = time.perf_counter()
        for _ in range(count):
            step()
        self._wait()
        return (time.perf_counter() - begin) / count

    def bounds(self, epoch: EpochReport, batch_size: int, num_ranks: int, shares_sms: bool = False) -> dict:
        """{each of PARTS: seconds; "seconds": the largest of them; "bottleneck": its name}.

        Where steps and sampling share the SMs, "in_turns" is what both take one after the other: no bound, as they run
        side by side, but each for itself keeps all SMs busy.

        Args:
            epoch: of all ranks.
            batch_size: seeds of a whole batch; one that is smaller counts as a part of it.
            shares_sms: whether trainer and sampler do.
        """
        edges = epoch.num_edges / num_ranks
        parts = dict.fromkeys(PARTS, 0.0)
        parts["trainer"] = self.step_seconds * epoch.num_seeds / batch_size / num_ranks
        if edges > 0 and math.isfinite(self.sample_seconds_an_edge):
            parts["sampler"] = self.sample_seconds_an_edge * edges
        ranks = epoch.ranks or [vars(epoch)]
        if self._links:
            for part, tiers, rate in (("pcie", LINK_TIERS, self._links[2]), ("nvlink", ("peer",), self._links[1])):
                parts[part] = max(_bytes_of(rank, tiers) for rank in ranks) / rate
        if self._disk:
            parts["disk"] = epoch.row_tiers["disk"]["rows"] / self._disk
        received, seconds_per_byte = 0, 0.0
        for (local_rank, seconds), rank in zip(self.network, ranks, strict=False):
            if local_rank == 0:  # the first of its machine, which alone knows the network
                received, seconds_per_byte = 0, seconds
            received += rank["row_tiers"]["remote"]["bytes"]
            parts["network"] = max(parts["network"], received * seconds_per_byte)
        bottleneck = max(parts, key=parts.__getitem__)
        turns = {"in_turns": parts["trainer"] + parts["sampler"]} if shares_sms else {}
        return parts | {"seconds": parts[bottleneck], "bottleneck": bottleneck} | turns

    def _wait(self) -> None:
        if self._on_gpu:
            torch.cuda.synchronize()


def _bytes_of(rank: dict, tiers: tuple[str, ...]) -> int:
    return sum(rank[name][tier]["bytes"] for name in ("row_tiers", "list_tiers") for tier in tiers)


def _step_of_a_copy(trainer) -> Callable[..., object] | None:
    """None, said aloud: a model of the user's own holds what cannot be copied, such as a file or a lock."""
    try:
        return trainer.step_of_a_copy()
    except (TypeError, RuntimeError) as error:
        if isinstance(error, torch.OutOfMemoryError) or not trainer.options.has_own_model:
            raise
        trainer.say(f"the floor leaves training steps out: no copy of the model can be made ({error})")
        return None


def _network_seconds(folder: Path) -> float:
    """Seconds in which this machine got a byte from others at its start; 0.0: it needs no rows of others."""
    measured = (part for part in start_parts(folder) if part["part"] == NETWORK and part["seconds"])
    return next((part["seconds"] / part["bytes"] for part in measured), 0.0)
