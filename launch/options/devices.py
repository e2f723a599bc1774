"""What this build and machine can run on."""

import os

from cohort_gnn.base.machine import choose_device, devices
from cohort_gnn.spec.run import SamplerSpec


def visible_by_uuid() -> dict[str, str]:
    """CUDA_VISIBLE_DEVICES with the UUIDs of the GPUs that it names, in its order; nothing where it is not set.

    An MPS daemon that was started with indices numbers the GPUs that it sees anew, so that the same indices mean others
    to its clients.
    """
    if "CUDA_VISIBLE_DEVICES" not in os.environ:
        return {}
    return {"CUDA_VISIBLE_DEVICES": ",".join(gpu["uuid"] for gpu in devices()["gpus"])}


def resolve_device(wanted: str) -> str:
    """ "cuda" or "cpu" for --device auto|cuda|cpu.

    Raises:
        CohortError: "cuda" was asked for and there is no GPU, or this build has no CUDA backend.
    """
    if wanted == "cpu":  # without a look at the GPUs
        return "cpu"
    machine = devices()
    return choose_device("--device cuda", wanted, machine["cuda_build"], len(machine["gpus"]), "--device cpu")


def gpu_memory(spec: SamplerSpec, machine: dict | None = None) -> int | None:
    """Bytes of each GPU: as given, or of the smallest that is used, or visible in ``machine``; None: there is none."""
    if spec.gpu_memory is not None:
        return spec.gpu_memory
    gpus = machine["gpus"] if machine else [gpu for gpu in devices()["gpus"] if gpu["ordinal"] in (spec.gpus or [0])]
    return min((gpu["bytes"] for gpu in gpus), default=None)
