"""Views of a batch on other CUDA streams than the one that was current when it came."""

import copy

import numpy as np
import pytest
import torch

from cohort_gnn import CohortError, NeighborLoader
from cohort_gnn.dataset import open as open_dataset
from cohort_gnn.trainer.loader import batch as loader_batch
from cohort_gnn.trainer.loader.source import record_stream

pytestmark = pytest.mark.usefixtures("shm")

CYCLES = 100_000_000  # for which a GPU sleeps: about 50 ms, in which a sampler builds many batches
VIEWS = ["edge_index", "indptr", "x"]


def loader_of(data, device="cpu", **options) -> NeighborLoader:
    return NeighborLoader(data, [5, 5], None, batch_size=128, device=device, num_slots=2, **options)


def test_on_the_cpu_nothing_is_done(cora):
    with loader_of(cora) as loader:
        seeds = 0
        for batch in loader:  # more than there are slots
            assert batch.record_stream(None) is batch
            batch.record_stream(torch.cpu.Stream())
            batch.record_stream(None, "x")
            seeds += batch.batch_size
        assert seeds == 2708
        del batch
        for slot in loader._sampler.source.slots(loader._sampler.source.request(0, [5], 128)):
            record_stream(slot, None)


OF_TORCH, OF_ITS_GPU = "a stream of torch, or None", "a torch.cuda.Stream of cuda:0"


@pytest.mark.parametrize(
    ("device", "stream", "expected"),
    [
        *(("cpu", stream, OF_TORCH) for stream in ("cuda:0", 0, 140_000_000, torch.cuda.Stream)),
        *(pytest.param("cuda", stream, OF_ITS_GPU, marks=pytest.mark.gpu) for stream in (None, 0, torch.cpu.Stream())),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_what_is_no_stream_is_refused(cora, device, stream, expected):
    with loader_of(cora, device) as loader:
        batch = next(iter(loader))
        with pytest.raises(CohortError) as refused:
            batch.record_stream(stream)
        assert (refused.value.place, refused.value.expected) == ("record_stream", expected)
        assert device == "cuda" or refused.value.found == repr(stream)


def test_the_slot_is_told_of_views_and_not_of_copies(cora, monkeypatch):
    told = []
    monkeypatch.setattr(loader_batch, "record_stream", lambda slot, stream: told.append((slot, stream)))
    with loader_of(cora) as loader:
        batch = next(iter(loader))
        for same in (batch, copy.copy(batch)):
            told.clear()
            same.record_stream(None)
            assert len(told) == len(VIEWS) and {stream for _, stream in told} == {None}
        told.clear()
        batch.record_stream(None, "y", "n_id", "input_id", "batch_size")
        for other in (batch.clone(), copy.deepcopy(batch)):
            other.record_stream(None)
        batch.x, batch.edge_index, batch.indptr = (batch[name].clone() for name in ("x", "edge_index", "indptr"))
        batch.record_stream(None)
        assert told == []


def test_a_batch_holds_its_slot_by_views_alone(cora):
    with loader_of(cora) as loader:
        kept = []
        for batch in loader:
            for name in VIEWS:
                del batch[name]
            kept.append(batch)
            batch.record_stream(None)
        assert len(kept) == len(loader) > 2


@pytest.mark.gpu
def test_a_slow_stream_reads_the_batch_that_it_was_given(cora):
    x = open_dataset(cora).x
    side, seen = torch.cuda.Stream(), []
    with loader_of(cora, "cuda") as loader:
        for batch in loader:
            side.wait_stream(torch.cuda.current_stream())
            batch.record_stream(side)
            with torch.cuda.stream(side):
                torch.cuda._sleep(CYCLES)
                seen.append((batch.n_id.clone(), batch.x.clone(), batch.edge_index.clone()))
            del batch
        torch.cuda.synchronize()
        loader.epoch = 0
        for (n_id, rows, edges), again in zip(seen, loader, strict=True):
            assert torch.equal(n_id, again.n_id) and torch.equal(edges, again.edge_index)
            assert np.array_equal(rows.cpu().numpy(), x[n_id.cpu().numpy()])


@pytest.mark.gpu
def test_views_of_a_closed_loader_stay_valid_and_end_in_silence(cora):
    """Their slot is given back to nobody: CUDA's events are gone with the sampler."""
    loader = loader_of(cora, "cuda")
    batch = next(iter(loader))
    batch.record_stream(torch.cuda.Stream())
    loader.close()
    assert np.array_equal(batch.x.cpu().numpy(), open_dataset(cora).x[batch.n_id.cpu().numpy()])
    del batch
    torch.cuda.synchronize()
    assert torch.cuda.current_stream().query()
