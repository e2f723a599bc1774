"""What a loader takes from tensors in memory: a PyG Data, more about nodes, and a transform."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from cohort_gnn import CohortError, NeighborLoader
from cohort_gnn.channel.run_folder import shared_memory_root

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


def test_a_data_in_memory_is_read_as_pygs_loader_reads_it(shm):
    data = graph()
    with NeighborLoader(data, [3, 2], data.train_mask, batch_size=64, shuffle=True, device="cpu") as loader:
        seeds = []
        for batch in loader:
            for name in ("x", "y", "time", "train_mask"):
                assert torch.equal(batch[name], data[name][batch.n_id]), name
            edges = {tuple(edge) for edge in data.edge_index.T.tolist()}
            assert all(tuple(edge) in edges for edge in batch.n_id[batch.edge_index].T.tolist())
            seeds += batch.n_id[: batch.batch_size].tolist()
        assert sorted(seeds) == data.train_mask.nonzero().flatten().tolist()
        rest = loader.with_nodes(~data.train_mask, batch_size=10)
        assert torch.equal((batch := next(iter(rest))).time, batch.n_id)
    assert shm.runs() == []


def test_nothing_is_left_of_a_data_that_is_no_graph(shm):
    with pytest.raises(CohortError) as error:
        NeighborLoader(Data(x=torch.ones(2, 2)), [2], device="cpu")
    assert error.value.expected == "a Data with edge_index" and shm.runs() == []
    with pytest.raises(CohortError, match="batch_size"):
        NeighborLoader(graph(), [2], batch_size=0, device="cpu")
    assert shm.runs() == []


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
    ],
)
def test_other_tensors_are_refused(cora, shm, tensors, place, found):
    with pytest.raises(CohortError) as error:
        NeighborLoader(cora, [2], device="cpu", node_tensors=tensors)
    assert (error.value.place, error.value.found) == (place, found) and shm.runs() == []


def test_the_loop_gets_what_the_transform_returns(cora, shm):
    def double(batch):
        batch = batch.clone()
        batch.x *= 2
        return batch

    options = {"num_neighbors": [3], "batch_size": 1024, "device": "cpu"}
    with NeighborLoader(cora, **options) as plain, NeighborLoader(cora, transform=double, **options) as doubled:
        for batch, other in zip(plain, doubled, strict=True):
            assert torch.equal(other.x, 2 * batch.x)
        assert next(iter(doubled.with_nodes([1, 2]))).batch_size == 2


def test_duplicate_seeds_are_refused_with_a_cure(cora, shm):
    with pytest.raises(CohortError) as error:
        NeighborLoader(cora, [2], [5, 5, 6], device="cpu")
    assert error.value.found == "1 duplicates" and error.value.hint == "input_nodes.unique()"
