"""Which epoch's weights a run keeps, and how long an epoch says that it took."""

from math import nan

import pytest
import torch

from cohort_gnn.spec.results import EpochReport, RunReport
from cohort_gnn.trainer.loop.epoch import RunningEpoch
from cohort_gnn.trainer.loop.results import is_best
from cohort_gnn.trainer.models.targets import targets_of


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
    targets = targets_of(task)
    run = RunReport(task=task)
    for epoch, value in enumerate(validations):
        is_best(EpochReport(epoch, val_metrics={targets.metric: value}), run, targets)
    assert run.best_epoch == best


def test_the_last_epoch_is_kept_without_validation():
    run, targets = RunReport(task="regression"), targets_of("regression")
    assert [is_best(EpochReport(epoch), run, targets) for epoch in range(3)] == [True] * 3
    assert run.best_epoch == 2


def test_an_epoch_without_a_pause_keeps_its_clock():
    running = RunningEpoch(0, torch.device("cpu"))
    clock = running.go_on()
    assert running.go_on() is clock  # as after a step that is due for a checkpoint where none is written
    running.pause()
    assert running.go_on() is not clock
