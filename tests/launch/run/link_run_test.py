"""`cohort train` of models that predict links."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from link_runs import ALL_NEIGHBOURS, CHANCE, OPTIONS, losses, metrics_of, train
from processes import ALL_TESTS, cohort, ran
from resumable import demand_going_on

import cohort_gnn as package
from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset import held_out, split_links, write_links
from cohort_gnn.dataset.links import link_edges
from cohort_gnn.launch.main import main
from cohort_gnn.trainer.models.links import LinkDecoder
from cohort_gnn.trainer.predict import best_targets, program

pytestmark = pytest.mark.usefixtures("shm")


@pytest.fixture(scope="module")
def graph(tmp_path_factory) -> Path:
    """Ten groups of 40 nodes with links inside the groups, which features hint at; a tenth of the links is held out
    for each of validation and test."""
    folder = tmp_path_factory.mktemp("links")
    generator = torch.Generator().manual_seed(7)
    group = torch.arange(400) % 10
    source = torch.randint(400, (1600,), generator=generator)
    target = (source + 10 * torch.randint(1, 40, (1600,), generator=generator)) % 400
    edges = torch.stack([torch.cat([source, target]), torch.cat([target, source])])
    x = F.one_hot(group, 10) + 0.8 * torch.randn(400, 10, generator=generator)
    return split_links(
        package.from_tensors(folder / "whole", x=x, edge_index=edges), folder / "data", shares=(0.1, 0.1)
    )


@pytest.fixture(scope="module")
def run(graph, tmp_path_factory) -> Path:
    """A run whose validation and test read all neighbours."""
    out = tmp_path_factory.mktemp("runs") / "run"
    train(graph, out, *ALL_NEIGHBOURS)
    return out


def test_links_are_learned(graph, run):
    summary = json.loads((run / "summary.json").read_text())
    assert summary["task"] == "link" and losses(summary)[-1] < losses(summary)[0]
    assert summary["test_metrics"]["mrr"] > 2 * CHANCE
    assert summary["val_metrics"] == summary["epochs"][summary["best_epoch"]]["val_metrics"]
    best = max(epoch["val_metrics"]["mrr"] for epoch in summary["epochs"])
    assert summary["val_metrics"]["mrr"] == best
    num_edges = package.dataset.open(graph).num_edges
    assert all(epoch["num_seeds"] == num_edges for epoch in summary["epochs"]), "pairs, not their endpoints"


def test_metrics_are_those_of_the_rows_that_predict_writes(graph, run, tmp_path):
    ran("predict", run, graph, "--device", "cpu", "--out", tmp_path / "rows.npy", "--quiet")
    rows = np.load(tmp_path / "rows.npy").astype(np.float64)
    assert rows.shape == (400, 16)
    done = cohort("predict", run, graph, "--device", "cpu", "--out", tmp_path / "classes.npy", "--classes")
    assert done.returncode == 1 and "--classes: expected a run that learned classes" in done.stderr
    summary = json.loads((run / "summary.json").read_text())
    for split, links in held_out(graph).items():
        own = (rows[links.pairs[:, 0]] * rows[links.pairs[:, 1]]).sum(1)
        others = np.einsum("nd,nkd->nk", rows[links.pairs[:, 0]], rows[links.negatives])
        assert summary[f"{split}_metrics"] == pytest.approx(metrics_of(own, others), rel=2e-3)


def best_of(rows: np.ndarray, others: np.ndarray, left_out: np.ndarray, k: int) -> np.ndarray:
    """int64 [n, k], the best of `others` for each row less those of the mask; -1 where there are no more."""
    scores = np.where(left_out, -np.inf, rows @ others.T)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return np.where(np.isinf(np.take_along_axis(scores, order, 1)), -1, order)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("pieces", [None, (64, 48)])
def test_the_best_targets_of_each_node_are_no_neighbours_yet(graph, run, tmp_path, monkeypatch, device, pieces):
    how = ["--device", device, "--quiet"]
    if pieces:
        monkeypatch.setattr(best_targets, "SOURCES", pieces[0])
        monkeypatch.setattr(best_targets, "TARGETS", pieces[1])
    job = {"run": str(run), "dataset": str(graph), "classes": False, "node_type": None, "device": device}
    job |= {"memory_bytes": 1 << 30, "quiet": True, "out": str(tmp_path / "best.npy"), "top_k": 390}
    program.predict_nodes(job)
    ran("predict", run, graph, *how, "--out", tmp_path / "rows.npy")
    rows, found = np.load(tmp_path / "rows.npy"), np.load(tmp_path / "best.npy")
    left_out, data = np.eye(400, dtype=bool), package.dataset.open(graph)
    left_out[np.asarray(data.indices), np.repeat(np.arange(400), np.diff(data.indptr))] = True
    expected = best_of(rows.astype(np.float64), rows.astype(np.float64), left_out, 390)
    assert found.dtype == np.int64 and (found[:, -1] == -1).any(), "some have so many neighbours"
    assert ((found == -1) == (expected == -1)).all()
    assert (np.sort(found, 1) == np.sort(expected, 1)).mean() > 0.999
    of_found, of_expected = (np.einsum("nd,nkd->nk", rows, rows[each]) for each in (found, expected))
    np.testing.assert_allclose(of_found, of_expected, rtol=1e-4, atol=1e-4)
    if not pieces:
        ran("predict", run, graph, *how, "--out", tmp_path / "few.npy", "--top-k", 5)
        assert np.array_equal(np.load(tmp_path / "few.npy"), found[:, :5])


def test_edges_of_one_node_type_link_both_ends(tmp_path):
    edges = torch.tensor([[0, 0, 3], [1, 2, 1]])
    graph = package.from_tensors(tmp_path / "graph", x=torch.ones(4, 2), edge_index=edges)
    known = best_targets.Known.from_edges(link_edges(package.dataset.open(graph)))
    assert [sorted(known.among(node, node + 1)[1].tolist()) for node in range(4)] == [[1, 2], [0, 3], [0], [1]]
    source, target = known.among(1, 3)
    assert source.tolist() == [0, 0, 1] and sorted(target.tolist()) == [0, 0, 3]


def test_what_top_k_does_not_go_with(graph, run, tmp_path):
    for options, text in (
        (["--classes"], "--top-k: expected no --classes and no --node-type beside it"),
        (["--node-type", "x"], "--top-k: expected no --classes and no --node-type beside it"),
    ):
        done = cohort("predict", run, graph, "--out", tmp_path / "best.npy", "--top-k", 3, *options)
        assert done.returncode == 1 and text in done.stderr
    done = cohort("predict", run, graph, "--device", "cpu", "--out", tmp_path / "best.npy", "--top-k", 401)
    assert done.returncode == 1 and "--top-k: expected at most 400, the number of targets, found 401" in done.stderr
    with pytest.raises(CohortError, match="expected a run with --decoder dot or distmult, found --decoder mlp"):
        best_targets.queries_of(LinkDecoder("mlp", 4), torch.zeros(1, 4))
    assert not (tmp_path / "best.npy").exists()


@pytest.mark.gpu
def test_a_gpu_learns_the_same(graph, tmp_path):
    options = ["--epochs", 4, "--negatives", 3]
    host, gpu = (train(graph, tmp_path / device, *options, "--device", device) for device in ("cpu", "cuda"))
    assert losses(gpu) == pytest.approx(losses(host), rel=1e-2)
    assert gpu["test_metrics"]["mrr"] == pytest.approx(host["test_metrics"]["mrr"], abs=0.02)


def test_a_loaded_model_has_its_decoder(graph, tmp_path):
    train(graph, tmp_path / "run", "--epochs", 1, "--decoder", "mlp")
    model, whole = package.load_model(tmp_path / "run"), package.dataset.open(graph).to_pyg()
    with torch.no_grad():
        rows = model(whole.x, whole.edge_index)
        assert model.link_decoder(rows[:5], rows[5:10]).shape == (5,)
    assert any(parameter.abs().sum() > 0 for parameter in model.link_decoder.parameters())


@pytest.mark.parametrize(
    "more", [["--decoder", "distmult", "--loss", "margin"], ["--decoder", "mlp", "--model", "gat"]]
)
def test_other_decoders_losses_and_models_learn(graph, tmp_path, more):
    summary = train(graph, tmp_path / "run", "--epochs", 4, *more)
    assert losses(summary)[-1] < losses(summary)[0] and summary["test_metrics"]["mrr"] > 1.2 * CHANCE


def test_links_may_compete_with_the_same_pairs(graph, tmp_path):
    """As those of OGB do; two ranks share the links."""
    mine = shutil.copytree(graph, tmp_path / "data")
    held = held_out(graph)
    pairs = {
        split: (links.pairs, np.stack([links.pairs[:, 0], links.negatives[:, 0]], 1)) for split, links in held.items()
    }
    write_links(mine, **pairs, shared=True)
    options = ["--epochs", 3, "--eval-fanout=-1,-1"]
    one = train(mine, tmp_path / "one", *options)
    two = train(mine, tmp_path / "two", *options, "--ranks", 2, "--batch-size", 32)
    ran("predict", tmp_path / "one", mine, "--device", "cpu", "--out", tmp_path / "rows.npy", "--quiet")
    rows = np.load(tmp_path / "rows.npy").astype(np.float64)
    own, others = ((rows[ends[:, 0]] * rows[ends[:, 1]]).sum(1) for ends in pairs["test"])
    above = (others[None] > own[:, None]).sum(1)
    assert one["test_metrics"]["hits@20"] == pytest.approx(np.mean(above < 20), abs=0.01)
    assert two["test_metrics"]["hits@20"] == pytest.approx(one["test_metrics"]["hits@20"], abs=0.15)
    assert one["test_metrics"]["mrr"] > CHANCE


def test_cohorts_and_pygs_layers_learn_the_same(graph, tmp_path):
    own, pyg = (train(graph, tmp_path / layers, "--epochs", 2, "--layers", layers) for layers in ("cohort", "pyg"))
    assert losses(own) == pytest.approx(losses(pyg), rel=1e-3)
    assert own["test_metrics"]["mrr"] == pytest.approx(pyg["test_metrics"]["mrr"], rel=0.05)


def test_a_cache_is_planned_for_all_nodes(graph, tmp_path):
    options = ["--epochs", 2, "--layers", "pyg", "--ranks", 2]
    without = train(graph, tmp_path / "without", *options)
    summary = train(graph, tmp_path / "with", *options, "--cache-ratio", 0.5)
    assert losses(summary) == losses(without)
    planned = json.loads((tmp_path / "with" / "plan.json").read_text())
    assert 0 < planned["ranks"][0]["topology"]["lists"] < 400, "lists, which are shorter than rows here"
    assert all(0.3 < rank["list_hit_rate"]["local"] < 1 for rank in summary["cache"]["predicted"])


@pytest.mark.gpu
@pytest.mark.parametrize("ratio", [0.3, 1.1, pytest.param("auto", marks=pytest.mark.alone)])
def test_a_cache_on_a_gpu_changes_no_loss(graph, tmp_path, ratio):
    options = ["--epochs", 3, "--device", "cuda", "--topology", "host"]
    without = train(graph, tmp_path / "without", *options)
    summary = train(graph, tmp_path / "with", *options, "--cache-ratio", ratio)
    assert losses(summary) == losses(without)
    for rank in summary["cache"]["measured"]:
        assert max(rank["hit_rate"]["local"], rank["list_hit_rate"]["local"]) > 0


@pytest.mark.gpu
@pytest.mark.parametrize(
    "more",
    [[], ["--no-reuse"], ["--layers", "pyg"], ["--decoder", "mlp", "--model", "gcn"], ["--loss", "softmax"]],
    ids=lambda more: " ".join(more)[2:],
)
def test_a_gpu_trains_the_same(graph, tmp_path, more):
    cpu, gpu = (train(graph, tmp_path / device, "--epochs", 3, "--device", device, *more) for device in ("cpu", "cuda"))
    assert losses(gpu) == pytest.approx(losses(cpu), rel=2e-3)
    assert gpu["test_metrics"]["mrr"] == pytest.approx(cpu["test_metrics"]["mrr"], rel=0.1)
    sizes = [[[epoch[f"num_{what}"] for what in ("seeds", "edges")] for epoch in run["epochs"]] for run in (cpu, gpu)]
    assert sizes[0] == sizes[1], "the same batches"


def test_without_held_out_links_the_task_is_to_be_named(graph, tmp_path):
    whole = graph.parent / "whole"
    summary = train(whole, tmp_path / "run", "--epochs", 1, "--task", "link")
    assert summary["val_metrics"] == summary["test_metrics"] == {} and losses(summary)[0] > 0
    done = cohort("train", whole, *OPTIONS, "--out", tmp_path / "other")
    assert done.returncode == 1 and "at least one node to train on" in done.stderr


@pytest.mark.skipif(not ALL_TESTS, reason="like that of resume_test: tests/run.sh --all runs it")
@pytest.mark.parametrize("more", [["--ranks", 2], []], ids=["two", "one"])
def test_a_run_that_is_told_to_stop_goes_on_in_the_middle_of_an_epoch(graph, tmp_path, more):
    options = [*OPTIONS, "--decoder", "mlp", "--epochs", 8, "--checkpoint-every", 7, *more]
    assert any(demand_going_on(graph, tmp_path, *options, stops=2)), "in the middle of an epoch"


def test_a_run_does_not_go_on_with_other_links(graph, tmp_path):
    options = {"device": "cpu", "fanout": [3], "hidden": 4, "epochs": 1, "batch_size": 512, "quiet": True}
    mine = split_links(graph.parent / "whole", tmp_path / "data", seed=3)
    package.train(mine, tmp_path / "run", **options)
    np.save(mine / "val_negatives.npy", np.array(held_out(mine)["val"].negatives)[:, ::-1])
    done = cohort("train", "--resume", tmp_path / "run", "--epochs", 2)
    assert done.returncode == 1 and "found one with other links" in done.stderr
    done = cohort("train", "--resume", tmp_path / "run", "--task", "node")
    assert done.returncode == 1 and "--task: expected link, as" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--task", "node", "--decoder", "mlp", "--loss", "margin"], "--decoder, --loss: expected --task link"),
        (["--task", "node", "--negatives-from", "batch"], "--negatives-from: expected --task link"),
        (["--partition"], "--partition: expected --task node, found --task link"),
        (["--negatives", "10001"], "--negatives: expected at most 10000, found 10001"),
        (["--model", "rsage"], "--model: expected sage, gcn, gat or graphconv, for the types of"),
    ],
)
def test_options_that_do_not_fit_are_refused(graph, tmp_path, capsys, arguments, words):
    given = [*map(str, OPTIONS), *arguments, "--out", str(tmp_path / "run")]
    if "--task" in arguments:  # a graph whose nodes have labels
        labels = torch.arange(400) % 10
        whole = package.dataset.open(graph).to_pyg()
        graph = package.from_tensors(tmp_path / "data", x=whole.x, y=labels, edge_index=whole.edge_index)
    assert main(["train", str(graph), *given]) == 1
    assert words in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "run").exists()
