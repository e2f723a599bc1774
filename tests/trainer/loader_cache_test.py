"""NeighborLoader with a cache: the same batches; counts made on its own; what it refuses."""

import shutil

import numpy as np
import pytest
import torch

from cohort import CohortError, NeighborLoader

pytestmark = pytest.mark.usefixtures("shm")

SEEDS = np.arange(0, 300)


@pytest.fixture(scope="module")
def data(cora, tmp_path_factory):
    """Cora in a folder of its own, without counts."""
    folder = tmp_path_factory.mktemp("cached") / "cora"
    shutil.copytree(cora, folder, ignore=shutil.ignore_patterns("hotness-*"))
    return folder


def batches(data, **options) -> list:
    with NeighborLoader(data, [4, 3], 64, SEEDS, shuffle=True, device="cpu", seed=3, **options) as loader:
        return [batch.clone() for batch in loader]


@pytest.mark.parametrize(
    "options",
    [
        {"cache_ratio": 0.1},
        {"cache_bytes": [500_000], "cache_policy": "degree"},
        {"cache_ratio": np.array([0.2]), "cache_policy": "random", "cliques": "none", "order": "asis"},
        {"cache_ratio": 1, "cache_policy": "none", "compress": "none"},
    ],
    ids=str,
)
def test_a_cache_does_not_change_a_batch(data, options):
    for plain, cached in zip(batches(data), batches(data, **options), strict=True):
        for name in ("n_id", "edge_index", "x", "y", "input_id"):
            assert torch.equal(plain[name], cached[name])


def test_counts_are_made_once_of_the_training_seeds(data):
    for file in data.glob("hotness-*"):
        file.unlink()
    batches(data, cache_ratio=0.1)
    (file,) = data.glob("hotness-*")
    made = file.stat().st_mtime_ns
    batches(data, cache_ratio=0.2)
    assert [path.stat().st_mtime_ns for path in data.glob("hotness-*")] == [made]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"cache_ratio": "much"}, "cache_ratio: expected a number"),
        ({"cache_ratio": -1}, "at least 0"),
        ({"cache_ratio": float("nan")}, "at least 0"),
        ({"cache_ratio": [0.1, 0.1]}, "one value, or 1"),
        ({"cache_bytes": 1.5}, "cache_bytes: expected a number"),
        ({"cache_ratio": 0.1, "cache_bytes": 10}, "one of the two"),
        ({"cache_ratio": 0.1, "cache_policy": "lru"}, "cache policy: expected plan, degree, random, none"),
        ({"cache_ratio": 0.1, "cliques": "3+5"}, "expected 1 GPUs in all"),
        ({"order": "random"}, "order: expected address or asis"),
        ({"compress": "host"}, "encoded rows"),
    ],
    ids=str,
)
def test_a_cache_that_makes_no_sense_is_refused(data, options, words):
    with pytest.raises(CohortError) as error:
        batches(data, **options)
    assert words in str(error.value)
