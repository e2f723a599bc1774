"""What a loader takes from tensors in memory: a PyG Data, more about nodes, and a transform."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData

from cohort_gnn import CohortError, LinkNeighborLoader, NeighborLoader
from cohort_gnn.base.machine import shared_memory_root

NUM_NODES = 500


def graph() -> Data:
    generator = torch.Generator().manual_seed(0)
    return Data(
        x=torch.randn(NUM_NODES, 8, generator=generator),
        edge_index=torch.randint(NUM_NODES, (2, 4000), generator=generator),
        y=torch.rand(NUM_NODES, 3, generator=generator),
        time=torch.arange(NUM_NODES),
        train_mask=torch.rand(NUM_NODES, generator=generator) < 0.5,
    )


def test_nothing_is_left_of_a_data_that_is_no_graph(shm):
    with pytest.raises(CohortError) as error:
        NeighborLoader(Data(x=torch.ones(2, 2)), [2], device="cpu")
    assert error.value.expected == "a Data with edge_index" and shm.runs() == []
    with pytest.raises(CohortError, match="batch_size"):
        NeighborLoader(graph(), [2], batch_size=0, device="cpu")
    assert shm.runs() == []


def typed_graph() -> HeteroData:
    """Users buy items; items have features and labels, users times, and edges one number each."""
    generator = torch.Generator().manual_seed(1)
    data = HeteroData()
    data["user"].num_nodes = 200
    data["user"].time = torch.arange(200)
    data["item"].x = torch.randn(300, 6, generator=generator)
    data["item"].y = torch.rand(300, 2, generator=generator)
    pairs = torch.randperm(200 * 300, generator=generator)[:3000]
    ends = torch.stack([pairs // 300, pairs % 300])
    data["user", "buys", "item"].edge_index = ends
    data["user", "buys", "item"].edge_attr = torch.arange(3000.0)
    data["item", "bought_by", "user"].edge_index = ends.flip(0)
    return data


def test_a_hetero_data_in_memory_may_have_more_rows(shm):
    data, more = typed_graph(), {"user": {"age": torch.arange(200)}}
    del data["item"].y
    with NeighborLoader(data, [3, 2], "item", device="cpu", node_tensors=more) as loader:
        for batch in (next(iter(loader)), next(iter(loader.with_nodes("user", batch_size=50)))):
            assert "y" not in batch["item"] and torch.equal(batch["item"].x, data["item"].x[batch["item"].n_id])
            assert torch.equal(batch["user"].age, batch["user"].n_id)
        assert batch["user"].batch_size == 50
    assert shm.runs() == []


@pytest.mark.parametrize("of_type", [True, False])
def test_pairs_that_are_edges_of_a_graph_in_memory_are_in_its_order(shm, of_type):
    """Labels and times, which its user has in this order, would be those of other pairs."""
    hetero, name = typed_graph(), ("user", "buys", "item")
    ends, half, label = hetero[name].edge_index, torch.arange(2999, 0, -2), torch.arange(3000)
    data = hetero if of_type else Data(x=torch.ones(300, 1), edge_index=ends)
    every, some = ((name, None), (name, half)) if of_type else (None, half)
    with LinkNeighborLoader(data, [2], every, label, device="cpu", batch_size=3000) as loader:
        for part, used in ((loader, label), (loader.with_edges(some, half), half)):
            (batch,) = part
            pairs = batch[name] if of_type else batch
            source, target = pairs.edge_label_index
            n_id = [batch[end].n_id for end in name[::2]] if of_type else [batch.n_id] * 2
            assert torch.equal(pairs.edge_label, used)
            assert torch.equal(torch.stack([n_id[0][source], n_id[1][target]]), ends[:, used])


@pytest.mark.parametrize("neg_sampling", [None, "binary"])
def test_as_many_labelled_pairs_as_nodes_are_no_attribute_of_nodes(shm, neg_sampling):
    data = graph()
    data.edge_label_index, data.edge_label = data.edge_index[:, :NUM_NODES], torch.ones(NUM_NODES)
    how = {"edge_label_index": data.edge_label_index, "edge_label": data.edge_label, "neg_sampling": neg_sampling}
    with LinkNeighborLoader(data, [2], batch_size=50, device="cpu", **how) as loader:
        for batch in loader:
            assert len(batch.edge_label) == batch.edge_label_index.shape[1]
    assert shm.runs() == []


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (lambda data: data["user", "buys", "item"].update({"edge_index": None}), "edge_index of user, buys, item"),
        (lambda data: data["user"].update({"num_nodes": 5}), "edge_index"),
    ],
    ids=["edges", "nodes"],
)
def test_nothing_is_left_of_a_hetero_data_that_is_no_graph(shm, change, place):
    data = typed_graph()
    change(data)
    with pytest.raises(CohortError) as error:
        NeighborLoader(data, [2], "item", device="cpu")
    assert place in str(error.value) and shm.runs() == []
    for options, named in (({"input_nodes": "shop"}, "input_nodes"), ({"time_attr": "when"}, "time_attr")):
        with pytest.raises(CohortError) as error:
            NeighborLoader(typed_graph(), [2], **({"input_nodes": "item"} | options), device="cpu")
        assert error.value.place == named and shm.runs() == []


def test_several_ranks_share_a_folder(shm, monkeypatch):
    for name, value in {"RANK": 0, "WORLD_SIZE": 2, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 2}.items():
        monkeypatch.setenv(name, str(value))
    with pytest.raises(CohortError) as error:
        NeighborLoader(graph(), [2], device="cpu")
    assert error.value.found == "a PyG Data" and "cohort.from_pyg" in error.value.hint and shm.runs() == []


def test_the_next_run_removes_what_a_killed_script_left(shm, cora):
    script = """
import os, signal, torch
from torch_geometric.data import Data
from cohort_gnn import NeighborLoader
loader = NeighborLoader(Data(x=torch.ones(9, 2), edge_index=torch.zeros(2, 9, dtype=torch.int64)), [2], device="cpu")
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", script]).returncode < 0
    with NeighborLoader(cora, [2], device="cpu"):
        assert len(list(shared_memory_root().glob("run-*/data"))) == 0


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_batches_have_rows_of_other_tensors(cora, shm, device):
    time = torch.arange(2708).to(device)
    score = torch.rand(2708, 2)
    with NeighborLoader(
        cora, [3, 2], batch_size=512, device=device, node_tensors={"time": time, "score": score}
    ) as loader:
        for batch in loader:
            assert torch.equal(batch.time, batch.n_id) and batch.score.device == batch.x.device
            assert torch.equal(batch.score.cpu(), score[batch.n_id.cpu()])


@pytest.mark.parametrize(
    ("tensors", "place", "found"),
    [
        ({"time": torch.ones(3)}, "node_tensors['time']", "shape [3]"),
        ({"time": np.ones(2708)}, "node_tensors['time']", "ndarray"),
        ({"x": torch.ones(2708)}, "node_tensors['x']", "'x'"),
        ({"edge_label_time": torch.ones(2708)}, "node_tensors['edge_label_time']", "'edge_label_time'"),
        (torch.ones(2708), "node_tensors", "Tensor"),
    ],
)
def test_other_tensors_are_refused(cora, shm, tensors, place, found):
    with pytest.raises(CohortError) as error:
        NeighborLoader(cora, [2], device="cpu", node_tensors=tensors)
    assert (error.value.place, error.value.found) == (place, found) and shm.runs() == []
