"""Batches of a graph in memory have what PyG's loaders give them: the rows of all its arrays, as they are now."""

import copy
import itertools
import warnings

import numpy as np
import pytest
import torch
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.sampler import NumNeighbors

from cohort_gnn import CohortError, LinkNeighborLoader, NeighborLoader, from_pyg
from cohort_gnn.dataset import open as open_dataset
from cohort_gnn.trainer.loader.batch import Batch as LoadersBatch

NUM_NODES, NUM_EDGES = 40, 300
SUBGRAPHS = ["directional", "bidirectional", "induced"]


def graph(**members) -> Data:
    """With parallel edges, self loops and nodes without edges."""
    random = torch.Generator().manual_seed(0)
    edge_index = torch.randint(NUM_NODES - 4, (2, NUM_EDGES), generator=random)
    edge_index[:, :40] = edge_index[:, 40:80]
    return Data(**{"x": torch.randn(NUM_NODES, 3, generator=random), "edge_index": edge_index} | members)


def graph_of(typed: bool, **members) -> Data | HeteroData:
    """The same, or one of a type with a name."""
    data = graph(**members)
    of_nodes = {name: value for name, value in data.to_dict().items() if name != "edge_index"}
    return HeteroData({"node": of_nodes, ("node", "to", "node"): {"edge_index": data.edge_index}}) if typed else data


ARRAYS = {
    "y": torch.rand(NUM_NODES, 2),
    "split": np.arange(NUM_NODES) % 3,
    "title": [f"node {number}" for number in range(NUM_NODES)],
    "edge_weight": torch.rand(NUM_EDGES, dtype=torch.float64),
    "edge_attr": torch.arange(NUM_EDGES),
    "edge_type": torch.arange(NUM_EDGES) % 7,
    "rating": torch.rand(NUM_EDGES, 2, 3),
    "when": np.arange(NUM_EDGES),
    "pair_index": torch.stack([torch.arange(NUM_EDGES)] * 3),  # PyG joins such arrays in their last dimension
    "name": "a graph",
    "scale": torch.tensor([2.0, 3.0]),
}


@pytest.mark.parametrize("subgraph_type", SUBGRAPHS)
def test_edge_types_come_in_the_order_of_the_graph(tmp_path, subgraph_type):
    """In which PyG's HGTConv needs them, and to_homogeneous() numbers them."""
    counts, data = {"user": 9, "item": 7}, HeteroData()
    for name, count in counts.items():
        data[name].x = torch.randn(count, 4)
    data["item"].y = torch.zeros(7, dtype=torch.int64)
    for source, name, target in (("item", "in", "user"), ("user", "knows", "user"), ("item", "like", "item")):
        ends = [torch.randint(counts[end], (20,)) for end in (source, target)]
        data[source, name, target].edge_index = torch.stack(ends)
    folder = from_pyg(data, tmp_path / "data")
    assert open_dataset(folder).to_pyg().metadata() == data.metadata() != (list(counts), sorted(data.edge_types))
    for graph in (data, folder):
        how = {"device": "cpu", "subgraph_type": subgraph_type}
        with NeighborLoader(graph, [2, 2], "user", **how) as loader:
            batch = next(iter(loader))
            assert batch.metadata() == batch.clone().metadata() == data.metadata()
            pairs = LinkNeighborLoader(graph, [2, 2], ("item", "in", "user"), exclude="none", **how)
            assert next(iter(pairs)).metadata() == data.metadata()
            pairs.close()


def expect_rows(store, given, of_nodes: list[str], of_edges: list[str]) -> None:
    for name in of_nodes:
        rows = given[name] if isinstance(given[name], list) else torch.as_tensor(given[name])
        n_id = store["n_id"]
        if isinstance(rows, list):
            assert store[name] == [rows[node] for node in n_id.tolist()]
        else:
            assert store[name].dtype == rows.dtype and torch.equal(store[name], rows[n_id]), name
    for name in of_edges:
        rows = torch.as_tensor(given[name])
        expected = rows[:, store["e_id"]] if name == "pair_index" else rows[store["e_id"]]
        assert store[name].dtype == rows.dtype and torch.equal(store[name], expected), name


@pytest.mark.parametrize("kind", SUBGRAPHS)
def test_batches_have_all_arrays_of_a_data_as_they_are(shm, kind):
    data = graph(**ARRAYS)
    with NeighborLoader(data, [3, 2], batch_size=9, subgraph_type=kind, device="cpu") as loader:
        for batch in itertools.chain(loader, loader.with_nodes(torch.tensor([3]))):
            expect_rows(
                batch,
                data,
                ["x", "y", "split", "title"],
                ["edge_weight", "edge_attr", "edge_type", "rating", "when", "pair_index"],
            )
            columns, ends = data.edge_index[:, batch.e_id], batch.n_id[batch.edge_index]
            assert (columns == ends).all() or kind == "bidirectional"
            assert batch.name == "a graph" and torch.equal(batch.scale, data.scale)
    assert shm.runs() == []


def test_batches_of_pairs_have_weights_and_labels_of_their_own(shm):
    data = graph(edge_weight=torch.rand(NUM_EDGES), edge_label=torch.ones(7), edge_label_index=torch.ones(2, 7).long())
    with LinkNeighborLoader(data, [2], torch.arange(20), batch_size=8, device="cpu") as loader:
        for batch in loader:
            expect_rows(batch, data, ["x"], ["edge_weight"])
            assert "edge_label" not in batch and batch.edge_label_index.size(1) == len(batch.input_id)


def test_arguments_leave_arrays_of_edges_out(shm):
    data = graph(edge_weight=torch.rand(NUM_EDGES), edge_attr=torch.rand(NUM_EDGES, 2), edge_type=torch.ones(NUM_EDGES))
    left_out = {"edge_ids": False, "edge_weights": False, "edge_attr": False}
    with NeighborLoader(data, [2], batch_size=8, device="cpu", **left_out) as loader:
        batch = next(iter(loader))
        assert {"e_id", "edge_weight", "edge_attr"}.isdisjoint(batch.keys())
        assert len(batch.edge_type) == batch.num_edges
    with pytest.raises(CohortError, match="edge_weights: expected a graph with edge_weight, found none"):
        NeighborLoader(graph(), [2], device="cpu", edge_weights=True)
    assert shm.runs() == []


ROWS = {
    "float64": lambda: torch.rand(NUM_NODES, 3, dtype=torch.float64),
    "int64": lambda: torch.arange(2**40, 2**40 + NUM_NODES * 2).view(NUM_NODES, 2),
    "bool": lambda: torch.rand(NUM_NODES, 5) < 0.5,
    "one number": lambda: torch.rand(NUM_NODES),
    "images": lambda: torch.rand(NUM_NODES, 2, 3),
    "no columns": lambda: torch.rand(NUM_NODES, 0),
    "NaN": lambda: torch.full((NUM_NODES, 2), float("nan")),
    "infinity of float16": lambda: torch.full((NUM_NODES, 2), float("inf"), dtype=torch.float16),
    "sparse": lambda: torch.eye(NUM_NODES).to_sparse(),
    "float16": lambda: torch.rand(NUM_NODES, 3).half(),
    "bfloat16": lambda: torch.rand(NUM_NODES, 3).bfloat16(),
}


@pytest.mark.parametrize(
    ("rows", "typed"), [*((name, False) for name in ROWS), *((name, True) for name in ("float64", "NaN", "images"))]
)
def test_x_keeps_its_type_and_its_shape(shm, rows, typed):
    x = ROWS[rows]()
    data = graph_of(typed, x=x)
    with NeighborLoader(data, [3], "node" if typed else None, batch_size=10, device="cpu") as loader:
        for batch in loader:
            store = batch.store_of("node")
            expected = x.index_select(0, store.n_id)
            assert store.x.dtype == expected.dtype and store.x.shape == expected.shape
            found, expected = (each.to_dense().float().nan_to_num() for each in (store.x, expected))
            assert torch.equal(found, expected)


@pytest.mark.parametrize("typed", [False, True], ids=["one type", "several types"])
def test_batches_follow_a_graph_that_changes(shm, typed):
    data = graph_of(typed, y=torch.zeros(NUM_NODES))
    given = data["node"] if typed else data

    def put(**members):
        return lambda: given.update(members)

    changes = [
        lambda: given.x.add_(1),
        lambda: given.y.add_(1),
        put(x=torch.rand(NUM_NODES, 3), y=torch.rand(NUM_NODES)),
        put(x=torch.nn.Parameter(torch.rand(NUM_NODES, 5)), age=torch.arange(NUM_NODES)),
        put(x=torch.rand(NUM_NODES, 3)),
    ]
    with NeighborLoader(data, [3], "node" if typed else None, batch_size=10, device="cpu") as loader:
        for change in changes:
            change()
            for batch in loader:
                store = batch.store_of("node")
                expect_rows(store, given, ["x", "y", *(["age"] if "age" in given else [])], [])
                assert store.x.requires_grad == given.x.requires_grad
        del (loader.data["node"] if typed else loader.data).x
        assert "x" not in next(iter(loader)).store_of("node")


def test_gradients_reach_rows_that_are_learned(shm):
    data = graph(x=torch.nn.Parameter(torch.rand(NUM_NODES, 3)))
    with NeighborLoader(data, [3], batch_size=NUM_NODES, device="cpu") as loader:
        (batch,) = loader
        batch.x.sum().backward()
        assert torch.equal(data.x.grad, torch.ones(NUM_NODES, 3))


class Molecule(Data):
    """Keeps charges [2, nodes]."""

    def __cat_dim__(self, key, value, *args, **kwargs):
        return 1 if key == "charges" else super().__cat_dim__(key, value, *args, **kwargs)


def test_subclasses_of_data_are_read(shm):
    parts = [graph(), graph(x=torch.rand(NUM_NODES, 3))]
    joined = Batch.from_data_list(parts)
    molecule = Molecule(x=parts[0].x, edge_index=parts[0].edge_index, charges=torch.rand(2, NUM_NODES))
    again = next(iter(NeighborLoader(graph(), [-1], batch_size=NUM_NODES, device="cpu")))
    for data in (joined, molecule, again, copy.copy(molecule)):
        with NeighborLoader(data, [2], batch_size=11, device="cpu") as loader:
            for batch in loader:
                assert type(batch) is LoadersBatch
                assert torch.equal(batch.x, data.x[batch.n_id])
                if data is molecule:
                    assert torch.equal(batch.charges, molecule.charges[:, batch.n_id])
        if data is joined:
            assert torch.equal(batch.ptr, joined.ptr)


def test_edges_and_nodes_that_are_none(shm, tmp_path):
    data = Data(x=torch.ones(2, 2), edge_index=torch.empty(2, 0).long(), edge_attr=torch.empty(0, 3))
    with NeighborLoader(data, [2], device="cpu") as loader:
        assert [batch.edge_attr.shape for batch in loader] == [(0, 3)] * 2
    for data in (
        Data(edge_index=torch.empty(2, 0).long()),
        Data(x=torch.ones(0, 2), edge_index=torch.empty(2, 0).long()),
    ):
        with pytest.raises(CohortError, match="nodes: expected x, or a num_nodes of at least 1"):
            NeighborLoader(data, [2], device="cpu")
    typed = graph_of(True)
    typed["none"].x = torch.ones(0, 2)
    for refuse in (
        lambda: NeighborLoader(typed, [2], "node"),
        lambda: from_pyg(typed, tmp_path / "out", target="node"),
    ):
        with pytest.raises(CohortError, match=r"none: expected .*\n.*data.node_type_subgraph\(\["):
            refuse()
    more = Data(x=torch.ones(2, 2), edge_index=torch.empty(2, 0).long(), num_nodes=3)
    with pytest.raises(CohortError, match="x: expected num_nodes = 3 rows, found 2"):
        NeighborLoader(more, [2], device="cpu")
    assert shm.runs() == []


def test_arrays_that_fit_nodes_and_edges_are_warned_of(shm):
    """PyG takes them for arrays of nodes; weights that draws depend on are of edges."""
    ring = torch.stack([torch.arange(4), torch.arange(1, 5) % 4])
    data = Data(
        x=torch.ones(4, 1), edge_index=ring, w=torch.arange(1.0, 5), edge_attr=torch.arange(4), mask=ring[0] > 1
    )
    with pytest.warns(UserWarning, match=r"^data.w: taken for arrays of nodes, .* as many as edges; only names with"):
        NeighborLoader(data, [-1], device="cpu").close()
    with NeighborLoader(data, [-1], torch.tensor([3, 2]), batch_size=2, device="cpu", weight_attr="w") as loader:
        batch = next(iter(loader))
        assert batch.n_id.tolist() == [3, 2, 1] and batch.w.tolist() == [3, 2] and batch.edge_attr.tolist() == [2, 1]
    data = Data(x=torch.ones(4, 1), edge_index=ring[:, :3], w=torch.arange(3))
    with warnings.catch_warnings(action="error"):
        NeighborLoader(data, [-1], device="cpu").close()
    assert shm.runs() == []


@pytest.mark.parametrize("name", ["w", "edge_weight", "edge_attr"])
def test_neighbours_are_drawn_by_weights_of_any_name(shm, name):
    """Of each list, the edges of positive weight alone."""
    weights = (torch.arange(NUM_EDGES) % 3 == 0).float()
    data = graph(**{name: weights, "other": torch.rand(NUM_EDGES)})
    with NeighborLoader(data, [5, 5], batch_size=8, device="cpu", weight_attr=name) as loader:
        for batch in loader:
            expect_rows(batch, data, [], [name, "other"])
            assert batch[name].min() > 0
    with pytest.raises(CohortError, match="weight_attr: expected the name of a tensor of weights, .* found 'u'"):
        NeighborLoader(data, [5], device="cpu", weight_attr="u")
    data[name] = weights[:-1]
    found = rf"weight_attr: expected the name of a tensor.*'{name}', \[{NUM_EDGES - 1}\] for {NUM_EDGES} edges"
    with pytest.raises(CohortError, match=found):
        NeighborLoader(data, [5], device="cpu", weight_attr=name)
    assert shm.runs() == []


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (-1.0, r"w\[7\]: expected a weight that is finite and at least 0, found -1.0"),
        (float("nan"), r"w\[7\]: expected a weight that is finite"),
        (1e60, "w: expected weights that float32 holds"),
    ],
)
def test_weights_that_edges_cannot_be_drawn_by_are_named(shm, weight, message):
    weights = torch.ones(NUM_EDGES, dtype=torch.float64)
    weights[7] = weight
    with pytest.raises(CohortError, match=message):
        NeighborLoader(graph(w=weights), [5], device="cpu", weight_attr="w")
    with pytest.raises(CohortError, match=r"w: expected weights that float32 holds, found 1e-60\n.*by one number"):
        NeighborLoader(graph(w=torch.full_like(weights, 1e-60)), [5], device="cpu", weight_attr="w")


def test_arrays_of_the_other_byte_order(shm):
    year, weights = np.arange(NUM_NODES).astype(">i8"), np.random.default_rng(0).random(NUM_EDGES).astype(">f8")
    data = graph(year=year, when=np.arange(NUM_NODES).astype(">i4"), w=weights)
    data.edge_index = data.edge_index.numpy().astype(">i8")
    for how in ({"weight_attr": "w"}, {"time_attr": "when"}):
        with NeighborLoader(data, [5, 5], batch_size=8, device="cpu", **how) as loader:
            for batch in loader:
                assert torch.equal(batch.year, batch.n_id) and torch.equal(batch.when, batch.n_id.int())
                assert np.array_equal(batch.w, weights[batch.e_id])
                assert np.array_equal(data.edge_index[:, batch.e_id], batch.n_id[batch.edge_index])


def test_weights_of_the_names_types_have(shm):
    data = HeteroData({"a": {"num_nodes": 9}, "b": {"x": torch.ones(9, 1)}})
    ends = torch.randint(9, (2, 200))
    data["a", "to", "b"].update({"edge_index": ends, "w": (torch.arange(200) % 2).double()})
    data["b", "to", "b"].edge_index = ends
    with NeighborLoader(data, [4], "b", batch_size=3, device="cpu", weight_attr="w") as loader:
        for batch in loader:
            assert batch["a", "to", "b"].w.min() == 1 and batch["a", "to", "b"].w.dtype == torch.float64
            assert "w" not in batch["b", "to", "b"]


@pytest.mark.parametrize("typed", [False, True], ids=["one type", "several types"])
def test_input_id_of_a_mask_has_nodes(shm, typed):
    """As in PyG; of ids it has positions."""
    data, mask = graph_of(typed), torch.arange(NUM_NODES) % 3 == 1

    def ids_of(loader) -> list[int]:
        return [number for batch in loader for number in batch.store_of("node").input_id.tolist()]

    def seeds(given):
        return ["node", given] if typed else given

    nodes = mask.nonzero()[:, 0]
    with NeighborLoader(data, [2], seeds(mask), batch_size=5, device="cpu") as loader:
        assert ids_of(loader) == nodes.tolist()
        assert ids_of(loader.with_nodes(seeds(nodes))) == list(range(len(nodes)))
    with NeighborLoader(data, [2], seeds(nodes), batch_size=5, device="cpu", input_id=nodes * 2) as loader:
        assert ids_of(loader) == (nodes * 2).tolist()
    with pytest.raises(CohortError, match=r"input_id: expected a tensor \[13\], one number per seed, found \[2\]"):
        NeighborLoader(data, [2], seeds(nodes), device="cpu", input_id=torch.arange(2))
    with pytest.raises(CohortError, match=r"input_id: expected a tensor \[13\], one number per seed, found \['a'"):
        NeighborLoader(data, [2], seeds(nodes), device="cpu", input_id=["a"] * 13)
    with pytest.raises(CohortError, match=r"found a mask of uint8\n  hint: pass mask.bool\(\)"):
        NeighborLoader(data, [2], seeds(mask.byte()), device="cpu", disjoint=True)


def shop() -> HeteroData:
    data = HeteroData({"user": {"num_nodes": 9}, "item": {"x": torch.ones(9, 1)}})
    for name in (("user", "buys", "item"), ("item", "to", "user"), ("item", "like", "item"), ("item", "as", "item")):
        data[name].edge_index = torch.randint(9, (2, 60))
    return data


@pytest.mark.parametrize(
    "fanout",
    [
        {("user", "item"): [2], ("item", "user"): [1], ("item", "like", "item"): [0], "item__as__item": [0]},
        NumNeighbors({("user", "buys", "item"): [2], ("item", "user"): [1]}, default=[0]),
        NumNeighbors({"user__buys__item": [2], ("item", "to", "user"): [1]}, default=[0]),
    ],
)
def test_edge_types_are_named_as_in_pyg(shm, fanout):
    with NeighborLoader(shop(), fanout, "item", batch_size=9, device="cpu") as loader:
        (batch,) = loader
        found = {name: batch[name].num_edges for name in batch.edge_types}
        assert 9 < found["user", "buys", "item"] <= 18 and not found["item", "like", "item"]
    with LinkNeighborLoader(shop(), fanout, ("user", "item"), batch_size=60, device="cpu") as loader:
        (batch,) = loader
        assert batch["user", "buys", "item"].edge_label_index.size(1) == 60
        pairs = [("item", "user"), torch.zeros(2, 3, dtype=torch.int64)]
        (batch,) = loader.with_edges(pairs)
        assert batch["item", "to", "user"].edge_label_index.size(1) == 3
    with pytest.raises(CohortError, match="edge_label_index: expected an edge type"):
        LinkNeighborLoader(shop(), fanout, ("item", "item"), device="cpu")  # two of these


@pytest.mark.parametrize("kind", [NeighborLoader, LinkNeighborLoader])
def test_warnings_name_the_users_line(shm, kind):
    with pytest.warns(UserWarning, match="num_workers: ignored") as said:
        kind(graph(), [2], device="cpu", num_workers=2).close()
    assert said[0].filename == __file__
