"""The machine of a process: its shared memory, its device, and the launcher that has started the processes."""

import functools
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.programs import answer_of, begin_asking

STARTERS = (  # variables that say which process this is, and how many there are: the first that is set counts
    ("RANK", "WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
)


_asked: dict[str | None, subprocess.Popen[str]] = {}  # by CUDA_VISIBLE_DEVICES: programs whose answers nobody has read


def variables_shown(environment: Mapping[str, str], names: Iterable[str]) -> str:
    """Those of the variables that are set, for messages."""
    return ", ".join(f"{name}={environment[name]}" for name in names if name in environment)


def choose_device(place: str, wanted: str, cuda_build: bool, num_gpus: int, cpu: str) -> str:
    """ "cuda" or "cpu", of "auto", "cuda" or "cpu": "auto" is a GPU where this build can use one, and there is one.

    Args:
        place: what errors call the wish.
        cpu: how the user asks for the CPU, for errors.

    Raises:
        CohortError: "cuda" was asked for and there is no GPU, or this build has no CUDA backend.
    """
    if wanted == "cpu" or (wanted == "auto" and not (cuda_build and num_gpus)):
        return "cpu"
    if not cuda_build or not num_gpus:
        actual = "none" if cuda_build else "a build with the CPU backend only"
        raise CohortError(place, "a GPU", actual, f"check nvidia-smi and CUDA_VISIBLE_DEVICES, or use {cpu}")
    return "cuda"


def shared_memory_root() -> Path:
    """The folder under which this user's runs keep theirs (``COHORT_SHM`` overrides /dev/shm)."""
    return Path(os.environ.get("COHORT_SHM", "/dev/shm")).absolute() / f"cohort-{os.getuid()}"


def machine_identity() -> str:
    """The same for processes that see each other in /proc, and the same shared memory."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    shared = shared_memory_root().parent.stat()
    return f"{boot} {os.readlink('/proc/self/ns/pid')} {shared.st_dev}:{shared.st_ino} {os.getuid()}"


def cpu_model() -> str:
    """What the processor calls itself, or its architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def devices() -> dict:
    """What ``cohort-sampler --devices`` says of the visible GPUs; asked once.

    {"cuda_build": bool, "gpus": [{"ordinal", "name", "uuid", "bytes", "reads_registered": whether it reads host memory
    that is registered with CUDA at the host's addresses}], "cliques": ordinals of GPUs that read each other's memory,
    [[ordinal, ...], ...], "versions": CUDA's, [driver, runtime]}
    """
    return _devices(os.environ.get("CUDA_VISIBLE_DEVICES"))


@functools.cache
def _devices(visible: str | None) -> dict:
    return answer_of(_asked.pop(visible) if visible in _asked else begin_asking("cohort-sampler", "--devices"))


def ask_for_devices() -> None:
    """Begins to ask what `devices` answers: CUDA takes a while to begin."""
    _asked[os.environ.get("CUDA_VISIBLE_DEVICES")] = begin_asking("cohort-sampler", "--devices")
