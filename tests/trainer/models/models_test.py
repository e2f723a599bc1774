"""The models on a sampled batch against the same layers on the whole subgraph."""

import pytest
import torch

from cohort.nn.block import keep_offsets
from cohort.trainer.models.sampled import SampledGNN, model_input

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


@pytest.mark.parametrize("layers", ["cohort", "pyg"])
@pytest.mark.parametrize("kind", ["sage", "gat"])
def test_trimming_changes_no_seed_and_no_gradient(kind, layers):
    torch.manual_seed(1)
    model = SampledGNN(kind, 7, 16, 4, len(FANOUT), 0.0, layers)
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


@pytest.mark.parametrize("kind", ["sage", "gcn", "gat"])
def test_both_libraries_give_the_same(kind):
    x, edge_index, edges_per_hop = sampled_batch()
    indptr = torch.searchsorted(edge_index[1].contiguous(), torch.arange(sum(NODES_PER_HOP[:2]) + 1))
    results = []
    for layers in ("pyg", "cohort"):
        torch.manual_seed(1)
        model = SampledGNN(kind, 7, 16, 4, len(FANOUT), 0.0, layers)
        out = model(x, keep_offsets(edge_index, indptr), NODES_PER_HOP, edges_per_hop)[: NODES_PER_HOP[0]]
        out.square().sum().backward()
        results.append({"out": out.detach()} | {name: weight.grad for name, weight in model.named_parameters()})
    assert results[0].keys() == results[1].keys()
    for name, expected in results[0].items():
        torch.testing.assert_close(results[1][name], expected, rtol=1e-5, atol=1e-5)


def test_features_of_16_bits_stay_so_where_they_may():
    for dtype, kept in ((torch.float32, True), (torch.bfloat16, True), (torch.float16, True), (torch.uint8, False)):
        assert model_input(torch.ones(2, 2, dtype=dtype)).dtype == torch.float32
        assert model_input(torch.ones(2, 2, dtype=dtype), keep_half=True).dtype == (dtype if kept else torch.float32)


def test_gcn_gives_every_seed_a_row():
    """GCN's normalisation counts the edges that are left, so trimming is not the identity there; shapes are."""
    x, edge_index, edges_per_hop = sampled_batch()
    model = SampledGNN("gcn", 7, 16, 4, len(FANOUT), dropout=0.0)
    assert model(x, edge_index, NODES_PER_HOP, edges_per_hop).shape[0] >= NODES_PER_HOP[0]


@pytest.mark.parametrize("kind", ["sage", "gcn", "gat"])
def test_a_seed_makes_the_same_model_of_our_layers_and_of_pygs(kind):
    ours, theirs = (seeded_model(kind, layers) for layers in ("cohort", "pyg"))
    assert [name for name, _ in ours.named_parameters()] == [name for name, _ in theirs.named_parameters()]
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(one, other)
    x, edge_index, _ = sampled_batch()
    torch.testing.assert_close(ours(x, edge_index), theirs(x, edge_index))


def seeded_model(kind: str, layers: str) -> SampledGNN:
    torch.manual_seed(7)
    return SampledGNN(kind, 7, 16, 4, 3, dropout=0.0, layers=layers)
