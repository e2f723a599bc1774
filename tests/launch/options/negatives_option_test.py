"""Where `cohort train` of models that predict links takes negatives from."""

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from link_runs import CHANCE, OPTIONS, losses, train
from processes import ALL_TESTS, cohort, here, refused
from resumable import demand_going_on
from torch_geometric.data import HeteroData
from torch_geometric.sampler import NegativeSampling

import cohort_gnn as package
from cohort_gnn.dataset import split_links
from cohort_gnn.trainer.loader.node_weights import degree_weights

pytestmark = pytest.mark.usefixtures("shm")
KINDS = ["uniform", "degree", "degree:0.3", "batch"]


@pytest.fixture(scope="module")
def graph(tmp_path_factory) -> Path:
    """Ten groups of 40 nodes with links inside the groups, most of them to the first nodes of a group."""
    folder = tmp_path_factory.mktemp("popular")
    generator = torch.Generator().manual_seed(7)
    group, source = torch.arange(400) % 10, torch.randint(400, (3000,), generator=generator)
    popular = (40 * torch.rand(3000, generator=generator) ** 3).long()
    edges = torch.stack([source, source % 10 + 10 * popular])
    x = F.one_hot(group, 10) + 0.8 * torch.randn(400, 10, generator=generator)
    return split_links(
        package.from_tensors(folder / "whole", x=x, edge_index=edges), folder / "data", shares=(0.1, 0.1)
    )


@pytest.fixture(scope="module")
def shop(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("shop")
    generator = torch.Generator().manual_seed(8)
    shop, user = HeteroData(), torch.randint(200, (2000,), generator=generator)
    shop["user"].num_nodes = 200
    shop["item"].x = torch.randn(100, 6, generator=generator)
    item = user % 10 + 10 * (10 * torch.rand(2000, generator=generator) ** 2).long()
    shop["user", "buys", "item"].edge_index = torch.stack([user, item])
    return package.from_pyg(shop, folder / "data", reverse_edges=True, target="item")


def loaded(data, kind: str, pairs=None) -> tuple[int, int]:
    """Nodes and edges of the batches of the first epoch, as a loader makes them."""
    graph = package.dataset.open(data)
    lists = graph.edge_types[pairs[0]] if pairs else graph
    name, _, power = kind.partition(":")
    negatives = {"mode": "in_batch", "amount": 2} if name == "batch" else NegativeSampling("triplet", 2)
    if name == "degree":
        degrees = torch.from_numpy(np.diff(lists.indptr)).double()
        weights = degrees ** float(power or 0.75) * (degrees > 0)
        negatives = NegativeSampling("triplet", 2, dst_weight=weights)
    how = {"batch_size": 64, "shuffle": True, "reject_edges": True, "device": "cpu"}
    counts = np.zeros(2, int)
    with package.LinkNeighborLoader(graph, [6, 6], pairs, neg_sampling=negatives, **how) as loader:
        for batch in loader:
            of_types = [[store.num_nodes, 0] for store in batch.node_stores]
            of_types += [[0, store.edge_index.size(1)] for store in batch.edge_stores]
            counts += np.sum(of_types, axis=0)
    return tuple(counts.tolist())


def sizes_of(summary: dict) -> tuple[int, int]:
    return summary["epochs"][0]["num_nodes"], summary["epochs"][0]["num_edges"]


@pytest.fixture(scope="module")
def summaries(graph, tmp_path_factory) -> dict[str, dict]:
    """Of runs that differ in their negatives; they learn next to nothing."""
    out = tmp_path_factory.mktemp("runs")
    how = ["--layers", "pyg", "--epochs", 1, "--lr", 1e-12, "--negatives", 2]  # of PyG, which counts all nodes
    return {kind: train(graph, out / kind, *how, "--negatives-from", kind) for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
def test_batches_are_those_of_a_loader(graph, summaries, kind):
    assert sizes_of(summaries[kind]) == loaded(graph, kind)


def test_validation_and_test_are_the_same_whatever_trains(summaries):
    assert len({sizes_of(summary) for summary in summaries.values()}) == len(KINDS)
    for name in ("val_metrics", "test_metrics"):
        assert all(summary[name] == summaries["uniform"][name] for summary in summaries.values())
    assert len({losses(summary)[0] for summary in summaries.values()}) == len(KINDS)


@pytest.mark.parametrize("kind", ["degree:1", "batch"])
def test_negatives_of_a_relation_are_those_of_a_loader(shop, tmp_path, kind):
    options = ["--task", "link", "--relation", "buys", "--model", "rsage", "--featureless", "embed", "--negatives", 2]
    summary = train(shop, tmp_path / "run", *options, "--epochs", 1, "--negatives-from", kind)
    assert sizes_of(summary) == loaded(shop, kind, (("user", "buys", "item"), None))


@pytest.mark.parametrize("kind", ["degree", "batch"])
def test_links_are_learned_and_ranks_share_the_batches(graph, tmp_path, kind):
    options = ["--negatives-from", kind, "--loss", "softmax", "--negatives", 3, "--epochs", 6]
    one = train(graph, tmp_path / "one", *options)
    assert losses(one)[-1] < losses(one)[0] and one["test_metrics"]["mrr"] > 1.5 * CHANCE
    two = train(graph, tmp_path / "two", *options[:-1], 1, "--ranks", 2)
    assert two["epochs"][0]["num_edges"] == one["epochs"][0]["num_edges"]


@pytest.mark.skipif(not ALL_TESTS, reason="like that of link_run_test: tests/run.sh --all runs it")
@pytest.mark.parametrize("more", [["degree", "--ranks", 2], ["batch"]], ids=lambda more: more[0])
def test_a_run_that_is_told_to_stop_goes_on_in_the_middle_of_an_epoch(graph, tmp_path, more):
    demand_going_on(graph, tmp_path, *OPTIONS, "--epochs", 6, "--checkpoint-every", 7, "--negatives-from", *more)
    again = cohort("train", "--resume", tmp_path / "run", "--negatives-from", "uniform")
    refused(again, 1, f"--negatives-from: expected {more[0]}, as")


def test_weights_of_degrees():
    indptr = np.array([0, 0, 1, 17, 17, 10**7])
    weights = degree_weights(indptr, "0.75")
    assert weights.tolist() == [0, 1, 8, 0, pytest.approx((10**7 - 17) ** 0.75, rel=1e-15)]
    assert degree_weights(indptr, "0").tolist() == [0, 1, 1, 0, 1]
    assert degree_weights(indptr, "1").tolist() == np.diff(indptr).tolist()
    assert degree_weights(np.array([0]), "1").tolist() == []


@pytest.mark.parametrize("value", ["degree:", "degree:-1", "degree:10", "degree:.5", "batch:1", "in_batch"])
def test_other_places_are_refused(graph, tmp_path, value):
    done = here("train", graph, *OPTIONS, "--negatives-from", value, "--out", tmp_path / "run")
    expected = "uniform, degree, degree:P (0 <= P < 10) or batch"
    assert done.returncode == 2 and f"--negatives-from: expected {expected}, found {value}" in done.stderr
