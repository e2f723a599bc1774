"""On a GPU, ``batch.x`` is a copy of rows of a pool, which later batches overwrite: batches stay what they were."""

from collections import deque

import numpy as np
import pytest
import torch
from torch_geometric.data import HeteroData

import cohort_gnn as cohort
from cohort_gnn import LinkNeighborLoader, NeighborLoader
from cohort_gnn.trainer.bench.digest import digest

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


@pytest.mark.parametrize("options", [{}, {"num_slots": 2}, {"reuse": False}, {"cache_ratio": 0.3}], ids=str)
def test_disjoint_batches_are_those_of_the_cpu(data, options):
    """A node of several trees names one row several times."""
    found = []
    for device in ("cpu", "cuda"):
        how = options if device == "cuda" else {}
        with loader_of(data, device, POISONED | {"slow_fetch_us": 1000}, disjoint=True, **how) as loader:
            assert loader._sampler.source.rows_in == ("pool" if device == "cuda" else "slots")
            found.append(digests(loader))
    assert found[0] == found[1]


TYPES = {
    "paper": (4000, 31, np.float32),
    "author": (3000, 8, np.float16),
    "field": (40, 0, None),
    "inst": (500, 5, "u1"),
}
RELATIONS = [("paper", "paper"), ("author", "paper"), ("field", "paper"), ("paper", "author"), ("inst", "author")]


@pytest.fixture(scope="module")
def typed(tmp_path_factory):
    """Types with rows of several widths and dtypes, and one without; of the graph, a batch has a small part."""
    draw = np.random.default_rng(1)
    data = HeteroData()
    for name, (count, dim, dtype) in TYPES.items():
        data[name].num_nodes = count
        if dim:
            data[name].x = torch.from_numpy(draw.integers(0, 200, (count, dim)).astype(dtype))
    data["paper"].y = torch.from_numpy(draw.integers(0, 4, TYPES["paper"][0]))
    data["paper"].train_mask = torch.ones(TYPES["paper"][0], dtype=torch.bool)
    for source, target in RELATIONS:
        ends = [draw.integers(0, TYPES[name][0], 12_000) for name in (source, target)]
        data[source, "to", target].edge_index = torch.from_numpy(np.stack(ends))
    return cohort.from_pyg(data, tmp_path_factory.mktemp("typed") / "data")


def typed_batches(data, device="cuda", epochs=2, debug=POISONED, **options):
    """Of each batch all tensors, copied to the host."""
    options = {"num_slots": 3, "batch_size": 30, "shuffle": True, "seed": 5} | options
    with NeighborLoader(data, [3, 2], ("paper", SEEDS[:1000]), device=device, _debug=debug, **options) as loader:
        assert loader._sampler.source.rows_in == ("pool" if device == "cuda" else "slots")
        for _ in range(epochs):
            for batch in loader:
                yield {
                    (str(store._key), name): value.cpu().clone()
                    for store in batch.stores
                    for name, value in store.items()
                    if isinstance(value, torch.Tensor)
                }


@pytest.fixture(scope="module")
def typed_on_cpu(typed):
    return list(typed_batches(typed, "cpu", debug={}))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_slots": 2},
        {"reuse": False},
        {"cache_ratio": 0.3},
        {"cache_ratio": 1.5},
        {"order": "asis"},
        {"topology": "host"},
    ],
    ids=str,
)
def test_batches_of_several_types_are_those_of_the_cpu(typed, typed_on_cpu, options):
    count = 0
    for batch, wanted in zip(
        typed_batches(typed, debug=POISONED | {"slow_fetch_us": 1000}, **options), typed_on_cpu, strict=True
    ):
        assert batch.keys() == wanted.keys()
        for key, value in wanted.items():
            assert batch[key].dtype == value.dtype and torch.equal(batch[key], value), (count, key)
        count += 1
    assert count == 2 * -(-1000 // 30)


def test_held_batches_of_several_types_keep_their_rows(typed):
    held: deque = deque(maxlen=3)
    options = {"num_slots": 4, "batch_size": 30, "shuffle": True, "_debug": POISONED}
    with NeighborLoader(typed, [3, 2], ("paper", SEEDS[:1000]), device="cuda", **options) as loader:
        for batch in loader:
            held.append((batch, batch.clone()))
            del batch
            for view, copy in held:
                for name, (_, dim, _) in TYPES.items():
                    assert not dim or torch.equal(view[name].x, copy[name].x)
        found = loader.stats().rows["recent"]
    assert found > 0


def test_two_loaders_have_pools_of_their_own(data, typed, on_cpu, typed_on_cpu):
    """At once, on streams of their own."""
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    seen, of_types = [], []
    with loader_of(data) as loader:
        batches, typed_ones = iter(loader), typed_batches(typed, epochs=1)
        for _ in range(30):
            with torch.cuda.stream(streams[0]):
                seen.append(digest(next(batches)))
            with torch.cuda.stream(streams[1]):
                of_types.append(next(typed_ones))
        batches.close()
        typed_ones.close()
    assert seen == on_cpu[:30]
    for found, wanted in zip(of_types, typed_on_cpu, strict=False):
        assert all(torch.equal(found[key], value) for key, value in wanted.items())
