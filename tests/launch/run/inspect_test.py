"""`cohort inspect`: the live channel of a run, once or again and again."""

import json
import os
import re
import signal
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest
from processes import SECONDS_TO_END, SECONDS_TO_START, cohort, here, ran, refused, wait_until

from cohort_gnn.base.errors import CohortError
from cohort_gnn.launch.run import inspect

pytestmark = pytest.mark.usefixtures("shm")

SMALL = ["--device", "cpu", "--fanout", "5,3", "--batch-size", "256", "--hidden", "16"]


@pytest.fixture
def live(cora, tmp_path, request):
    """The folder of a run that goes on until the test is over; a parameter says how many ranks it has."""
    out = tmp_path / "run"
    command = [
        sys.executable,
        "-m",
        "cohort_gnn",
        "train",
        cora,
        *SMALL,
        "--epochs",
        1_000_000,
        "--quiet",
        "--out",
        out,
    ]
    command += ["--ranks", getattr(request, "param", 1)]
    launcher = subprocess.Popen([str(part) for part in command], stderr=subprocess.DEVNULL)
    wait_until((out / "metrics.jsonl").exists, SECONDS_TO_START, "the first epoch")
    yield out, launcher
    if launcher.poll() is None:
        launcher.terminate()
    launcher.wait(timeout=SECONDS_TO_END)


def test_inspect_during_a_run_and_after(live):
    out, launcher = live
    shown = ran("inspect", out)
    assert re.search(r"sampler: process \d+, alive, \w+", shown.stdout)
    assert re.search(r"trainer: process \d+, alive, \w+", shown.stdout) and "slots on cpu" in shown.stdout
    channel = json.loads(cohort("inspect", out, "--json").stdout)
    assert len(channel["slots"]) == 4 and channel["sampler"]["alive"]
    # between two passes it is 0 again
    wait_until(
        lambda: json.loads(cohort("inspect", out, "--json").stdout)["trainer"]["batch"] > 0, SECONDS_TO_START, "a batch"
    )
    assert {slot["state"] for slot in channel["slots"]} <= {"free", "filling", "ready", "held by the trainer"}
    launcher.terminate()
    launcher.wait(timeout=SECONDS_TO_END)
    refused(cohort("inspect", out), 1, str(out), "the run has ended")


@pytest.mark.parametrize("ended_by", ["the run", "Ctrl-C"])
def test_a_live_run_is_watched_until_it_ends_or_the_watcher_does(live, ended_by):
    out, launcher = live
    form = ["--json"] if ended_by == "Ctrl-C" else []  # else tables
    command = [sys.executable, "-m", "cohort_gnn", "inspect", out, "--watch", "0.2", *form]
    watcher = subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE, text=True)
    try:
        if form:
            looks = [json.loads(watcher.stdout.readline()) for _ in range(3)]
            assert all(len(look["slots"]) == 4 and look["trainer"]["alive"] for look in looks)
            watcher.send_signal(signal.SIGINT)
        else:
            for _ in range(2):
                wait_until(lambda: "slots on cpu" in watcher.stdout.readline(), SECONDS_TO_START, "a table")
            launcher.terminate()
        watcher.communicate(timeout=SECONDS_TO_END)
        assert watcher.returncode == 0
    finally:
        watcher.kill()
        watcher.wait()


@pytest.mark.parametrize("live", [2], indirect=True)
def test_inspect_shows_every_rank(live):
    shown = ran("inspect", live[0])
    for rank in range(2):
        assert re.search(rf"rank {rank}, trainer: process \d+, alive, \w+", shown.stdout)
        assert f"rank {rank}, slots on cpu" in shown.stdout
    channels = json.loads(cohort("inspect", live[0], "--json").stdout)
    assert len({channel["sampler"]["pid"] for channel in channels}) == 1
    assert len({channel["trainer"]["pid"] for channel in channels}) == 2


def test_a_channel_of_another_version_is_refused(live, tmp_path):
    """Both by `inspect` and by the trainer, naming both versions."""
    folder = tmp_path / "other"
    folder.mkdir()
    run = json.loads((live[0] / "run.json").read_text())
    channel = bytearray((Path(run["sampler"]["channel"]) / "channel").read_bytes())
    channel[8] += 1  # the version
    words = f"expected version {channel[8] - 1:#x}, found {channel[8]:#x}"
    (folder / "channel").write_bytes(channel)
    refused(cohort("inspect", folder), 1, words, "the same build")
    run["sampler"] |= {"channel": str(folder), "owner_pid": os.getpid()}
    (tmp_path / "run.json").write_text(json.dumps(run))
    command = [sys.executable, "-m", "cohort_gnn.trainer", str(tmp_path / "run.json")]
    trainer = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_TO_START)
    refused(trainer, 1, "cohort: ", words)


def test_inspect_refuses_a_bad_run_json(tmp_path):
    (tmp_path / "run.json").write_text("{")
    refused(here("inspect", tmp_path), 1, "run.json", "the run.json of cohort train")


def test_the_channel_of_another_user_is_refused(tmp_path, monkeypatch):
    def denied(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(inspect, "_is_live", denied)
    with pytest.raises(CohortError, match="expected a channel of your own, found Permission denied"):
        inspect.inspect(Namespace(run=tmp_path))
