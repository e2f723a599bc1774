"""The cache that options ask for."""

from cohort.cache.plan.links import machine_bandwidth
from cohort.launch.options.devices import devices
from cohort.spec.run import SamplerSpec


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
