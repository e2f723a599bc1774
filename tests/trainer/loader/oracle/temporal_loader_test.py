"""Disjoint and temporal batches, of one type and of several: pairs, resumed epochs, and the same on a GPU.
hetero_loader_test.py has batches of nodes."""

import copy
import itertools

import numpy as np
import pytest
import torch
from batches import expect_same, expect_same_passes
from processes import ALL_TESTS
from sets import write
from slow_pairs import barred_edges
from slow_sampler import expect_batch

from cohort_gnn import CohortError, LinkNeighborLoader, NeighborLoader
from cohort_gnn.dataset import from_tensors
from cohort_gnn.dataset import open as open_dataset
from cohort_gnn.spec.graph import EDGE_TYPE, NODE_TYPE

pytestmark = pytest.mark.usefixtures("shm")
STRATEGIES = ["uniform", "last"]
WRITES, REV_WRITES = ("author", "writes", "paper"), ("paper", "rev_writes", "author")
CITES = ("paper", "cites", "paper")


@pytest.fixture(scope="module")
def events(tmp_path_factory):
    """8000 edges among 500 nodes: a hub, and 30 nodes that no edge leads to; row i of the features holds i."""
    random = np.random.default_rng(3)
    ends, time = random.integers(500, size=(2, 8000)), random.integers(-5, 20, size=8000)
    ends[1] %= 470
    ends[1, :2000] = 0
    x = np.repeat(np.arange(500, dtype=np.float32)[:, None], 3, axis=1)
    folder = tmp_path_factory.mktemp("events") / "set"
    return open_dataset(from_tensors(folder, x=x, y=np.arange(500) % 3, edge_index=ends, edge_time=time))


@pytest.fixture(scope="module")
def papers(tmp_path_factory):
    """Edges between authors and papers, both ways, have times; those of fields, and of papers to papers, none."""
    random = np.random.default_rng(3)
    counts = {"author": 150, "field": 20, "paper": 200}
    lists: dict = {
        WRITES: [random.integers(150, size=random.integers(30)).tolist() for _ in range(200)],
        REV_WRITES: [random.integers(200, size=random.integers(30)).tolist() for _ in range(150)],
        ("field", "topic_of", "paper"): [random.integers(20, size=3).tolist() for _ in range(200)],
        ("paper", "cites", "paper"): [random.integers(200, size=6).tolist() for _ in range(200)],
    }
    times = {
        name: [np.sort(random.integers(100, size=len(each))).tolist() for each in lists[name]]
        for name in list(lists)[:2]
    }
    dims = {"author": 0, "field": 4, "paper": 8}
    return open_dataset(write(tmp_path_factory.mktemp("papers") / "set", counts, dims, lists, times=times))


def arguments(strategy: str | None, times: np.ndarray) -> dict:
    if strategy is None:
        return {"disjoint": True}
    return {"time_attr": "time", "temporal_strategy": strategy, "input_time": times}


def loader_of(data, fanout, nodes=None, **options) -> NeighborLoader:
    return NeighborLoader(data, list(fanout), nodes, **{"device": "cpu", "edge_ids": True, "batch_size": 20} | options)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_an_epoch_goes_on_where_it_was_broken_off(events, strategy):
    how = {"time_attr": "time", "input_time": np.arange(500) % 25 - 6, "temporal_strategy": strategy, "shuffle": True}
    with loader_of(events, [4, 3], **how) as loader:
        *_, rest = all_ = list(map(copy.deepcopy, loader))
        state = loader.state_dict() | {"epoch": 0, "step": len(all_) - 1}
        loader.load_state_dict(state)
        expect_same(rest, next(iter(loader)))
        later = how | {"input_time": how["input_time"] + 1}
        with pytest.raises(CohortError, match="load_state_dict: input_time"):
            loader.with_nodes(None, input_time=later["input_time"], shuffle=True).load_state_dict(state)
        evaluation = loader.with_nodes([3, 3, 4], input_time=[0, 5, 9], num_neighbors=[-1])
        seeds, trees = {NODE_TYPE: [3, 3, 4]}, {NODE_TYPE: range(3)}
        drawn = {"trees": trees, "times": [0, 5, 9], "latest": strategy == "last"}
        expect_batch(events, next(iter(evaluation)), {EDGE_TYPE: [-1]}, seeds, (0, 0, 0), **drawn)


NUM_PAIRS = 60 if ALL_TESTS else 32  # half of them are edges
NEGATIVES: list[dict | None] = [None, *({"mode": mode, "amount": 2} for mode in ("triplet", "in_batch"))]
NEGATIVES.append({"mode": "binary", "amount": 1.5})
RELATIONS, EXCLUDED = [EDGE_TYPE, WRITES, REV_WRITES, CITES], ["none", "self", "reverse"]
# By day each two of the values are together once; by night all four are.
CASES = [
    (RELATIONS[a], NEGATIVES[b], [None, *STRATEGIES][c], EXCLUDED[d])
    for a, b, c, d in itertools.product(range(4), range(4), range(3), range(3))
    if ALL_TESTS or (c == (a + b) % 3 and d == (a + 2 * b) % 3)
]


@pytest.fixture
def graph_of(events, papers):
    return lambda relation: events if relation == EDGE_TYPE else papers


WINDOW = {EDGE_TYPE: 9, WRITES: 40}  # of these relations; edges of others may be of any age


def links_of(graph, relation, negatives, strategy, exclude="none", fanout=(4, 3), **options):
    """A loader, its pairs [2, NUM_PAIRS], and their times; batches in time have windows."""
    random = np.random.default_rng(4)
    pairs = random.integers([graph.node_types[end].num_nodes for end in relation[::2]], size=(NUM_PAIRS, 2)).T
    edges = graph.edge_types[relation].edge_index()
    pairs[:, ::2] = edges[:, random.integers(edges.shape[1], size=NUM_PAIRS // 2)]
    times = random.integers(-8, 22 if relation == EDGE_TYPE else 110, NUM_PAIRS)
    how = {"neg_sampling": negatives, "exclude": exclude, "edge_ids": True} | arguments(strategy, times)
    if strategy is not None:
        how["edge_label_time"] = how.pop("input_time")
        how["time_window"] = {name: window for name, window in WINDOW.items() if name in graph.edge_types}
    how |= {"batch_size": 16, "seed": 2, "shuffle": True, "device": "cpu"} | options
    return LinkNeighborLoader(graph, list(fanout), (relation, pairs), **how), pairs, times


@pytest.mark.parametrize(("relation", "negatives", "strategy", "exclude"), CASES, ids=str)
def test_each_end_of_a_pair_has_a_tree_at_the_time_of_the_pair(graph_of, relation, negatives, strategy, exclude):
    graph, num_barred = graph_of(relation), 0
    loader, pairs, times = links_of(graph, relation, negatives, strategy, exclude)
    edges = set(map(tuple, graph.edge_types[relation].edge_index().T.tolist()))
    with loader:
        for step, batch in enumerate(loader):
            source, of_pairs, target = (batch.store_of(name) for name in (relation[0], relation, relation[2]))
            count = len(of_pairs.input_id)
            if negatives is not None and negatives["mode"] != "binary":
                ends = [source.src_index, torch.cat([target.dst_pos_index, target.dst_neg_index.flatten()])]
                of_negatives = torch.arange(count).repeat_interleave(negatives["amount"])
                pair_of = [torch.arange(count), torch.cat([torch.arange(count), of_negatives])]
            else:
                ends = list(of_pairs.edge_label_index)
                pair_of = [torch.arange(len(ends[0])) % count] * 2
            of_pair = torch.cat(pair_of).tolist()
            of_trees = None if strategy is None else [int(times[of_pairs.input_id[pair]]) for pair in of_pair]
            if of_trees is None:
                assert "edge_label_time" not in of_pairs and "seed_time" not in source
            elif "edge_label_time" in of_pairs:
                assert of_pairs.edge_label_time.tolist() == of_trees[: len(of_trees) // 2] and "seed_time" not in source
            else:
                assert source.seed_time.tolist() == target.seed_time.tolist() == of_trees[:count]
            roots, trees, first, own = {}, {}, 0, []
            for name, ids in zip(relation[::2], ends, strict=True):
                assert sorted(ids.tolist()) == list(range(ids.min(), ids.min() + len(ids)))
                nodes = batch.store_of(name).n_id[ids].tolist()
                roots[name] = [*roots.get(name, []), *nodes]
                trees[name] = [*trees.get(name, []), *range(first, first + len(ids))]
                first += len(ids)
                own.append(nodes[:count])
            assert own == pairs[:, of_pairs.input_id].tolist()
            if negatives is not None and negatives["mode"] == "in_batch":
                assert set(nodes) == set(own[1]), "targets of the other pairs"
            barred = barred_edges(graph, relation, list(zip(*own, strict=True)), exclude)
            how = {"times": of_trees, "latest": strategy == "last", "barred": barred, "named": of_pair.__getitem__}
            how["windows"] = None if strategy is None else WINDOW
            fanouts = dict.fromkeys(graph.edge_types, [4, 3])
            expect_batch(graph, batch, fanouts, roots, (2, 0, step), trees=trees, **how)
            num_barred += len(barred.get(relation, set()) & edges)
    assert step == (NUM_PAIRS - 1) // 16 and (num_barred > 0.4 * NUM_PAIRS) == (exclude != "none")


def test_other_pairs_have_times_of_their_own(events):
    loader, *_ = links_of(events, EDGE_TYPE, None, "last")
    with loader:
        other = loader.with_edges(torch.tensor([[1, 1], [2, 3]]), edge_label_time=[0, 9], exclude="none")
        (batch,) = other
        assert batch.batch[:4].tolist() == [0, 1, 0, 1]
        nodes = next(iter(loader.with_nodes([5, 5], input_time=[3, 8])))
        how = {"trees": {NODE_TYPE: range(2)}, "times": [3, 8], "latest": True, "windows": WINDOW}
        expect_batch(events, nodes, {EDGE_TYPE: [4, 3]}, {NODE_TYPE: [5, 5]}, (2, 0, 0), **how)


@pytest.mark.gpu
@pytest.mark.parametrize("relation", RELATIONS, ids=" ".join)
@pytest.mark.parametrize("negatives", NEGATIVES, ids=str)
@pytest.mark.parametrize("strategy", [None, *STRATEGIES])
@pytest.mark.parametrize("how", [{}, {"topology": "host", "cache_ratio": 0.5}, {"fanout": [40, -1]}], ids=str)
def test_a_gpu_makes_the_same_batches_of_pairs(graph_of, relation, negatives, strategy, how):
    (on_cpu, *_), (on_gpu, *_) = (
        links_of(graph_of(relation), relation, negatives, strategy, "reverse", device=device, **how)
        for device in ("cpu", "cuda")
    )
    with on_cpu, on_gpu:
        expect_same_passes(on_gpu, on_cpu)


@pytest.mark.gpu
@pytest.mark.parametrize("strategy", [None, *STRATEGIES])
@pytest.mark.parametrize("places", [{"topology": "gpu"}, {"topology": "host", "cache_ratio": 0.5}, {"reuse": True}])
@pytest.mark.parametrize("name", [NODE_TYPE, "paper"])
def test_a_gpu_makes_the_same_batches(events, papers, name, strategy, places):
    graph = events if name == NODE_TYPE else papers
    seeds = np.arange(1000) % graph.node_types[name].num_nodes
    how = {"shuffle": True, "batch_size": 150} | arguments(strategy, np.arange(1000) % 23 * len(graph.edge_types) - 5)
    for number, fanout in enumerate(([10, 5], [40, 3, 2], [-1, -1])):
        if strategy is not None:
            how["time_window"] = None if number == 0 else 7 * number
        with (
            loader_of(graph, fanout, (name, seeds), **how) as on_cpu,
            loader_of(graph, fanout, (name, seeds), **how | places | {"device": "cuda"}) as on_gpu,
        ):
            for _ in range(2):
                expect_same_passes(on_gpu, on_cpu)


@pytest.mark.gpu
@pytest.mark.parametrize(
    "options",
    [{}, {"topology": "host"}, {"disjoint": True}, {"cache_ratio": 0.4}, {"subgraph_type": "bidirectional"}],
    ids=str,
)
def test_a_gpu_draws_the_same_with_replacement(events, options):
    how = {"replace": True, "shuffle": True} | options
    for fanout in ([3, 2], [40, 33], [-1, 4]):
        with loader_of(events, fanout, **how) as on_cpu, loader_of(events, fanout, device="cuda", **how) as on_gpu:
            for _ in range(2):
                expect_same_passes(on_gpu, on_cpu)
