"""Makes idle OpenMP threads of a script leave the cores to threads that compute."""

import ctypes
import os
import signal
import threading
from pathlib import Path

import torch

CHOICES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")  # with which the user has said how threads wait
_shared: set[str] = set()  # libraries in which an idle team waits


def share_cores() -> None:
    """Makes OpenMP threads that wait for work go to sleep soon.

    By default GCC's library has them spin for milliseconds. Beside a sampler, or any other program that uses a core, a
    spinning thread then keeps the one that it waits for from running: steps take ten times as long. The library spins
    only about a thousandth of that while it has more threads than there are cores. So a team that does nothing makes
    them more; its threads sleep until the process ends. OMP_WAIT_POLICY, which says the same, is read only as the
    library is loaded. Nothing is done where the user has set it, and for OpenMP libraries of others.
    """
    if any(name in os.environ for name in CHOICES):
        return
    # PyTorch's library, and a wheel's own: those of a name of their own are different ones.
    mapped = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "/libgomp" in line}
    for path in sorted(mapped - _shared):
        _shared.add(path)
        begun = threading.Event()
        threading.Thread(target=_hold_team, args=(path, begun), name="idle OpenMP team", daemon=True).start()
        begun.wait()


def _hold_team(path: str, begun: threading.Event) -> None:
    """Runs in a thread of its own, and gives it a team that makes two threads more than cores, PyTorch's included."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # the main thread's business
    size = max(2, len(os.sched_getaffinity(0)) - torch.get_num_threads() + 2)
    do_nothing = ctypes.cast(ctypes.CDLL(None).getpid, ctypes.c_void_p)
    ctypes.CDLL(path).GOMP_parallel(do_nothing, None, ctypes.c_uint(size), ctypes.c_uint(0))
    begun.set()
    threading.Event().wait()
