"""SAGEConv of cohort.nn against PyG's."""

import pytest
import torch
import torch_geometric.nn as pyg
from blocks import DEVICES, assert_as_close, assert_same, by_target, pair_of, random_edges, run_layer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from processes import ALL_TESTS

from cohort_gnn.base.errors import CohortError
from cohort_gnn.nn import Block, SAGEConv
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


@given(
    sources=st.integers(1, 60),
    targets=st.integers(1, 60),
    num_edges=st.integers(0, 400),
    dim=st.integers(1, 40),
    aggr=st.sampled_from(["mean", "sum"]),
    shared=st.booleans(),
    options=st.fixed_dictionaries({"root_weight": st.booleans(), "bias": st.booleans()}),
    seed=st.integers(0, 10),
)
@settings(max_examples=150 if ALL_TESTS else 50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_block_and_any_options(sources, targets, num_edges, dim, aggr, shared, options, seed):
    targets = min(targets, sources) if shared else targets
    dtype = torch.float64  # sums of hundreds, multiplied, may cancel out
    theirs, ours = (layer.to(dtype) for layer in pair_of(SAGEConv, dim, 3, aggr=aggr, **options))
    x = torch.randn(sources, dim, dtype=dtype).requires_grad_()
    target = x[:targets] if shared else torch.randn(targets, dim, dtype=dtype).requires_grad_()
    assert_same(theirs, ours, (x, target), random_edges(sources, targets, num_edges, seed))


def test_one_tensor_of_nodes_is_sources_and_targets():
    theirs, ours = pair_of(SAGEConv, 7, 4)
    assert_same(theirs, ours, torch.randn(50, 7).requires_grad_(), random_edges(50, 50, 300))


def test_targets_without_rows():
    theirs, ours = pair_of(SAGEConv, (7, 7), 4)
    x, edge_index = torch.randn(50, 7).requires_grad_(), random_edges(50, 20, 300)
    expected, found = (run_layer(layer, (x, None), (edge_index, (50, 20))) for layer in (theirs, ours))
    assert_as_close(found["out"], expected["out"])
    assert_as_close(found["x0"], expected["x0"])


@pytest.mark.parametrize("options", [{"normalize": True}, {"project": True}, {"aggr": "sum"}])
def test_projections_and_rows_of_two_widths(options):
    theirs, ours = pair_of(SAGEConv, (7, 9), 4, **options)
    x, target = torch.randn(50, 7).requires_grad_(), torch.randn(20, 9).requires_grad_()
    assert_same(theirs, ours, (x, target), random_edges(50, 20, 300))


def test_lazy_layers_learn_their_width():
    theirs, ours = pyg.SAGEConv(-1, 4), SAGEConv(-1, 4)
    x, edge_index = torch.randn(30, 7), random_edges(30, 30, 100)
    theirs(x, edge_index)
    ours(x, edge_index)
    ours.load_state_dict(theirs.state_dict())
    assert_same(theirs, ours, x, edge_index)


@pytest.mark.parametrize("aggr", ["mean", "sum"])
def test_gradients_are_those_of_differences(aggr):
    layer = SAGEConv(4, 3, aggr=aggr).double()
    x, edge_index = torch.randn(12, 4, dtype=torch.float64).requires_grad_(), random_edges(12, 6, 40)
    assert torch.autograd.gradcheck(lambda x: layer((x, x[:6]), edge_index), (x,))
    other = torch.randn(6, 4, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(lambda x, other: layer((x, other), edge_index), (x, other))


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


@pytest.mark.parametrize("device", DEVICES)
def test_autocast_gives_its_dtype(device):
    x, edge_index = torch.randn(50, 8, device=device).requires_grad_(), random_edges(50, 20, 300).to(device)
    theirs, ours = (layer.to(device) for layer in pair_of(SAGEConv, 8, 4))
    expected = run_layer(theirs, (x, x[:20]), (edge_index,))
    with torch.autocast(device, torch.bfloat16):
        found = run_layer(ours, (x, x[:20]), (edge_index,))
    assert found["out"].dtype == torch.bfloat16 and found["x0"].dtype == torch.float32
    for name, value in expected.items():
        assert_as_close(found[name].float(), value, 3e-2)


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


def test_a_block_in_place_of_edges():
    edge_index, indptr = by_target(random_edges(60, 40, 500), 40)
    x = torch.randn(60, 8)
    theirs, ours = pair_of(SAGEConv, 8, 4)
    block = Block(indptr, edge_index[0], 60, 40)
    assert_as_close(ours((x, x[:40]), block), theirs((x, x[:40]), edge_index))
    with pytest.raises(CohortError, match="60 sources and 30 targets"):
        ours((x, x[:30]), block)


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


def test_matrices_take_pygs_way():
    theirs, ours = pair_of(SAGEConv, 7, 4)
    edge_index = random_edges(50, 50, 300)
    matrix = torch.sparse_coo_tensor(edge_index.flip(0), torch.ones(300), (50, 50)).coalesce()
    assert_same(theirs, ours, torch.randn(50, 7).requires_grad_(), matrix)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: SAGEConv(4, 4, aggr="lstm"), "aggr"),
        (lambda: SAGEConv(4, 4, flow="target_to_source"), "flow source_to_target"),
        (lambda: SAGEConv(4, 4)(torch.zeros(3, 4), torch.zeros(2, 3)), "edge_index"),
        (lambda: SAGEConv(4, 4)(torch.zeros(3, 4), torch.zeros(3, 2, dtype=torch.long)), r"\[2, edges\]"),
        (lambda: SAGEConv(4, 4)(torch.zeros(3, 4), torch.tensor([[0], [3]])), "target: expected ids in"),
        (lambda: SAGEConv(4, 4)(torch.zeros(3, 4), torch.tensor([[-1], [0]])), "source: expected ids in"),
        (lambda: SAGEConv(4, 4)(torch.zeros(3, 4, dtype=torch.uint8), torch.tensor([[0], [0]])), "features"),
    ],
)
def test_what_the_layer_does_not_take_is_refused(make, words):
    with pytest.raises(CohortError, match=words):
        make()


def test_other_aggregations_are_refused_and_left_to_pyg():
    with pytest.raises(CohortError) as refusal:
        SAGEConv(4, 3, aggr="max")
    assert refusal.value.expected == "aggr 'mean' or 'sum' or 'add'" and refusal.value.found == "aggr 'max'"
