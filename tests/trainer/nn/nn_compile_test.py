"""torch.compile of models with Cohort's layers, on batches of several sizes."""

import gc
from functools import partial

import pytest
import torch
from processes import ALL_TESTS
from torch_geometric.nn import GAT, GCN, GraphSAGE, Sequential, TransformerConv

import cohort_gnn as cohort
from cohort_gnn import CohortError, NeighborLoader

pytestmark = pytest.mark.usefixtures("shm")


@pytest.fixture
def loader(cora):
    with NeighborLoader(cora, [5, 5], range(300), batch_size=128, device="cpu", shuffle=True) as loader:
        yield loader


def model_of(kind) -> torch.nn.Module:
    torch.manual_seed(1)
    model = kind(1433, 16, num_layers=2, out_channels=7)
    cohort.nn.accelerate(model)
    return model


def transformer(in_channels: int, hidden: int, num_layers: int, out_channels: int) -> torch.nn.Module:
    layers = [TransformerConv(in_channels, hidden, heads=2), TransformerConv(2 * hidden, out_channels)]
    assert len(layers) == num_layers
    return Sequential("x, edge_index", [(layer, "x, edge_index -> x") for layer in layers])


def compiled(model: torch.nn.Module):
    torch.compiler.reset()
    return torch.compile(model, backend="aot_eager", dynamic=True, fullgraph=True)  # no code is generated


@pytest.mark.parametrize(
    "kind", [GCN, *[GAT, GraphSAGE, partial(GAT, v2=True), partial(GraphSAGE, aggr="max"), transformer] * ALL_TESTS]
)
def test_scores_and_gradients_are_those_of_the_model(loader, kind):
    """And edges that were written to are refused."""
    model = model_of(kind)
    fast, parameters = compiled(model), list(model.parameters())
    for batch in loader:
        scores, expected = fast(batch.x, batch.edge_index), model(batch.x, batch.edge_index)
        torch.testing.assert_close(scores, expected)
        found = torch.autograd.grad(scores.square().sum(), parameters)
        torch.testing.assert_close(found, torch.autograd.grad(expected.square().sum(), parameters))
    batch = next(iter(loader))
    batch.edge_index.copy_(batch.edge_index.flip(1))
    with pytest.raises(CohortError) as error:
        fast(batch.x, batch.edge_index)
    assert error.value.place == "edge_index of a compiled model" and "clone" in error.value.hint


@pytest.mark.parametrize("kind", [GCN, *[GAT, GraphSAGE] * ALL_TESTS])
def test_a_compiled_model_holds_no_batch(cora, kind):
    """Each batch of another size compiles GCN again; where its graph broke, a cycle of frames held the batch's slot."""
    model = model_of(kind)
    torch.compiler.reset()
    fast = torch.compile(model, backend="eager", dynamic=False)
    with NeighborLoader(cora, [10, 5], batch_size=700, device="cpu", shuffle=True, num_slots=2) as loader:
        gc.collect()
        gc.disable()
        try:
            for batch in loader:
                fast(batch.x, batch.edge_index)[: batch.batch_size].square().sum().backward()
        finally:
            gc.enable()
        assert loader.stats().batches == 4
