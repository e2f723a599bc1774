"""Many random batches: none has an excluded edge or one from the future; all are those of a slow sampler."""

import itertools
import os

import numpy as np
import pytest
import torch
from processes import ALL_TESTS
from sets import times_for, write
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
SCHEMAS = 20  # random ones

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


def random_schema(rng: np.random.Generator) -> tuple[dict, dict, dict, dict]:
    """(counts, dims, lists, fanouts) of 2 to 4 node types and 2 to 6 relations, as `write` takes them."""
    names = [f"t{number}" for number in range(rng.integers(2, 5))]
    counts = {name: int(rng.integers(1, 40)) for name in names}
    chosen = [
        (str(rng.choice(names)), "ab"[number % 2], str(rng.choice(names))) for number in range(rng.integers(2, 7))
    ]
    lists = {
        relation: [
            rng.integers(counts[relation[0]], size=rng.integers(12)).tolist() for _ in range(counts[relation[2]])
        ]
        for relation in chosen
    }
    hops = int(rng.integers(1, 4))
    fanouts = {relation: rng.integers(-1, 4, hops).tolist() for relation in lists}
    return counts, {name: int(rng.integers(0, 3)) for name in names}, lists, fanouts


@pytest.mark.skipif(not ALL_TESTS, reason="hetero_loader_test has fewer: tests/run.sh --all runs it")
@pytest.mark.parametrize("strategy", ["uniform", "last"])
@pytest.mark.parametrize("device", DEVICES)
def test_no_batch_of_random_types_has_an_edge_outside_its_span_of_time(tmp_path, device, strategy):
    rng, num_edges = np.random.default_rng(10 + SEED), 0
    for schema in range(SCHEMAS):
        counts, dims, lists, fanouts = random_schema(rng)
        folder = write(tmp_path / str(schema), counts, dims, lists, times=times_for(lists, schema))
        graph, node_type = open_dataset(folder), str(rng.choice(list(counts)))
        seeds, times = rng.integers(counts[node_type], size=400), rng.integers(-8, 22, 400)
        timed = [name for name, relation in graph.edge_types.items() if relation.edge_times is not None]
        windows = {name: int(rng.integers(0, 15)) for name in timed if rng.integers(2)}
        how = {"time_attr": "time", "temporal_strategy": strategy, "input_time": times, "time_window": windows or None}
        how |= {"batch_size": 4, "shuffle": True, "device": device, "seed": SEED, "edge_ids": True}
        with NeighborLoader(graph, fanouts, (node_type, seeds), **how) as loader:
            for number, batch in enumerate(itertools.islice(batches_of(loader), NUM_BATCHES // SCHEMAS)):
                of_batch = batch.store_of(node_type).input_id.tolist()
                drawn = {"times": times[of_batch].tolist(), "latest": strategy == "last", "windows": windows}
                drawn["trees"], key = {node_type: range(4)}, (SEED, *divmod(number, len(loader)))
                expect_batch(graph, batch, fanouts, {node_type: seeds[of_batch]}, key, **drawn)
                num_edges += sum(batch.store_of(name).edge_index.shape[1] for name in timed)
    assert num_edges > NUM_BATCHES, "batches have edges with times"
