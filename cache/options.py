"""From what a user asks of the cache to what run.json tells the sampler."""

import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cohort.base.errors import CohortError
from cohort.base.programs import ask_sampler
from cohort.cache.budget import MemoryNeeds, budgets, bytes_of_nodes, slot_bytes
from cohort.cache.links import MEASURED_BANDWIDTH, machine_bandwidth
from cohort.cache.planner import ELEMENT_BYTES

POLICIES = ("plan", "degree", "random", "none")


@dataclass(frozen=True)
class CacheOptions:
    """The cache that a user asks for: none, unless `ratios` or `cache_bytes` are given.

    Attributes:
        ratios: each GPU's cache as a share of all raw feature bytes, index included: one for all GPUs or one a GPU;
            "auto": what slots and trainer leave.
        cache_bytes: the same in bytes.
        policy: what is hot: "plan" (as a short run of the sampler counts), "degree", "random"; "none": no cache.
        cliques: GPUs that read each other's memory: "auto" (as the machine says), "none", "all", "2x4", "3+5".
        presample_batches: bound of that short run.
        bandwidth: GB/s of local, peer and host memory; None: on a GPU as this machine's are measured (links.py), else
            `MEASURED_BANDWIDTH`.
        line_ns: what a line of 128 bytes costs there, on top.
        gpu_bytes, trainer_bytes: memory of a GPU, and the trainer's peak, for "auto".
    """

    ratios: list[float] | str | None = None
    cache_bytes: list[int] | None = None
    policy: str = "plan"
    cliques: str = "auto"
    presample_batches: int = 200
    bandwidth: tuple[float, float, float] | None = None
    line_ns: tuple[float, float, float] = (0.0, 0.0, 0.0)
    gpu_bytes: int | None = None
    trainer_bytes: int | None = None

    def __post_init__(self):
        if self.policy not in POLICIES:
            raise CohortError("cache policy", ", ".join(POLICIES), repr(self.policy))

    @property
    def wanted(self) -> bool:
        return self.ratios is not None or self.cache_bytes is not None


def row_bytes_of(meta: dict) -> int:
    """Bytes of a raw feature row of a data set with this meta.json."""
    return meta["feature_dim"] * ELEMENT_BYTES[meta["feature_dtype"]]


def presample(
    dataset: Path,
    fanout: list[int],
    batch_size: int,
    max_batches: int = 200,
    split: str = "train",
    refresh: bool = False,
) -> dict:
    """Has the sampler count what it reads, unless the data set has the counts (`refresh`: though it has).

    Returns:
        What ``cohort-sampler --presample`` says: {"file", "batches", "reused", "stable", "max_batch_nodes",
        "max_batch_edges"}.

    Raises:
        CohortError: the split has no seeds, or the data set's folder cannot be written.
    """
    options = {
        "dataset": str(dataset.absolute()),
        "fanout": fanout,
        "batch_size": batch_size,
        "split": split,
        "max_batches": max_batches,
        "refresh": refresh,
    }
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(options, file)
        file.flush()
        return ask_sampler("--presample", file.name)


def say_aloud(line: str) -> None:
    """Tells the user, on standard error."""
    print(f"cohort: {line}", file=sys.stderr, flush=True)


def sampler_members(
    options: CacheOptions,
    dataset: Path,
    fanout: list[int],
    batch_size: int,
    num_slots: int,
    num_ranks: int,
    on_gpu: bool,
    say: Callable[[str], None] = say_aloud,
) -> dict:
    """The members of run.json's "sampler" that make the cache; empty without one.

    Args:
        fanout, batch_size: of the run's training; the seeds counted are those of the split "train".
        on_gpu: the cache is used, and not only planned.
        say: is told where new counts lie, and that links are measured.

    Raises:
        CohortError: as `presample` and `budgets` do.
    """
    if not options.wanted:
        return {}
    if options.policy == "none":
        return {"cache_policy": "none"}
    meta = json.loads((dataset / "meta.json").read_text())
    counts = None
    if options.policy == "plan":
        counts = presample(dataset, fanout, batch_size, options.presample_batches)
        if not counts["reused"]:
            say(f"counted what {counts['batches']} batches of the sampler read, for the cache: {counts['file']}")
    needs = memory_needs(options, meta, counts, fanout, batch_size, num_slots)
    ratios = None if options.ratios == "auto" else options.ratios
    raw_bytes = meta["num_nodes"] * row_bytes_of(meta)
    cache_bytes = budgets(num_ranks, raw_bytes, ratios, options.cache_bytes, needs)
    bandwidth = options.bandwidth or (machine_bandwidth(say) if on_gpu else MEASURED_BANDWIDTH)
    return {
        "cache_bytes": cache_bytes,
        "cache_policy": options.policy,
        "cliques": options.cliques,
        "bytes_per_second": [1e9 * rate for rate in bandwidth],
        "seconds_per_line": [1e-9 * nanoseconds for nanoseconds in options.line_ns],
    } | ({"hotness": counts["file"]} if counts else {})


def memory_needs(
    options: CacheOptions, meta: dict, counts: dict | None, fanout: list[int], batch_size: int, num_slots: int
) -> MemoryNeeds:
    """What a GPU needs beside the cache; a batch whose size nobody counted is the whole graph at most."""
    largest = (meta["num_nodes"], meta["num_edges"])
    if counts:
        largest = (counts["max_batch_nodes"], counts["max_batch_edges"])
    slot = slot_bytes(meta["num_nodes"], row_bytes_of(meta), batch_size, fanout, *largest)
    of_nodes = bytes_of_nodes(meta["num_nodes"], options.trainer_bytes)
    return MemoryNeeds(options.gpu_bytes, num_slots * slot, options.trainer_bytes, of_nodes)
