"""Training on numbers and on several labels a node: losses and metrics by hand, whole runs, predictions."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from processes import ALL_TESTS, ran, refused
from processes import cohort as run_cohort
from torch.nn import functional as F

import cohort_gnn as cohort
from cohort_gnn import CohortError, NeighborLoader
from cohort_gnn.spec.metrics import title_of
from cohort_gnn.trainer.loop.step import Scores, TrainStep
from cohort_gnn.trainer.models.targets import mean_loss, targets_of

NUM_NODES, DIM, LABELS = 900, 8, 3
CPU = torch.device("cpu")


def graph_of_task(task: str, dtype=torch.uint8):
    """(x, y, edge_index) whose labels follow from the features of a node and its in-neighbours; some have none."""
    generator = torch.Generator().manual_seed(4)
    x = torch.randn(NUM_NODES, DIM, generator=generator)
    edge_index = torch.randint(NUM_NODES, (2, 5 * NUM_NODES), generator=generator)
    degree = torch.bincount(edge_index[1], minlength=NUM_NODES).clamp(min=1)[:, None]
    seen = x + torch.zeros_like(x).index_add_(0, edge_index[1], x[edge_index[0]]) / degree
    missing = torch.rand(NUM_NODES, generator=generator) < 0.1
    if task == "regression":
        return x, torch.where(missing, torch.nan, seen[:, 0] - 2 * seen[:, 1]), edge_index
    y = (seen[:, :LABELS] > 0).long()
    y[missing] = -1
    y[:50, 1] = -1
    return x, torch.where(y == -1, torch.nan, y.float()) if dtype == torch.float32 else y, edge_index


@pytest.fixture(scope="module", params=["regression", "multilabel", "multilabel, floats"])
def data(request, tmp_path_factory) -> Path:
    task, _, floats = request.param.partition(", ")
    x, y, edge_index = graph_of_task(task, torch.float32 if floats else torch.uint8)
    out = tmp_path_factory.mktemp("targets") / "data"
    return cohort.from_tensors(out, x=x, y=y, edge_index=edge_index, task=task, split=(0.6, 0.2, 0.2))


# By day, runs have the labels of several classes as integers alone.
OF_DATA = pytest.mark.parametrize(
    "data", ["regression", "multilabel", *["multilabel, floats"] * ALL_TESTS], indirect=True
)


def test_regression_leaves_nan_out():
    targets = targets_of("regression")
    scores = torch.tensor([[1.0], [2.0], [5.0]], requires_grad=True)
    y = torch.tensor([0.0, torch.nan, 7.0])
    assert targets.count(y) == 2
    loss = targets.loss_sum(scores, y)
    assert loss == 1 + 4
    loss.backward()
    assert scores.grad.tolist() == [[2.0], [0.0], [-4.0]]
    found = targets.metrics(targets.sums(scores.detach(), y))
    assert found == {"rmse": pytest.approx(2.5**0.5), "mae": pytest.approx(1.5)}
    assert targets.best(scores).tolist() == [1.0, 2.0, 5.0]
    assert targets.metrics(torch.zeros(3, dtype=torch.float64)) == {}, "nothing is labelled"


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_several_labels_leave_unknown_out(dtype):
    targets = targets_of("multilabel")
    torch.manual_seed(0)
    scores = torch.randn(40, 6, requires_grad=True)
    truth, known = torch.randint(2, (40, 6)), torch.rand(40, 6) < 0.8
    y = torch.where(known, truth, 255).to(torch.uint8)
    if dtype == torch.float32:
        y = torch.where(known, truth.float(), torch.nan)
    assert targets.count(y) == known.sum()
    expected = F.binary_cross_entropy_with_logits(scores[known], truth[known].float(), reduction="sum")
    torch.testing.assert_close(targets.loss_sum(scores, y), expected)
    (found,) = torch.autograd.grad(targets.loss_sum(scores, y), scores)
    assert (found[~known] == 0).all() and (found[known] != 0).all()
    told, there = scores[known] > 0, truth[known] == 1
    right, wrong, missed = (told & there).sum(), (told & ~there).sum(), (~told & there).sum()
    f1 = 2 * right / (2 * right + wrong + missed)
    halves = [targets.sums(scores.detach()[part], y[part]) for part in (slice(0, 17), slice(17, 40))]
    assert targets.metrics(halves[0] + halves[1]) == {"micro_f1": pytest.approx(f1.item())}
    assert targets.metrics(torch.zeros(4, dtype=torch.float64)) == {}, "nothing is labelled"
    none_there = targets.sums(-torch.ones(2, 3), torch.zeros(2, 3, dtype=torch.uint8))
    assert targets.metrics(none_there) == {"micro_f1": 0.0}


def test_there_are_no_other_tasks():
    with pytest.raises(CohortError, match="classification, regression, multilabel, link, found 'ranking'"):
        targets_of("ranking")


def test_batches_have_the_labels(data, shm):
    stored = torch.from_numpy(np.array(cohort.dataset.open(data).y))
    with NeighborLoader(data, [3, 3], batch_size=100, device="cpu") as loader:
        for batch in loader:
            assert batch.y.dtype == stored.dtype
            torch.testing.assert_close(batch.y, stored[batch.n_id], equal_nan=True, rtol=0, atol=0)


def test_a_step_is_that_of_torch(data, shm):
    """The mean over the labels that there are, as torch's losses give it."""
    graph = cohort.dataset.open(data)
    targets = targets_of(graph.task)
    torch.manual_seed(1)
    model = torch.nn.Linear(DIM, graph.num_classes)
    expected = torch.nn.Linear(DIM, graph.num_classes)
    expected.load_state_dict(model.state_dict())

    class OfSeeds(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = model

        def forward(self, x, *_):
            return self.linear(x)

    step = TrainStep(Scores(OfSeeds()), torch.optim.SGD(model.parameters(), lr=0.1), CPU, targets=targets)
    with NeighborLoader(data, [1], batch_size=200, device="cpu") as loader:
        source = loader._sampler.source
        for slot in source.slots(source.request(0, [1], 200), 1):
            y, x = slot.y[:200], slot.table(0)[:200]
            known = y == y if y.is_floating_point() else y != 255
            scores = expected(x)[:, 0] if y.dim() == 1 else expected(x)
            of_torch = F.mse_loss if y.dim() == 1 else F.binary_cross_entropy_with_logits
            loss = of_torch(scores[known], y[known].float())
            loss.backward()
            torch.optim.SGD(expected.parameters(), lr=0.1).step()
            step(slot)
            torch.testing.assert_close(step.loss_sum / step.num_labelled, loss.detach())
            del slot, x, y
    for one, other in zip(model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(one, other)


def train(data: Path, out: Path, *arguments, device: str = "cpu") -> dict:
    options = ["--device", device, "--fanout=-1", "--batch-size", 64, "--hidden", 32, "--lr", 0.01, "--out", out]
    result = ran("train", data, *options, "--dropout", 0, *arguments)
    return json.loads((out / "summary.json").read_text()) | {"said": result.stdout}


@OF_DATA
def test_a_run_learns_and_predicts(data, tmp_path, shm):
    graph = cohort.dataset.open(data)
    summary = train(data, tmp_path / "run", "--epochs", 12)
    epochs = summary["epochs"]
    assert epochs[-1]["loss"] < 0.6 * epochs[0]["loss"]
    assert summary["task"] == graph.task and summary["test_accuracy"] is None
    if graph.task == "regression":
        assert set(summary["test_metrics"]) == {"rmse", "mae"} and summary["test_metrics"]["rmse"] < 0.6 * np.nanstd(
            graph.y
        )
        best = min(range(12), key=lambda epoch: epochs[epoch]["val_metrics"]["rmse"])
        assert "test RMSE" in summary["said"] and "val rmse" in summary["said"]
    else:
        assert set(summary["test_metrics"]) == {"micro_f1"} and summary["test_metrics"]["micro_f1"] > 0.85
        best = max(range(12), key=lambda epoch: epochs[epoch]["val_metrics"]["micro_f1"])
        assert "test F1" in summary["said"] and "val micro_f1" in summary["said"]
    assert summary["best_epoch"] == best and summary["val_metrics"] == epochs[best]["val_metrics"]

    for option in ([], ["--classes"]):
        ran("predict", tmp_path / "run", data, "--out", tmp_path / "pred.npy", "--device", "cpu", *option)
        found = np.load(tmp_path / "pred.npy")
        if not option:
            scores = found
    assert scores.shape == (NUM_NODES, graph.num_classes) and scores.dtype == np.float32
    if graph.task == "regression":
        np.testing.assert_array_equal(found, scores[:, 0])
    else:
        np.testing.assert_array_equal(found, (scores > 0).astype(np.uint8))
    sums = targets_of(graph.task).sums(
        torch.from_numpy(scores)[graph.test_ids], torch.from_numpy(np.array(graph.y[graph.test_ids]))
    )
    assert targets_of(graph.task).metrics(sums) == pytest.approx(summary["test_metrics"], rel=1e-4)
    report = ran("report", tmp_path / "run")
    assert f"{targets_of(graph.task).metric} in the test" in report.stdout, report.stderr


@pytest.mark.gpu
@pytest.mark.parametrize("graphs", ["--cuda-graphs", "--no-cuda-graphs"])
def test_a_gpu_learns_the_same(data, tmp_path, shm, graphs):
    host = train(data, tmp_path / "host", "--epochs", 3)
    gpu = train(data, tmp_path / "gpu", "--epochs", 3, graphs, device="cuda")
    for one, other in zip(host["epochs"], gpu["epochs"], strict=True):
        assert other["loss"] == pytest.approx(one["loss"], rel=1e-2)
    assert gpu["test_metrics"] == pytest.approx(host["test_metrics"], rel=0.05)


@OF_DATA
def test_ranks_share_loss_and_metrics(data, tmp_path, shm):
    """With batches of half the size, two ranks make the steps of one."""
    one = train(data, tmp_path / "one", "--epochs", 2)
    two = train(data, tmp_path / "two", "--epochs", 2, "--ranks", 2, "--batch-size", 32)
    for first, second in zip(one["epochs"], two["epochs"], strict=True):
        assert second["num_seeds"] == first["num_seeds"]
        assert second["loss"] == pytest.approx(first["loss"], rel=1e-4)
    assert two["test_metrics"] == pytest.approx(one["test_metrics"], rel=1e-3)


# --- labels that are not there ---------------------------------------------------------------------------------------


def data_without_labels(out: Path, task: str, *splits: str) -> Path:
    """A data set in which the nodes of these splits have no label."""
    nodes = torch.arange(60)
    ids = {"train": nodes[:20], "val": nodes[20:40], "test": nodes[40:]}
    y = (nodes % 3).float() if task == "regression" else nodes % 3
    edge_index = torch.stack([nodes, nodes.roll(1)])
    kept = {f"{name}_ids": each for name, each in ids.items()}
    cohort.from_tensors(out, x=torch.rand(60, 4), y=y, edge_index=edge_index, task=task, **kept)
    labels = np.load(out / "labels.npy")  # a hidden test set comes so; who writes a data set here is told of it
    for name in splits:
        labels[ids[name]] = np.nan if task == "regression" else -1
    np.save(out / "labels.npy", labels)
    return out


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_without_labels_to_validate_on_the_last_epoch_counts(tmp_path, shm, task):
    data = data_without_labels(tmp_path / "data", task, "val", "test")
    summary = train(data, tmp_path / "run", "--epochs", 3)
    assert summary["val_metrics"] == summary["test_metrics"] == {} and summary["test_accuracy"] is None
    assert summary["best_epoch"] == 2
    assert f"test {title_of(targets_of(task).metric)} -" in summary["said"]
    report = ran("report", tmp_path / "run", "--out", tmp_path / "report")
    assert "0.00 %" not in report.stdout, report.stderr


def test_without_labels_to_train_on_a_run_is_refused(tmp_path, shm):
    data = data_without_labels(tmp_path / "data", "classification", "train")
    result = run_cohort("train", data, "--device", "cpu", "--epochs", 1, "--out", tmp_path / "run", "--ranks", 2)
    refused(result, 1, "the training nodes: expected labels of some of them, found none")


def test_a_few_batches_may_have_no_labels():
    nothing = torch.zeros(())
    assert mean_loss(nothing, nothing, max_batches=10) == 0
    assert mean_loss(torch.tensor(6.0), torch.tensor(4.0)) == 1.5
    with pytest.raises(CohortError, match="training nodes"):
        mean_loss(nothing, nothing)


def test_a_loss_that_is_no_number_is_null_and_said_once(tmp_path, shm):
    y = torch.full((60,), 1e30)
    edge_index = torch.stack([torch.arange(60), torch.arange(60).roll(1)])
    data = cohort.from_tensors(tmp_path / "data", x=torch.rand(60, 4), y=y, edge_index=edge_index, task="regression")
    summary = train(data, tmp_path / "run", "--epochs", 3)
    text = (tmp_path / "run" / "summary.json").read_text() + (tmp_path / "run" / "metrics.jsonl").read_text()
    assert "NaN" not in text and "Infinity" not in text
    assert [epoch["loss"] for epoch in summary["epochs"]] == [None] * 3
    assert summary["said"].count("the loss has not been finite since epoch 1: cohort dataset check finds NaN") == 1
    ran("report", tmp_path / "run", "--out", tmp_path / "report")
    ran("train", "--resume", tmp_path / "run")
