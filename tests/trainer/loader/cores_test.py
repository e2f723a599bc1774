"""A loader on a CPU has waiting OpenMP threads of its script sleep, whatever the script has set or imported before."""

import json
import os
import subprocess
import sys

import pytest
from processes import ALL_TESTS

pytestmark = pytest.mark.usefixtures("shm")

COUNT = """
import ctypes, json, os, sys
import torch
torch.ones(1 << 20).add_(1)  # PyTorch's threads are there
from cohort_gnn import NeighborLoader

def threads():
    return len(os.listdir("/proc/self/task"))

def deaf():  # threads that SIGINT does not reach
    masks = [line for task in os.listdir("/proc/self/task") for line in open(f"/proc/self/task/{task}/status")
             if line.startswith("SigBlk")]
    return sum(int(line.split()[1], 16) >> 1 & 1 for line in masks)

counts, deaf_before = [threads()], deaf()
for _ in range(2):
    with NeighborLoader(sys.argv[1], [3], batch_size=50, device="cpu") as loader:
        next(iter(loader))
        counts.append(threads())
print(json.dumps({"counts": counts, "torch": torch.get_num_threads(), "deaf": deaf() - deaf_before}))
"""
MORE = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "OMP_NUM_THREADS")


@pytest.mark.fresh
@pytest.mark.parametrize(
    "variables",
    [{}, *[{"OMP_WAIT_POLICY": "passive"}, {"OMP_NUM_THREADS": "1"}, {"GOMP_SPINCOUNT": "7"}] * ALL_TESTS],
    ids=str,
)
def test_threads_are_more_than_cores(cora, variables):
    """By this GCC's library decides how long they spin. Where the user has said it, nothing is done."""
    env = {name: value for name, value in os.environ.items() if name not in MORE} | variables
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", COUNT, str(cora)], env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    (before, first, second), cores = said["counts"], len(os.sched_getaffinity(0))
    assert first == second, "once for a process"
    if {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & variables.keys():
        assert first == before
    else:
        team = max(2, cores - said["torch"] + 2)
        assert first == before + team and said["torch"] - 1 + team > cores
        assert said["deaf"] == team, "signals are the main thread's business"
