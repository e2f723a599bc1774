"""LinkNeighborLoader, over graphs of one type and of several: equal to a slow sampler in Python, and to PyG's meaning;
what it refuses."""

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
from processes import ALL_TESTS
from sets import schemas, write
from slow_pairs import expect_pairs, ids_of, neg_sampling_of, weighted_ends, weights_of
from torch_geometric.sampler import NegativeSampling

from cohort_gnn import CohortError, LinkNeighborLoader
from cohort_gnn.dataset import from_tensors
from cohort_gnn.dataset import open as open_dataset
from cohort_gnn.spec.graph import EDGE_TYPE

pytestmark = pytest.mark.usefixtures("shm")
EXAMPLES = 300 if ALL_TESTS else 30
BUYS, REV_BUYS = ("user", "buys", "item"), ("item", "rev_buys", "user")
VIEWS, LIKE = ("user", "views", "item"), ("item", "like", "item")
ONE_OR_SEVERAL = pytest.mark.parametrize("relation", [EDGE_TYPE, BUYS], ids=["one type", "several types"])


@pytest.fixture(scope="module")
def graph(cora):
    return open_dataset(cora)


def reversed_lists(lists: list[list[int]], num_sources: int) -> list[list[int]]:
    found: list[list[int]] = [[] for _ in range(num_sources)]
    for target, sources in enumerate(lists):
        for source in sources:
            found[source].append(target)
    return found


@pytest.fixture(scope="module")
def shop(tmp_path_factory) -> Path:
    """Users, who buy and view items (buying has its reverse), and items that are alike."""
    random = np.random.default_rng(4)
    counts = {"user": 120, "item": 60}
    buys = [random.permutation(120)[: random.integers(1, 9)].tolist() for _ in range(60)]
    lists = {BUYS: buys, REV_BUYS: reversed_lists(buys, 120)}
    lists |= {VIEWS: [sources[:1] for sources in buys], LIKE: [random.integers(60, size=4).tolist() for _ in range(60)]}
    return write(tmp_path_factory.mktemp("shop") / "set", counts, {"user": 0, "item": 5}, lists, {REV_BUYS: BUYS})


def loader_of(data, pairs=None, fanout=(5, 5), **options) -> LinkNeighborLoader:
    return LinkNeighborLoader(data, list(fanout), pairs, **{"batch_size": 50, "device": "cpu"} | options)


@st.composite
def questions(draw):
    mode = draw(st.sampled_from(["none", "binary", "triplet", "in_batch"]))
    amounts = {"none": st.just(0), "binary": st.sampled_from([0.5, 1, 2.25])}
    return {
        "mode": mode,
        "amount": draw(amounts.get(mode, st.integers(1, 3))),
        "redraws": draw(st.sampled_from([0, 8])) if mode != "none" else 0,
        "exclude": draw(st.sampled_from(["none", "self", "reverse"])),
        "weighted": weighted_ends(draw, mode),
    }


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(schemas(), questions(), st.booleans(), st.booleans(), st.data())
def test_batches_are_those_of_a_slow_sampler(tmp_path_factory, schema, how, has_reverse, is_backward, data):
    """Pairs of a relation, or of the one that is marked as its reverse."""
    counts, dims, lists, fanouts = schema
    drawn = data.draw(st.sampled_from([{"replace": False}, {"replace": True}, {"dependency": 1}, {"dependency": 3}]))
    if "dependency" in drawn:  # by layers: parallel edges side by side
        lists = {name: [sorted(each) for each in of_name] for name, of_name in lists.items()}
        drawn |= {name: data.draw(st.booleans()) for name in ("layer_dependency", "importance_sampling")}
    relation = data.draw(st.sampled_from(list(lists)))
    reverse = (relation[2], "reverse", relation[0])
    if has_reverse:
        lists = lists | {reverse: reversed_lists(lists[relation], counts[relation[0]])}
        fanouts = fanouts | {reverse: fanouts[relation]}
    marked = {reverse: relation} if has_reverse else {}
    folder = write(tmp_path_factory.mktemp("links") / "set", counts, dims, lists, marked)
    relation = reverse if has_reverse and is_backward else relation
    random = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    edges = [(source, target) for target, each in enumerate(lists[relation]) for source in each]
    of_graph = [edges[i] for i in random.integers(len(edges), size=10)] if edges else []
    others = random.integers([counts[relation[0]], counts[relation[2]]], size=(5, 2)).tolist()
    pairs = np.array([*of_graph, *others])
    weights = {name: weights_of(random, counts[relation[0 if name == "src_weight" else 2]]) for name in how["weighted"]}
    how = how | weights
    options = {"neg_sampling": neg_sampling_of(how, weights)}
    options |= {"reject_edges": how["redraws"] > 0, "exclude": how["exclude"], "edge_ids": True}
    renamed = {"dependency": "batch_dependency"}
    options |= {renamed.get(name, name): value for name, value in drawn.items()}
    options |= {"sampling": "labor"} if "dependency" in drawn else {}
    graph = open_dataset(folder)
    of_pairs = {"edge_label_index": (relation, pairs.T), "batch_size": 7, "device": "cpu"}
    with LinkNeighborLoader(graph, fanouts, seed=5, **of_pairs, **options) as loader:
        for step, batch in enumerate(loader):
            of_batch = [tuple(pair) for pair in pairs[7 * step : 7 * step + 7].tolist()]
            expect_pairs(graph, batch, relation, of_batch, how, fanouts, (5, 0, step), **drawn)
            assert batch.store_of(relation).input_id.tolist() == list(range(7 * step, 7 * step + len(of_batch)))
    assert step == (len(pairs) - 1) // 7


@ONE_OR_SEVERAL
def test_every_edge_of_a_relation_is_a_pair(graph, shop, relation):
    data, every = (graph, None) if relation == EDGE_TYPE else (open_dataset(shop), relation)
    expected = data.edge_types[relation].edge_index()
    places = np.array([5, 0, expected.shape[1] - 1, 5])
    given = places if every is None else (relation, places)
    with loader_of(data, every, shuffle=True) as loader, loader.with_edges(given, shuffle=False) as some:
        assert len(loader) == -(-expected.shape[1] // 50)
        for each, pairs in ((loader, expected), (some, expected[:, places])):
            for batch in each:
                of_pairs = batch.store_of(relation)
                found = ids_of(batch, relation, of_pairs.edge_label_index)
                np.testing.assert_array_equal(found.numpy(), pairs[:, of_pairs.input_id.numpy()])
                assert "edge_label" not in of_pairs


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
        with pytest.raises(CohortError, match="edge_label: expected labels that can be raised by 1, found 255 in"):
            loader.with_edges(pairs, torch.arange(120).clamp(max=1).to(torch.uint8) * 255, neg_sampling="binary")
        triplet = next(iter(loader.with_edges(pairs, neg_sampling="triplet")))
        assert triplet.dst_neg_index.shape == triplet.src_index.shape
        nodes = next(iter(loader.with_nodes([7, 5])))
        assert nodes.batch_size == 2 and nodes.n_id[:2].tolist() == [7, 5]
        assert "LinkNeighborLoader" in repr(loader) and "pairs" in repr(loader)
    with loader_of(graph, pairs=pairs, neg_sampling_ratio=2.0) as loader:
        assert next(iter(loader)).edge_label_index.shape == (2, 150)


def test_negatives_are_uniform_and_no_edges(graph):
    pairs = torch.zeros(2, 4000, dtype=torch.int64)
    with loader_of(graph, pairs, (1,), batch_size=400, neg_sampling="binary", reject_edges=True) as loader:
        drawn = torch.cat([batch.n_id[batch.edge_label_index][:, 400:] for batch in loader], dim=1)
    assert drawn.shape == (2, 4000)
    edges = set(map(tuple, graph.edge_types[EDGE_TYPE].edge_index().T.tolist()))
    assert not edges & set(map(tuple, drawn.T.tolist()))
    for ends in drawn:
        counts = np.bincount(ends.numpy() * 20 // graph.num_nodes, minlength=20)
        expected = np.diff(np.ceil(np.arange(21) * graph.num_nodes / 20)) / graph.num_nodes * 4000
        assert ((counts - expected) ** 2 / expected).sum() < 43.8  # chi-square of 19 degrees of freedom, p = 0.001


def test_a_full_graph_has_no_negatives_left_and_says_nothing(tmp_path):
    edges = torch.cartesian_prod(torch.arange(3), torch.arange(3)).T
    folder = from_tensors(tmp_path / "full", x=torch.ones(3, 1), edge_index=edges)
    with loader_of(folder, np.zeros((2, 4), int), (1,), neg_sampling="binary", reject_edges=True) as loader:
        assert next(iter(loader)).edge_label_index.shape == (2, 8)


def test_picks_are_uniform_over_what_is_allowed(tmp_path):
    """Node 0 has 6 in-neighbours; 2 and, as a reverse edge, 4 are excluded."""
    star = torch.stack([torch.arange(1, 7), torch.zeros(6, dtype=torch.int64)])
    folder = from_tensors(tmp_path / "star", x=torch.ones(7, 1), edge_index=star)
    pairs = np.array([[2, 0]] * 3000).T
    pairs[:, 1::2] = [[0], [4]]
    counts = np.zeros(7, int)
    with loader_of(folder, pairs, (2,), batch_size=2, edge_ids=True) as loader:
        for batch in loader:
            assert batch.num_sampled_edges == [2]
            counts[batch.n_id[batch.edge_index[0]].numpy()] += 1
    assert counts[[0, 2, 4]].tolist() == [0, 0, 0]
    expected = 1500 * 2 / 4
    assert ((counts[[1, 3, 5, 6]] - expected) ** 2 / expected).sum() < 16.3  # 3 degrees of freedom, p = 0.001


TRIPLET = NegativeSampling("triplet", 5)
BY_WEIGHT, BY_OTHERS = (NegativeSampling("binary", 2, dst_weight=torch.arange(2708) % count) for count in (50, 40))


@pytest.mark.parametrize(
    ("relation", "negatives", "others"),
    [
        (EDGE_TYPE, "binary", [{"edge_label_index": None, "exclude": "none"}]),
        (EDGE_TYPE, {"mode": "in_batch", "amount": 5}, [{"edge_label_index": None, "neg_sampling": TRIPLET}]),
        (EDGE_TYPE, BY_WEIGHT, [{"edge_label_index": None, "neg_sampling": each} for each in ("binary", BY_OTHERS)]),
        (BUYS, "binary", [{"edge_label_index": VIEWS, "neg_sampling": "binary"}]),
    ],
    ids=["one type", "in batch", "by weight", "several types"],
)
def test_a_state_goes_on_and_knows_its_pairs(graph, shop, relation, negatives, others):
    data, every = (graph, None) if relation == EDGE_TYPE else (shop, relation)
    how = {"neg_sampling": negatives, "shuffle": True, "seed": 3, "reject_edges": True}
    with loader_of(data, every, **how) as loader, loader_of(data, every, **how) as again:
        batches = iter(loader)
        next(batches)
        again.load_state_dict(loader.state_dict())
        second = next(batches)
        for same in (next(iter(again)), copy.deepcopy(second), pickle.loads(pickle.dumps(second))):
            expect_same(same, second)
        for other in others:
            with pytest.raises(CohortError, match=f"load_state_dict: {'pairs' if every is None else ''}"):
                loader.with_edges(**other, shuffle=True).load_state_dict(loader.state_dict())


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


@pytest.mark.gpu
@pytest.mark.parametrize("places", [{}, {"topology": "host", "cache_ratio": 0.3}], ids=["in the GPU", "host and cache"])
def test_a_gpu_makes_the_same_batches_of_several_types(shop, places):
    same = {"seed": 3, "edge_ids": True, "shuffle": True, "batch_size": 40}
    triplet = NegativeSampling("triplet", 2)
    with loader_of(shop, BUYS, **same) as on_cpu, loader_of(shop, BUYS, **same | places | {"device": "cuda"}) as on_gpu:
        for name, fanout, negatives in itertools.product(
            (BUYS, REV_BUYS, LIKE), [(-1, 3), (2, 1)], [None, "binary", triplet]
        ):
            how = {"num_neighbors": list(fanout), "neg_sampling": negatives, "reject_edges": negatives is not None}
            cpu, gpu = on_cpu.with_edges(name, **how), on_gpu.with_edges(name, **how)
            for expected, found in zip(cpu, gpu, strict=True):
                assert found["item"].x.is_cuda
                expect_same(found, expected)


def refuse(place: str, data, **options) -> CohortError:
    with pytest.raises(CohortError, match=place) as caught:
        loader_of(data, **options)
    return caught.value


def test_refusals(graph):
    pairs = torch.zeros(2, 5, dtype=torch.int64)
    assert ".t()" in str(refuse("edge_label_index", graph, pairs=pairs.t()))
    refuse("edge_label_index", graph, pairs=pairs.float())
    refuse("node ids in", graph, pairs=pairs + graph.num_nodes)
    refuse("edges in", graph, pairs=[-1])
    refuse("edge_label", graph, pairs=pairs, edge_label=torch.zeros(4))
    refuse("edge_label", graph, pairs=pairs, edge_label=["a"] * 5)
    refuse("edge_label", graph, pairs=pairs, edge_label=torch.zeros(5), neg_sampling="triplet")
    refuse("neg_sampling", graph, pairs=pairs, neg_sampling="hard")
    refuse("neg_sampling", graph, pairs=pairs, neg_sampling={"mode": "triplet", "amount": 0.5})
    refuse("amount", graph, pairs=pairs, neg_sampling={"mode": "binary", "amount": 1e9})
    refuse("neg_sampling_ratio", graph, pairs=pairs, neg_sampling="binary", neg_sampling_ratio=1.0)
    refuse("exclude", graph, pairs=pairs, exclude="all")
    refuse("edge_label_time", graph, pairs=pairs, edge_label_time=torch.zeros(5))
    with pytest.raises(TypeError, match=r"LinkNeighborLoader\(\) got an unexpected"):
        loader_of(graph, pairs=pairs, negatives=3)


def test_pairs_that_are_none_of_a_relation_are_refused(shop):
    pairs = torch.zeros(2, 5, dtype=torch.int64)
    for pairs_of, found in (
        (pairs, "an edge type"),
        (None, "an edge type"),
        (("user", "rents", "item"), "rents"),
        ((BUYS, pairs + 60), r"\[0, 60\)"),
        ((REV_BUYS, pairs + 60), r"\[0, 60\)"),
        ((BUYS, [10_000]), "edges in"),
    ):
        with pytest.raises(CohortError, match=found):
            loader_of(shop, pairs_of)
