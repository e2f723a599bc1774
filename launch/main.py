"""The command ``cohort``."""

import argparse
import sys

import cohort
from cohort.base.errors import CohortError
from cohort.launch.config import parse_configured


def main(argv: list[str] | None = None) -> int:
    """Parses and runs one command; returns the exit code (0 well, 1 failed, 2 bad arguments, 128 + n: signal n)."""
    parser = build_parser()
    try:
        args = parse_configured(parser, argv)
        return args.func(args)
    except CohortError as error:
        print(f"cohort: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


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
    return parser
