"""Negatives that LinkNeighborLoader takes from the other pairs of a batch."""

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.sampler import NegativeSampling

from cohort_gnn import CohortError, LinkNeighborLoader, from_pyg, from_tensors

pytestmark = pytest.mark.usefixtures("shm")
NODES = 400
IN_BATCH = {"mode": "in_batch", "amount": 5}


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    generator = torch.Generator().manual_seed(1)
    edges = torch.randint(NODES, (2, 3000), generator=generator)
    return from_tensors(tmp_path_factory.mktemp("batches") / "data", x=torch.ones(NODES, 1), edge_index=edges)


def loader_of(data, pairs, negatives=IN_BATCH, **options) -> LinkNeighborLoader:
    how = {"batch_size": 40, "device": "cpu", "neg_sampling": negatives, "num_neighbors": [2]} | options
    return LinkNeighborLoader(data, edge_label_index=pairs, **how)


def random_pairs(count: int, seed: int) -> torch.Tensor:
    return torch.randint(NODES, (2, count), generator=torch.Generator().manual_seed(seed))


def test_a_batch_has_the_nodes_that_it_has_without_negatives(graph):
    pairs = random_pairs(200, 2)
    with loader_of(graph, pairs) as loader, loader_of(graph, pairs, None) as without:
        for batch, other in zip(loader, without, strict=True):
            assert torch.equal(batch.n_id, other.n_id) and torch.equal(batch.edge_index, other.edge_index)
            assert batch.dst_neg_index.shape == (len(batch.input_id), 5)
            assert torch.isin(batch.dst_neg_index, batch.dst_pos_index).all()
            assert "edge_label_index" not in batch and "edge_label" not in batch
        assert next(iter(loader.with_edges(pairs, neg_sampling="in_batch"))).dst_neg_index.shape == (40,)


def test_each_other_pair_is_as_likely(graph):
    pairs = torch.stack([torch.zeros(20, dtype=torch.int64), torch.arange(20)])
    counts = np.zeros((20, 20), int)
    with loader_of(graph, pairs, {"mode": "in_batch", "amount": 2000}, batch_size=20) as loader:
        for _ in range(5):
            drawn = next(iter(loader))
            for pair, negatives in enumerate(drawn.n_id[drawn.dst_neg_index].numpy()):
                counts[pair] += np.bincount(negatives, minlength=20)
    others = counts[~np.eye(20, dtype=bool)]
    assert (np.diag(counts) == 0).all() and others.sum() == 200_000
    from scipy.stats import chisquare  # takes 1 s to import

    assert chisquare(others).pvalue > 1e-6


def test_links_are_drawn_again(tmp_path):
    """Sources 0 and 1 have an edge to half of the targets, and pairs share targets."""
    targets = torch.arange(10, 20)
    edges = torch.cat([torch.stack([torch.full((5,), source), targets[source::2]]) for source in (0, 1)], dim=1)
    graph = from_tensors(tmp_path / "data", x=torch.ones(20, 1), edge_index=edges)
    pairs = torch.cat([edges, torch.stack([torch.arange(2, 7), torch.tensor([10, 10, 11, 11, 12])])], dim=1)
    known = set(map(tuple, pairs.T.tolist()))
    many = {"mode": "in_batch", "amount": 200}
    with loader_of(graph, pairs, many) as loader, loader_of(graph, pairs, many, reject_edges=True) as careful:
        shares = []
        for each in (loader, careful):
            batch = next(iter(each))
            sources = batch.n_id[batch.src_index].repeat_interleave(200).tolist()
            drawn = list(zip(sources, batch.n_id[batch.dst_neg_index].flatten().tolist(), strict=True))
            shares.append(sum(pair in known for pair in drawn) / len(drawn))
    assert shares[0] > 0.3 and shares[1] < 0.005, "what is left has been drawn 9 times"


def test_the_only_pair_of_a_batch_has_negatives_of_triplets(graph):
    pairs = random_pairs(41, 3)
    with loader_of(graph, pairs) as loader, loader_of(graph, pairs, NegativeSampling("triplet", 5)) as triplets:
        *_, last = loader
        *_, expected = triplets
        assert torch.equal(last.n_id, expected.n_id) and torch.equal(last.dst_neg_index, expected.dst_neg_index)


def test_targets_of_a_relation(tmp_path):
    shop = HeteroData()
    shop["user"].x, shop["item"].x = torch.ones(50, 2), torch.ones(30, 3)
    buys = ("user", "buys", "item")
    shop[buys].edge_index = torch.stack([torch.arange(300) % 50, torch.arange(300) % 30])
    data = from_pyg(shop, tmp_path / "shop", reverse_edges=True, target="item")
    with loader_of(data, (buys, None), reject_edges=True) as loader:
        for batch in loader:
            source, negatives = batch["user"].n_id[batch["user"].src_index], batch["item"].dst_neg_index
            drawn = batch["item"].n_id[negatives]
            assert torch.isin(drawn, batch["item"].n_id[batch["item"].dst_pos_index]).all()
            assert batch["item"].num_sampled_nodes[0] == len(batch["item"].dst_pos_index.unique())
            assert (source[:, None] % 10 != drawn % 10).float().mean() > 0.99, (
                "users buy items of their number modulo 10"
            )


def test_negatives_have_the_time_of_their_pair():
    """A temporal batch has trees: those of negatives have edges up to the time of the pair, as others would."""
    generator = torch.Generator().manual_seed(6)
    edge_index, time = torch.randint(50, (2, 600), generator=generator), torch.randint(100, (600,), generator=generator)
    data = Data(x=torch.ones(50, 1), edge_index=edge_index, time=time)
    pairs, times = torch.randint(50, (2, 60), generator=generator), torch.arange(60)
    how = {"time_attr": "time", "edge_label_time": times, "exclude": "none", "num_neighbors": [-1]}
    with loader_of(data, pairs, **how) as loader:
        for batch in loader:
            roots, targets = batch.dst_neg_index.flatten(), batch.n_id[batch.dst_pos_index]
            assert torch.isin(batch.n_id[roots], targets).all()
            assert batch.batch[roots].tolist() == torch.arange(len(targets)).repeat_interleave(5).tolist()
            for root in roots.tolist()[::7]:
                latest = batch.seed_time[batch.batch[root]]
                expected = ((edge_index[1] == batch.n_id[root]) & (time <= latest)).sum()
                assert (batch.edge_index[1] == root).sum() == expected


@pytest.mark.parametrize(
    ("negatives", "message"),
    [
        (
            {"mode": "in_batch", "amount": 0.5},
            r"neg_sampling: amount: expected an integer in \[1, 10000\], with in_batch",
        ),
        ({"mode": "in_batch", "amount": 10_001}, r"neg_sampling: amount: expected an integer in \[1, 10000\]"),
        (
            {"mode": "in_batch", "dst_weight": torch.ones(NODES)},
            "neg_sampling: expected mode and amount, with in_batch, found dst_weight",
        ),
        ("in-batch", 'neg_sampling: expected "binary", "triplet", "in_batch" or a .* found \'in-batch\''),
    ],
    ids=["fraction", "many", "weights", "name"],
)
def test_what_is_not_offered_is_refused(graph, negatives, message):
    with pytest.raises(CohortError, match=f"^{message}"):
        loader_of(graph, random_pairs(5, 5), negatives)


def test_negatives_are_told_apart_without_labels(graph):
    with pytest.raises(CohortError, match="^edge_label: expected None, with triplets"):
        loader_of(graph, random_pairs(5, 5), edge_label=torch.ones(5))
