"""Times of nodes and edges, in memory and in data sets, that temporal batches follow; what is refused."""

from datetime import datetime

import numpy as np
import pytest
import torch
from processes import cohort, ran
from torch_geometric.data import Data, HeteroData

from cohort_gnn import CohortError, LinkNeighborLoader, NeighborLoader
from cohort_gnn.dataset import check, from_pyg, from_tensors
from cohort_gnn.dataset import open as open_dataset
from cohort_gnn.spec.graph import EDGE_TYPE

pytestmark = pytest.mark.usefixtures("shm")
WRITES, REV_WRITES = ("author", "writes", "paper"), ("paper", "rev_writes", "author")


@pytest.fixture(scope="module")
def events(tmp_path_factory):
    edges = {"edge_index": torch.randint(9, (2, 40)), "edge_time": torch.arange(40)}
    return open_dataset(from_tensors(tmp_path_factory.mktemp("events") / "set", x=torch.ones(9, 1), **edges))


def loader_of(data, fanout, nodes=None, **options) -> NeighborLoader:
    return NeighborLoader(data, list(fanout), nodes, **{"device": "cpu", "edge_ids": True, "batch_size": 20} | options)


@pytest.mark.parametrize("typed", [False, True])
def test_seeds_have_the_times_of_their_nodes(typed):
    """As in PyG, where no other times are given."""
    rng = torch.Generator().manual_seed(3)
    edge_index, times = torch.randint(30, (2, 300), generator=rng), torch.randint(100, (30,), generator=rng)
    data = Data(x=torch.ones(30, 1), edge_index=edge_index, when=times)
    if typed:
        data = HeteroData({"node": {"x": data.x, "when": times}, EDGE_TYPE: {"edge_index": edge_index}})
    seeds, mask = torch.tensor([4, 2, 17, 25, 9]), times > 30
    with loader_of(data, [-1, -1], ("node", seeds), time_attr="when") as loader:
        for part, ids in ((loader, seeds), (loader.with_nodes(("node", mask)), mask.nonzero()[:, 0])):
            found = []
            for batch in part:
                store = batch.store_of("node")
                found += store.seed_time.tolist()
                assert (store.when <= store.seed_time[store.batch]).all()
            assert found == times[ids].tolist()
        (batch,) = loader.with_nodes(("node", [3]), input_time=[7])
        assert batch.store_of("node").seed_time.tolist() == [7]


def test_an_edge_exists_once_it_and_its_source_do():
    data = HeteroData({"a": {"x": torch.ones(3, 1), "t": torch.arange(3)}, "b": {"x": torch.ones(3, 1)}})
    for ends in (("a", "b"), ("b", "a")):
        data[ends[0], "to", ends[1]].edge_index = torch.tensor([[0, 1, 2], [1, 1, 1]])
    data["a", "to", "b"].t = torch.tensor([2, 0, 0])
    with loader_of(data, [-1], "b", time_attr="t", input_time=[0, 1, 0]) as loader:
        for time, sources in ((0, []), (1, [1]), (2, [0, 1, 2]), (3, [0, 1, 2])):
            (batch,) = loader.with_nodes(("b", [1]), input_time=[time])
            assert sorted(batch["a"].n_id.tolist()) == sources
            assert batch["b", "to", "a"].num_edges == 0, "the other type has no times, but no seed either"
    del data["a"].t
    with loader_of(data, [-1], "b", time_attr="t", input_time=[0, 0, 0]) as loader:
        assert sum(batch["a", "to", "b"].num_edges for batch in loader) == 2
    del data["a", "to", "b"].t
    data["b"].t = torch.tensor([5, 6, 7])
    with loader_of(data, [-1], "a", time_attr="t", input_time=[5, 5, 5]) as loader:
        (batch,) = loader
        assert batch["b"].t.tolist() == [5] and batch["a"].seed_time.tolist() == [5, 5, 5]
    with pytest.raises(CohortError, match="input_time: expected integers .*, with time_attr='t', found None"):
        loader_of(data, [-1], "a", time_attr="t")


def test_times_are_kept_with_a_graph(tmp_path):
    edge_index = torch.tensor([[2, 1, 0, 1], [0, 0, 0, 2]])
    data = Data(x=torch.ones(3, 1), edge_index=edge_index, edge_time=torch.tensor([5, -7, 5, 2**62]))
    graph = open_dataset(from_pyg(data, tmp_path / "edges"))
    assert (graph.indices.tolist(), graph.edge_times.tolist()) == ([1, 0, 2, 1], [-7, 5, 5, 2**62])
    assert graph.to_pyg().edge_time.tolist() == graph.edge_times.tolist()
    data.time = data.edge_time + 1
    with pytest.warns(UserWarning, match=r"data\.time is left out: data\.edge_time has the times of edges"):
        assert open_dataset(from_pyg(data, tmp_path / "both")).edge_times.tolist() == [-7, 5, 5, 2**62]
    del data.edge_time
    data.time = torch.tensor([30, 20, 10])
    assert open_dataset(from_pyg(data, tmp_path / "nodes")).edge_times.tolist() == [10, 20, 30, 20]


TIMES = {"time_attr": "time", "input_time": [1, 2, 3]}


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"time_attr": "time"}, r"input_time: expected integers \[3\], .*, found None"),
        ({"time_attr": "time", "input_time": [1, 2]}, r"input_time: .*\[3\].*, found shape \[2\]"),
        ({"time_attr": "time", "input_time": [1.5, 2, 3]}, "input_time: expected integers .*, found dtype float32"),
        ({"time_attr": "time", "input_time": "now"}, r"input_time: expected integers \[3\]"),
        ({"time_attr": "time", "input_time": [datetime(2024, 1, 1)] * 3}, r"input_time: .*\n  hint: .* of dates: "),
        ({"input_time": [1, 2, 3]}, "input_time: expected None without time_attr"),
        ({"temporal_strategy": "last"}, "temporal_strategy: expected 'uniform' without time_attr"),
        ({"temporal_strategy": "first"} | TIMES, "temporal_strategy: expected"),
        ({"time_attr": 3}, "time_attr: expected"),
        ({"time_window": 3}, "time_window: expected None without time_attr, found 3\n  hint: say time_attr"),
        ({"time_window": -1} | TIMES, "time_window: expected an integer of at least 0, found -1"),
        ({"time_window": 1.5} | TIMES, "time_window: expected an integer of at least 0, found 1.5"),
        (
            {"time_window": {("a", "b"): 1}} | TIMES,
            r"time_window: expected windows of .*node.*, found one of \('a', 'b'\)",
        ),
        ({"replace": "yes"}, "replace: expected true or false"),
        (
            {"replace": True, "temporal_strategy": "last"} | TIMES,
            'replace: expected False, with temporal_strategy="last"',
        ),
        ({"replace": True, "weight_attr": "edge_weight"}, 'replace: expected False, with weight_attr="edge_weight"'),
        ({"replace": True, "cache_ratio": "auto"}, "cache_ratio: expected a number, for draws with replacement"),
        ({"sampling": "labor", "replace": True}, "replace: expected False, with sampling='labor', found True"),
        ({"sampling": "labor", "disjoint": True}, "disjoint: expected False, for sampling='labor'"),
        ({"sampling": "labor"} | TIMES, "time_attr: expected None, for sampling='labor'"),
        ({"batch_dependency": 4}, "batch_dependency: expected 1, without sampling labor, found 4"),
        ({"layer_dependency": True}, "layer_dependency: expected False, without sampling labor, found True"),
        ({"importance_sampling": True}, "importance_sampling: expected False, without sampling labor, found True"),
        (
            {"sampling": "labor", "importance_sampling": True, "subgraph_type": "induced"},
            "subgraph_type: expected 'directional', with importance_sampling, found 'induced'",
        ),
        ({"disjoint": True, "weight_attr": "edge_weight"}, "disjoint: expected False, for draws by weight_attr"),
        ({"disjoint": True, "cache_ratio": "auto", "trainer_bytes": 1}, "cache_ratio: expected a number"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(events, how, said):
    with pytest.raises(CohortError, match=said):
        loader_of(events, [2], [1, 2, 3], **how)


def test_what_has_no_times_is_refused(events):
    data = Data(x=torch.ones(3, 1), edge_index=torch.tensor([[0], [1]]))
    with pytest.raises(CohortError, match="time_attr: expected the name of a tensor of times, .*data.when, found none"):
        loader_of(data, [2], [1], time_attr="when", input_time=[1])
    for when, words in (
        (torch.ones(2, dtype=torch.int64), r"time_attr: .*data\.edge_time, found 2 values for 3 nodes and 1 edges"),
        (
            np.array(["2024-01-01"], "datetime64[s]"),
            r"edge_time: .* found dtype datetime64\[s\]\n  hint: .* of dates: ",
        ),
    ):
        data.edge_time = when
        with pytest.raises(CohortError, match=words):
            loader_of(data, [2], [1], time_attr="edge_time", input_time=[1])
    data = HeteroData({"a": {"x": torch.ones(3, 1), "t": torch.arange(3)}, "b": {"x": torch.ones(3, 1)}})
    for ends in (("a", "b"), ("b", "a")):
        data[ends[0], "to", ends[1]].edge_index = torch.tensor([[0, 1], [1, 2]])
    with pytest.raises(CohortError, match=r"time_window\[\('b', 'to', 'a'\)\]: expected edges with times, found none"):
        loader_of(data, [-1], "a", time_attr="t", time_window={("a", "to", "b"): 1, ("b", "to", "a"): 1})
    pairs = {"edge_label_index": torch.ones(2, 3, dtype=torch.int64), "device": "cpu", "exclude": "none"}
    with pytest.raises(CohortError, match=r"edge_label_time: expected integers \[3\], the time of each pair, .* None"):
        LinkNeighborLoader(events, [2], time_attr="time", **pairs)
    with pytest.raises(CohortError, match="edge_label_time: expected None without time_attr"):
        LinkNeighborLoader(events, [2], edge_label_time=[1, 2, 3], **pairs)
    with pytest.raises(TypeError, match="input_time"):
        LinkNeighborLoader(events, [2], time_attr="time", input_time=[1, 2, 3], **pairs)


def test_the_times_of_a_hetero_data_are_kept(tmp_path):
    """Those of edges, of the nodes that they come from, or the later of both; lists ascend by time."""
    data = HeteroData()
    data["author"].num_nodes, data["paper"].x = 3, torch.ones(4, 2)
    data["paper"].y, data["paper"].time = torch.zeros(4, dtype=torch.int64), torch.tensor([40, 30, 20, 10])
    data[WRITES].edge_index = torch.tensor([[0, 1, 2, 0], [0, 0, 0, 1]])
    data[WRITES].edge_time = torch.tensor([7, -3, 5, 9])
    data["paper", "cites", "paper"].edge_index = torch.tensor([[0, 1, 2, 3], [1, 0, 0, 0]])
    graph = open_dataset(from_pyg(data, tmp_path / "set", reverse_edges=True))
    assert check(graph.path) == []
    writes, cites = graph.edge_types[WRITES], graph.edge_types["paper", "cites", "paper"]
    assert (writes.indices.tolist(), writes.edge_times.tolist()) == ([1, 2, 0, 0], [-3, 5, 7, 9])
    assert (cites.indices.tolist(), cites.edge_times.tolist()) == ([3, 2, 1, 0], [10, 20, 30, 40])
    assert graph.edge_types[REV_WRITES].edge_times.tolist() == [30, 40, 40, 40]
    assert graph.to_pyg()[WRITES].edge_time.tolist() == [-3, 5, 7, 9]
    told = cohort("dataset", "info", graph.path)
    assert "times -3 to 9" in told.stdout
    data[WRITES].time = data[WRITES].edge_time + 1
    with pytest.warns(UserWarning, match=r"'paper'\)\]\.time is left out: .*\.edge_time has the times of edges"):
        from_pyg(data, tmp_path / "both")
    np.save(graph.path / "author.writes.paper.edge_times.npy", np.array([5, -3, 7, 9]))
    (problem,) = check(graph.path)
    assert problem.place.endswith("author.writes.paper.edge_times.npy[1]") and "the time before" in problem.expected


def test_times_come_from_described_tables(tmp_path):
    (tmp_path / "graph.yaml").write_text(
        "nodes: {user: {count: 3}, item: {count: 2, features: x.npy, label: y.npy}}\n"
        "edges:\n- {type: [user, buys, item], file: buys.csv, source: user, target: item, time: when}\n"
    )
    (tmp_path / "buys.csv").write_text("user,item,when\n0,0,9\n1,0,4\n2,1,6\n")
    np.save(tmp_path / "x.npy", np.ones((2, 3), np.float32))
    np.save(tmp_path / "y.npy", np.zeros(2, np.int64))
    ran("dataset", "import", tmp_path / "graph.yaml", tmp_path / "out")
    edges = open_dataset(tmp_path / "out").edge_types["user", "buys", "item"]
    assert (edges.indices.tolist(), edges.edge_times.tolist()) == ([1, 0, 2], [4, 9, 6])
