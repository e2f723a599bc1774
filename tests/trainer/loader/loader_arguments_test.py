"""What NeighborLoader takes of PyG's arguments, and how it and its data set show themselves."""

import copy
import inspect
import pickle
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
import torch_geometric.loader as pyg
from torch.utils.data import DataLoader
from torch_geometric.data import HeteroData, TemporalData
from torch_geometric.loader import LinkLoader, NodeLoader
from torch_geometric.sampler.base import NumNeighbors, SubgraphType

import cohort_gnn as cohort
from cohort_gnn import CohortError, LinkNeighborLoader, NeighborLoader
from cohort_gnn.dataset import open as open_dataset
from cohort_gnn.trainer.loader.arguments import NOT_OFFERED, OF_WORKERS, take_pyg_arguments
from cohort_gnn.trainer.loader.batch import HeteroBatch

pytestmark = pytest.mark.usefixtures("shm")


def loader_of(data, **options) -> NeighborLoader:
    return NeighborLoader(data, [5, 5], batch_size=1024, device="cpu", **options)


def test_the_graph_of_a_loader_is_what_it_was_made_with(cora):
    """As a script of PyG (its example of Reddit) uses it: features are kept out of the loader of inference."""
    graph = open_dataset(cora).to_pyg()
    kept = copy.copy(graph)
    with loader_of(kept, input_nodes=torch.tensor([3, 5])) as loader:
        assert loader.data is kept and loader.with_nodes([1]).data is kept
        del loader.data.x, loader.data.y
        loader.data.num_nodes = graph.num_nodes
        loader.data.n_id = torch.arange(graph.num_nodes)
        (batch,) = loader
        assert batch.n_id[:2].tolist() == [3, 5] and "x" not in batch and graph.x is not None
    with loader_of(cora, input_nodes=[1]) as loader:
        assert loader.data.num_nodes == 2708 and loader.data.path == cora
    pairs = torch.tensor([[0, 1], [2, 3]])
    with LinkNeighborLoader(graph, [2], pairs, device="cpu") as loader:
        assert loader.data is graph and loader.with_edges(pairs).data is graph


def test_scripts_divide_by_the_number_of_seeds(cora):
    """PyG's examples: ``loss / len(loader.dataset)``, and a bar of so many steps."""
    nodes, pairs = torch.arange(7), torch.arange(10).view(2, 5)
    with loader_of(cora, input_nodes=nodes) as loader, LinkNeighborLoader(cora, [2], pairs, device="cpu") as links:
        assert len(loader.dataset) == 7 and len(links.dataset) == 5 and len(loader.with_nodes(None).dataset) == 2708


@pytest.mark.parametrize("name", ["shuffle", "drop_last", "disjoint", "edge_ids", "edge_weights", "reject_edges"])
def test_a_switch_is_on_or_off(cora, name):
    of_pairs = name == "reject_edges"
    with pytest.raises(CohortError) as error:
        make = LinkNeighborLoader if of_pairs else NeighborLoader
        make(cora, [2], device="cpu", **{name: "no"}, **({"neg_sampling": "binary"} if of_pairs else {}))
    assert (error.value.place, error.value.expected, error.value.found) == (name, "True or False", "'no'")


@pytest.mark.parametrize(
    ("data", "found", "hint"),
    [
        (
            TemporalData(),
            "a PyG TemporalData",
            "Data(x=x, edge_index=torch.stack([data.src, data.dst]), edge_time=data.t",
        ),
        (np.ones(3), "ndarray", "cohort.from_tensors"),
        (None, "NoneType", "cohort.from_tensors"),
    ],
    ids=["TemporalData", "array", "None"],
)
def test_what_is_no_folder_is_named(data, found, hint):
    with pytest.raises(CohortError) as error:
        loader_of(data)
    assert error.value.expected == "the folder of a data set, or a PyG Data or HeteroData"
    assert (error.value.place, error.value.found) == ("data", found)
    assert hint in error.value.hint


def test_an_unknown_argument_with_an_underscore_is_refused(cora):
    with pytest.raises(TypeError, match="NeighborLoader\\(\\) got an unexpected keyword argument '_samplers'"):
        loader_of(cora, _samplers=None)


def test_arguments_of_pygs_workers_are_ignored_with_one_warning(cora):
    options = {"num_workers": 4, "persistent_workers": True, "pin_memory": True, "prefetch_factor": 2}
    with pytest.warns(UserWarning) as said, loader_of(cora, filter_per_worker=True, **options) as loader:
        assert len(loader) == 3
    assert [str(each.message) for each in said] == [
        "filter_per_worker, num_workers, persistent_workers, pin_memory, prefetch_factor: "
        "ignored: the sampler process makes the batches, from lists that are sorted"
    ]
    assert said[0].filename == __file__


def test_what_pygs_loader_does_by_default_may_be_said(cora):
    options = {"replace": False, "subgraph_type": "directional", "disjoint": False, "sampler": None}
    options |= {"temporal_strategy": "uniform", "input_time": None}
    options |= {"num_workers": 0, "pin_memory": False, "persistent_workers": False, "filter_per_worker": None}
    options |= {"prefetch_factor": None, "timeout": 0, "is_sorted": False}
    with (
        warnings.catch_warnings(action="error"),
        loader_of(cora, weight_attr=None, time_attr=None, **options) as loader,
    ):
        assert len(loader) == 3
    with loader_of(cora, subgraph_type=SubgraphType.directional) as loader:
        assert len(loader) == 3


@pytest.mark.parametrize(
    ("name", "value", "hint"),
    [
        ("collate_fn", list, "in the loop"),
        ("sampler", torch.utils.data.SequentialSampler(range(3)), "shuffle=True"),
        ("batch_sampler", [[1, 2], [3]], "batch_size"),
    ],
)
def test_what_is_not_offered_is_refused(cora, name, value, hint):
    with pytest.raises(CohortError, match=rf"^{name}: expected .*, the only supported value, found ") as error:
        loader_of(cora, **{name: value})
    assert hint in error.value.hint


def test_an_unknown_argument_is_a_type_error(cora):
    with pytest.raises(TypeError, match="unexpected keyword argument 'fanout'"):
        loader_of(cora, fanout=[3])
    for name in ("input_nodes", "input_time"):
        with pytest.raises(TypeError, match=rf"LinkNeighborLoader\(\) got an unexpected keyword argument '{name}'"):
            cohort.LinkNeighborLoader(cora, [3], **{name: [1]})


@pytest.mark.parametrize("name", ["edge_weights", "weight_attr", "time_attr"])
def test_edges_without_weights_or_times_are_named(cora, name):
    value = True if name == "edge_weights" else "edge_weight"
    what = "times" if name == "time_attr" else "weights"
    with pytest.raises(
        CohortError, match=f"^{name}: expected a data set with edge {what}, found {cora} without"
    ) as error:
        loader_of(cora, **{name: value})
    assert "write the data set with edge_" in error.value.hint


def test_seeds_with_a_type_are_for_several_types(cora):
    for nodes in ("paper", ("paper", None), ("paper", [1, 2])):
        with pytest.raises(CohortError) as error:
            cohort.NeighborLoader(cora, [3], nodes, device="cpu")
        assert error.value.found == repr("paper") and "one node type" in error.value.hint
    pairs = (("paper", "cites", "paper"), None)
    with pytest.raises(CohortError) as error:
        cohort.LinkNeighborLoader(cora, [3], pairs, device="cpu")
    assert error.value.found == repr(pairs[0]) and "one edge type" in error.value.hint


def test_names_of_the_only_types_may_be_given(cora):
    """Also "node" and ("node", "to", "node"), as a Dataset calls them."""
    ids, year, edge_type = torch.arange(40), {"year": torch.arange(2708)}, ("node", "to", "node")
    pairs = torch.stack([ids, ids.flip(0)])
    with (
        NeighborLoader(cora, [3, 2], ids, node_tensors=year, device="cpu") as plain,
        NeighborLoader(cora, {edge_type: [3, 2]}, ("node", ids), node_tensors={"node": year}, device="cpu") as named,
    ):
        for expected, batch in zip(plain, named, strict=True):
            assert batch.keys() == expected.keys() and torch.equal(batch.year, batch.n_id)
            assert all(torch.equal(batch[key], expected[key]) for key in ("n_id", "edge_index", "x", "y", "input_id"))
        assert named.state_dict() == plain.state_dict()
    with (
        LinkNeighborLoader(cora, [3], pairs, device="cpu") as plain,
        LinkNeighborLoader(cora, [3], (edge_type, pairs), device="cpu") as named,
    ):
        for expected, batch in zip(plain, named, strict=True):
            assert torch.equal(batch.edge_label_index, expected.edge_label_index) and "batch_size" not in batch
        assert named.state_dict() == plain.state_dict()


def test_names_of_the_only_types_may_be_left_out(tmp_path):
    data = HeteroData()
    data["paper"].x, data["paper"].y = torch.rand(30, 2), torch.arange(30) % 2
    data["paper", "cites", "paper"].edge_index = torch.randint(30, (2, 200), generator=torch.manual_seed(1))
    graph = cohort.from_pyg(data, tmp_path / "papers")
    with NeighborLoader(graph, [3], torch.tensor([4, 1]), batch_size=2, device="cpu") as loader:
        (batch,) = loader
        assert isinstance(batch, HeteroBatch) and batch["paper"].n_id[:2].tolist() == [4, 1]
    with LinkNeighborLoader(graph, [3], torch.tensor([[4], [1]]), device="cpu") as loader:
        (batch,) = loader
        store = batch["paper", "cites", "paper"]
        assert batch["paper"].n_id[store.edge_label_index].tolist() == [[4], [1]]


def test_loader_and_data_set_are_shown_on_a_line(cora):
    graph = open_dataset(cora)
    with pytest.raises(AttributeError, match=r"a Dataset has train_ids instead of train_mask; dataset.to_pyg\(\)"):
        graph.train_mask  # noqa: B018
    assert not hasattr(graph, "colour")
    assert repr(graph) == f"Dataset('{cora}', 2,708 nodes, 10,556 edges, x float32 [2708, 1433])"
    assert (graph.num_features, graph.num_node_features) == (1433, 1433)
    with loader_of(cora) as loader:
        assert repr(loader) == f"NeighborLoader('{cora}', 2,708 seeds, [5, 5], batch_size=1024)"


def test_packages_list_what_users_import():
    names = "Callback CohortError LinkNeighborLoader NeighborLoader Scorer ShardedRows __version__ dataset".split()
    names += "from_pyg from_tables from_tensors ibp load_model nn train".split()
    assert dir(cohort) == names and all(hasattr(cohort, name) for name in names)
    assert dir(cohort.nn) == sorted(cohort.nn.__all__) and "SAGEConv" in dir(cohort.nn)


def test_numbers_of_neighbours_may_be_a_tensor_and_seeds_an_empty_list(cora):
    with NeighborLoader(cora, torch.tensor([3, 2]), [], device="cpu") as loader:
        assert loader.num_neighbors == [3, 2] and list(loader) == []
    with NeighborLoader(cora, NumNeighbors([2, 1]), [5], device="cpu") as loader:
        assert len(next(iter(loader)).num_sampled_edges) == 2
    with pytest.raises(CohortError, match="num_neighbors: expected one integer a hop"):
        NeighborLoader(cora, torch.tensor([3.0, 2.0]), device="cpu")


def test_a_loader_stays_in_its_process(cora):
    with NeighborLoader(cora, [3], device="cpu") as loader:
        for call in (copy.deepcopy, pickle.dumps):
            with pytest.raises(CohortError, match="(?s)copy or pickle of a loader: .* in the process that reads it"):
                call(loader)
        assert next(iter(loader)).batch_size == 1


def test_a_pass_over_a_closed_loader_says_so(cora):
    loader = NeighborLoader(cora, [3], device="cpu")
    batches = iter(loader)
    next(batches)
    loader.close()
    with pytest.raises(CohortError, match="the loader: expected one that runs, found it was closed"):
        list(batches)


def arguments_of(kind: type) -> set[str]:
    return {
        name
        for base in (kind, NodeLoader if kind is pyg.NeighborLoader else LinkLoader, DataLoader)
        for name in inspect.signature(base.__init__).parameters
    }


@pytest.mark.parametrize("kind", [NeighborLoader, LinkNeighborLoader])
def test_each_argument_of_pygs_loaders_is_taken_ignored_or_refused_with_a_cure(kind):
    """And the page has those that are not taken."""
    own = set(inspect.signature(NeighborLoader.__init__).parameters) | {"input_id"}
    own |= set(inspect.signature(LinkNeighborLoader.__init__).parameters)
    inside = {"self", "args", "kwargs", "dataset", "node_sampler", "link_sampler"}  # what PyG's loaders give each other
    others = arguments_of(getattr(pyg, kind.__name__)) - own - inside
    assert others == set(OF_WORKERS) | set(NOT_OFFERED)
    page = (Path(__file__).parents[3] / "docs/how-to/pyg.md").read_text()
    assert {name for name in others if f"`{name}" not in page} == set()
    for name, (default, hint) in NOT_OFFERED.items():
        assert hint
        with pytest.raises(CohortError) as error:
            take_pyg_arguments({name: not default}, kind.__name__)
        assert error.value.hint == hint
    for name, default in OF_WORKERS.items():
        with pytest.warns(UserWarning, match=f"{name}: ignored"):
            take_pyg_arguments({name: not default}, kind.__name__)
