"""Random delays in the sampler and poisoned slots change nothing: every batch is bit-equal to an undisturbed run."""

from collections import deque

import pytest
import torch

import cohort_gnn as cohort
from cohort_gnn import NeighborLoader
from cohort_gnn.trainer.bench.digest import digest

pytestmark = pytest.mark.usefixtures("shm")

NUM_NODES = 3000
EPOCHS = 3
DISTURBED = {"slow_fetch_us": 3000, "poison_slots": True}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    generator = torch.Generator().manual_seed(0)
    edges = (torch.rand(2, 40_000, generator=generator) ** 2 * NUM_NODES).long()  # a few nodes have most neighbours
    return cohort.from_tensors(
        tmp_path_factory.mktemp("stress") / "data",
        x=torch.rand(NUM_NODES, 24, generator=generator),
        y=torch.randint(4, (NUM_NODES,), generator=generator),
        edge_index=edges,
    )


DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def loader_of(data, num_slots: int, debug: dict, device: str = "cpu") -> NeighborLoader:
    return NeighborLoader(
        data, [8, -1, 3], batch_size=100, shuffle=True, device=device, seed=5, num_slots=num_slots, _debug=debug
    )


def digests(loader) -> list[str]:
    return [digest(batch) for _ in range(EPOCHS) for batch in loader]


@pytest.fixture(scope="module")
def undisturbed(data):
    with loader_of(data, 3, {}) as loader:
        found = digests(loader)
    assert len(set(found)) == EPOCHS * NUM_NODES // 100
    return found


def unchanged(view, copy) -> bool:
    return torch.equal(view.x, copy.x) and torch.equal(view.edge_index, copy.edge_index)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("num_slots", [2, 3, 4, 5])
@pytest.mark.parametrize("holds", [False, True])
@pytest.mark.filterwarnings("ignore:no MPS daemon")
def test_every_batch_is_bit_equal_and_held_views_are_never_overwritten(data, undisturbed, holds, num_slots, device):
    """``holds``: as many batches as possible stay referenced while the sampler fills the one slot that is left."""
    seen = []
    held = deque(maxlen=num_slots - 1 if holds else 0)
    with loader_of(data, num_slots, DISTURBED, device) as loader:
        for _ in range(EPOCHS):
            held.clear()
            batch = None
            for batch in loader:
                assert all(unchanged(view, copy) for view, copy in held)
                if holds:
                    held.append((batch, batch.clone()))
                seen.append(digest(batch))
            assert all(unchanged(view, copy) for view, copy in held)
    assert seen == undisturbed


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:no MPS daemon")
def test_work_still_queued_reads_the_batch_it_was_given(data):
    """The host drops a batch long before the GPU gets to reading it; the slot must not be refilled until then."""
    sums, wanted = [], []
    with loader_of(data, 2, {"poison_slots": True}, "cuda") as loader:
        for batch in loader:
            torch.cuda._sleep(20_000_000)  # cycles: about 10 ms
            sums.append(batch.x.sum(dim=0) + batch.edge_index.sum())
            wanted.append(batch.n_id)
            del batch
        torch.cuda.synchronize()
    x = torch.from_numpy(cohort.dataset.open(data).x.copy()).cuda()
    with loader_of(data, 2, {}, "cpu") as loader:
        for found, n_id, batch in zip(sums, wanted, loader, strict=True):
            assert torch.equal(n_id.cpu(), batch.n_id)
            torch.testing.assert_close(found, x[n_id].sum(dim=0) + batch.edge_index.sum().item())
