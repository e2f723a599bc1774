"""On a GPU, ``batch.x`` is a copy of rows of a pool, which later batches overwrite: batches stay what they were."""

from collections import deque

import numpy as np
import pytest
import torch
from batches import expect_same
from torch_geometric.data import HeteroData

import cohort_gnn as cohort
from cohort_gnn import LinkNeighborLoader, NeighborLoader
from cohort_gnn.trainer.bench.digest import digest

pytestmark = [pytest.mark.usefixtures("shm"), pytest.mark.gpu, pytest.mark.filterwarnings("ignore:no MPS daemon")]

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


def loader_of(data, seeds=SEEDS, device="cuda", debug=POISONED, **options) -> NeighborLoader:
    options = {"num_slots": 3, "batch_size": 30, "shuffle": True} | options
    return NeighborLoader(data, [3, 2], seeds, device=device, seed=5, _debug=debug, **options)


def tensors_of(batch) -> dict:
    """Copies in host memory."""
    of_stores = ((str(store._key), store.items()) for store in batch.stores)
    tensors = ((key, name, value) for key, items in of_stores for name, value in items if torch.is_tensor(value))
    return {(key, name): value.cpu().clone() for key, name, value in tensors}


def passes(loader, epochs: int = 2) -> list[dict]:
    return [tensors_of(batch) for _ in range(epochs) for batch in loader]


def expect_all(found: list[dict], expected: list[dict]) -> None:
    for number, (batch, wanted) in enumerate(zip(found, expected, strict=True)):
        assert batch.keys() == wanted.keys()
        for key, value in wanted.items():
            assert batch[key].dtype == value.dtype and torch.equal(batch[key], value), (number, key)


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


@pytest.fixture(scope="module")
def graph_of(data, typed):
    """graph_of(name): (data set, seeds, the batches of two epochs on the CPU), made once."""
    graphs, found = {"one type": (data, SEEDS), "several types": (typed, ("paper", SEEDS[:1000]))}, {}

    def graph(name: str):
        if name not in found:
            with loader_of(*graphs[name], device="cpu", debug={}) as loader:
                found[name] = passes(loader)
        return *graphs[name], found[name]

    return graph


PLACES = [{}, {"num_slots": 2}, {"reuse": False}, {"cache_ratio": 0.3}, {"order": "asis"}, {"topology": "host"}]
CASES = [(name, options, "pool") for name in ("one type", "several types") for options in PLACES]
CASES += [("one type", ROOM, "table"), ("several types", {"cache_ratio": 1.5}, "pool")]


@pytest.mark.parametrize(("name", "options", "rows_in"), CASES, ids=str)
def test_batches_are_those_of_the_cpu(graph_of, name, options, rows_in):
    *graph, on_cpu = graph_of(name)
    with loader_of(*graph, debug=POISONED | {"slow_fetch_us": 1000}, **options) as loader:
        assert loader._sampler.source.rows_in == rows_in
        expect_all(passes(loader), on_cpu)
        recent = loader.stats().rows["recent"]
        assert name != "one type" or (recent > 0) == (rows_in == "pool" and options.get("reuse", True))


def test_pairs_are_those_of_the_cpu(data):
    found = []
    for device in ("cpu", "cuda"):
        how = {"batch_size": 40, "shuffle": True, "seed": 2, "neg_sampling": "binary", "edge_ids": True}
        with LinkNeighborLoader(data, [3, 2], device=device, _debug=POISONED, **how) as loader:
            found.append([digest(batch) for batch, _ in zip(loader, range(100), strict=False)])
    assert found[0] == found[1]


@pytest.mark.parametrize(("name", "num_slots"), [("one type", 2), ("one type", 4), ("several types", 4)])
def test_held_batches_keep_their_rows(graph_of, name, num_slots):
    """Views hold all slots but one, so the pool's rows are overwritten while batches that named them are in use."""
    *graph, on_cpu = graph_of(name)
    held, seen = deque(maxlen=num_slots - 1), []
    rows = []  # of all batches, which outlive their slots
    with loader_of(*graph, num_slots=num_slots) as loader:
        for _ in range(2):
            for batch in loader:
                copy = batch.clone()
                held.append((batch, copy))
                rows += [(store.x, of.x) for store, of in zip(batch.stores, copy.stores, strict=True) if "x" in store]
                seen.append(tensors_of(batch))
                del batch
                for view, copy in held:
                    expect_same(view, copy)
            held.clear()
        assert all(torch.equal(x, copy) for x, copy in rows)
        assert name == "one type" or loader.stats().rows["recent"] > 0
    expect_all(seen, on_cpu)


def test_a_script_may_change_its_rows(graph_of):
    *graph, on_cpu = graph_of("one type")
    seen = []
    with loader_of(*graph) as loader:
        for _ in range(2):
            for batch in loader:
                seen.append(tensors_of(batch))
                batch.x.fill_(torch.nan)
                del batch
    expect_all(seen, on_cpu)


def test_rows_stay_until_they_are_copied(data):
    """The GPU comes to copy a batch's rows long after the loop has dropped the batch."""
    with loader_of(data, num_slots=2) as loader:
        kept = []
        for batch in loader:
            kept.append((batch.n_id, batch.x, batch.edge_index.clone(), batch.y))
            del batch
            torch.cuda._sleep(CYCLES)  # before the rows of the next batch are copied
        x = torch.from_numpy(np.array(cohort.dataset.open(data).x)).cuda()
        assert all(torch.equal(rows, x[n_id]) for n_id, rows, *_ in kept)
    assert len(kept) == len(SEEDS) // 30


@pytest.mark.parametrize("options", [{}, {"num_slots": 2}, {"reuse": False}, {"cache_ratio": 0.3}], ids=str)
def test_disjoint_batches_are_those_of_the_cpu(data, options):
    """A node of several trees names one row several times."""
    found = []
    for device in ("cpu", "cuda"):
        how = options if device == "cuda" else {}
        how = how | {"device": device, "debug": POISONED | {"slow_fetch_us": 1000}}
        with loader_of(data, disjoint=True, **how) as loader:
            assert loader._sampler.source.rows_in == ("pool" if device == "cuda" else "slots")
            found.append(passes(loader))
    expect_all(*found)


def test_two_loaders_have_pools_of_their_own(graph_of):
    """At once, on streams of their own."""
    graphs = [graph_of(name) for name in ("one type", "several types")]
    streams, seen = [torch.cuda.Stream(), torch.cuda.Stream()], ([], [])
    with loader_of(*graphs[0][:2]) as one, loader_of(*graphs[1][:2]) as several:
        batches = [iter(one), iter(several)]
        for _ in range(30):
            for which in range(2):
                with torch.cuda.stream(streams[which]):
                    seen[which].append(tensors_of(next(batches[which])))
        for each in batches:
            each.close()
    for found, (*_, on_cpu) in zip(seen, graphs, strict=True):
        expect_all(found, on_cpu[:30])
