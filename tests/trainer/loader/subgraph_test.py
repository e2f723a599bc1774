"""The argument subgraph_type of loaders, against PyG's functions on batches of the drawn edges alone."""

import copy
import pickle

import numpy as np
import pytest
import torch
from torch_geometric.data import HeteroData
from torch_geometric.sampler import HeteroSamplerOutput, SamplerOutput
from torch_geometric.sampler.base import SubgraphType
from torch_geometric.utils import subgraph as pyg_subgraph

import cohort_gnn as cohort
from cohort_gnn import CohortError, LinkNeighborLoader, NeighborLoader
from cohort_gnn.dataset import Dataset, from_tensors
from cohort_gnn.dataset import open as open_dataset
from cohort_gnn.launch.main import main
from cohort_gnn.nn.block import block_of
from cohort_gnn.spec.graph import EDGE_TYPE
from cohort_gnn.trainer.loader import subgraph

pytestmark = pytest.mark.usefixtures("shm")
NUM_NODES, NUM_EDGES = 200, 1500
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def random_edges(num_sources: int, num_targets: int, count: int, seed: int) -> np.ndarray:
    """int64 [2, count]; some are there twice, node 0 has no in-neighbours."""
    random = np.random.default_rng(seed)
    edges = np.stack([random.integers(num_sources, size=count), random.integers(1, num_targets, size=count)])
    edges[:, : count // 10] = edges[:, count // 2 : count // 2 + count // 10]
    return edges


@pytest.fixture(scope="module")
def graph(tmp_path_factory) -> Dataset:
    """Parallel edges, self loops, edges in both directions; weights and rows of edges differ."""
    folder = tmp_path_factory.mktemp("subgraph") / "set"
    edges = random_edges(NUM_NODES, NUM_NODES, NUM_EDGES, 3)
    edges[:, -100:] = edges[::-1, 300:400]
    edges[1, 200:220] = edges[0, 200:220]
    rows = np.arange(NUM_EDGES * 3, dtype=np.float32).reshape(NUM_EDGES, 3)
    how = {"edge_weight": np.random.default_rng(4).random(NUM_EDGES).astype(np.float32), "edge_attr": rows}
    from_tensors(folder, x=np.eye(NUM_NODES, 4, dtype=np.float32), y=np.arange(NUM_NODES) % 3, edge_index=edges, **how)
    return open_dataset(folder)


@pytest.fixture(scope="module")
def shop(tmp_path_factory) -> cohort.dataset.HeteroDataset:
    """Edge types with a reverse by name, within one node type, as the only one back, and without one."""
    data, counts = HeteroData(), {"user": 60, "item": 90, "shop": 20}
    for name, count in counts.items():
        data[name].x = torch.arange(count, dtype=torch.float32)[:, None]
    data["user"].y = torch.arange(60) % 2
    types = [("user", "buys", "item"), ("item", "rev_buys", "user"), ("user", "knows", "user")]
    types += [("item", "in", "shop"), ("shop", "sells", "item"), ("user", "visits", "shop")]
    for seed, name in enumerate(types):
        data[name].edge_index = torch.from_numpy(random_edges(counts[name[0]], counts[name[2]], 400, seed))
        data[name].edge_weight = torch.rand(data[name].num_edges, generator=torch.Generator().manual_seed(seed))
        data[name].edge_attr = torch.arange(data[name].num_edges * 2.0).view(-1, 2)
    return open_dataset(cohort.from_pyg(data, tmp_path_factory.mktemp("subgraph") / "shop", target="user"))


def loaders_of(data, fanout, kind: str, device="cpu", make=NeighborLoader, **options):
    """A loader of drawn edges alone, and its twin."""
    how = {"batch_size": 16, "device": device, "shuffle": True} | options
    return make(data, fanout, **how), make(data, fanout, **how, subgraph_type=kind)


def expect_same_nodes(drawn, batch) -> None:
    for name in ("n_id", "input_id", "x", "y", "batch"):
        assert (name in drawn) == (name in batch)
        if name in drawn:
            assert torch.equal(drawn[name], batch[name]), name


def expect_ordered(batch, indptr, num_targets: int) -> None:
    """By target, then by source; every pair once."""
    source, target = batch.edge_index
    pairs = target * (source.max() + 1 if len(source) else 1) + source
    assert (pairs[1:] > pairs[:-1]).all()
    expected = torch.bincount(target, minlength=num_targets).cumsum(0)
    assert indptr.tolist() == [0, *expected.tolist()]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("fanout", "options"),
    [((4, 3), {}), ((-1, -1), {}), ((3,), {"disjoint": True}), ((0,), {}), ((2, 2, 2), {"batch_size": 200})],
    ids=str,
)
def test_bidirectional_is_pygs(graph, fanout, options, device):
    drawn, both = loaders_of(graph, fanout, "bidirectional", device, edge_ids=True, **options)
    sources, targets = graph.indices, np.repeat(np.arange(NUM_NODES), np.diff(graph.indptr))
    with drawn, both:
        for expected, batch in zip(drawn, both, strict=True):
            expect_same_nodes(expected, batch)
            pygs = SamplerOutput(expected.n_id, *expected.edge_index, expected.e_id, None).to_bidirectional()
            assert torch.equal(batch.edge_index, torch.stack([pygs.row, pygs.col]))
            assert pygs.num_sampled_nodes is pygs.num_sampled_edges is None
            assert "num_sampled_nodes" not in batch and "num_sampled_edges" not in batch
            expect_ordered(batch, batch.indptr, batch.num_nodes)
            e_id, pairs = batch.e_id.cpu().numpy(), batch.n_id[batch.edge_index].cpu().numpy()
            ends = np.stack([sources[e_id], targets[e_id]])
            forward = (ends == pairs).all(0)
            assert np.array_equal(ends[:, ~forward], pairs[::-1, ~forward])
            there = set(map(tuple, expected.edge_index.T.tolist()))
            assert forward.tolist() == [tuple(pair) in there for pair in batch.edge_index.T.tolist()]
            assert np.isin(e_id, expected.e_id.cpu()).all()
            assert np.array_equal(batch.edge_weight.cpu(), graph.edge_weights[e_id])
            assert np.array_equal(batch.edge_attr.cpu(), graph.edge_attr[e_id])


@pytest.mark.parametrize("device", DEVICES)
def test_bidirectional_of_several_types_is_pygs(shop, device):
    fanout = [3, 3]
    with pytest.warns(UserWarning, match=r"no reverses of \('user', 'visits', 'shop'\), whose reverse") as said:
        drawn, both = loaders_of(shop, fanout, "bidirectional", device, input_nodes="user", disjoint=True)
    assert [each.filename for each in said if "no reverses" in str(each.message)] == [__file__]
    with drawn, both:
        for expected, batch in zip(drawn, both, strict=True):
            rows, cols = ({name: expected[name].edge_index[i] for name in expected.edge_types} for i in (0, 1))
            nodes = {name: expected[name].n_id for name in expected.node_types}
            with pytest.warns(UserWarning, match="does not seem to have a reverse edge type"):
                pygs = HeteroSamplerOutput(nodes, rows, cols, None, None).to_bidirectional()
            assert batch.edge_types == expected.edge_types
            for name in batch.edge_types:
                pairs = torch.stack([pygs.row[name], pygs.col[name]]).T.tolist()
                assert sorted(pairs) == sorted(batch[name].edge_index.T.tolist()), name
                if name[1] != "visits":
                    expect_ordered(batch[name], indptr_of(batch, name), batch[name[2]].num_nodes)
                    assert set(batch[name]) == {"edge_index"}
            assert set(batch["visits"]) == {"edge_index", "e_id", "edge_weight", "edge_attr"}
            for attribute in batch["visits"]:
                assert torch.equal(batch["visits"][attribute], expected["visits"][attribute]), attribute
            for name in batch.node_types:
                expect_same_nodes(expected[name], batch[name])
                assert "num_sampled_nodes" not in batch[name]


def indptr_of(batch, name) -> torch.Tensor:
    """As Cohort's layers know the offsets of an edge type."""
    return block_of(batch[name].edge_index, batch[name[0]].num_nodes, batch[name[2]].num_nodes).indptr


def test_reverses_that_the_data_set_names_come_first(tmp_path):
    data = HeteroData({name: {"x": torch.ones(5, 1)} for name in "ab"})
    data["a"].y = torch.zeros(5, dtype=torch.int64)
    data["b", "to", "a"].edge_index = torch.tensor([[0, 1, 2], [3, 4, 4]])
    data["a", "far", "b"].edge_index = torch.tensor([[0, 0], [3, 4]])
    graph = open_dataset(cohort.from_pyg(data, tmp_path / "set", target="a", reverse_edges=True))
    loader = NeighborLoader(graph, [-1, -1], "a", batch_size=5, device="cpu", subgraph_type="bidirectional")
    with loader:
        (batch,) = loader
        ends = {
            name: {
                tuple(pair)
                for pair in torch.stack(
                    [batch[end].n_id[i] for end, i in zip(name[::2], batch[name].edge_index, strict=True)]
                ).T.tolist()
            }
            for name in batch.edge_types
        }
    to, far = {(0, 3), (1, 4), (2, 4)}, {(0, 3), (0, 4)}
    assert ends["b", "to", "a"] == to and ends["a", "rev_to", "b"] == {pair[::-1] for pair in to}
    assert ends["b", "rev_far", "a"] == {pair[::-1] for pair in far}


@pytest.mark.parametrize("neg_sampling", [None, "binary", "triplet"])
def test_bidirectional_links(graph, neg_sampling):
    pairs = torch.from_numpy(
        np.stack([graph.indices[:90], np.repeat(np.arange(NUM_NODES), np.diff(graph.indptr))[:90]])
    )
    how = {"edge_label_index": pairs, "neg_sampling": neg_sampling, "make": LinkNeighborLoader}
    drawn, both = loaders_of(graph, [5, 5], "bidirectional", **how)
    with drawn, both:
        for expected, batch in zip(drawn, both, strict=True):
            pygs = SamplerOutput(expected.n_id, *expected.edge_index, None, None).to_bidirectional()
            assert torch.equal(batch.edge_index, torch.stack([pygs.row, pygs.col]))
            for name in ("edge_label_index", "src_index", "dst_pos_index", "dst_neg_index", "n_id", "input_id"):
                assert (name in expected) == (name in batch)
                assert name not in batch or torch.equal(batch[name], expected[name])
            ends = torch.stack([batch.src_index, batch.dst_pos_index]) if neg_sampling == "triplet" else None
            ends = batch.edge_label_index[:, : len(batch.input_id)] if ends is None else ends
            there = set(map(tuple, batch.edge_index.T.tolist()))
            assert not there & set(map(tuple, ends.T.tolist())), "no pair of the batch comes back as a reverse edge"


def test_pairs_that_reverse_edges_would_bring_back_are_refused(graph, shop):
    how = {"device": "cpu", "subgraph_type": "bidirectional"}
    place = r'exclude, with subgraph_type="bidirectional": expected '
    with pytest.raises(CohortError, match=f'^{place}"reverse" or "none", found "self"'):
        LinkNeighborLoader(graph, [3], exclude="self", **how)
    with LinkNeighborLoader(graph, [3], exclude="none", **how) as loader:
        with pytest.raises(CohortError, match=place):
            loader.with_edges(None, exclude="self")
    buys = ("user", "buys", "item")
    with (
        pytest.warns(UserWarning),
        pytest.raises(CohortError, match=f'^{place}"none", or a data set that names') as error,
    ):
        LinkNeighborLoader(shop, [3], buys, **how)
    assert "reverse_edges=True" in error.value.hint
    with pytest.warns(UserWarning), LinkNeighborLoader(shop, [3], buys, exclude="none", **how) as loader:
        assert len(next(iter(loader))[buys].edge_label_index) == 2
    with pytest.warns(UserWarning), LinkNeighborLoader(shop, [3], ("user", "knows", "user"), **how) as loader:
        next(iter(loader))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("fanout", "options", "most"),
    [((4, 3), {}, 1 << 22), ((-1, -1), {}, 1), ((3,), {"replace": True}, 100), ((0,), {"batch_size": 150}, 1 << 22)],
    ids=str,
)
def test_induced_is_pygs_subgraph(graph, fanout, options, most, device, monkeypatch):
    monkeypatch.setattr(subgraph, "MOST_EDGES", most)
    drawn, induced = loaders_of(graph, fanout, "induced", device, edge_ids=True, **options)
    edges = torch.from_numpy(graph.edge_types[EDGE_TYPE].edge_index())
    with drawn, induced:
        for expected, batch in zip(drawn, induced, strict=True):
            expect_same_nodes(expected, batch)
            n_id, e_id = batch.n_id.cpu(), batch.e_id.cpu()
            *_, mask = pyg_subgraph(n_id, edges, num_nodes=NUM_NODES, return_edge_mask=True)
            assert torch.equal(e_id.sort().values, mask.nonzero().squeeze(1))
            assert torch.equal(n_id[batch.edge_index.cpu()], edges[:, e_id])
            order = batch.edge_index[1].cpu() * NUM_EDGES + e_id
            assert (order[1:] > order[:-1]).all()
            counts = torch.bincount(batch.edge_index[1], minlength=batch.num_nodes).cumsum(0)
            assert batch.indptr.tolist() == [0, *counts.tolist()]
            assert np.array_equal(batch.edge_weight.cpu(), graph.edge_weights[e_id])
            assert np.array_equal(batch.edge_attr.cpu(), graph.edge_attr[e_id])
            assert "num_sampled_nodes" not in batch and "num_sampled_edges" not in batch


@pytest.mark.parametrize("dtype", ["bfloat16", "uint8"])
def test_induced_has_raw_features_of_edges(tmp_path, dtype):
    edges, rows = random_edges(50, 50, 300, 1), torch.arange(600).remainder(200).view(300, 2).to(getattr(torch, dtype))
    how = {"x": np.ones((50, 2), np.float32), "y": np.zeros(50, np.int64), "edge_index": edges}
    data = open_dataset(from_tensors(tmp_path / "set", **how, edge_attr=rows))
    drawn, induced = loaders_of(data, [-1], "induced")
    with drawn, induced:
        for expected, batch in zip(drawn, induced, strict=True):
            assert batch.edge_attr.dtype == expected.edge_attr.dtype == rows.dtype
            there = torch.isin(batch.e_id, expected.e_id)
            rank = torch.searchsorted(*(ids.sort().values for ids in (expected.e_id, batch.e_id[there])))
            wanted = expected.edge_attr[expected.e_id.argsort()][rank]
            assert torch.equal(batch.edge_attr[there][batch.e_id[there].argsort()], wanted)
    folder = data.path
    assert (
        main(["dataset", "prepare", str(folder), "--codec", "raw" if dtype == "uint8" else "exponent", "--drop-raw"])
        == 0
    )
    with pytest.raises(CohortError, match="^edge_attr: expected raw features of edges") as error:
        loaders_of(folder, [2], "induced")[0].close()
    assert "edge_attr=False" in error.value.hint
    with NeighborLoader(folder, [2], device="cpu", subgraph_type="induced", edge_attr=False) as loader:
        assert "edge_attr" not in next(iter(loader))


def test_what_induced_batches_are_not_is_refused(graph):
    how = {"device": "cpu", "subgraph_type": "induced"}
    with pytest.raises(CohortError, match="^disjoint: expected False, for subgraph_type='induced', found True"):
        NeighborLoader(graph, [3], disjoint=True, **how)
    with pytest.raises(CohortError, match='^exclude, with subgraph_type="induced": expected "none", found "reverse"'):
        LinkNeighborLoader(graph, [3], **how)
    with LinkNeighborLoader(graph, [3], exclude="none", batch_size=20, **how) as loader:
        batch = next(iter(loader))
        there = set(map(tuple, batch.edge_index.T.tolist()))
        assert there >= set(map(tuple, batch.edge_label_index.T.tolist())), "pairs are edges of the graph"


def test_other_words_are_refused(graph):
    for value in ("both", None, 3):
        with pytest.raises(CohortError, match="^subgraph_type: expected directional or bidirectional or induced"):
            NeighborLoader(graph, [3], device="cpu", subgraph_type=value)


def test_arrays_of_edges_that_all_edge_types_lack_are_refused(tmp_path):
    data = HeteroData({"a": {"x": torch.ones(3, 1), "y": torch.zeros(3, dtype=torch.int64)}})
    data["a", "to", "a"].edge_index = torch.tensor([[0, 1], [1, 2]])
    data["a", "rev_to", "a"].edge_index = torch.tensor([[2, 1], [0, 0]])
    for name in data.edge_types:
        data[name].edge_weight, data[name].edge_attr = torch.ones(2), torch.ones(2, 4)
    graph, how = cohort.from_pyg(data, tmp_path / "set"), {"device": "cpu", "subgraph_type": "bidirectional"}
    for name in ("edge_ids", "edge_weights"):
        with pytest.raises(CohortError) as error:
            NeighborLoader(graph, [3], "a", **how, **{name: True})
        assert error.value.place == name
    with NeighborLoader(graph, [3], "a", **how) as loader:
        assert set(next(iter(loader))["to"]) == {"edge_index"}


def test_a_state_names_the_edges(graph):
    drawn, both = loaders_of(graph, [3], "bidirectional", input_nodes=[1, 2])
    with drawn, both:
        with pytest.raises(CohortError, match=r"^load_state_dict: subgraph_type: expected 'bidirectional'"):
            both.load_state_dict(drawn.state_dict())
        both.load_state_dict(both.state_dict())
        (of_twin,) = both.with_nodes([1, 2])
        (batch,) = both.with_nodes([1, 2], num_neighbors=[3])
        assert torch.equal(of_twin.edge_index, batch.edge_index) and "num_sampled_edges" not in batch


def test_layers_and_copies(graph):
    """Cohort's layers use the offsets; what has other offsets is sorted by them."""
    loader = NeighborLoader(graph, [4, 4], batch_size=50, device="cpu", subgraph_type=SubgraphType.bidirectional)
    conv = cohort.nn.SAGEConv(4, 3)
    with loader, torch.inference_mode():
        for batch in loader:
            expected = conv(batch.x, batch.edge_index[:, torch.randperm(batch.num_edges)])
            torch.testing.assert_close(conv(batch.x, batch.edge_index), expected)
            for other in (batch.clone(), copy.deepcopy(batch), pickle.loads(pickle.dumps(batch))):
                assert torch.equal(other.edge_index, batch.edge_index) and torch.equal(other.indptr, batch.indptr)
