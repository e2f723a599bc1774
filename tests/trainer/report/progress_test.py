"""The table after a run: whole in a file, without what matters less in a narrow terminal."""

import copy

import pytest
from rich.console import Console

from cohort.trainer.report import progress
from cohort.trainer.report.metrics import EpochReport, RunReport

TIMES = {"wait_seconds": 0.125, "train_seconds": 0.25, "all_reduce_seconds": 0.0625, "seconds": 0.4375}
NEVER_LEFT_OUT = ("epoch", "seconds", "wait s", "train s")


def report_of(num_ranks: int) -> RunReport:
    times = TIMES | {"sample_seconds": 0.5, "fetch_seconds": 1.5}
    epoch = EpochReport(0, num_batches=3, host_bytes=123_456_789, loss=1.234, val_metrics={"accuracy": 0.5}, **times)
    epoch.merge([copy.copy(epoch) for _ in range(num_ranks)])
    epoch.host_bytes = 123_456_789
    return RunReport(device="cpu", num_ranks=num_ranks, epochs=[epoch], test_metrics={"accuracy": 0.25})


def shown(report: RunReport, capsys, monkeypatch, width: int | None) -> list[str]:
    """Lines; in a terminal of a width, or where there is none."""
    if width is not None:
        monkeypatch.setattr(progress, "_console", lambda: Console(width=width))
    progress.print_table(report, quiet=False)
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("num_ranks", [1, 3])
@pytest.mark.parametrize("width", [None, 120, 80, 60, 40])
def test_no_number_is_cut(capsys, monkeypatch, num_ranks, width):
    lines = shown(report_of(num_ranks), capsys, monkeypatch, width)
    assert not any("…" in line for line in lines)
    header = next(line for line in lines if "wait s" in line)
    assert all(name in header for name in NEVER_LEFT_OUT)
    assert len([line for line in lines if "0.438" in line and "0.125" in line and "0.250" in line]) == num_ranks
    assert width is None or len(header) <= width
    whole = " ".join(" ".join(lines).split())
    if width is None or width >= 120:
        assert any("123.46 MB" in line for line in lines)
        assert ("all-reduce s" in header) == (num_ranks > 1) and "narrow terminal" not in whole
    else:
        assert ("left out on this narrow terminal: " in whole) == ("host bytes" not in header)


def test_what_matters_least_goes_first():
    rows = [["epoch", "wait s", "all-reduce s", "sample s", "fetch s", "host bytes", "loss"]]
    widths = [7, 8, 14, 10, 9, 12, 6]
    assert progress.fitting(rows, sum(widths)) == list(range(7))
    assert progress.fitting(rows, sum(widths) - 1) == [0, 1, 2, 3, 4, 6]
    assert progress.fitting(rows, sum(widths) - 13) == [0, 1, 2, 4, 6]
    assert progress.fitting(rows, 1) == [0, 1]


@pytest.mark.parametrize(
    ("validation", "words"),
    [
        ({"accuracy": 0.5}, "test accuracy 25.00 %, at the best validation 50.00 %"),
        ({}, "test accuracy 25.00 %, after the last epoch (no validation nodes)"),
    ],
)
def test_the_last_line_says_which_weights_were_tested(capsys, monkeypatch, validation, words):
    report = report_of(1)
    report.val_metrics = validation
    assert shown(report, capsys, monkeypatch, None)[-1] == words
