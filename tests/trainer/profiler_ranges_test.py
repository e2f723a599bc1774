"""Ranges that a profiler sees of the trainer: a wait and a step in turn, none left open."""

from types import SimpleNamespace

import pytest
import torch

from cohort.trainer.report.profiler_ranges import ProfilerRanges
from cohort.trainer.report.recorder import Recorder

ONE_RANK = SimpleNamespace(rank=0, size=1, gather=lambda value: [value])


@pytest.fixture
def seen(monkeypatch) -> list[str]:
    """Names of ranges as they begin, "end" as they end."""
    told = []
    monkeypatch.setattr(torch.cuda.nvtx, "range_push", told.append)
    monkeypatch.setattr(torch.cuda.nvtx, "range_pop", lambda: told.append("end"))
    return told


def record_pass(recorder: Recorder, task: str) -> None:
    """A pass of two steps, whose times nobody asks for."""
    recorder.pass_begins(task)
    for _ in range(2):
        recorder.step_begins(0.0)
        recorder.step_ended(0.0, None)


def test_waits_and_steps_of_each_epoch_in_turn(seen, tmp_path):
    recorder = Recorder(torch.device("cpu"), num_epochs=5, profile=True)
    recorder._ranges = ProfilerRanges(wanted=True)  # as on a GPU
    for epoch in (2, 3):  # of which nothing else is recorded
        recorder.epoch_begins(epoch)
        for task in ("train", "validate"):
            record_pass(recorder, task)
        recorder.epoch_ended(ONE_RANK, tmp_path)
    one_pass = ["wait", "end", "{}", "end", "wait", "end", "{}", "end", "wait", "end"]
    assert seen == 2 * [name.format(task) for task in ("train", "validate") for name in one_pass]
    seen.clear()
    record_pass(recorder, "validate")
    assert seen == [], "outside of epochs, as in the test at the end"


def test_none_without_a_gpu_or_profile(seen, tmp_path):
    for profile in (True, False):
        recorder = Recorder(torch.device("cpu"), num_epochs=5, profile=profile)
        recorder.epoch_begins(2)
        record_pass(recorder, "train")
        recorder.epoch_ended(ONE_RANK, tmp_path)
    assert seen == []
