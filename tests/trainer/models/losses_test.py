"""Losses with weights of classes, and focal: by hand, as scikit-learn and torch have them, and in runs."""

import numpy as np
import pytest
import torch
from processes import cohort as run_cohort
from processes import ran, refused, summary_of
from sklearn.utils.class_weight import compute_class_weight

import cohort_gnn as cohort
from cohort_gnn.launch.run.losses import warn_of_majority, weights_of_classes
from cohort_gnn.spec.run import RunSpec
from cohort_gnn.trainer.models.targets import Classes, MultiLabel

TINY = ["--device", "cpu", "--fanout=-1", "--batch-size", 30, "--hidden", 8, "--dropout", 0, "--lr", 0.02, "--quiet"]
GAMMAS = [0.0, 0.5, 2.0]


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("weights", [None, torch.tensor([0.5, 2.0, 0.0])])
def test_the_focal_loss_of_classes_is_that_of_the_paper(gamma, weights):
    torch.manual_seed(0)
    scores, y = torch.randn(50, 3, requires_grad=True), torch.randint(-1, 3, (50,))
    chance = scores.softmax(1)[torch.arange(50), y.clamp(min=0)]
    of_label = torch.ones(3) if weights is None else weights
    expected = (-((1 - chance) ** gamma) * chance.log() * of_label[y.clamp(min=0)])[y >= 0].sum()
    found = Classes(gamma, weights).loss_sum(scores, y)
    torch.testing.assert_close(found, expected)
    for one, other in zip(torch.autograd.grad(found, scores), torch.autograd.grad(expected, scores), strict=True):
        torch.testing.assert_close(one, other)
    if gamma == 0:
        torch.testing.assert_close(found, Classes(None, weights).loss_sum(scores, y))


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_the_focal_loss_of_labels_is_that_of_the_paper(gamma, dtype):
    torch.manual_seed(2)
    scores, there = torch.randn(40, 3, requires_grad=True), torch.randint(2, (40, 3))
    known = torch.rand(40, 3) < 0.8
    y = torch.where(known, there, 255).to(dtype)
    y = torch.where(known, there.float(), torch.nan) if dtype == torch.float32 else y
    chance = torch.where(there == 1, scores.sigmoid(), 1 - scores.sigmoid())
    expected = (-((1 - chance) ** gamma) * chance.log())[known].sum()
    torch.testing.assert_close(MultiLabel(gamma).loss_sum(scores, y), expected)


@pytest.mark.parametrize("gamma", GAMMAS)
def test_a_model_that_is_sure_has_gradients(gamma):
    scores = torch.tensor([[200.0, 0.0], [0.0, 200.0], [3.0, 4.0]], requires_grad=True)
    (found,) = torch.autograd.grad(Classes(gamma).loss_sum(scores, torch.tensor([0, 0, -1])), scores)
    assert found.isfinite().all() and (found[1] != 0).all() and (found[[0, 2]] == 0).all()


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """1,200 nodes; "rare": 3 % are of class 1, "several" of three classes of which the training nodes have two."""
    folder, random = tmp_path_factory.mktemp("losses"), torch.Generator().manual_seed(5)
    x, edge_index = torch.randn(1200, 6, generator=random), torch.randint(1200, (2, 3000), generator=random)
    ids = torch.arange(1200).split([600, 300, 300])
    splits = dict(zip(("train_ids", "val_ids", "test_ids"), ids, strict=True))
    rare = (x[:, 0] + 0.5 * torch.randn(1200, generator=random) > 2.1).long()
    several = torch.where(torch.arange(1200) < 600, (x[:, 0] > 0.5).long() * 2, x[:, :3].argmax(1))
    labels = {"rare": rare, "several": several, "labels": (x[:, :3] > 1).long(), "numbers": x[:, 0]}
    tasks = {"labels": "multilabel", "numbers": "regression"}
    for name, y in labels.items():
        task = tasks.get(name, "classification")
        cohort.from_tensors(folder / name, x=x, y=y, edge_index=edge_index, task=task, **splits)
    return folder


@pytest.mark.parametrize("kind", ["rare", "several"])
def test_balanced_weights_are_those_of_scikit_learn(data, kind):
    graph = cohort.dataset.open(data / kind)
    y = np.array(graph.y[graph.train_ids])
    expected = np.zeros(graph.num_classes)
    expected[np.unique(y)] = compute_class_weight("balanced", classes=np.unique(y), y=y)
    assert weights_of_classes(RunSpec(class_weights="balanced"), graph) == pytest.approx(expected.tolist())
    assert weights_of_classes(RunSpec(), graph) is None


def test_runs_weigh_classes(data, tmp_path, shm):
    """With batches of half the size, two ranks make the steps of one; rare nodes are found that were not."""
    options = [*TINY, "--epochs", 4, "--metrics", "f1,average_precision"]
    graph, said = cohort.dataset.open(data / "rare"), {}
    weights = weights_of_classes(RunSpec(class_weights="balanced"), graph)
    np.save(tmp_path / "weights.npy", np.array(weights))
    (tmp_path / "weights.csv").write_text("\n".join(map(repr, weights)))
    for name, ranks in {"balanced": 1, "none": 1, "weights.npy": 2, "weights.csv": 1}.items():
        more = [] if name == "none" else ["--class-weights", name if name == "balanced" else tmp_path / name]
        more += ["--ranks", ranks, "--batch-size", 30 // ranks, "--out", tmp_path / f"{name}-run"]
        said[name] = ran("train", data / "rare", *options, *more)
    runs = {name: summary_of(tmp_path / f"{name}-run") for name in said}
    losses = {name: [epoch["loss"] for epoch in run["epochs"]] for name, run in runs.items()}
    assert losses["weights.csv"] == losses["balanced"] != losses["none"]
    assert losses["weights.npy"] == pytest.approx(losses["balanced"], rel=1e-4)
    ran("predict", tmp_path / "balanced-run", data / "rare", "--classes", "--out", tmp_path / "said.npy")
    ran("predict", tmp_path / "none-run", data / "rare", "--classes", "--out", tmp_path / "plain.npy")
    is_rare = graph.y[graph.test_ids] == 1
    found = {name: np.load(tmp_path / f"{name}.npy")[graph.test_ids][is_rare].mean() for name in ("said", "plain")}
    assert found["said"] > found["plain"] + 0.2
    assert runs["balanced"]["loss_name"] == "cross entropy, class weights balanced"
    assert runs["none"]["loss_name"] == "cross entropy"
    assert "weights.csv" in runs["weights.csv"]["loss_name"]
    assert "class weights balanced" in ran("report", tmp_path / "balanced-run").stdout


@pytest.mark.parametrize("kind", ["several", "labels"])
def test_runs_have_a_focal_loss(data, tmp_path, shm, kind):
    losses = {}
    for gamma in ("0", "2", None, "plain"):
        more = ["--loss", "focal"] if gamma != "plain" else []
        more += ["--focal-gamma", gamma] if gamma in ("0", "2") else []
        out = tmp_path / str(gamma)
        ran("train", data / kind, *TINY, "--epochs", 2, *more, "--out", out)
        losses[gamma] = [epoch["loss"] for epoch in summary_of(out)["epochs"]]
    assert losses["0"] == pytest.approx(losses["plain"], rel=1e-4) and losses[None] == losses["2"]
    assert losses["2"][0] < 0.6 * losses["0"][0]
    assert summary_of(tmp_path / "None")["loss_name"] == "focal loss, gamma 2"


@pytest.mark.gpu
@pytest.mark.parametrize("graphs", ["--cuda-graphs", "--no-cuda-graphs"])
def test_a_gpu_has_the_same_losses(data, tmp_path, shm, graphs):
    options = [*TINY, "--epochs", 3, "--loss", "focal", "--class-weights", "balanced", graphs]
    for device in ("cpu", "cuda"):
        ran("train", data / "rare", *options, "--device", device, "--out", tmp_path / device)
    cpu, cuda = ([epoch["loss"] for epoch in summary_of(tmp_path / device)["epochs"]] for device in ("cpu", "cuda"))
    assert cuda == pytest.approx(cpu, rel=1e-2)


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        ("numbers", ["--loss", "focal"], ["--loss focal: expected classes or several labels", "found regression"]),
        ("rare", ["--loss", "focal", "--task", "link"], ["bce, softmax and margin are the losses of links"]),
        ("rare", ["--focal-gamma", 1], ["--focal-gamma: expected --loss focal, found the loss of nodes by default"]),
        (
            "labels",
            ["--class-weights", "balanced"],
            ["--class-weights: expected classes", "focal is for several"],
        ),
        ("rare", ["--class-weights", "none.npy"], ["--class-weights", "expected 2 numbers of at least 0", "none.npy"]),
        ("rare", ["--loss", "margin"], ["--loss: expected --task link"]),
    ],
    ids=str,
)
def test_losses_that_do_not_fit_are_refused(data, tmp_path, kind, options, words):
    refused(run_cohort("train", data / kind, *TINY, *options, "--out", tmp_path / "run"), 1, *words)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("text", ["1", "1,2,3", "1,-1", "0,0", "1,nan", "a,b"])
def test_files_without_such_weights_are_refused(data, tmp_path, text):
    (tmp_path / "w.csv").write_text(text)
    graph = cohort.dataset.open(data / "rare")
    with pytest.raises(cohort.CohortError, match="expected 2 numbers of at least 0"):
        weights_of_classes(RunSpec(class_weights=str(tmp_path / "w.csv")), graph)


def test_a_word_that_is_neither_balanced_nor_a_file_is_refused(data, tmp_path):
    result = run_cohort("train", data / "rare", "--class-weights", "balance", "--out", tmp_path / "run")
    refused(result, 2, "did you mean balanced?")


def test_a_class_that_most_nodes_have_is_warned_of(data, tmp_path, shm):
    weights, metrics = ["--class-weights", "balanced"], ["--metrics", "auroc"]
    *said, both = (
        ran("train", data / "rare", *TINY, "--epochs", 1, *more, "--out", tmp_path / str(number)).stderr
        for number, more in enumerate((weights, metrics, [], ["--metrics", "f1", *weights]))
    )
    told = "% of the training labels are of class 0: "
    assert told in said[2] and "--class-weights balanced lets" in said[2] and "--metrics average_precision" in said[2]
    assert told in said[0] and "--class-weights" not in said[0] and "--metrics average_precision" in said[0]
    assert told in said[1] and "--metrics" not in said[1] and told not in both


def test_labels_of_one_class_alone_are_told(tmp_path, caplog):
    """No weights of classes and no metric help there."""
    y, edges, split = np.array([1, 1, 1, 0]), np.array([[0, 1], [1, 2]]), {"train_ids": [0, 1, 2], "val_ids": [3]}
    folder = cohort.from_tensors(tmp_path / "one", x=np.ones((4, 1), np.float32), y=y, edge_index=edges, **split)
    warn_of_majority(RunSpec(), cohort.dataset.open(folder))
    assert "all training labels are of class 1" in caplog.text and "--class-weights" not in caplog.text
