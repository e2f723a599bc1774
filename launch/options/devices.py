"""What this build and machine can run on."""

import functools
import os

from cohort.base.errors import CohortError
from cohort.base.programs import ask_sampler


def devices() -> dict:
    """What ``cohort-sampler --devices`` says of the visible GPUs; asked once.

    {"cuda_build": bool, "gpus": [{"ordinal", "name", "uuid", "bytes"}], "cliques": ordinals of GPUs that read each
    other's memory, [[ordinal, ...], ...], "versions": CUDA's, [driver, runtime]}
    """
    return _devices(os.environ.get("CUDA_VISIBLE_DEVICES"))


@functools.cache
def _devices(_visible: str | None) -> dict:
    return ask_sampler("--devices")


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
    if wanted == "cpu":
        return "cpu"
    found = devices()
    if found["cuda_build"] and found["gpus"]:
        return "cuda"
    if wanted == "cuda":
        what = "none" if found["cuda_build"] else "a build with the CPU backend only"
        raise CohortError(
            "--device cuda", "a GPU", what, "check nvidia-smi and CUDA_VISIBLE_DEVICES, or use --device cpu"
        )
    return "cpu"
