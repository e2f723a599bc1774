"""Starting `cohort` from tests, and looking at the processes that it leaves."""

import contextlib
import ctypes
import io
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, PR_CAPBSET_DROP, LINUX_CAPABILITY_VERSION_3 = 1, 2, 24, 0x20080522
CLONE_NEWNET = 0x40000000
ALL_TESTS = os.environ.get("COHORT_TESTS") == "all"  # tests/run.sh --all
SECONDS_TO_END = 5.0  # what the design allows between a death and the end of the run
SECONDS_TO_START = 60.0  # importing torch on a busy machine


def cohort(*arguments, timeout: float = 300, **options) -> subprocess.CompletedProcess:
    """Runs `cohort <arguments>` to its end."""
    command = [sys.executable, "-m", "cohort_gnn", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL, **options)


def ran(*arguments, **options) -> subprocess.CompletedProcess:
    """Runs `cohort <arguments>` to its end, which has to be a good one."""
    done = cohort(*arguments, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def beginning_with(text: str, folder: Path) -> dict[str, str]:
    """An environment in which every Python program begins with this text, which is kept in the folder."""
    (folder / "sitecustomize.py").write_text(text)
    return os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}


def here(*arguments) -> subprocess.CompletedProcess:
    """`cohort <arguments>` in this process: what ends before it starts programs of its own needs none itself."""
    from cohort_gnn.launch.main import main
    from cohort_gnn.launch.run.stopping import handlers_kept

    out, err = io.StringIO(), io.StringIO()
    with handlers_kept(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main([*map(str, arguments)])
        except SystemExit as end:
            code = end.code
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())


def summary_of(out: Path) -> dict:
    """What a run wrote at its end."""
    return json.loads((out / "summary.json").read_text())


def refused(result: subprocess.CompletedProcess, exit_code: int, *words: str) -> None:
    """Checks that a command ended so, with an error of these words, on however many lines, and no traceback."""
    assert result.returncode == exit_code, result.stderr
    assert "Traceback" not in result.stderr
    for word in words:
        assert word in result.stderr or word in " ".join(result.stderr.split()), result.stderr


def hear_hangups() -> None:
    """For preexec_fn: where tests run under nohup, their children would ignore SIGHUP."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def enter_network(name: str) -> None:
    """For preexec_fn: the process gets the network of this namespace of `ip netns`."""
    hear_hangups()
    with open(f"/run/netns/{name}") as namespace:
        if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"the network {name}")


def give_up_rights() -> None:
    """For preexec_fn: root may read and write but where others may, too, after an exec and without one."""
    libc, dropped = ctypes.CDLL(None), (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH)
    for capability in dropped:
        libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    header, sets = (ctypes.c_uint32 * 2)(LINUX_CAPABILITY_VERSION_3, 0), (ctypes.c_uint32 * 6)()
    libc.capget(header, sets)
    sets[0] &= ~sum(1 << capability for capability in dropped)  # the low half of those in effect
    libc.capset(header, sets)


def processes_of(text: str | Path) -> dict[int, list[str]]:
    """pid -> argv of the processes (zombies apart) that have `text` in an argument, and of trainers whose log is beside
    it or in it: they are told their run when they have begun."""
    found, path, wanted = {}, Path(text), str(text)
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            # Without the empty end of a program that was forked, which has room for 65,536 arguments (warm.py).
            argv = (folder / "cmdline").read_bytes().rstrip(b"\0").decode(errors="replace").split("\0")
            told = Path(os.readlink(folder / "fd/2")).parent if "cohort_gnn.trainer" in argv else None
        except (FileNotFoundError, ProcessLookupError):  # it has just ended
            continue
        beside = told and (path in (told, *told.parents) or path == told / "run.json")
        if beside or any(wanted in argument for argument in argv):
            found[int(folder.name)] = argv
    return found


def free_port() -> int:
    """A port of the loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def two_ranks(device: str) -> list[str]:
    """The options for two trainers; skips the test where there are not two GPUs for them."""
    if device == "cpu":
        return ["--ranks", "2"]
    if torch.cuda.device_count() < 2:
        pytest.skip(f"needs 2 GPUs; {torch.cuda.device_count()} here")
    return ["--gpus", "0,1"]


def wait_until(happened: Callable[[], object], seconds: float, what: str):
    """The first true value of `happened()`; fails when there is none within `seconds`."""
    began = time.monotonic()
    deadline = began + seconds
    while not (value := happened()):
        now = time.monotonic()
        assert now < deadline, f"{what} took more than {seconds} s"
        # A look at all processes takes long, and others need the cores; but what is waited for may soon be over.
        time.sleep(min(0.2, max(0.005, 4 * (now - began))))
        began = time.monotonic()
    return value


def environment_of(pid: int) -> dict[str, str]:
    """The environment that a process was started with."""
    entries = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
    return dict(entry.split("=", 1) for entry in entries if "=" in entry)
