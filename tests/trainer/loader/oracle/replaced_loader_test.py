"""Loaders that draw with replacement: equal to a slow sampler in Python, the same on GPUs, and what they refuse."""

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from link_oracle import forbidden_edges, neighbourhoods
from processes import ALL_TESTS
from typed_oracle import random_64, sample
from typed_sets import schemas, write

from cohort_gnn import CohortError, LinkNeighborLoader, NeighborLoader
from cohort_gnn.dataset import Dataset, from_tensors
from cohort_gnn.dataset import open as open_dataset

pytestmark = pytest.mark.usefixtures("shm")
NUM_NODES, NUM_EDGES = 300, 3000
EXAMPLES = 100 if ALL_TESTS else 10


@pytest.fixture(scope="module")
def graph(tmp_path_factory) -> Dataset:
    """Node 0 has many in-neighbours, the last 30 nodes have none; weights, times and rows of edges differ."""
    random = np.random.default_rng(3)
    edges = random.integers(NUM_NODES - 30, size=(2, NUM_EDGES))
    edges[1, :300] = 0
    how = {"edge_time": random.integers(0, 50, NUM_EDGES), "edge_attr": np.arange(NUM_EDGES * 2.0).reshape(-1, 2)}
    folder = tmp_path_factory.mktemp("replaced") / "set"
    rows = np.repeat(np.arange(NUM_NODES, dtype=np.float32)[:, None], 3, axis=1)
    from_tensors(folder, x=rows, y=np.arange(NUM_NODES) % 3, edge_index=edges, **how)
    return open_dataset(folder)


def loader_of(data, fanout, seeds=None, device="cpu", make=NeighborLoader, **options):
    how = {"batch_size": 20, "seed": 5, "replace": True, "edge_ids": True} | options
    return make(data, list(fanout), seeds, device=device, **how)


@pytest.mark.parametrize("fanout", [(3, 2), (40,), (-1, 4), (2, 0, 3)], ids=str)
def test_batches_are_those_of_a_slow_sampler(graph, fanout):
    lists = [each.tolist() for each in np.split(graph.indices, graph.indptr[1:-1])]
    with loader_of(graph, fanout) as loader:
        for step, batch in enumerate(loader):
            seeds = range(20 * step, 20 * step + 20)
            key = random_64(5, 0, step)
            expected = neighbourhoods(lists, graph.indptr, seeds, list(fanout), key, replace=True)
            assert batch.n_id.tolist() == expected["n_id"] and batch.e_id.tolist() == expected["e_id"]
            assert batch.edge_index.tolist() == expected["edge_index"]
            assert batch.num_sampled_nodes == expected["nodes"] and batch.num_sampled_edges == expected["edges"]
            assert np.array_equal(batch.x[:, 0], batch.n_id)
            assert np.array_equal(batch.edge_attr, graph.edge_attr[batch.e_id])
            degrees = np.diff(graph.indptr)[batch.n_id[: batch.batch_size]]
            picks = np.diff(batch.indptr[: batch.batch_size + 1])
            assert np.array_equal(picks, degrees if fanout[0] < 0 else np.where(degrees, fanout[0], 0))


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(schemas(), st.data())
def test_batches_of_several_types_are_those_of_a_slow_sampler(tmp_path_factory, schema, data):
    counts, dims, lists, fanouts = schema
    graph = open_dataset(write(tmp_path_factory.mktemp("typed") / "set", counts, dims, lists))
    input_type = data.draw(st.sampled_from(list(counts)))
    disjoint = data.draw(st.booleans())
    how = {"batch_size": 7, "device": "cpu", "seed": 5, "edge_ids": True, "replace": True, "disjoint": disjoint}
    with NeighborLoader(graph, fanouts, input_type, **how) as loader:
        for step, batch in enumerate(loader):
            seeds = range(7 * step, min(7 * step + 7, counts[input_type]))
            trees = {input_type: range(len(seeds))} if disjoint else None
            nodes, edges = sample(graph, fanouts, {input_type: seeds}, (5, 0, step), trees=trees, replace=True)
            for name, (n_id, *_) in nodes.items():
                assert batch[name].n_id.tolist() == n_id.tolist()
            for name, (source, target, e_id, per_hop) in edges.items():
                assert batch[name].edge_index.tolist() == [source.tolist(), target.tolist()]
                assert batch[name].e_id.tolist() == e_id.tolist() and batch[name].num_sampled_edges == per_hop


def test_edges_that_are_pairs_are_not_drawn(graph):
    lists = [each.tolist() for each in np.split(graph.indices, graph.indptr[1:-1])]
    targets = np.repeat(np.arange(NUM_NODES), np.diff(graph.indptr))
    pairs = np.stack([graph.indices, targets])[:, 250:350]
    with loader_of(graph, [4, 4], pairs, make=LinkNeighborLoader) as loader:
        for step, batch in enumerate(loader):
            own = pairs[:, 20 * step : 20 * step + 20]
            seeds = list(dict.fromkeys(own.ravel().tolist()))
            forbidden = forbidden_edges(own.T, "reverse")
            key = random_64(5, 0, step)
            expected = neighbourhoods(lists, graph.indptr, seeds, [4, 4], key, forbidden, replace=True)
            assert batch.n_id.tolist() == expected["n_id"] and batch.e_id.tolist() == expected["e_id"]
        (of_nodes,) = loader.with_nodes([0, 1])
        expected = neighbourhoods(lists, graph.indptr, [0, 1], [4, 4], random_64(5, 0, 0), replace=True)
        assert of_nodes.e_id.tolist() == expected["e_id"], "loaders of one sampler draw alike"


def test_edges_are_no_later_than_their_seed(graph):
    times = np.arange(NUM_NODES) % 60
    with loader_of(graph, [5, 3], time_attr="edge_time", input_time=times) as loader:
        for batch in loader:
            of_trees = batch.seed_time[batch.batch][batch.edge_index[1]].numpy()
            assert (graph.edge_times[batch.e_id] <= of_trees).all()
            counts = np.diff(batch.indptr)[: batch.batch_size]
            lists = (slice(*graph.indptr[node : node + 2]) for node in batch.n_id[: batch.batch_size])
            seed_times = batch.seed_time.tolist()
            may = [(graph.edge_times[places] <= time).any() for places, time in zip(lists, seed_times, strict=True)]
            assert counts.tolist() == [5 if any_edge else 0 for any_edge in may]


def test_epochs_differ_and_resume(graph):
    with loader_of(graph, [3, 3], shuffle=True) as loader, loader_of(graph, [3, 3], shuffle=True) as other:
        epochs = [[batch.e_id.clone() for batch in loader] for _ in range(2)]
        assert not torch.equal(epochs[0][0], epochs[1][0])
        other.load_state_dict(loader.state_dict() | {"epoch": 1, "step": 13})
        rest = [batch.e_id.clone() for batch in other]
        assert len(rest) == 2 and all(map(torch.equal, rest, epochs[1][13:]))
        with loader_of(graph, [3, 3], shuffle=True, replace=False) as plain:
            with pytest.raises(CohortError, match="^load_state_dict: replace: expected False"):
                plain.load_state_dict(loader.state_dict())


@pytest.mark.parametrize(
    ("place", "options", "expected"),
    [
        ("replace", {"replace": "yes"}, "true or false"),
        ("replace", {"temporal_strategy": "last"}, 'False, with temporal_strategy="last"'),
        ("replace", {"weight_attr": "edge_weight", "time_attr": None}, 'False, with weight_attr="edge_weight"'),
        ("cache_ratio", {"cache_ratio": "auto", "time_attr": None}, "a number, for draws with replacement"),
    ],
)
def test_what_is_not_offered_is_refused(graph, place, options, expected):
    with pytest.raises(CohortError) as error:
        loader_of(graph, [3], **{"time_attr": "edge_time"} | options)
    assert (error.value.place, error.value.expected) == (place, expected)


@pytest.mark.gpu
@pytest.mark.parametrize(
    "options",
    [{}, {"topology": "host"}, {"disjoint": True}, {"cache_ratio": 0.4}, {"subgraph_type": "bidirectional"}],
    ids=str,
)
def test_a_gpu_makes_the_same_batches(graph, options):
    for fanout in ([3, 2], [40, 33], [-1, 4]):
        how = {"shuffle": True} | options
        with loader_of(graph, fanout, **how) as on_cpu, loader_of(graph, fanout, device="cuda", **how) as on_gpu:
            for _ in range(2):
                for expected, batch in zip(on_cpu, on_gpu, strict=True):
                    assert batch.keys() == expected.keys()
                    for name, value in expected.to_dict().items():
                        found = batch[name]
                        same = torch.equal(found.cpu(), value) if isinstance(value, torch.Tensor) else found == value
                        assert same, name
