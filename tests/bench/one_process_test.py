"""The training loop in one process of bench/one_process.py: its batches, and that it learns."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import cohort_gnn as cohort
from cohort_gnn import NeighborLoader

BUILD = Path(cohort.__file__).parents[2]
BENCH = Path(__file__).resolve().parents[2] / "bench/one_process.py"
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.fixture
def one_process(monkeypatch):
    """The class, from the build."""
    monkeypatch.syspath_prepend(str(BUILD / "bench"))
    from one_process_native import OneProcess

    return OneProcess


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.usefixtures("shm")
def test_its_batches_are_those_of_the_sampler(cora, tmp_path, one_process, device):
    (tmp_path / "run.json").write_text(
        json.dumps({"sampler": {"dataset": str(cora), "channel": str(tmp_path), "device": device, "seed": 5}})
    )
    sampler = one_process(str(tmp_path / "run.json"), 2)
    seeds = np.array(cohort.dataset.open(cora).train_ids)[:60]
    names = ("x", "y", "n_id", "edge_index", "indptr")
    with NeighborLoader(cora, [5, 3], seeds, batch_size=20, device=device, seed=5) as loader:
        for step, batch in enumerate(loader):
            positions = np.arange(20 * step, 20 * step + 20)
            nodes, edges = sampler.sample(seeds[positions], [5, 3], 0, step)
            assert (nodes, edges) == (batch.num_sampled_nodes, batch.num_sampled_edges)
            sampler.fetch(step % 2, positions)
            while not sampler.finished():
                pass
            found = sampler.arrays(step % 2)
            if device == "cuda":
                found["x"] = sampler.rows().index_select(0, found["row_index"])
            assert all(torch.equal(found[name], batch[name]) for name in names)
            assert sampler.fetch_seconds() > 0


@pytest.mark.parametrize("device", DEVICES)
def test_it_learns(cora, tmp_path, device):
    arguments = ["--device", device, "--fanout", "5,3", "--batch-size", 40, "--hidden", 16, "--epochs", 3]
    command = [sys.executable, str(BENCH), str(cora), *map(str, arguments), "--out", str(tmp_path / "lines.jsonl")]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    assert result.returncode == 0, result.stderr
    losses = [float(line.rpartition(" ")[2]) for line in result.stdout.splitlines() if line.startswith("epoch ")]
    assert len(losses) == 3 and losses[2] < losses[0] < 2.5
    (line,) = map(json.loads, (tmp_path / "lines.jsonl").read_text().splitlines())
    assert line["bench"] == "one_process" and line["edges"] > 0 and line["seconds"] > 0
