"""LinkNeighborLoader over graphs of several types: equal to a slow sampler in Python, and to PyG's meaning."""

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from batches import expect_same
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from link_oracle import neg_sampling_of, weighted_ends, weights_of, with_negatives
from processes import ALL_TESTS
from torch_geometric.data import HeteroData
from torch_geometric.sampler import NegativeSampling
from typed_oracle import random_64, sample
from typed_sets import schemas, write

from cohort_gnn import CohortError, LinkNeighborLoader
from cohort_gnn.dataset import open as open_dataset

pytestmark = pytest.mark.usefixtures("shm")
EXAMPLES = 150 if ALL_TESTS else 20
BUYS, REV_BUYS = ("user", "buys", "item"), ("item", "rev_buys", "user")
VIEWS, LIKE = ("user", "views", "item"), ("item", "like", "item")


def reversed_lists(lists: list[list[int]], num_sources: int) -> list[list[int]]:
    found: list[list[int]] = [[] for _ in range(num_sources)]
    for target, sources in enumerate(lists):
        for source in sources:
            found[source].append(target)
    return found


@st.composite
def questions(draw):
    mode = draw(st.sampled_from(["none", "binary", "triplet", "in_batch"]))
    amounts = {"none": st.just(0), "binary": st.sampled_from([0.5, 1, 2.25])}
    redraws = draw(st.sampled_from([0, 8])) if mode != "none" else 0
    exclude = draw(st.sampled_from(["none", "self", "reverse"]))
    weighted = weighted_ends(draw, mode)
    return {
        "mode": mode,
        "amount": draw(amounts.get(mode, st.integers(1, 3))),
        "redraws": redraws,
        "exclude": exclude,
        "weighted": weighted,
    }


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(schemas(), questions(), st.booleans(), st.booleans(), st.data())
def test_batches_are_those_of_a_slow_sampler(tmp_path_factory, schema, how, has_reverse, is_backward, data):
    """Pairs of a relation, or of the one that is marked as its reverse."""
    counts, dims, lists, fanouts = schema
    relation = data.draw(st.sampled_from(list(lists)))
    reverse = (relation[2], "reverse", relation[0])
    if has_reverse:
        lists = lists | {reverse: reversed_lists(lists[relation], counts[relation[0]])}
        fanouts = fanouts | {reverse: fanouts[relation]}
    folder = write(
        tmp_path_factory.mktemp("typed") / "set", counts, dims, lists, {reverse: relation} if has_reverse else {}
    )
    if has_reverse and is_backward:
        relation = reverse
    random = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    edges = [(source, target) for target, each in enumerate(lists[relation]) for source in each]
    of_graph = [edges[i] for i in random.integers(len(edges), size=10)] if edges else []
    others = random.integers([counts[relation[0]], counts[relation[2]]], size=(5, 2)).tolist()
    pairs = np.array([*of_graph, *others])
    weights = {name: weights_of(random, counts[relation[0 if name == "src_weight" else 2]]) for name in how["weighted"]}
    how = how | weights
    options = {"neg_sampling": neg_sampling_of(how, weights)}
    options |= {"reject_edges": how["redraws"] > 0, "exclude": how["exclude"], "edge_ids": True}
    graph = open_dataset(folder)
    with LinkNeighborLoader(
        graph, fanouts, (relation, pairs.T), batch_size=7, seed=5, device="cpu", **options
    ) as loader:
        for step, batch in enumerate(loader):
            of_batch = [tuple(pair) for pair in pairs[7 * step : 7 * step + 7].tolist()]
            expect_oracle(graph, batch, relation, of_batch, how, fanouts, (5, 0, step))
            assert batch[relation].input_id.tolist() == list(range(7 * step, 7 * step + len(of_batch)))
    assert step == (len(pairs) - 1) // 7


def same_edges(graph, relation) -> set[tuple[tuple, bool]]:
    """The relations that have the edges of a relation, and whether in the other direction: those that are marked, and
    those whose edges say so."""
    of = {name: sorted(map(tuple, edges.edge_index().T.tolist())) for name, edges in graph.edge_types.items()}

    def is_reverse(a, b) -> bool:
        if graph.edge_types[a].reverse_of == b or graph.edge_types[b].reverse_of == a:
            return True
        return (a[0], a[2]) == (b[2], b[0]) and of[a] != [] and of[a] == sorted(pair[::-1] for pair in of[b])

    found, ahead = set(), [(relation, False)]
    while ahead:
        one = ahead.pop()
        if one not in found:
            found.add(one)
            ahead += [(other, not one[1]) for other in of if is_reverse(one[0], other)]
    if len({name for name, _ in found}) == 1 and relation[0] == relation[2]:
        found.add((relation, True))
    return found


def expect_oracle(graph, batch, relation, pairs, how, fanouts, key) -> None:
    counts, edges = {name: table.num_nodes for name, table in graph.node_types.items()}, graph.edge_types[relation]
    lists = [part.tolist() for part in np.split(edges.indices, edges.indptr[1:-1])]
    ends = with_negatives(lists, pairs, how, random_64(*key), counts[relation[0]])
    seeds: dict = {}
    for name, nodes in zip(relation[::2], ends, strict=True):
        seeds[name] = list(dict.fromkeys(seeds.get(name, []) + nodes))
    barred: dict = {relation: set(pairs)} if how["exclude"] != "none" else {}
    for name, is_reversed in same_edges(graph, relation) if how["exclude"] == "reverse" else ():
        barred[name] = barred.get(name, set()) | {pair[:: -1 if is_reversed else 1] for pair in pairs}
    nodes, drawn = sample(graph, fanouts, seeds, key, barred)
    for name, (n_id, per_hop) in nodes.items():
        assert batch[name].n_id.tolist() == n_id.tolist()
        assert batch[name].num_sampled_nodes == per_hop
    for name, (source, target, e_id, per_hop) in drawn.items():
        assert batch[name].edge_index.tolist() == [source.tolist(), target.tolist()]
        assert batch[name].e_id.tolist() == e_id.tolist()
        assert batch[name].num_sampled_edges == per_hop
        found = edges_of(batch, name)
        assert not found & barred.get(name, set())
    assert "batch_size" not in batch[relation[0]] and "batch_size" not in batch[relation]
    local = [[seeds[name].index(node) for node in of_end] for name, of_end in zip(relation[::2], ends, strict=True)]
    if how["mode"] not in ("triplet", "in_batch"):
        assert batch[relation].edge_label_index.tolist() == local
        return
    assert batch[relation[0]].src_index.tolist() == local[0]
    negatives = batch[relation[2]].dst_neg_index.flatten().tolist()
    assert batch[relation[2]].dst_pos_index.tolist() + negatives == local[1]


def edges_of(batch: HeteroData, name: tuple[str, str, str]) -> set[tuple[int, int]]:
    """(source, target) ids."""
    source, target = batch[name].edge_index
    return set(zip(batch[name[0]].n_id[source].tolist(), batch[name[2]].n_id[target].tolist(), strict=True))


@pytest.fixture(scope="module")
def shop(tmp_path_factory) -> Path:
    """Users, who buy and view items (buying has its reverse), and items that are alike."""
    random = np.random.default_rng(4)
    counts = {"user": 120, "item": 60}
    buys = [random.permutation(120)[: random.integers(1, 9)].tolist() for _ in range(60)]
    lists = {BUYS: buys, REV_BUYS: reversed_lists(buys, 120)}
    lists |= {VIEWS: [sources[:1] for sources in buys], LIKE: [random.integers(60, size=4).tolist() for _ in range(60)]}
    return write(tmp_path_factory.mktemp("shop") / "set", counts, {"user": 0, "item": 5}, lists, {REV_BUYS: BUYS})


def loader_of(shop, given, fanout=(4, 3), **options) -> LinkNeighborLoader:
    return LinkNeighborLoader(shop, list(fanout), given, **{"batch_size": 40, "device": "cpu"} | options)


def test_every_edge_of_a_relation_is_a_pair(shop):
    graph = open_dataset(shop)
    expected = graph.edge_types[BUYS].edge_index()
    places = np.array([3, 0, 3, graph.edge_types[BUYS].num_edges - 1])
    with loader_of(shop, BUYS, shuffle=True) as loader, loader.with_edges((BUYS, places)) as some:
        for batch in loader:
            local, of_loader = batch[BUYS].edge_label_index, batch[BUYS].input_id
            found = torch.stack([batch["user"].n_id[local[0]], batch["item"].n_id[local[1]]])
            np.testing.assert_array_equal(found.numpy(), expected[:, of_loader.numpy()])
            assert "edge_label" not in batch[BUYS]
        batch = next(iter(some))
        found = batch["user"].n_id[batch[BUYS].edge_label_index[0]]
        np.testing.assert_array_equal(found.numpy(), expected[0, places])


@pytest.mark.parametrize("exclude", ["none", "self", "reverse"])
def test_only_the_pairs_own_relations_lose_edges(shop, exclude):
    """All neighbours of all endpoints: what a relation lacks is what it was to lack."""
    graph = open_dataset(shop)
    whole = {name: set(map(tuple, edges.edge_index().T.tolist())) for name, edges in graph.edge_types.items()}
    with loader_of(shop, BUYS, (-1,), exclude=exclude) as loader:
        for batch in loader:
            ends = batch[BUYS].edge_label_index
            pairs = set(zip(batch["user"].n_id[ends[0]].tolist(), batch["item"].n_id[ends[1]].tolist(), strict=True))
            gone = {BUYS: pairs if exclude != "none" else set(), VIEWS: set(), LIKE: set()}
            gone[REV_BUYS] = {pair[::-1] for pair in pairs} if exclude == "reverse" else set()
            for name, edges in whole.items():
                seeds = set(batch[name[2]].n_id[: batch[name[2]].num_sampled_nodes[0]].tolist())
                assert edges_of(batch, name) == {edge for edge in edges if edge[1] in seeds} - gone[name]


def test_labels_and_negatives_of_both_types(shop):
    labels = torch.arange(60) % 3
    pairs = torch.stack([torch.arange(60) * 2, torch.arange(60)])
    with loader_of(shop, (BUYS, pairs), edge_label=labels, neg_sampling="binary", reject_edges=True) as loader:
        edges = set(map(tuple, open_dataset(shop).edge_types[BUYS].edge_index().T.tolist()))
        users = []
        for batch in loader:
            count, local = len(batch[BUYS].input_id), batch[BUYS].edge_label_index
            assert batch[BUYS].edge_label.tolist() == (labels[batch[BUYS].input_id] + 1).tolist() + [0] * count
            drawn = torch.stack([batch["user"].n_id[local[0]], batch["item"].n_id[local[1]]])[:, count:]
            assert not edges & set(map(tuple, drawn.T.tolist()))
            users += drawn[0].tolist()
        assert max(users) >= 60  # more than there are items
        node_batch = next(iter(loader.with_nodes(("item", [5, 2]))))
        assert node_batch["item"].n_id[:2].tolist() == [5, 2] and node_batch["item"].batch_size == 2


def test_a_state_goes_on_and_knows_its_relation(shop):
    how = {"neg_sampling": "binary", "shuffle": True, "seed": 3}
    with loader_of(shop, BUYS, **how) as loader, loader_of(shop, BUYS, **how) as again:
        batches = iter(loader)
        next(batches)
        again.load_state_dict(loader.state_dict())
        expect_same(next(iter(again)), next(batches))
        with pytest.raises(CohortError, match="load_state_dict"):
            loader.with_edges(VIEWS, shuffle=True, neg_sampling="binary").load_state_dict(loader.state_dict())


@pytest.mark.gpu
@pytest.mark.parametrize("places", [{}, {"topology": "host", "cache_ratio": 0.3}], ids=["in the GPU", "host and cache"])
def test_a_gpu_makes_the_same_batches(shop, places):
    same = {"seed": 3, "edge_ids": True, "shuffle": True}
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


def test_refusals(shop):
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
