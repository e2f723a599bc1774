"""What this machine's GPUs get from each kind of memory: measured once (probe.h), and remembered."""

import hashlib
import json
import logging
from pathlib import Path
from typing import Annotated, TypedDict

import msgspec
from msgspec import Meta

from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.files import remembered, user_cache
from cohort_gnn.base.machine import devices
from cohort_gnn.base.programs import ask_sampler
from cohort_gnn.cache.gpu_rates import GPU_RATES, links_of

LOG = logging.getLogger(__name__)

# Local, peer and host: GB/s. For plans made without a GPU.
MEASURED_BANDWIDTH = links_of(GPU_RATES["h200"])


Rate = Annotated[float, Meta(gt=0)]  # bytes, or reads, a second


class _Gpu(TypedDict):
    uuid: str
    local: Rate
    peer: Rate | None  # None: it reads no other GPU
    host: Rate


class _Answer(TypedDict):
    gpus: list[_Gpu]


def machine_bandwidth(machine: dict | None = None, gpus: list[int] | None = None) -> tuple[float, float, float]:
    """GB/s that the slowest GPU gets from local, peer and host memory; ``MEASURED_BANDWIDTH`` without a GPU.

    They are measured unless a file in the user's cache folder has them, for these GPUs, driver and runtime.

    Args:
        machine: what ``cohort-sampler --devices`` says, if it has been asked.
        gpus: ordinals of those that are used, as others may be busy; None: all that are visible.
    """
    machine = machine or devices()
    used = {gpu["ordinal"]: gpu["uuid"] for gpu in machine["gpus"] if gpus is None or gpu["ordinal"] in gpus}
    if not used:
        return MEASURED_BANDWIDTH
    uuids = sorted(used.values())
    path = links_file(uuids, machine["versions"])

    def measured() -> str:
        LOG.info(f"measuring the bandwidth of local, peer and host memory, once: {path}")
        return json.dumps(ask_sampler("--probe", *map(str, used)), indent=2) + "\n"

    try:
        return slowest(remembered(path, lambda text: _checked(text, uuids), measured))
    except CohortError as error:
        rates = ",".join(f"{rate:.0f}" for rate in MEASURED_BANDWIDTH)
        LOG.warning(f"planning with --bandwidth {rates}, because the measurement failed: {error}")
        return MEASURED_BANDWIDTH


def links_file(uuids: list[str], versions: list[int]) -> Path:
    """Where these GPUs' links are remembered."""
    digest = hashlib.sha256(json.dumps([uuids, versions]).encode()).hexdigest()[:16]
    return user_cache() / f"links-{digest}.json"


def slowest(gpus: list[_Gpu]) -> tuple[float, float, float]:
    """(local, peer, host) GB/s of the slowest GPU, descending, as the planner wants them."""
    local = min(gpu["local"] for gpu in gpus) / 1e9
    host = min(local, min(gpu["host"] for gpu in gpus) / 1e9)
    peer = min((gpu["peer"] / 1e9 for gpu in gpus if gpu["peer"] is not None), default=MEASURED_BANDWIDTH[1])
    return local, min(local, max(peer, host)), host


def _checked(text: str, uuids: list[str]) -> list[_Gpu]:
    """The GPUs of what ``cohort-sampler --probe`` prints.

    Raises:
        ValueError: it is not that, or of other GPUs.
    """
    gpus = msgspec.json.decode(text, type=_Answer)["gpus"]
    if sorted(gpu["uuid"] for gpu in gpus) != uuids:
        raise ValueError("it is of other GPUs")
    return gpus
