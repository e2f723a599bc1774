"""The `dataset` sub-commands behind a parser of their own."""

from __future__ import annotations

import argparse

import pytest

from cohort_gnn.dataset import cli


@pytest.fixture
def run():
    """run(*argv): the exit code of `cohort dataset <argv>`."""

    def call(*argv) -> int:
        parser = argparse.ArgumentParser(prog="cohort")
        cli.register(parser.add_subparsers(required=True))
        args = parser.parse_args(["dataset", *map(str, argv)])
        return args.func(args)

    return call
