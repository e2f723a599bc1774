"""A layer that does the activation of its input as it reads it gives what it gives after activated()."""

import pytest
import torch
from blocks import DEVICES

from cohort_gnn.base.errors import CohortError
from cohort_gnn.nn import GCNConv, SAGEConv, ops
from cohort_gnn.nn.activation import Activation
from cohort_gnn.nn.block import Block

SOURCES, TARGETS, DIM = 700, 90, 24
LAYERS = {
    "mean": lambda: SAGEConv(DIM, 5),
    "sum": lambda: SAGEConv(DIM, 5, aggr="sum"),
    "project": lambda: SAGEConv(DIM, 5, project=True),
    "no root": lambda: SAGEConv(DIM, 5, root_weight=False),
    "by shares": lambda: SAGEConv(DIM, 5),
    "gcn": lambda: GCNConv(DIM, 40),
    "gcn, multiplied first": lambda: GCNConv(DIM, 1),
    "gcn without loops": lambda: GCNConv(DIM, 40, add_self_loops=False),
    "gcn without norm": lambda: GCNConv(DIM, 40, normalize=False),
}
FUSED = {"mean", "sum", "no root", "by shares", "gcn", "gcn without loops", "gcn without norm"}


def some_block(device) -> Block:
    """Hubs, empty rows, and sources that no edge names."""
    torch.manual_seed(4)
    degrees = torch.randint(0, 6, (TARGETS,))
    degrees[::10], degrees[3] = 0, 1500
    indptr = torch.cat((torch.zeros(1, dtype=torch.int64), degrees.cumsum(0)))
    source = torch.randint(0, SOURCES - 50, (int(indptr[-1]),))
    return Block(indptr.to(device), source.to(device), SOURCES, TARGETS)


def took(layer, x: torch.Tensor, block: Block, activation, fused: bool, pair: bool, **inputs):
    """Output, and gradients of x and of the parameters, with the same draws each time."""
    torch.manual_seed(8)
    x = x.detach().clone().requires_grad_()
    given = x if fused else activation(x)
    ends = (given, given[:TARGETS]) if pair else given
    out = layer(ends, block, activation=activation, **inputs) if fused else layer(ends, block, **inputs)
    weight = torch.linspace(-1, 1, out.numel(), device=out.device, dtype=out.dtype).view_as(out)
    return out, *torch.autograd.grad((out * weight).sum(), [x, *layer.parameters()], allow_unused=True)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("p", [0.0, 0.4])
@pytest.mark.parametrize("kind", LAYERS)
def test_the_same_bits(device, dtype, p, kind):
    torch.manual_seed(3)
    layer = LAYERS[kind]().to(device, dtype)
    block = some_block(device)
    x = torch.randn(SOURCES, DIM, device=device).to(dtype)
    activation = Activation("relu", p, training=True)
    pair = isinstance(layer, SAGEConv)
    inputs = {"edge_weight": torch.rand(len(block.source), device=device)} if kind == "by shares" else {}
    wanted = took(layer, x, block, activation, fused=False, pair=pair, **inputs)
    found = took(layer, x, block, activation, fused=True, pair=pair, **inputs)
    for one, other in zip(found, wanted, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            assert torch.equal(one, other), kind
    assert wanted[1].abs().max() > 0


@pytest.mark.parametrize("kind", LAYERS)
def test_what_is_fused(kind, monkeypatch):
    asked = []
    monkeypatch.setattr(Activation, "drawn", lambda self: asked.append(self) or (True, 0.0, 0, None))
    layer, block, x = LAYERS[kind](), some_block("cpu"), torch.randn(SOURCES, DIM)
    layer((x, x[:TARGETS]) if isinstance(layer, SAGEConv) else x, block, activation=Activation("relu", 0.0, True))
    assert bool(asked) == (kind in FUSED)


def test_rows_of_targets_that_are_not_the_sources_have_their_own_activation():
    torch.manual_seed(1)
    layer, block = SAGEConv(DIM, 5), some_block("cpu")
    x, own = torch.randn(SOURCES, DIM), torch.randn(TARGETS, DIM)
    activation = Activation("relu", 0.0, training=True)
    found = layer((x, own), block, activation=activation)
    torch.testing.assert_close(found, layer((x.relu(), own.relu()), block))


def test_without_training_nothing_is_dropped_and_odd_widths_are_not_fused():
    layer, block = SAGEConv(DIM, 5), some_block("cpu")
    x = torch.randn(SOURCES, DIM)
    torch.testing.assert_close(
        layer((x, x[:TARGETS]), block, activation=Activation("relu", 0.9, training=False)),
        layer((x.relu(), x.relu()[:TARGETS]), block),
    )
    relu = Activation("relu", 0.0, True)
    assert relu.fuses(x) and not Activation("elu", 0.0, True).fuses(x)
    assert not relu.fuses(x[:, :23].contiguous()) and not relu.fuses(x[:, :20]) and not relu.fuses(x.double())
    assert not relu.fuses(x[:, :20].contiguous().bfloat16()), "20 elements of 2 bytes are no whole packs"


@pytest.mark.parametrize("device", DEVICES)
def test_the_operators_are_well_made(device):
    block = some_block(device)
    x = torch.randn(SOURCES, DIM, device=device, requires_grad=True)
    norm = torch.rand(SOURCES, device=device)
    ends = block.indptr, block.source, TARGETS
    arguments = (x, None, None, *ends, True, ops.BESIDE_PREFIX, 0.0, torch.float32, True, 0.4, 77, None)
    torch.library.opcheck(ops.gather_sum.overload, arguments, test_utils=("test_schema", "test_faketensor"))
    arguments = (x, None, norm, *ends, False, ops.BESIDE_NONE, 1.0, torch.float32, True, 0.4, 77, None)
    torch.library.opcheck(ops.gather_sum.overload, arguments, test_utils=("test_schema", "test_faketensor"))
    arguments = (x, None, None, *ends, False, ops.BESIDE_PREFIX, 0.0, torch.float32)
    weights = {"edge_weight": torch.rand(len(block.source), device=device)}
    torch.library.opcheck(ops.gather_sum.overload, arguments, weights, test_utils=("test_schema", "test_faketensor"))


def test_second_derivatives_are_refused():
    layer, block = SAGEConv(DIM, 5), some_block("cpu")
    x = torch.randn(SOURCES, DIM, requires_grad=True)
    (grad,) = torch.autograd.grad(layer((x, x[:TARGETS]), block).square().sum(), x, create_graph=True)
    with pytest.raises(CohortError, match="expected gradients alone, found gradients of gradients"):
        grad.sum().backward()
