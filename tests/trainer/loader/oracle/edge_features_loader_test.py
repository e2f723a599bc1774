"""Batches with features of edges: the row of each edge's place in the data set, whatever else the loader does."""

from pathlib import Path

import numpy as np
import pytest
import torch
from sets import write_papers

from cohort_gnn import LinkNeighborLoader, NeighborLoader
from cohort_gnn.dataset import Dataset, from_tensors
from cohort_gnn.dataset import open as open_dataset

pytestmark = pytest.mark.usefixtures("shm")
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
NUM_NODES, NUM_EDGES = 300, 4000


def graph_of(folder: Path, width: int = 5, dtype: str = "float32", seed: int = 3, **more) -> Dataset:
    random = np.random.default_rng(seed)
    ends = random.integers(NUM_NODES, size=(2, NUM_EDGES))
    ends[1, : NUM_EDGES // 4] = 0
    rows = torch.from_numpy(random.integers(0, 255, (NUM_EDGES, width)).astype(np.float32)).to(getattr(torch, dtype))
    x = np.repeat(np.arange(NUM_NODES, dtype=np.float32)[:, None], 3, axis=1)
    from_tensors(folder, x=x, y=np.arange(NUM_NODES) % 3, edge_index=ends, edge_attr=rows, **more)
    return open_dataset(folder)


@pytest.fixture(scope="module")
def graph(tmp_path_factory) -> Dataset:
    return graph_of(tmp_path_factory.mktemp("edges") / "set")


def expect_rows(batch, data: Dataset) -> None:
    """edge_attr has the rows of the batch's edges, which are those of e_id."""
    e_id = batch.e_id.cpu().numpy()
    rows = batch.edge_attr.cpu()
    rows = rows.view(torch.uint16) if rows.dtype == torch.bfloat16 else rows
    np.testing.assert_array_equal(rows.numpy(), data.edge_attr[e_id])
    source = data.indices[e_id]
    target = np.searchsorted(data.indptr, e_id, side="right") - 1
    n_id = batch.n_id.cpu().numpy()
    np.testing.assert_array_equal(n_id[batch.edge_index.cpu().numpy()], np.stack([source, target]))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "uint8"])
@pytest.mark.parametrize("width", [1, 3, 16, 100])
def test_rows_are_those_of_the_edges(tmp_path, device, dtype, width):
    data = graph_of(tmp_path / "set", width, dtype)
    with NeighborLoader(data, [5, 3], batch_size=40, device=device, shuffle=True) as loader:
        for batch in loader:
            assert batch.edge_attr.dtype == getattr(torch, dtype) and batch.edge_attr.shape[1] == width
            expect_rows(batch, data)


@pytest.mark.parametrize("device", DEVICES)
def test_whatever_a_loader_does(tmp_path, graph, device):
    nodes = np.arange(0, NUM_NODES, 2)
    options_of = [{"edge_ids": True}, {"disjoint": True}, {"cache_ratio": 0.3}, {"order": "asis"}, {"reuse": True}]
    for options in (*options_of, {"replace": True}):
        with NeighborLoader(graph, [-1, 4], nodes, batch_size=30, device=device, **options) as loader:
            for _ in range(2):
                for batch in loader:
                    expect_rows(batch, graph)
    weights = np.random.default_rng(1).random(NUM_EDGES).astype(np.float32)
    weighted = graph_of(tmp_path / "weights", edge_weight=weights)
    how = {"weight_attr": "edge_weight", "edge_weights": True}
    with NeighborLoader(weighted, [4, 4], batch_size=50, device=device, **how) as loader:
        for batch in loader:
            expect_rows(batch, weighted)
            np.testing.assert_array_equal(batch.edge_weight.cpu(), weighted.edge_weights[batch.e_id.cpu()])
    timed = graph_of(tmp_path / "times", edge_time=np.random.default_rng(2).integers(0, 50, NUM_EDGES))
    times = {"time_attr": "edge_time", "input_time": np.arange(NUM_NODES) % 60}
    with NeighborLoader(timed, [4, 4], batch_size=50, device=device, **times) as loader:
        for batch in loader:
            expect_rows(batch, timed)


@pytest.mark.parametrize("device", DEVICES)
def test_batches_of_pairs_have_rows(graph, device):
    with LinkNeighborLoader(graph, [4, 3], neg_sampling="binary", batch_size=64, device=device) as loader:
        for _, batch in zip(range(10), loader, strict=False):
            expect_rows(batch, graph)


def test_the_same_batches_without_rows(graph):
    with (
        NeighborLoader(graph, [4, 3], batch_size=64, device="cpu") as having,
        NeighborLoader(graph, [4, 3], batch_size=64, device="cpu", edge_attr=False) as lacking,
    ):
        for with_rows, without in zip(having, lacking, strict=True):
            assert "edge_attr" not in without and "e_id" not in without
            assert torch.equal(with_rows.edge_index, without.edge_index) and torch.equal(with_rows.x, without.x)


@pytest.fixture(scope="module")
def types(tmp_path_factory) -> Path:
    """Of three relations, two have rows, of other widths and types."""

    def add_rows(name: str, store, random) -> None:
        if name == "writes":
            store.edge_attr = torch.from_numpy(random.random((800, 3)).astype(np.float32))
        if name == "cites":
            store.edge_attr = torch.from_numpy(random.integers(0, 255, (800, 7)).astype(np.uint8))

    return write_papers(tmp_path_factory.mktemp("types") / "set", add_rows)


@pytest.mark.parametrize("device", DEVICES)
def test_several_types_have_rows_by_relation(types, device):
    data = open_dataset(types)
    with NeighborLoader(data, [4, 3], "paper", batch_size=30, device=device) as loader:
        for batch in loader:
            for name, relation in data.edge_types.items():
                assert ("edge_attr" in batch[name]) == (relation.edge_table is not None)
                if relation.edge_table is not None:
                    expected = relation.edge_attr[batch[name].e_id.cpu().numpy()]
                    np.testing.assert_array_equal(batch[name].edge_attr.cpu().numpy(), expected)
