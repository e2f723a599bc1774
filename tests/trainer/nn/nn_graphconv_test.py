"""GraphConv of cohort.nn against PyG's."""

import pytest
import torch
import torch_geometric.nn as pyg
from blocks import DEVICES, assert_same, by_target, pair_of, random_edges
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


def test_weights_beside_a_block_are_refused():
    edges, indptr = by_target(random_edges(50, 20, 300), 20)
    with pytest.raises(CohortError, match="GraphConv: edge_weight"):
        GraphConv(7, 4)((torch.randn(50, 7), torch.randn(20, 7)), Block(indptr, edges[0], 50, 20), torch.ones(300))


def test_accelerate_replaces_it():
    model = nn.ModuleList([pyg.GraphConv(4, 4), pyg.GraphConv(4, 4, aggr="max")])
    done = cohort.nn.accelerate(model)
    assert type(model[0]) is GraphConv and done.replaced == ["0"]
    assert done.left == {"1": "aggr 'max', while cohort.nn.GraphConv takes aggr 'mean' or 'sum' or 'add'"}
