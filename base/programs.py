"""Cohort's own programs: finding, starting and stopping them, and the ends of their logs."""

import atexit
import contextlib
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn, cast

from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.importing import has_imported

# Environment for a process that may share the cores with another: OpenMP threads that spin while they wait make both of
# them several times slower. What the user has set wins.
POLITE = {"OMP_WAIT_POLICY": "passive"}

KILL_SECONDS = 10.0  # in which the kernel ends a process, though it may have much memory to give back
END_POLL_SECONDS = 0.005
LEAST_BYTES = 4096  # that a file system gives a file
OF_TOOLS = ("LD_PRELOAD", "CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH")  # profilers come with a program by these

_QUIET = "ignore:`torch.jit.script` is deprecated:FutureWarning"  # PyG's, as it is imported
PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


def program(name: str) -> str:
    """The path of one of Cohort's own programs (``cohort-sampler``, ``cohort-inspect``).

    Raises:
        CohortError: the installation lacks it.
    """
    path = Path(__file__).absolute().parent.parent / "bin" / name
    if not os.access(path, os.X_OK):
        raise CohortError(name, f"the program {path}", "none", "build or install cohort again")
    return str(path)


def python(*arguments: str) -> list[str]:
    """The command of an interpreter for Cohort's own code, with arguments such as ("-m", module): no file of the
    current folder takes the place of a module (-P)."""
    return [sys.executable, "-P", "-W", _QUIET, *arguments]


def start_logged(
    argv: list[str],
    log: Path,
    env: Mapping[str, str] | None = None,
    show_output: bool = False,
    append: bool = False,
    **how: Any,
) -> subprocess.Popen:
    """Starts a process without input; its output goes to ``log``, standard output to ours when ``show_output``.

    Args:
        append: the log has lines already, which stay.
        env: what it gets beside our environment.
        how: others of Popen's arguments.
    """
    with open(log, "ab" if append else "wb") as file:
        stdout = None if show_output else file
        env = POLITE | os.environ | dict(env or {})
        return subprocess.Popen(argv, env=env, stdin=subprocess.DEVNULL, stdout=stdout, stderr=file, **how)


def end_with_parent() -> None:
    """For preexec_fn: the kernel ends the child when this process dies."""
    _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def end_processes(
    processes: Iterable[subprocess.Popen], seconds: float, before_kill: Callable[[int], None] | None = None
) -> None:
    """Asks them to end, and kills those that have not after so many seconds, or when the wait is interrupted.

    Args:
        before_kill: takes the pid of each that is killed.
    """
    running = [process for process in processes if not has_ended(process)]
    for process in running:
        process.terminate()
    try:
        _wait_for(running, seconds)
    finally:
        running = [process for process in running if not has_ended(process)]
        for process in running:
            if before_kill:
                before_kill(process.pid)
            process.kill()
        _wait_for(running, KILL_SECONDS)


def _wait_for(processes: list[subprocess.Popen], seconds: float) -> None:
    """Returns when all have ended, or so many seconds later."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not all(map(has_ended, processes)):
        time.sleep(END_POLL_SECONDS)


def has_ended(process: subprocess.Popen) -> bool:
    """Whether a child has ended, also when Popen no longer finds out: an exception from a signal handler (Ctrl-C in a
    script) within ``poll`` can leave its lock held, and it answers None for ever after."""
    if process.poll() is None and runs(process.pid):
        return False
    process.poll()  # its exit code, where it ended between the two
    return True


def how_ended(code: int) -> str:
    """What the exit code of a process says, as Popen has it."""
    if code >= 0:
        return f"ended with exit code {code}"
    known = -code in {*signal.Signals}
    return f"was ended by {signal.Signals(-code).name if known else f'signal {-code}'}"


def runs(pid: int) -> bool:
    """False when there is no such process, or only its zombie: all of its threads have ended."""
    if start_time_of(pid) is not None:
        return True
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return any(_status_of(pid, int(thread))[0] not in "ZX" for thread in os.listdir(f"/proc/{pid}/task"))
    return False


def ask(name: str, *arguments: str) -> dict:
    """The JSON that one of Cohort's own programs prints.

    Raises:
        CohortError: the program fails; the error has its message.
    """
    return answer_of(begin_asking(name, *arguments))


def begin_asking(name: str, *arguments: str) -> subprocess.Popen[str]:
    """The same in two steps; `answer_of` waits for what the program prints."""
    command, pipe = [program(name), *arguments], subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, preexec_fn=end_with_parent)


def answer_of(asked: subprocess.Popen[str]) -> dict:
    """See `ask`."""
    with asked:
        try:
            answer, errors = asked.communicate()
        except BaseException:
            asked.kill()
            raise
    if asked.returncode != 0:
        path, what, *_ = cast(list[str], asked.args)
        name = Path(path).name
        said = errors.strip().removeprefix(f"{name}: ")
        raise CohortError.from_text(said or f"{name} {what} {how_ended(asked.returncode)}")
    return json.loads(answer)


def ask_sampler(*arguments: str) -> dict:
    """What ``cohort-sampler`` answers to ``--devices`` and the like."""
    return ask("cohort-sampler", *arguments)


def describe_channel(folder: Path) -> dict:
    """A channel as ``cohort-inspect`` describes it; CohortError where there is none yet, or one of another build."""
    return ask("cohort-inspect", str(folder))


def start_time_of(pid: int) -> str | None:
    """When a process started, in the kernel's ticks. The pid and this time identify a process, since pids are reused.
    None: it has ended."""
    fields = _status_of(pid)
    return None if fields[0] in "ZX" else fields[19]


def is_stopped(pid: int) -> bool:
    """Whether SIGSTOP or SIGTSTP (Ctrl-Z) holds a process; not one that a debugger holds."""
    return _status_of(pid)[0] == "T"


def _status_of(pid: int, thread: int | None = None) -> list[str]:
    """The fields of /proc/PID/stat after the name, the state first; ["X"]: there is no such process. As in
    base/process.cc, those of its first thread, or of another."""
    try:
        return Path(f"/proc/{pid}/task/{thread or pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return ["X"]


def log_tail(log: Path, lines: int = 15) -> str:
    """The last lines of a log, indented, for an error message."""
    text = log.read_text(errors="replace").splitlines()[-lines:] if log.exists() else []
    if not text:
        is_full = log.parent.is_dir() and shutil.disk_usage(log.parent).free < LEAST_BYTES
        return f"    (the log is empty{f': nothing more can be written to {log.parent}' if is_full else ''})"
    return "\n".join("    " + line for line in text)


def open_closed_streams() -> None:
    """Has standard streams that are closed (``cohort train ... >&-``) lead to /dev/null: Python has None for them, and
    another file would get the number."""
    for name, mode in {"stdin": "r", "stdout": "w", "stderr": "w"}.items():
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_RDWR)  # has the least number that is free, which is the stream's
            os.set_inheritable(null, True)
            setattr(sys, name, open(null, mode))


def flush_output() -> None:
    """Flushes standard output at a program's end; if it cannot be written, the rest is lost."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python tries again as it ends


def end_program(code: int) -> NoReturn:
    """Ends the process as Python does, but leaves modules and objects to the kernel: Python would take torch apart for
    0.4 s, numpy for 0.05. Not under a profiler, which writes its file when C's own functions for the end are called,
    and not where code of the user's has run: it may have files to write yet, which Python closes."""
    if has_imported() or any(os.environ.get(name) for name in OF_TOOLS):
        sys.exit(code)
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    flush_output()
    sys.stderr.flush()
    os._exit(code)
