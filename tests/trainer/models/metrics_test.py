"""Metrics of a whole split are those of scikit-learn, in one process and in runs."""

import json
from math import isnan

import numpy as np
import pytest
import torch
from processes import ALL_TESTS, ran, refused
from processes import cohort as run_cohort
from sklearn import metrics as sk

import cohort_gnn as cohort
from cohort_gnn.spec.metrics import OF_TASK
from cohort_gnn.trainer.models.metrics import WholeSplit, measured
from cohort_gnn.trainer.models.targets import targets_of

AREAS = ("auroc", "average_precision")
ALL = (*AREAS, "f1")


def softmax(scores: np.ndarray) -> np.ndarray:
    powers = np.exp(scores.astype(np.float64) - scores.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def of_classes(scores: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """Of scikit-learn, which leaves it to its caller to leave out classes that a split has not."""
    scores, y = scores[y >= 0], y[y >= 0]
    chances, said = softmax(scores), scores.argmax(1)
    if scores.shape[1] == 2:
        margin = scores[:, 1].astype(np.float64) - scores[:, 0]
        found = [sk.roc_auc_score(y, margin), sk.average_precision_score(y, margin), sk.f1_score(y, said)]
        return dict(zip(ALL, found, strict=True))
    there = [(y == c, chances[:, c]) for c in np.unique(y)]
    areas = [np.mean([of(*each) for each in there]) for of in (sk.roc_auc_score, sk.average_precision_score)]
    return dict(zip(ALL, [*areas, sk.f1_score(y, said, average="macro")], strict=True))


def of_labels(scores: np.ndarray, y: np.ndarray) -> dict[str, float]:
    columns = [(y[y[:, c] != 255, c], scores[y[:, c] != 255, c]) for c in range(y.shape[1])]
    areas = [np.mean([of(*each) for each in columns]) for of in (sk.roc_auc_score, sk.average_precision_score)]
    return dict(zip(ALL, [*areas, np.mean([sk.f1_score(there, own > 0) for there, own in columns])], strict=True))


def scored(seed: int, shape: tuple[int, int]) -> torch.Tensor:
    """Scores of which each row is there twice."""
    half = torch.randn((shape[0] // 2, shape[1]), generator=torch.Generator().manual_seed(seed))
    return half.repeat(2, 1)


@pytest.mark.parametrize("num_classes", [2, 3, 7])
@pytest.mark.parametrize("seed", range(5))
def test_classes_are_measured_as_by_scikit_learn(num_classes, seed):
    y = np.random.default_rng(seed).integers(-1, num_classes, 300)
    y[y == 5] = 4  # a class that the split has not
    scores = scored(seed, (300, num_classes))
    expected = of_classes(scores.numpy(), y)
    assert measured(ALL, "classification", scores, torch.from_numpy(y)) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_labels_are_measured_as_by_scikit_learn(seed):
    random = np.random.default_rng(seed)
    y = random.integers(0, 2, (200, 5)).astype(np.uint8)
    y[random.random(y.shape) < 0.2] = 255
    scores = scored(seed, (200, 5))
    expected = of_labels(scores.numpy(), y)
    for labels in (torch.from_numpy(y), torch.from_numpy(np.where(y == 255, np.nan, y).astype(np.float32))):
        assert measured(ALL, "multilabel", scores, labels) == pytest.approx(expected, abs=1e-12)


def test_a_label_that_is_neither_there_nor_answered_counts_as_by_scikit_learn():
    scores, y = (
        scored(1, (60, 3)),
        torch.randint(2, (60, 3), generator=torch.Generator().manual_seed(1)).to(torch.uint8),
    )
    scores[:, 2], y[:, 2] = -1, 0
    with pytest.warns(UserWarning, match="ill-defined"):
        expected = sk.f1_score(y, scores > 0, average="macro")
    assert measured(["f1"], "multilabel", scores, y) == {"f1": pytest.approx(expected, abs=1e-12)}


@pytest.mark.parametrize("offset", [0, 2000])
def test_numbers_are_measured_as_by_scikit_learn(offset):
    y = scored(1, (100, 1))[:, 0] + offset
    y[::7] = torch.nan
    scores, known = y.nan_to_num(0)[:, None] + scored(2, (100, 1)), ~y.isnan()
    expected = sk.r2_score(y[known].double().numpy(), scores[known, 0].double().numpy())
    assert measured(["r2"], "regression", scores, y) == {"r2": pytest.approx(expected, abs=1e-12)}
    same = torch.ones(4)
    for error, value in ((0, 1.0), (1, 0.0)):
        assert measured(["r2"], "regression", same[:, None] + error, same) == {"r2": value}
        assert sk.r2_score(same.numpy(), same.numpy() + error) == value


def test_what_is_undefined_is_no_number():
    y = torch.zeros(4, dtype=torch.int64)
    found = measured(ALL, "classification", scored(1, (4, 2)) - torch.tensor([0, 100]), y)
    assert all(isnan(found[name]) for name in ALL)
    assert measured(ALL, "classification", scored(1, (4, 2)), y - 1) == {}, "nothing is labelled"
    assert measured(["r2"], "regression", scored(1, (4, 1)), torch.full((4,), torch.nan)) == {}
    diverged = torch.tensor([[0.0, torch.nan], [1, 2]])
    assert isnan(measured(["auroc"], "classification", diverged, torch.tensor([0, 1]))["auroc"])


def test_batches_and_ranks_make_one_split():
    scores, y = scored(3, (60, 3)), torch.arange(60) % 3
    split = WholeSplit(["auroc"], "classification")
    for _ in range(2):  # nothing stays of an earlier pass
        for part in range(0, 60, 20):
            split.add(scores[part : part + 20], y[part : part + 20])
        assert split.metrics() == measured(["auroc"], "classification", scores, y)
    assert WholeSplit([], "classification").metrics() == {}


def test_tasks_name_their_metrics():
    for task, names in OF_TASK.items():
        targets = targets_of(task)
        assert targets.metric == names[0] == targets.summed[0] and set(targets.summed) <= set(names)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Data sets by task: labels follow from the features of a node; some have none."""
    folder, random = tmp_path_factory.mktemp("metrics"), torch.Generator().manual_seed(5)
    x, edge_index = torch.randn(400, 6, generator=random), torch.randint(400, (2, 2000), generator=random)
    labels = {"two": (x[:, 0] > 1).long(), "several": x[:, :3].argmax(1), "labels": (x[:, :3] > 0.5).long()}
    labels["numbers"] = x[:, 0] - 2 * x[:, 1] + 100
    tasks = {"labels": "multilabel", "numbers": "regression"}
    for name, y in labels.items():
        y[::11] = torch.nan if name == "numbers" else -1
        how = {"task": tasks.get(name, "classification"), "split": (0.5, 0.25, 0.25)}
        cohort.from_tensors(folder / name, x=x, y=y, edge_index=edge_index, **how)
    return folder


TINY = ["--device", "cpu", "--fanout=-1", "--batch-size", 30, "--hidden", 8, "--dropout", 0, "--lr", 0.02, "--quiet"]


@pytest.mark.parametrize("kind", ["two", "several", "labels", "numbers"])
def test_runs_measure_what_scikit_learn_does_on_their_scores(data, tmp_path, shm, kind):
    names = "r2,nmae" if kind == "numbers" else "f1,auroc,average_precision"
    monitor = "r2" if kind == "numbers" else "auroc"
    options = [*TINY, "--epochs", 4, "--metrics", names, "--monitor", monitor]
    summaries = {}
    for ranks in [2, *[1] * (ALL_TESTS or kind == "several")]:
        out = tmp_path / str(ranks)
        ran("train", data / kind, *options, "--ranks", ranks, "--batch-size", 30 // ranks, "--out", out)
        summaries[ranks] = json.loads((out / "summary.json").read_text())
    two = summaries[2]
    assert two["test_metrics"] == pytest.approx(summaries.get(1, two)["test_metrics"], abs=1e-2)
    ran("predict", tmp_path / "2", data / kind, "--out", tmp_path / "pred.npy", "--device", "cpu")
    graph = cohort.dataset.open(data / kind)
    for split, ids in (("val", graph.val_ids), ("test", graph.test_ids)):
        scores, y = np.load(tmp_path / "pred.npy")[ids], np.array(graph.y[ids])
        if kind == "numbers":
            known = ~np.isnan(y)
            own = scores[known, 0].astype(np.float64), y[known].astype(np.float64)
            mae, deviation = sk.mean_absolute_error(*own), np.nanstd(graph.y[graph.train_ids].astype(float), ddof=1)
            expected = {"r2": sk.r2_score(own[1], own[0]), "mae": mae, "nmae": mae / deviation}
        else:
            expected = of_labels(scores, y) if kind == "labels" else of_classes(scores, y)
        found = two[f"{split}_metrics"]
        assert next(iter(found)) == monitor
        assert {name: found[name] for name in expected} == pytest.approx(expected, abs=1e-6)
    epochs = [epoch["val_metrics"][monitor] for epoch in two["epochs"]]
    assert two["best_epoch"] == int(np.argmax(epochs))
    lines = [json.loads(line) for line in (tmp_path / "2/metrics.jsonl").read_text().splitlines()]
    assert [line["val_metrics"] for line in lines] == [epoch["val_metrics"] for epoch in two["epochs"]]
    told = ran("report", tmp_path / "2").stdout
    assert f"{monitor} in the test" in told and f"val {monitor}" in told


def test_the_monitored_metric_stops_a_run(data, tmp_path, shm):
    options = [*TINY, "--lr", 1e-9, "--epochs", 30, "--patience", 2, "--monitor", "f1", "--out", tmp_path / "run"]
    ran("train", data / "two", *options)
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    values = [epoch["val_metrics"]["f1"] for epoch in summary["epochs"]]
    assert len(values) == int(np.argmax(values)) + 3 < 30
    result = run_cohort("train", "--resume", tmp_path / "run", "--monitor", "auroc")
    refused(result, 1, "--monitor")


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        (
            "two",
            ["--metrics", "mae"],
            ["--metrics: expected metrics of classification", "mae is a metric of regression"],
        ),
        ("numbers", ["--monitor", "auroc"], ["--monitor: expected metrics of regression: rmse, mae, r2"]),
        ("labels", ["--metrics", "auroc,accuracy"], ["micro_f1, auroc, average_precision, f1", "found accuracy"]),
        ("two", ["--metrics", "auroc,mrr"], ["mrr is a metric of link"]),
    ],
    ids=str,
)
def test_metrics_of_other_tasks_are_refused(data, tmp_path, kind, options, words):
    refused(run_cohort("train", data / kind, *TINY, *options, "--out", tmp_path / "run"), 1, *words)
    assert not (tmp_path / "run").exists()


def test_words_that_are_no_metrics_are_refused(data, tmp_path):
    result = run_cohort("train", data / "two", "--metrics", "auroc,average-precison", "--out", tmp_path / "run")
    refused(result, 2, "did you mean average_precision?")
    with pytest.raises(cohort.CohortError, match="auroc"):
        cohort.train(data / "two", tmp_path / "run", metrics=["arooc"])


def test_a_split_of_one_class_is_not_monitored_by_an_area(tmp_path):
    nodes = torch.arange(60)
    ids = {"train_ids": nodes[:20], "val_ids": nodes[20:40], "test_ids": nodes[40:]}
    y = torch.where((nodes >= 20) & (nodes < 40), 1, nodes % 2)
    edge_index = torch.stack([nodes, nodes.roll(1)])
    data = cohort.from_tensors(tmp_path / "data", x=torch.rand(60, 4), y=y, edge_index=edge_index, **ids)
    result = run_cohort("train", data, *TINY, "--monitor", "auroc", "--out", tmp_path / "run")
    refused(result, 1, "--monitor auroc: expected validation nodes that have a class", "leave --monitor auroc out")
