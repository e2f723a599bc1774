"""The layers whose edges may have features or types, GINConv, and maxima: PyG's results and gradients."""

import pytest
import torch
from blocks import DEVICES, assert_as_exact, by_target, pair_of, random_edges, with_loops
from torch import nn

from cohort_gnn.nn import Block, GATv2Conv, GINConv, GINEConv, SAGEConv, TransformerConv

EDGE_DIM, RELATIONS = 3, 5


def mlp(width: int) -> nn.Module:
    return nn.Sequential(nn.Linear(width, 16), nn.ReLU(), nn.Linear(16, 7))


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
    "sage max": (lambda d: pair_of(SAGEConv, d, 8, aggr="max"), ""),
    "sage max projected": (lambda d: pair_of(SAGEConv, d, 8, aggr="max", project=True, normalize=True), ""),
}


def edges_of(num_sources: int, num_targets: int, hub: int, gives: str, device: str) -> list[torch.Tensor]:
    """Edges, among them loops, and as the case has them a gradient-taking row of features or a type for each."""
    edge_index = with_loops(random_edges(num_sources, num_targets, 400, hub=hub))
    edges = [edge_index.to(device)]
    if gives == "features":
        edges.append(torch.randn(edge_index.shape[1], EDGE_DIM, device=device).requires_grad_())
    if gives == "types":
        edges.append(torch.randint(RELATIONS - 1, (edge_index.shape[1],), device=device))  # the last has no edges
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
