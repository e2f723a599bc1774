"""Models of PyG's layers, made ours."""

import copy
import pickle
import re

import pytest
import torch
import torch_geometric.nn as pyg
from blocks import DEVICES, assert_as_close, random_edges
from torch import nn
from torch.autograd import forward_ad
from torch.nn.utils import prune
from torch.utils.checkpoint import checkpoint
from torch_geometric.data import Data
from torch_geometric.nn import GCN, GIN, GraphSAGE
from torch_geometric.nn.aggr import SumAggregation

import cohort_gnn as cohort
from cohort_gnn.base.errors import CohortError
from cohort_gnn.nn import accelerate, own_layers
from cohort_gnn.nn.pyg_base import takes_pygs_way


class Residual(nn.Module):
    """Layers of all kinds at several depths, one of them in two places."""

    def __init__(self):
        super().__init__()
        self.first = pyg.SAGEConv(-1, 16)
        self.stack = nn.ModuleDict({"a": nn.ModuleList([pyg.GCNConv(16, 16)]), "b": pyg.GATConv(16, 4, heads=4)})
        self.same = self.stack["b"]
        self.rest = pyg.Sequential("x, edge_index", [(pyg.GINConv(nn.Linear(16, 16)), "x, edge_index -> x"), nn.ReLU()])
        self.drop = nn.Dropout(0.5)
        self.last = pyg.SAGEConv(16, 3, aggr="min")

    def forward(self, x, edge_index):
        x = self.drop(self.first(x, edge_index).relu())
        x = x + self.stack["a"][0](x, edge_index)
        x = x + self.stack["b"](x, edge_index) + self.same(x, edge_index)
        return self.last(self.rest(x, edge_index), edge_index)


def graph(device: str = "cpu"):
    torch.manual_seed(0)
    return torch.randn(60, 7, device=device), random_edges(60, 60, 500).to(device)


@pytest.mark.parametrize("device", DEVICES)
def test_a_model_gives_the_same_and_trains_the_same(device):
    x, edge_index = graph(device)
    theirs = Residual().to(device)
    theirs(x, edge_index)  # lazy layers get their weights
    ours = copy.deepcopy(theirs)
    done = accelerate(ours)
    assert done.replaced == ["first", "stack.a.0", "stack.b", "rest.module_0"] and list(done.left) == ["last"]
    assert type(ours.first) is cohort.nn.SAGEConv and ours.same is ours.stack["b"]
    outputs = []
    for model in (theirs, ours):
        optimizer = torch.optim.Adam(model.parameters(), 0.01)
        for step in range(5):
            torch.manual_seed(step)
            optimizer.zero_grad()
            model(x, edge_index).square().mean().backward()
            optimizer.step()
        outputs.append(model.eval()(x, edge_index).detach())
    assert_as_close(outputs[1], outputs[0], 1e-3)  # five steps of Adam make more of a rounding
    assert (outputs[0] - Residual().to(device).eval()(x, edge_index)).abs().max() > 1e-2 * outputs[0].abs().max()


def test_modules_parameters_modes_and_hooks_stay():
    model = Residual()
    model.last.eval()
    before = {name: (id(module), module.training) for name, module in model.named_modules()}
    called = []
    model.last.register_forward_hook(lambda *_: called.append(True))
    optimizer = torch.optim.SGD(model.stack.parameters(), 0.1)
    accelerate(model)
    assert {name: (id(module), module.training) for name, module in model.named_modules()} == before
    x, edge_index = graph()
    weight = model.stack["a"][0].lin.weight.detach().clone()
    model(x, edge_index).sum().backward()
    optimizer.step()
    assert called and not torch.equal(model.stack["a"][0].lin.weight, weight)


def test_checkpoints_move_both_ways():
    x, edge_index = graph()
    theirs, ours = Residual(), Residual()
    accelerate(ours)
    for model in (theirs, ours):
        model.eval()(x, edge_index)
    assert list(theirs.state_dict()) == list(ours.state_dict())
    ours.load_state_dict(theirs.state_dict())
    assert_as_close(ours(x, edge_index), theirs(x, edge_index))
    other = Residual()
    accelerate(other)
    other.eval()(x, edge_index)
    theirs.load_state_dict(other.state_dict())
    assert_as_close(theirs(x, edge_index), other(x, edge_index))


@pytest.mark.parametrize("kind", [pyg.GraphSAGE, pyg.GCN, pyg.GAT])
def test_pygs_models_and_their_pickles(kind):
    x, edge_index = graph()
    model = kind(7, 16, num_layers=3, out_channels=5, dropout=0.5).eval()
    expected = model(x, edge_index)
    done = accelerate(model)
    assert done.replaced == ["convs.0", "convs.1", "convs.2"] and not done.left
    assert_as_close(model(x, edge_index), expected)
    assert torch.equal(pickle.loads(pickle.dumps(model))(x, edge_index), model(x, edge_index))
    assert accelerate(model).replaced == []


def test_layers_of_a_heterogeneous_model():
    torch.manual_seed(0)
    kinds = {
        ("a", "to", "b"): pyg.SAGEConv((-1, -1), 8),
        ("b", "to", "a"): pyg.GATConv((-1, -1), 8, add_self_loops=False),
    }
    model = pyg.HeteroConv(kinds)
    x = {"a": torch.randn(30, 4), "b": torch.randn(20, 6)}
    edges = {("a", "to", "b"): random_edges(30, 20, 200), ("b", "to", "a"): random_edges(20, 30, 200)}
    expected = model(x, edges)
    assert len(accelerate(model).replaced) == 2
    for name, found in model(x, edges).items():
        assert_as_close(found, expected[name])


def test_it_says_what_it_left_and_why():
    class Mine(pyg.SAGEConv):
        def message(self, x_j):
            return 2 * x_j

    model = nn.ModuleDict(
        {
            "lstm": pyg.SAGEConv(4, 4, aggr="lstm"),
            "cached": pyg.GCNConv(4, 4, cached=True),
            "backwards": pyg.GATConv(4, 4, flow="target_to_source"),
            "mine": Mine(4, 4),
            "cheb": pyg.ChebConv(4, 4, K=2),
            "fine": pyg.GCNConv(4, 4),
            "patched": pyg.SAGEConv(4, 4),
            "propagates": pyg.SAGEConv(4, 4),
            "explained": pyg.SAGEConv(4, 4),
        }
    )
    model["patched"].message = lambda x_j: 2 * x_j
    model["propagates"].propagate = lambda edge_index, **_: torch.zeros(20, 4)
    model["explained"].explain = True  # for which PyG sets another propagate()
    model["explained"].explain = False
    kinds = {name: type(module) for name, module in model.items()}
    done = accelerate(model)
    assert done.replaced == ["fine", "explained"]
    assert {name for name, module in model.items() if type(module) is kinds[name]} == set(done.left)
    for name, words in (
        ("lstm", "aggr 'lstm'"),
        ("cached", "cached=True"),
        ("backwards", "target_to_source"),
        ("mine", "Mine is a class of its own"),
        ("cheb", "no ChebConv"),
        ("patched", "message() of its own"),
        ("propagates", "propagate() of its own"),
    ):
        assert words in done.left[name] and f"{name}: left, {done.left[name]}" in str(done)
    assert "fine: replaced" in str(done)


def doubled_messages(layer):
    layer.message = lambda x_j: 2 * x_j


def other_rows(layer):
    layer.propagate = lambda edge_index, x, **_: x[0][:1] + 5


CHANGES_OF_STEPS = {
    "message": (doubled_messages, "message() of its own"),
    "propagate": (other_rows, "propagate() of its own"),
    "aggregation": (lambda layer: setattr(layer, "aggr_module", SumAggregation()), "SumAggregation"),
    "hook": (lambda layer: layer.register_message_forward_hook(lambda *_: torch.zeros(3, 7)), "hooks on messages"),
    "explain": (lambda layer: setattr(layer, "explain", True), "explain=True"),
}


@pytest.mark.parametrize("change", CHANGES_OF_STEPS)
def test_what_is_changed_later_counts_too_or_is_refused(change):
    """PyG's code runs with edge_index, which is right; with a Block it cannot."""
    (apply, said), x, edge_index = CHANGES_OF_STEPS[change], torch.randn(4, 7), torch.tensor([[1, 2, 3], [0, 0, 0]])
    theirs = pyg.SAGEConv(7, 3)
    layer = copy.deepcopy(theirs)
    accelerate(layer)
    before = layer((x, x[:1]), edge_index)
    for each in (layer, theirs):
        apply(each)
    if change != "explain":
        assert_as_close(layer((x, x[:1]), edge_index), expected := theirs((x, x[:1]), edge_index))
        assert not torch.allclose(before, expected)
    with pytest.raises(CohortError, match=re.escape(said)):
        layer((x, x[:1]), cohort.nn.Block(torch.tensor([0, 3]), torch.tensor([1, 2, 3]), 4, 1))


def test_a_class_with_messages_of_its_own_derives_from_pygs():
    class Mine(cohort.nn.SAGEConv):
        def message(self, x_j):
            return 2 * x_j

    with pytest.raises(CohortError, match=r"message\(\) of its own(.|\n)*use torch_geometric.nn.SAGEConv"):
        Mine(7, 3)


def test_a_layer_alone_is_a_model():
    layer = pyg.GCNConv(7, 3)
    x, edge_index = graph()
    expected = layer(x, edge_index)
    done = accelerate(layer)
    assert done.replaced == [""] and str(done) == "the model: replaced" and type(layer) is cohort.nn.GCNConv
    assert_as_close(layer(x, edge_index), expected)
    assert str(accelerate(nn.Linear(2, 2))) == "no layers of torch_geometric.nn"


@pytest.mark.parametrize("make", [pyg.SAGEConv, pyg.GCNConv, pyg.GATConv])
def test_hooks_on_messages_are_still_called(make):
    x, edge_index = graph()
    layer = make(7, 3)
    expected = layer(x, edge_index)
    accelerate(layer)
    seen = []
    handle = layer.register_propagate_forward_hook(lambda *_: seen.append(True))
    torch.testing.assert_close(layer(x, edge_index), expected)
    assert seen == [True]
    handle.remove()
    assert_as_close(layer(x, edge_index), expected)
    assert seen == [True]


@pytest.mark.parametrize("make", [pyg.SAGEConv, cohort.nn.SAGEConv])
def test_explanations_take_pygs_way(make):
    x, edge_index = graph()
    pyg.SAGEConv(7, 3)
    layer = make(7, 3)
    accelerate(layer)
    layer.explain, layer._edge_mask, layer._apply_sigmoid = True, torch.zeros(500), False
    torch.testing.assert_close(layer(x, edge_index), layer.lin_r(x) + layer.lin_l.bias)  # all edges are masked


KINDS = {
    "sage": lambda: pyg.SAGEConv(7, 5),
    "sage max": lambda: pyg.SAGEConv(7, 5, aggr="max"),
    "gcn": lambda: pyg.GCNConv(7, 5),
    "gat": lambda: pyg.GATConv(7, 5, dropout=0.4),
    "gatv2": lambda: pyg.GATv2Conv(7, 5, dropout=0.4),
    "transformer": lambda: pyg.TransformerConv(7, 5, dropout=0.4),
    "gin": lambda: pyg.GINConv(nn.Linear(7, 5)),
    "rgcn": lambda: pyg.RGCNConv(7, 5, 3),
    "rgat": lambda: pyg.RGATConv(7, 5, 3),
    "hgt": lambda: pyg.HGTConv(7, 5, (["a"], [("a", "to", "a")])),
}


def rows_of(kind: str, layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """What an accelerated layer makes of x [60, 7]."""
    edge_index = random_edges(60, 60, 500)
    if kind == "hgt":
        return layer({"a": x}, {("a", "to", "a"): edge_index})["a"]
    return layer(x, edge_index, *[torch.arange(500) % 3] * kind.startswith("r"))


@pytest.mark.parametrize("kind", KINDS)
def test_what_layers_do_not_derive_is_refused(kind):
    """Also where torch.autograd.grad would leave a part out, or torch.func.jvp give zeros."""
    layer, x = KINDS[kind](), graph()[0].requires_grad_()
    accelerate(layer)
    with pytest.raises(CohortError, match="expected gradients alone, found gradients of gradients"):
        (grad,) = torch.autograd.grad(rows_of(kind, layer, x).sin().sum(), x, create_graph=True)
        torch.autograd.grad(grad.square().sum(), x)
    with pytest.raises((CohortError, RuntimeError), match="found tangents|implement the jvp"):
        with forward_ad.dual_level():
            rows_of(kind, layer, forward_ad.make_dual(x, torch.ones_like(x)))


class Alone(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x, edge_index):
        return self.layer(x, edge_index)


@pytest.mark.parametrize("kind", ["sage", "sage max", "gcn", "gat", "gatv2", "transformer", "gin"])
def test_programs_that_torch_records_are_those_of_pygs_layers(kind):
    """For graphs of other sizes, too; traces of Cohort's layers kept the number of nodes."""
    model, (x, edge_index) = Alone(KINDS[kind]().eval()), graph()
    small, expected = (x[:20], random_edges(20, 20, 90)), model(x, edge_index)
    accelerate(model)
    assert_as_close(torch.jit.trace(model, small)(x, edge_index), expected)
    sizes = ({0: torch.export.Dim.DYNAMIC}, {1: torch.export.Dim.DYNAMIC})
    exported = torch.export.export(model, small, dynamic_shapes=sizes).module()
    assert_as_close(exported(x, edge_index), expected)


@pytest.mark.parametrize("make", [GCN, GraphSAGE, GIN])
def test_scripts_of_torch_are_those_of_pygs_layers(make):
    model, (x, edge_index) = make(7, 5, num_layers=2), graph()
    expected = model(x, edge_index)
    accelerate(model)
    assert_as_close(torch.jit.script(model)(x, edge_index), expected)
    assert_as_close(model(x, edge_index), expected)  # which has PyG's layers now


@pytest.mark.parametrize("kind", KINDS)
def test_transforms_of_torch_func_are_those_of_pygs_layers(kind):
    layer, x = KINDS[kind]().eval(), graph()[0]
    outputs = []

    def function(rows):
        return rows_of(kind, layer, rows).sin().sum()

    for _ in range(2):
        outputs.append(torch.func.jvp(function, (x,), (torch.ones_like(x),))[1])
        outputs.append(torch.func.grad(function)(x))
        accelerate(layer)
    assert all(map(torch.equal, outputs[:2], outputs[2:]))


@pytest.mark.parametrize("record", [torch.jit.trace, torch.export.export])
def test_layers_without_pyg_are_not_recorded(record):
    with pytest.raises(CohortError, match=r"cohort.load_model\(RUN, layers='pyg'\)"):
        record(own_layers.SAGEConv(7, 5), graph())


@pytest.mark.parametrize("kind", KINDS)
def test_layers_are_computed_again_in_checkpoints(kind):
    layer, x = KINDS[kind](), graph()[0].requires_grad_()
    accelerate(layer)
    grads = []
    for run in (rows_of, lambda *args: checkpoint(rows_of, *args, use_reentrant=False)):
        torch.manual_seed(5)
        grads += torch.autograd.grad(run(kind, layer, x).sin().sum(), x)
    assert torch.equal(*grads)


class Adapted(nn.Module):
    """A linear layer with an adapter, as LoRA's."""

    def __init__(self, base):
        super().__init__()
        self.base, self.more = base, nn.Linear(base.weight.shape[1], base.weight.shape[0])

    @property
    def weight(self):
        return self.base.weight

    @property
    def bias(self):
        return self.base.bias

    def forward(self, rows):
        return self.base(rows) + self.more(rows)


def pruned(parent: nn.Module, name: str) -> None:
    prune.random_unstructured(getattr(parent, name), "weight", 0.5)
    getattr(parent, name).weight_orig.data.mul_(2)  # as a step of an optimizer: `weight` follows before the next call


def with_own_forward(parent: nn.Module, name: str) -> None:
    lin = getattr(parent, name)
    lin.forward = lambda rows: 2 * nn.functional.linear(rows, lin.weight)


def with_the_other_bias(parent: nn.Module, name: str) -> None:
    lin = getattr(parent, name)
    setattr(parent, name, nn.Linear(lin.weight.shape[1], lin.weight.shape[0], bias=lin.bias is None))


CHANGES = {
    "bias": with_the_other_bias,
    "pruned": pruned,
    "own forward": with_own_forward,
    "adapted": lambda parent, name: setattr(parent, name, Adapted(getattr(parent, name))),
    "hooked": lambda parent, name: getattr(parent, name).register_forward_hook(lambda lin, rows, out: 3 * out),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("rgcn", "rgat")])
def test_linear_layers_inside_that_were_changed_are_called(kind, change):
    layers, x = [KINDS[kind]().eval() for _ in range(2)], graph()[0]
    for layer in layers:
        torch.manual_seed(0)
        for parameter in layer.parameters():
            nn.init.uniform_(parameter)
        lins = [name for name, part in layer.named_modules() if type(part).__name__ == "Linear"]
        for name in lins:
            parent, _, last = name.rpartition(".")
            CHANGES[change](layer.get_submodule(parent), last)
        assert lins
    assert not accelerate(layers[1]).left
    torch.testing.assert_close(rows_of(kind, layers[1], x), rows_of(kind, layers[0], x))


LATER = {"aggr_module": pyg.aggr.SoftmaxAggregation(), "flow": "target_to_source"}


@pytest.mark.parametrize("first", [accelerate, lambda layer: None], ids=["accelerated", "then accelerated"])
@pytest.mark.parametrize("name", LATER)
@pytest.mark.parametrize("kind", ["sage", "gcn", "gin", "gat"])
def test_arguments_that_were_changed_count(kind, name, first):
    """Before the layer is accelerated, and afterwards."""
    layers, x = [KINDS[kind]().eval() for _ in range(2)], graph()[0]
    layers[1].load_state_dict(layers[0].state_dict())
    first(layers[1])
    for layer in layers:
        setattr(layer, name, LATER[name])
    accelerate(layers[1])
    torch.testing.assert_close(rows_of(kind, layers[1], x), rows_of(kind, layers[0], x))


@pytest.mark.parametrize(
    "layer", [pyg.GATConv(7, 5, edge_dim=3), pyg.TransformerConv(7, 5, edge_dim=3), pyg.RGATConv(7, 5, 2, edge_dim=3)]
)
def test_a_bias_of_what_transforms_edges_counts(layer):
    with_the_other_bias(layer, "lin_edge")
    args = [*graph(), *[torch.arange(500) % 2] * isinstance(layer, pyg.RGATConv)]
    expected = layer(*args, edge_attr=torch.ones(500, 3))
    accelerate(layer)
    assert_as_close(layer(*args, edge_attr=torch.ones(500, 3)), expected)


def test_a_block_beside_another_bias_is_refused():
    layer = pyg.GCNConv(7, 5)
    with_the_other_bias(layer, "lin")
    accelerate(layer)
    with pytest.raises(CohortError, match="expected plain linear layers inside, found Linear.* a bias"):
        layer(torch.randn(9, 7), cohort.nn.Block(torch.tensor([0, 1]), torch.tensor([2]), num_sources=9, num_targets=1))


@pytest.mark.parametrize("kind", KINDS)
def test_layers_as_they_were_made_do_not_take_pygs_way(kind):
    layer = KINDS[kind]()
    assert not accelerate(layer).left and not takes_pygs_way(layer, graph()[1], graph()[0])


def test_a_block_beside_changed_layers_is_refused():
    layer = cohort.nn.SAGEConv(7, 5)
    pruned(layer, "lin_l")
    block = cohort.nn.Block(torch.tensor([0, 2]), torch.tensor([1, 2]), 3, 1)
    with pytest.raises(CohortError, match="expected plain linear layers inside, found Linear, which was changed"):
        layer((torch.ones(3, 7), torch.ones(1, 7)), block)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_16_bits_are_taken_by_weights_of_float32(kind, dtype):
    layer, x = KINDS[kind]().eval(), graph()[0]
    accelerate(layer)
    rows = x.to(dtype).requires_grad_()
    out = rows_of(kind, layer, rows)
    torch.testing.assert_close(out.float(), rows_of(kind, layer, rows.float()), rtol=2e-2, atol=2e-2)
    out.float().sum().backward()
    assert rows.grad.dtype == dtype
    assert {weight.grad.dtype for weight in layer.parameters() if weight.grad is not None} == {torch.float32}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", KINDS)
def test_rows_have_pygs_dtype_under_autocast(kind, dtype):
    theirs = KINDS[kind]()
    ours, x = copy.deepcopy(theirs), torch.randn(60, 7, dtype=dtype)
    accelerate(ours)
    with torch.autocast("cpu", torch.bfloat16):
        assert rows_of(kind, ours, x).dtype == rows_of(kind, theirs, x).dtype


LAZY = {
    "sage": lambda: pyg.SAGEConv(-1, 4),
    "gcn": lambda: pyg.GCNConv(-1, 4),
    "gat": lambda: pyg.GATConv(-1, 4, residual=True, edge_dim=-1),
    "gatv2": lambda: pyg.GATv2Conv(-1, 4, residual=True, edge_dim=-1),
    "graph": lambda: pyg.GraphConv(-1, 4),
    "transformer": lambda: pyg.TransformerConv(-1, 4, beta=True, edge_dim=3),
    "hgt": lambda: pyg.HGTConv(-1, 4, (["a", "b"], [("a", "to", "b"), ("b", "to", "a"), ("a", "in", "a")])),
}


@pytest.mark.parametrize("kind", LAZY)
def test_lazy_layers_begin_with_the_same_weights(kind):
    """And draw them in the order in which PyG's first call does."""
    theirs, edge_index = LAZY[kind](), random_edges(9, 9, 30)
    ours, outs = copy.deepcopy(theirs), []
    assert accelerate(ours).replaced == [""]
    nodes, edge_attr = {"a": torch.randn(9, 7), "b": torch.randn(9, 5)}, torch.randn(edge_index.shape[1], 3)
    for layer in (theirs, ours):
        torch.manual_seed(1)
        if kind == "hgt":
            outs.append(layer(nodes, dict.fromkeys(layer.edge_types, edge_index))["b"])
        else:
            outs.append(layer(nodes["a"], edge_index, *([edge_attr] if hasattr(layer, "lin_edge") else [])))
    assert_as_close(*outs)


def test_a_lazy_hgt_takes_a_node_type_without_nodes():
    layer = LAZY["hgt"]()
    assert accelerate(layer).replaced == [""]
    edges = dict.fromkeys(layer.edge_types, torch.empty(2, 0, dtype=torch.int64))
    found = layer({"a": torch.randn(3, 7), "b": torch.randn(0, 5)}, edges)
    assert found["a"].shape == (3, 4) and found["b"].shape == (0, 4)


@pytest.mark.parametrize("width", [6, 9])
def test_rows_of_another_width_than_those_of_edges_are_refused(width):
    layer = pyg.GINEConv(nn.LazyLinear(4) if width == 6 else nn.Linear(7, 4), edge_dim=3)
    assert accelerate(layer).replaced == [""]
    with pytest.raises(CohortError, match=f"GINEConv: x: expected [07] columns, .* found {width} columns"):
        layer(torch.randn(20, width), random_edges(20, 20, 50), torch.randn(50, 3))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dims", [(7, 40), (40, 7)])
def test_gcn_has_one_dtype_under_autocast_whichever_comes_first(dims, bias):
    theirs = pyg.GCNConv(*dims, bias=bias)
    ours, (_, edge_index) = copy.deepcopy(theirs), graph()
    accelerate(ours)
    with torch.autocast("cpu", torch.bfloat16):
        x = torch.randn(60, dims[0])
        assert ours(x, edge_index).dtype == theirs(x, edge_index).dtype == torch.float32


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "hgt"])
def test_a_batch_with_too_few_rows_is_refused(shm, kind):
    """As edges without the offsets of a batch are: nothing beyond x is read."""
    layer, (x, edge_index) = KINDS[kind](), graph()
    accelerate(layer)
    data = Data(x=x, edge_index=edge_index, edge_type=torch.arange(500) % 3)
    with cohort.NeighborLoader(data, [4, 3], batch_size=4, device="cpu") as loader:
        batch = next(iter(loader)).clone()
    types = [batch.edge_type] * kind.startswith("r")
    assert layer(batch.x, batch.edge_index, *types).shape == (batch.num_nodes, 5)
    with pytest.raises(CohortError, match=r"edge_index: source: expected ids in \[0, 6\).*\n.*x has too few rows"):
        layer(batch.x[:6], batch.edge_index, *types)


@pytest.mark.parametrize("dtype", [torch.int32, torch.float64])
def test_blocks_are_of_int64(dtype):
    indptr, source = torch.tensor([0, 2]), torch.tensor([1, 2])
    for arrays in ((indptr.to(dtype), source), (indptr, source.to(dtype)), (indptr, torch.tensor([1, 9, 2])[::2])):
        with pytest.raises(CohortError, match=r"Block: (indptr|source): expected int64 \[any\], contiguous"):
            cohort.nn.Block(*arrays, 3, 1)
