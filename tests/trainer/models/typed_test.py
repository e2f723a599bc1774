"""Models of several node types: PyG's layers, with the same parameters, on whole graphs and on trimmed batches."""

import copy
import warnings
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch.nn.utils import prune
from torch_geometric.data import HeteroData
from torch_geometric.nn import GATConv, HeteroConv, HGTConv, RGCNConv, SAGEConv

from cohort_gnn import CohortError, NeighborLoader, from_pyg
from cohort_gnn.spec.graph import GraphTypes
from cohort_gnn.trainer.loop.step import Scores
from cohort_gnn.trainer.models.typed import TypedGNN

KINDS = ["rsage", "rgcn", "rgat", "hgt"]
SHAPES: list[dict] = [{}, {"norm": "layer"}, {"norm": "batch"}, {"residual": True}]
DIMS = {"author": 4, "field": 3, "paper": 5}
COUNTS = {"author": 60, "field": 8, "paper": 90}
EDGE_TYPES = [
    ("author", "writes", "paper"),
    ("field", "topic_of", "paper"),
    ("paper", "rev_writes", "author"),
    ("paper", "cites", "paper"),
]


def types_of(**dims: int) -> GraphTypes:
    return GraphTypes(COUNTS, {name: dims.get(name, 0) for name in COUNTS}, EDGE_TYPES, "paper")


@pytest.fixture(scope="module")
def graph() -> HeteroData:
    generator = torch.Generator().manual_seed(2)
    data = HeteroData()
    for name, count in COUNTS.items():
        data[name].num_nodes = count
    data["field"].x = torch.randn(8, 3, generator=generator)
    data["paper"].x = torch.randn(90, 5, generator=generator)
    data["paper"].y = torch.randint(4, (90,), generator=generator)
    for source, name, target in EDGE_TYPES:
        ends = [torch.randint(COUNTS[each], (400,), generator=generator) for each in (source, target)]
        data[source, name, target].edge_index = torch.stack(ends)
    return data


def same(found: torch.Tensor, wanted: torch.Tensor, inputs: list, own: torch.nn.Module, theirs: torch.nn.Module):
    """Outputs, and gradients of inputs and of parameters of the same names, within 1e-5; of gradients of the largest: a
    bias before a batch norm has the gradient 0, but for rounding."""
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
    weights, named = torch.randn_like(found), dict(theirs.named_parameters())
    trained = {name: values for name, values in own.named_parameters() if values.requires_grad}
    assert trained
    leaves = [(values, named[name]) for name, values in trained.items()] + [(each, each) for each in inputs]
    grads = [
        torch.autograd.grad((out * weights).sum(), of)
        for out, of in zip((found, wanted), zip(*leaves, strict=True), strict=True)
    ]
    largest = max(1.0, *(grad.abs().max().item() for grad in grads[1]))
    for one, other in zip(*grads, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5 * largest)


def rows_of(dims: dict[str, int]) -> dict[str, torch.Tensor]:
    return {name: torch.randn(COUNTS[name], dims.get(name, 0), requires_grad=name in dims) for name in COUNTS}


@pytest.mark.parametrize("kind", ["rsage", "rgcn"])
@pytest.mark.parametrize("layers", ["cohort", "pyg"])
@pytest.mark.parametrize("with_features", ["field paper", "author field paper", "field"])
def test_it_is_pygs_hetero_conv(graph, kind, layers, with_features):
    torch.manual_seed(1)
    dims = {name: DIMS[name] for name in with_features.split()}
    model = TypedGNN(kind, types_of(**dims), 16, 4, num_layers=3, dropout=0.0, layers=layers)
    x = rows_of(dims)
    reference = torch.nn.ModuleList()
    for layer in model.convs:
        convs = {}
        for name, conv in layer.convs.items():
            is_sage = kind == "rsage"
            root = is_sage and conv.root_weight
            convs[name] = SAGEConv((-1, -1), len(conv.lin_l.weight), root_weight=root, bias=is_sage)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            reference.append(HeteroConv(convs, aggr="sum"))
        reference[-1].root = copy.deepcopy(layer.root)

    def expected(given: dict) -> torch.Tensor:
        for number, layer in enumerate(reference):
            sums: dict = {}
            for name, conv in layer.convs.items():
                ends, size = (given[name[0]], given.get(name[2])), (COUNTS[name[0]], COUNTS[name[2]])
                rows = conv(ends, graph[name].edge_index, size=size)
                sums[name[2]] = sums.get(name[2], 0) + rows
            sums |= {name: sums[name] + root(given[name]) for name, root in layer.root.items()}
            given = sums if number + 1 == len(reference) else {name: rows.relu() for name, rows in sums.items()}
        return given["paper"]

    expected(x)  # has PyG's layers take their widths
    reference.load_state_dict(model.convs.state_dict())
    same(model(x, graph.edge_index_dict), expected(x), [x[name] for name in dims], model.convs, reference)


def test_a_layer_of_rgcn_is_pygs_rgcn_conv(graph):
    torch.manual_seed(2)
    model = TypedGNN("rgcn", types_of(**dict.fromkeys(COUNTS, 6)), 16, 4, num_layers=1, dropout=0.0)
    (layer,) = model.convs
    x = rows_of(dict.fromkeys(COUNTS, 6))
    reference = RGCNConv(6, 4, num_relations=3)
    with torch.no_grad():
        for number, conv in enumerate(layer.convs.values()):
            reference.weight[number] = conv.lin_l.weight.t()
        reference.root.copy_(layer.root["paper"].weight.t())
        reference.bias.copy_(layer.root["paper"].bias)
    first = dict(zip(COUNTS, (0, 60, 68), strict=True))
    edges = [graph[name].edge_index + torch.tensor([[first[name[0]]], [first[name[2]]]]) for name in layer.convs.keys()]
    relation = torch.arange(3).repeat_interleave(torch.tensor([each.shape[1] for each in edges]))
    wanted = reference(torch.cat(list(x.values())), torch.cat(edges, dim=1), relation)[68:]
    torch.testing.assert_close(model(x, graph.edge_index_dict), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("layers", ["cohort", "pyg"])
@pytest.mark.parametrize("edge_dims", [[], [0, 2, 0, 3]], ids=["", "edge features"])
@pytest.mark.parametrize("wide", [True, False], ids=["one width", "several widths"])
def test_rgat_is_what_mlperf_trains(graph, layers, edge_dims, wide):
    torch.manual_seed(3)
    dims = dict.fromkeys(COUNTS, 6) if wide else DIMS
    types = replace(types_of(**dims), edge_dims=edge_dims)
    model = TypedGNN("rgat", types, 16, 5, num_layers=2, dropout=0.0, layers=layers, heads=2)
    of_edges = {name: torch.randn(400, dim) for name, dim in types.edge_dim_of.items()}
    torch.nn.init.normal_(model.convs[0].convs["field", "topic_of", "paper"].bias)
    x = rows_of(dims)

    class Reference(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.convs = torch.nn.ModuleList()
            for number, layer in enumerate(model.convs):
                convs = {}
                for name in layer.convs.keys():
                    ends = 16 if number else 6 if wide else dims["paper"] if len(set(name)) < 3 else (-1, -1)
                    dim = types.edge_dim_of.get(name)
                    convs[name] = GATConv(ends, 8, heads=2, add_self_loops=False, edge_dim=dim)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", UserWarning)
                    self.convs.append(HeteroConv(convs, aggr="sum"))
            self.lin = torch.nn.Linear(16, 5)

        def forward(self, given: dict) -> torch.Tensor:
            for number, layer in enumerate(self.convs):
                edges = {name: graph[name].edge_index for name in layer.convs.keys()}
                read = {name: rows for name, rows in of_edges.items() if name in edges}
                given = layer(given, edges, edge_attr_dict=read)
                given = given if number else {name: F.leaky_relu(rows) for name, rows in given.items()}
            return self.lin(given["paper"])

    reference = Reference()
    reference(x)
    reference.load_state_dict(model.state_dict())
    found = model(x, graph.edge_index_dict, edge_attr=of_edges)
    same(found, reference(x), list(x.values()), model, reference)
    if edge_dims:
        with pytest.raises(CohortError) as error:
            model(x, graph.edge_index_dict)
        assert (error.value.place, error.value.expected) == (
            "edge_attr",
            "features [edges, 2] of field, topic_of, paper",
        )


@pytest.mark.parametrize("with_features", ["author field paper", "paper"])
@pytest.mark.parametrize("layers", ["cohort", "pyg"])
def test_hgt_is_pygs(graph, layers, with_features):
    torch.manual_seed(5)
    dims = {name: DIMS[name] for name in with_features.split()}
    model = TypedGNN("hgt", types_of(**dims), 16, 4, num_layers=2, dropout=0.0, layers=layers, heads=2)
    for name, values in model.named_parameters():
        if "p_rel" in name or "skip" in name:
            torch.nn.init.normal_(values)
    x = rows_of(dims)
    convs = [HGTConv(16, 16, (layer.node_types, layer.edge_types), heads=2) for layer in model.convs]
    reference = torch.nn.ModuleDict({"convs": torch.nn.ModuleList(convs), "lin": torch.nn.Linear(16, 4)})
    reference["lin_dict"] = torch.nn.ModuleDict({name: torch.nn.Linear(dim, 16) for name, dim in dims.items()})
    reference.load_state_dict(model.state_dict())

    def expected(given: dict) -> torch.Tensor:
        given = {name: lin(given[name]).relu() for name, lin in reference["lin_dict"].items()}
        for conv in reference["convs"]:
            given = {name: given.get(name, torch.zeros(COUNTS[name], 16)) for name in conv.node_types}
            given = conv(given, {name: graph[name].edge_index for name in conv.edge_types})
        return reference["lin"](given["paper"])

    same(model(x, graph.edge_index_dict), expected(x), [x[name] for name in dims], model, reference)


@pytest.mark.parametrize(
    ("kind", "shape"),
    [(kind, shape) for kind in KINDS for shape in SHAPES if kind != "hgt" or "residual" not in shape],
    ids=str,
)
@pytest.mark.parametrize("with_features", ["field paper", "field"])
def test_cohorts_layers_are_pygs_where_types_have_no_features(graph, kind, with_features, shape):
    torch.manual_seed(4)
    dims = {name: DIMS[name] for name in with_features.split()}
    own, theirs = (
        TypedGNN(kind, types_of(**dims), 16, 4, num_layers=3, dropout=0.0, layers=layers, **shape)
        for layers in ("cohort", "pyg")
    )
    own.load_state_dict(theirs.state_dict())
    x, edges = rows_of(dims), graph.edge_index_dict
    same(own(x, edges), theirs(x, edges), [x[name] for name in dims], own, theirs)
    if shape:
        plain = TypedGNN(kind, types_of(**dims), 16, 4, num_layers=3, dropout=0.0)
        plain.load_state_dict(own.state_dict(), strict=False)
        assert (plain(x, edges) - own(x, edges)).abs().max() > 0.01
    theirs.load_state_dict(own.state_dict())
    torch.testing.assert_close(own.eval()(x, edges), theirs.eval()(x, edges), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("kind", "edge_dims"), [*((kind, []) for kind in KINDS), ("rgat", [0, 2, 0, 3])])
def test_layers_leave_out_what_no_seed_needs(graph, tmp_path, shm, kind, edge_dims):
    graph = copy.copy(graph)
    types = replace(types_of(field=3, paper=5), edge_dims=edge_dims)
    for name, dim in types.edge_dim_of.items():
        graph[name].edge_attr = torch.randn(400, dim)
    folder = from_pyg(graph, tmp_path / "set")
    torch.manual_seed(1)
    model = TypedGNN(kind, types, 16, 4, num_layers=2, dropout=0.0).eval()
    with NeighborLoader(folder, [-1, -1], "paper", batch_size=40, device="cpu") as loader:
        source = loader._sampler.source
        which = source.request(loader._seed_set, loader._fanout, 40)
        of_edges = graph.collect("edge_attr", allow_empty=True)
        whole = model(graph.x_dict | {"author": torch.empty(60, 0)}, graph.edge_index_dict, edge_attr=of_edges)
        for slot in source.slots(which):
            x, edges, *sizes = Scores(model, types=types).inputs_of(slot)
            trimmed = model(x, edges, *sizes)
            assert len(trimmed) == slot.num_seeds
            seeds = slot.n_id[-sum(slot.nodes_of_types[2]) :][: slot.num_seeds]
            torch.testing.assert_close(trimmed, whole[seeds], rtol=1e-4, atol=1e-4)
            untrimmed = model(x, edges, edge_attr=sizes[2])
            torch.testing.assert_close(untrimmed[: slot.num_seeds], trimmed, rtol=1e-4, atol=1e-4)


def test_a_target_that_no_features_reach_is_named():
    with pytest.raises(CohortError) as error:
        TypedGNN("rsage", types_of(author=0), 16, 4, num_layers=2, dropout=0.0)
    assert (error.value.place, error.value.found) == ("--fanout", "features of: none")


def test_only_edge_types_on_which_the_target_depends_have_layers():
    model = TypedGNN("rsage", types_of(paper=5), 16, 4, num_layers=2, dropout=0.0)
    assert [set(layer.convs.keys()) for layer in model.convs] == [
        {("paper", "rev_writes", "author"), ("paper", "cites", "paper")},
        {("author", "writes", "paper"), ("paper", "cites", "paper")},
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_linear_layers_that_were_pruned_are_refused(graph, kind):
    """Their weights are read, and no call makes new ones of the mask."""
    model = TypedGNN(kind, types_of(**DIMS), 16, 4, num_layers=2, dropout=0.0)
    for part in list(model.convs.modules()):
        if type(part).__name__ in ("Linear", "HeteroLinear"):
            prune.random_unstructured(part, "weight", 0.5)
    with pytest.raises(CohortError, match="(?s)found .*Linear, which was changed.*layers='pyg'"):
        model(rows_of(DIMS), graph.edge_index_dict)
