"""Runs that TensorBoard and Prometheus watch."""

import importlib.util
import json

import pytest
from processes import cohort

pytestmark = pytest.mark.usefixtures("shm")
TRAIN = ["--device", "cpu", "--fanout", "4,3", "--batch-size", 100, "--hidden", 8, "--epochs", 2, "--quiet"]


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_run_tells_of_itself(cora, tmp_path, ranks):
    file, out = tmp_path / "cohort.prom", tmp_path / "run"
    result = cohort("train", cora, *TRAIN, "--ranks", ranks, "--prometheus", file, "--out", out)
    assert result.returncode == 0, result.stderr
    summary = json.loads((out / "summary.json").read_text())
    last, samples = summary["epochs"][-1], {}
    for line in file.read_text().splitlines():
        if not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            samples[name] = float(value)
    assert samples['cohort_loss{run="run",of="train"}'] == pytest.approx(last["loss"])
    assert samples['cohort_accuracy{run="run",of="test"}'] == pytest.approx(summary["test_accuracy"])
    assert samples['cohort_epochs_total{run="run"}'] == 2 and samples['cohort_running{run="run"}'] == 0
    assert samples['cohort_bytes{run="run",of="host"}'] == last["row_tiers"]["host"]["bytes"]
    assert [path.name for path in tmp_path.glob("*.tmp")] == []
    assert not (out / "tensorboard").exists()


@pytest.mark.skipif(importlib.util.find_spec("tensorboard") is None, reason="needs the package tensorboard")
def test_events_of_a_run(cora, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    result = cohort("train", cora, *TRAIN, "--tensorboard", "--out", tmp_path / "run")
    assert result.returncode == 0, result.stderr
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert [event.value for event in events.Scalars("loss/train")] == pytest.approx(
        [epoch["loss"] for epoch in summary["epochs"]]
    )


def test_a_file_that_cannot_be_written_is_refused_before_anything_starts(cora, tmp_path):
    for wrong in (tmp_path, tmp_path / "none" / "x.prom"):
        result = cohort("train", cora, *TRAIN, "--prometheus", wrong, "--out", tmp_path / "run")
        assert result.returncode == 1 and "--prometheus: expected a file such as" in result.stderr
        assert not (tmp_path / "run").exists()
