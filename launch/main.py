"""The command ``cohort``."""

import argparse
import contextlib
import importlib
import os
import select
import shlex
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from errno import EAGAIN, EMFILE, ENOENT
from typing import NoReturn

from cohort_gnn.base.early import EarlyProgram
from cohort_gnn.base.ending import leave, lost_signals_repeated
from cohort_gnn.base.errors import CohortError, found_full, why
from cohort_gnn.base.log import shown
from cohort_gnn.base.machine import ask_for_devices
from cohort_gnn.base.programs import end_program, open_closed_streams
from cohort_gnn.base.version import __version__
from cohort_gnn.launch.run.supervise import ReportedFailure, begun, trainer_alone

# What help says of each command, and its modules: the first one adds its arguments, the others add to it.
COMMANDS = {
    "train": ("train a model", ["launch.run.train"]),
    "predict": ("apply a trained model to every node", ["launch.run.predict"]),
    "serve": ("answer requests for scores over HTTP", ["launch.run.serve"]),
    "bench": (
        "measure the parts of a run separately",
        ["launch.bench.command", "launch.bench.parts", "launch.bench.step", "launch.bench.disk"],
    ),
    "run": ("run a training script of your own", ["launch.run.script"]),
    "plan": ("show what each GPU would cache, before a run", ["launch.plan.command"]),
    "tune": ("find the fastest options by short runs", ["launch.tune.command"]),
    "report": ("report on a run, or compare runs", ["launch.report.command"]),
    "digest": ("print a digest of each batch", ["launch.run.digest"]),
    "inspect": ("show the slots of a run in progress", ["launch.run.inspect"]),
    "doctor": ("check this machine, and say what to fix", ["launch.doctor"]),
    "ibp": ("lossless compression of feature rows", ["ibp.cli"]),
    "dataset": (
        "make, check and describe data sets",
        ["dataset.cli", "launch.data.prepare", "launch.data.derive", "launch.data.shard", "launch.data.check_rows"],
    ),
}


def program() -> NoReturn:
    """The process of the command: its arguments are sys.argv."""
    open_closed_streams()
    end_program(main())


def main(argv: list[str] | None = None) -> int:
    """Parses and runs one command; returns the exit code (0 well, 1 failed, 2 bad arguments, 128 + n: signal n)."""
    warnings.filterwarnings("ignore", "`torch.jit.script` is deprecated", FutureWarning)  # PyG's, as it is imported
    try:
        words = sys.argv[1:] if argv is None else argv
        module = _program_of(words) if argv is None and not {"-h", "--help"} & {*words} else None
        with lost_signals_repeated(), shown("stderr"), begun(module) as early:
            if early and "cpu" not in words:
                ask_for_devices()
            return _run(build_parser(words[0] if words else ""), words, early)
    except ReportedFailure as failure:
        return failure.code
    except CohortError as error:
        print(f"cohort: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        poll = select.poll()  # of a pipe whose reader has left (cohort report RUN | head)
        poll.register(sys.stdout.fileno(), 0)
        if not any(events & select.POLLERR for _, events in poll.poll(0)):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what Python itself writes at its end
        return 1
    except OSError as error:  # a full disk, a folder that cannot be written
        print(f"cohort: {_said_of(error)}", file=sys.stderr)
        return 1


@contextlib.contextmanager
def _ended_by_exceptions() -> Iterator[None]:
    """Inside, Ctrl-C, SIGTERM and SIGHUP end a command by an exception, so that nothing is left behind. A library may
    raise its own in that one's place (DuckDB: "Query interrupted"). Commands with programs to end have handlers of
    their own for that time; under nohup SIGHUP is ignored."""
    came: list[int] = []

    def end(number: int, frame) -> None:
        came.append(number)
        (signal.default_int_handler if number == signal.SIGINT else leave)(number, frame)

    is_main = threading.current_thread() is threading.main_thread()
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    handled = [number for number in numbers if is_main and signal.getsignal(number) is signal.SIG_DFL]
    for number in handled:
        signal.signal(number, end)
    try:
        yield
    except Exception:
        if came:
            end(came[-1], None)
        raise
    finally:
        for number in handled:  # for callers of main() that go on
            if signal.getsignal(number) is end:
                signal.signal(number, signal.SIG_DFL)


def _said_of(error: OSError) -> str:
    """What of the system has failed, and where, if that is known: writing says only what."""
    if error.filename:
        return f"{error.filename}: {error.strerror}"
    if error.errno == EMFILE:
        return str(CohortError("open files", "room for another", why(error), "raise their limit: ulimit -n"))
    if error.errno == EAGAIN:  # of a fork
        return str(CohortError("processes", "room for another", why(error), "raise their limit: ulimit -u"))
    if error.errno == ENOENT and "temporary directory" in str(error):  # of tempfile, which names no file
        return str(CohortError("TMPDIR", "a folder that can be written", why(error), "set it to one"))
    if not (full := found_full(error)):
        return str(error)
    hint = "make room where standard output goes, where the command writes its files, or in TMPDIR (/tmp)"
    return str(CohortError("what is written", "room for it", full, hint))


def _run(parser: argparse.ArgumentParser, words: list[str], early: EarlyProgram | None) -> int:
    args = parser.parse_args(words)
    args.early = early
    own = words[: words.index("run")] if "run" in words[:1] else words  # the arguments of a script belong to it
    if "" in own:  # as a folder it would be the current one
        before = own[own.index("") - 1] if own.index("") else "cohort"
        raise CohortError(f"what follows {before}", "a value", "an empty argument", "is a variable of the shell unset?")
    limit = os.environ.get("COHORT_HOST_MEMORY_BYTES")  # the native libraries read text as 0
    if limit is not None and not (limit.isascii() and limit.isdecimal() and int(limit) < 2**63):
        hint = "unset it, or set a number of bytes: 200000000000"
        raise CohortError("COHORT_HOST_MEMORY_BYTES", "a number of bytes in [0, 2^63)", repr(limit), hint)
    try:
        os.getcwd()
    except FileNotFoundError as error:  # with which libraries of PyTorch end the process
        raise CohortError("the current folder", "one that exists", "that it was removed", "cd to another") from error
    args.command_line = shlex.join(["cohort", *words])
    with _ended_by_exceptions():
        code = args.func(args)
        sys.stdout.flush()
        return code


def _program_of(words: list[str]) -> str | None:
    """The program that a command seems to start, if it is one alone; before options are parsed, which takes longer."""
    several = [gpus for flag, gpus in zip(words, words[1:], strict=False) if flag == "--gpus" and "," in gpus]
    if words[:1] == ["train"]:
        return trainer_alone("--ranks" not in words and not several)
    return "cohort_gnn.trainer.predict" if words[:1] == ["predict"] else None


def build_parser(only: str | None = None) -> argparse.ArgumentParser:
    """The parser of all commands. With the first argument of a command line, the other commands have their names alone:
    their modules take long to import."""
    from cohort_gnn.launch.options.parser import CommandParser  # when a run's trainer has begun

    parser = CommandParser(prog="cohort", description="Cohort: GNN training on graphs larger than GPU memory.")
    parser.add_argument("--version", action="version", version=f"cohort {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, (text, modules) in COMMANDS.items():
        into = commands.add_parser(name, help=text)
        for module in modules if only in (None, name) else []:
            into = importlib.import_module(f"cohort_gnn.{module}").register(into) or into
    _use_plain_quotes(parser)
    return parser


def _use_plain_quotes(parser: argparse.ArgumentParser) -> None:
    """Descriptions are docstrings, whose ``code`` reads `code` on a terminal."""
    if parser.description:
        parser.description = parser.description.replace("``", "`")
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                _use_plain_quotes(child)
