"""NVIDIA's Multi-Process Service: lets the kernels of several processes run at the same time.

Without it the GPU is time-sliced between them.
"""

import contextlib
import logging
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from cohort_gnn.base.cuda_files import remove_cuda_files
from cohort_gnn.base.programs import end_processes, end_with_parent, runs, start_logged
from cohort_gnn.launch.options.devices import visible_by_uuid

LOG = logging.getLogger(__name__)

START_SECONDS = 10.0
STOP_SECONDS = 1.5
ASK_SECONDS = 5.0
KILL_SECONDS = 0.5
PREFIX = "cohort-mps-"  # of folders in /tmp; the launcher's pid follows


class Mps:
    """The daemon for one run: one that is there already is used, otherwise a private one is started.

    Attributes:
        env: what clients need in their environment.
        problem: why there is none; empty when there is one.
    """

    def __init__(self):
        self.env: dict[str, str] = {}
        self.problem = ""
        self.process: subprocess.Popen | None = None
        self._folder: Path | None = None
        self._server_pid: int | None = None
        self._began = time.time()
        if not shutil.which("nvidia-cuda-mps-control"):
            self.problem = "nvidia-cuda-mps-control is not installed"
        elif self._ask("get_server_list") is None:
            self._start()

    @property
    def active(self) -> bool:
        return not self.problem

    @property
    def knows_server(self) -> bool:
        """Whether `remember_server` found one."""
        return self._server_pid is not None

    def _start(self) -> None:
        # Socket paths are limited to about 108 characters, so the folder is short.
        _sweep()
        self._folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir="/tmp"))
        self.env = {"CUDA_MPS_PIPE_DIRECTORY": str(self._folder), "CUDA_MPS_LOG_DIRECTORY": str(self._folder)}
        argv, log = ["nvidia-cuda-mps-control", "-f"], self._folder / "daemon.log"
        self.process = start_logged(argv, log, self.env, preexec_fn=end_with_parent)
        deadline = time.monotonic() + START_SECONDS
        while self._ask("get_server_list") is None:
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.problem = "the MPS daemon did not start: " + log.read_text()[-500:]
                self.stop()
                return
            time.sleep(0.01)

    def _ask(self, command: str, limit_seconds: float = ASK_SECONDS) -> str | None:
        """The daemon's answer, or None when no daemon answers."""
        try:
            answer = subprocess.run(
                ["nvidia-cuda-mps-control"],
                input=command + "\n",
                env=os.environ | self.env,
                timeout=limit_seconds,
                capture_output=True,
                text=True,
            )
        except subprocess.TimeoutExpired:
            return None
        answers = answer.returncode == 0 and "Cannot find" not in answer.stdout + answer.stderr
        return answer.stdout.strip() if answers else None

    def died(self) -> str:
        """What part of MPS has died under the run, in words; empty when all is well."""
        if not self.active:
            return ""
        if self.process is not None and self.process.poll() is not None:
            return f"the MPS daemon (process {self.process.pid}) has ended"
        if self._server_pid is not None and not runs(self._server_pid):
            return f"the MPS server (process {self._server_pid}) has ended"
        return ""

    def remember_server(self) -> None:
        """Notes the server that clients are connected to, so that its end is noticed."""
        pids = (self._ask("get_server_list") or "").split()
        self._server_pid = int(pids[0]) if pids and pids[0].isdigit() else None

    def terminate_client(self, pid: int) -> None:
        """Takes a client off the GPU, so that killing it cannot harm the others. It may have gone already."""
        if self.active and self._server_pid is not None:
            self._ask(f"terminate_client {self._server_pid} {pid}")

    def stop(self) -> None:
        """Ends a daemon of our own and its server, within 2 x STOP_SECONDS, and what CUDA leaves of them."""
        if self.process is not None:
            daemon = self.process.pid
            servers: list[int] = []
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
                servers = list(map(int, Path(f"/proc/{daemon}/task/{daemon}/children").read_text().split()))
            if self.process.poll() is None:
                self._ask("quit -t 1", STOP_SECONDS)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(timeout=STOP_SECONDS)
                end_processes([self.process], 0.0)
            for pid in servers:
                _kill(pid)
            remove_cuda_files([self.process.pid, *servers], self._began)
            self.process = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


def start_mps() -> Mps | None:
    """The MPS daemon for programs on a GPU; None, said aloud, when there is none to be had."""
    visible = visible_by_uuid()
    mps = Mps()
    if mps.active:
        mps.env |= visible
        return mps
    LOG.warning(f"no MPS ({mps.problem}): the processes will be time-sliced on the GPU, and wait for each other")
    return None


def _sweep() -> None:
    """Removes the folders of our daemons whose launcher was killed; the kernel has ended the daemons with it."""
    for folder in Path("/tmp").glob(f"{PREFIX}*-*"):
        pid = folder.name.removeprefix(PREFIX).partition("-")[0]
        with contextlib.suppress(FileNotFoundError):  # another launcher has swept it
            if pid.isdigit() and folder.stat().st_uid == os.getuid() and not runs(int(pid)):
                shutil.rmtree(folder, ignore_errors=True)


def _kill(pid: int) -> None:
    """Returns when it has ended, or KILL_SECONDS later."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return  # it ended by itself meanwhile
    deadline = time.monotonic() + KILL_SECONDS
    while runs(pid) and time.monotonic() < deadline:
        time.sleep(0.005)
