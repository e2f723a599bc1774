"""Batches under torch.inference_mode(), in which many evaluate."""

import copy

import pytest
import torch
import torch_geometric.nn as pyg
from torch import nn
from torch_geometric.nn import GAT, GCN, GraphSAGE

import cohort_gnn as cohort
from cohort_gnn import NeighborLoader
from cohort_gnn.nn.block import block_of

pytestmark = pytest.mark.usefixtures("shm")


def loader_of(data) -> NeighborLoader:
    return NeighborLoader(data, [5, 5], range(300), batch_size=64, device="cpu", shuffle=True)


@pytest.fixture(scope="module")
def batches(cora):
    with loader_of(cora) as loader:
        return [batch.clone() for batch in loader]


def test_batches_are_those_of_any_mode(cora, batches):
    with torch.inference_mode(), loader_of(cora) as loader:
        for batch, expected in zip(loader, batches, strict=True):
            for name in ("x", "edge_index", "indptr", "y", "n_id", "input_id"):
                assert torch.equal(batch[name], expected[name])


def test_layers_find_the_offsets_of_a_batch_and_of_its_first_edges(cora):
    with torch.inference_mode(), loader_of(cora) as loader:
        batch = next(iter(loader))
        for edges in (batch.edge_index, batch.edge_index[:, : batch.num_sampled_edges[0]]):
            assert block_of(edges, batch.num_nodes, batch.num_nodes).indptr is batch.edge_index._cohort_offsets[0]


def test_copies_of_a_batch_have_its_offsets(cora):
    with loader_of(cora) as loader:
        batch = next(iter(loader))
        before, offsets = batch.edge_index, batch.indptr.clone()
        assert batch.to("cpu").edge_index is before
        for copied in (batch.clone(), batch.clone("edge_index"), copy.deepcopy(batch)):
            assert copied.edge_index is not before
            block = block_of(copied.edge_index, batch.num_nodes, batch.num_nodes)
            assert block.order is None and torch.equal(block.indptr[: len(offsets)], offsets)
            copied.edge_index[0, 0] += 0
            assert block_of(copied.edge_index, batch.num_nodes, batch.num_nodes).order is not None
        with torch.inference_mode():
            assert torch.equal(batch.clone().edge_index, before)


def test_a_batch_that_was_written_to_is_sorted_again(cora):
    with torch.inference_mode(), loader_of(cora) as loader:
        batch = next(iter(loader))
        batch.edge_index.copy_(batch.edge_index.flip(1))
        assert block_of(batch.edge_index, batch.num_nodes, batch.num_nodes).order is not None


@pytest.mark.parametrize("kind", [GraphSAGE, GCN, GAT])
def test_scores_are_those_without_the_mode(cora, batches, kind):
    torch.manual_seed(1)
    model = kind(1433, 16, num_layers=2, out_channels=7).eval()
    cohort.nn.accelerate(model)
    with torch.no_grad():
        expected = [model(batch.x, batch.edge_index) for batch in batches]
    with torch.inference_mode(), loader_of(cora) as loader:
        for batch, scores in zip(loader, expected, strict=True):
            torch.testing.assert_close(model(batch.x, batch.edge_index), scores)


def test_layers_over_all_neighbours_are_the_model_on_the_whole_graph(cora):
    """Layer by layer, as a script computes rows of all nodes."""
    torch.manual_seed(1)
    layers = [pyg.GATv2Conv(1433, 4, heads=2), pyg.TransformerConv(8, 4, heads=2), pyg.GINConv(nn.Linear(8, 6))]
    layers = nn.ModuleList([*layers, pyg.SAGEConv(6, 7, aggr="max")])
    graph = cohort.dataset.open(cora).to_pyg()
    with torch.inference_mode():
        expected = rows = graph.x
        for layer in layers:
            expected = layer(expected, graph.edge_index).relu()
        assert len(cohort.nn.accelerate(layers).replaced) == 4
        with NeighborLoader(cora, [-1], batch_size=500, device="cpu") as loader:
            for layer in layers:
                parts, ids = [], []
                for batch in loader:
                    parts.append(layer(rows[batch.n_id], batch.edge_index)[: batch.batch_size].relu())
                    ids.append(batch.n_id[: batch.batch_size].clone())
                rows = torch.cat(parts)[torch.cat(ids).argsort()]
    torch.testing.assert_close(rows, expected)


def test_a_batch_taken_in_the_mode_can_be_trained_on(cora):
    model = GraphSAGE(1433, 16, num_layers=2, out_channels=7)
    with loader_of(cora) as loader:
        with torch.inference_mode():
            batch = next(iter(loader))
        model(batch.x, batch.edge_index).sum().backward()
    assert all(values.grad is not None for values in model.parameters())
