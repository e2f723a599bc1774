"""R-SAGE: PyG's HeteroConv of SAGEConv, with the same parameters, on whole graphs and on trimmed batches."""

import pytest
import torch
from torch_geometric.data import HeteroData
from torch_geometric.nn import HeteroConv, SAGEConv

from cohort import CohortError, NeighborLoader, from_pyg
from cohort.spec.graph import GraphTypes
from cohort.trainer.models.typed import RelationalSAGE, typed_inputs_of

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


@pytest.mark.parametrize("layers", ["cohort", "pyg"])
@pytest.mark.parametrize("with_features", ["field paper", "author field paper", "field"])
def test_it_is_pygs_hetero_conv(graph, layers, with_features):
    torch.manual_seed(1)
    dims = dict.fromkeys(with_features.split(), 3)
    model = RelationalSAGE(types_of(**dims), 16, 4, num_layers=3, dropout=0.0, layers=layers)
    x = {name: torch.randn(COUNTS[name], dims.get(name, 0), requires_grad=name in dims) for name in COUNTS}
    reference = torch.nn.ModuleList()
    for layer in model.convs:
        convs = {}
        for name, conv in layer.convs.items():
            convs[name] = SAGEConv((-1, -1), len(conv.lin_l.weight), root_weight=conv.root_weight)
        reference.append(HeteroConv(convs, aggr="sum"))

    def expected(given: dict) -> torch.Tensor:
        for number, layer in enumerate(reference):
            sums: dict = {}
            for name, conv in layer.convs.items():
                ends, size = (given[name[0]], given.get(name[2])), (COUNTS[name[0]], COUNTS[name[2]])
                rows = conv(ends, graph[name].edge_index, size=size)
                sums[name[2]] = sums.get(name[2], 0) + rows
            given = sums if number + 1 == len(reference) else {name: rows.relu() for name, rows in sums.items()}
        return given["paper"]

    expected(x)  # has PyG's layers take their widths
    reference.load_state_dict(model.convs.state_dict())
    edges = {name: graph[name].edge_index for name in graph.edge_types}
    found, wanted = model(x, edges), expected(x)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
    weights = torch.randn_like(found)
    grads = [torch.autograd.grad((out * weights).sum(), [x[name] for name in dims]) for out in (found, wanted)]
    for own, theirs in zip(*grads, strict=True):
        torch.testing.assert_close(own, theirs, rtol=1e-5, atol=1e-4)
    (model(x, edges) * weights).sum().backward()
    (expected(x) * weights).sum().backward()
    theirs = dict(reference.named_parameters())
    for name, parameter in model.convs.named_parameters():
        torch.testing.assert_close(parameter.grad, theirs[name].grad, rtol=1e-4, atol=1e-4)


def test_layers_leave_out_what_no_seed_needs(graph, tmp_path, shm):
    folder = from_pyg(graph, tmp_path / "set")
    types = types_of(field=3, paper=5)
    torch.manual_seed(1)
    model = RelationalSAGE(types, 16, 4, num_layers=2, dropout=0.0).eval()
    with NeighborLoader(folder, [-1, -1], "paper", batch_size=40, device="cpu") as loader:
        source = loader._sampler.source
        which = source.request(loader._seed_set, loader._fanout, 40)
        whole = model(graph.x_dict | {"author": torch.empty(60, 0)}, graph.edge_index_dict)
        for slot in source.slots(which):
            x, edges, *sizes = typed_inputs_of(slot, types)
            trimmed = model(x, edges, *sizes)
            assert len(trimmed) == slot.num_seeds
            seeds = slot.n_id[-sum(slot.nodes_of_types[2]) :][: slot.num_seeds]
            torch.testing.assert_close(trimmed, whole[seeds], rtol=1e-4, atol=1e-4)
            torch.testing.assert_close(model(x, edges)[: slot.num_seeds], trimmed, rtol=1e-4, atol=1e-4)


def test_a_target_that_no_features_reach_is_named():
    with pytest.raises(CohortError) as error:
        RelationalSAGE(types_of(author=0), 16, 4, num_layers=2, dropout=0.0)
    assert (error.value.place, error.value.found) == ("--fanout", "features of: none")


def test_only_edge_types_on_which_the_target_depends_have_layers():
    model = RelationalSAGE(types_of(paper=5), 16, 4, num_layers=2, dropout=0.0)
    assert [set(layer.convs.keys()) for layer in model.convs] == [
        {("paper", "rev_writes", "author"), ("paper", "cites", "paper")},
        {("author", "writes", "paper"), ("paper", "cites", "paper")},
    ]
