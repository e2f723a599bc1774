"""`cohort train` of models that predict the links of one relation of a typed graph."""

import json
from pathlib import Path

import link_runs
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from link_runs import ALL_NEIGHBOURS, CHANCE, losses, metrics_of
from processes import ALL_TESTS, cohort, ran
from resumable import demand_going_on
from torch_geometric.data import HeteroData

import cohort_gnn as package
from cohort_gnn.dataset import held_out, split_links
from cohort_gnn.launch.main import main

TYPED = ["--model", "rsage", "--featureless", "embed"]
OPTIONS = [*link_runs.OPTIONS, *TYPED]
USERS, ITEMS, GROUPS = 300, 200, 10

pytestmark = pytest.mark.usefixtures("shm")


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """Users buy items of their group, which features of items hint at; items are alike within a group. Users have no
    features, and nothing else tells their group than what they buy."""
    generator = torch.Generator().manual_seed(7)

    def within_groups(num_sources: int, num_targets: int, count: int) -> torch.Tensor:
        source = torch.randint(num_sources, (count,), generator=generator)
        place = torch.randint(num_targets // GROUPS, (count,), generator=generator)
        return torch.stack([source, place * GROUPS + source % GROUPS])

    data = HeteroData()
    data["user"].num_nodes = USERS
    data["item"].x = F.one_hot(torch.arange(ITEMS) % GROUPS, GROUPS) + 0.8 * torch.randn(
        ITEMS, GROUPS, generator=generator
    )
    data["user", "buys", "item"].edge_index = within_groups(USERS, ITEMS, 2400)
    data["item", "like", "item"].edge_index = within_groups(ITEMS, ITEMS, 800)
    folder = tmp_path_factory.mktemp("shop") / "whole"
    return package.from_pyg(data, folder, reverse_edges=True, target="item")


@pytest.fixture(scope="module")
def shop(whole) -> Path:
    """A tenth of what is bought is held out for each of validation and test."""
    return split_links(whole, whole.parent / "data", relation="buys", shares=(0.1, 0.1))


def train(graph: Path, out: Path, *options) -> dict:
    return link_runs.train(graph, out, *TYPED, *options)


@pytest.fixture(scope="module")
def run(shop, tmp_path_factory) -> Path:
    """A run whose validation and test read all neighbours."""
    out = tmp_path_factory.mktemp("runs") / "run"
    train(shop, out, *ALL_NEIGHBOURS)
    return out


def test_links_are_learned(shop, run):
    summary = json.loads((run / "summary.json").read_text())
    assert summary["task"] == "link" and losses(summary)[-1] < losses(summary)[0]
    assert summary["test_metrics"]["mrr"] > 3 * CHANCE
    best = max(epoch["val_metrics"]["mrr"] for epoch in summary["epochs"])
    assert summary["val_metrics"]["mrr"] == best
    num_edges = package.dataset.open(shop).edge_types["user", "buys", "item"].num_edges
    assert all(epoch["num_seeds"] == num_edges for epoch in summary["epochs"]), "pairs, not their endpoints"


def test_metrics_are_those_of_the_rows_that_predict_writes(shop, run, tmp_path):
    rows = {}
    for name, count in (("user", USERS), ("item", ITEMS)):
        out = tmp_path / f"{name}.npy"
        done = ran("predict", run, shop, "--node-type", name, "--device", "cpu", "--out", out, "--quiet")
        rows[name] = np.load(out).astype(np.float64)
        assert rows[name].shape == (count, 16)
    done = cohort("predict", run, shop, "--device", "cpu", "--out", tmp_path / "rows.npy")
    assert done.returncode == 1 and "--node-type: expected user or item, found none" in done.stderr
    summary = json.loads((run / "summary.json").read_text())
    for split, links in held_out(shop).items():
        sources = rows["user"][links.pairs[:, 0]]
        own = (sources * rows["item"][links.pairs[:, 1]]).sum(1)
        others = np.einsum("nd,nkd->nk", sources, rows["item"][links.negatives])
        assert summary[f"{split}_metrics"] == pytest.approx(metrics_of(own, others), rel=2e-3)
    ran("predict", run, shop, "--device", "cpu", "--out", tmp_path / "best.npy", "--top-k", ITEMS, "--quiet")
    best, relation = np.load(tmp_path / "best.npy"), package.dataset.open(shop).edge_types["user", "buys", "item"]
    scores = rows["user"] @ rows["item"].T
    scores[relation.indices, np.repeat(np.arange(ITEMS), np.diff(relation.indptr))] = -np.inf
    assert best.shape == (USERS, ITEMS) and ((best == -1).sum(1) == np.isinf(scores).sum(1)).all()
    of_best = np.where(best == -1, -np.inf, np.take_along_axis(scores, best, 1))
    np.testing.assert_allclose(of_best, -np.sort(-scores, 1), rtol=1e-4, atol=1e-4)
    model, data = package.load_model(run), package.dataset.open(shop).to_pyg()
    x = {"user": torch.arange(USERS), "item": data["item"].x}
    with torch.no_grad():
        found = model(x, data.edge_index_dict)
        assert model.link_decoder(found["user"][:5], found["item"][:5]).shape == (5,)
    for name in rows:
        np.testing.assert_allclose(found[name].numpy(), rows[name], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    "more",
    [
        ["--model", "rgat", "--decoder", "distmult"],
        *[["--model", "rgcn", "--loss", "margin"], ["--model", "hgt"]] * ALL_TESTS,
    ],
    ids=lambda more: more[1],
)
def test_other_models_learn_with_both_kinds_of_layers(shop, tmp_path, more):
    epochs = {"cohort": 5, "pyg": 5} if ALL_TESTS else {"cohort": 4, "pyg": 1}
    own, pyg = (
        train(shop, tmp_path / layers, "--epochs", count, "--layers", layers, *more) for layers, count in epochs.items()
    )
    assert losses(own)[: epochs["pyg"]] == pytest.approx(losses(pyg), rel=1e-3)
    assert losses(own)[-1] < losses(own)[0] and own["test_metrics"]["mrr"] > 2 * CHANCE


@pytest.mark.parametrize("relation", ["item:rev_buys:user", "like"])
def test_other_relations_learn_also_within_one_type(whole, tmp_path, relation):
    graph = split_links(whole, tmp_path / "data", relation=relation, shares=(0.1, 0.1))
    summary = train(graph, tmp_path / "run", "--epochs", 5)
    assert losses(summary)[-1] < losses(summary)[0] and summary["test_metrics"]["mrr"] > 2 * CHANCE
    if relation == "like":
        out = tmp_path / "rows.npy"
        ran("predict", tmp_path / "run", graph, "--device", "cpu", "--out", out, "--quiet")
        assert np.load(out).shape == (ITEMS, 16)


def test_a_cache_is_planned_for_all_endpoints_and_ranks_agree(shop, tmp_path):
    options = ["--epochs", 2, "--ranks", 2]
    without = train(shop, tmp_path / "without", *options)
    summary = train(shop, tmp_path / "with", *options, "--cache-ratio", 0.5)
    assert losses(summary) == losses(without)
    planned = json.loads((tmp_path / "with" / "plan.json").read_text())["ranks"][0]["topology"]["relations"]
    assert any(each["lists"] for each in planned), "lists, which are shorter than rows here"
    assert all(0.1 < rank["list_hit_rate"]["local"] < 1 for rank in summary["cache"]["predicted"])


@pytest.mark.gpu
@pytest.mark.parametrize("model", ["rsage", "rgcn", "rgat", "hgt"])
def test_a_gpu_trains_the_same(shop, tmp_path, model):
    options = ["--epochs", 3, "--model", model]
    cpu, gpu = (train(shop, tmp_path / device, *options, "--device", device) for device in ("cpu", "cuda"))
    assert losses(gpu) == pytest.approx(losses(cpu), rel=2e-3)
    assert gpu["test_metrics"]["mrr"] == pytest.approx(cpu["test_metrics"]["mrr"], rel=0.1)
    sizes = [[[epoch[f"num_{what}"] for what in ("seeds", "edges")] for epoch in run["epochs"]] for run in (cpu, gpu)]
    assert sizes[0] == sizes[1], "the same batches"


@pytest.mark.skipif(not ALL_TESTS, reason="like that of link_run_test: tests/run.sh --all runs it")
@pytest.mark.parametrize("more", [[], ["--ranks", 2]], ids=["one", "two"])
def test_a_run_that_is_told_to_stop_goes_on_in_the_middle_of_an_epoch(shop, tmp_path, more):
    demand_going_on(shop, tmp_path, *OPTIONS, "--epochs", 6, "--checkpoint-every", 7, *more)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--relation", "rents"], "--relation: expected the name of one relation, or source:name:target"),
        (["--task", "node", "--relation", "buys"], "--relation: expected --task link"),
        (["--partition"], "--partition: expected --task node"),
        (["--model", "sage"], "--model: expected rsage, rgcn, rgat or hgt"),
    ],
)
def test_options_that_do_not_fit_are_refused(shop, tmp_path, capsys, arguments, words):
    if "node" in arguments:
        sizes = ["--nodes", "300", "--edges", "900", "--dim", "8", "--classes", "3", "--kind", "typed"]
        assert main(["dataset", "generate", str(tmp_path / "papers"), *sizes]) == 0
        shop = tmp_path / "papers"
    assert main(["train", str(shop), *map(str, OPTIONS), *arguments, "--out", str(tmp_path / "run")]) == 1
    assert words in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "run").exists()


def test_an_end_that_no_relation_leads_to_is_told(tmp_path, capsys):
    data = HeteroData()
    data["user"].x, data["item"].x = torch.rand(9, 2), torch.rand(8, 2)
    data["user", "buys", "item"].edge_index = torch.randint(8, (2, 30))
    graph = package.from_pyg(data, tmp_path / "shop", target="item")
    given = ["--task", "link", *map(str, OPTIONS), "--out", str(tmp_path / "run")]
    assert main(["train", str(graph), *given]) == 1
    told = " ".join(capsys.readouterr().err.split())
    assert "--task link: expected relations into both ends of user buys item, found none into user" in told
    assert "--reverse-edges" in told
