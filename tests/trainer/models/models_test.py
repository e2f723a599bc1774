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
KINDS = ["sage", "gcn", "gat", "graphconv"]
CASES = [(kind, shape, None) for kind in KINDS for shape in SHAPES]
CASES += [("gat", {"edge_dim": 3}, "edge_attr"), ("graphconv", {"edge_weights": True}, "edge_weight")]


def of_edges(edge_index, more: str | None) -> dict[str, torch.Tensor]:
    """What edges have besides their ends."""
    generator = torch.Generator().manual_seed(2)
    shape = {"edge_attr": (edge_index.shape[1], 3), "edge_weight": (edge_index.shape[1],)}
    return {more: torch.rand(shape[more], generator=generator)} if more else {}


# GCN's normalisation counts the edges that are left, so trimming is not the identity there.
@pytest.mark.parametrize(("kind", "shape", "more"), [case for case in CASES if case[0] != "gcn"], ids=str)
@pytest.mark.parametrize("layers", ["cohort", "pyg"])
def test_trimming_changes_no_seed_and_no_gradient(kind, layers, shape, more):
    torch.manual_seed(1)
    model = SampledGNN(kind, 7, 16, 4, len(FANOUT), 0.0, layers, **shape)
    x, edge_index, edges_per_hop = sampled_batch()
    seeds, given = NODES_PER_HOP[0], of_edges(edge_index, more)
    results = []
    for trimming in ((), (NODES_PER_HOP, edges_per_hop)):
        model.zero_grad()
        out = model(x, edge_index, *trimming, **given)[:seeds]
        out.square().sum().backward()
        results.append([out.detach(), *(parameter.grad.clone() for parameter in model.parameters())])
    for whole, trimmed in zip(*results, strict=True):
        torch.testing.assert_close(trimmed, whole, rtol=1e-5, atol=1e-5)
    if more:
        other = model(x, edge_index, **{name: -values for name, values in given.items()})[:seeds]
        assert not torch.allclose(other, results[0][0], atol=1e-3)


@pytest.mark.parametrize(("kind", "shape", "more"), CASES, ids=str)
def test_both_libraries_give_the_same(kind, shape, more):
    x, edge_index, edges_per_hop = sampled_batch()
    indptr = torch.searchsorted(edge_index[1].contiguous(), torch.arange(sum(NODES_PER_HOP[:3]) + 1))
    results = []
    for layers in ("pyg", "cohort"):
        torch.manual_seed(1)
        model = SampledGNN(kind, 7, 16, 4, len(FANOUT), 0.0, layers, **shape)
        edges, given = keep_offsets(edge_index, indptr), of_edges(edge_index, more)
        out = model(x, edges, NODES_PER_HOP, edges_per_hop, **given)[: NODES_PER_HOP[0]]
        assert len(out) == NODES_PER_HOP[0]
        out.square().sum().backward()
        results.append({"out": out.detach()} | {name: weight.grad for name, weight in model.named_parameters()})
    assert results[0].keys() == results[1].keys()
    for name, expected in results[0].items():
        torch.testing.assert_close(results[1][name], expected, rtol=1e-5, atol=1e-5)


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
