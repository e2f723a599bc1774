"""The command ``cohort``."""

import argparse
import os
import select
import sys
import warnings

import cohort
from cohort.base.errors import CohortError
from cohort.launch.config import parse_configured


def main(argv: list[str] | None = None) -> int:
    """Parses and runs one command; returns the exit code (0 well, 1 failed, 2 bad arguments, 128 + n: signal n)."""
    warnings.filterwarnings("ignore", "`torch.jit.script` is deprecated", FutureWarning)  # PyG's, as it is imported
    parser = build_parser()
    try:
        args = parse_configured(parser, argv)
        code = args.func(args)
        sys.stdout.flush()
        return code
    except CohortError as error:
        print(f"cohort: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        if not _nobody_reads(sys.stdout.fileno()):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what Python itself writes at its end
        return 1


def _nobody_reads(file: int) -> bool:
    """Whether it is a pipe whose reader has left (cohort report RUN | head)."""
    poll = select.poll()
    poll.register(file, 0)
    return any(events & select.POLLERR for _, events in poll.poll(0))


def build_parser() -> argparse.ArgumentParser:
    """The parser of all commands; each room registers its own."""
    from cohort.dataset import cli as dataset_cli
    from cohort.ibp import cli as ibp_cli
    from cohort.launch import bench, digest, doctor, inspect, plan, predict, prepare, report, run_script, train, tune

    parser = argparse.ArgumentParser(prog="cohort", description=cohort.__doc__.splitlines()[0])
    parser.add_argument("--version", action="version", version=f"cohort {cohort.__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for room in (train, predict, bench, run_script, plan, tune, report, digest, inspect, doctor, ibp_cli):
        room.register(commands)
    prepare.register(dataset_cli.register(commands))
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
