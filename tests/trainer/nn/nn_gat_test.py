"""GATConv of cohort.nn against PyG's."""

import pytest
import torch
from blocks import (
    DEVICES,
    assert_as_close,
    assert_as_exact,
    assert_same,
    by_target,
    pair_of,
    random_edges,
    run_layer,
    with_loops,
)

from cohort_gnn.base.errors import CohortError
from cohort_gnn.nn import Block, GATConv

FEW_COLUMNS, MANY_COLUMNS = (6, 40), (40, 6)  # rows are summed before they are multiplied by the weights; after


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("heads", [1, 4, 6])
@pytest.mark.parametrize("dims", [(1, 7), (7, 1), (100, 64), (1000, 8), (8, 1000)])
def test_outputs_and_gradients_are_pygs(device, heads, dims):
    theirs, ours = (layer.to(device) for layer in pair_of(GATConv, *dims, heads=heads))
    x, edge_index = torch.randn(90, dims[0], device=device), with_loops(random_edges(90, 40, 700)).to(device)
    assert_as_exact(theirs, ours, x, lambda x: x[:40], edge_index)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dims", [FEW_COLUMNS, MANY_COLUMNS])
def test_a_hub_of_many_neighbours(device, dims):
    theirs, ours = (layer.to(device) for layer in pair_of(GATConv, *dims, heads=4))
    hub = 100_000 if device == "cuda" else 20_000
    x, edge_index = torch.randn(5000, dims[0], device=device), random_edges(5000, 30, 1000, hub=hub).to(device)
    assert_as_exact(theirs, ours, x, lambda x: x[:30], edge_index)
    backwards = edge_index.flip(0)  # one source of many edges
    assert_as_exact(theirs, ours, x[:30], lambda rows: x.to(rows.dtype), backwards)


@pytest.mark.parametrize("options", [{}, {"edge_dim": 3}, {"concat": False, "residual": True}])
def test_targets_of_no_sources(options):
    theirs, ours = pair_of(GATConv, (5, 7), 6, heads=2, add_self_loops=False, **options)
    edges = [torch.empty(2, 0, dtype=torch.int64)] + ([torch.empty(0, 3)] if "edge_dim" in options else [])
    found = []
    for layer in (theirs, ours):
        x = torch.empty(0, 5, requires_grad=True), torch.ones(4, 7, requires_grad=True)
        out = layer(x, *edges)
        out.sum().backward()
        found.append((out, *(torch.zeros_like(each) if each.grad is None else each.grad for each in x)))
    for expected, each in zip(*found, strict=True):
        torch.testing.assert_close(each, expected)


@pytest.mark.parametrize("dims", [(2, 6), (6, 2)])
@pytest.mark.parametrize("options", [{}, {"add_self_loops": False, "concat": False}, {"dropout": 0.4}])
def test_gradients_are_those_of_differences(dims, options):
    layer = GATConv(*dims, heads=2, **options).double()
    x, edge_index = torch.randn(6, dims[0], dtype=torch.float64), with_loops(random_edges(6, 3, 16))
    other = torch.randn(3, dims[0], dtype=torch.float64).requires_grad_()

    def seeded(*x):
        torch.manual_seed(1)
        return layer(x, edge_index)

    assert torch.autograd.gradcheck(lambda x: seeded(x, x[:3]), (x.requires_grad_(),))
    assert torch.autograd.gradcheck(seeded, (x, other))


@pytest.mark.parametrize("device", DEVICES)
def test_dropout_takes_its_share_and_scales_the_rest(device):
    layer = GATConv(1, 1, heads=4, dropout=0.3, bias=False).to(device)
    with torch.no_grad():
        layer.lin.weight.fill_(1)
    x, edge_index = torch.ones(3000, 1, device=device), random_edges(3000, 3000, 60_000).to(device)
    torch.testing.assert_close(layer.eval()(x, edge_index), torch.ones(3000, 4, device=device))
    torch.manual_seed(1)
    sums = layer.train()(x, edge_index)
    assert abs(sums.mean().item() - 1) < 0.02 and sums.std().item() > 0.05
    torch.manual_seed(1)
    assert torch.equal(layer(x, edge_index), sums)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("dims", [FEW_COLUMNS, MANY_COLUMNS, (64, 16), (16, 64)])
def test_half_precision(device, dtype, dims):
    x, edge_index = torch.randn(200, dims[0]).to(device, dtype), random_edges(200, 50, 4000).to(device)
    theirs, ours = (layer.to(device) for layer in pair_of(GATConv, *dims, heads=4))
    assert_as_exact(theirs, ours, x, lambda x: x[:50], edge_index, relative=3e-2)


@pytest.mark.gpu
@pytest.mark.parametrize("dims", [FEW_COLUMNS, MANY_COLUMNS])
def test_a_gpu_gives_the_same_bits_again(dims):
    _, ours = (layer.cuda() for layer in pair_of(GATConv, *dims, heads=4, dropout=0.5))
    x, edge_index = torch.randn(500, dims[0]).cuda().requires_grad_(), random_edges(500, 300, 9000, hub=5000).cuda()
    runs = []
    for _ in range(3):
        torch.manual_seed(2)
        runs.append(run_layer(ours, (x, x[:300]), (edge_index,)))
        runs[-1] = {name: value.clone() for name, value in runs[-1].items()}
    for name, value in runs[0].items():
        assert torch.equal(runs[1][name], value) and torch.equal(runs[2][name], value), name


def test_frozen_parts_get_no_gradient():
    _, ours = pair_of(GATConv, 6, 8, heads=2)
    for weight in (ours.att_src, ours.att_dst, ours.lin.weight):
        weight.requires_grad_(False)
    x, edge_index = torch.randn(50, 6), random_edges(50, 20, 300)
    found = run_layer(ours, (x, x[:20]), (edge_index,))
    assert found["bias"] is not None and all(found[name] is None for name in ("att_src", "att_dst", "lin.weight"))


def with_edge_rows(theirs, ours, x, edge_index, rows, relative=1e-5):
    """Outputs and gradients of both, also those of the features of edges."""
    found = []
    for layer in (theirs, ours):
        edge_attr = rows.clone().requires_grad_()
        found.append(run_layer(layer, x, (edge_index, edge_attr)) | {"edge_attr": edge_attr.grad})
        found[-1] = {name: value.clone() for name, value in found[-1].items()}
    assert found[0].keys() == found[1].keys()
    for name, value in found[0].items():
        assert_as_close(found[1][name], value, relative)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dims", [FEW_COLUMNS, MANY_COLUMNS])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"add_self_loops": False},
        {"fill_value": 0.5},
        {"fill_value": torch.tensor([1.0, -2, 3])},
        {"fill_value": "max"},
        {"concat": False, "bias": False},
    ],
)
def test_edge_features_count_as_in_pygs_layer(device, dims, options):
    theirs, ours = (layer.double().to(device) for layer in pair_of(GATConv, *dims, heads=4, edge_dim=3, **options))
    x = torch.randn(90, dims[0], dtype=torch.float64, device=device).requires_grad_()
    edge_index = with_loops(random_edges(90, 40, 700)).to(device)
    rows = torch.randn(700, 3, dtype=torch.float64, device=device)
    with_edge_rows(theirs, ours, (x, x[:40]), edge_index, rows)
    with_edge_rows(theirs, ours, x, edge_index, rows)
    edge_index, indptr = by_target(edge_index.cpu(), 40)
    given = Block(indptr.to(device), edge_index[0].to(device), 90, 40)
    expected = run_layer(theirs, (x, x[:40]), (edge_index.to(device), rows))
    for name, value in run_layer(ours, (x, x[:40]), (given, rows)).items() if "max" not in options.values() else ():
        assert_as_close(value, expected[name])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("width", [1, None, 16])
def test_edge_features_of_any_width_in_float32(device, width):
    theirs, ours = (layer.to(device) for layer in pair_of(GATConv, 6, 8, heads=3, edge_dim=width or 1))
    x, edge_index = torch.randn(80, 6, device=device).requires_grad_(), random_edges(80, 80, 2000, hub=500).to(device)
    rows = torch.randn(2500, width, device=device) if width else torch.randn(2500, device=device)
    with_edge_rows(theirs, ours, x, edge_index, rows, 1e-4)


def test_gradients_of_edge_features_are_those_of_differences():
    layer = GATConv(2, 3, heads=2, edge_dim=2).double()
    x, edge_index = torch.randn(12, 2, dtype=torch.float64), with_loops(random_edges(12, 6, 40))
    rows = torch.randn(40, 2, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(lambda x, rows: layer((x, x[:6]), edge_index, rows), (x.requires_grad_(), rows))
    frozen = [parameter.requires_grad_(False) for parameter in layer.parameters()]
    assert frozen and torch.autograd.gradcheck(lambda rows: layer((x.detach(), x.detach()[:6]), edge_index, rows), rows)


def test_edge_features_are_left_out_as_in_pygs_layer():
    theirs, ours = pair_of(GATConv, 6, 4, heads=2)
    x, edge_index = torch.randn(50, 6).requires_grad_(), random_edges(50, 50, 300)
    assert_same(theirs, ours, x, edge_index, torch.rand(300, 3))  # without edge_dim
    theirs, ours = pair_of(GATConv, 6, 4, heads=2, edge_dim=3)
    expected, found = (run_layer(layer, x, (edge_index,))["out"] for layer in (theirs, ours))
    assert_as_close(found, expected)
    assert ours.lin_edge.weight.grad is None


def test_edge_features_of_other_edges_are_refused():
    layer, edge_index = GATConv(6, 4, edge_dim=3), random_edges(50, 50, 300)
    for rows in (torch.rand(299, 3), torch.rand(300, 3, 1)):
        with pytest.raises(CohortError, match=r"edge_attr: shape: expected \[300, 3\]"):
            layer(torch.rand(50, 6), edge_index, rows)


def test_attention_weights_take_pygs_way():
    theirs, ours = pair_of(GATConv, 6, 4, heads=2, edge_dim=3)
    x, edge_index = torch.randn(50, 6).requires_grad_(), random_edges(50, 50, 300)
    expected, found = (layer(x, edge_index, return_attention_weights=True) for layer in (theirs, ours))
    torch.testing.assert_close(found, expected)
