"""The cache that options ask for."""

from dataclasses import replace
from pathlib import Path

from cohort.cache.plan.links import machine_bandwidth
from cohort.cache.plan.options import sampler_members
from cohort.launch.options.devices import devices
from cohort.spec.run import SamplerSpec


def cache_members(
    spec: SamplerSpec, dataset: Path, num_ranks: int, on_gpu: bool, clique_seeds: list | None = None
) -> dict:
    """The members of run.json's "sampler" that the options make; logs what it counts and measures."""
    if spec.cache_ratio == "auto":
        spec = replace(spec, gpu_memory=gpu_memory(spec))
    return sampler_members(spec, dataset, num_ranks, on_gpu, clique_seeds, spec.gpus or [0])


def link_rates(spec: SamplerSpec) -> list[float]:
    """Bytes a second of (local, peer, host): as given, or as the GPUs of the run are measured, once."""
    return [1e9 * rate for rate in spec.bandwidth or machine_bandwidth(gpus=spec.gpus or [0])]


def wants_auto_cache(spec: SamplerSpec) -> bool:
    """Whether the cache of a run gets the memory that slots and trainer do not use."""
    return spec.cache_ratio == "auto" and spec.cache_bytes is None and spec.cache_policy != "none"


def gpu_memory(spec: SamplerSpec, machine: dict | None = None) -> int | None:
    """Bytes of each GPU: as given, or of the smallest that is used, or visible in ``machine``; None: there is none."""
    if spec.gpu_memory is not None:
        return spec.gpu_memory
    gpus = machine["gpus"] if machine else [gpu for gpu in devices()["gpus"] if gpu["ordinal"] in (spec.gpus or [0])]
    return min((gpu["bytes"] for gpu in gpus), default=None)
