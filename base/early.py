"""Programs that load their packages before it is known what they are to do.

A launcher begins a program, finds out what there is to do, and tells it. The program reads its argument from standard
input, which is a socket: one message, with its log and other descriptors. Until then what it writes to standard error
is kept for the log. It ends when the launcher closes the socket instead.
"""

import contextlib
import json
import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from cohort_gnn.base.programs import POLITE, python

LATER = "-"  # stands for the argument
MOST_BYTES, MOST_DESCRIPTORS = 1 << 16, 16


class EarlyProgram:
    """A program ``python -m module``, as its launcher has it.

    Args:
        before: for preexec_fn.

    Attributes:
        began: when, as time.monotonic() has it.
    """

    def __init__(self, module: str, before: Callable[[], None]):
        self.began = time.monotonic()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._printed = open(os.memfd_create(module), "rb")
        with theirs:
            command, environment = python("-m", module, LATER), POLITE | os.environ
            self._process: subprocess.Popen | None = subprocess.Popen(
                command, env=environment, stdin=theirs.fileno(), stderr=self._printed, preexec_fn=before
            )

    def tell(
        self,
        argument: str,
        log: Path | None,
        environment: Mapping[str, str],
        append: bool = False,
        descriptors: tuple[int, ...] = (),
    ) -> subprocess.Popen | None:
        """Has the program do what the argument says; standard output stays ours. None: it has ended, and one that is
        started anew will say why.

        Args:
            log: for standard error; with ``append`` it keeps what it has. None: standard error stays ours.
            environment: what it gets beside the present one.
            descriptors: it holds them open as long as it lives.
        """
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return None
        message = json.dumps({"argument": argument, "environment": dict(environment)}).encode()
        with self._socket, contextlib.ExitStack() as stack:
            error = 2 if log is None else stack.enter_context(open(log, "ab" if append else "wb")).fileno()
            try:
                socket.send_fds(self._socket, [message], [error, *descriptors])
            except ConnectionError:
                process.wait()
                return None
        return process

    def save_words(self, log: Path) -> None:
        """Adds to the log what the program has printed, if it ended after it was told, and before it had the log."""
        if words := _words_in(self._printed.fileno()):
            with open(log, "ab") as file:
                file.write(words)

    def drop(self) -> None:
        """Ends a program that was told nothing."""
        self._socket.close()
        self._printed.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def _words_in(printed: int) -> bytes:
    return os.pread(printed, os.fstat(printed).st_size, 0)


class Argument:
    """The argument of a program, as the program has it.

    Args:
        word: itself, or ``LATER``.
        prepare: is called with it, in another thread, as soon as it and the environment are there.
    """

    def __init__(self, word: str, prepare: Callable[[str], None] = lambda argument: None):
        self._word, self._prepare, self._known = word, prepare, threading.Event()
        # Python waits for its end: what a program says that has failed meanwhile is in the log, too.
        threading.Thread(target=self._run).start()

    def get(self) -> str:
        """Waits for it, and for the environment that the launcher says."""
        self._known.wait()
        return self._word

    def _run(self) -> None:
        if self._word == LATER:
            self._listen()
        self._known.set()
        self._prepare(self._word)

    def _listen(self) -> None:
        """Standard error becomes the log as soon as there is one."""
        with socket.socket(fileno=os.dup(0)) as launcher:
            message, descriptors, _, _ = socket.recv_fds(launcher, MOST_BYTES, MOST_DESCRIPTORS)
        if not message:
            os._exit(0)
        members = json.loads(message)
        os.environ.update(members["environment"])
        log, null, printed = descriptors[0], os.open(os.devnull, os.O_RDONLY), os.dup(2)
        os.dup2(log, 2)
        os.dup2(null, 0)
        os.write(log, _words_in(printed))
        os.ftruncate(printed, 0)
        for ours in (log, null, printed):
            os.close(ours)
        self._word = members["argument"]
