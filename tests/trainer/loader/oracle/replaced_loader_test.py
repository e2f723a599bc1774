"""Loaders that draw with replacement: the same on GPUs, and what they refuse. hetero_loader_test.py and
link_loader_test.py compare them with a slow sampler."""

import numpy as np
import pytest
from batches import expect_same_passes

from cohort_gnn import CohortError, NeighborLoader
from cohort_gnn.dataset import Dataset, from_tensors
from cohort_gnn.dataset import open as open_dataset

pytestmark = pytest.mark.usefixtures("shm")
NUM_NODES, NUM_EDGES = 300, 3000


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


def loader_of(data, fanout, device="cpu", **options) -> NeighborLoader:
    how = {"batch_size": 20, "seed": 5, "replace": True, "edge_ids": True} | options
    return NeighborLoader(data, fanout, device=device, **how)


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
                expect_same_passes(on_gpu, on_cpu)
