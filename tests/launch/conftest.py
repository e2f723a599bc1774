"""Runs that tests stop, kill and take up again."""

import os
import signal
from pathlib import Path

import pytest
from processes import processes_of, ran
from resumable import EPOCHS, OPTIONS, Launch, results_of, small_graph


@pytest.fixture(scope="module")
def graph(tmp_path_factory) -> Path:
    return small_graph(tmp_path_factory.mktemp("resume") / "data")


@pytest.fixture(scope="module")
def undisturbed(graph, tmp_path_factory, shm):
    """undisturbed(*more options): results of a run to its end, made once."""
    known = {}

    def run(*more: str) -> dict:
        if more not in known:
            out = tmp_path_factory.mktemp("undisturbed") / "run"
            options = ["--epochs", EPOCHS, *more, "--quiet", "--out", out]
            ran("train", graph, *OPTIONS, *options)
            known[more] = results_of(out)
        return known[more]

    return run


@pytest.fixture
def launch(graph, tmp_path):
    """launch(*arguments): a Launch in tmp_path/run that does not outlive the test; launch.train(*more): a first one."""
    started = []

    def begin(*arguments) -> Launch:
        started.append(Launch(tmp_path / "run", *arguments))
        return started[-1]

    def train(*more) -> Launch:
        options = ["--epochs", EPOCHS, "--checkpoint-every", 16]  # an epoch has 16 steps, or 32 of one rank
        return begin(graph, *OPTIONS, *options, "--out", tmp_path / "run", *more)

    begin.train = train
    yield begin
    for one in started:
        for pid in processes_of(one.out):
            os.kill(pid, signal.SIGKILL)
        one.wait()
