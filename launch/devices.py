"""What this build and machine can run on."""

import json
import subprocess

from cohort.base.errors import CohortError
from cohort.base.programs import program


def resolve_device(wanted: str) -> str:
    """ "cuda" or "cpu" for --device auto|cuda|cpu.

    Raises:
        CohortError: "cuda" was asked for and there is no GPU, or this build has no CUDA backend.
    """
    if wanted == "cpu":
        return "cpu"
    devices = json.loads(
        subprocess.run([program("cohort-sampler"), "--devices"], capture_output=True, check=True).stdout
    )
    if devices["cuda_build"] and devices["gpus"]:
        return "cuda"
    if wanted == "cuda":
        found = "none" if devices["cuda_build"] else "a build with the CPU backend only"
        raise CohortError(
            "--device cuda", "a GPU", found, "check nvidia-smi and CUDA_VISIBLE_DEVICES, or use --device cpu"
        )
    return "cpu"
