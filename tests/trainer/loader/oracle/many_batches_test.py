"""Many random batches: none has an excluded edge or one from the future; all are those of a slow sampler."""

import itertools
import os

import numpy as np
import pytest
import torch
from processes import ALL_TESTS
from slow_pairs import expect_pairs
from slow_sampler import expect_batch

from cohort_gnn import LinkNeighborLoader, NeighborLoader
from cohort_gnn.dataset import from_tensors
from cohort_gnn.dataset import open as open_dataset
from cohort_gnn.spec.graph import EDGE_TYPE, NODE_TYPE

NUM_BATCHES = int(os.environ.get("COHORT_BATCHES", 100_000 if ALL_TESTS else 100))
SEED = int(os.environ.get("COHORT_BATCHES_SEED", 0))  # of the graph, the seeds and the loaders
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
FANOUT = [3, 2]

pytestmark = [pytest.mark.usefixtures("shm"), pytest.mark.timeout(3000)]


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    """300 nodes and 3,000 events among them: a hub, parallel edges, edges of equal ends, nodes without edges."""
    rng = np.random.default_rng(8 + SEED)
    ends, time = rng.integers(290, size=(2, 3000)), rng.integers(-5, 20, 3000)
    ends[1, :500] = 0
    ends[:, 500:700] = ends[:, 700:900]
    ends[0, 900:950] = ends[1, 900:950]
    x = np.repeat(np.arange(300, dtype=np.float32)[:, None], 3, axis=1)
    folder = tmp_path_factory.mktemp("many") / "set"
    return open_dataset(from_tensors(folder, x=x, y=np.arange(300) % 3, edge_index=ends, edge_time=time))


def batches_of(loader):
    """NUM_BATCHES of them, epoch after epoch."""
    return itertools.islice((batch for _ in itertools.count() for batch in loader), NUM_BATCHES)


@pytest.mark.parametrize("exclude", ["self", "reverse"])
@pytest.mark.parametrize("device", DEVICES)
def test_no_batch_has_an_excluded_edge(graph, device, exclude):
    """All pairs are edges."""
    pairs = torch.from_numpy(graph.edge_types[EDGE_TYPE].edge_index())
    how = {"mode": "binary", "amount": 1, "redraws": 0, "exclude": exclude}
    options = {"neg_sampling": "binary", "exclude": exclude, "edge_ids": True, "seed": SEED}
    with LinkNeighborLoader(graph, FANOUT, pairs, batch_size=4, shuffle=True, device=device, **options) as loader:
        for number, batch in enumerate(batches_of(loader)):
            of_batch = list(map(tuple, pairs[:, batch.input_id.cpu()].T.tolist()))
            key = SEED, *divmod(number, len(loader))
            expect_pairs(graph, batch, EDGE_TYPE, of_batch, how, {EDGE_TYPE: FANOUT}, key)


@pytest.mark.parametrize("window", [None, 6])
@pytest.mark.parametrize("strategy", ["uniform", "last"])
@pytest.mark.parametrize("device", DEVICES)
def test_no_batch_has_an_edge_outside_its_span_of_time(graph, device, strategy, window):
    rng = np.random.default_rng(9 + SEED)
    seeds, times = rng.integers(300, size=2000), rng.integers(-8, 22, 2000)
    how = {"time_attr": "edge_time", "temporal_strategy": strategy, "input_time": times, "edge_ids": True}
    how |= {"time_window": window, "seed": SEED}
    num_edges = 0
    with NeighborLoader(graph, FANOUT, seeds, batch_size=4, shuffle=True, device=device, **how) as loader:
        for number, batch in enumerate(batches_of(loader)):
            of_batch = batch.input_id.tolist()
            latest = times[of_batch][batch.batch[batch.edge_index[1]].cpu().numpy()]  # that each edge may be
            assert (graph.edge_times[batch.e_id.cpu().numpy()] <= latest).all()
            drawn = {"times": times[of_batch].tolist(), "latest": strategy == "last", "trees": {NODE_TYPE: range(4)}}
            drawn["windows"] = {} if window is None else {EDGE_TYPE: window}
            key, of_seeds = (SEED, *divmod(number, len(loader))), {NODE_TYPE: seeds[of_batch]}
            expect_batch(graph, batch, {EDGE_TYPE: FANOUT}, of_seeds, key, **drawn)
            num_edges += len(latest)
    assert num_edges > NUM_BATCHES, "batches have edges"
