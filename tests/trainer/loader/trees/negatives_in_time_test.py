"""Negatives of temporal batches exist at the time of their pair."""

import itertools

import numpy as np
import pytest
import torch
from batches import expect_same_passes
from torch_geometric.data import Data, HeteroData
from torch_geometric.sampler import NegativeSampling

from cohort_gnn import CohortError, LinkNeighborLoader, from_pyg, from_tensors

pytestmark = pytest.mark.usefixtures("shm")
NODES, ITEMS = 60, 25
BUYS = ("user", "buys", "item")


def weights(size: int) -> torch.Tensor:
    """A third of them are 0."""
    return torch.arange(size) % 3


def negatives(mode: str, amount: float, weighted: bool):
    if mode == "in_batch":
        return {"mode": mode, "amount": int(amount)}
    of_ends = {"dst_weight": weights(NODES)} if weighted else {}
    of_ends |= {"src_weight": weights(NODES)} if weighted and mode == "binary" else {}
    return NegativeSampling(mode, amount, **of_ends)


HOW = [*itertools.product(["binary"], [1, 1.5, 3], [False, True])]
HOW += [*itertools.product(["triplet"], [1, 3], [False, True]), ("in_batch", 1, False), ("in_batch", 4, False)]


def events() -> Data:
    """Nodes of times 0 to 99, several of some times."""
    generator = torch.Generator().manual_seed(1)
    time = torch.randint(100, (NODES,), generator=generator)
    edge_index = torch.randint(NODES, (2, 400), generator=generator)
    return Data(x=torch.ones(NODES, 1), edge_index=edge_index, time=time)


def pairs_of(data, num: int = 150) -> tuple[torch.Tensor, torch.Tensor]:
    """Pairs, and times at which both nodes exist."""
    pairs = torch.randint(NODES, (2, num), generator=torch.Generator().manual_seed(2))
    return pairs, data.time[pairs].amax(0)


def loader_of(data, pairs, times, **options) -> LinkNeighborLoader:
    how = {"time_attr": "time", "edge_label_time": times, "batch_size": 16, "device": "cpu", "shuffle": True} | options
    return LinkNeighborLoader(data, [3], pairs, **how)


def drawn(batch) -> tuple[torch.Tensor, torch.Tensor]:
    """Nodes of negatives, and the latest time of each."""
    if "dst_neg_index" in batch:
        amount = batch.dst_neg_index.numel() // len(batch.input_id)
        return batch.n_id[batch.dst_neg_index.flatten()], batch.seed_time.repeat_interleave(amount)
    count = len(batch.input_id)
    times = batch.edge_label_time[count:].repeat(2)
    return batch.n_id[batch.edge_label_index[:, count:].flatten()], times


@pytest.mark.parametrize(("mode", "amount", "weighted"), HOW)
@pytest.mark.parametrize("reject_edges", [False, True])
def test_no_negative_is_from_the_future(mode, amount, weighted, reject_edges):
    data = events()
    pairs, times = pairs_of(data)
    how = {"neg_sampling": negatives(mode, amount, weighted), "reject_edges": reject_edges}
    seen = torch.zeros(NODES, dtype=torch.int64)
    with loader_of(data, pairs, times, **how) as loader:
        for _ in range(4):
            for batch in loader:
                nodes, latest = drawn(batch)
                assert len(nodes) > 0 and (data.time[nodes] <= latest).all()
                assert not weighted or (weights(NODES)[nodes] > 0).all()
                seen += torch.bincount(nodes, minlength=NODES)
    may = (data.time <= 50) & (weights(NODES) > 0 if weighted else torch.ones(NODES, dtype=torch.bool))
    assert mode == "in_batch" or seen[may].min() > 0, "every node that exists for many pairs is drawn"


def test_nodes_that_exist_are_equally_likely_or_by_weight():
    data = events()
    by_weight = NegativeSampling("triplet", 100, dst_weight=weights(NODES))
    for how in (NegativeSampling("triplet", 100), by_weight):
        with loader_of(data, torch.ones(2, 160, dtype=torch.int64), torch.full((160,), 50), neg_sampling=how) as loader:
            nodes = torch.cat([drawn(batch)[0] for batch in loader])
        expected = (data.time <= 50) * (weights(NODES) if how is by_weight else 1.0)
        found = torch.bincount(nodes, minlength=NODES) / len(nodes)
        assert (found - expected / expected.sum()).abs().max() < 0.012


def test_the_earliest_is_drawn_where_no_node_exists():
    data = events()
    data.time += 10
    data.time[[4, 9]] = 5
    pairs = torch.randint(NODES, (2, 40), generator=torch.Generator().manual_seed(5))
    for how, expected in (
        ("binary", {4, 9}),
        ("triplet", {4, 9}),
        ("in_batch", {4, 9}),
        (NegativeSampling("triplet", 1, dst_weight=(torch.arange(NODES) == 20)), {20}),
    ):
        with loader_of(data, pairs, torch.full((40,), 3), neg_sampling=how) as loader:
            assert {node for batch in loader for node in drawn(batch)[0].tolist()} == expected


def test_a_data_set_has_times_of_nodes_as_a_tensor(tmp_path):
    data = events()
    times = data.time[data.edge_index[0]]
    folder = from_tensors(tmp_path / "set", x=data.x, edge_index=data.edge_index, edge_time=times)
    pairs, of_pairs = pairs_of(data)
    with loader_of(folder, pairs, of_pairs, neg_sampling="triplet", node_tensors={"time": data.time}) as loader:
        other = loader.with_edges(pairs.flip(0), edge_label_time=of_pairs)
        for batch in itertools.chain(loader, other):
            nodes, latest = drawn(batch)
            assert (data.time[nodes] <= latest).all() and torch.equal(batch.time, data.time[batch.n_id])
    with pytest.raises(CohortError, match="node_tensors: time: "):
        loader_of(folder, pairs, of_pairs, neg_sampling="triplet", node_tensors={"time": torch.rand(NODES, 2)})


def test_a_data_set_that_has_times_of_nodes_needs_no_tensor(tmp_path):
    data = events()
    pairs, times = pairs_of(data)
    folder = from_pyg(data, tmp_path / "one")
    with loader_of(folder, pairs, times, neg_sampling="triplet") as stored:
        given = {"node_tensors": {"time": data.time}}
        with loader_of(folder, pairs, times, neg_sampling="triplet", **given) as told:
            expect_same_passes(stored, told)
        for batch in stored:
            nodes, latest = drawn(batch)
            assert (data.time[nodes] <= latest).all()


@pytest.mark.parametrize("on_disk", [False, True])
@pytest.mark.parametrize("mode", ["binary", "triplet", "in_batch"])
def test_several_node_types(mode, on_disk, tmp_path):
    """Only items have times: users are there at any time."""
    generator = torch.Generator().manual_seed(3)
    data = HeteroData()
    data["user"].x, data["item"].x = torch.ones(NODES, 1), torch.ones(ITEMS, 1)
    data["item"].time = torch.arange(ITEMS)
    buys = torch.stack([torch.randint(size, (200,), generator=generator) for size in (NODES, ITEMS)])
    data[BUYS].edge_index, data["item", "rev_buys", "user"].edge_index = buys, buys.flip(0)
    how = {"time_attr": "time", "edge_label_time": buys[1], "batch_size": 16, "device": "cpu", "neg_sampling": mode}
    graph = from_pyg(data, tmp_path / "set", target="item") if on_disk else data
    with LinkNeighborLoader(graph, [3, 2], (BUYS, buys), **how) as loader:
        for batch in loader:
            item, count = batch["item"], len(batch[BUYS].input_id)
            if mode == "binary":
                local, latest = batch[BUYS].edge_label_index[1, count:], batch[BUYS].edge_label_time[count:]
            else:
                local, latest = item.dst_neg_index, item.seed_time
            assert (data["item"].time[item.n_id[local]] <= latest).all()


def test_other_pairs_have_the_negatives_of_the_loader(tmp_path):
    data, pairs = events(), torch.tensor([[1, 2, 5], [3, 4, 6]])
    edges = data.edge_index[:, :100]
    how = {"neg_sampling": {"mode": "binary", "amount": 2}, "reject_edges": True, "exclude": "self", "device": "cpu"}
    with LinkNeighborLoader(data, [-1], edges, batch_size=100, **how) as loader:
        (batch,) = loader.with_edges(pairs)
        assert batch.edge_label.tolist() == [1, 1, 1, *[0] * 6]
        (given,) = loader.with_edges(edges)
        ends = set(map(tuple, given.n_id[given.edge_index].T.tolist()))
        assert not ends & set(map(tuple, edges.T.tolist())), "excluded"
        (back,) = loader.with_edges(edges.flip(0), exclude="none", neg_sampling=None)
        ends = set(map(tuple, back.n_id[back.edge_index].T.tolist()))
        assert ends >= set(map(tuple, edges.T.tolist())) and "edge_label" not in back
        (triplets,) = loader.with_edges(pairs, neg_sampling="triplet")
        assert triplets.dst_neg_index.shape == (3,)
        own, other = loader.state_dict()["pairs"], loader.with_edges(edges).state_dict()["pairs"]
        assert own == other


@pytest.mark.gpu
@pytest.mark.parametrize(("mode", "amount", "weighted"), HOW)
def test_a_gpu_draws_the_same(mode, amount, weighted):
    data = events()
    pairs, times = pairs_of(data)
    how = {"neg_sampling": negatives(mode, amount, weighted), "reject_edges": True, "edge_ids": True}
    with (
        loader_of(data, pairs, times, **how) as on_cpu,
        loader_of(data, pairs, times, **how | {"device": "cuda"}) as on_gpu,
    ):
        expect_same_passes(on_gpu, on_cpu)
        assert np.array_equal(on_cpu._ids, on_gpu._ids)
