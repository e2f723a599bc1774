"""What a run shows: the bar ends with the numbers of the last epoch, and the last line is the result of the test."""

import json
import re

import pytest
from processes import ran

from cohort_gnn.spec.results import RunReport
from cohort_gnn.trainer.report.progress import test_result as described  # no test


@pytest.mark.parametrize(
    ("validation", "words"),
    [
        ({"accuracy": 0.5}, "test accuracy 25.00 %, at the best validation 50.00 %"),
        ({}, "test accuracy 25.00 %, after the last epoch (no validation)"),
    ],
)
def test_the_last_line_says_which_weights_were_tested(validation, words):
    assert described(RunReport(test_metrics={"accuracy": 0.25}, val_metrics=validation)) == words


def test_the_bar_ends_with_the_numbers_of_the_last_epoch(cora, shm, tmp_path):
    options = ["--epochs", 3, "--fanout", "3,3", "--hidden", 16, "--batch-size", 100, "--device", "cpu"]
    result = ran("train", cora, *options, "--out", tmp_path / "run")
    line = re.search(r"epoch 3/3: loss (\S+),.* (\S+) seeds/s", result.stdout)
    bar = re.search(r"epoch 3/3 .*100%\s+loss\s+(\S+)\s+(\S+)\s+seeds/s\s+wait\s+(\S+)\s+%", result.stdout)
    assert line and bar and bar.group(1, 2) == line.groups(), result.stdout
    epoch = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    assert bar.group(3) == f"{100 * epoch['wait_seconds'] / epoch['seconds']:.0f}"
