"""The models on a sampled batch against the same layers on the whole subgraph."""

import pytest
import torch
import torch_geometric.nn.models as pyg

from cohort_gnn.base.errors import CohortError
from cohort_gnn.trainer.models.sampled import SampledGNN, model_input
from cohort_gnn.trainer.offsets import keep_offsets

NODES_PER_HOP, FANOUT = [6, 20, 40, 60], [5, 3, 2]


def sampled_batch():
    """x [126, 7], edge_index [2, E] as a sampler lays it out: targets of hop h are the nodes first reached before."""
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


SHAPES = [{}, {"norm": "layer", "residual": True, "heads": 2}]


@pytest.mark.parametrize("shape", SHAPES, ids=["plain", "norm and residual"])
@pytest.mark.parametrize("layers", ["cohort", "pyg"])
@pytest.mark.parametrize("kind", ["sage", "gat", "graphconv"])
def test_trimming_changes_no_seed_and_no_gradient(kind, layers, shape):
    torch.manual_seed(1)
    model = SampledGNN(kind, 7, 16, 4, len(FANOUT), 0.0, layers, **shape)
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


@pytest.mark.parametrize("shape", SHAPES, ids=["plain", "norm and residual"])
@pytest.mark.parametrize("kind", ["sage", "gcn", "gat", "graphconv"])
def test_both_libraries_give_the_same(kind, shape):
    x, edge_index, edges_per_hop = sampled_batch()
    indptr = torch.searchsorted(edge_index[1].contiguous(), torch.arange(sum(NODES_PER_HOP[:3]) + 1))
    results = []
    for layers in ("pyg", "cohort"):
        torch.manual_seed(1)
        model = SampledGNN(kind, 7, 16, 4, len(FANOUT), 0.0, layers, **shape)
        out = model(x, keep_offsets(edge_index, indptr), NODES_PER_HOP, edges_per_hop)[: NODES_PER_HOP[0]]
        out.square().sum().backward()
        results.append({"out": out.detach()} | {name: weight.grad for name, weight in model.named_parameters()})
    assert results[0].keys() == results[1].keys()
    for name, expected in results[0].items():
        torch.testing.assert_close(results[1][name], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("layers", ["cohort", "pyg"])
def test_edge_features_are_trimmed_with_the_edges(layers):
    torch.manual_seed(1)
    model = SampledGNN("gat", 7, 16, 4, len(FANOUT), 0.0, layers, edge_dim=3)
    x, edge_index, edges_per_hop = sampled_batch()
    rows = torch.randn(edge_index.shape[1], 3)
    whole = model(x, edge_index, edge_attr=rows)[: NODES_PER_HOP[0]]
    trimmed = model(x, edge_index, NODES_PER_HOP, edges_per_hop, None, rows)[: NODES_PER_HOP[0]]
    torch.testing.assert_close(trimmed, whole, rtol=1e-5, atol=1e-5)
    other = model(x, edge_index, edge_attr=-rows)[: NODES_PER_HOP[0]]
    assert not torch.allclose(other, whole, atol=1e-3)


def test_both_libraries_give_the_same_with_edge_features():
    x, edge_index, edges_per_hop = sampled_batch()
    rows = torch.randn(edge_index.shape[1], 3)
    found = []
    for layers in ("pyg", "cohort"):
        torch.manual_seed(1)
        model = SampledGNN("gat", 7, 16, 4, len(FANOUT), 0.0, layers, edge_dim=3)
        found.append((model(x, edge_index, NODES_PER_HOP, edges_per_hop, None, rows), model.state_dict()))
    torch.testing.assert_close(found[1], found[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["sage", "gat"])
def test_edge_features_that_a_model_was_not_made_for_are_refused(kind):
    x, edge_index, _ = sampled_batch()
    with pytest.raises(CohortError, match="edge_attr: expected none: the model was made without"):
        SampledGNN(kind, 7, 16, 4, 3, 0.0)(x, edge_index, edge_attr=torch.zeros(edge_index.shape[1], 2))
    with pytest.raises(CohortError, match=r"edge_attr: expected features \[edges, 2\], found none"):
        SampledGNN("gat", 7, 16, 4, 3, 0.0, edge_dim=2)(x, edge_index)


def test_features_of_16_bits_stay_so_where_they_may():
    for dtype, kept in ((torch.float32, True), (torch.bfloat16, True), (torch.float16, True), (torch.uint8, False)):
        assert model_input(torch.ones(2, 2, dtype=dtype)).dtype == torch.float32
        assert model_input(torch.ones(2, 2, dtype=dtype), keep_half=True).dtype == (dtype if kept else torch.float32)


def test_gcn_gives_every_seed_a_row():
    """GCN's normalisation counts the edges that are left, so trimming is not the identity there; shapes are."""
    x, edge_index, edges_per_hop = sampled_batch()
    model = SampledGNN("gcn", 7, 16, 4, len(FANOUT), dropout=0.0)
    assert model(x, edge_index, NODES_PER_HOP, edges_per_hop).shape[0] >= NODES_PER_HOP[0]


@pytest.mark.parametrize("kind", ["sage", "gcn", "gat", "graphconv"])
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


@pytest.mark.parametrize("norm", ["none", "layer"])
@pytest.mark.parametrize(("kind", "pygs"), [("sage", pyg.GraphSAGE), ("gcn", pyg.GCN), ("gat", pyg.GAT)])
def test_weights_load_into_pygs_models_and_back(kind, pygs, norm):
    ours = SampledGNN(kind, 7, 16, 4, 3, dropout=0.0, norm=norm, heads=2).eval()
    more = {"heads": 2, "act": "elu"} if kind == "gat" else {}
    more["norm"] = torch.nn.LayerNorm(16) if norm == "layer" else None
    theirs = pygs(7, 16, 3, 4, **more).eval()
    theirs.load_state_dict(ours.state_dict())
    x, edge_index, _ = sampled_batch()
    torch.testing.assert_close(ours(x, edge_index), theirs(x, edge_index), rtol=1e-5, atol=1e-5)
    ours.load_state_dict(pygs(7, 16, 3, 4, **more).state_dict())


@pytest.mark.parametrize("layers", ["cohort", "pyg"])
def test_graphconv_trims_the_weights_of_edges(layers):
    torch.manual_seed(1)
    model = SampledGNN("graphconv", 7, 16, 4, len(FANOUT), 0.0, layers, edge_weights=True)
    x, edge_index, edges_per_hop = sampled_batch()
    weight = torch.rand(edge_index.shape[1])
    whole = model(x, edge_index, edge_weight=weight)[: NODES_PER_HOP[0]]
    trimmed = model(x, edge_index, NODES_PER_HOP, edges_per_hop, weight)[: NODES_PER_HOP[0]]
    torch.testing.assert_close(trimmed, whole, rtol=1e-5, atol=1e-5)
    assert not torch.allclose(model(x, edge_index)[: NODES_PER_HOP[0]], whole, atol=1e-3)


def test_a_residual_adds_what_a_hidden_layer_reads():
    x, edge_index, _ = sampled_batch()
    with_it = SampledGNN("sage", 7, 16, 4, 3, dropout=0.0, residual=True)
    without = SampledGNN("sage", 7, 16, 4, 3, dropout=0.0)
    without.load_state_dict(with_it.state_dict())
    first = without.convs[0](x, edge_index).relu()
    second = (without.convs[1](first, edge_index) + first).relu()
    torch.testing.assert_close(with_it(x, edge_index), without.convs[2](second, edge_index))


def test_sizes_that_do_not_fit_are_refused():
    with pytest.raises(CohortError) as refusal:
        SampledGNN("gat", 7, 16, 4, 2, 0.0, heads=3)
    assert refusal.value.place == "--hidden" and refusal.value.expected.startswith("a multiple of 3")
    with pytest.raises(CohortError) as refusal:
        SampledGNN("sage", 7, 16, 4, 2, 0.0, residual=True)
    assert refusal.value.place == "--residual" and refusal.value.found == "2"
