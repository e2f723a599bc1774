"""Disjoint and temporal batches of graphs of several types: equal to a slow sampler in Python, on the CPU and a GPU."""

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from batches import expect_same_passes
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from processes import ALL_TESTS, cohort, ran
from torch_geometric.data import HeteroData
from torch_geometric.sampler import NegativeSampling
from typed_oracle import sample
from typed_sets import schemas, write

from cohort_gnn import CohortError, LinkNeighborLoader, NeighborLoader
from cohort_gnn.dataset import check, from_pyg
from cohort_gnn.dataset import open as open_dataset

pytestmark = pytest.mark.usefixtures("shm")
EXAMPLES = 150 if ALL_TESTS else 20
STRATEGIES = ["uniform", "last"]
WRITES, REV_WRITES = ("author", "writes", "paper"), ("paper", "rev_writes", "author")
CITES = ("paper", "cites", "paper")


def times_for(lists: dict, seed: int) -> dict:
    """Times of the edges of every relation but each third, ascending in each list."""
    random = np.random.default_rng(seed)
    timed = [relation for number, relation in enumerate(lists) if number % 3 != 2]
    return {
        relation: [np.sort(random.integers(-5, 20, len(each))).tolist() for each in lists[relation]]
        for relation in timed
    }


def arguments(strategy: str | None, times: np.ndarray) -> dict:
    if strategy is None:
        return {"disjoint": True}
    return {"time_attr": "time", "temporal_strategy": strategy, "input_time": times}


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(schemas(), st.sampled_from([None, *STRATEGIES]), st.integers(0, 2**32), st.data())
def test_batches_are_those_of_a_slow_sampler(tmp_path_factory, schema, strategy, seed, data):
    counts, dims, lists, fanouts = schema
    folder = write(tmp_path_factory.mktemp("typed") / "set", counts, dims, lists, times=times_for(lists, seed))
    graph, random = open_dataset(folder), np.random.default_rng(seed)
    input_type = data.draw(st.sampled_from(list(counts)))
    seeds = random.integers(counts[input_type], size=20)  # which repeat
    times = random.integers(-8, 22, 20)
    how = {"batch_size": 7, "device": "cpu", "seed": 5, "edge_ids": True} | arguments(strategy, times)
    with NeighborLoader(graph, fanouts, (input_type, seeds), **how) as loader:
        for step, batch in enumerate(loader):
            part = slice(7 * step, 7 * step + 7)
            of_trees = None if strategy is None else times[part].tolist()
            roots = {input_type: seeds[part]}
            trees = {input_type: range(len(seeds[part]))}
            expect_oracle(graph, batch, roots, trees, fanouts, (5, 0, step), of_trees, strategy == "last")
            assert batch[input_type].batch_size == len(seeds[part])
            found = batch[input_type].seed_time.tolist() if "seed_time" in batch[input_type] else None
            assert found == of_trees
    assert step == 2


def expect_oracle(
    graph, batch, seeds, trees, fanouts, key, times, latest, named=lambda tree: tree, barred=None
) -> None:
    """``named``: what the batch calls a tree."""
    nodes, edges = sample(graph, fanouts, seeds, key, barred, trees=trees, times=times, latest=latest)
    for name, (n_id, per_hop, of_trees) in nodes.items():
        assert batch[name].n_id.tolist() == n_id.tolist()
        assert batch[name].num_sampled_nodes == per_hop
        assert batch[name].batch.tolist() == [named(tree) for tree in of_trees.tolist()]
        x = graph.node_types[name].x
        if x is not None:
            np.testing.assert_array_equal(batch[name].x.cpu().numpy(), x[n_id])
    assert batch[graph.target].y.tolist() == graph.y[nodes[graph.target][0]].tolist()
    for name, (source, target, e_id, per_hop) in edges.items():
        assert batch[name].edge_index.tolist() == [source.tolist(), target.tolist()]
        assert batch[name].e_id.tolist() == e_id.tolist()
        assert batch[name].num_sampled_edges == per_hop
        table = graph.edge_types[name].edge_times
        if times is not None and table is not None:  # no edge is from the future of its seed
            of_edges = nodes[name[2]][2][target]
            assert (table[e_id] <= np.array(times)[of_edges]).all()


@pytest.fixture(scope="module")
def events(tmp_path_factory) -> Path:
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
    return write(tmp_path_factory.mktemp("events") / "set", counts, dims, lists, times=times)


NUM_PAIRS = 60 if ALL_TESTS else 32  # half of them are edges
NEGATIVES = [None, NegativeSampling("binary", 1.5), NegativeSampling("triplet", 2)]


def links_of(events, relation, negatives, strategy, device="cpu", exclude="none"):
    """A loader, and the times of its pairs."""
    graph, random = open_dataset(events), np.random.default_rng(4)
    pairs = random.integers([graph.node_types[end].num_nodes for end in relation[::2]], size=(NUM_PAIRS, 2)).T
    edges = graph.edge_types[relation].edge_index()
    pairs[:, ::2] = edges[:, random.integers(edges.shape[1], size=NUM_PAIRS // 2)]
    times, how = random.integers(-8, 110, NUM_PAIRS), {"neg_sampling": negatives, "exclude": exclude, "edge_ids": True}
    how |= arguments(strategy, times)
    if strategy is not None:
        how["edge_label_time"] = how.pop("input_time")
    return LinkNeighborLoader(graph, [4, 3], (relation, pairs), batch_size=16, seed=2, device=device, **how), times


RELATIONS, EXCLUDED = [WRITES, REV_WRITES, CITES], ["none", "self", "reverse"]
# By day each two of the values are together once; by night all four are.
CASES = [
    (RELATIONS[a], NEGATIVES[b], [None, *STRATEGIES][c], EXCLUDED[d])
    for a, b, c, d in itertools.product(range(3), repeat=4)
    if ALL_TESTS or (c == (a + b) % 3 and d == (a + 2 * b) % 3)
]


@pytest.mark.parametrize(("relation", "negatives", "strategy", "exclude"), CASES, ids=str)
def test_each_end_of_a_pair_has_a_tree_at_the_time_of_the_pair(events, relation, negatives, strategy, exclude):
    loader, times = links_of(events, relation, negatives, strategy, exclude=exclude)
    graph, fanouts, num_barred = open_dataset(events), dict.fromkeys(open_dataset(events).edge_types, [4, 3]), 0
    with loader:
        for step, batch in enumerate(loader):
            source, target, of_pairs = batch[relation[0]], batch[relation[2]], batch[relation]
            count = len(of_pairs.input_id)
            if negatives is not None and negatives.is_triplet():
                ends = [source.src_index, torch.cat([target.dst_pos_index, target.dst_neg_index.flatten()])]
                pair_of = [
                    torch.arange(count),
                    torch.cat([torch.arange(count), torch.arange(count).repeat_interleave(2)]),
                ]
            else:
                ends = list(of_pairs.edge_label_index)
                pair_of = [torch.arange(len(ends[0])) % count] * 2
            of_pair = torch.cat(pair_of).tolist()
            of_trees = None if strategy is None else [int(times[of_pairs.input_id[pair % count]]) for pair in of_pair]
            if of_trees is None:
                assert "edge_label_time" not in of_pairs and "seed_time" not in source
            elif "edge_label_time" in of_pairs:
                assert of_pairs.edge_label_time.tolist() == of_trees[: len(of_trees) // 2]
            else:
                assert source.seed_time.tolist() == target.seed_time.tolist() == of_trees[:count]
            roots, trees, first = {}, {}, 0
            for name, ids in zip(relation[::2], ends, strict=True):
                assert sorted(ids.tolist()) == list(range(ids.min(), ids.min() + len(ids)))
                roots[name] = [*roots.get(name, []), *batch[name].n_id[ids].tolist()]
                trees[name] = [*trees.get(name, []), *range(first, first + len(ids))]
                first += len(ids)
            ids = [batch[name].n_id[of[:count]].tolist() for name, of in zip(relation[::2], ends, strict=True)]
            pairs = set(zip(*ids, strict=True))
            barred = {relation: pairs if exclude != "none" else set()}
            if exclude == "reverse" and relation == CITES:
                barred[relation] = pairs | {pair[::-1] for pair in pairs}
            how = (of_trees, strategy == "last", of_pair.__getitem__, barred)
            expect_oracle(graph, batch, roots, trees, fanouts, (2, 0, step), *how)
            num_barred += len(barred[relation] & set(map(tuple, graph.edge_types[relation].edge_index().T.tolist())))
    assert step == (NUM_PAIRS - 1) // 16 and (num_barred > 0.4 * NUM_PAIRS) == (exclude != "none")


def test_the_times_of_a_hetero_data_are_kept(tmp_path):
    """Those of edges, or else those of the nodes that they come from; lists ascend by time."""
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
    assert graph.edge_types[REV_WRITES].edge_times.tolist() == [7, 9, -3, 5]
    assert graph.to_pyg()[WRITES].edge_time.tolist() == [-3, 5, 7, 9]
    told = cohort("dataset", "info", graph.path)
    assert "times -3 to 9" in told.stdout
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


def test_what_does_not_fit_is_refused(events, tmp_path):
    def loader_of(data, **options):
        return NeighborLoader(data, [2], ("paper", [1, 2]), device="cpu", **options)

    with pytest.raises(CohortError, match=r"input_time: expected integers \[2\], .*, found None"):
        loader_of(events, time_attr="time")
    lists = {("paper", "cites", "paper"): [[0], [1], [0]]}
    plain = write(tmp_path / "plain", {"paper": 3}, {"paper": 2}, lists)
    with pytest.raises(CohortError, match="time_attr: expected a data set with edge times, found .*plain without"):
        loader_of(plain, time_attr="time", input_time=[1, 2])
    with pytest.raises(CohortError, match="disjoint: expected False, for draws by weight_attr"):
        loader_of(events, disjoint=True, weight_attr="edge_weight")
    with pytest.raises(CohortError, match="every node once"):
        NeighborLoader(events, [2], ("paper", [1, 1]), device="cpu")


@pytest.mark.gpu
@pytest.mark.parametrize("strategy", [None, *STRATEGIES])
@pytest.mark.parametrize(
    "places", [{"topology": "gpu"}, {"topology": "host", "cache_ratio": 0.5}, {"reuse": True}], ids=str
)
def test_a_gpu_makes_the_same_batches(events, strategy, places):
    seeds, times = np.arange(400) % 200, np.arange(400) % 90
    how = {"shuffle": True, "batch_size": 64, "edge_ids": True} | arguments(strategy, times)
    for fanout in ([10, 5], [40, 3, 2], [-1, -1]):
        with (
            NeighborLoader(events, fanout, ("paper", seeds), device="cpu", **how) as on_cpu,
            NeighborLoader(events, fanout, ("paper", seeds), device="cuda", **how | places) as on_gpu,
        ):
            for _ in range(2):
                expect_same_passes(on_gpu, on_cpu)


@pytest.mark.gpu
@pytest.mark.parametrize("relation", [WRITES, REV_WRITES, ("paper", "cites", "paper")], ids=" ".join)
@pytest.mark.parametrize("negatives", NEGATIVES, ids=str)
@pytest.mark.parametrize("strategy", [None, *STRATEGIES])
def test_a_gpu_makes_the_same_batches_of_pairs(events, relation, negatives, strategy):
    (on_cpu, _), (on_gpu, _) = (
        links_of(events, relation, negatives, strategy, device, "reverse") for device in ("cpu", "cuda")
    )
    with on_cpu, on_gpu:
        expect_same_passes(on_gpu, on_cpu)
