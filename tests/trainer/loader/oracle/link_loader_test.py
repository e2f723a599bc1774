"""LinkNeighborLoader: equal to a slow sampler in Python, and to PyG's meaning; what it refuses."""

import copy
import itertools
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from batches import expect_same
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from link_oracle import forbidden_edges, neg_sampling_of, sample, weighted_ends, weights_of
from processes import ALL_TESTS
from torch_geometric.data import Data
from torch_geometric.sampler import NegativeSampling
from torch_geometric.transforms import RandomLinkSplit
from torch_geometric.utils import k_hop_subgraph

from cohort_gnn import CohortError, LinkNeighborLoader
from cohort_gnn.dataset import from_tensors
from cohort_gnn.dataset import open as open_dataset

pytestmark = pytest.mark.usefixtures("shm")
EXAMPLES = 150 if ALL_TESTS else 20
AMOUNTS = (0.5, 1, 2.25)


@pytest.fixture(scope="module")
def graph(cora):
    return open_dataset(cora)


def lists_of(graph) -> list[list[int]]:
    return [part.tolist() for part in np.split(graph.indices, graph.indptr[1:-1])]


def loader_of(data, fanout=(5, 5), pairs=None, **options) -> LinkNeighborLoader:
    return LinkNeighborLoader(data, list(fanout), pairs, **{"batch_size": 50, "device": "cpu"} | options)


def write(folder: Path, lists: list[list[int]]) -> Path:
    """A data set of these in-neighbours, in this order; row i of the features holds i."""
    x = np.repeat(np.arange(len(lists), dtype=np.float32)[:, None], 3, axis=1)
    indptr = np.cumsum([0, *map(len, lists)])
    indices = np.array([source for each in lists for source in each], np.int64)
    from_tensors(folder, x=x, y=np.zeros(len(lists), np.int64), indptr=indptr, indices=indices)
    stored = np.load(folder / "indices.npy")
    np.save(folder / "indices.npy", indices.astype(stored.dtype))
    return folder


@st.composite
def graphs(draw):
    """In-neighbours by node: of ascending or shuffled lists, with parallel edges and self loops."""
    count = draw(st.integers(2, 40))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    lists = [random.integers(count, size=random.integers(12)).tolist() for _ in range(count)]
    lists[0].append(1)
    return [sorted(each) for each in lists] if draw(st.booleans()) else lists


@st.composite
def questions(draw):
    mode = draw(st.sampled_from(["none", "binary", "triplet", "in_batch"]))
    amount = {"none": 0, "binary": draw(st.sampled_from(AMOUNTS))}.get(mode, draw(st.integers(1, 3)))
    redraws = draw(st.sampled_from([0, 8])) if mode != "none" else 0
    return {
        "mode": mode,
        "amount": amount,
        "redraws": redraws,
        "exclude": draw(st.sampled_from(["none", "self", "reverse"])),
        "weighted": weighted_ends(draw, mode),
    }


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(graphs(), questions(), st.lists(st.integers(-1, 5), min_size=1, max_size=3), st.data())
def test_batches_are_those_of_a_slow_sampler(tmp_path_factory, lists, how, fanout, data):
    folder = write(tmp_path_factory.mktemp("links") / "set", lists)
    starts = open_dataset(folder).indptr.tolist()
    random = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    edges = [(source, target) for target, each in enumerate(lists) for source in each]
    of_graph = [edges[i] for i in random.integers(len(edges), size=10)]  # some more than once
    pairs = np.array([*of_graph, *random.integers(len(lists), size=(5, 2)).tolist()])
    weights = {name: weights_of(random, len(lists)) for name in how["weighted"]}
    how = how | weights
    options = {
        "neg_sampling": neg_sampling_of(how, weights),
        "reject_edges": how["redraws"] > 0,
        "exclude": how["exclude"],
    }
    with loader_of(folder, fanout, pairs.T, batch_size=7, seed=5, edge_ids=True, **options) as loader:
        for step, batch in enumerate(loader):
            of_batch = pairs[7 * step : 7 * step + 7]
            expected = sample(lists, starts, of_batch, how, fanout, (5, 0, step))
            assert batch.n_id.tolist() == expected["n_id"]
            assert batch.edge_index.tolist() == expected["edge_index"]
            assert batch.e_id.tolist() == expected["e_id"]
            assert (batch.num_sampled_nodes, batch.num_sampled_edges) == (expected["nodes"], expected["edges"])
            assert endpoints_of(batch) == expected["endpoints"]
            assert batch.input_id.tolist() == list(range(7 * step, 7 * step + len(of_batch)))
            np.testing.assert_array_equal(batch.x[:, 0].numpy(), batch.n_id.numpy())
            drawn = set(map(tuple, batch.n_id[batch.edge_index].T.tolist()))
            assert not drawn & forbidden_edges(of_batch, how["exclude"])
    assert step == 2


def endpoints_of(batch) -> list[int]:
    """Sources, then targets."""
    if "edge_label_index" in batch:
        return batch.edge_label_index.flatten().tolist()
    return torch.cat([batch.src_index, batch.dst_pos_index, batch.dst_neg_index.flatten()]).tolist()


def test_whole_neighbourhoods_are_those_of_pyg(graph):
    edge_index = torch.from_numpy(graph.to_pyg().edge_index.numpy())
    pairs = edge_index[:, torch.randperm(edge_index.size(1), generator=torch.Generator().manual_seed(1))[:90]]
    with loader_of(graph, (-1, -1), pairs, exclude="none") as loader:
        for step, batch in enumerate(loader):
            of_batch = pairs[:, 50 * step : 50 * step + 50]
            assert torch.equal(batch.n_id[batch.edge_label_index], of_batch)
            nodes, edges, _, _ = k_hop_subgraph(of_batch.unique(), 1, edge_index, num_nodes=graph.num_nodes)
            assert set(batch.n_id[: sum(batch.num_sampled_nodes[:2])].tolist()) == set(nodes.tolist())
            inner = edge_index[:, torch.isin(edge_index[1], nodes)]  # PyG expands what hop 1 reached, and nothing else
            found = batch.n_id[batch.edge_index]
            assert sorted(map(tuple, found.T.tolist())) == sorted(map(tuple, inner.T.tolist()))
            assert "batch_size" not in batch and "edge_label" not in batch


def test_edges_of_the_graph_are_named_by_their_place(graph):
    places = np.array([5, 0, graph.num_edges - 1, 5])
    target = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    with loader_of(graph, pairs=places) as loader, loader.with_edges(None) as every:
        batch = next(iter(loader))
        expected = np.stack([graph.indices[places], target[places]])
        np.testing.assert_array_equal(batch.n_id[batch.edge_label_index].numpy(), expected)
        assert len(every) == -(-graph.num_edges // 50)
        pairs = torch.cat([each.n_id[each.edge_label_index] for each in every], dim=1)
        np.testing.assert_array_equal(pairs.numpy(), np.stack([graph.indices, target]))


def test_labels_are_those_of_pyg(graph):
    labels = torch.arange(120) % 4
    pairs = torch.randint(graph.num_nodes, (2, 120), generator=torch.Generator().manual_seed(2))
    with loader_of(graph, pairs=pairs, edge_label=labels, shuffle=True) as loader:
        for batch in loader:
            assert torch.equal(batch.edge_label, labels[batch.input_id])
            assert torch.equal(batch.n_id[batch.edge_label_index], pairs[:, batch.input_id])
        for batch in loader.with_edges(pairs, labels, neg_sampling={"mode": "binary", "amount": 0.5}):
            count = len(batch.input_id)
            assert torch.equal(batch.edge_label[:count], labels[batch.input_id] + 1)  # 0 is a negative's
            assert batch.edge_label[count:].tolist() == [0] * -(-count // 2)
            assert batch.edge_label_index.shape == (2, count + -(-count // 2))
        for batch in loader.with_edges(pairs, neg_sampling="binary"):
            count = len(batch.input_id)
            assert batch.edge_label.dtype == torch.float32
            assert batch.edge_label.tolist() == [1] * count + [0] * count
        for batch in loader.with_edges(pairs, neg_sampling=NegativeSampling("triplet", 3)):
            assert batch.dst_neg_index.shape == (len(batch.input_id), 3)
            assert torch.equal(
                batch.n_id[torch.stack([batch.src_index, batch.dst_pos_index])], pairs[:, batch.input_id]
            )
            assert "edge_label" not in batch and "edge_label_index" not in batch
        with pytest.raises(
            CohortError, match="edge_label: expected labels that can be raised by 1, found 255 in torch"
        ):
            loader.with_edges(pairs, torch.arange(120).clamp(max=1).to(torch.uint8) * 255, neg_sampling="binary")
        triplet = next(iter(loader.with_edges(pairs, neg_sampling="triplet")))
        assert triplet.dst_neg_index.shape == triplet.src_index.shape
    with loader_of(graph, pairs=pairs, neg_sampling_ratio=2.0) as loader:
        assert next(iter(loader)).edge_label_index.shape == (2, 150)


def test_negatives_are_uniform_and_no_edges(graph):
    pairs = torch.zeros(2, 4000, dtype=torch.int64)
    with loader_of(graph, (1,), pairs, batch_size=400, neg_sampling="binary", reject_edges=True) as loader:
        drawn = torch.cat([batch.n_id[batch.edge_label_index][:, 400:] for batch in loader], dim=1)
    assert drawn.shape == (2, 4000)
    edges = {(source, target) for target, each in enumerate(lists_of(graph)) for source in each}
    assert not edges & set(map(tuple, drawn.T.tolist()))
    for ends in drawn:
        counts = np.bincount(ends.numpy() * 20 // graph.num_nodes, minlength=20)
        expected = np.diff(np.ceil(np.arange(21) * graph.num_nodes / 20)) / graph.num_nodes * 4000
        assert ((counts - expected) ** 2 / expected).sum() < 43.8  # chi-square of 19 degrees of freedom, p = 0.001


def test_a_full_graph_has_no_negatives_left_and_says_nothing(tmp_path):
    folder = write(tmp_path / "full", [[0, 1, 2]] * 3)
    with loader_of(folder, (1,), np.zeros((2, 4), int), neg_sampling="binary", reject_edges=True) as loader:
        assert next(iter(loader)).edge_label_index.shape == (2, 8)


def test_picks_are_uniform_over_what_is_allowed(tmp_path):
    """Node 0 has 6 in-neighbours; 2 and, as a reverse edge, 4 are excluded."""
    folder = write(tmp_path / "star", [[1, 2, 3, 4, 5, 6], *([[]] * 6)])
    pairs = np.array([[2, 0]] * 3000).T
    pairs[:, 1::2] = [[0], [4]]
    counts = np.zeros(7, int)
    with loader_of(folder, (2,), pairs, batch_size=2, edge_ids=True) as loader:
        for batch in loader:
            assert batch.num_sampled_edges == [2]
            counts[batch.n_id[batch.edge_index[0]].numpy()] += 1
    assert counts[[0, 2, 4]].tolist() == [0, 0, 0]
    expected = 1500 * 2 / 4
    assert ((counts[[1, 3, 5, 6]] - expected) ** 2 / expected).sum() < 16.3  # 3 degrees of freedom, p = 0.001


def test_node_batches_of_the_same_sampler_and_state(graph):
    how = {"neg_sampling": "binary", "shuffle": True, "seed": 3}
    with loader_of(graph, **how) as loader, loader_of(graph, **how) as again:
        nodes = next(iter(loader.with_nodes([7, 5])))
        assert nodes.batch_size == 2 and nodes.n_id[:2].tolist() == [7, 5]
        batches = iter(loader)
        first = next(batches)
        assert "LinkNeighborLoader" in repr(loader) and "pairs" in repr(loader)
        again.load_state_dict(loader.state_dict())
        second, resumed = next(batches), next(iter(again))
        for name in ("n_id", "edge_index", "edge_label_index", "input_id", "x"):
            assert torch.equal(second[name], resumed[name]) and not torch.equal(first.input_id, second.input_id)
        with pytest.raises(CohortError, match="load_state_dict: pairs"):
            loader.with_edges(None, shuffle=True, exclude="none").load_state_dict(loader.state_dict())
        for same in (copy.deepcopy(second), pickle.loads(pickle.dumps(second))):
            assert torch.equal(same.edge_label_index, second.edge_label_index)


QUESTIONS = [
    {"exclude": "none"},
    {"neg_sampling": "binary", "reject_edges": True},
    {"neg_sampling": NegativeSampling("triplet", 2), "exclude": "self"},
    {"neg_sampling": {"mode": "in_batch", "amount": 2}, "reject_edges": True},
    {"neg_sampling": NegativeSampling("binary", 1, dst_weight=torch.arange(2708) % 50), "reject_edges": True},
]


@pytest.mark.gpu
@pytest.mark.parametrize("places", [{}, {"topology": "host", "cache_ratio": 0.3}], ids=["in the GPU", "host and cache"])
def test_a_gpu_makes_the_same_batches(graph, places):
    """Also of nodes, and from the state of a loader on the CPU in the middle of an epoch."""
    same = {"batch_size": 2500, "seed": 3, "edge_ids": True}
    with loader_of(graph, **same) as on_cpu, loader_of(graph, **same | places | {"device": "cuda"}) as on_gpu:
        for how, fanout in itertools.product(QUESTIONS, [(-1, 3), (2, 1), (1,)]):
            how = how | {"shuffle": True, "num_neighbors": fanout}
            cpu, gpu = on_cpu.with_edges(None, **how), on_gpu.with_edges(None, **how)
            for count, (expected, found) in enumerate(zip(cpu, gpu, strict=True), start=1):
                assert found.x.is_cuda
                expect_same(found, expected)
                if count == 2:
                    state = cpu.state_dict()
            last = copy.deepcopy(expected)
            gpu.load_state_dict(state)
            *_, resumed = map(copy.deepcopy, gpu)
            expect_same(resumed, last)
            assert count == len(gpu)
        expect_same(next(iter(on_gpu.with_nodes([7, 5]))), next(iter(on_cpu.with_nodes([7, 5]))))


def test_a_pyg_graph_with_a_link_split(graph):
    of_pyg = graph.to_pyg()
    data = Data(x=of_pyg.x, edge_index=of_pyg.edge_index)
    train, _, test = RandomLinkSplit(is_undirected=True, num_val=0.1, num_test=0.1)(data)
    pairs = test.edge_label_index
    with loader_of(train, pairs=pairs, edge_label=test.edge_label) as loader:
        batches = list(map(copy.deepcopy, loader))
    assert torch.equal(torch.cat([batch.edge_label for batch in batches]), test.edge_label)
    assert torch.equal(torch.cat([batch.n_id[batch.edge_label_index] for batch in batches], dim=1), pairs)


def refuse(place: str, data, **options) -> CohortError:
    with pytest.raises(CohortError, match=place) as caught:
        loader_of(data, **options)
    return caught.value


def test_refusals(graph, tmp_path):
    pairs = torch.zeros(2, 5, dtype=torch.int64)
    assert ".t()" in str(refuse("edge_label_index", graph, pairs=pairs.t()))
    refuse("edge_label_index", graph, pairs=pairs.float())
    refuse("node ids in", graph, pairs=pairs + graph.num_nodes)
    refuse("edges in", graph, pairs=[-1])
    refuse("edge_label", graph, pairs=pairs, edge_label=torch.zeros(4))
    refuse("edge_label", graph, pairs=pairs, edge_label=torch.zeros(5), neg_sampling="triplet")
    refuse("neg_sampling", graph, pairs=pairs, neg_sampling="hard")
    refuse("neg_sampling", graph, pairs=pairs, neg_sampling={"mode": "triplet", "amount": 0.5})
    refuse("amount", graph, pairs=pairs, neg_sampling={"mode": "binary", "amount": 1e9})
    refuse("neg_sampling_ratio", graph, pairs=pairs, neg_sampling="binary", neg_sampling_ratio=1.0)
    refuse("exclude", graph, pairs=pairs, exclude="all")
    refuse("edge_label_time", graph, pairs=pairs, edge_label_time=torch.zeros(5))
    with pytest.raises(TypeError, match=r"LinkNeighborLoader\(\) got an unexpected"):
        loader_of(graph, pairs=pairs, negatives=3)
