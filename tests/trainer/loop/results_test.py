"""What a run writes as its epochs end: whole lines, no more for the thousandth epoch than for the first; whose weights
it keeps."""

import json
import resource
from math import nan
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from cohort_gnn.base.files import FileWriter
from cohort_gnn.spec import results as reports
from cohort_gnn.spec.metrics import OF_TASK
from cohort_gnn.spec.results import EpochReport, RunReport
from cohort_gnn.trainer.loop import results
from cohort_gnn.trainer.loop.epoch import RunningEpoch
from cohort_gnn.trainer.loop.results import SUMMARY_GROWTH, EpochLines, Results, is_best


def lines_of(path: Path) -> list[int]:
    return [json.loads(line)["epoch"] for line in path.read_text().splitlines()]


def summarized(out: Path) -> int:
    return len(json.loads((out / "summary.json").read_text())["epochs"])


@pytest.fixture
def trainer(tmp_path):
    """Of a run that is only to be measured: no weights are written."""
    with FileWriter() as writer:
        yield SimpleNamespace(
            out=tmp_path,
            report=RunReport(),
            ranks=SimpleNamespace(rank=0),
            options=SimpleNamespace(epochs=10**6, max_batches=1),
            targets=SimpleNamespace(metric="accuracy"),
            monitor="accuracy",
            source=SimpleNamespace(first_batch_at=None),
            model=torch.nn.Linear(1, 1),
            writer=writer,
            stops_early=False,
        )


def test_what_an_epoch_costs_does_not_grow_with_the_run(trainer, tmp_path, monkeypatch):
    """Bytes of files that are written whole, against those that the run leaves."""
    written, write_whole = [], results.write_whole

    def counted(path, data, synced=True):
        written.append(len(data))
        write_whole(path, data, synced)

    for module in (results, reports):
        monkeypatch.setattr(module, "write_whole", counted)
    told = Results(0.0, 0.0)
    told.run_begins(trainer)
    for number in range(300):
        told.epoch_ended(trainer, EpochReport(number))
        assert summarized(tmp_path) >= (number + 1) * SUMMARY_GROWTH // (SUMMARY_GROWTH + 1)
    assert lines_of(tmp_path / "metrics.jsonl") == list(range(300))
    assert sum(written) < (SUMMARY_GROWTH + 4) * (tmp_path / "summary.json").stat().st_size


@pytest.mark.parametrize("end", ["the last epoch", "a stop", "a callback"])
def test_the_summary_is_whole_when_a_run_ends(trainer, tmp_path, end):
    told = Results(0.0, 0.0)
    told.run_begins(trainer)
    for number in range(40):
        if number == 39 and end == "the last epoch":
            trainer.options.epochs = 40
        trainer.stops_early = number == 39 and end == "a callback"
        told.epoch_ended(trainer, EpochReport(number))
    if end == "a stop":
        assert summarized(tmp_path) < 40
        told.run_stops(trainer)
    assert summarized(tmp_path) == 40


def test_a_line_without_its_end_goes_when_the_run_goes_on(trainer, tmp_path):
    """As a killed process leaves it; epochs after the checkpoint go, too."""
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(EpochReport(number).line() + "\n" for number in range(4)) + '{"epoch": 4, "sec')
    trainer.report.epochs = [EpochReport(0), EpochReport(1)]
    told = Results(0.0, 0.0)
    told.run_begins(trainer)
    assert lines_of(path) == [0, 1]
    told.epoch_ended(trainer, EpochReport(2))
    assert lines_of(path) == [0, 1, 2]


def test_lines_that_a_full_disk_refuses_come_with_the_next(tmp_path):
    path, epochs = tmp_path / "metrics.jsonl", [EpochReport(number) for number in range(4)]
    lines = EpochLines(path)
    lines.add(epochs[:1])
    lines.add(epochs[:2])
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 100, before[1]))
        with pytest.raises(OSError, match="File too large"):
            lines.add(epochs[:3])
        assert lines_of(path) == [0, 1] and [each.name for each in tmp_path.iterdir()] == ["metrics.jsonl"]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    lines.add(epochs)
    assert lines_of(path) == [0, 1, 2, 3]


@pytest.mark.parametrize("change", [Path.unlink, lambda path: path.write_text("{}\n")])
def test_a_file_that_somebody_has_changed_is_written_again(tmp_path, change):
    path, epochs = tmp_path / "metrics.jsonl", [EpochReport(number) for number in range(3)]
    lines = EpochLines(path)
    lines.add(epochs[:2])
    change(path)
    lines.add(epochs)
    assert lines_of(path) == [0, 1, 2]


@pytest.mark.parametrize(
    ("task", "validations", "best"),
    [
        ("regression", [nan, 3.0, 2.0, nan, 2.0], 2),
        ("regression", [3.0, nan, 4.0], 0),
        ("regression", [nan, nan, nan], 0),
        ("classification", [0.5, 0.7, 0.6, 0.7], 1),
        ("multilabel", [nan, 0.0], 1),
    ],
)
def test_an_epoch_that_is_no_number_is_the_worst(task, validations, best):
    run, metric = RunReport(task=task), OF_TASK[task][0]
    for epoch, value in enumerate(validations):
        is_best(EpochReport(epoch, val_metrics={metric: value}), run, metric)
    assert run.best_epoch == best


def test_the_last_epoch_is_kept_without_validation():
    run = RunReport(task="regression")
    assert [is_best(EpochReport(epoch), run, "rmse") for epoch in range(3)] == [True] * 3
    assert run.best_epoch == 2


def test_an_epoch_without_a_pause_keeps_its_clock():
    running = RunningEpoch(0, torch.device("cpu"))
    clock = running.go_on()
    assert running.go_on() is clock  # as after a step that is due for a checkpoint where none is written
    running.pause()
    assert running.go_on() is not clock
