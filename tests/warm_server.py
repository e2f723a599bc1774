"""The process that Python programs of tests are forked from, and what becomes of it there (warm.py)."""

import atexit
import contextlib
import ctypes
import fcntl
import functools
import gc
import importlib
import logging
import os
import pickle
import pkgutil
import runpy
import select
import signal
import socket
import sys
import threading
import time
import traceback
import types
import warnings
from collections.abc import Iterable
from pathlib import Path

import warm
from warm import Program, Start, program_of, receive, send

HIGH_FD = 500
HUGE_BYTES, MADV_COLLAPSE = 2 << 20, 25
OF_TERMINALS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}  # sent to all processes of one

_num_threads = os.environ.get(warm.THREADS)
_exec_fresh = os.execve
_kept: list = []  # never collected: it would close descriptors that are another's by now


def main(requests: socket.socket, shells: socket.socket) -> None:
    """Imports what programs need, and forks them until the tests have ended."""
    _import_all()
    _gather_in_huge_pages()
    warm.use()
    _serve(requests, shells)


def _begin_own() -> warm.Server:
    """A server forked from this process, which has everything imported and has done nothing else."""
    ours, theirs = socket.socketpair()
    address, shells = warm.listening()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, OF_TERMINALS)  # what is forked gets those that come meanwhile
    if os.fork() == 0:
        _leave_all_but(theirs, shells)
        _serve(theirs, shells)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    theirs.close()
    shells.close()
    return warm.Server(ours, address)


def _serve(requests: socket.socket, shells: socket.socket) -> None:
    """Forks what is asked for, until nobody can ask any more. No OpenMP region has run in this process."""
    gc.freeze()
    while True:
        ready = select.select([requests, shells], [], [])[0]
        if requests in ready:
            start, fds = receive(requests)
            if start is None:
                os._exit(0)
            send(requests, _fork_for(start._replace(fds=dict(zip(start.fds, fds, strict=True)))))
            for fd in fds:
                os.close(fd)
        else:
            client, _ = shells.accept()
            if os.fork() == 0:
                _keep_for_shell(client)
            client.close()
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:  # those of shells before
                    pass


def _fork_for(start: Start) -> int:
    """The pid of a child of ``start.parent``."""
    reader, writer = os.pipe()
    middle = os.fork()
    if middle == 0:
        pid = os.fork()
        if pid == 0:
            _become(start)
        os.write(writer, str(pid).encode())
        os._exit(0)
    os.waitpid(middle, 0)
    pid = int(os.read(reader, 20))
    os.close(reader)
    os.close(writer)
    return pid


def _keep_for_shell(client: socket.socket) -> None:
    """In a process of its own: runs what warm_client.py asks for, and ends when it has ended."""
    asked, fds = receive(client)
    start = Start(asked["args"], asked["env"], asked["cwd"], dict(enumerate(fds)), b"", False, 0)
    if not warm.is_for_us(start.args, start.env):
        client.sendall(b"0")
        os._exit(0)
    pid = os.fork()
    if pid == 0:
        _become(start)
    client.sendall(str(pid).encode())
    for fd in fds:
        os.close(fd)
    waited = select.poll()
    waited.register(process := os.pidfd_open(pid), select.POLLIN)
    waited.register(client, select.POLLIN)
    if process not in [fd for fd, _ in waited.poll()]:  # the client was killed
        os.kill(pid, signal.SIGTERM)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with contextlib.suppress(OSError):
        client.sendall(str(code).encode())
    os._exit(0)


def _leave_all_but(*sockets: socket.socket) -> None:
    """What a process has open, its pipes above all, ends with it, not with the one that serves it."""
    _close_all_but({0, 1, 2, *(one.fileno() for one in sockets)})
    null = os.open(os.devnull, os.O_RDWR)
    for fd in range(3):
        os.dup2(null, fd)
    os.close(null)


def _import_all() -> None:
    import cohort_gnn as cohort

    # As PyG is imported, it asks torch how it was built, and torch asks CUDA for GPUs: CUDA would not work in forks.
    torch = importlib.import_module("torch")
    torch.__config__.show = lambda: ""

    warnings.filterwarnings("ignore", "`torch.jit.script` is deprecated", FutureWarning)
    for module in pkgutil.walk_packages(cohort.__path__, "cohort_gnn."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    of_tests = ("torch_geometric.metrics", "scipy.sparse", "sklearn.metrics", "uvicorn", "processes")
    for name in ("torch_geometric.nn", "torch_geometric.loader", *of_tests):
        importlib.import_module(name)
    _compile_templates()
    importlib.reload(torch.__config__)
    assert not torch.cuda.is_initialized()


def _compile_templates() -> None:
    """PyG compiles its templates for each class of layers again, 30 ms each time; programs find them compiled."""
    template = importlib.import_module("torch_geometric.template")
    make, loader_of = template.Environment, template.FileSystemLoader
    environment = functools.cache(lambda folder: make(loader=loader_of(folder)))
    template.FileSystemLoader, template.Environment = str, lambda loader: environment(loader)
    folder = Path(importlib.import_module("torch_geometric.nn.conv").__file__).parent.resolve()
    for path in folder.glob("*.jinja"):
        environment(str(folder)).get_template(path.name)


def _gather_in_huge_pages() -> None:
    """A fork then copies the addresses of 200 huge pages instead of 100,000 small ones: 16 ms instead of 45. Kernels
    before Linux 6.1 refuse, and leave the pages as they are."""
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    for line in Path("/proc/self/maps").read_text().splitlines():
        addresses, access, _, _, file, *name = line.split()
        if access != "rw-p" or file != "0" or name not in ([], ["[heap]"]):
            continue
        begin, end = (int(address, 16) for address in addresses.split("-"))
        for at in range(-(-begin // HUGE_BYTES) * HUGE_BYTES, end - HUGE_BYTES + 1, HUGE_BYTES):
            madvise(at, HUGE_BYTES, MADV_COLLAPSE)


# --- what is forked --------------------------------------------------------------------------------------------------


def _become(start: Start) -> None:
    """Runs the program in this process, which has just been forked, and ends it."""
    code = 1
    try:
        gc.freeze()
        atexit._clear()
        while start.parent and os.getppid() != start.parent:
            os.kill(start.parent, 0)  # fails if it has ended, and this process is left to another
            time.sleep(0.0005)
        _place(start)
        if _starts_programs(program_of(start.args)):
            warm.use(_begin_own())
        os.execve = _exec
        code = _go(start)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _go(start: Start) -> int:
    """Runs the program; the exit code."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    program = program_of(start.args)
    _settle(start, program)
    _show(start)
    _customize(start)
    return _run(program)


def _exec(path, args, env) -> None:
    """os.execve: a Python program goes on in this process, with the descriptors that it has open."""
    start = Start([*map(os.fsdecode, args)], dict(env), os.getcwd(), {}, b"", False, 0)
    if path != sys.executable or not warm.is_for_us(start.args, start.env):
        _exec_fresh(path, args, env)
    logging.getLogger("cohort_gnn").handlers.clear()
    _reset_signals()
    code = 1
    try:
        code = _go(start)
    finally:
        os._exit(code)


def _starts_programs(program: Program) -> bool:
    """Whether it may start Python programs. (One that does all the same starts a server first.)"""
    if program.kind != "-m" or not program.name.startswith("cohort_gnn"):
        return True
    return program.name == "cohort_gnn" and program.argv[:1] not in (["dataset"], ["report"])


def _place(start: Start) -> None:
    """Descriptors, folder, signals and session: what the kernel keeps of a process."""
    high = {to: fcntl.fcntl(own, fcntl.F_DUPFD_CLOEXEC, HIGH_FD) for to, own in start.fds.items()}
    for to, own in high.items():
        os.dup2(own, to)
    _close_all_but(high)
    os.chdir(start.cwd)
    _reset_signals()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, OF_TERMINALS)
    if start.new_session:
        os.setsid()
    if start.before:
        pickle.loads(start.before)()


def _reset_signals() -> None:
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)


def _close_all_but(fds: Iterable[int]) -> None:
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in fds:
            with contextlib.suppress(OSError):  # that of the list itself
                os.close(int(name))


def _settle(start: Start, program: Program) -> None:
    """The state of the interpreter, of its streams and libraries."""
    import numpy
    import torch

    os.environ.clear()
    os.environ.update(start.env)
    _kept.extend((sys.stdin, sys.stdout, sys.stderr))
    at_once = bool(start.env.get("PYTHONUNBUFFERED"))
    sys.stdin = sys.__stdin__ = open(0, closefd=False)
    sys.stdout = sys.__stdout__ = _stream(1, "strict", at_once, os.isatty(1))
    sys.stderr = sys.__stderr__ = _stream(2, "backslashreplace", at_once, True)
    of_env = start.env.get("PYTHONWARNINGS", "")
    warnings._processoptions([*filter(None, of_env.split(",")), *program.filters])
    numpy.random.seed()
    threads = start.env.get(warm.THREADS)
    if threads != _num_threads:
        count = int(threads) if threads else len(os.sched_getaffinity(0))
        torch.set_num_threads(count)
        ctypes.CDLL("libgomp.so.1").omp_set_num_threads(count)


def _customize(start: Start) -> None:
    """What an interpreter does last before it runs a program: a test may have given it a sitecustomize.py."""
    sys.orig_argv = start.args
    if site := warm.site_of(start.env):
        sys.modules.pop("sitecustomize", None)
        sys.path.insert(0, site)
        importlib.import_module("sitecustomize")


def _stream(fd: int, errors: str, at_once: bool, by_line: bool):
    stream = open(fd, "w", encoding="utf-8", errors=errors, closefd=False)
    stream.reconfigure(line_buffering=by_line, write_through=at_once)
    return stream


def _show(start: Start) -> None:
    """Arguments and environment in /proc/self, over those that the first process was started with."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    words = [os.fsencode(word) + b"\0" for word in start.args]
    variables = [os.fsencode(f"{name}={value}") + b"\0" for name, value in start.env.items()]
    for texts, begin, end in ((words, *map(int, fields[45:47])), (variables, *map(int, fields[47:49]))):
        ctypes.memmove(begin, b"".join(texts)[: end - begin - 1].ljust(end - begin, b"\0"), end - begin)


def _run(program: Program) -> int:
    """Runs it as __main__; the exit code."""
    code = 0
    try:
        _run_as_main(program)
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1
        if code and not isinstance(stop.code, int):
            print(stop.code, file=sys.stderr)
    except KeyboardInterrupt:
        traceback.print_exc()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    threading._shutdown()
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
    except OSError as error:
        print(f"Exception ignored in: {sys.stdout!r}\n{type(error).__name__}: {error}", file=sys.stderr)
        code = 120
    sys.stderr.flush()
    return code & 0xFF


def _run_as_main(program: Program) -> None:
    name, folder = program.name, os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if entry != folder]
    if not program.is_safe:
        first = {"script": os.path.dirname(os.path.abspath(name)), "-m": os.getcwd(), "-c": ""}[program.kind]
        sys.path.insert(0, first)
    if program.kind == "script":
        sys.argv = [name, *program.argv]
        runpy.run_path(name, run_name="__main__")
    elif program.kind == "-m":
        sys.argv = ["-m", *program.argv]
        if not hasattr(sys.modules.get(name), "__path__"):  # imported here, but not by a program that runs it
            sys.modules.pop(name, None)
        runpy.run_module(name, run_name="__main__", alter_sys=True)
    else:
        sys.argv = ["-c", *program.argv]
        sys.modules["__main__"] = module = types.ModuleType("__main__")
        exec(compile(name, "<string>", "exec"), module.__dict__)


if __name__ == "__main__":
    main(*(socket.socket(fileno=int(fd)) for fd in sys.argv[1:3]))
