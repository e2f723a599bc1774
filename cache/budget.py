"""Bytes of GPU memory for the cache: what the user asked for, as a number for each GPU."""

from dataclasses import dataclass

from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.units import format_bytes
from cohort_gnn.cache import _native
from cohort_gnn.cache.planner import holds_all_raw_rows

available_host_bytes = _native.available_host_bytes  # that can be allocated now


@dataclass(frozen=True)
class MemoryNeeds:
    """What a GPU needs beside the cache, in bytes.

    Attributes:
        gpu_bytes: memory of the GPU; None when unknown.
        slots_bytes: the ring of batches, and the pool of rows that they name.
        trainer_bytes: peak of the trainer, measured: all that is in use beside slots, cache and topology; None when
            unknown.
        graph_bytes: labels and ids of nodes, unless `trainer_bytes` has them, and the topology where it lies there
            whole.
    """

    gpu_bytes: int | None
    slots_bytes: int
    trainer_bytes: int | None
    graph_bytes: int = 0

    @property
    def left_bytes(self) -> int | None:
        """What is left for the cache (it may be below 0); None when the GPU is unknown."""
        if self.gpu_bytes is None:
            return None
        return self.gpu_bytes - self.slots_bytes - (self.trainer_bytes or 0) - self.graph_bytes


def budgets(
    num_gpus: int,
    raw_feature_bytes: int,
    ratios: list[float] | str | None,
    cache_bytes: list[int] | None,
    needs: MemoryNeeds,
) -> list[int]:
    """Bytes of each GPU's cache, index and scratch included: int [num_gpus].

    Args:
        raw_feature_bytes: of all feature rows of the graph, not compressed.
        ratios: shares of `raw_feature_bytes`, one for all GPUs or one a GPU; "auto": see below.
        cache_bytes: the same in bytes. Neither, or "auto": the memory that slots and trainer do not use.

    Raises:
        CohortError: both are given; another number of values than GPUs; or nothing is given and the memory of the GPU
            or the trainer's peak is unknown.
    """
    demand_one_each(num_gpus, ratios, cache_bytes)
    if isinstance(ratios, list):
        return [int(ratio * raw_feature_bytes) for ratio in _for_each(ratios, num_gpus)]
    if cache_bytes is not None:
        return _for_each(cache_bytes, num_gpus)
    demand_known(needs.gpu_bytes, needs.trainer_bytes)
    return [max(0, needs.left_bytes or 0)] * num_gpus


def demand_known(gpu_bytes: int | None, trainer_bytes: int | None) -> None:
    """Raises CohortError unless what is left for the cache is known."""
    if gpu_bytes is None or trainer_bytes is None:
        missing = "the GPU's memory" if gpu_bytes is None else "the trainer's peak"
        hint = "pass --gpu-memory and --trainer-bytes, or --cache-ratio"
        expected = "the memory of the GPU and the peak of the trainer"
        raise CohortError("--cache-ratio auto", expected, f"{missing} is unknown", hint)


def demand_one_each(
    num_gpus: int, ratios: list[float] | str | None, cache_bytes: list[int] | None, hint: str = ""
) -> None:
    """Raises CohortError for sizes of caches that are both ratios and bytes, or of another number than GPUs."""
    if ratios is not None and cache_bytes is not None:
        raise CohortError("--cache-ratio, --cache-bytes", "one of the two", "both")
    for place, values in (("--cache-ratio", ratios), ("--cache-bytes", cache_bytes)):
        if isinstance(values, list) and len(values) not in (1, num_gpus):
            raise CohortError(place, f"one value, or {num_gpus} (one per GPU)", str(len(values)), hint)


def _for_each(values: list, num_gpus: int) -> list:
    return values * num_gpus if len(values) == 1 else list(values)


def topology_lies_in_gpus(place: str, topology_bytes: int, node_bytes: int, cache_bytes: int, gpu_bytes: int | None):
    """Whether GPUs hold the whole topology, if nothing else is in their `gpu_bytes`.

    Args:
        place: what --topology says: "gpu", "host", or "auto", as the sampler decides.
        node_bytes: bytes of labels and ids of nodes.
    """
    if place != "auto" or gpu_bytes is None:
        return place == "gpu"
    return _native.takes_topology(gpu_bytes - cache_bytes - node_bytes, topology_bytes)


def beside_topology(budget_bytes: list[int], topology_bytes: int, tables: list[tuple[int, int]]) -> list[int] | None:
    """For caches that take all free memory: bytes of each beside a whole topology in its GPU; None if that leaves no
    room for all raw rows: then the cache alone decides what it holds.

    Args:
        tables: rows, and bytes of a raw row, of each node type.
    """
    kept = [budget - topology_bytes for budget in budget_bytes]
    return kept if all(holds_all_raw_rows(size, tables) for size in kept) else None


def misfits(budget_bytes: list[int], needs: MemoryNeeds, host_needed_bytes: int, host_present_bytes: int) -> list[str]:
    """What will not fit, each with what to change; empty when all is well."""
    problems = []
    for gpu, budget in enumerate(budget_bytes):
        if needs.gpu_bytes is None or needs.left_bytes is None or budget <= needs.left_bytes:
            continue
        beside = needs.slots_bytes + (needs.trainer_bytes or 0) + needs.graph_bytes
        cure = f"--cache-bytes of at most {format_bytes(needs.left_bytes)}, " if needs.left_bytes > 0 else ""
        problems.append(
            f"GPU {gpu}: a cache of {format_bytes(budget)} beside {format_bytes(beside)} for slots, trainer and graph"
            f" is more than its {format_bytes(needs.gpu_bytes)}; use {cure}fewer --slots, or a smaller --batch-size or"
            " --fanout"
        )
    if host_needed_bytes > host_present_bytes:
        problems.append(
            f"host: {format_bytes(host_needed_bytes)} are needed for features, topology, and to"
            f" fill the cache, and {format_bytes(host_present_bytes)} are available; use a smaller feature dtype,"
            f" compressed rows (cohort ibp), or a machine with more memory"
        )
    return problems
