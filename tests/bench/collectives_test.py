"""bench/ibp/collectives.py: its model and its measures of sizes, against numbers computed by hand."""

import numpy as np
import pytest
from documents import ROOT, module

bench = module(ROOT / "bench/ibp/collectives.py")


def test_the_slowest_or_the_sum():
    half = bench.Method("half", share=0.5, encode=100, decode=50)
    assert bench.gains(half, "all-to-all", 8, 80) == pytest.approx((0.1 / (0.05 + 0.01 + 0.02), 2))
    assert bench.gains(half, "all-to-all", 8, 800) == pytest.approx((0.01 / (0.005 + 0.03), 0.5))
    assert bench.gains(half, "all-gather", 3, 80) == pytest.approx((0.2 / (0.1 + 0.01 + 0.04), 2))
    assert bench.gains(half, "all-reduce", 4, 80) == pytest.approx((0.1 / 0.08, 2))
    hook = bench.Method("torch's hook", share=0.5, encode=100, decode=50)
    assert bench.gains(hook, "all-reduce", 4, 80) == pytest.approx((0.15 / (0.075 + 0.03), 2))


def test_sizes():
    steps = np.ones(256, np.int64)
    steps[200] = 3
    share = bench.packed_ids_share(np.concatenate(([0], np.cumsum(steps))))
    assert share == pytest.approx((128 * 1 / 8 + 128 * 2 / 8 + 2 * 9) / (256 * 8))
    same = np.tile(np.arange(32, dtype=np.float32), (64, 1))  # differences of all rows but the first are zero
    first = 32 * 4  # at most: bits of the first row's 32 words
    flags = 64 * 32 / 8
    assert flags / same.nbytes < bench.mpc_share(same) <= (first + flags) / same.nbytes
