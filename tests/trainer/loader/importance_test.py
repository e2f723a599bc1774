"""Importance sampling of layers: what is drawn, and how much it counts."""

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

import cohort_gnn as cohort
from cohort_gnn.base.errors import CohortError

COPIES, LONG, SHORT, FANOUT = 400, 30, 3, 5
EXPECTED_PICKS = 6  # floor(5 * mean(m) * mean(1 / m)), m: 5 of three nodes, 30 of 27


@pytest.fixture(scope="module")
def drawn():
    """(times that each node of the long list is drawn, its shares added up, draws of it): in each copy one node has the
    long list and another one the first nodes of it."""
    size = LONG + 2
    source = torch.cat([torch.arange(LONG), torch.arange(SHORT)])
    target = torch.cat([torch.full((LONG,), LONG), torch.full((SHORT,), LONG + 1)])
    edge_index = torch.cat([torch.stack([source, target]) + size * copy for copy in range(COPIES)], dim=1)
    data = Data(x=torch.zeros(size * COPIES, 1), edge_index=edge_index)
    seeds = torch.arange(size * COPIES).view(COPIES, size)[:, LONG:].reshape(-1)
    how = {"batch_size": len(seeds), "device": "cpu", "sampling": "labor", "importance_sampling": True}
    times, shares, epochs = np.zeros(LONG), np.zeros(LONG), 100
    with cohort.NeighborLoader(data, [FANOUT], seeds, **how) as loader:
        for _ in range(epochs):
            (batch,) = loader
            ends = batch.n_id[batch.edge_index].numpy() % size
            of_long = ends[1] == LONG
            weights = batch.edge_weight.numpy()
            assert (weights[~of_long] == np.float32(1 / SHORT)).all() and (~of_long).sum() == SHORT * COPIES
            assert of_long.sum() == EXPECTED_PICKS * COPIES
            np.add.at(times, ends[0][of_long], 1)
            np.add.at(shares, ends[0][of_long], weights[of_long])
    return times, shares, epochs * COPIES


def simulated(num_draws: int) -> tuple[np.ndarray, np.ndarray]:
    """Of each node of the long list, in NumPy: how often it is drawn, and its part of the mean."""
    least = np.where(np.arange(LONG) < SHORT, FANOUT, LONG)
    numbers = np.random.default_rng(0).random((num_draws, LONG)) * least
    order = np.argsort(numbers, axis=1)
    drawn, following = order[:, :EXPECTED_PICKS], np.take_along_axis(numbers, order[:, EXPECTED_PICKS, None], axis=1)
    inverse = np.maximum(1, least[drawn] / following)
    parts = np.bincount(drawn.ravel(), (inverse / inverse.sum(axis=1, keepdims=True)).ravel(), LONG)
    return np.bincount(drawn.ravel(), minlength=LONG) / num_draws, parts / num_draws


def test_what_short_lists_draw_is_drawn_first_and_counts_less(drawn):
    times, shares, draws = drawn
    assert shares.sum() == pytest.approx(draws, rel=1e-6)
    for found, expected in zip((times / draws, shares / draws), simulated(draws), strict=True):
        for part in (slice(SHORT), slice(SHORT, LONG)):
            assert found[part].mean() == pytest.approx(expected[part].mean(), rel=0.02)
    assert LONG / draws * shares[:SHORT].mean() == pytest.approx(1.2, abs=0.04), "the error of a ratio of estimates"


def test_weights_of_the_graph_and_shares_are_not_mixed():
    data = Data(x=torch.zeros(3, 1), edge_index=torch.tensor([[0, 1], [2, 2]]), edge_weight=torch.ones(2))
    how = {"device": "cpu", "sampling": "labor", "importance_sampling": True}
    with pytest.raises(
        CohortError, match="importance_sampling: expected False, with edge_weights.*\n.*edge_weights=False"
    ):
        cohort.NeighborLoader(data, [1], **how)
    with cohort.NeighborLoader(data, [1], torch.tensor([2]), edge_weights=False, **how) as loader:
        assert next(iter(loader)).edge_weight.tolist() == [1.0]


def test_nodes_of_equal_least_degree_are_drawn_equally_often(drawn):
    times, _, _ = drawn
    for alike in (times[:SHORT], times[SHORT:]):
        chi_square = ((alike - alike.mean()) ** 2 / alike.mean()).sum()
        assert chi_square < 75  # of at most 26 degrees of freedom: the chance of more is below 1e-6
