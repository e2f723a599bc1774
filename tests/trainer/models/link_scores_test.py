"""Scores, losses and metrics of links."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from cohort_gnn.base.errors import CohortError
from cohort_gnn.trainer.models.links import LinkDecoder, scores_of_links
from cohort_gnn.trainer.models.targets import LinkTargets

PLACES = torch.tensor([[0, 1, 2, 3], [4, 0, 0, 4]])  # source, target, two negatives


@pytest.fixture
def rows() -> torch.Tensor:
    return torch.randn(5, 6, generator=torch.Generator().manual_seed(1), requires_grad=True)


def test_a_link_is_scored_before_its_negatives(rows):
    scores = scores_of_links(LinkDecoder("dot", 6), rows, PLACES)
    wanted = [[(rows[link[0]] @ rows[target]).item() for target in link[1:]] for link in PLACES.tolist()]
    torch.testing.assert_close(scores, torch.tensor(wanted))


def test_distmult_begins_as_dot_and_weighs_columns(rows):
    decoder = LinkDecoder("distmult", 6)
    torch.testing.assert_close(decoder(rows[0], rows[1]), rows[0] @ rows[1])
    with torch.no_grad():
        decoder.weight.copy_(torch.arange(6.0))
    torch.testing.assert_close(decoder(rows[0], rows[1]), (rows[0] * rows[1] * torch.arange(6)).sum())


def test_mlp_is_not_linear_in_the_product(rows):
    torch.manual_seed(0)
    decoder = LinkDecoder("mlp", 6)
    first, _, last = decoder.layers
    hidden = F.relu(F.linear(rows[0] * rows[1], first.weight, first.bias))
    torch.testing.assert_close(decoder(rows[0], rows[1]), F.linear(hidden, last.weight, last.bias).squeeze())
    with pytest.raises(CohortError, match="--decoder: expected dot, distmult or mlp, found cosine"):
        LinkDecoder("cosine", 6)


def test_the_gradient_counts_each_use_of_a_row(rows):
    scores_of_links(LinkDecoder("dot", 6), rows, PLACES).sum().backward()
    wanted = torch.zeros(5, 6)
    for source, *targets in PLACES.tolist():
        for target in targets:
            wanted[source] += rows[target].detach()
            wanted[target] += rows[source].detach()
    torch.testing.assert_close(rows.grad, wanted)


@pytest.mark.parametrize("loss", ["bce", "softmax", "margin"])
def test_losses_are_what_they_are_called(loss):
    scores = torch.tensor([[0.5, -1.0, 2.0], [1.5, 0.2, 0.1]])
    wanted = 0.0
    for own, *others in scores.tolist():
        if loss == "bce":
            answers = torch.tensor([1.0, 0.0, 0.0])
            wanted += F.binary_cross_entropy(torch.sigmoid(torch.tensor([own, *others])), answers).item()
        elif loss == "softmax":
            wanted -= torch.log_softmax(torch.tensor([own, *others]), 0)[0].item()
        else:
            wanted += np.mean([max(0.0, 1 - own + other) for other in others])
    targets = LinkTargets(loss)
    assert targets.loss_sum(scores, PLACES).item() == pytest.approx(wanted, rel=1e-5)
    assert targets.count(PLACES).item() == 2


def test_equal_scores_share_their_ranks():
    scores = torch.tensor([[3.0, 1.0, 2.0], [1.0, 1.0, 2.0], [0.0, 1.0, 2.0], [1.0, 1.0, 1.0]])  # ranks 1, 2.5, 3, 2
    targets = LinkTargets()
    found = targets.metrics(targets.sums(scores))
    assert found["mrr"] == pytest.approx(np.mean([1, 1 / 2.5, 1 / 3, 1 / 2]))
    assert (found["hits@1"], found["hits@10"]) == (0.25, 1.0)
    assert found["auc"] == pytest.approx(np.mean([1, 1 / 4, 0, 1 / 2]))
    added = targets.sums(scores[:1]) + targets.sums(scores[1:])
    assert targets.metrics(added) == pytest.approx(found), "sums of parts add up"
    assert targets.metrics(targets.sums(scores[:0])) == {}


def test_scores_that_are_not_finite_rank_last():
    scores = torch.full((2, 101), float("nan"))
    found = LinkTargets().metrics(LinkTargets().sums(scores))
    hits = dict.fromkeys((f"hits@{k}" for k in (1, 10, 20, 50, 100)), 0.0)
    assert found == {"mrr": pytest.approx(1 / 101), "auc": 0.0} | hits
    assert LinkTargets().metrics(LinkTargets().sums_among(scores[:, 0].contiguous(), torch.zeros(100))) == found
    assert LinkTargets().metrics(LinkTargets().sums_among(torch.zeros(2), scores[0, :100])) == found


def test_ranks_among_shared_negatives_are_those_among_each_links_own():
    generator = torch.Generator().manual_seed(4)
    scores, others = (torch.randint(30, (count,), generator=generator).float() for count in (40, 200))
    every = torch.cat([scores[:, None], others.expand(40, 200)], dim=1)
    torch.testing.assert_close(LinkTargets().sums_among(scores, others), LinkTargets().sums(every))
