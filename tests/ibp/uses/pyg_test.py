"""ibp.pyg_store: PyG's loaders read encoded rows, and their batches are those of the raw rows."""

import importlib.util

import numpy as np
import pytest

from cohort_gnn import ibp
from cohort_gnn.base.errors import CohortError

torch = pytest.importorskip("torch")
pyg_data = pytest.importorskip("torch_geometric.data")
from torch_geometric.loader import NeighborLoader  # noqa: E402
from torch_geometric.sampler import BaseSampler, HeteroSamplerOutput, SamplerOutput  # noqa: E402

PAPERS, AUTHORS = 300, 120
WRITES, CITES = ("author", "writes", "paper"), ("paper", "cites", "paper")


@pytest.fixture(scope="module")
def graph():
    torch.manual_seed(0)
    data = pyg_data.HeteroData()
    data["paper"].x = torch.randn(PAPERS, 32)
    data["paper"].y = torch.randint(5, (PAPERS,))
    data["author"].x = torch.randn(AUTHORS, 16).to(torch.bfloat16)
    data[WRITES].edge_index = torch.stack([torch.randint(AUTHORS, (900,)), torch.randint(PAPERS, (900,))])
    data[CITES].edge_index = torch.randint(PAPERS, (2, 1500))
    return data


def stored(graph) -> dict:
    return {
        ("paper", "x"): ibp.Table(graph["paper"].x),
        ("paper", "y"): graph["paper"].y,
        ("author", "x"): ibp.Table(graph["author"].x),
    }


class FirstNeighbours(BaseSampler):
    """One hop of all edges to the seeds, where PyG's own sampler needs a library that may not be there."""

    def __init__(self, graph):
        self.graph = graph

    @property
    def edge_permutation(self):
        return None

    def _hop(self, edge_index, seeds, to_nodes, nodes):
        row, col = edge_index[:, torch.isin(edge_index[1], seeds)]
        new = row.unique()
        if nodes is not None:
            new = torch.cat([nodes, new[~torch.isin(new, nodes)]])
        place = {int(node): i for i, node in enumerate(new)}
        place_to = {int(node): i for i, node in enumerate(to_nodes)}
        return new, torch.tensor([place[int(i)] for i in row]), torch.tensor([place_to[int(i)] for i in col])

    def sample_from_edges(self, index, neg_sampling=None):
        raise NotImplementedError

    def sample_from_nodes(self, index, **kwargs):
        seeds, metadata = index.node, (index.input_id, None)
        if not isinstance(self.graph, pyg_data.HeteroData):
            node, row, col = self._hop(self.graph.edge_index, seeds, seeds, seeds)
            return SamplerOutput(node, row, col, None, metadata=metadata)
        papers, cites_row, cites_col = self._hop(self.graph[CITES].edge_index, seeds, seeds, seeds)
        authors, row, col = self._hop(self.graph[WRITES].edge_index, seeds, seeds, None)
        return HeteroSamplerOutput(
            node={"paper": papers, "author": authors},
            row={WRITES: row, CITES: cites_row},
            col={WRITES: col, CITES: cites_col},
            edge={WRITES: None, CITES: None},
            metadata=metadata,
        )


def compare(batch, raw, names):
    for kind, name in names:
        found, expected = (batch[kind][name], raw[kind][name]) if kind else (batch[name], raw[name])
        assert found.dtype == expected.dtype and torch.equal(found, expected), (kind, name)


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_of_several_types_are_those_of_raw_rows(graph, workers):
    options = {"batch_size": 64, "num_workers": workers, "filter_per_worker": workers > 0}
    options |= {"input_nodes": ("paper", torch.arange(PAPERS)), "neighbor_sampler": FirstNeighbours(graph)}
    raw = list(NeighborLoader(graph, [-1], **options))
    coded = list(NeighborLoader((ibp.pyg_store(stored(graph)), graph), [-1], **options))
    assert len(coded) == len(raw) == 5
    for batch, expected in zip(coded, raw, strict=True):
        compare(batch, expected, [("paper", "x"), ("paper", "y"), ("author", "x")])
        assert batch["paper"].batch_size == expected["paper"].batch_size
        assert torch.equal(batch[WRITES].edge_index, expected[WRITES].edge_index)


def test_batches_of_one_type_are_those_of_raw_rows():
    data = pyg_data.Data(x=torch.randn(200, 20), edge_index=torch.randint(200, (2, 900)), y=torch.arange(200))
    store = ibp.pyg_store({(None, "x"): ibp.Table(data.x), (None, "y"): data.y})
    options = {"input_nodes": torch.arange(200), "batch_size": 50, "neighbor_sampler": FirstNeighbours(data)}
    raw = list(NeighborLoader(data, [-1], **options))
    coded = list(NeighborLoader((store, data), [-1], **options))
    for batch, expected in zip(coded, raw, strict=True):
        compare(batch, expected, [(None, "x"), (None, "y"), (None, "edge_index")])


@pytest.mark.skipif(
    not any(importlib.util.find_spec(name) for name in ("pyg_lib", "torch_sparse")),
    reason="PyG's sampler needs pyg-lib or torch-sparse",
)
def test_the_sampler_of_pyg_reads_encoded_rows(graph):
    for batch in NeighborLoader(
        (ibp.pyg_store(stored(graph)), graph), [5, 5], input_nodes=("paper", torch.arange(100)), batch_size=50
    ):
        for kind in ("paper", "author"):
            assert torch.equal(batch[kind].x, graph[kind].x[batch[kind].n_id])
        assert torch.equal(batch["paper"].y, graph["paper"].y[batch["paper"].n_id])


def test_the_store_is_one_of_pyg(graph):
    store, x = ibp.pyg_store(stored(graph)), graph["paper"].x
    assert [(attr.group_name, attr.attr_name) for attr in store.get_all_tensor_attrs()] == list(stored(graph))
    assert store.get_tensor_size("paper", "x") == (PAPERS, 32) and store.get_tensor_size("paper", "z") is None
    index = torch.tensor([3, 1, 3])
    for key in (index, index.int(), [3, 1, 3]):
        assert torch.equal(store.get_tensor("paper", "x", key), x[index])
    assert torch.equal(store.get_tensor("paper", "x", None), x) and torch.equal(store["paper", "x", 5:9], x[5:9])
    assert store.get_tensor("paper", "z", None) is None
    new = torch.ones(3, 32)
    assert store.put_tensor(new[:2], "paper", "x", torch.tensor([7, 8]))
    assert store.put_tensor(new, "paper", "x", slice(20, 23)) and store.put_tensor(index, "paper", "y", slice(0, 3))
    expected = x.clone()
    expected[[7, 8, 20, 21, 22]] = 1
    assert torch.equal(store.get_tensor("paper", "x", None), expected)
    assert torch.equal(store.get_tensor("paper", "y", slice(0, 3)), index)
    assert store.put_tensor(new, "author", "z", None) and torch.equal(store["author", "z", None], new)
    assert not store.put_tensor(new, "author", "w", torch.arange(3))
    assert store.update_tensor(new[:2] + 1, "paper", "x", torch.tensor([7, 8]))
    assert torch.equal(store["paper", "x", torch.tensor([7, 8])], new[:2] + 1) and len(store["paper", "x", None]) > 8
    assert store.remove_tensor("author", "z", None) and not store.remove_tensor("author", "z", None)
    assert len(store) == 3


def test_what_is_no_store():
    with pytest.raises(CohortError, match=r'(?s)keys \(node type, attribute\), found \'x\'.*\("paper", "x"\)'):
        ibp.pyg_store({"x": torch.ones(3, 3)})
    with pytest.raises(
        CohortError, match=r"'y'\): expected 3 rows, one for each node, as \('paper', 'x'\) has, found 4"
    ):
        ibp.pyg_store({("paper", "x"): ibp.Table(torch.ones(3, 3)), ("paper", "y"): torch.ones(4)})
    with pytest.raises(CohortError, match="a Table or a tensor, found list"):
        ibp.pyg_store({("paper", "x"): [1, 2]})
    with pytest.raises(CohortError, match="a Table or a tensor, found ndarray"):
        ibp.pyg_store({}).put_tensor(np.ones(3), "paper", "x", None)
