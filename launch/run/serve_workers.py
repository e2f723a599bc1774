"""The processes of ``cohort serve``: where they listen, and several that answer side by side."""

import contextlib
import errno
import json
import logging
import os
import select
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.files import scratch_folder
from cohort_gnn.base.programs import POLITE, end_processes, end_with_parent, has_ended, python
from cohort_gnn.launch.run.mps import Mps, start_mps

LOG = logging.getLogger(__name__)

POLL_SECONDS = 0.1
END_SECONDS = 40.0  # in which the requests under way are answered
SOON = 10.0  # seconds: a process that ends so soon after its start ...
MOST_SOON = 3  # ... is started anew so often at most
MOST_PORT, RIGHTS_OF_SOCKET = 65535, 0o666


def listening(host: str, port: int, unix_socket: Path | None) -> list[socket.socket]:
    """Sockets that listen there, one for each address of the host, and that child processes inherit. From now on the
    address is taken, and requests wait until they are answered.

    Raises:
        CohortError: there is no such address, or it is taken.
    """
    if not 0 <= port <= MOST_PORT:  # others would be taken modulo 2^16
        raise CohortError("--port", f"a number from 0 to {MOST_PORT}", str(port))
    place = f"--unix-socket {unix_socket}" if unix_socket else f"--host {host} --port {port}"
    try:
        sockets = [_at_path(unix_socket)] if unix_socket else _at_port(host, port)
    except OSError as error:
        raise CohortError(place, "an address that is free", error.strerror or str(error)) from error
    for bound in sockets:
        bound.set_inheritable(True)
    return sockets


def _at_path(path: Path) -> socket.socket:
    """In place of a socket that is there, with its rights, unless somebody answers at it."""
    rights = RIGHTS_OF_SOCKET
    if path.is_socket():
        with contextlib.suppress(ConnectionRefusedError), socket.socket(socket.AF_UNIX) as other:
            other.connect(str(path))
            raise OSError(errno.EADDRINUSE, "a service that answers there")
        rights = stat.S_IMODE(path.stat().st_mode)
        path.unlink()
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    bound.bind(str(path))
    path.chmod(rights)
    bound.listen()
    return bound


def _at_port(host: str, port: int) -> list[socket.socket]:
    sockets: dict[Any, socket.socket] = {}
    addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    for family, kind, protocol, _, address in addresses:
        if address in sockets:
            continue
        bound = sockets[address] = socket.socket(family, kind, protocol)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind(address)
        bound.listen()
    return list(sockets.values())


def command_of(job: dict[str, Any]) -> list[str]:
    """That of a process which answers requests."""
    return python("-m", "cohort_gnn.trainer.serve", json.dumps(job))


def supervise(job: dict[str, Any], count: int) -> int:
    """Runs so many processes with the same sockets until a signal comes; one that ends by itself is started anew.

    The first one starts alone: what is wrong with a run or a data set is told once. On a GPU they compute side by side,
    by MPS.

    Returns:
        The exit status of the first process if it ends before it answers; 1 if one ends again and again.
    """
    with scratch_folder("serve") as metrics, _signals() as came:
        workers = _Workers(job, str(metrics), start_mps() if job["device"].startswith("cuda") else None)
        try:
            status = workers.start_first(came)
            if status is None and not came:
                workers.start(count - 1)
                status = workers.watch(came)
        finally:
            workers.end()
    if came:  # as a single process does: whoever started us sees the signal
        signal.signal(came[0], signal.SIG_DFL)
        os.kill(os.getpid(), came[0])
    return status or 0


class _Workers:
    def __init__(self, job: dict[str, Any], metrics: str, mps: Mps | None = None):
        self._job, self._environment = job, POLITE | os.environ | {"PROMETHEUS_MULTIPROC_DIR": metrics}
        self._mps = mps
        self._processes: list[subprocess.Popen] = []
        self._began: list[float] = []
        self._soon = 0  # ends in a row that came soon after a start

    def start_first(self, came: list[int]) -> int | None:
        """Returns when it answers requests, or a signal came; its exit status, if it ended instead."""
        ready, written = os.pipe()
        process = self._begin(announces=True, ready=written)
        os.close(written)
        self._processes, self._began = [process], [time.monotonic()]
        while not came:
            # An end of file, as the process ends, also makes the pipe readable.
            if select.select([ready], [], [], POLL_SECONDS)[0]:
                break
        is_ready = not came and bool(os.read(ready, 1))
        os.close(ready)
        return None if is_ready or came else process.wait()

    def start(self, count: int) -> None:
        for _ in range(count):
            self._processes.append(self._begin(announces=False))
            self._began.append(time.monotonic())

    def watch(self, came: list[int]) -> int:
        """Starts what ends; returns when a signal came, or a process ends again and again."""
        while not came:
            time.sleep(POLL_SECONDS)
            if self._mps and (problem := self._mps.died()):
                if not self._goes_on(problem, "all processes start anew", min(self._began)):
                    return 1
                self._start_with_mps()
            elif self._mps and not self._mps.knows_server:
                self._mps.remember_server()
            for number, process in enumerate(self._processes):
                if not has_ended(process) or came:
                    continue
                self._bury(process)
                what = f"process {process.pid} ended with status {process.returncode}"
                if not self._goes_on(what, "another takes its place", self._began[number]):
                    return 1
                self._processes[number], self._began[number] = self._begin(announces=False), time.monotonic()
        return 0

    def _goes_on(self, what: str, follows: str, began: float) -> bool:
        """Says what happened to processes that began then; False where the like came soon too often."""
        self._soon = self._soon + 1 if time.monotonic() - began < SOON else 0
        is_last = self._soon > MOST_SOON
        LOG.warning(f"{what}: {'the service ends, as it did so soon before' if is_last else follows}")
        return not is_last

    def _bury(self, process: subprocess.Popen) -> None:
        from prometheus_client.multiprocess import mark_process_dead  # of the extra "serve"

        process.wait()  # for threads of it that are still ending
        mark_process_dead(process.pid, self._environment["PROMETHEUS_MULTIPROC_DIR"])

    def _start_with_mps(self) -> None:
        """In place of all processes, which cannot use the GPU any more."""
        assert self._mps
        end_processes(self._processes, 0.0)
        for process in self._processes:
            self._bury(process)
        self._mps.stop()
        self._mps, count = start_mps(), len(self._processes)
        self._processes, self._began = [], []
        self.start(count)

    def end(self) -> None:
        """Lets them answer the requests under way."""
        end_processes(self._processes, END_SECONDS, self._mps.terminate_client if self._mps else None)
        if self._mps:
            self._mps.stop()

    def _begin(self, announces: bool, ready: int | None = None) -> subprocess.Popen:
        descriptors = [*self._job["sockets"], *([] if ready is None else [ready])]
        return subprocess.Popen(
            command_of(self._job | {"announces": announces, "ready": ready}),
            env=self._environment | (self._mps.env if self._mps else {}),
            stdin=subprocess.DEVNULL,
            pass_fds=descriptors,
            preexec_fn=_apart,
        )


def _apart() -> None:
    """For preexec_fn: it ends with us, and Ctrl-C in a terminal tells us alone."""
    end_with_parent()
    os.setpgid(0, 0)


@contextlib.contextmanager
def _signals() -> Iterator[list[int]]:
    """Inside, SIGTERM and SIGINT end nothing: their numbers are put into the list."""
    came: list[int] = []
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = [signal.signal(number, lambda number, _: came.append(number)) for number in numbers]
    try:
        yield came
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
