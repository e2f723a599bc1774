"""Python programs that tests start are forked from one that has torch and cohort imported: 0.1 s instead of 5.

``use()`` has every ``subprocess.Popen`` of this process, and of the programs that it starts, do so for
``python -m cohort_gnn ...``, ``python -m cohort_gnn.trainer ...``, ``python script.py`` and ``python -c text``, and so
do processes that multiprocessing spawns. What is forked has the arguments, environment, folder, descriptors, signals
and the parent that a fresh interpreter has.
COHORT_TESTS_FRESH in its environment, or a variable there that forms the interpreter, has a fresh one started.
"""

import array
import ctypes
import multiprocessing.util
import os
import pickle
import shlex
import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path
from typing import NamedTuple

FRESH, THREADS = "COHORT_TESTS_FRESH", "OMP_NUM_THREADS"
PR_SET_CHILD_SUBREAPER = 36
SHOWN_BYTES = 65536

HERE = Path(__file__).parent

_LIBC = ctypes.CDLL(None)
_FreshPopen, _spawn_fresh = subprocess.Popen, multiprocessing.util.spawnv_passfds
_server: "Server | None" = None  # of this process
_formed_by: dict[str, str] = {}
_kept: list = []  # never collected: the process that is the server is waited for by nobody


class Program(NamedTuple):
    """What an interpreter is told to run.

    Attributes:
        kind: "-m", "-c" or "script".
        name: the module, the text or the file.
        argv: sys.argv[1:].
        filters: of warnings, as -W has them.
        is_safe: -P: the current folder, or the script's, has no modules for it.
    """

    kind: str
    name: str
    argv: list[str]
    filters: list[str]
    is_safe: bool


class Start(NamedTuple):
    """One process to be.

    Attributes:
        fds: descriptor there -> here.
        before: pickled function, or b"": subprocess's preexec_fn.
        parent: whom the process waits to become a child of; 0: it is one.
    """

    args: list[str]
    env: dict[str, str]
    cwd: str
    fds: dict[int, int]
    before: bytes
    new_session: bool
    parent: int


def use(server: "Server | None" = None) -> None:
    """From now on; without a server, now or before, the first program starts one."""
    global _formed_by, _server
    if subprocess.Popen is not Popen:
        _formed_by, subprocess.Popen = forming(dict(os.environ)), Popen
        multiprocessing.util.spawnv_passfds = _spawn
    _server = server or _server


def is_for_us(args: list[str], env: dict[str, str]) -> bool:
    """Whether a process that is forked here can be what they ask for."""
    return program_of(args) is not None and not env.get(FRESH) and forming(env) == _formed_by


def write_programs(folder: Path) -> None:
    """The commands `cohort` and `python` for shells; those that tests start from here on know them."""
    client = [sys.executable, "-I", "-S", str(HERE / "warm_client.py"), _own_server().address]
    for name, words in (("cohort", [sys.executable, "-m", "cohort_gnn"]), ("python", [sys.executable])):
        script = folder / name
        script.write_text(f'#!/bin/sh\nexec {shlex.join(client + words)} "$@"\n')
        script.chmod(0o755)


def program_of(args: list[str]) -> Program | None:
    """None: the command is no Python, or needs an interpreter of its own."""
    if not args or args[0] != sys.executable:
        return None
    rest, filters, is_safe = list(args[1:]), [], False
    while rest:
        word = rest.pop(0)
        is_safe |= word == "-P"
        if word in ("-u", "-B", "-P"):
            continue
        if word == "-W" and rest:
            filters.append(rest.pop(0))
        elif word in ("-m", "-c") and rest:
            if word == "-m" and rest[0].split(".")[0] not in ("cohort_gnn", "torch"):
                return None
            return Program(word, rest[0], rest[1:], filters, is_safe)
        elif word.endswith(".py") and not word.startswith("-"):
            return Program("script", word, rest, filters, is_safe)
        else:
            return None
    return None


def forming(env: dict[str, str]) -> dict[str, str]:
    """The variables that an interpreter and its libraries look at as they start, and only then."""
    prefixes, others = ("PYTHON", "LD_", "OMP_", "MKL_", "OPENBLAS_"), ("PYTHONUNBUFFERED", "PYTHONWARNINGS", THREADS)
    found = {name: value for name, value in env.items() if name.startswith(prefixes) and name not in others}
    if site := site_of(env):
        found["PYTHONPATH"] = found["PYTHONPATH"].removeprefix(site + os.pathsep)
    return found


def site_of(env: dict[str, str]) -> str:
    """The first folder of PYTHONPATH if it has a sitecustomize.py, which what is forked runs as it starts, or ""."""
    first, more, _ = env.get("PYTHONPATH", "").partition(os.pathsep)
    return first if more and os.path.exists(os.path.join(first, "sitecustomize.py")) else ""


class Popen(_FreshPopen):
    """subprocess.Popen, whose Python programs are forked."""

    def _execute_child(self, args, executable, preexec_fn, close_fds, pass_fds, cwd, env, startupinfo, creationflags,
                       shell, p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite, restore_signals, gid, gids, uid,
                       umask, start_new_session, process_group):  # fmt: skip
        words = [] if isinstance(args, (str, bytes)) or shell else [os.fsdecode(word) for word in args]
        environment = {os.fsdecode(k): os.fsdecode(v) for k, v in (os.environ if env is None else env).items()}
        plain = (
            close_fds and executable is None and (gid, gids, uid, umask, process_group) == (None, None, None, -1, -1)
        )
        before = _pickled(preexec_fn)
        pid = None
        if plain and before is not None and is_for_us(words, environment):
            fds = {fd: fd for fd in pass_fds}
            fds |= {to: to if own == -1 else own for to, own in enumerate((p2cread, c2pwrite, errwrite))}
            folder = os.path.abspath(os.fsdecode(cwd or ""))
            pid = _own_server().fork(Start(words, environment, folder, fds, before, start_new_session, 0))
        if pid is None:
            return super()._execute_child(
                args, executable, preexec_fn, close_fds, pass_fds, cwd, env, startupinfo, creationflags, shell,
                p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite, restore_signals, gid, gids, uid, umask,
                start_new_session, process_group,
            )  # fmt: skip
        self.pid, self._child_created = pid, True
        self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)


def _spawn(path, args, fds) -> int:
    """multiprocessing's: the pid of a process that has standard streams and folder of this one. Those of its own, the
    tracker of resources and the server of forks, are fresh ones."""
    words, env = [os.fsdecode(word) for word in args], dict(os.environ)
    if not any("spawn_main" in word for word in words) or not is_for_us(words, env):
        return _spawn_fresh(path, args, fds)
    return _own_server().fork(Start(words, env, os.getcwd(), {fd: fd for fd in (0, 1, 2, *fds)}, b"", False, 0))


def _pickled(function) -> bytes | None:
    """None: it is one that another process cannot find."""
    try:
        return pickle.dumps(function) if function else b""
    except (pickle.PicklingError, AttributeError):
        return None


def _own_server() -> "Server":
    global _server
    if _server is None:
        _server = Server.begin()
    return _server


class Server:
    """It, as the process sees it whose programs are forked.

    Args:
        requests: leads to it.
        address: abstract, where warm_client.py reaches it.
    """

    def __init__(self, requests: socket.socket, address: str):
        self._socket, self.address, self._turn = requests, address, threading.Lock()

    @classmethod
    def begin(cls) -> "Server":
        """Starts one, in an interpreter of its own."""
        ours, theirs = socket.socketpair()
        address, shells = listening()
        with theirs, shells:
            fds = [theirs.fileno(), shells.fileno()]
            # Room for the arguments and the environment of what is forked, which /proc shows.
            command = [sys.executable, str(HERE / "warm_server.py"), *map(str, fds), "-" * SHOWN_BYTES]
            env = os.environ | {"COHORT_TESTS_ROOM": "-" * SHOWN_BYTES}
            _kept.append(_FreshPopen(command, stdin=subprocess.DEVNULL, pass_fds=fds, env=env))
        return cls(ours, address)

    def fork(self, start: Start) -> int:
        """The pid of a child of this process."""
        with self._turn:
            _LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # children of a child that ends become ours
            try:
                send(self._socket, start._replace(parent=os.getpid()))
                pid, _ = receive(self._socket)
            finally:
                _LIBC.prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
        if pid is None:
            raise RuntimeError("the process that programs of tests are forked from has ended")
        return pid


def listening() -> tuple[str, socket.socket]:
    """(abstract address, where warm_client.py reaches a server; the server's end)"""
    shells = socket.socket(socket.AF_UNIX)
    shells.bind("")  # the kernel finds a free one
    shells.listen()
    return shells.getsockname()[1:].decode(), shells


def send(to: socket.socket, message) -> None:
    """A Start takes its descriptors along."""
    data = pickle.dumps(message)
    fds = list(message.fds.values()) if isinstance(message, Start) else []
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    to.sendmsg([struct.pack("q", len(data))], rights)
    to.sendall(data)


def receive(sender: socket.socket) -> tuple:
    """(the message, or None at the end; descriptors)"""
    head, rights, _, _ = sender.recvmsg(8, 4096)
    fds = array.array("i")
    for _, _, data in rights:
        fds.frombytes(data)
    if len(head) < 8:
        return None, []
    missing, data = struct.unpack("q", head)[0], b""
    while len(data) < missing:
        data += sender.recv(missing - len(data))
    return pickle.loads(data), list(fds)
