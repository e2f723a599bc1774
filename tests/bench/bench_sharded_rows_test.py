"""bench/sharded_rows.py: several processes on this machine; what one says before it fails reaches the user."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

PROGRAM = Path(__file__).parents[2] / "bench/sharded_rows.py"


def measure(rows: Path, *options) -> subprocess.CompletedProcess:
    sizes = ["--gbits", 0, "--rows", rows, "--table-rows", 300, "--fetch", 40, "--rounds", 1, *options]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, PROGRAM, *map(str, sizes)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)


def some_rows(folder: Path) -> Path:
    np.save(folder / "rows.npy", np.random.default_rng(1).normal(size=(160, 8)).astype(np.float32))
    return folder / "rows.npy"


@pytest.mark.parametrize("ranks", [2, 3])
def test_both_kinds_of_rows_are_measured(tmp_path, ranks):
    done = measure(some_rows(tmp_path), "--ranks", ranks)
    assert done.returncode == 0, done.stderr
    lines = [line.split(" | ") for line in done.stdout.splitlines()[2:]]
    assert [line[:2] for line in lines] == [["| loopback", "float32"], ["| loopback", "bfloat16"]]
    assert all(float(rate.removesuffix(" |")) >= 0 for line in lines for rate in line[2:])


def test_what_a_process_says_before_it_fails_is_told(tmp_path):
    """Rows of a type that no process can read as numbers."""
    np.save(tmp_path / "rows.npy", np.array([["a", "b"]]))
    done = measure(tmp_path / "rows.npy")
    assert done.returncode == 1
    assert "rank 0 ended with status 1; it said:" in done.stderr and "can't convert np.ndarray" in done.stderr
    assert "sharded_rows.py: rank 0 has failed" in done.stderr


def test_rows_that_are_not_there_are_refused_at_once(tmp_path):
    done = measure(tmp_path / "none.npy")
    assert done.returncode == 2 and f"found no file {tmp_path / 'none.npy'}" in done.stderr
