"""NeighborLoader.stats(): the wait of a loop of one's own, and what its batches read."""

import time

import numpy as np
import pytest

from cohort_gnn import NeighborLoader

pytestmark = pytest.mark.usefixtures("shm")

STEP_SECONDS = 0.02


@pytest.fixture
def loader(cora):
    with NeighborLoader(cora, [5, 5], np.arange(300), batch_size=64, device="cpu") as loader:
        yield loader


def test_an_epoch_is_measured(loader):
    for epoch in range(2):
        nodes = 0
        begin = time.monotonic()
        for batch in loader:
            nodes += batch.num_nodes
            time.sleep(STEP_SECONDS)
        seconds = time.monotonic() - begin
        stats = loader.stats()
        assert (stats.epoch, stats.batches) == (epoch, 5)
        assert stats.busy_seconds >= 5 * STEP_SECONDS and stats.wait_seconds > 0
        assert stats.wait_seconds + stats.busy_seconds <= seconds
        assert stats.rows == {"local": 0, "peer": 0, "host": nodes, "recent": 0, "disk": 0, "remote": 0}
        assert stats.bytes == {"local": 0, "peer": 0, "host": nodes * 1433 * 4, "recent": 0, "disk": 0, "remote": 0}
        assert stats.hit_rate == 0


def test_a_loop_that_runs_or_was_broken_off_is_measured_so_far(loader):
    assert (loader.stats().batches, loader.stats().busy_seconds) == (0, 0)
    for number, _ in enumerate(loader, 1):
        time.sleep(STEP_SECONDS)
        assert loader.stats().batches == number
        assert loader.stats().busy_seconds >= (number - 1) * STEP_SECONDS
        if number == 3:
            break
    assert loader.stats().batches == 3


def test_loaders_of_one_sampler_are_measured_apart(loader):
    other = loader.with_nodes(np.arange(100))
    assert [len(list(map(len, each))) for each in (loader, other)] == [5, 2]
    assert (loader.stats().batches, other.stats().batches) == (5, 2)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:no MPS daemon")
def test_on_a_gpu_the_work_of_its_stream_is_measured(cora):
    import torch

    with NeighborLoader(cora, [5, 5], np.arange(300), batch_size=64, device="cuda", cache_ratio=1.1) as loader:
        for batch in loader:
            assert batch.x.is_cuda
            torch.cuda._sleep(20_000_000)  # cycles: about 10 ms
        stats = loader.stats()
        assert stats.busy_seconds > 5 * 0.005 and stats.hit_rate == 1 and stats.rows["local"] > 0
