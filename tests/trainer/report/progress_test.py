"""The last line of a run says how good the model was in the test, and which weights were tested."""

import pytest

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
