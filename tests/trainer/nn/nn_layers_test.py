"""What all layers of cohort.nn take as PyG's do: inputs and edges of every form, options, autocast; and what they
refuse."""

import os
import subprocess
import sys

import pytest
import torch
import torch_geometric.nn as pyg
from blocks import DEVICES, assert_as_close, assert_same, by_target, pair_of, random_edges, run_layer, with_loops
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from processes import ALL_TESTS

from cohort_gnn.base.errors import CohortError
from cohort_gnn.nn import Block, GATConv, GATv2Conv, GCNConv, GINConv, GraphConv, SAGEConv, TransformerConv

FEW_COLUMNS, MANY_COLUMNS = (6, 40), (40, 6)  # rows are summed before they are multiplied by the weights; after
BACKWARDS = {"flow": "target_to_source"}
OPTIONS = {
    GATConv: {
        "heads": st.integers(1, 9),
        "concat": st.booleans(),
        "negative_slope": st.sampled_from([0.0, 0.2, 1.0]),
        "add_self_loops": st.booleans(),
        "bias": st.booleans(),
        "residual": st.booleans(),
    },
    SAGEConv: {"aggr": st.sampled_from(["mean", "sum"]), "root_weight": st.booleans(), "bias": st.booleans()},
    GraphConv: {"aggr": st.sampled_from(["mean", "add"]), "bias": st.booleans()},
}


@pytest.mark.parametrize("kind", OPTIONS)
@given(
    sources=st.integers(1, 60),
    targets=st.integers(1, 60),
    num_edges=st.integers(0, 400),
    dims=st.tuples(st.integers(1, 40), st.integers(1, 12)),
    shared=st.booleans(),
    seed=st.integers(0, 10),
    data=st.data(),
)
@settings(max_examples=200 if ALL_TESTS else 50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_block_and_any_options(kind, sources, targets, num_edges, dims, shared, seed, data):
    """In float64: sums of hundreds, multiplied, may cancel out."""
    targets = min(targets, sources) if shared else targets
    options = data.draw(st.fixed_dictionaries(OPTIONS[kind]))
    theirs, ours = (layer.double() for layer in pair_of(kind, *dims, **options))
    x = torch.randn(sources, dims[0], dtype=torch.float64).requires_grad_()
    target = x[:targets] if shared else torch.randn(targets, dims[0], dtype=torch.float64).requires_grad_()
    edge_index = random_edges(sources, targets, num_edges, seed)
    edge_index[0, ::7] = edge_index[1, ::7].clamp(max=sources - 1)
    assert_same(theirs, ours, (x, target), edge_index)


@pytest.mark.parametrize(
    ("kind", "dims"),
    [(GATConv, FEW_COLUMNS), (GATConv, MANY_COLUMNS), (GATConv, ((7, 7), 4)), (SAGEConv, (7, 4)), (GraphConv, (7, 4))],
)
def test_one_tensor_of_nodes_is_sources_and_targets(kind, dims):
    width = dims[0] if isinstance(dims[0], int) else dims[0][0]
    x = torch.randn(50, width).requires_grad_()
    assert_same(*pair_of(kind, *dims), x, with_loops(random_edges(50, 50, 300)))


@pytest.mark.parametrize(
    ("kind", "out_dim", "options"),
    [
        (GATConv, 40, {"heads": 2, "residual": True}),
        (GATConv, 1, {"heads": 2, "residual": True}),
        (SAGEConv, 4, {"normalize": True}),
        (SAGEConv, 4, {"project": True}),
        (SAGEConv, 4, {"aggr": "sum"}),
        (GraphConv, 4, {}),
    ],
)
def test_rows_of_two_widths(kind, out_dim, options):
    x, target = torch.randn(50, 7).requires_grad_(), torch.randn(20, 9).requires_grad_()
    assert_same(*pair_of(kind, (7, 9), out_dim, **options), (x, target), random_edges(50, 20, 300))


@pytest.mark.parametrize(
    ("kind", "options"), [(GATConv, {"heads": 3}), (GATConv, {"heads": 3, "add_self_loops": False}), (SAGEConv, {})]
)
def test_targets_without_rows(kind, options):
    theirs, ours = pair_of(kind, (7, 7), 4, **options)
    x, edges = torch.randn(50, 7).requires_grad_(), [random_edges(50, 20, 300), (50, 20)]
    if kind is GATConv:
        edges.insert(1, None)  # features of edges
    expected, found = (run_layer(layer, (x, None), edges) for layer in (theirs, ours))
    assert_as_close(found["out"], expected["out"])
    assert_as_close(found["x0"], expected["x0"])


@pytest.mark.parametrize(("kind", "in_dim"), [(GATConv, -1), (GATConv, (-1, -1)), (SAGEConv, -1), (GraphConv, -1)])
def test_lazy_layers_learn_their_width(kind, in_dim):
    theirs, ours = getattr(pyg, kind.__name__)(in_dim, 4), kind(in_dim, 4)
    x, edge_index = torch.randn(30, 7), random_edges(30, 30, 100)
    theirs(x, edge_index)
    ours(x, edge_index)
    ours.load_state_dict(theirs.state_dict())
    assert_same(theirs, ours, x, edge_index)


@pytest.mark.parametrize(("kind", "options"), [(GATConv, {"heads": 4}), (SAGEConv, {}), (GraphConv, {})])
def test_a_block_is_its_edges(kind, options):
    edge_index, indptr = by_target(with_loops(random_edges(60, 40, 500)), 40)
    theirs, ours = pair_of(kind, 6, 8, **options)
    x, block = torch.randn(60, 6).requires_grad_(), Block(indptr, edge_index[0], 60, 40)
    expected, found = run_layer(theirs, (x, x[:40]), (edge_index,)), run_layer(ours, (x, x[:40]), (block,))
    for name, value in expected.items():
        assert_as_close(found[name], value)
    if kind is not GATConv:
        with pytest.raises(CohortError, match="60 sources and 30 targets"):
            ours((x, x[:30]), block)


@pytest.mark.parametrize(
    ("kind", "options"), [(GATConv, {"heads": 2, "add_self_loops": False}), (GCNConv, {}), (SAGEConv, {})]
)
def test_matrices_take_pygs_way(kind, options):
    edge_index = random_edges(50, 50, 300)
    matrix = torch.sparse_coo_tensor(edge_index.flip(0), torch.ones(300), (50, 50)).coalesce()
    assert_same(*pair_of(kind, 6, 4, **options), torch.randn(50, 6).requires_grad_(), matrix)


@pytest.mark.parametrize("count", [2, 70])  # less and more than there are nodes
@pytest.mark.parametrize("kind", [GCNConv, GraphConv, SAGEConv, GINConv])
def test_rows_of_several_graphs_with_the_same_edges(kind, count):
    theirs, ours = pair_of(kind, torch.nn.Linear(6, 4)) if kind is GINConv else pair_of(kind, 6, 4)
    assert_same(theirs, ours, torch.randn(count, 50, 6).requires_grad_(), random_edges(50, 50, 300))


@pytest.mark.parametrize("kind", [GATConv, GATv2Conv, GCNConv, GraphConv, SAGEConv, TransformerConv])
def test_edges_of_int32(kind):
    assert_same(*pair_of(kind, 6, 4), torch.randn(50, 6).requires_grad_(), random_edges(50, 50, 300).int())


@pytest.mark.parametrize("kind", [GCNConv, GraphConv])
def test_weights_of_edges_count_as_in_pygs_layer(kind):
    theirs, ours = pair_of(kind, 7, 4)
    x, edge_index, weight = torch.randn(50, 7).requires_grad_(), random_edges(50, 50, 300), torch.rand(300)
    assert_same(theirs, ours, x, edge_index, weight)
    assert not torch.allclose(ours(x, edge_index), ours(x, edge_index, weight), atol=1e-3)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("kind", "dims"),
    [(GATConv, FEW_COLUMNS), (GATConv, MANY_COLUMNS), (GCNConv, (16, 64)), (GCNConv, (64, 16)), (SAGEConv, (8, 4))],
)
def test_autocast(device, kind, dims):
    theirs, ours = (layer.to(device) for layer in pair_of(kind, *dims, **{"heads": 4} if kind is GATConv else {}))
    x = torch.randn(50, dims[0], device=device).requires_grad_()
    rows, num_targets = (x, 50) if kind is GCNConv else ((x, x[:20]), 20)
    edge_index = random_edges(50, num_targets, 300).to(device)
    expected = run_layer(theirs, rows, (edge_index,))
    with torch.autocast(device, torch.bfloat16):
        found = run_layer(ours, rows, (edge_index,))
    assert found["x0"].dtype == torch.float32 and (kind is not SAGEConv or found["out"].dtype == torch.bfloat16)
    for name, value in expected.items():
        assert_as_close(found[name].float(), value, 3e-2)


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        (GATConv, {"aggr": "max"}, "aggr"),
        (GATConv, BACKWARDS, "flow"),
        (GCNConv, {"cached": True}, "cached"),
        (GCNConv, {"aggr": "mean"}, "aggr"),
        (GCNConv, BACKWARDS, "flow"),
        (GATConv, {"dropout": 1.0}, "expected dropout below 1, found dropout 1.0"),
        (TransformerConv, {"dropout": 1.0}, "dropout"),
        (SAGEConv, {"aggr": "lstm"}, "aggr"),
        (SAGEConv, {"aggr": "min"}, "expected aggr 'mean' or 'sum' or 'add' or 'max', found aggr 'min'"),
        (SAGEConv, BACKWARDS, "flow source_to_target"),
        (GraphConv, {"aggr": "max"}, r"use torch_geometric\.nn\.GraphConv for others"),
    ],
)
def test_options_that_layers_do_not_take_are_refused(kind, options, words):
    with pytest.raises(CohortError, match=words):
        kind(4, 4, **options)


ONE_EDGE = torch.tensor([[0], [0]])


@pytest.mark.parametrize(
    ("kind", "x", "edges", "words"),
    [
        (SAGEConv, torch.zeros(3, 4), torch.zeros(2, 3), "edge_index"),
        (SAGEConv, torch.zeros(3, 4), torch.zeros(3, 2, dtype=torch.long), r"\[2, edges\]"),
        (SAGEConv, torch.zeros(3, 4), torch.tensor([[0], [3]]), "target: expected ids in"),
        (SAGEConv, torch.zeros(3, 4), torch.tensor([[-1], [0]]), "source: expected ids in"),
        (SAGEConv, torch.zeros(3, 4, dtype=torch.uint8), ONE_EDGE, "features"),
        (GCNConv, (torch.zeros(3, 4), torch.zeros(3, 4)), ONE_EDGE, "GCNConv: x"),
    ],
)
def test_inputs_that_layers_do_not_take_are_refused(kind, x, edges, words):
    with pytest.raises(CohortError, match=words):
        kind(4, 4)(x, edges)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("kind", [SAGEConv, GINConv, GATConv, GATv2Conv, TransformerConv])
def test_many_neighbours_are_summed_beyond_16_bits(kind, dtype, device):
    """A bfloat16 sum of ones stops at 256, and attention weights by such a sum exceed one."""
    edges = torch.stack([torch.arange(1, 3001), torch.zeros(3000, dtype=torch.long)]).to(device)
    x = torch.ones(3001, 1, dtype=dtype, device=device)
    options = {SAGEConv: {"aggr": "sum", "root_weight": False}, TransformerConv: {"root_weight": False}}
    if kind is GINConv:
        layer = GINConv(torch.nn.Linear(1, 1, bias=False), eps=-1)
    else:
        layer = kind(1, 1, bias=False, **options.get(kind, {"add_self_loops": False}))
    for name, weight in layer.named_parameters():  # PyG 2.6 has biases in TransformerConv all the same
        torch.nn.init.constant_(weight, 0.0 if "bias" in name else 1.0)
    with torch.no_grad():
        found = layer.to(device, dtype)(x, edges)[0].item()
    assert found == pytest.approx(3000 if kind in (SAGEConv, GINConv) else 1, rel=0.01)


def test_no_files_of_layers_are_left(tmp_path):
    program = (
        "import inspect, linecache; import cohort_gnn as cohort\n"
        "layers = [cohort.nn.SAGEConv(4, 4), cohort.nn.GATConv(4, 4), cohort.nn.GATv2Conv(4, 4)]\n"
        "linecache.checkcache()\n"
        "assert all('def propagate' in inspect.getsource(layer.propagate) for layer in layers)\n"
    )
    subprocess.run([sys.executable, "-c", program], env=os.environ | {"TMPDIR": str(tmp_path)}, check=True)
    assert [file for file in tmp_path.rglob("*") if file.suffix in (".py", ".pyc")] == []
