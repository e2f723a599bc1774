"""Negatives that LinkNeighborLoader draws by the weights of nodes, or takes from the other pairs of a batch."""

import math

import numpy as np
import pytest
import torch
from slow_pairs import units_of
from torch_geometric.sampler import NegativeSampling

from cohort_gnn import CohortError, LinkNeighborLoader, from_tensors
from cohort_gnn.trainer.loader import node_weights
from cohort_gnn.trainer.loader.node_weights import weight_sums

pytestmark = pytest.mark.usefixtures("shm")
NODES = 400


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    generator = torch.Generator().manual_seed(1)
    edges = torch.randint(NODES, (2, 3000), generator=generator)
    return from_tensors(tmp_path_factory.mktemp("weights") / "data", x=torch.ones(NODES, 1), edge_index=edges)


def loader_of(data, negatives, pairs=None, **options) -> LinkNeighborLoader:
    pairs = torch.zeros(2, 100, dtype=torch.int64) if pairs is None else pairs
    how = {"num_neighbors": [1], "batch_size": 500, "device": "cpu", "neg_sampling": negatives} | options
    return LinkNeighborLoader(data, edge_label_index=pairs, **how)


def weights_of(seed: int) -> torch.Tensor:
    """From 0.01 to 100, a quarter of them 0."""
    generator = torch.Generator().manual_seed(seed)
    weights = 10 ** (4 * torch.rand(NODES, generator=generator) - 2)
    return weights * (torch.rand(NODES, generator=generator) > 0.25)


def test_scaled_weights_draw_the_same_and_others_do_not(graph):
    def drawn(weights) -> torch.Tensor:
        with loader_of(graph, NegativeSampling("binary", 1, dst_weight=weights)) as loader:
            return torch.cat([batch.n_id[batch.edge_label_index] for batch in loader], dim=1)

    weights = weights_of(3)
    found = drawn(weights)
    for same in (4 * weights, weights.double(), weights.numpy(), weights.tolist()):
        assert torch.equal(drawn(same), found)
    with loader_of(graph, "binary") as loader:
        uniform = torch.cat([batch.n_id[batch.edge_label_index] for batch in loader], dim=1)
    assert torch.equal(uniform[0], found[0]) and not torch.equal(uniform[1], found[1]), "sources have no weights"


@pytest.mark.parametrize("piece", [1, 7, 1 << 20])
def test_sums_are_those_of_exact_numbers(monkeypatch, piece):
    monkeypatch.setattr(node_weights, "PIECE", piece)
    random = np.random.default_rng(5)
    for weights in (
        np.ones(1024),
        np.full(3, 5, np.int8),
        np.array([True, False, True]),
        random.random(50).astype(np.float16),
        np.array([5e-324, 1.0, 0.0, 1.7e308, 1.7e308]),
        np.array([0.0, 5e-324, 1e-323]),
        np.array([2**63 - 1, 1, 0]),
        10.0 ** random.integers(-300, 300, 40) * (random.random(40) > 0.3),
    ):
        sums = weight_sums("weights", weights, len(weights))
        assert sums.dtype == np.int64 and sums.tolist() == np.cumsum(units_of(weights), dtype=object).tolist()


def test_bfloat16_is_a_number():
    weights = torch.tensor([1.0, 2.5], dtype=torch.bfloat16)
    assert weight_sums("weights", weights, 2).tolist() == weight_sums("weights", [1.0, 2.5], 2).tolist()


ONES = torch.ones(NODES)
FINITE = "expected weights that are finite and at least 0, found"


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (ONES[1:], r"expected \[400\] numbers, a weight for each node, found float32 \[399\]"),
        (ONES.view(20, 20), r"expected \[400\] numbers, .* found float32 \[20, 20\]"),
        (ONES.to(torch.complex64), r"expected \[400\] numbers, .* found complex64 \[400\]"),
        ("heavy", r"expected \[400\] numbers, .* found 'heavy'"),
        (ONES.index_fill(0, torch.tensor(7), math.nan), f"{FINITE} nan of node 7"),
        (ONES.index_fill(0, torch.tensor([9, 8]), math.inf), f"{FINITE} inf of node 8"),
        (ONES.index_fill(0, torch.tensor(399), -0.5), f"{FINITE} -0.5 of node 399"),
        (0 * ONES, "expected at least one weight above 0, found none"),
    ],
    ids=["length", "shape", "complex", "text", "nan", "infinite", "negative", "zeros"],
)
def test_weights_that_cannot_be_drawn_by_are_refused(graph, weights, message):
    for name in ("src_weight", "dst_weight"):
        with pytest.raises(CohortError, match=f"^neg_sampling: {name}: {message}"):
            loader_of(graph, {"mode": "binary", name: weights})


@pytest.mark.parametrize(
    ("negatives", "message"),
    [
        ({"mode": "in_batch", "amount": 0.5}, r"amount: expected an integer in \[1, 10000\], with in_batch"),
        ({"mode": "in_batch", "amount": 10_001}, r"amount: expected an integer in \[1, 10000\]"),
        ({"mode": "in_batch", "dst_weight": ONES}, "expected mode and amount, with in_batch, found dst_weight"),
        (NegativeSampling("triplet", 1, src_weight=ONES), "src_weight: expected None, with triplets, found weights"),
        ("in-batch", 'expected "binary", "triplet", "in_batch" or a .* found \'in-batch\''),
    ],
    ids=["fraction", "many", "weights", "triplet", "name"],
)
def test_what_is_not_offered_is_refused(graph, negatives, message):
    with pytest.raises(CohortError, match=f"^neg_sampling: {message}"):
        loader_of(graph, negatives)


def test_negatives_are_told_apart_without_labels(graph):
    with pytest.raises(CohortError, match="^edge_label: expected None, with triplets"):
        loader_of(graph, "in_batch", edge_label=torch.ones(100))
