"""Which machine a process is on, and its shared memory."""

import os
from pathlib import Path


def shared_memory_root() -> Path:
    """The folder under which this user's runs keep theirs (``COHORT_SHM`` overrides /dev/shm)."""
    return Path(os.environ.get("COHORT_SHM", "/dev/shm")).absolute() / f"cohort-{os.getuid()}"


def machine_identity() -> str:
    """The same for processes that see each other in /proc, and the same shared memory."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    shared = shared_memory_root().parent.stat()
    return f"{boot} {os.readlink('/proc/self/ns/pid')} {shared.st_dev}:{shared.st_ino} {os.getuid()}"
