"""RUN/summary.json and what a cache was measured to do: each epoch is looked at once, however many there are."""

import json
from dataclasses import asdict
from math import isnan

import pytest
import torch

from cohort_gnn.spec.results import EpochReport, RunReport
from cohort_gnn.trainer.loop.epoch import RunningEpoch
from cohort_gnn.trainer.loop.results import EpochLines
from cohort_gnn.trainer.report.cache_report import ReadsByRank


def epoch_of(number: int, rows: int = 1000) -> EpochReport:
    report = EpochReport(number, seconds=0.1 + number, loss=1 / 3, val_metrics={"accuracy": 0.5}, num_batches=10)
    report.row_tiers["local"] |= {"rows": 3 * rows, "bytes": 12 * rows, "seconds": 1e-6}
    report.row_tiers["host"] |= {"rows": rows, "bytes": 4 * rows, "seconds": 2e-6}
    return report


@pytest.mark.parametrize("num_epochs", [0, 1, 3])
def test_the_summary_is_the_report(tmp_path, num_epochs):
    report = RunReport(val_accuracy=0.25, device="cpu", start={"seconds": 1.5, "parts": [{"part": 'a "b"'}]})
    report.epochs = [epoch_of(number) for number in range(num_epochs)]
    report.write(tmp_path / "summary.json", synced=True)
    text = (tmp_path / "summary.json").read_text()
    assert json.loads(text) == asdict(report) and list(json.loads(text)) == list(asdict(report))
    EpochLines(tmp_path / "metrics.jsonl").replace(report.epochs)
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == json.loads(text)["epochs"]


def test_a_number_that_is_none_is_null():
    nan, inf = float("nan"), float("inf")
    epoch = EpochReport(0, loss=nan, seconds=-inf, val_metrics={"rmse": inf})
    assert json.loads(epoch.line()) == asdict(epoch) | {"loss": None, "seconds": None, "val_metrics": {"rmse": None}}
    assert isnan(EpochReport.from_line(epoch.line()).loss)


def test_a_later_part_of_a_run_takes_up_the_epochs():
    report = RunReport(val_accuracy=0.25, best_epoch=1, epochs=[epoch_of(0), epoch_of(1)])
    later = RunReport()
    later.take_up(report.members())
    assert later == report and later.members() == report.members()


def test_the_first_epoch_counts_until_there_is_another():
    reads = ReadsByRank()
    assert reads.shares() == []
    reads.add(epoch_of(0, rows=7))
    (first,) = reads.shares()
    assert first["hit_rate"] == {"local": 0.75, "peer": 0, "host": 0.25, "recent": 0, "disk": 0, "remote": 0}
    assert first["bytes"]["host"] == 28 / 10
    for number in (1, 2):
        reads.add(epoch_of(number))
    (others,) = reads.shares()
    assert others["bytes"]["host"] == 400 and others["gb_per_s"]["host"] == pytest.approx(8000 / 4e-6 / 1e9)


def test_ranks_are_counted_by_themselves():
    epoch, parts = EpochReport(1), [epoch_of(1, rows=100), epoch_of(1, rows=300)]
    epoch.merge(parts)
    reads = ReadsByRank()
    reads.add(epoch)
    assert [rank["bytes"]["host"] for rank in reads.shares()] == [40, 120]


def test_what_passes_between_two_epochs_is_told_once():
    first = RunningEpoch(0, torch.device("cpu"))
    first.go_on()
    first.pause()
    second = first.next()
    assert (first.report.between_seconds, second.epoch, second.report.between_seconds) == (0, 1, 0)
    second.pause()  # a checkpoint between the two
    second.go_on()
    found = second.report.between_seconds
    assert found > 0
    second.pause()
    second.go_on()
    assert second.report.between_seconds == found, "a checkpoint in the epoch does not count"
