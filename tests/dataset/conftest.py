"""The `dataset` sub-commands."""

from __future__ import annotations

import pytest

from cohort_gnn.launch.main import main


@pytest.fixture
def run():
    """run(*argv): the exit code of `cohort dataset <argv>`."""

    def call(*argv) -> int:
        return main(["dataset", *map(str, argv)])

    return call
