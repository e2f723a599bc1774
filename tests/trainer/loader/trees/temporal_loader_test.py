"""Disjoint and temporal batches: PyG's rules edge by edge, uniform draws, resume, ranks; what is refused."""

import copy
import itertools
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from batches import expect_same, expect_same_passes
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from processes import ALL_TESTS, two_ranks
from torch_geometric.data import Data, HeteroData
from torch_geometric.sampler import NegativeSampling
from tree_oracle import allowed_edges, expect_sound, subgraph_of

from cohort_gnn import CohortError, LinkNeighborLoader, NeighborLoader
from cohort_gnn.dataset import from_pyg, from_tensors
from cohort_gnn.dataset import open as open_dataset
from cohort_gnn.trainer.bench.digest import digest

pytestmark = pytest.mark.usefixtures("shm")
EXAMPLES = 150 if ALL_TESTS else 25
STRATEGIES = ["uniform", "last"]


def write(folder: Path, num_nodes: int, num_edges: int, seed: int, times=(-5, 20)) -> Path:
    """A random graph whose first node is a hub; row i of the features holds i, nodes have classes i mod 3."""
    rng = np.random.default_rng(seed)
    ends = rng.integers(num_nodes, size=(2, num_edges))
    ends[1, : num_edges // 4] = 0
    x = np.repeat(np.arange(num_nodes, dtype=np.float32)[:, None], 3, axis=1)
    time = rng.integers(*times, size=num_edges)
    return from_tensors(folder, x=x, y=np.arange(num_nodes) % 3, edge_index=ends, edge_time=time)


@pytest.fixture(scope="module")
def events(tmp_path_factory):
    """500 nodes, 8000 edges."""
    return open_dataset(write(tmp_path_factory.mktemp("events") / "set", 500, 8000, seed=3))


def loader_of(data, fanout, nodes=None, **options) -> NeighborLoader:
    return NeighborLoader(data, list(fanout), nodes, **{"device": "cpu", "edge_ids": True, "batch_size": 20} | options)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.integers(1, 40),
    st.integers(0, 300),
    st.lists(st.integers(-1, 40), min_size=1, max_size=3),
    st.sampled_from([None, *STRATEGIES]),
    st.integers(0, 2**32),
)
def test_batches_follow_the_rules(tmp_path_factory, num_nodes, num_edges, fanout, strategy, seed):
    graph = open_dataset(write(tmp_path_factory.mktemp("trees") / "set", num_nodes, num_edges, seed))
    rng = np.random.default_rng(seed)
    seeds = rng.integers(num_nodes, size=rng.integers(1, 30))  # which repeat
    times = None if strategy is None else rng.integers(-8, 22, len(seeds))
    how = {"disjoint": True} if strategy is None else {"time_attr": "edge_time", "temporal_strategy": strategy}
    how |= {"input_time": times, "batch_size": int(rng.integers(1, 15)), "shuffle": True, "seed": seed}
    with loader_of(graph, fanout, seeds, **how) as loader:
        for batch in (batch for _ in range(3) for batch in loader):
            of_batch = batch.input_id.tolist()
            of_seeds = None if times is None else times[of_batch].tolist()
            assert of_seeds == (batch.seed_time.tolist() if "seed_time" in batch else None)
            expect_sound(graph, batch, fanout, seeds[of_batch].tolist(), of_seeds, strategy == "last")


@pytest.mark.parametrize("time_attr", [None, "time"])
def test_all_neighbours_are_the_whole_temporal_subgraph(events, time_attr):
    seeds = torch.randint(500, (60,), generator=torch.Generator().manual_seed(1))
    times = None if time_attr is None else torch.arange(60) - 20
    with loader_of(events, [-1, -1], seeds, time_attr=time_attr, input_time=times, disjoint=True) as loader:
        for batch in loader:
            found: list[set[int]] = [set() for _ in range(batch.batch_size)]
            for tree, edge in zip(batch.batch[batch.edge_index[1]].tolist(), batch.e_id.tolist(), strict=True):
                assert edge not in found[tree]
                found[tree].add(edge)
            for tree, position in enumerate(batch.input_id.tolist()):
                time = None if times is None else int(times[position])
                assert found[tree] == subgraph_of(events, int(seeds[position]), time, 2)


def test_uniform_draws_are_uniform_over_the_allowed_edges(events):
    may = allowed_edges(events, 0, 2)
    drawn = np.zeros(events.num_edges)
    seeds, rounds = np.zeros(400, np.int64), 10
    with loader_of(events, [7], seeds, time_attr="t", input_time=np.full(400, 2), batch_size=100) as loader:
        for batch in (batch for _ in range(rounds) for batch in loader):
            np.add.at(drawn, batch.e_id.numpy(), 1)
    assert 100 < len(may) < events.indptr[1] and drawn.sum() == drawn[may].sum() == 7 * 400 * rounds
    from scipy.stats import chisquare  # takes 1 s to import

    assert chisquare(drawn[may]).pvalue > 1e-6


def test_a_tree_whose_edges_are_all_allowed_is_drawn_as_without_trees(events):
    node = int(events.indices[0])
    with loader_of(events, [5, 5], [node], batch_size=1) as shared:
        one = next(iter(shared))
    for how in ({"disjoint": True}, {"time_attr": "time", "input_time": [10**9]}):
        with loader_of(events, [5, 5], [node], batch_size=1, **how) as loader:
            batch = next(iter(loader))
        assert batch.batch.tolist() == [0] * len(batch.n_id)
        del batch.batch
        if "time_attr" in how:
            del batch.seed_time
        expect_same(batch, one)


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
        expect_sound(events, next(iter(evaluation)), [-1], [3, 3, 4], [0, 5, 9], strategy == "last")


TAKE_TURNS = """
import json, sys
import numpy as np
import torch.distributed as dist
from cohort_gnn import NeighborLoader
from cohort_gnn.trainer.bench.digest import digest

data, out, device = sys.argv[1:]
dist.init_process_group("gloo")
how = {"time_attr": "time", "input_time": np.arange(500) % 20, "seed": 1, "shuffle": True, "device": device}
with NeighborLoader(data, [4, 4], batch_size=100, edge_ids=True, **how) as loader:
    got = [digest(batch) for batch in loader]
with open(f"{out}/{dist.get_rank()}.json", "w") as file:
    json.dump(got, file)
dist.destroy_process_group()
"""


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_ranks_have_the_batches_of_one(events, tmp_path, device):
    two_ranks(device)
    (tmp_path / "script.py").write_text(TAKE_TURNS)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += map(str, (tmp_path / "script.py", events.path, tmp_path, device))
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    how = {"time_attr": "time", "input_time": np.arange(500) % 20, "seed": 1, "shuffle": True, "batch_size": 100}
    with loader_of(events, [4, 4], **how) as loader:
        expected = [digest(batch) for batch in loader]
    ranks = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    assert (ranks[0], ranks[1][:2]) == (expected[0::2], expected[1::2])


@pytest.mark.parametrize("of_nodes", [True, False])
def test_a_data_in_memory_has_times_of_nodes_or_edges(of_nodes):
    rng = torch.Generator().manual_seed(2)
    edge_index = torch.randint(30, (2, 200), generator=rng)
    times = torch.randint(100, (30 if of_nodes else 200,), generator=rng)
    data = Data(x=torch.arange(30.0)[:, None], y=torch.arange(30) % 3, edge_index=edge_index, when=times)
    times_of_edges = times[edge_index[0]] if of_nodes else times
    with loader_of(data, [-1, -1], torch.arange(30), time_attr="when", input_time=torch.full((30,), 50)) as loader:
        for batch in loader:
            assert torch.equal(batch.when, times[batch.n_id if of_nodes else batch.e_id])
            assert (batch.when[batch.batch_size if of_nodes else 0 :] <= 50).all()
            count = ((edge_index[1] == batch.n_id[0]) & (times_of_edges <= 50)).sum()
            assert batch.indptr[1] == count


@pytest.mark.parametrize("typed", [False, True])
def test_seeds_have_the_times_of_their_nodes(typed):
    """As in PyG, where no other times are given."""
    rng = torch.Generator().manual_seed(3)
    edge_index, times = torch.randint(30, (2, 300), generator=rng), torch.randint(100, (30,), generator=rng)
    data = Data(x=torch.ones(30, 1), edge_index=edge_index, when=times)
    if typed:
        data = HeteroData({"a": {"x": torch.ones(30, 1), "when": times}, ("a", "to", "a"): {"edge_index": edge_index}})
    seeds, mask = torch.tensor([4, 2, 17, 25, 9]), times > 30
    with loader_of(data, [-1, -1], ("a", seeds) if typed else seeds, time_attr="when") as loader:
        for part, ids in ((loader, seeds), (loader.with_nodes(("a", mask) if typed else mask), mask.nonzero()[:, 0])):
            found = []
            for batch in part:
                store = batch["a"] if typed else batch
                found += store.seed_time.tolist()
                assert (store.when <= store.seed_time[store.batch]).all()
            assert found == times[ids].tolist()
        (batch,) = loader.with_nodes(("a", [3]) if typed else [3], input_time=[7])
        assert (batch["a"] if typed else batch).seed_time.tolist() == [7]


def test_times_of_nodes_and_edges_are_refused():
    data = HeteroData({"a": {"x": torch.ones(3, 1), "t": torch.arange(3)}, "b": {"x": torch.ones(3, 1)}})
    for ends in (("a", "b"), ("b", "a")):
        data[ends[0], "to", ends[1]].edge_index = torch.tensor([[0, 1], [1, 2]])
    data["a", "to", "b"].t = torch.arange(2)
    with pytest.raises(CohortError, match="time_attr: expected 't' of nodes or of edges, found of both: a, "):
        loader_of(data, [2], "b", time_attr="t", input_time=[1, 2, 3])
    del data["a"].t
    with loader_of(data, [-1], "b", time_attr="t", input_time=[0, 0, 0]) as loader:
        assert sum(batch["a", "to", "b"].num_edges for batch in loader) == 1
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
    del data.edge_time
    data.time = torch.tensor([30, 20, 10])
    assert open_dataset(from_pyg(data, tmp_path / "nodes")).edge_times.tolist() == [10, 20, 30, 20]


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"time_attr": "time"}, r"input_time: expected integers \[3\], .*, found None"),
        ({"time_attr": "time", "input_time": [1, 2]}, r"input_time: .*\[3\].*, found shape \[2\]"),
        ({"time_attr": "time", "input_time": [1.5, 2, 3]}, "input_time: expected integers .*, found dtype float32"),
        ({"time_attr": "time", "input_time": "now"}, r"input_time: expected integers \[3\]"),
        ({"input_time": [1, 2, 3]}, "input_time: expected None without time_attr"),
        ({"temporal_strategy": "last"}, "temporal_strategy: expected 'uniform' without time_attr"),
        ({"time_attr": "time", "input_time": [1, 2, 3], "temporal_strategy": "first"}, "temporal_strategy: expected"),
        ({"time_attr": 3}, "time_attr: expected"),
        ({"disjoint": True, "cache_ratio": "auto", "trainer_bytes": 1}, "cache_ratio: expected a number"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(events, how, said):
    with pytest.raises(CohortError, match=said):
        loader_of(events, [2], [1, 2, 3], **how)


def test_what_has_no_times_or_trees_is_refused(events, cora):
    with pytest.raises(CohortError, match="time_attr: expected a data set with edge times, found .* without"):
        next(iter(loader_of(cora, [2], [1], time_attr="time", input_time=[1])))
    data = Data(x=torch.ones(3, 1), edge_index=torch.tensor([[0], [1]]))
    with pytest.raises(CohortError, match="time_attr: expected the name of a tensor of times, .*data.when, found none"):
        loader_of(data, [2], [1], time_attr="when", input_time=[1])
    pairs = {"edge_label_index": torch.ones(2, 3, dtype=torch.int64), "device": "cpu", "exclude": "none"}
    with pytest.raises(
        CohortError, match=r"edge_label_time: expected integers \[3\], the time of each pair, .* found None"
    ):
        LinkNeighborLoader(events, [2], time_attr="time", **pairs)
    with pytest.raises(CohortError, match="edge_label_time: expected None without time_attr"):
        LinkNeighborLoader(events, [2], edge_label_time=[1, 2, 3], **pairs)
    with pytest.raises(TypeError, match="input_time"):
        LinkNeighborLoader(events, [2], time_attr="time", input_time=[1, 2, 3], **pairs)
    with pytest.raises(CohortError, match="every node once"):
        loader_of(events, [2], [1, 1])


NUM_PAIRS = 300 if ALL_TESTS else 120
PAIRS = [None, *(NegativeSampling(mode, amount) for mode, amount in [("binary", 1.5), ("triplet", 1), ("triplet", 3)])]


def links_of(events, negatives, strategy, **options) -> tuple[LinkNeighborLoader, torch.Tensor, np.ndarray | None]:
    """A loader, its pairs [2, NUM_PAIRS], and their times."""
    rng = np.random.default_rng(4)
    pairs, times = rng.integers(500, size=(2, NUM_PAIRS)), rng.integers(-8, 22, NUM_PAIRS)
    of_graph = rng.integers(events.num_edges, size=NUM_PAIRS // 2)
    pairs[:, ::2] = events.indices[of_graph], np.searchsorted(events.indptr, of_graph, side="right") - 1
    pairs = torch.from_numpy(pairs)
    how: dict = {"disjoint": True} if strategy is None else {"time_attr": "time", "temporal_strategy": strategy}
    how |= {"edge_label_time": None if strategy is None else times, "neg_sampling": negatives, "exclude": "none"}
    how |= {"edge_ids": True, "batch_size": 40, "shuffle": True, "device": "cpu"} | options
    how = {"num_neighbors": [4, 3]} | how
    return LinkNeighborLoader(events, edge_label_index=pairs, **how), pairs, how["edge_label_time"]


EXCLUDED = ["none", "self", "reverse"]
# By day each two of the values are together once; by night all three are.
CASES = [
    (PAIRS[a], [None, *STRATEGIES][b], EXCLUDED[c])
    for a, b, c in itertools.product(range(len(PAIRS)), range(3), range(3))
    if ALL_TESTS or c == (a + b) % 3
]


@pytest.mark.parametrize(("negatives", "strategy", "exclude"), CASES, ids=str)
def test_each_end_of_a_pair_has_a_tree_at_the_time_of_the_pair(events, negatives, strategy, exclude):
    loader, pairs, times = links_of(events, negatives, strategy, exclude=exclude)
    with loader:
        for batch in loader:
            count = len(batch.input_id)
            if negatives is not None and negatives.is_triplet():
                ends = [batch.src_index, batch.dst_pos_index, batch.dst_neg_index.reshape(-1)]
                source, target = batch.src_index, batch.dst_pos_index
                negatives_of = torch.arange(count).repeat_interleave(int(negatives.amount))
                pair = torch.cat([torch.arange(count).repeat(2), negatives_of])
            else:
                ends, (source, target) = list(batch.edge_label_index), batch.edge_label_index[:, :count]
                pair = torch.arange(batch.edge_label_index.size(1)).remainder(count).repeat(2)
            assert torch.equal(batch.n_id[torch.stack([source, target])], pairs[:, batch.input_id])
            roots = torch.cat(ends)
            assert torch.equal(roots, torch.arange(len(roots))) and torch.equal(batch.batch[roots], pair)
            of_roots = None if times is None else times[batch.input_id][pair.numpy()].tolist()
            if of_roots is not None and batch.get("seed_time") is None:
                assert batch.edge_label_time.tolist() == of_roots[: len(of_roots) // 2]
            elif of_roots is not None:
                assert batch.seed_time.tolist() == of_roots[:count]
            assert len({"seed_time", "edge_label_time"} & set(batch.keys())) == (of_roots is not None)
            trees = torch.arange(len(batch.n_id))  # as the sampler numbers them: each node has that of its target
            for each, of in zip(*batch.edge_index.tolist(), strict=True):
                if each >= len(roots):
                    trees[each] = trees[of]
            assert torch.equal(batch.batch, pair[trees])
            batch.batch = trees
            out = set(map(tuple, pairs[:, batch.input_id].T.tolist())) if exclude != "none" else set()
            out |= {pair[::-1] for pair in out} if exclude == "reverse" else set()
            expect_sound(events, batch, [4, 3], batch.n_id[roots].tolist(), of_roots, strategy == "last", out)


def test_other_pairs_have_times_of_their_own(events):
    loader, _, _ = links_of(events, None, "last")
    with loader:
        other = loader.with_edges(torch.tensor([[1, 1], [2, 3]]), edge_label_time=[0, 9], exclude="none")
        (batch,) = other
        assert batch.batch[:4].tolist() == [0, 1, 0, 1]
        nodes = loader.with_nodes([5, 5], input_time=[3, 8])
        expect_sound(events, next(iter(nodes)), [4, 3], [5, 5], [3, 8], True)


@pytest.mark.gpu
@pytest.mark.parametrize("negatives", PAIRS)
@pytest.mark.parametrize("strategy", [None, *STRATEGIES])
@pytest.mark.parametrize("how", [{}, {"topology": "host", "cache_ratio": 0.5}, {"num_neighbors": [40, -1]}], ids=str)
def test_a_gpu_makes_the_same_batches_of_pairs(events, negatives, strategy, how):
    (on_cpu, *_), (on_gpu, *_) = (
        links_of(events, negatives, strategy, device=device, exclude="reverse", **how) for device in ("cpu", "cuda")
    )
    with on_cpu, on_gpu:
        expect_same_passes(on_gpu, on_cpu)


@pytest.mark.gpu
@pytest.mark.parametrize("strategy", [None, *STRATEGIES])
@pytest.mark.parametrize("places", [{"topology": "gpu"}, {"topology": "host", "cache_ratio": 0.5}, {"reuse": True}])
def test_a_gpu_makes_the_same_batches(events, strategy, places):
    seeds = np.arange(1000) % 500
    how: dict = {"disjoint": True} if strategy is None else {"time_attr": "time", "temporal_strategy": strategy}
    how |= {"shuffle": True, "batch_size": 150, "input_time": None if strategy is None else np.arange(1000) % 23 - 5}
    for fanout in ([10, 5], [40, 3, 2], [-1, -1]):
        with (
            loader_of(events, fanout, seeds, **how) as on_cpu,
            loader_of(events, fanout, seeds, **how | places | {"device": "cuda"}) as on_gpu,
        ):
            for _ in range(2):
                expect_same_passes(on_gpu, on_cpu)
