"""bench/accuracy_database.py: the generator knows the best score of a row, and R-SAGE in time nearly reaches it."""

import numpy as np
import pytest
from documents import ROOT, module
from processes import ALL_TESTS

bench = module(ROOT / "bench/accuracy_database.py")


def test_the_probability_of_trouble_is_that_of_the_recent_complaints():
    rng = np.random.default_rng(1)
    shape = 10 * bench.CUSTOMERS_OF_SHOP, bench.COMPLAINTS_OF_CUSTOMER
    days, weights = np.sort(rng.integers(bench.DAYS, size=shape)), rng.standard_normal(shape)
    shops, at = rng.integers(10, size=60), rng.integers(0, bench.DAYS, 60)
    for shop, today, found in zip(shops, at, bench.probabilities(shops, at, days, weights), strict=True):
        total = 0.0
        for customer in range(shop * bench.CUSTOMERS_OF_SHOP, (shop + 1) * bench.CUSTOMERS_OF_SHOP):
            past = [pair for pair in zip(days[customer], weights[customer], strict=True) if pair[0] <= today]
            total += sum(weight for day, weight in past[-bench.LATEST :] if today - day <= bench.WINDOW)
        assert found == pytest.approx(1 / (1 + np.exp(-1.2 * total / np.sqrt(bench.CUSTOMERS_OF_SHOP))))


@pytest.mark.skipif(not ALL_TESTS, reason="takes minutes: tests/run.sh --all runs it")
def test_a_model_in_time_nearly_reaches_the_best_possible(shm):
    assert bench.main(["--seeds", "1", "--only", "R-SAGE, in time"]) == 0
