"""Loaders that draw neighbours by weight: equal to a slow sampler in Python; what they refuse."""

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from batches import expect_same, expect_same_passes
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from processes import ALL_TESTS, cohort
from sets import write_papers
from slow_pairs import expect_pairs
from slow_sampler import expect_batch, weighted_positions

from cohort_gnn import CohortError, LinkNeighborLoader, NeighborLoader
from cohort_gnn.dataset import from_tensors
from cohort_gnn.dataset import open as open_dataset
from cohort_gnn.spec.graph import EDGE_TYPE, NODE_TYPE

pytestmark = pytest.mark.usefixtures("shm")
EXAMPLES = 100 if ALL_TESTS else 15
BY_WEIGHT = {"weight_attr": "edge_weight", "device": "cpu", "edge_ids": True}


def write(folder: Path, num_nodes: int, edges: np.ndarray, weights: np.ndarray) -> Path:
    x, y = np.zeros((num_nodes, 3), np.float32), np.zeros(num_nodes, np.int64)
    from_tensors(folder, x=x, y=y, edge_index=edges, edge_weight=weights)
    return folder


def random_graph(folder: Path, num_nodes: int, most_degree: int, seed: int) -> Path:
    """Of mixed degrees, with weights of every size; some are 0, and so are all of some lists."""
    random = np.random.default_rng(seed)
    targets = np.repeat(np.arange(num_nodes), random.integers(most_degree + 1, size=num_nodes))
    edges = np.stack([random.integers(num_nodes, size=len(targets)), targets])
    weights = np.exp(random.normal(scale=4, size=len(targets)))
    weights[random.random(len(targets)) < 0.2] = 0
    weights[targets % 7 == 2] = 0
    return write(folder, num_nodes, edges, weights.astype(np.float32))


@st.composite
def questions(draw):
    fanout = draw(st.lists(st.sampled_from([-1, 0, 1, 2, 5, 40]), min_size=1, max_size=3))
    return draw(st.integers(2, 30)), draw(st.sampled_from([4, 12, 90])), fanout, draw(st.integers(0, 2**32))


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(question=questions())
def test_batches_are_those_of_a_slow_sampler(tmp_path_factory, question):
    num_nodes, most_degree, fanout, seed = question
    graph = open_dataset(random_graph(tmp_path_factory.mktemp("weights") / "set", num_nodes, most_degree, seed))
    fanouts, by_weight = {EDGE_TYPE: fanout}, {"by_weight": weighted_positions}
    with NeighborLoader(graph, fanout, batch_size=4, seed=seed, **BY_WEIGHT) as loader:
        for step, batch in enumerate(loader):
            seeds = {NODE_TYPE: range(step * 4, min(step * 4 + 4, num_nodes))}
            expect_batch(graph, batch, fanouts, seeds, (seed, 0, step), **by_weight)
    if graph.num_edges == 0:
        return
    with LinkNeighborLoader(graph, fanout, batch_size=7, seed=seed, exclude="self", **BY_WEIGHT) as loader:
        how = {"mode": "none", "amount": 0, "redraws": 0, "exclude": "self"}
        pairs = list(map(tuple, graph.edge_types[EDGE_TYPE].edge_index().T.tolist()))
        for step, batch in zip(range(4), loader, strict=False):
            of_batch = pairs[step * 7 : step * 7 + 7]
            expect_pairs(graph, batch, EDGE_TYPE, of_batch, how, fanouts, (seed, 0, step), **by_weight)


@pytest.fixture(scope="module")
def types(tmp_path_factory) -> Path:
    """Of two node types; the edges of two of three relations have weights."""

    def add_weights(name: str, store, random) -> None:
        if name != "of":
            store.edge_weight = torch.from_numpy(np.maximum(0, random.normal(size=800)).astype(np.float32))

    return write_papers(tmp_path_factory.mktemp("types") / "set", add_weights)


def test_several_types_have_weights_by_relation(types):
    graph = open_dataset(types)
    fanouts = {relation: [3, -1, 2] for relation in graph.edge_types}
    with NeighborLoader(graph, fanouts, "paper", batch_size=7, seed=3, **BY_WEIGHT) as loader:
        for step, batch in enumerate(loader):
            seeds = {"paper": range(step * 7, min(step * 7 + 7, 90))}
            expect_batch(graph, batch, fanouts, seeds, (3, 0, step), by_weight=weighted_positions)
            for name, relation in graph.edge_types.items():
                assert ("edge_weight" in batch[name]) == (relation.edge_weights is not None)


def test_draws_are_those_of_multinomial(tmp_path):
    """Two of six in-neighbours: how often each is drawn, against torch's draws without replacement."""
    draws, weights = 20_000, torch.tensor([5.0, 1, 0, 0.5, 3, 0.5])
    targets = np.repeat(np.arange(6, 6 + draws), 6)
    edges = np.stack([np.tile(np.arange(6), draws), targets])
    data = write(tmp_path / "set", 6 + draws, edges, np.tile(weights.numpy(), draws))
    with NeighborLoader(data, [2], np.arange(6, 6 + draws), batch_size=draws, **BY_WEIGHT) as loader:
        batch = next(iter(loader))
    found = torch.bincount(batch.n_id[batch.edge_index[0]], minlength=6)[:6]
    torch.manual_seed(1)
    expected = torch.bincount(torch.multinomial(weights.expand(draws, -1), 2).flatten(), minlength=6)
    assert found.sum() == 2 * draws and found[2] == 0
    assert (found - expected).abs().max() < 5 * (2 * draws * 0.25) ** 0.5


def test_weights_come_with_the_edges_and_a_state_knows_of_draws(tmp_path):
    graph = open_dataset(random_graph(tmp_path / "set", 40, 20, 1))
    with NeighborLoader(graph, [3, 2], **BY_WEIGHT) as loader:
        assert (next(iter(loader)).edge_weight > 0).all()
        state = loader.state_dict()
        assert loader.with_nodes([1, 2]).state_dict()["weight_attr"] == "edge_weight"
    with NeighborLoader(graph, [3, 2], device="cpu") as loader, pytest.raises(CohortError, match="weight_attr"):
        loader.load_state_dict(state)


def test_weights_that_are_none_are_refused(tmp_path):
    weights = np.array([1, 0, -1.5, 3, -7], np.float32)
    data = write(tmp_path / "set", 6, np.stack([np.arange(5), np.full(5, 5)]), weights)
    NeighborLoader(data, [1], device="cpu", edge_weights=True).close()
    with pytest.raises(CohortError, match=r"edge_weights.npy: expected .* at least 0, .* found -1.5 of edge 2"):
        NeighborLoader(data, [1], **BY_WEIGHT)


def test_other_names_are_refused(tmp_path):
    data = random_graph(tmp_path / "set", 10, 5, 1)
    with pytest.raises(CohortError, match="weight_attr: expected .*edge_weight"):
        NeighborLoader(data, [1], weight_attr="time", device="cpu")


@pytest.mark.gpu
@pytest.mark.parametrize("places", [{}, {"topology": "host", "cache_ratio": 0.3}], ids=["in the GPU", "host and cache"])
def test_a_gpu_makes_the_same_batches(tmp_path, places):
    data = random_graph(tmp_path / "set", 3000, 90, 5)
    how = BY_WEIGHT | {"batch_size": 500, "seed": 4}
    for fanout, make in itertools.product(([25, 10], [40, 3], [-1, 5]), (NeighborLoader, LinkNeighborLoader)):
        with make(data, fanout, **how) as on_cpu, make(data, fanout, **how | places | {"device": "cuda"}) as on_gpu:
            for _, expected, found in zip(range(8), on_cpu, on_gpu, strict=False):
                assert found.n_id.is_cuda
                expect_same(found, expected)


@pytest.mark.gpu
@pytest.mark.parametrize("places", [{}, {"topology": "host", "cache_ratio": 0.3}], ids=["in the GPU", "host and cache"])
def test_a_gpu_makes_the_same_batches_of_several_types(types, places):
    how = BY_WEIGHT | {"batch_size": 20, "edge_weights": True}
    on_cpu = NeighborLoader(types, [4, -1, 40], "paper", **how)
    with on_cpu, NeighborLoader(types, [4, -1, 40], "paper", **how | places | {"device": "cuda"}) as on_gpu:
        expect_same_passes(on_gpu, on_cpu)


def top(graph, node: int, k: int) -> list[int]:
    """Edges of a node's list by descending weight; of equal weights the first come first."""
    edges = range(graph.indptr[node], graph.indptr[node + 1])
    return sorted(edges, key=lambda edge: (-graph.edge_weights[edge], edge))[:k] if k >= 0 else list(edges)


@pytest.mark.parametrize("fanout", [[3, 2], [40, 1], [-1, 5], [0, 2]])
def test_the_top_of_each_list_are_its_greatest_weights(tmp_path, fanout):
    graph = open_dataset(random_graph(tmp_path / "set", 60, 30, 2))
    weights = np.round(np.minimum(graph.edge_weights, 5))  # many are equal
    targets = np.repeat(np.arange(60), np.diff(graph.indptr))
    graph = open_dataset(write(tmp_path / "ties", 60, np.stack([graph.indices, targets]), weights))
    with NeighborLoader(graph, fanout, batch_size=20, weight_strategy="top", **BY_WEIGHT) as loader:
        for batch in loader:
            nodes, hops = batch.n_id.tolist(), np.cumsum([0, *batch.num_sampled_nodes])
            expected = [
                edge
                for hop, k in enumerate(fanout)
                for node in nodes[hops[hop] : hops[hop + 1]]
                for edge in top(graph, node, k)
            ]
            assert batch.e_id.tolist() == expected
            assert batch.n_id[batch.edge_index[0]].tolist() == [graph.indices[edge] for edge in expected]
        state = loader.state_dict()
    with NeighborLoader(graph, fanout, batch_size=20, **BY_WEIGHT) as loader:
        with pytest.raises(CohortError, match="weight_strategy: expected 'random'"):
            loader.load_state_dict(state)


def test_pairs_are_left_out_of_the_top(tmp_path):
    edges = np.stack([np.arange(1, 6), np.zeros(5, np.int64)])
    data = write(tmp_path / "set", 6, edges, np.array([4, 9, 2, 9, 0], np.float32))
    how = {"exclude": "self", "weight_strategy": "top", **BY_WEIGHT}
    with LinkNeighborLoader(data, [2], torch.tensor([[2, 1], [0, 0]]), batch_size=2, **how) as loader:
        batch = next(iter(loader))
        assert batch.n_id[batch.edge_index[0]].tolist() == [4, 3]
    with LinkNeighborLoader(data, [9], torch.tensor([[4], [0]]), **how) as loader:
        batch = next(iter(loader))
        assert batch.n_id[batch.edge_index[0]].tolist() == [2, 1, 3, 5]


def test_a_strategy_needs_weights_and_a_word_that_is_one(tmp_path):
    data = random_graph(tmp_path / "set", 10, 5, 1)
    with pytest.raises(CohortError, match="weight_strategy: expected random, without weight_attr, found top"):
        NeighborLoader(data, [1], device="cpu", weight_strategy="top")
    with pytest.raises(CohortError, match="weight_strategy: expected random or top, found 'topk'"):
        NeighborLoader(data, [1], **BY_WEIGHT, weight_strategy="topk")


def test_commands_draw_the_top(tmp_path):
    data = random_graph(tmp_path / "set", 50, 20, 3)
    digest = ("digest", data, "--device", "cpu", "--fanout", "4,3", "--batch-size", 10)
    found = [cohort(*digest, *how) for how in ([], ["--weight-attr", "edge_weight"])]
    found.append(cohort(*digest, "--weight-attr", "edge_weight", "--weight-strategy", "top"))
    assert [each.returncode for each in found] == [0, 0, 0], found[-1].stderr
    assert len({each.stdout for each in found}) == 3
    refused = cohort(*digest, "--weight-strategy", "top")
    assert refused.returncode != 0 and "--weight-attr edge_weight" in refused.stderr
