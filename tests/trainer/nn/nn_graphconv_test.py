"""GraphConv of cohort.nn against PyG's."""

import pytest
import torch
import torch_geometric.nn as pyg
from blocks import DEVICES, assert_as_close, assert_same, by_target, pair_of, random_edges, run_layer
from torch import nn

import cohort_gnn as cohort
from cohort_gnn.base.errors import CohortError
from cohort_gnn.nn import Block, GraphConv


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("aggr", ["add", "sum", "mean"])
@pytest.mark.parametrize("dim", [1, 6, 100])
def test_outputs_and_gradients_are_pygs(device, aggr, dim):
    theirs, ours = (layer.to(device) for layer in pair_of(GraphConv, dim, 5, aggr=aggr))
    x, edges = torch.randn(90, dim, device=device).requires_grad_(), random_edges(90, 40, 700).to(device)
    assert_same(theirs, ours, (x, x[:40]), edges)
    other = torch.randn(40, dim, device=device).requires_grad_()
    assert_same(theirs, ours, (x, other), edges)


@pytest.mark.parametrize("options", [{}, {"bias": False}])
def test_one_tensor_rows_of_two_widths_and_lazy_layers(options):
    theirs, ours = pair_of(GraphConv, 7, 4, **options)
    assert_same(theirs, ours, torch.randn(50, 7).requires_grad_(), random_edges(50, 50, 300))
    theirs, ours = pair_of(GraphConv, (7, 9), 4, **options)
    x, target = torch.randn(50, 7).requires_grad_(), torch.randn(20, 9).requires_grad_()
    assert_same(theirs, ours, (x, target), random_edges(50, 20, 300))
    theirs, ours = pyg.GraphConv(-1, 4), GraphConv(-1, 4)
    x, edges = torch.randn(30, 7), random_edges(30, 30, 100)
    theirs(x, edges), ours(x, edges)
    ours.load_state_dict(theirs.state_dict())
    assert_same(theirs, ours, x, edges)


def test_weights_of_edges_count_as_in_pygs():
    theirs, ours = pair_of(GraphConv, 7, 4)
    x, edges, weight = torch.randn(50, 7).requires_grad_(), random_edges(50, 20, 300), torch.randn(300)
    expected, found = (run_layer(layer, (x, x[:20]), (edges, weight)) for layer in (theirs, ours))
    for name, value in expected.items():
        assert_as_close(found[name], value)
    unweighted = run_layer(ours, (x, x[:20]), (edges,))
    assert not torch.allclose(unweighted["out"], found["out"], atol=1e-3)


def test_a_block_is_its_edges():
    _, ours = pair_of(GraphConv, 7, 4)
    x, edges = torch.randn(50, 7), random_edges(50, 20, 300)
    ordered, indptr = by_target(edges, 20)
    block = Block(indptr, ordered[0], 50, 20)
    assert torch.equal(ours((x, x[:20]), block), ours((x, x[:20]), ordered))
    with pytest.raises(CohortError, match="GraphConv: edge_weight"):
        ours((x, x[:20]), block, torch.ones(300))


def test_accelerate_replaces_it():
    model = nn.ModuleList([pyg.GraphConv(4, 4), pyg.GraphConv(4, 4, aggr="max")])
    done = cohort.nn.accelerate(model)
    assert type(model[0]) is GraphConv and done.replaced == ["0"]
    assert done.left == {"1": "aggr 'max', while cohort.nn.GraphConv takes aggr 'mean' or 'sum' or 'add'"}
    with pytest.raises(CohortError, match=r"use torch_geometric\.nn\.GraphConv for others"):
        GraphConv(4, 4, aggr="max")
