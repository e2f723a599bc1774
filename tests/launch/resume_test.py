"""A run that was stopped or killed and is taken up again ends as if nothing had happened.

COHORT_KILLS=100 python -m pytest tests/launch/resume_test.py -k killed kills 100 times instead of 20.
"""

import os
import random
import signal
import time
from pathlib import Path

import pytest
import torch
from processes import SECONDS_TO_START, cohort, processes_of, wait_until
from resumable import OPTIONS, Launch, results_of, small_graph

KILLS = int(os.environ.get("COHORT_KILLS", "20"))
KILLS_A_RUN = 5
EPOCHS = 30
ENDLESS = ["--epochs", "1000000"]
TWO = ["--ranks", "2"]

pytestmark = pytest.mark.usefixtures("shm")


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    return small_graph(tmp_path_factory.mktemp("resume") / "data")


@pytest.fixture(scope="module")
def undisturbed(data, tmp_path_factory, shm):
    """undisturbed(*more options): folder of a run to its end, made once."""
    known = {}

    def run(*more: str) -> Path:
        if more not in known:
            out = known[more] = tmp_path_factory.mktemp("undisturbed") / "run"
            result = cohort("train", data, *OPTIONS, "--epochs", EPOCHS, *more, "--quiet", "--out", out)
            assert result.returncode == 0, result.stderr
        return known[more]

    return run


@pytest.fixture
def launch(data, tmp_path):
    """launch(*arguments): a Launch in tmp_path/run that does not outlive the test."""
    started = []

    def begin(*arguments) -> Launch:
        started.append(Launch(tmp_path / "run", *arguments))
        return started[-1]

    def train(*more) -> Launch:
        return begin(data, *OPTIONS, "--out", tmp_path / "run", *more)

    begin.train = train
    yield begin
    for one in started:
        for pid in [*processes_of(one.out)]:
            os.kill(pid, signal.SIGKILL)
        one.launcher.wait()


def position(out: Path) -> tuple[int, int]:
    """(epoch, step) of the checkpoint."""
    state = torch.load(out / "checkpoint.pt", weights_only=True)
    return state["epoch"], state["step"]


def await_checkpoint(run: Launch, seconds: float = SECONDS_TO_START) -> None:
    """Waits for a checkpoint of this run, or its end."""
    path = run.out / "checkpoint.pt"
    before = path.stat().st_mtime_ns if path.exists() else None
    written = lambda: path.exists() and path.stat().st_mtime_ns != before  # noqa: E731
    wait_until(lambda: written() or run.launcher.poll() is not None, seconds, "a checkpoint")


# --- what is told to stop --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("more", [[], TWO], ids=["one", "two"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_a_run_that_is_told_to_stop_goes_on_in_the_middle_of_an_epoch(launch, undisturbed, number, more, tmp_path):
    run, out = launch.train("--epochs", EPOCHS, *more), tmp_path / "run"
    random.seed(number)
    stops = []
    for _ in range(3):
        await_checkpoint(run)
        time.sleep(random.random() * 0.3)
        said = run.stop(number)
        assert f"cohort train --resume {out}" in said and "Traceback" not in said
        assert processes_of(out) == {} and not list(out.glob("*.tmp"))
        stops.append(position(out))
        run = launch("--resume", out)
    assert run.wait() == 0, run.errors.read_text()
    assert results_of(out) == results_of(undisturbed(*more))
    assert any(step for _, step in stops), f"in the middle of an epoch: {stops}"
