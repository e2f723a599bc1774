"""`cohort train --loss package.module:function`: a loss of the user's own."""

import json

import numpy as np
import pytest
import torch
from processes import ALL_TESTS, ran, refused
from processes import cohort as run_cohort
from torch.nn import functional as F

import cohort_gnn as cohort
from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset import split_links
from cohort_gnn.trainer.models.own_loss import OwnLoss
from cohort_gnn.trainer.models.targets import targets_of

OWN = """
import torch
from torch.nn import functional as F


def entropy(scores, y):
    return F.cross_entropy(scores, y, reduction="none")


def squares(scores, y):
    return (scores[:, 0] - y) ** 2


def labels(scores, y):
    return F.binary_cross_entropy_with_logits(scores, y.float(), reduction="none").mean(1)


def mean(scores, y):
    return F.cross_entropy(scores, y)


number = 3
"""
TINY = "--device cpu --fanout=-1,-1 --batch-size 40 --hidden 8 --dropout 0 --epochs 2 --quiet".split()

pytestmark = pytest.mark.usefixtures("shm")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """own.py, and data sets by task."""
    folder, random = tmp_path_factory.mktemp("own"), torch.Generator().manual_seed(3)
    (folder / "own.py").write_text(OWN)
    x, edge_index = torch.randn(300, 5, generator=random), torch.randint(300, (2, 1500), generator=random)
    tasks = {"classification": x[:, :3].argmax(1), "regression": x[:, 0], "multilabel": (x[:, :3] > 0).long()}
    for task, y in tasks.items():
        cohort.from_tensors(folder / task, x=x, y=y, edge_index=edge_index, task=task, split=(0.6, 0.2, 0.2))
    split_links(cohort.from_tensors(folder / "whole", x=x, edge_index=edge_index), folder / "link", shares=(0.1, 0.1))
    return folder


def losses_of(run) -> list[float]:
    return [epoch["loss"] for epoch in json.loads((run / "summary.json").read_text())["epochs"]]


@pytest.mark.parametrize(
    ("kind", "name", "same"),
    [
        ("classification", "entropy", "bce"),
        ("regression", "squares", "bce"),
        ("multilabel", "labels", "bce"),
        ("link", "entropy", "softmax"),
    ],
)
def test_a_loss_like_a_built_in_one_makes_the_same_steps(folder, tmp_path, kind, name, same):
    runs = [("built-in", same, 1), ("own", f"own:{name}", 1)]
    runs += [("ranks", f"own:{name}", 2)] * (ALL_TESTS or kind == "classification")
    for run, loss, ranks in runs:
        options = [*TINY, "--loss", loss, "--ranks", ranks, "--batch-size", 40 // ranks, "--out", tmp_path / run]
        ran("train", folder / kind, *options, cwd=folder)
    expected = losses_of(tmp_path / "built-in")
    assert losses_of(tmp_path / "own") == pytest.approx(expected, rel=1e-5)
    if kind != "link":  # with two ranks, negatives are others
        assert losses_of(tmp_path / runs[-1][0]) == pytest.approx(expected, rel=1e-4)
    assert json.loads((tmp_path / "own/summary.json").read_text())["loss_name"] == f"own:{name}"
    ran("predict", tmp_path / "own", folder / kind, "--device", "cpu", "--out", tmp_path / "pred.npy")  # without own.py
    assert np.isfinite(np.load(tmp_path / "pred.npy")).all()


def test_nodes_without_labels_are_left_out():
    scores = torch.randn(6, 3, generator=torch.Generator().manual_seed(1))
    y = torch.tensor([0, -1, 2, 1, -1, 0])
    own = OwnLoss(lambda scores, y: F.cross_entropy(scores, y, reduction="none"), targets_of("classification"), "own")
    assert own.count(y) == 4
    torch.testing.assert_close(own.loss_sum(scores, y), targets_of("classification").loss_sum(scores, y))
    several = torch.tensor([[255, 255, 255], [1, 255, 0]], dtype=torch.uint8)
    assert OwnLoss(lambda scores, y: scores[:, 0], targets_of("multilabel"), "own").count(several) == 1
    assert own.loss_sum(scores[:0], y[:0]) == 0 and own.loss_sum(scores[1:2], y[1:2]) == 0
    numbers = OwnLoss(lambda scores, y: scores[:, 0] - y, targets_of("regression"), "own")
    assert numbers.loss_sum(scores[:2], torch.tensor([torch.nan, 0.0])) == scores[1, 0]


@pytest.mark.parametrize("value", [torch.tensor(1.0), torch.zeros(2, 1), 3.0])
def test_a_function_returns_the_loss_of_each_node(value):
    own = OwnLoss(lambda scores, y: value, targets_of("classification"), "--loss own:f")
    with pytest.raises(CohortError, match=r"--loss own:f: expected a tensor \[2\], the loss of each node or link"):
        own.loss_sum(torch.zeros(2, 3), torch.tensor([0, 1]))


def test_a_loss_without_gradients_is_refused():
    scores, y = torch.zeros(2, 3, requires_grad=True), torch.tensor([0, 1])
    for function in (lambda scores, y: torch.ones(2), lambda scores, y: scores.detach()[:, 0]):
        with pytest.raises(CohortError, match="own:f: expected losses with gradients, found torch.float32 without"):
            OwnLoss(function, targets_of("classification"), "--loss own:f").loss_sum(scores, y)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--loss", "own:none"], "no none in"),
        (["--loss", "nowhere:loss"], "expected package.module:function, found No module named 'nowhere'"),
        (["--loss", "own:number"], "--loss own:number: expected a function, found int"),
        (["--loss", "own:mean"], 'reduction="none"'),
        (["--loss", "own:entropy", "--class-weights", "balanced"], "--class-weights: expected cross entropy or focal"),
        (["--loss", "own:entropy", "--focal-gamma", 1], "--focal-gamma: expected --loss focal"),
    ],
    ids=str,
)
def test_what_is_no_loss_is_refused(folder, tmp_path, options, words):
    result = run_cohort("train", folder / "classification", *TINY, *options, "--out", tmp_path / "run", cwd=folder)
    refused(result, 1, words)


def test_no_file_runs_a_loss(folder, tmp_path):
    ran("train", folder / "classification", *TINY, "--loss", "own:entropy", "--out", tmp_path / "run", cwd=folder)
    again = ["train", "--resume", tmp_path / "run", "--epochs", 3]
    refused(run_cohort(*again, cwd=folder), 1, "add --loss own:entropy")
    ran(*again, "--loss", "own:entropy", cwd=folder)
    assert len(losses_of(tmp_path / "run")) == 3
    refused(run_cohort("train", folder / "classification", "--loss", "focl"), 2, "did you mean focal?")


@pytest.mark.gpu
def test_a_gpu_has_the_same_losses(folder, tmp_path):
    for device in ("cpu", "cuda"):
        options = [*TINY, "--loss", "own:entropy", "--device", device, "--out", tmp_path / device]
        ran("train", folder / "classification", *options, cwd=folder)
    assert losses_of(tmp_path / "cuda") == pytest.approx(losses_of(tmp_path / "cpu"), rel=1e-2)
