"""`cohort train` of models that predict links, of one node type and of one relation of several."""

import json
import shutil
from pathlib import Path
from typing import NamedTuple

import link_runs
import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from link_runs import ALL_NEIGHBOURS, CHANCE, OPTIONS, losses, metrics_of
from processes import ALL_TESTS, cohort, here, ran, refused
from sklearn.metrics import ndcg_score
from torch_geometric.data import HeteroData
from torch_geometric.metrics import LinkPredMAP, LinkPredNDCG, LinkPredRecall

import cohort_gnn as package
from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset import held_out, split_links, write_links
from cohort_gnn.dataset.links import link_edges
from cohort_gnn.launch.main import main
from cohort_gnn.spec.graph import EDGE_TYPE
from cohort_gnn.trainer.models import best_targets
from cohort_gnn.trainer.models.links import LinkDecoder
from cohort_gnn.trainer.predict import program
from cohort_gnn.trainer.serve.bodies import Request, answer_of
from cohort_gnn.trainer.serve.worker import Worker

pytestmark = pytest.mark.usefixtures("shm")

TYPED = ["--model", "rsage", "--featureless", "embed"]
USERS, ITEMS, GROUPS = 300, 200, 10
BUYS = ("user", "buys", "item")


class Links(NamedTuple):
    """A graph whose links are to be predicted.

    Attributes:
        whole, data: the data set, and that in which a tenth of the links is held out for each of validation and test.
        options: of its runs.
        relation: of the links.
        counts: of its nodes, by type.
    """

    whole: Path
    data: Path
    options: list[str]
    relation: tuple[str, str, str]
    counts: dict[str, int]

    def train(self, out: Path, *options) -> dict:
        """The summary of a run."""
        return link_runs.train(self.data, out, *self.options, *options)

    def rows(self, run: Path, folder: Path) -> dict[str, np.ndarray]:
        """float64 [nodes, D] by type: what predict writes."""
        found = {}
        for name in self.counts:
            of_type = ["--node-type", name] if len(self.counts) > 1 else []
            ran("predict", run, self.data, *of_type, "--device", "cpu", "--out", folder / "rows.npy", "--quiet")
            found[name] = np.load(folder / "rows.npy").astype(np.float64)
        return found


def one_type(folder: Path) -> Links:
    """Ten groups of 40 nodes with links inside the groups, which features hint at."""
    generator = torch.Generator().manual_seed(7)
    group = torch.arange(400) % 10
    source = torch.randint(400, (1600,), generator=generator)
    target = (source + 10 * torch.randint(1, 40, (1600,), generator=generator)) % 400
    edges = torch.stack([torch.cat([source, target]), torch.cat([target, source])])
    x = F.one_hot(group, 10) + 0.8 * torch.randn(400, 10, generator=generator)
    whole = package.from_tensors(folder / "whole", x=x, edge_index=edges)
    data = split_links(whole, folder / "data", shares=(0.1, 0.1))
    return Links(whole, data, [], EDGE_TYPE, {EDGE_TYPE[0]: 400})


def several_types(folder: Path) -> Links:
    """Users buy items of their group, which features of items hint at; items are alike within a group. Users have no
    features, and nothing else tells their group than what they buy."""
    generator = torch.Generator().manual_seed(7)

    def within_groups(num_sources: int, num_targets: int, count: int) -> torch.Tensor:
        source = torch.randint(num_sources, (count,), generator=generator)
        place = torch.randint(num_targets // GROUPS, (count,), generator=generator)
        return torch.stack([source, place * GROUPS + source % GROUPS])

    data = HeteroData()
    data["user"].num_nodes = USERS
    noise = 0.8 * torch.randn(ITEMS, GROUPS, generator=generator)
    data["item"].x = F.one_hot(torch.arange(ITEMS) % GROUPS, GROUPS) + noise
    data[BUYS].edge_index = within_groups(USERS, ITEMS, 2400)
    data["item", "like", "item"].edge_index = within_groups(ITEMS, ITEMS, 800)
    whole = package.from_pyg(data, folder / "whole", reverse_edges=True, target="item")
    split = split_links(whole, folder / "data", relation="buys", shares=(0.1, 0.1))
    return Links(whole, split, TYPED, BUYS, {"user": USERS, "item": ITEMS})


@pytest.fixture(scope="module", params=["one", "several"])
def links(request, tmp_path_factory) -> Links:
    make = {"one": one_type, "several": several_types}[request.param]
    return make(tmp_path_factory.mktemp(request.param))


only_one, only_several = (pytest.mark.parametrize("links", [name], indirect=True) for name in ("one", "several"))


def of_each(name: str, one: list, several: list):
    """A test of cases of either graph."""
    cases = [*(("one", case) for case in one), *(("several", case) for case in several)]
    return pytest.mark.parametrize(("links", name), cases, indirect=["links"], ids=str)


@pytest.fixture(scope="module")
def run(links, tmp_path_factory) -> Path:
    """A run whose validation and test read all neighbours, and which ranks among all targets, too."""
    out = tmp_path_factory.mktemp("runs") / "run"
    links.train(out, *ALL_NEIGHBOURS, "--metrics", "recall@20,map@5", "--monitor", "ndcg@5")
    return out


def test_links_are_learned(links, run):
    summary = json.loads((run / "summary.json").read_text())
    assert summary["task"] == "link" and losses(summary)[-1] < losses(summary)[0]
    assert summary["test_metrics"]["mrr"] > (2 if len(links.counts) == 1 else 3) * CHANCE
    assert summary["val_metrics"] == summary["epochs"][summary["best_epoch"]]["val_metrics"]
    values = [epoch["val_metrics"]["ndcg@5"] for epoch in summary["epochs"]]
    assert summary["best_epoch"] == np.argmax(values) and next(iter(summary["val_metrics"])) == "ndcg@5"
    num_edges = package.dataset.open(links.data).edge_types[links.relation].num_edges
    assert all(epoch["num_seeds"] == num_edges for epoch in summary["epochs"]), "pairs, not their endpoints"


def test_a_scorer_has_the_rows_of_predict_and_the_best_targets(links, run, tmp_path):
    source, _, target = links.relation
    rows = links.rows(run, tmp_path)
    sources = package.Scorer(run, links.data)
    assert np.array_equal(sources.score([5, 0, 5]), np.float32(rows[source][[5, 0, 5]]))
    if source != target:
        assert np.array_equal(
            package.Scorer(run, links.data, node_type=target).score([7]), np.float32(rows[target][[7]])
        )
    options = ["--top-k", "5", "--device", "cpu", "--quiet", "--out", tmp_path / "best.npy"]
    ran("predict", run, links.data, *options)
    best, scores = sources.best_targets(range(20), 5)
    worker = Worker(lambda: sources, links.data / "meta.json", most_waiting=4, lost=pytest.fail)
    worker.start()
    request = Request(nodes=list(range(20)), output="targets", top_k=5)
    content, _ = answer_of(request, *worker.ask(request).result(timeout=60), accept="")
    worker.stop()
    answer = json.loads(content)
    assert answer["targets"] == best and np.array_equal(answer["scores"], np.float32(scores))
    assert best == [[id for id in row if id >= 0] for row in np.load(tmp_path / "best.npy")[:20].tolist()]
    of_pairs = np.einsum("ij,ikj->ik", rows[source][:20], rows[target][np.array(best)])
    np.testing.assert_allclose(np.array(scores), of_pairs, rtol=1e-4, atol=1e-4)
    everything = sources.best_targets([0], links.counts[target], exclude_seen=False)[0][0]
    assert len(everything) == links.counts[target] - (source == target) and set(best[0]) < set(everything)
    ran("predict", run, links.data, *options[:-1], tmp_path / "best.parquet")
    table = pd.read_parquet(tmp_path / "best.parquet")
    for node in (0, 7, 19):  # whoever else is asked about, to the last bit
        own = table[table["source"] == node]
        (targets,), (of_targets,) = sources.best_targets([node], 5)
        assert targets == own["target"].tolist() and of_targets == own["score"].tolist() == scores[node]
    for wrong, words in (
        ({"k": 0}, "k: expected an integer of at least 1, found 0"),
        ({"k": 2.5}, "k: expected an integer of at least 1, found 2.5"),
        ({"k": 2, "exclude_seen": "no"}, "exclude_seen: expected true or false, found 'no'"),
    ):
        with pytest.raises(package.CohortError, match=words):
            sources.best_targets([0], **wrong)
    if source != target:
        with pytest.raises(package.CohortError, match="its sources, found with node_type item"):
            package.Scorer(run, links.data, node_type=target).best_targets([0], 1)


@only_one
def test_a_new_source_has_seen_what_its_request_says(links, run):
    edges = {"source": [400, *range(0, 90, 10)], "target": [3, *[400] * 9]}
    new = {"new_nodes": {"x": torch.zeros(1, 10)}, "new_edges": edges}
    scorer, seen = package.Scorer(run, links.data), {3, *range(0, 90, 10)}
    best = scorer.best_targets([400], 30, **new)[0][0]
    every = scorer.best_targets([400], 400, **new, exclude_seen=False)[0][0]
    assert len(best) == 30 and not seen & set(best) and len(every) == 400


def test_metrics_are_those_of_the_rows_that_predict_writes(links, run, tmp_path):
    rows = links.rows(run, tmp_path)
    assert {name: found.shape for name, found in rows.items()} == {name: (n, 16) for name, n in links.counts.items()}
    more, words = ["--classes"], "--classes: expected a run that learned classes"
    if len(rows) > 1:
        more, words = [], "--node-type: expected user or item, found none"
    refused(cohort("predict", run, links.data, "--device", "cpu", "--out", tmp_path / "no.npy", *more), 1, words)
    words = "--out: expected .npy or .parquet, for rows of a model that predicts links, found no.csv"
    of_type = ["--node-type", "user"] if len(rows) > 1 else []
    refused(cohort("predict", run, links.data, "--device", "cpu", "--out", tmp_path / "no.csv", *of_type), 1, words)
    summary = json.loads((run / "summary.json").read_text())
    source, _, target = links.relation
    for split, held in held_out(links.data).items():
        sources = rows[source][held.pairs[:, 0]]
        own = (sources * rows[target][held.pairs[:, 1]]).sum(1)
        others = np.einsum("nd,nkd->nk", sources, rows[target][held.negatives])
        expected = metrics_of(own, others)
        assert {name: summary[f"{split}_metrics"][name] for name in expected} == pytest.approx(expected, rel=2e-3)
    _demand_ranks_of_pyg(links, rows, summary)
    assert "ndcg@5 in the test" in ran("report", run).stdout


def _demand_ranks_of_pyg(links: Links, rows: dict[str, np.ndarray], summary: dict) -> None:
    """Ranks among all targets are those that metrics of PyG find in the rows; scikit-learn has NDCG, too."""
    source, _, target = links.relation
    edges = link_edges(package.dataset.open(links.data))
    seen = np.eye(links.counts[source], dtype=bool) if edges.is_within_one_type else np.zeros((USERS, ITEMS), bool)
    seen[tuple(edges.endpoints())] = True
    scores = np.where(seen, -np.inf, rows[source] @ rows[target].T)
    for split, held in held_out(links.data).items():
        sources, place = np.unique(held.pairs[:, 0], return_inverse=True)
        is_held = np.zeros((len(sources), links.counts[target]), bool)
        is_held[place, held.pairs[:, 1]] = True
        best = torch.from_numpy(np.argsort(-scores[sources], axis=1)[:, :20].copy())
        pyg = {"ndcg@5": LinkPredNDCG(5), "recall@20": LinkPredRecall(20), "map@5": LinkPredMAP(5)}
        for metric in pyg.values():
            metric.update(best[:, : metric.k], torch.from_numpy(np.array(is_held.nonzero())))
        expected = {name: metric.compute().item() for name, metric in pyg.items()}
        measured = summary[f"{split}_metrics"]
        assert {name: measured[name] for name in pyg} == pytest.approx(expected, abs=1e-6)
        finite = np.where(np.isinf(scores[sources]), -1e9, scores[sources])
        assert measured["ndcg@5"] == pytest.approx(ndcg_score(is_held, finite, k=5), abs=1e-6)


@only_one
def test_ranks_among_all_targets_need_scores_that_are_products(links, tmp_path):
    how = [*OPTIONS, "--decoder", "mlp", "--metrics", "mrr,recall@20", "--out", tmp_path / "run"]
    refused(here("train", links.data, *how), 1, "--metrics recall@20: expected --decoder dot or distmult, found")
    refused(here("train", links.data, "--metrics", "recal@20"), 2, "did you mean recall@20?")
    refused(here("train", links.data, "--metrics", "recall@0"), 2, "recall@K")


@only_one
def test_hits_that_too_few_negatives_make_certain_are_told(links, tmp_path):
    split_links(links.whole, tmp_path / "set", negatives=10)
    how = ["train", tmp_path / "set", *OPTIONS, "--epochs", "1", "--out", tmp_path / "run"]
    words = "--monitor hits@20: expected as many negatives of each held-out link, found fewer"
    refused(here(*how, "--monitor", "hits@20"), 1, words)
    few = ran(*how, "--monitor", "hits@10")
    assert "hits@20, hits@50, hits@100 are 100 % of any model" in few.stdout + few.stderr
    enough = ran("train", links.data, *how[2:-1], tmp_path / "other")
    assert "of any model" not in enough.stdout + enough.stderr


@only_several
def test_a_loaded_model_and_the_best_targets_of_a_relation_follow_from_the_rows(links, run, tmp_path):
    rows, graph = links.rows(run, tmp_path), package.dataset.open(links.data)
    ran("predict", run, links.data, "--device", "cpu", "--out", tmp_path / "best.npy", "--top-k", ITEMS, "--quiet")
    best, bought = np.load(tmp_path / "best.npy"), graph.edge_types[BUYS]
    scores = rows["user"] @ rows["item"].T
    scores[bought.indices, np.repeat(np.arange(ITEMS), np.diff(bought.indptr))] = -np.inf
    assert best.shape == (USERS, ITEMS) and ((best == -1).sum(1) == np.isinf(scores).sum(1)).all()
    of_best = np.where(best == -1, -np.inf, np.take_along_axis(scores, best, 1))
    np.testing.assert_allclose(of_best, -np.sort(-scores, 1), rtol=1e-4, atol=1e-4)
    model, data = package.load_model(run), graph.to_pyg()
    with torch.no_grad():
        found = model({"user": torch.arange(USERS), "item": data["item"].x}, data.edge_index_dict)
        assert model.link_decoder(found["user"][:5], found["item"][:5]).shape == (5,)
    for name, expected in rows.items():
        np.testing.assert_allclose(found[name].numpy(), expected, rtol=1e-3, atol=1e-4)


def best_of(rows: np.ndarray, others: np.ndarray, left_out: np.ndarray, k: int) -> np.ndarray:
    """int64 [n, k], the best of `others` for each row less those of the mask; -1 where there are no more."""
    scores = np.where(left_out, -np.inf, rows @ others.T)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return np.where(np.isinf(np.take_along_axis(scores, order, 1)), -1, order)


@only_one
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("pieces", [None, (64, 48)])
def test_the_best_targets_of_each_node_are_no_neighbours_yet(links, run, tmp_path, monkeypatch, device, pieces):
    how = ["--device", device, "--quiet"]
    if pieces:
        monkeypatch.setattr(best_targets, "SOURCES", pieces[0])
        monkeypatch.setattr(best_targets, "TARGETS", pieces[1])
    job = {"run": str(run), "dataset": str(links.data), "classes": False, "node_type": None, "device": device}
    job |= {"memory_bytes": 1 << 30, "quiet": True, "out": str(tmp_path / "best.npy"), "top_k": 390}
    job |= {"exclude_seen": True, "nodes": None, "threshold": None, "at_time": None}
    job |= {"keep": None, "update": None}
    program.predict_nodes(job)
    ran("predict", run, links.data, *how, "--out", tmp_path / "rows.npy")
    rows, found = np.load(tmp_path / "rows.npy"), np.load(tmp_path / "best.npy")
    left_out, data = np.eye(400, dtype=bool), package.dataset.open(links.data)
    left_out[np.asarray(data.indices), np.repeat(np.arange(400), np.diff(data.indptr))] = True
    expected = best_of(rows.astype(np.float64), rows.astype(np.float64), left_out, 390)
    assert found.dtype == np.int64 and (found[:, -1] == -1).any(), "some have so many neighbours"
    assert ((found == -1) == (expected == -1)).all()
    assert (np.sort(found, 1) == np.sort(expected, 1)).mean() > 0.999
    of_found, of_expected = (np.einsum("nd,nkd->nk", rows, rows[each]) for each in (found, expected))
    np.testing.assert_allclose(of_found, of_expected, rtol=1e-4, atol=1e-4)
    if not pieces:
        ran("predict", run, links.data, *how, "--out", tmp_path / "few.npy", "--top-k", 5)
        assert np.array_equal(np.load(tmp_path / "few.npy"), found[:, :5])
        ran("predict", run, links.data, *how, "--out", tmp_path / "few.parquet", "--top-k", 5, "--no-exclude-seen")
        table = pd.read_parquet(tmp_path / "few.parquet")
        assert (
            np.array_equal(table["source"], np.repeat(np.arange(400), 5)) and (table["rank"][:5] == range(1, 6)).all()
        )
        expected = best_of(rows.astype(np.float64), rows.astype(np.float64), np.eye(400, dtype=bool), 5)
        assert (np.sort(table["target"].to_numpy().reshape(400, 5), 1) == np.sort(expected, 1)).mean() > 0.99
        scores = np.einsum("nd,nd->n", rows[table["source"]], rows[table["target"]])
        np.testing.assert_allclose(table["score"], scores, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_of_equal_scores_the_first_targets_are_the_best(device, monkeypatch):
    """So those for 5 are the first of those for 10, which topk alone does not say."""
    generator = torch.Generator().manual_seed(5)
    query, targets = (torch.randint(-1, 2, (n, 3), generator=generator).float() for n in (9, 1000))
    scores = query @ targets.t()
    left_out = torch.randint(9, (4000,), generator=generator), torch.randint(1000, (4000,), generator=generator)
    scores[left_out] = -torch.inf
    expected = scores.argsort(dim=1, descending=True, stable=True)
    monkeypatch.setattr(best_targets, "TIED", 2)
    for k, targets_at_once in ((5, 1 << 14), (10, 300), (10, 7), (1000, 300)):
        monkeypatch.setattr(best_targets, "TARGETS", targets_at_once)
        ids, found = best_targets.best_of(query.to(device), targets, k, left_out)
        of_expected = scores.gather(1, expected[:, :k])
        assert torch.equal(found.cpu(), of_expected)
        assert torch.equal(ids.cpu(), expected[:, :k].masked_fill(of_expected == -torch.inf, -1))


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_targets_are_not_chosen_by_what_are_no_numbers(wrong):
    """As of weights that diverged: topk would take NaN for the largest score."""
    targets, none = np.ones((30, 4), np.float32), (torch.zeros(0, dtype=torch.int64),) * 2
    targets[7, 2] = wrong
    with pytest.raises(CohortError, match="scores: expected finite numbers.*\n.*smaller --lr"):
        best_targets.best_alone(torch.ones(2, 4), targets, 3, none)
    left_out = torch.tensor([0, 1]), torch.tensor([7, 7])
    assert best_targets.best_alone(torch.ones(2, 4), targets, 3, left_out)[1].tolist() == [[4, 4, 4]] * 2


def test_edges_of_one_node_type_link_both_ends(tmp_path):
    edges = torch.tensor([[0, 0, 3], [1, 2, 1]])
    graph = package.from_tensors(tmp_path / "graph", x=torch.ones(4, 2), edge_index=edges)
    known = best_targets.Known.from_edges(link_edges(package.dataset.open(graph)))
    assert [sorted(known.among(np.array([node]))[1].tolist()) for node in range(4)] == [[1, 2], [0, 3], [0], [1]]
    source, target = known.among(np.array([2, 1]))
    assert source.tolist() == [0, 1, 1] and target[0] == 0 and sorted(target[1:].tolist()) == [0, 3]


@only_one
def test_what_top_k_does_not_go_with(links, run, tmp_path):
    for k, options, words in (
        (3, ["--classes"], "--top-k: expected no --classes and no --node-type beside it"),
        (3, ["--node-type", "x"], "--top-k: expected no --classes and no --node-type beside it"),
        (401, ["--device", "cpu"], "--top-k: expected at most 400, the number of targets, found 401"),
    ):
        command = cohort if k > 400 else here  # which the program itself says
        refused(command("predict", run, links.data, "--out", tmp_path / "best.npy", "--top-k", k, *options), 1, words)
    with pytest.raises(CohortError, match="expected a run with --decoder dot or distmult, found --decoder mlp"):
        best_targets.queries_of(LinkDecoder("mlp", 4), torch.zeros(1, 4))
    assert not (tmp_path / "best.npy").exists()
    for flag in ("--exclude-seen", "--no-exclude-seen"):
        lonely = here("predict", run, links.data, "--out", tmp_path / "rows.npy", "--node-type", "user", flag)
        refused(lonely, 1, "--exclude-seen: expected --top-k beside it")


@only_one
def test_another_decoder_loss_and_model_learn_and_are_loaded(links, tmp_path):
    summary = links.train(tmp_path / "run", "--epochs", 4, "--decoder", "mlp", "--loss", "margin", "--model", "gat")
    assert losses(summary)[-1] < losses(summary)[0] and summary["test_metrics"]["mrr"] > 1.2 * CHANCE
    model, whole = package.load_model(tmp_path / "run"), package.dataset.open(links.data).to_pyg()
    with torch.no_grad():
        rows = model(whole.x, whole.edge_index)
        assert model.link_decoder(rows[:5], rows[5:10]).shape == (5,)
    assert any(parameter.abs().sum() > 0 for parameter in model.link_decoder.parameters())


@only_several
@pytest.mark.parametrize("relation", ["like", *["item:rev_buys:user"] * ALL_TESTS])
def test_other_relations_learn_also_within_one_type(links, tmp_path, relation):
    graph = split_links(links.whole, tmp_path / "data", relation=relation, shares=(0.1, 0.1))
    summary = link_runs.train(graph, tmp_path / "run", *TYPED, "--epochs", 5)
    assert losses(summary)[-1] < losses(summary)[0] and summary["test_metrics"]["mrr"] > 2 * CHANCE
    if relation == "like":
        out = tmp_path / "rows.npy"
        ran("predict", tmp_path / "run", graph, "--device", "cpu", "--out", out, "--quiet")
        assert np.load(out).shape == (ITEMS, 16)


@only_one
def test_links_may_compete_with_the_same_pairs(links, tmp_path):
    """As those of OGB do; two ranks share the links, and their sources."""
    mine = shutil.copytree(links.data, tmp_path / "data")
    pairs = {
        split: (held.pairs, np.stack([held.pairs[:, 0], held.negatives[:, 0]], 1))
        for split, held in held_out(links.data).items()
    }
    write_links(mine, **pairs, shared=True)
    options = ["--epochs", 3, "--eval-fanout=-1,-1", "--ranks", 2, "--metrics", "ndcg@5"]
    found = link_runs.train(mine, tmp_path / "run", *options)
    ran("predict", tmp_path / "run", mine, "--device", "cpu", "--out", tmp_path / "rows.npy", "--quiet")
    rows = np.load(tmp_path / "rows.npy").astype(np.float64)
    own, others = ((rows[ends[:, 0]] * rows[ends[:, 1]]).sum(1) for ends in pairs["test"])
    above = (others[None] > own[:, None]).sum(1)
    assert found["test_metrics"]["hits@20"] == pytest.approx(np.mean(above < 20), abs=0.01)
    assert found["test_metrics"]["mrr"] > CHANCE and found["test_metrics"]["ndcg@5"] > 0


OTHER_MODELS = [["--model", "rgcn", "--loss", "margin"], ["--model", "hgt"]] * ALL_TESTS


@of_each("more", [[]] * ALL_TESTS, [["--model", "rgat", "--decoder", "distmult"], *OTHER_MODELS])
def test_models_learn_the_same_with_both_kinds_of_layers(links, tmp_path, more):
    epochs = {"cohort": 2, "pyg": 2 if ALL_TESTS else 1} if more else {"cohort": 2, "pyg": 2}
    own, pyg = (
        links.train(tmp_path / layers, "--epochs", count, "--layers", layers, *more) for layers, count in epochs.items()
    )
    assert losses(own)[: epochs["pyg"]] == pytest.approx(losses(pyg), rel=1e-3)
    if more:
        assert losses(own)[-1] < losses(own)[0] and own["test_metrics"]["mrr"] > 2 * CHANCE
    else:
        assert own["test_metrics"]["mrr"] == pytest.approx(pyg["test_metrics"]["mrr"], rel=0.05)


@of_each("more", [["--layers", "pyg"]] * ALL_TESTS, [[]])
def test_a_cache_is_planned_for_all_endpoints_and_ranks_agree(links, tmp_path, more):
    options = ["--epochs", 1, "--ranks", 2, *more]
    without = links.train(tmp_path / "without", *options)
    summary = links.train(tmp_path / "with", *options, "--cache-ratio", 0.5)
    assert losses(summary) == losses(without)
    planned = json.loads((tmp_path / "with" / "plan.json").read_text())["ranks"][0]["topology"]
    assert 0 < planned["lists"] < sum(links.counts.values()), "lists, which are shorter than rows here"
    least = 0.3 if len(links.counts) == 1 else 0.1
    assert all(least < rank["list_hit_rate"]["local"] < 1 for rank in summary["cache"]["predicted"])


@pytest.mark.gpu
@only_one
@pytest.mark.parametrize("ratio", [0.3, 1.1, pytest.param("auto", marks=pytest.mark.alone)])
def test_a_cache_on_a_gpu_changes_no_loss(links, tmp_path, ratio):
    options = ["--epochs", 3, "--device", "cuda", "--topology", "host"]
    without = links.train(tmp_path / "without", *options)
    summary = links.train(tmp_path / "with", *options, "--cache-ratio", ratio)
    assert losses(summary) == losses(without)
    for rank in summary["cache"]["measured"]:
        assert max(rank["hit_rate"]["local"], rank["list_hit_rate"]["local"]) > 0


OF_ONE = [[], ["--no-reuse"], ["--layers", "pyg"], ["--decoder", "mlp", "--model", "gcn"], ["--loss", "softmax"]]
OF_ONE += [["--negatives", 3]]
OF_SEVERAL = [["--model", model] for model in ("rsage", "rgcn", "rgat", "hgt")]


@pytest.mark.gpu
@of_each("more", OF_ONE, OF_SEVERAL)
def test_a_gpu_trains_the_same(links, tmp_path, more):
    cpu, gpu = (links.train(tmp_path / device, "--epochs", 3, *more, "--device", device) for device in ("cpu", "cuda"))
    assert losses(gpu) == pytest.approx(losses(cpu), rel=2e-3)
    assert gpu["test_metrics"]["mrr"] == pytest.approx(cpu["test_metrics"]["mrr"], rel=0.1)
    sizes = [[[epoch[f"num_{what}"] for what in ("seeds", "edges")] for epoch in run["epochs"]] for run in (cpu, gpu)]
    assert sizes[0] == sizes[1], "the same batches"


@only_one
def test_without_held_out_links_the_task_is_to_be_named(links, tmp_path):
    summary = link_runs.train(links.whole, tmp_path / "run", "--epochs", 1, "--task", "link")
    assert summary["val_metrics"] == summary["test_metrics"] == {} and losses(summary)[0] > 0
    done = cohort("train", links.whole, *OPTIONS, "--out", tmp_path / "other")
    refused(done, 1, "at least one node to train on")


@only_one
def test_a_run_does_not_go_on_with_other_links(links, tmp_path):
    options = {"device": "cpu", "fanout": [3], "hidden": 4, "epochs": 1, "batch_size": 512, "quiet": True}
    mine = split_links(links.whole, tmp_path / "data", seed=3)
    package.train(mine, tmp_path / "run", **options)
    np.save(mine / "val_negatives.npy", np.array(held_out(mine)["val"].negatives)[:, ::-1])
    refused(cohort("train", "--resume", tmp_path / "run", "--epochs", 2), 1, "found one with other links")
    refused(cohort("train", "--resume", tmp_path / "run", "--task", "node"), 1, "--task: expected link, as")


NO_MODEL_OF_ONE = "--model: expected sage, gcn, gat or graphconv, for the types of"


@of_each(
    "case",
    [
        (["--task", "node", "--decoder", "mlp", "--loss", "margin"], "--decoder, --loss: expected --task link"),
        (["--task", "node", "--negatives-from", "batch"], "--negatives-from: expected --task link"),
        (["--partition"], "--partition: expected --task node, found --task link"),
        (["--negatives", "10001"], "--negatives: expected at most 10000, found 10001"),
        (["--model", "rsage"], NO_MODEL_OF_ONE),
    ],
    [
        (["--relation", "rents"], "--relation: expected the name of one relation, or source:name:target"),
        (["--task", "node", "--relation", "buys"], "--relation: expected --task link"),
        (["--partition"], "--partition: expected --task node"),
        (["--model", "sage"], "--model: expected rsage, rgcn, rgat or hgt"),
    ],
)
def test_options_that_do_not_fit_are_refused(links, tmp_path, case):
    (arguments, words), graph = case, links.data
    if "node" in arguments:  # a graph whose nodes have labels
        kind = "sbm" if len(links.counts) == 1 else "typed"
        sizes = ["--nodes", "300", "--edges", "900", "--dim", "8", "--classes", "3", "--kind", kind]
        graph = tmp_path / "labelled"
        assert main(["dataset", "generate", str(graph), *sizes]) == 0
    given = [*map(str, [*OPTIONS, *links.options]), *arguments, "--out", str(tmp_path / "run")]
    refused(here("train", graph, *given), 1, words)
    assert not (tmp_path / "run").exists()


def test_an_end_that_no_relation_leads_to_is_told(tmp_path, capsys):
    data = HeteroData()
    data["user"].x, data["item"].x = torch.rand(9, 2), torch.rand(8, 2)
    data[BUYS].edge_index = torch.randint(8, (2, 30))
    graph = package.from_pyg(data, tmp_path / "shop", target="item")
    given = ["--task", "link", *map(str, [*OPTIONS, *TYPED]), "--out", str(tmp_path / "run")]
    assert main(["train", str(graph), *given]) == 1
    told = " ".join(capsys.readouterr().err.split())
    assert "--task link: expected relations into both ends of user buys item, found none into user" in told
    assert "--reverse-edges" in told
