"""On a GPU, ``batch.x`` is a copy of rows of a pool, which later batches overwrite: batches stay what they were."""

from collections import deque

import numpy as np
import pytest
import torch

import cohort
import cohort.dataset
from cohort import LinkNeighborLoader, NeighborLoader
from cohort.trainer.bench.digest import digest

pytestmark = [
    pytest.mark.usefixtures("shm"),
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore:no MPS daemon"),
]

NUM_NODES = 6000
SEEDS = np.arange(0, NUM_NODES, 2)
CYCLES = 20_000_000  # for which a GPU sleeps: about 10 ms, in which a sampler builds many batches
ROOM = {"cache_ratio": 1.2, "topology": "gpu", "compress": "none"}  # for all rows as they are
POISONED = {"poison_slots": True}  # and rows of the pool, before they are written


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A graph of which a batch of 30 seeds has a small part, and all slots together have no half."""
    generator = torch.Generator().manual_seed(0)
    return cohort.from_tensors(
        tmp_path_factory.mktemp("pooled") / "data",
        x=torch.rand(NUM_NODES, 31, generator=generator),  # rows of no multiple of 16 bytes
        y=torch.randint(4, (NUM_NODES,), generator=generator),
        edge_index=torch.randint(NUM_NODES, (2, 60_000), generator=generator),
        train_ids=SEEDS,
    )


def loader_of(data, device="cuda", debug=POISONED, **options) -> NeighborLoader:
    options = {"num_slots": 3, "batch_size": 30, "shuffle": True} | options
    return NeighborLoader(data, [3, 2], SEEDS, device=device, seed=5, _debug=debug, **options)


def digests(loader, epochs: int = 2) -> list[str]:
    return [digest(batch) for _ in range(epochs) for batch in loader]


@pytest.fixture(scope="module")
def on_cpu(data):
    with loader_of(data, "cpu", {}) as loader:
        return digests(loader)


@pytest.mark.parametrize(
    ("options", "rows_in"),
    [
        ({}, "pool"),
        ({"num_slots": 2}, "pool"),
        ({"reuse": False}, "pool"),
        ({"cache_ratio": 0.3}, "pool"),
        ({"order": "asis"}, "pool"),
        ({"topology": "host"}, "pool"),
        (ROOM, "table"),
    ],
    ids=str,
)
def test_batches_are_those_of_the_cpu(data, on_cpu, options, rows_in):
    with loader_of(data, debug=POISONED | {"slow_fetch_us": 1000}, **options) as loader:
        assert loader._sampler.source.rows_in == rows_in
        assert digests(loader) == on_cpu
        recent = loader.stats().rows["recent"]
        assert recent > 0 if rows_in == "pool" and options.get("reuse", True) else recent == 0


def test_pairs_are_those_of_the_cpu(data):
    found = []
    for device in ("cpu", "cuda"):
        how = {"batch_size": 40, "shuffle": True, "seed": 2, "neg_sampling": "binary", "edge_ids": True}
        with LinkNeighborLoader(data, [3, 2], device=device, _debug=POISONED, **how) as loader:
            found.append([digest(batch) for batch, _ in zip(loader, range(100), strict=False)])
    assert found[0] == found[1]


@pytest.mark.parametrize("num_slots", [2, 4])
def test_held_batches_keep_their_rows(data, on_cpu, num_slots):
    """Views hold all slots but one, so the pool's rows are overwritten while batches that named them are in use."""
    held, seen = deque(maxlen=num_slots - 1), []
    rows = []  # of all batches, which outlive their slots
    with loader_of(data, num_slots=num_slots) as loader:
        for _ in range(2):
            for batch in loader:
                held.append((batch, batch.clone()))
                rows.append((batch.x, held[-1][1].x))
                seen.append(digest(batch))
                del batch
                for view, copy in held:
                    assert torch.equal(view.x, copy.x) and torch.equal(view.edge_index, copy.edge_index)
            held.clear()
        assert all(torch.equal(x, copy) for x, copy in rows)
    assert seen == on_cpu


def test_a_script_may_change_its_rows(data, on_cpu):
    seen = []
    with loader_of(data) as loader:
        for _ in range(2):
            for batch in loader:
                seen.append(digest(batch))
                batch.x.fill_(torch.nan)
                del batch
    assert seen == on_cpu


def test_rows_stay_until_they_are_copied(data, on_cpu):
    """The GPU comes to copy a batch's rows long after the loop has dropped the batch."""
    with loader_of(data, num_slots=2) as loader:
        kept = []
        for batch in loader:
            kept.append((batch.n_id, batch.x, batch.edge_index.clone(), batch.y))
            del batch
            torch.cuda._sleep(CYCLES)  # before the rows of the next batch are copied
        x = torch.from_numpy(np.array(cohort.dataset.open(data).x)).cuda()
        assert all(torch.equal(rows, x[n_id]) for n_id, rows, *_ in kept)
    assert len(kept) == len(on_cpu) // 2


def test_disjoint_batches_have_rows_in_their_slots(data):
    found = []
    for device in ("cpu", "cuda"):
        with loader_of(data, device, disjoint=True) as loader:
            assert loader._sampler.source.rows_in == "slots"
            found.append(digests(loader, 1))
    assert found[0] == found[1]
