"""The cache that a NeighborLoader's arguments ask for."""

from collections.abc import Sequence
from dataclasses import replace
from operator import index

import numpy as np
import torch

from cohort.base.errors import CohortError
from cohort.cache.plan.options import CacheOptions


def cache_options(cache_ratio, cache_bytes, cache_policy: str, cliques: str, trainer_bytes) -> CacheOptions:
    """The checked arguments of a loader; see NeighborLoader.

    Raises:
        CohortError: one is out of range, or ``cache_ratio="auto"`` comes without ``trainer_bytes``.
    """
    auto = isinstance(cache_ratio, str) and cache_ratio == "auto"
    ratios = cache_ratio if auto else _listed("cache_ratio", cache_ratio)
    budgets = _listed("cache_bytes", cache_bytes)
    if trainer_bytes is not None and not (is_integer(trainer_bytes) and trainer_bytes >= 0):
        raise CohortError("trainer_bytes", "bytes, an integer of at least 0", repr(trainer_bytes))
    if auto and trainer_bytes is None and cache_policy != "none":
        raise CohortError(
            'cache_ratio="auto"',
            "trainer_bytes: a script's own peak of GPU memory is unknown",
            "None",
            'after an epoch without a cache and with topology="host", (free, total) = torch.cuda.mem_get_info():'
            " give total - free",
        )
    budgets = budgets and [index(each) for each in budgets]
    return CacheOptions(ratios, budgets, cache_policy, cliques, trainer_bytes=trainer_bytes)


def with_gpu_memory(options: CacheOptions, gpus: Sequence[int]) -> CacheOptions:
    """The options with the memory of the smallest of these GPUs (ordinals)."""
    return replace(options, gpu_bytes=min(torch.cuda.get_device_properties(gpu).total_memory for gpu in gpus))


def is_integer(value) -> bool:
    """Whether it is an integer of Python or numpy, and no truth value."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _listed(name: str, values) -> list | None:
    """Numbers of at least 0 as a list: one, or one a rank."""
    if values is None:
        return None
    values = list(values) if isinstance(values, Sequence | np.ndarray) and not isinstance(values, str) else [values]
    whole = name == "cache_bytes"
    if not values or not all(is_integer(each) or (not whole and isinstance(each, float)) for each in values):
        raise CohortError(name, "a number, or one a rank", repr(values))
    if not all(0 <= each < float("inf") for each in values):
        raise CohortError(name, "numbers of at least 0", repr(values))
    return values
