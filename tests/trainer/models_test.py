"""The models on a sampled batch against the same layers on the whole subgraph."""

import pytest
import torch

from cohort.trainer.models import SampledGNN

NODES_PER_HOP, FANOUT = [6, 20, 40], [5, 3]


def sampled_batch():
    """x [66, 7], edge_index [2, E] as a sampler lays it out: targets of hop h are the nodes first reached before."""
    generator = torch.Generator().manual_seed(0)
    sources, targets, edges_per_hop = [], [], []
    first = 0
    for hop, fanout in enumerate(FANOUT):
        for target in range(first, first + NODES_PER_HOP[hop]):
            known = sum(NODES_PER_HOP[: hop + 2])
            sources.append(torch.randint(known, (fanout,), generator=generator))
            targets.append(torch.full((fanout,), target))
        edges_per_hop.append(NODES_PER_HOP[hop] * fanout)
        first += NODES_PER_HOP[hop]
    x = torch.randn(sum(NODES_PER_HOP), 7, generator=generator)
    return x, torch.stack([torch.cat(sources), torch.cat(targets)]), edges_per_hop


@pytest.mark.parametrize("kind", ["sage", "gat"])
def test_trimming_changes_no_seed_and_no_gradient(kind):
    torch.manual_seed(1)
    model = SampledGNN(kind, 7, 16, 4, len(FANOUT), dropout=0.0)
    x, edge_index, edges_per_hop = sampled_batch()
    seeds = NODES_PER_HOP[0]
    results = []
    for trimming in ((), (NODES_PER_HOP, edges_per_hop)):
        model.zero_grad()
        out = model(x, edge_index, *trimming)[:seeds]
        out.square().sum().backward()
        results.append([out.detach(), *(parameter.grad.clone() for parameter in model.parameters())])
    for whole, trimmed in zip(*results, strict=True):
        torch.testing.assert_close(trimmed, whole, rtol=1e-5, atol=1e-5)


def test_gcn_gives_every_seed_a_row():
    """GCN's normalisation counts the edges that are left, so trimming is not the identity there; shapes are."""
    x, edge_index, edges_per_hop = sampled_batch()
    model = SampledGNN("gcn", 7, 16, 4, len(FANOUT), dropout=0.0)
    assert model(x, edge_index, NODES_PER_HOP, edges_per_hop).shape[0] >= NODES_PER_HOP[0]
