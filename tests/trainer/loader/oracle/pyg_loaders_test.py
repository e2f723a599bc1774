"""Where all neighbours are drawn, batches have the nodes and edges of PyG's own loaders."""

import importlib.util

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from processes import ALL_TESTS
from torch_geometric import loader as pygs
from typed_sets import schemas, write

from cohort_gnn import LinkNeighborLoader, NeighborLoader
from cohort_gnn.dataset import open as open_dataset

pytestmark = [
    pytest.mark.usefixtures("shm"),
    pytest.mark.skipif(
        not any(importlib.util.find_spec(name) for name in ("pyg_lib", "torch_sparse")),
        reason="PyG's sampler needs pyg-lib or torch-sparse",
    ),
]
EXAMPLES = 200 if ALL_TESTS else 20


def edges_of(store, sources, targets) -> list[list[int]]:
    """(source, target) of each edge, by the nodes' numbers in the graph, in ascending order."""
    source, target = store.edge_index
    return sorted(torch.stack([sources[source], targets[target]], 1).tolist())


def expect_same(batch, expected) -> None:
    """In batches of one node type."""
    assert sorted(batch.n_id.tolist()) == sorted(expected.n_id.tolist())
    assert edges_of(batch, batch.n_id, batch.n_id) == edges_of(expected, expected.n_id, expected.n_id)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(schemas())
def test_several_types(tmp_path_factory, schema):
    counts, dims, lists, _ = schema
    graph = open_dataset(write(tmp_path_factory.mktemp("typed") / "set", counts, dims, lists))
    whole = graph.to_pyg()
    for name, count in counts.items():
        whole[name].num_nodes = count
    seeds = torch.from_numpy(np.random.default_rng(1).permutation(counts[graph.target]))
    of_pyg = pygs.NeighborLoader(whole, [-1, -1], input_nodes=(graph.target, seeds), batch_size=7)
    with NeighborLoader(graph, [-1, -1], (graph.target, seeds), batch_size=7, device="cpu") as loader:
        for batch, expected in zip(loader, of_pyg, strict=True):
            for name in counts:
                assert sorted(batch[name].n_id.tolist()) == sorted(expected[name].n_id.tolist())
            for name in lists:
                ends = [[each[end].n_id for end in (name[0], name[2])] for each in (batch, expected)]
                assert edges_of(batch[name], *ends[0]) == edges_of(expected[name], *ends[1])


@pytest.mark.parametrize("kind", ["directional", "bidirectional", "induced"])
def test_one_type(cora, kind):
    graph = open_dataset(cora)
    seeds = torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(1))[:100]
    of_pyg = pygs.NeighborLoader(graph.to_pyg(), [-1, -1], input_nodes=seeds, batch_size=30, subgraph_type=kind)
    with NeighborLoader(graph, [-1, -1], seeds, batch_size=30, device="cpu", subgraph_type=kind) as loader:
        for batch, expected in zip(loader, of_pyg, strict=True):
            expect_same(batch, expected)


def test_links(cora):
    graph = open_dataset(cora)
    whole = graph.to_pyg()
    pairs = whole.edge_index[:, :90]
    of_pyg = pygs.LinkNeighborLoader(whole, [-1, -1], edge_label_index=pairs, batch_size=25)
    with LinkNeighborLoader(graph, [-1, -1], pairs, batch_size=25, device="cpu", exclude="none") as loader:
        for batch, expected in zip(loader, of_pyg, strict=True):
            expect_same(batch, expected)
            for each in (batch, expected):
                each.ends = each.n_id[each.edge_label_index]
            assert torch.equal(batch.ends, expected.ends)
