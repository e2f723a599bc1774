"""The layers whose edges may have features or types, GINConv, and maxima: PyG's results and gradients."""

import pytest
import torch
import torch_geometric.nn as pyg
from blocks import DEVICES, assert_as_close, assert_as_exact, by_target, pair_of, random_edges, with_loops
from torch import nn

from cohort_gnn.base.errors import CohortError
from cohort_gnn.nn import Block, GATv2Conv, GINConv, GINEConv, RGATConv, RGCNConv, SAGEConv, TransformerConv, accelerate

EDGE_DIM, RELATIONS = 3, 5


def mlp(width: int) -> nn.Module:
    return nn.Sequential(nn.Linear(width, 16), nn.ReLU(), nn.Linear(16, 7))


def filled(layers: tuple) -> tuple:
    """With values where PyG leaves memory as it was."""
    for layer in layers:
        torch.manual_seed(5)
        nn.init.normal_(layer.l2)
    return layers


# A layer for so many columns, and what its edges have: features, types.
CASES = {
    "gatv2": (lambda d: pair_of(GATv2Conv, d, 8, heads=3), ""),
    "gatv2 edges": (lambda d: pair_of(GATv2Conv, d, 8, heads=4, edge_dim=EDGE_DIM, residual=True), "features"),
    "gatv2 filled": (lambda d: pair_of(GATv2Conv, d, 5, edge_dim=EDGE_DIM, fill_value=0.5, concat=False), "features"),
    "gatv2 max": (lambda d: pair_of(GATv2Conv, d, 8, edge_dim=EDGE_DIM, fill_value="max"), "features"),
    "gatv2 shared": (lambda d: pair_of(GATv2Conv, d, 8, heads=2, share_weights=True, bias=False), ""),
    "gatv2 alone": (
        lambda d: pair_of(GATv2Conv, d, 64, heads=2, edge_dim=EDGE_DIM, add_self_loops=False, negative_slope=0.1),
        "features",
    ),
    "transformer": (lambda d: pair_of(TransformerConv, d, 8, heads=3), ""),
    "transformer narrow": (lambda d: pair_of(TransformerConv, d, 1, concat=False, bias=False), ""),
    "transformer edges": (lambda d: pair_of(TransformerConv, d, 2, heads=2, beta=True, edge_dim=EDGE_DIM), "features"),
    "transformer wide": (
        lambda d: pair_of(TransformerConv, d, 64, heads=2, concat=False, beta=True, edge_dim=EDGE_DIM),
        "features",
    ),
    "transformer rootless": (lambda d: pair_of(TransformerConv, d, 16, heads=4, root_weight=False), ""),
    "gin": (lambda d: pair_of(GINConv, mlp(d), eps=0.5, train_eps=True), ""),
    "gin max": (lambda d: pair_of(GINConv, mlp(d), aggr="max"), ""),
    "gine": (lambda d: pair_of(GINEConv, mlp(d), train_eps=True, edge_dim=EDGE_DIM), "features"),
    "rgcn": (lambda d: pair_of(RGCNConv, d, 7, RELATIONS), "types"),
    "rgcn bases": (lambda d: pair_of(RGCNConv, d, 7, RELATIONS, num_bases=2, aggr="add", root_weight=False), "types"),
    "rgcn blocks": (lambda d: pair_of(RGCNConv, d, 8, RELATIONS, num_blocks=2, bias=False), "types"),
    "rgat": (lambda d: pair_of(RGATConv, d, 7, RELATIONS, heads=2), "types"),
    "rgat within": (
        lambda d: pair_of(RGATConv, d, 8, RELATIONS, num_bases=2, attention_mechanism="within-relation", concat=False),
        "types",
    ),
    "rgat products": (
        lambda d: pair_of(
            RGATConv, d, 8, RELATIONS, num_blocks=2, heads=2, dim=3, attention_mode="multiplicative-self-attention"
        ),
        "types",
    ),
    "rgat edges": (
        lambda d: pair_of(RGATConv, d, 8, RELATIONS, mod="f-additive", edge_dim=EDGE_DIM, bias=False),
        "types, features",
    ),
    "rgat edges, products": (
        lambda d: pair_of(
            RGATConv, d, 4, RELATIONS, dim=2, attention_mode="multiplicative-self-attention", edge_dim=EDGE_DIM
        ),
        "types, features",
    ),
    "rgat f-scaled": (lambda d: pair_of(RGATConv, d, 8, RELATIONS, mod="f-scaled", heads=5), "types"),
    "rgat scaled": (lambda d: filled(pair_of(RGATConv, d, 8, RELATIONS, mod="scaled", heads=2)), "types"),
    "rgat additive": (lambda d: pair_of(RGATConv, d, 8, RELATIONS, mod="additive", heads=2), "types"),
    "sage max": (lambda d: pair_of(SAGEConv, d, 8, aggr="max"), ""),
    "sage max projected": (lambda d: pair_of(SAGEConv, d, 8, aggr="max", project=True, normalize=True), ""),
}


def edges_of(num_sources: int, num_targets: int, hub: int, gives: str, device: str) -> list[torch.Tensor]:
    """Edges, among them loops, and as the case has them the type, and the row of features, of each."""
    edge_index = with_loops(random_edges(num_sources, num_targets, 400, hub=hub))
    edges = [edge_index.to(device)]
    if "types" in gives:
        edges.append(torch.randint(RELATIONS - 1, (edge_index.shape[1],), device=device))  # the last has no edges
    if "features" in gives:
        edges.append(torch.randn(edge_index.shape[1], EDGE_DIM, device=device))
    return edges


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("width", "hub"), [(6, 0), (32, 500)])
def test_outputs_and_gradients_are_pygs(device, case, width, hub):
    """Targets are the first sources, or have rows of their own; some have no edges, one has very many."""
    make, gives = CASES[case]
    theirs, ours = (layer.to(device) for layer in make(width))
    x = torch.randn(90, width, device=device).relu()  # zeros are the largest of many rows
    edges = edges_of(90, 40, hub, gives, device)
    assert_as_exact(theirs, ours, x, lambda x: x[:40], *edges)
    other = torch.randn(40, width, device=device)
    if "shared" not in case and not hub:
        assert_as_exact(theirs, ours, x, lambda x: other.to(x.dtype), *edges)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", CASES)
def test_rows_of_16_bits(device, case):
    """Under autocast and as they are; gradients are as exact only where no leaky_relu bends and no rows tie."""
    make, gives = CASES[case]
    theirs, ours = (layer.to(device) for layer in make(6))
    x, (edge_index, *values) = torch.randn(90, 6, device=device), edges_of(90, 40, 0, gives, device)
    expected = theirs((x, x[:40]), edge_index, *values).detach()
    with torch.autocast(device, torch.bfloat16):
        out = ours((x, x[:40]), edge_index, *values)
    assert_as_close(out.detach().float(), expected, 5e-2)
    out.float().square().mean().backward()
    ours.zero_grad()
    ours, x = ours.bfloat16(), x.bfloat16().requires_grad_()
    values = [each.bfloat16() if each.is_floating_point() else each for each in values]
    out = ours((x, x[:40]), edge_index, *values)
    assert_as_close(out.detach().float(), expected, 5e-2)
    out.float().square().mean().backward()
    assert x.grad.isfinite().all() and x.grad.abs().max() > 0


@pytest.mark.parametrize("case", CASES)
def test_a_block_is_its_edges_and_one_tensor_is_both_ends(case):
    make, gives = CASES[case]
    theirs, ours = (layer.double() for layer in make(6))
    x = torch.randn(60, 6, dtype=torch.float64)
    edge_index, *values = edges_of(60, 40, 0, gives, "cpu")
    values = [each.double() if each.is_floating_point() else each for each in values]
    expected = theirs((x, x[:40]), edge_index, *values)
    torch.testing.assert_close(ours(x, edge_index, *values)[:40], expected)
    if case == "gatv2 max":
        return
    order = edge_index[1].sort(stable=True).indices
    ordered, indptr = by_target(edge_index, 40)
    block = Block(indptr, ordered[0].contiguous(), 60, 40)
    torch.testing.assert_close(ours(x, block, *(each[order] for each in values)), expected)
    few = Block(indptr, ordered[0].contiguous(), 60, 20)  # the last edges are no target's
    torch.testing.assert_close(ours(x, few, *(each[order] for each in values)), expected[:20])


@pytest.mark.parametrize(
    ("make", "values", "words"),
    [
        (
            lambda: GATv2Conv(4, 4, aggr="mean"),
            (),
            r"(?s)aggr 'add' or 'sum', found.*use torch_geometric\.nn\.GATv2Conv",
        ),
        (lambda: TransformerConv(4, 4, flow="target_to_source"), (), "flow"),
        (lambda: GINEConv(mlp(4), aggr="max"), (), "aggr 'max'"),
        (lambda: RGCNConv(4, 4, RELATIONS, aggr="max"), (), r"(?s)aggr 'max'.*use torch_geometric\.nn\.RGCNConv"),
        (lambda: RGATConv(4, 4, RELATIONS, aggr="mean"), (), "aggr 'mean'"),
        (lambda: GATv2Conv(4, 4), (torch.zeros(2, 3),), "GATv2Conv: edge_attr: expected none, without edge_dim"),
        (lambda: GATv2Conv(4, 4, edge_dim=3), (torch.zeros(1, 3),), r"edge_attr: shape: expected \[2, any\]"),
        (lambda: TransformerConv(4, 4), (torch.zeros(2, 3),), "give the layer edge_dim"),
        (lambda: TransformerConv(4, 4, edge_dim=3), (), r"edge_attr: shape: expected \[2, 3\].*found None"),
        (lambda: GINEConv(mlp(4)), (torch.zeros(2, 3),), r"(?s)expected \[2, 4\].*edge_dim=3"),
        (lambda: RGCNConv(4, 4, RELATIONS), (), "edge_type: expected int64 .2., a type for each edge, found None"),
        (lambda: RGATConv(4, 4, 2), (torch.tensor([0, 2]),), r"types in \[0, 2\), found 0 to 2"),
        (lambda: RGATConv(4, 4, 2), (torch.tensor([0, 1]), torch.zeros(2)), "RGATConv: edge_attr"),
    ],
)
def test_what_layers_do_not_take_is_refused(make, values, words):
    with pytest.raises(CohortError, match=words):
        make()(torch.zeros(3, 4), torch.tensor([[0, 1], [1, 2]]), *values)


def test_nodes_without_rows_take_pygs_way():
    theirs, ours = pair_of(RGCNConv, 60, 7, RELATIONS)
    edge_index, types = edges_of(60, 60, 0, "types", "cpu")
    torch.testing.assert_close(ours(None, edge_index, types), theirs(None, edge_index, types))
    block = Block(torch.tensor([0, 1]), torch.tensor([0]), 60, 60)
    with pytest.raises(CohortError, match="RGCNConv: x: expected rows of features"):
        ours(None, block, types[:1])


@pytest.mark.parametrize("kind", [RGCNConv, RGATConv])
def test_types_of_int32_take_pygs_way(kind):
    theirs, ours = pair_of(kind, 6, 7, RELATIONS)
    x, (edge_index, types) = torch.randn(60, 6), edges_of(60, 60, 0, "types", "cpu")
    torch.testing.assert_close(ours(x, edge_index, types.int()), theirs(x, edge_index, types))


@pytest.mark.parametrize("make", [lambda: pyg.GATv2Conv(6, 4, heads=2), lambda: pyg.TransformerConv(6, 4, heads=2)])
def test_attention_weights_and_hooks_take_pygs_way(make):
    layer, x, edge_index = make(), torch.randn(50, 6), random_edges(50, 50, 300)
    expected = layer(x, edge_index, return_attention_weights=True)
    done, seen = accelerate(layer), []
    assert done.replaced == [""]
    torch.testing.assert_close(layer(x, edge_index, return_attention_weights=True), expected)
    layer.register_propagate_forward_hook(lambda *_: seen.append(True))
    torch.testing.assert_close(layer(x, edge_index), expected[0])
    assert seen == [True]


@pytest.mark.parametrize(
    "make",
    [
        lambda: GATv2Conv(2, 3, heads=2, dropout=0.5),
        lambda: TransformerConv(2, 3, heads=2, dropout=0.5),
        lambda: RGATConv(2, 3, RELATIONS, heads=2, dropout=0.5),
    ],
)
def test_dropout_removes_edges_and_keeps_the_mean(make):
    """Of many draws; and its gradients are those of differences."""
    layer, x = make().double(), torch.randn(8, 2, dtype=torch.float64).requires_grad_()
    edge_index, *types = edges_of(8, 8, 0, "types" if isinstance(layer, RGATConv) else "", "cpu")
    edge_index, types = edge_index[:, :40], [each[:40] for each in types]
    expected, outputs = layer.eval()(x, edge_index, *types), []
    layer.train()
    for seed in range(100):
        torch.manual_seed(seed)
        outputs.append(layer(x, edge_index, *types).detach())
    mean, error = torch.stack(outputs).mean(dim=0), torch.stack(outputs).std(dim=0) / 10
    assert ((mean - expected).abs() <= 5 * error + 1e-9).all() and error.max() > 1e-3

    def run(x):
        torch.manual_seed(3)
        return layer(x, edge_index, *types)

    assert torch.autograd.gradcheck(run, x)
