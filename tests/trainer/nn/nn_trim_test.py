"""PyG's models by hops, and rows that a loss does not use."""

import copy
import pickle
from functools import partial

import pytest
import torch
import torch_geometric.nn as pyg
from blocks import DEVICES, assert_as_close, by_target, random_edges
from torch import nn
from torch_geometric.nn import GAT, GCN, GraphSAGE

import cohort_gnn as cohort
from cohort_gnn.nn import kernels
from cohort_gnn.nn.linear import linear
from cohort_gnn.trainer.offsets import keep_offsets

NODES, EDGES, DIM = [10, 40, 90, 160], [60, 150, 300], 12  # of a batch of three hops
SIZES = {"num_sampled_nodes_per_hop": NODES, "num_sampled_edges_per_hop": EDGES}


def batch_of(device: str = "cpu") -> tuple[torch.Tensor, torch.Tensor]:
    """Rows and edges, ordered by target; targets of a hop have their edges from all nodes up to the next hop."""
    hops, first = [], 0
    for hop, count in enumerate(EDGES):
        edges = random_edges(sum(NODES[: hop + 2]), NODES[hop], count, seed=hop)
        hops.append(edges + torch.tensor([[0], [first]]))
        first += NODES[hop]
    edge_index, indptr = by_target(torch.cat(hops, dim=1), first)
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(sum(NODES), DIM, generator=generator)
    return x.to(device), keep_offsets(edge_index.to(device), indptr.to(device))


def pair_of(kind, num_layers: int = 3, **how) -> tuple[nn.Module, nn.Module]:
    """PyG's model, and a copy of it with Cohort's layers."""
    torch.manual_seed(0)
    theirs = kind(DIM, 16, num_layers=num_layers, out_channels=5, **how).double()
    ours = copy.deepcopy(theirs)
    assert not cohort.nn.accelerate(ours).left
    return theirs, ours


def assert_same(theirs: nn.Module, ours: nn.Module, batch, num_used: int | None = None, **how) -> None:
    """The same scores, and gradients of a loss that uses the first of their rows."""
    found = []
    for model in (theirs, ours):
        x, edges = batch[0].double().requires_grad_(), batch[1]
        model.zero_grad()
        out = model(x, edges, **how)
        out[:num_used].square().sum().backward()
        found.append([out.detach(), x.grad, *(weight.grad for weight in model.parameters())])
    for expected, value in zip(*found, strict=True):
        assert_as_close(value, expected, 1e-7)


@pytest.fixture
def hidden(monkeypatch) -> list[int]:
    """The rows that layers of Cohort's put out, in turn."""
    rows = []
    for kind in (cohort.nn.SAGEConv, cohort.nn.GCNConv, cohort.nn.GATConv, cohort.nn.GATv2Conv):

        def forward(self, *args, _forward=kind.forward, **kwargs):
            out = _forward(self, *args, **kwargs)
            rows.append(out.shape[0])
            return out

        monkeypatch.setattr(kind, "forward", forward)
    return rows


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("how", [{}, {"norm": nn.LayerNorm(16), "act": "elu"}])
@pytest.mark.parametrize("kind", [GraphSAGE, partial(GraphSAGE, aggr="max"), GCN, GAT, partial(GAT, v2=True)])
def test_a_model_by_hops_computes_rows_that_are_read(kind, how, device, hidden):
    theirs, ours = (model.to(device) for model in pair_of(kind, **how))
    assert_same(theirs, ours, batch_of(device), 10, **SIZES)
    assert hidden == [140, 50, 50], "the last layer's rows are all there"


def test_fewer_layers_than_hops(hidden):
    assert_same(*pair_of(GraphSAGE, 2), batch_of(), **SIZES)
    assert hidden == [140, 140]


def one_hook(model: nn.Module) -> None:
    model.convs[0].register_forward_hook(lambda *_: None)


def a_message_hook(model: nn.Module) -> None:
    model.convs[1].register_propagate_forward_hook(lambda *_: None)


def maxima(model: nn.Module) -> None:
    model.convs[1].aggr_module = pyg.aggr.MaxAggregation()


@pytest.mark.parametrize("change", [one_hook, a_message_hook, maxima])
def test_pygs_way_after_changes_to_a_model(change, hidden):
    theirs, ours = pair_of(GraphSAGE)
    for model in (theirs, ours):
        change(model)
    assert_same(theirs, ours, batch_of(), **SIZES)
    assert hidden == [300, 140, 50]


@pytest.mark.parametrize("how", [{"norm": "BatchNorm"}, {"norm": "LayerNorm"}, {"jk": "last"}, {"act": nn.Softmax(0)}])
def test_pygs_way_where_rows_depend_on_each_other(how, hidden):
    assert_same(*pair_of(GraphSAGE, **how), batch_of(), **SIZES)
    assert hidden == [300, 140, 50]


def test_pygs_way_with_features_of_edges(hidden):
    edge_attr = torch.randn(sum(EDGES), 3, dtype=torch.float64)
    assert_same(*pair_of(GAT, edge_dim=3), batch_of(), edge_attr=edge_attr, **SIZES)
    assert hidden == [300, 140, 50]


def test_pygs_way_for_edges_of_others(hidden):
    x, edges = batch_of()
    assert_same(*pair_of(GraphSAGE), (x, edges.clone()), **SIZES)
    x = torch.cat((x, x[:7]))  # nodes of which the sizes do not tell
    assert_same(*pair_of(GraphSAGE), (x, edges), **SIZES)
    assert hidden == [300, 140, 50, 307, 147, 57]


def test_a_compiled_model_goes_pygs_way():
    (x, edges), (_, ours) = batch_of(), pair_of(GraphSAGE, 2)
    torch.compiler.reset()
    fast = torch.compile(ours, backend="eager")
    torch.testing.assert_close(fast(x.double(), edges, **SIZES), ours(x.double(), edges, **SIZES))


def test_copies_have_layers_of_their_own(hidden):
    (x, edges), (_, ours) = batch_of(), pair_of(GraphSAGE)
    x = x.double()
    expected = ours(x, edges, **SIZES)
    one_hook(ours)
    before = len(list(ours.modules())), list(ours.state_dict())
    assert before[1] == list(pair_of(GraphSAGE)[0].state_dict())
    for other in (copy.deepcopy(pair_of(GraphSAGE)[1]), pickle.loads(pickle.dumps(pair_of(GraphSAGE)[1]))):
        assert len(list(other.modules())) == before[0]
        other.load_state_dict(ours.state_dict())
        hidden.clear()
        assert torch.equal(other(x, edges, **SIZES), expected) and hidden == [140, 50, 50]


def test_models_with_a_forward_of_their_own_stay_as_they_are(hidden):
    class Mine(GraphSAGE):
        def forward(self, x, edge_index, **sizes):
            return super().forward(x, edge_index, **sizes)

    assert_same(*pair_of(Mine), batch_of(), **SIZES)
    assert hidden == [300, 140, 50]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("num_used", [10, 60, 299, 300, 0])
@pytest.mark.parametrize("kind", [GraphSAGE, GCN, GAT])
def test_a_loss_of_the_first_rows_has_the_same_gradients(kind, num_used, device):
    theirs, ours = (model.to(device) for model in pair_of(kind))
    assert_same(theirs, ours, batch_of(device), num_used)


def test_gradients_of_gradients_are_those_of_all_rows():
    rows = torch.randn(6, 3, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)

    def first_rows(rows, weight):
        return linear(rows, weight, None)[:2]

    assert torch.autograd.gradcheck(first_rows, (rows, weight))
    assert torch.autograd.gradgradcheck(first_rows, (rows, weight))


def test_used_rows_end_with_the_last_that_is_not_zero():
    grad = torch.zeros(9, 5)
    with torch.no_grad():
        assert kernels.used_rows(grad) == 0 and kernels.used_rows(grad[:0]) == 0
        for row, column in ((0, 4), (3, 0), (8, 2)):
            grad[row, column] = 1e-40
            assert kernels.used_rows(grad) == row + 1
        assert kernels.used_rows(grad[:, :2]) == 4, "columns beside do not count"
        assert kernels.used_rows(grad.t()) == 5, "all rows where elements of one are apart"
    assert kernels.used_rows(torch.zeros(9, 5)) == 9, "torch may want more than values"


def test_a_layer_of_rows_without_edges():
    (x, edges), theirs = batch_of(), pyg.SAGEConv(DIM, 4)
    ours = copy.deepcopy(theirs)
    cohort.nn.accelerate(ours)
    for autocast in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            found, expected = ours(x, edges), theirs(x, edges)
        assert_as_close(found.float(), expected.float(), 1e-2 if autocast else 1e-5)
