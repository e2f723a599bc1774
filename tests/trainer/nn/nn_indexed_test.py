"""Layers that read the rows of a block's sources where they lie among others."""

import pytest
import torch
from blocks import DEVICES, assert_as_close, by_target, indexed, random_edges

from cohort_gnn.base.errors import CohortError
from cohort_gnn.nn import Block, GATConv, GCNConv, GraphConv, SAGEConv


def block_on(device: str) -> Block:
    edge_index, indptr = by_target(random_edges(600, 40, 500, hub=3000), 40)
    return Block(indptr, edge_index[0].contiguous(), 600, 40).to(device)


def run(layer, x, block) -> list[torch.Tensor]:
    """The output and the gradients of the weights."""
    layer.zero_grad()
    out = layer(x, block)
    out.backward(torch.linspace(-1, 1, out.numel()).reshape(out.shape).to(out))
    return [out.detach(), *(weight.grad for weight in layer.parameters())]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dim", [1, 6, 100])
@pytest.mark.parametrize(
    "make",
    [
        lambda dim: SAGEConv(dim, 7),
        lambda dim: SAGEConv(dim, 7, aggr="sum"),
        lambda dim: SAGEConv(dim, 7, root_weight=False, normalize=True),
        lambda dim: GraphConv(dim, 7),
        lambda dim: GCNConv(dim, 7),
        lambda dim: GCNConv(dim, 300),
        lambda dim: GCNConv(dim, 7, add_self_loops=False),
        lambda dim: GCNConv(dim, 300, normalize=False),
    ],
)
def test_rows_by_index_are_those_rows_gathered(device, dim, make):
    layer, block, x = make(dim).to(device), block_on(device), torch.randn(600, dim, device=device)
    there, rows = indexed(block, x)
    source = x if isinstance(layer, GCNConv) else (x, x[:40])
    for found, expected in zip(run(layer, rows, there), run(layer, source, block), strict=True):
        if isinstance(layer, SAGEConv | GraphConv):
            assert torch.equal(found, expected)
        else:  # which without an index multiplies first where that is less work
            assert_as_close(found, expected)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("make", [SAGEConv, GCNConv])
def test_a_place_below_zero_has_zeros(device, make):
    """So the nodes that pad a batch: they are nobody's neighbours."""
    layer, x = make(6, 7).to(device), torch.randn(600, 6, device=device)
    block = block_on(device)
    unread = torch.arange(500, device=device)  # has no edge, unlike the targets before it
    indptr = torch.cat([block.indptr, block.indptr[-1:].expand(460)])
    block = Block(indptr, block.source % 40, 600, 500)
    there, rows = indexed(block, x)
    there.row_index[unread[40:]] = -1
    x[unread[40:]] = 0
    source = x if make is GCNConv else (x, x[:500])
    for found, expected in zip(run(layer, rows, there), run(layer, source, block), strict=True):
        assert_as_close(found, expected)


def test_autocast_reads_float32_by_index():
    layer, block, x = SAGEConv(6, 7), block_on("cpu"), torch.randn(600, 6)
    there, rows = indexed(block, x)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(layer(rows, there), layer((x, x[:40]), block))


@pytest.mark.parametrize(
    ("layer", "change"),
    [
        (SAGEConv(6, 7, project=True), lambda x: x),
        (SAGEConv(6, 7), lambda x: x.double()),
        (SAGEConv(6, 7), lambda x: x.clone().requires_grad_()),
        (SAGEConv(6, 7), lambda x: (x, x)),
        (GCNConv(6, 7), lambda x: x.bfloat16()),
        (GATConv(6, 7), lambda x: x),
    ],
)
def test_other_uses_of_places_are_refused(layer, change):
    there, rows = indexed(block_on("cpu"), torch.randn(600, 6))
    with pytest.raises(CohortError, match="a Block with own_row_index"):
        layer(change(rows), there)


def test_edge_weights_beside_places_are_refused():
    there, rows = indexed(block_on("cpu"), torch.randn(600, 6))
    with pytest.raises(CohortError, match="a Block with own_row_index"):
        GCNConv(6, 7)(rows, there, torch.ones(len(there.source)))
    assert GCNConv(6, 7)(rows, there).shape == (40, 7)
