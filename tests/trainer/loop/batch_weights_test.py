"""Weights of edges in batches, and GCN with them: equal to PyG's layer on the whole graph."""

import json
from pathlib import Path

import pytest
import torch
import torch_geometric.nn as pyg
from batches import expect_same_passes
from processes import cohort as run_cohort
from processes import here, refused
from torch.nn import functional as F

import cohort_gnn as cohort
from cohort_gnn import CohortError, LinkNeighborLoader, NeighborLoader
from cohort_gnn.trainer.models.sampled import SampledGNN

NUM_NODES, DIM, CLASSES = 500, 6, 3


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    """A directed graph with duplicate edges and self-loops, whose labels follow from weighted sums alone."""
    generator = torch.Generator().manual_seed(2)
    edge_index = torch.randint(NUM_NODES, (2, 4000), generator=generator)
    edge_index[:, :300] = edge_index[:, 300:600]
    edge_index[1, :50] = edge_index[0, :50]
    edge_weight = torch.rand(4000, generator=generator) ** 3
    x = torch.randn(NUM_NODES, DIM, generator=generator)
    sums = torch.zeros_like(x).index_add_(0, edge_index[1], edge_weight[:, None] * x[edge_index[0]])
    return cohort.from_tensors(
        tmp_path_factory.mktemp("weighted") / "data",
        x=x,
        y=sums[:, :CLASSES].argmax(dim=1),
        edge_index=edge_index,
        edge_weight=edge_weight,
    )


@pytest.mark.parametrize("edge_ids", [False, True])
def test_batches_have_the_weights_of_their_edges(data, shm, edge_ids):
    """Without an argument: a GCN of a ported script would train without them."""
    graph = cohort.dataset.open(data).to_pyg()
    with NeighborLoader(data, [4, 3], batch_size=64, device="cpu", edge_ids=edge_ids) as loader:
        plain = NeighborLoader(data, [4, 3], batch_size=64, device="cpu", edge_ids=True, edge_weights=False)
        for batch, other in zip(loader, plain, strict=True):
            assert batch.edge_weight.dtype == torch.float32
            assert torch.equal(batch.edge_weight, graph.edge_weight[other.e_id])
            assert torch.equal(batch.edge_index, other.edge_index)
            assert ("e_id" in batch) == edge_ids and "edge_weight" not in other
        plain.close()
    with LinkNeighborLoader(data, [4], batch_size=500, device="cpu", edge_ids=True) as loader:
        for batch in loader:
            assert torch.equal(batch.edge_weight, graph.edge_weight[batch.e_id])


@pytest.mark.gpu
@pytest.mark.parametrize(
    "place", [{"topology": "gpu"}, {"topology": "host"}, {"topology": "host", "cache_bytes": 60_000}]
)
def test_a_gpu_gives_the_same_edges_and_weights(data, shm, place):
    """Wherever it reads the lists: from all of them, from pinned memory, or some from a slab."""
    options = {"shuffle": True, "edge_ids": True, "edge_weights": True}
    with (
        NeighborLoader(data, [40, 3], batch_size=64, device="cpu", **options) as host,
        NeighborLoader(data, [40, 3], batch_size=64, device="cuda", **options, **place) as loader,
    ):
        expect_same_passes(loader, host)


@pytest.mark.parametrize("layers", ["cohort", "pyg"])
@pytest.mark.parametrize("num_layers", [1, 2])
def test_gcn_on_a_batch_of_all_neighbours_is_pygs_on_its_edges(data, shm, layers, num_layers):
    """Scores and gradients of the seeds, by PyG's layers on all nodes and edges of the batch."""
    torch.manual_seed(3)
    model = SampledGNN("gcn", DIM, 8, CLASSES, num_layers, dropout=0.0, layers=layers, edge_weights=True)
    twins = [pyg.GCNConv(layer.in_channels, layer.out_channels) for layer in model.convs]
    for twin, layer in zip(twins, model.convs, strict=True):
        twin.load_state_dict(layer.state_dict())
    with NeighborLoader(data, [-1] * num_layers, batch_size=32, device="cpu", edge_weights=True) as loader:
        batch = next(iter(loader)).clone()
    x = batch.x
    for number, twin in enumerate(twins):
        edges = sum(batch.num_sampled_edges[: num_layers - number])  # those of the hops that the layer still needs
        x = twin(x, batch.edge_index[:, :edges], batch.edge_weight[:edges])
        x = x if number == num_layers - 1 else F.relu(x)
    sizes = batch.num_sampled_nodes, batch.num_sampled_edges
    found = model(batch.x, batch.edge_index, *sizes, batch.edge_weight)[:32]
    torch.testing.assert_close(found, x[:32], rtol=1e-5, atol=1e-5)
    found.square().sum().backward()
    x[:32].square().sum().backward()
    for layer, twin in zip(model.convs, twins, strict=True):
        for one, other in zip(layer.parameters(), twin.parameters(), strict=True):
            torch.testing.assert_close(one.grad, other.grad, rtol=1e-4, atol=1e-4)
    without = model(batch.x, batch.edge_index, *sizes)[:32]
    assert not torch.allclose(without, found, atol=1e-3)


def test_models_that_take_no_weights_say_so(data, shm):
    model = SampledGNN("sage", DIM, 8, CLASSES, 1, dropout=0.0)
    with NeighborLoader(data, [3], batch_size=32, device="cpu", edge_weights=True) as loader:
        batch = next(iter(loader))
        with pytest.raises(CohortError, match="a model that takes weights: gcn"):
            model(batch.x, batch.edge_index, batch.num_sampled_nodes, batch.num_sampled_edges, batch.edge_weight)


def train(data: Path, out: Path, *arguments):
    options = "--device cpu --model gcn --fanout 10,5 --batch-size 50 --hidden 16 --epochs 2 --out".split()
    return run_cohort("train", data, *options, out, *arguments)


def test_a_run_with_weights(data, tmp_path, shm):
    losses = {}
    for layers in ("cohort", "pyg"):
        for weights in ([], ["--use-edge-weights"]):
            out = tmp_path / f"{layers}{len(weights)}"
            result = train(data, out, "--layers", layers, "--dropout", 0, *weights)
            assert result.returncode == 0, result.stderr
            losses[layers, len(weights)] = json.loads((out / "summary.json").read_text())["epochs"][-1]["loss"]
    assert losses["cohort", 1] == pytest.approx(losses["pyg", 1], rel=1e-4)
    assert abs(losses["cohort", 1] - losses["cohort", 0]) > 1e-3
    result = run_cohort("predict", tmp_path / "cohort1", data, "--out", tmp_path / "pred.npy", "--device", "cpu")
    assert result.returncode == 1 and "a run without --use-edge-weights" in result.stderr


OWN = """
import torch


class Weighted(torch.nn.Module):
    def __init__(self, in_channels, hidden_channels, num_layers, out_channels, dropout):
        super().__init__()
        self.linear = torch.nn.Linear(in_channels, out_channels)

    def forward(self, x, edge_index, edge_weight):
        rows = self.linear(x)
        return torch.zeros_like(rows).index_add(0, edge_index[1], rows[edge_index[0]] * edge_weight[:, None])


class Unweighted(Weighted):
    def forward(self, x, edge_index):
        return self.linear(x)
"""


def test_a_model_of_ones_own_has_weights(data, tmp_path, shm, monkeypatch):
    (tmp_path / "weighted_models.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    result = train(data, tmp_path / "run", "--model", "weighted_models:Weighted", "--use-edge-weights")
    assert result.returncode == 0, result.stderr
    result = train(data, tmp_path / "other", "--model", "weighted_models:Unweighted", "--use-edge-weights")
    assert result.returncode == 1 and "expected a forward() that takes edge_weight" in result.stderr


def test_the_command_refuses_what_cannot_be(data, cora, tmp_path):
    options = ["--use-edge-weights", "--device", "cpu", "--out", tmp_path / "a", "--model"]
    refused(here("train", data, *options, "sage"), 1, "--model gcn or graphconv, which takes weights")
    refused(here("train", cora, *options, "gcn"), 1, "--weight-column")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--model", "gcn"], "edge weights are not used: --use-edge-weights passes them to the model"),
        (
            ["--model", "gcn", "--weight-attr", "edge_weight"],
            "edge weights are used for draws alone: --use-edge-weights",
        ),
        (["--model", "sage"], "edge weights are not used: --model sage takes none (gcn or graphconv can"),
        (["--model", "gcn", "--use-edge-weights"], None),
    ],
)
def test_a_run_says_that_it_does_not_use_weights(data, tmp_path, shm, options, said):
    result = train(data, tmp_path / "run", *options)
    assert result.returncode == 0, result.stderr
    told = result.stdout + result.stderr
    assert said in told if said else "edge weights are" not in told
