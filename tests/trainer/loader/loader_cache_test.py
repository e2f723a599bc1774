"""NeighborLoader with a cache: the same batches; counts made on its own; what it refuses."""

import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from cohort_gnn import CohortError, NeighborLoader
from cohort_gnn.trainer.loader.arguments import cache_options, smallest_gpu

pytestmark = pytest.mark.usefixtures("shm")

SEEDS = np.arange(0, 300)


@pytest.fixture(scope="module")
def data(cora, tmp_path_factory):
    """Cora in a folder of its own, without counts."""
    folder = tmp_path_factory.mktemp("cached") / "cora"
    shutil.copytree(cora, folder, ignore=shutil.ignore_patterns("hotness-*"))
    return folder


def batches(data, **options) -> list:
    with NeighborLoader(data, [4, 3], SEEDS, batch_size=64, shuffle=True, device="cpu", seed=3, **options) as loader:
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


def test_auto_is_what_slots_and_the_script_leave_of_the_smallest_gpu(monkeypatch):
    sizes = {0: 50, 2: 40}
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda gpu: SimpleNamespace(total_memory=sizes[gpu]))
    options = cache_options("auto", None, "plan", "auto", np.int64(7))
    assert (options["cache_ratio"], options["trainer_bytes"]) == ("auto", 7) and smallest_gpu([0, 2]) == 40


@pytest.mark.gpu
def test_auto_on_a_gpu(data):
    peak = torch.cuda.get_device_properties(0).total_memory - 4_000_000_000
    options = {"cache_ratio": "auto", "trainer_bytes": peak, "seed": 3}
    with NeighborLoader(data, [4, 3], SEEDS, batch_size=64, shuffle=True, device="cuda", **options) as loader:
        found = [batch.clone() for batch in loader]
    for plain, cached in zip(batches(data), found, strict=True):
        assert torch.equal(plain.n_id, cached.n_id.cpu()) and torch.equal(plain.x, cached.x.cpu())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"cache_ratio": "much"}, "cache_ratio: expected numbers of at least 0"),
        ({"cache_ratio": -1}, "at least 0"),
        ({"cache_ratio": float("nan")}, "at least 0"),
        ({"cache_ratio": [0.1, 0.1]}, "one value, or 1"),
        ({"cache_bytes": 1.5}, "cache_bytes: expected bytes"),
        ({"cache_ratio": 0.1, "cache_bytes": 10}, "one of the two"),
        ({"cache_ratio": "auto"}, "trainer_bytes: a script's own peak of GPU memory is unknown"),
        ({"cache_ratio": "auto", "trainer_bytes": "2GB"}, "trainer_bytes: expected bytes"),
        ({"cache_ratio": "auto", "trainer_bytes": -1}, "trainer_bytes: expected bytes"),
        ({"cache_ratio": "auto", "trainer_bytes": 10**9}, "the GPU's memory is unknown"),
        ({"cache_ratio": 0.1, "cache_policy": "lru"}, "cache_policy: expected plan or degree or random or none"),
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
