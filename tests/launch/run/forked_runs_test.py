"""What tests start is forked (tests/warm.py), and computes what programs of users compute."""

import os
from pathlib import Path

import numpy as np
import pytest
import warm
from processes import ALL_TESTS, cohort
from resumable import results_of


@pytest.mark.skipif(not ALL_TESTS, reason="takes 20 s: tests/run.sh --all runs it")
def test_forked_runs_compute_what_fresh_ones_compute(cora, tmp_path, shm):
    """Digests of batches, weights, and results of a run of two ranks that samples, counts and plans."""
    found = []
    for fresh in ("", "1"):
        env = os.environ | {warm.FRESH: fresh}
        digests = cohort("digest", cora, "--device", "cpu", "--batches", 4, env=env)
        out = tmp_path / f"run{fresh}"
        options = ["--device", "cpu", "--ranks", 2, "--cache-ratio", 0.1, "--epochs", 2, "--hidden", 16, "--out", out]
        trained = cohort("train", cora, *options, env=env)
        scores = tmp_path / f"scores{fresh}.npy"
        predicted = cohort("predict", out, cora, "--device", "cpu", "--out", scores, env=env)
        for result in (digests, trained, predicted):
            assert result.returncode == 0, result.stderr
        found.append((digests.stdout, results_of(out), Path(scores).read_bytes()))
    assert found[0] == found[1] and len(found[0][0].splitlines()) == 4 and np.load(scores).any()
