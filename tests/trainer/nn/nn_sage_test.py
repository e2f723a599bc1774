"""SAGEConv of cohort.nn against PyG's."""

import pytest
import torch
from blocks import DEVICES, assert_as_close, assert_same, by_target, indexed, pair_of, random_edges, run_layer

from cohort_gnn.base.errors import CohortError
from cohort_gnn.nn import SAGEConv
from cohort_gnn.nn.activation import Activation
from cohort_gnn.nn.block import block_of
from cohort_gnn.trainer.offsets import keep_offsets


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("aggr", ["mean", "sum", "add"])
@pytest.mark.parametrize("dim", [1, 6, 32, 100, 1000])
def test_outputs_and_gradients_are_pygs(device, aggr, dim):
    theirs, ours = (layer.to(device) for layer in pair_of(SAGEConv, dim, 5, aggr=aggr))
    x = torch.randn(90, dim, device=device).requires_grad_()
    assert_same(theirs, ours, (x, x[:40]), random_edges(90, 40, 700).to(device))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("aggr", ["mean", "sum"])
def test_a_hub_of_many_neighbours(device, aggr):
    theirs, ours = (layer.to(device).double() for layer in pair_of(SAGEConv, 6, 4, aggr=aggr))
    x = torch.randn(5000, 6, device=device).requires_grad_()
    edge_index = random_edges(5000, 30, 1000, hub=100_000).to(device)
    expected = run_layer(theirs, (x.detach().double().requires_grad_(), x[:30].detach().double()), (edge_index,))
    found = run_layer(ours.float(), (x, x[:30].detach()), (edge_index,))
    for name, value in expected.items():
        assert_as_close(found[name], value.float())
    backwards = edge_index.flip(0)  # one source of many edges
    few, many = x.detach()[:30].clone(), x.detach()
    expected = run_layer(theirs.double(), (few.double().requires_grad_(), many.double()), (backwards,))
    found = run_layer(ours.float(), (few.requires_grad_(), many), (backwards,))
    assert_as_close(found["x0"], expected["x0"].float())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("dim", [3, 12, 64])
def test_half_precision_is_summed_in_float32(device, dtype, dim):
    x = torch.randn(200, dim).to(device, dtype).requires_grad_()
    edge_index = random_edges(200, 50, 4000).to(device)
    for aggr in ("mean", "sum"):
        theirs, ours = (layer.to(device) for layer in pair_of(SAGEConv, dim, 4, aggr=aggr))
        expected = run_layer(theirs, (x.detach().float().requires_grad_(), x[:50].detach().float()), (edge_index,))
        found = run_layer(ours.to(dtype), (x, x[:50].detach()), (edge_index,))
        for name, value in expected.items():
            assert_as_close(found[name].float(), value, 2e-2)


def test_rows_that_need_no_gradient_get_none():
    _, ours = pair_of(SAGEConv, 8, 4)
    x, target = torch.randn(50, 8), torch.randn(20, 8).requires_grad_()
    found = run_layer(ours, (x, target), (random_edges(50, 20, 300),))
    assert x.grad is None and "x0" not in found and found["x1"].abs().sum() > 0


def test_a_detached_prefix_gets_no_gradient():
    theirs, ours = pair_of(SAGEConv, 8, 4)
    x = torch.randn(50, 8).requires_grad_()
    assert_same(theirs, ours, (x, x[:20].detach()), random_edges(50, 20, 300))


@pytest.mark.parametrize("device", DEVICES)
def test_offsets_of_a_batch_serve_every_prefix_of_its_edges(device):
    edge_index, indptr = (part.to(device) for part in by_target(random_edges(60, 40, 500), 40))
    keep_offsets(edge_index, indptr)
    x = torch.randn(60, 8, device=device)
    theirs, ours = (layer.to(device) for layer in pair_of(SAGEConv, 8, 4))
    for count in (500, 313, 1, 0):
        part = edge_index[:, :count]
        assert block_of(part, 60, 40).indptr is indptr
        assert_same(theirs, ours, (x, x[:40]), part)
        assert_same(theirs, ours, x, part)  # more targets than have edges
    assert block_of(edge_index.clone(), 60, 40).indptr is not indptr
    assert block_of(edge_index[:, 1:], 60, 40).indptr is not indptr
    edge_index[0, 0] = 5
    assert block_of(edge_index, 60, 40).indptr is not indptr, "somebody has written into the edges"


@pytest.mark.parametrize("device", DEVICES)
def test_the_same_bits_every_time_and_on_every_device(device):
    edge_index = random_edges(3000, 500, 20_000, hub=5000)
    x = torch.randn(3000, 20)
    _, ours = pair_of(SAGEConv, 20, 4, root_weight=False, bias=False)
    ours.lin_l.weight = torch.nn.Parameter(torch.eye(20))
    host = run_layer(ours, (x.clone().requires_grad_(), x[:500]), (edge_index,))
    ours = ours.to(device)
    for _ in range(3):
        again = run_layer(ours, (x.to(device).requires_grad_(), x[:500].to(device)), (edge_index.to(device),))
        assert torch.equal(again["out"].cpu(), host["out"]) and torch.equal(again["x0"].cpu(), host["x0"])


def shares_of(edge_index: torch.Tensor, num_targets: int) -> torch.Tensor:
    """Any shares of means, that add up to 1 for each target."""
    weights = torch.rand(edge_index.shape[1], device=edge_index.device) + 0.1
    return weights / weights.new_zeros(num_targets).index_add_(0, edge_index[1], weights)[edge_index[1]]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dim", [1, 6, 100])
@pytest.mark.parametrize("options", [{}, {"root_weight": False}, {"normalize": True}, {"project": True}], ids=str)
def test_means_by_shares_are_sums_of_weighted_rows(device, dim, options):
    """Edges in any order; targets without edges."""
    layer = SAGEConv(dim, 5, **options).to(device)
    x = torch.randn(90, dim, device=device).requires_grad_()
    edge_index = random_edges(90, 40, 700).to(device)
    edge_index = edge_index[:, edge_index[1] != 7][:, torch.randperm(int((edge_index[1] != 7).sum()))]
    shares = shares_of(edge_index, 40)
    rows = layer.lin(x).relu() if options.get("project") else x
    sums = torch.zeros(40, dim, device=device).index_add(0, edge_index[1], rows[edge_index[0]] * shares.unsqueeze(1))
    expected = layer.lin_l(sums) + (layer.lin_r(x[:40]) if options.get("root_weight", True) else 0)
    expected = torch.nn.functional.normalize(expected, dim=-1) if options.get("normalize") else expected
    factor = torch.randn_like(expected)
    of_expected = torch.autograd.grad((expected * factor).sum(), [x, *layer.parameters()])
    found = layer((x, x[:40]), edge_index, edge_weight=shares)
    assert_as_close(found, expected)
    for grad, of in zip(
        torch.autograd.grad((found * factor).sum(), [x, *layer.parameters()]), of_expected, strict=True
    ):
        assert_as_close(grad, of)
    block = block_of(edge_index, 90, 40)
    torch.testing.assert_close(layer((x, x[:40]), block, edge_weight=shares), found)
    if not options.get("project"):
        there, rows = indexed(block, x.detach())
        torch.testing.assert_close(layer(rows, there, edge_weight=shares), found)


def test_equal_shares_are_the_mean():
    layer, x, edge_index = SAGEConv(6, 3), torch.randn(50, 6), random_edges(50, 20, 300)
    shares = 1 / torch.bincount(edge_index[1], minlength=20)[edge_index[1]]
    assert_as_close(layer((x, x[:20]), edge_index, edge_weight=shares), layer((x, x[:20]), edge_index))
    activation = Activation("relu", 0.0, training=True)
    found = layer((x, x[:20]), edge_index, activation=activation, edge_weight=shares)
    assert_as_close(found, layer((x.relu(), x[:20].relu()), edge_index))


@pytest.mark.parametrize(
    ("options", "change", "words"),
    [
        ({"aggr": "sum"}, lambda shares: shares, 'SAGEConv: edge_weight: expected aggr="mean"'),
        ({}, lambda shares: shares[1:], "edge_weight: expected float .300., without a gradient, found shape .299."),
        ({}, lambda shares: shares.requires_grad_(), "without a gradient, found shape .300., requires_grad"),
    ],
)
def test_weights_that_are_no_shares_are_refused(options, change, words):
    x, edge_index = torch.randn(50, 6), random_edges(50, 20, 300)
    with pytest.raises(CohortError, match=words):
        SAGEConv(6, 3, **options)((x, x[:20]), edge_index, edge_weight=change(shares_of(edge_index, 20)))
