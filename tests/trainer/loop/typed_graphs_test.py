"""Batches of several types that are padded for a CUDA graph bring what they bring as they are."""

import contextlib
import gc
import itertools
import weakref
from dataclasses import replace

import pytest
import torch
from processes import ran

import cohort_gnn as package
from cohort_gnn.nn.block import Block
from cohort_gnn.nn.inputs import IndexedRows
from cohort_gnn.trainer.loader.batch import HeteroBatch, batch_of
from cohort_gnn.trainer.loop import graphs as step_graphs
from cohort_gnn.trainer.loop.graphs import graphs_for
from cohort_gnn.trainer.loop.inputs import Inputs, Sizes
from cohort_gnn.trainer.loop.seeds import SeedSlot
from cohort_gnn.trainer.loop.step import Scores, TrainStep, adam
from cohort_gnn.trainer.models.typed import TypedGNN

SEEDS = 64
KINDS = ["rsage", "rgcn", "rgat", "hgt"]


@pytest.fixture(scope="module", params=[[], ["--all-features"]], ids=["papers have features", "all have"])
def graph(tmp_path_factory, request):
    folder = tmp_path_factory.mktemp("typed") / "graph"
    size = ["--nodes", 3000, "--edges", 20000, "--dim", 12]
    ran("dataset", "generate", folder, "--kind", "typed", *size, *request.param)
    return package.dataset.open(folder)


@pytest.fixture(scope="module")
def half_graph(tmp_path_factory):
    """All node types have features of float16, so many that kernels of attention read them in the pool."""
    folder = tmp_path_factory.mktemp("typed") / "half"
    size = ["--nodes", 3000, "--edges", 20000, "--dim", 32, "--dtype", "float16", "--all-features"]
    ran("dataset", "generate", folder, "--kind", "typed", *size)
    return package.dataset.open(folder)


@contextlib.contextmanager
def opened(graph, device: str, fanout=(4, 3)):
    """The rows that slots name, and the slots of a pass over the training nodes."""
    seeds = (graph.target, graph.train_ids)
    with package.NeighborLoader(graph, list(fanout), seeds, batch_size=SEEDS, shuffle=True, device=device) as loader:
        source = loader._sampler.source
        which = source.request(loader._seed_set, loader._fanout, SEEDS, shuffle=True)
        yield loader._sampler.rows, (slot for slot in source.slots(which) if slot.num_seeds == SEEDS)


def slots_of(graph, fanout=(4, 3)):
    """A few slots of a pass on the CPU, which have rows."""
    with opened(graph, "cpu", fanout) as (_, slots):
        yield from itertools.islice(slots, 5)


class Pooled:
    """A slot on the CPU as if its rows were in pools, `all_rows`, among rows of no batch."""

    def __init__(self, slot, num_types: int):
        self._slot, self.all_rows, self._row_indices, self.has_left = slot, [], [], False
        for number in range(num_types):
            table = slot.table(number)
            count = 0 if table is None else len(table)
            self._row_indices.append(
                torch.randperm(2 * count + 3, generator=torch.Generator().manual_seed(number))[:count]
            )
            if table is not None:
                table = table.new_full((2 * count + 3, table.shape[1]), torch.nan).index_copy(
                    0, self._row_indices[-1], table
                )
            self.all_rows.append(table)

    def __getattr__(self, name: str):
        return getattr(self._slot, name)

    def table(self, number: int):
        raise AssertionError("slots have no rows")

    def row_index_of(self, number: int) -> torch.Tensor:
        return self._row_indices[number]

    def leave_rows(self) -> None:
        self.has_left = True


def model_of(kind: str, graph, dropout=0.0, num_layers=2, types=None, hidden=16, **shape) -> TypedGNN:
    torch.manual_seed(1)
    return TypedGNN(kind, types or graph.types, hidden, graph.num_classes, num_layers, dropout, **shape)


def with_edge_features(graph, folder):
    """The graph as a data set whose edges have features, of another width in every second relation, and its types."""
    data, generator, dims = graph.to_pyg(), torch.Generator().manual_seed(4), []
    for number, name in enumerate(graph.edge_types):
        dims.append(3 + 2 * (number % 2))
        data[name].edge_attr = torch.randn(graph.edge_types[name].num_edges, dims[-1], generator=generator)
    return package.dataset.open(package.from_pyg(data, folder)), replace(graph.types, edge_dims=dims)


def graphs_of(step, types):
    """Those of steps on the CPU, on batches that have rows."""
    return graphs_for(step, torch.device("cpu"), types, None, lambda rows: False)


def demand_in_bounds(block: Block) -> None:
    """Every edge that a kernel may read names a row that there is."""
    assert block.indptr[0] == 0 and (block.indptr.diff() >= 0).all()
    assert len(block.indptr) == block.num_targets + 1 and block.indptr[-1] <= len(block.source)
    read = block.source[: block.indptr[-1]]
    assert len(read) == 0 or (0 <= read.min() and read.max() < block.num_sources)


@pytest.mark.parametrize("shape", [{}, {"norm": "layer"}], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_a_padded_batch_has_the_same_scores_and_gradients(graph, shm, kind, shape):
    compare_padded(graph, kind, shape, (4, 3))


@pytest.mark.parametrize("graph", [["--all-features"]], ids=["all have"], indirect=True)
@pytest.mark.parametrize("kind", KINDS)
def test_a_padded_batch_of_three_hops_reads_no_edge_of_the_next_hop(graph, shm, kind):
    compare_padded(graph, kind, {}, (3, 3, 2))


@pytest.mark.parametrize("graph", [["--all-features"]], ids=["all have"], indirect=True)
def test_a_padded_batch_has_room_for_the_features_of_edges(graph, shm, tmp_path):
    graph, types = with_edge_features(graph, tmp_path / "set")
    compare_padded(graph, "rgat", {}, (4, 3), types)


@pytest.mark.parametrize("amp", [False, True], ids=["float32", "amp"])
@pytest.mark.parametrize("kind", KINDS)
def test_features_of_16_bits_count_in_a_padded_batch_as_in_others(half_graph, shm, kind, amp):
    graph, dtypes = half_graph, set()
    model = model_of(kind, graph)
    scores, exact = (Scores(model, with_amp, keep_half=True, types=graph.types) for with_amp in (amp, False))
    model.register_forward_pre_hook(lambda _, given: dtypes.update(rows.dtype for rows in given[0].values()))
    slot = next(slots_of(graph))
    sizes = Sizes.from_slot(slot)
    inputs = Inputs(sizes.grown(None), slot, graph.types)
    inputs.load(slot, sizes)
    x, blocks, y, *per_hop = inputs.arguments()
    plain, padded = scores.score_slot(slot), scores(x, blocks, SEEDS, *per_hop)
    assert {each.dtype for each in x.values()} == {torch.float16}
    assert dtypes == {torch.float16 if amp else torch.float32}
    close = {"rtol": 0.05, "atol": 0.05} if amp else {"rtol": 1e-4, "atol": 1e-5}
    torch.testing.assert_close(padded, plain, **close)
    torch.testing.assert_close(plain, exact.score_slot(slot), **close)


@pytest.mark.parametrize("kind", KINDS)
def test_a_padded_batch_has_room_for_the_ages_of_nodes(graph, shm, kind):
    compare_padded(graph, kind, {}, (4, 3), replace(graph.types, age_spans={"author": 40, "paper": 90}))


def ages_of(types, slot) -> dict[str, torch.Tensor]:
    """Ages of a slot's nodes, some of which have none."""
    sizes = [sum(per_hop) for per_hop in slot.nodes_of_types]
    ids = dict(zip(types.counts, slot.n_id.split(sizes), strict=True))
    return {name: ids[name] % span - 9 for name, span in types.age_spans.items()}


def compare_padded(graph, kind: str, shape: dict, fanout: tuple[int, ...], types=None) -> None:
    """Batches with room against batches as they are: scores, gradients, and the bounds of what kernels read."""
    types = types or graph.types
    model, inputs, count = model_of(kind, graph, num_layers=len(fanout), types=types, **shape), None, 0
    trained = [each for each in model.parameters() if each.requires_grad]
    for slot in slots_of(graph, fanout):
        slot, sizes = SeedSlot(slot, None, ages_of(types, slot)), Sizes.from_slot(slot)
        if inputs is None:
            inputs = Inputs(sizes.grown(None), slot, types)
        elif not sizes.fits(inputs.room):
            continue
        inputs.load(slot, sizes)
        x, blocks, y, *per_hop = inputs.arguments()
        for block in (block for of_layer in blocks for block in of_layer.values()):
            demand_in_bounds(block)
        assert len(x["paper"]) > sum(slot.nodes_of_types[0]), "nothing is padded"
        plain, padded = Scores(model, types=types).score_slot(slot), Scores(model)(x, blocks, SEEDS, *per_hop)
        torch.testing.assert_close(padded, plain, rtol=1e-4, atol=1e-5)
        wanted, found = (
            torch.autograd.grad(each.square().mean(), trained, allow_unused=True) for each in (plain, padded)
        )
        for one, other in zip(found, wanted, strict=True):
            assert (one is None) == (other is None)
            if one is not None:
                torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
        assert torch.equal(y, slot.y[:SEEDS])
        count += 1
    assert count >= 3


@pytest.mark.parametrize("kind", KINDS)
def test_rows_in_pools_are_those_of_slots(graph, shm, kind):
    model, num_types, count = model_of(kind, graph), len(graph.types.counts), 0
    for slot in slots_of(graph):
        pooled = Pooled(slot, num_types)
        plain = Scores(model, types=graph.types).score_slot(slot)
        scores = Scores(model, all_rows=pooled.all_rows, types=graph.types)
        assert torch.equal(scores.score_slot(pooled), plain)
        sizes = Sizes.from_slot(slot)
        room = sizes.grown(None)
        inputs = [Inputs(room, slot, graph.types), Inputs(room, pooled, graph.types, pooled.all_rows)]
        for each, of in zip(inputs, (slot, pooled), strict=True):
            each.load(of, sizes)
        for name, rows in inputs[0].arguments()[0].items():
            assert torch.equal(inputs[1].arguments()[0][name], rows)
        expect_same_where_rows_are(model, slot, pooled, graph.types, room)
        batches = [batch_of(HeteroBatch, graph.types, slot, graph.target, None)]
        batches.append(batch_of(HeteroBatch, graph.types, pooled, graph.target, pooled.all_rows))
        assert pooled.has_left
        for name in graph.types.counts:
            assert ("x" in batches[0][name]) == ("x" in batches[1][name])
            assert "x" not in batches[0][name] or torch.equal(batches[0][name].x, batches[1][name].x)
        del batches, inputs
        count += 1
    assert count >= 3


def expect_same_where_rows_are(model, slot, pooled, types, room, amp=False) -> None:
    """Scores and gradients of a padded batch whose rows are read in the pools, if the model can."""
    scores = Scores(model, amp, keep_half=True, all_rows=pooled.all_rows, types=types)
    is_indexed = any(rows is not None and scores.is_indexed(rows) for rows in pooled.all_rows)
    assert is_indexed == (model.kind != "hgt" and (amp or pooled.all_rows[0].dtype == torch.float32))
    found = []
    for of, rows in ((slot, None), (pooled, pooled.all_rows)):
        inputs = Inputs(room, of, types, rows, scores.is_indexed)
        inputs.load(of, Sizes.from_slot(of))
        x, blocks, _, *per_hop = inputs.arguments()
        assert any(isinstance(each, IndexedRows) for each in x.values()) == (is_indexed and rows is not None)
        out = Scores(model, amp, keep_half=True)(x, blocks, SEEDS, *per_hop)
        trained = [each for each in model.parameters() if each.requires_grad]
        found.append((out, *torch.autograd.grad(out.square().mean(), trained, allow_unused=True)))
    for one, other in zip(*found, strict=True):
        assert (one is None) == (other is None) and (one is None or torch.equal(one, other))


@pytest.mark.parametrize("amp", [False, True], ids=["float32", "amp"])
@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_16_bits_are_read_in_pools_where_a_model_takes_them_as_they_are(half_graph, shm, kind, amp):
    graph, model = half_graph, model_of(kind, half_graph, hidden=128)
    slot = next(slots_of(graph))
    pooled = Pooled(slot, len(graph.types.counts))
    plain, scores = (
        Scores(model, amp, keep_half=True, all_rows=rows, types=graph.types) for rows in (None, pooled.all_rows)
    )
    indexed = amp and kind != "hgt"
    assert {isinstance(each, IndexedRows) for each in scores.inputs_of(pooled)[0].values()} == {indexed}
    assert torch.equal(scores.score_slot(pooled), plain.score_slot(slot))
    expect_same_where_rows_are(model, slot, pooled, graph.types, Sizes.from_slot(slot).grown(None), amp)


@pytest.mark.parametrize("room", [1, -1])
def test_rows_of_a_batch_without_a_graph_may_lie_where_a_graph_reads_them(graph, shm, room):
    slot, scores = next(slots_of(graph)), Scores(model_of("hgt", graph), types=graph.types)
    pooled, expected = Pooled(slot, len(graph.types.counts)), scores.score_slot(slot)
    scores.all_rows, memory = pooled.all_rows, []
    for rows, per_hop in zip(pooled.all_rows, slot.nodes_of_types, strict=True):
        memory.append(None if rows is None else rows.new_full((sum(per_hop) + room, rows.shape[1]), 7))
    scores.spare_tables = lambda: memory
    assert torch.equal(scores.score_slot(pooled), expected)
    written = [(each[:-1] != 7).any().item() for each in memory if each is not None]
    assert written and all(each == (room > 0) for each in written), "memory that is too small stays as it is"


def test_a_step_that_forgets_its_graphs_makes_new_ones(graph, shm, monkeypatch):
    made: list = []

    class Graphs:
        def __init__(self, *_):
            made.append(self)

        def tables(self):
            return [self]

    monkeypatch.setattr(step_graphs, "GrowingGraph", Graphs)
    model, slot = model_of("rgat", graph), next(slots_of(graph))
    scores = Scores(model, all_rows=Pooled(slot, len(graph.types.counts)).all_rows, types=graph.types)
    step = TrainStep(scores, adam(model, torch.device("cpu"), 0.1), torch.device("cpu"), graphs_of=SEEDS)
    assert scores.spare_tables() == made
    step.forget_graphs()
    assert len(made) == 2 and scores.spare_tables() == made[1:]


def test_the_memory_of_graphs_goes_with_the_last_reference(graph, shm, monkeypatch):
    monkeypatch.setattr(step_graphs, "ReplayedWork", lambda work, *_: work)
    graphs = graphs_of(lambda *_: None, graph.types)
    graphs(next(slots_of(graph)))
    memory = weakref.ref(graphs._inputs)
    assert memory() is not None
    gc.disable()
    try:
        del graphs
        assert memory() is None
    finally:
        gc.enable()


def test_room_grows_to_what_was_seen():
    small, large = (Sizes(((64, count), (0, 2 * count)), ((5 * count,),)) for count in (500, 600))
    room = small.grown(None)
    assert small.fits(room) and not large.fits(room)
    assert small.fits(large.grown(room)) and large.fits(large.grown(room))
    other = Sizes(((63, 500), (0, 1000)), ((2500,),))
    assert not other.fits(room), "a batch of fewer seeds is none for this graph"


def test_a_batch_that_does_not_fit_gets_a_larger_graph(graph, shm, monkeypatch):
    made: list = []

    def replayed(work, *_):
        made.append(work)
        return work

    monkeypatch.setattr(step_graphs, "ReplayedWork", replayed)
    seen: list = []
    graphs = graphs_of(lambda *_: seen.append(len(made)), graph.types)
    for slot in slots_of(graph):
        if not seen:
            graphs(slot)
            small = graphs._inputs.room
            graphs._inputs.room = Sizes(small.nodes, tuple(tuple(n // 2 for n in each) for each in small.edges))
        graphs(slot)
        assert Sizes.from_slot(slot).fits(graphs._inputs.room)
    assert seen[:2] == [2, 3], "room was made anew once the batch did not fit"


def losses_of_steps(
    kind: str, graph, graphs_of: int | None, types=None, amp=False, indexed=True, **shape
) -> list[float]:
    device, types = torch.device("cuda"), types or graph.types
    model, losses = model_of(kind, graph, dropout=0.4, types=types, **shape).to(device), []
    with opened(graph, "cuda") as (rows, slots):
        scores = Scores(model, amp, keep_half=True, all_rows=rows, types=types)
        if not indexed:
            model.takes_indexed_rows = False
        step = TrainStep(scores, adam(model, device, 0.01), device, graphs_of)
        torch.manual_seed(3)
        for slot in slots:
            step.reset()
            step(slot)
            losses.append((step.loss_sum / step.num_labelled).item())
    return losses


@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS)
def test_replayed_steps_train_as_others_do(graph, shm, kind):
    plain, replayed = (losses_of_steps(kind, graph, graphs_of) for graphs_of in (None, SEEDS))
    assert len(plain) > 6 and plain[0] != plain[-1]
    assert replayed == pytest.approx(plain, rel=1e-3)


@pytest.mark.gpu
@pytest.mark.parametrize("graph", [["--all-features"]], ids=["all have"], indirect=True)
def test_replayed_steps_read_the_features_of_edges(graph, shm, tmp_path):
    graph, types = with_edge_features(graph, tmp_path / "set")
    plain, replayed = (losses_of_steps("rgat", graph, graphs_of, types) for graphs_of in (None, SEEDS))
    assert len(plain) > 6 and plain[0] != plain[-1]
    assert replayed == pytest.approx(plain, rel=1e-3)


@pytest.mark.gpu
@pytest.mark.parametrize("graphs_of", [None, SEEDS], ids=["steps", "graphs"])
@pytest.mark.parametrize("kind", ["rsage", "rgcn", "rgat"])
def test_steps_on_rows_of_16_bits_in_pools_train_as_on_gathered_ones(half_graph, shm, kind, graphs_of):
    there, gathered = (
        losses_of_steps(kind, half_graph, graphs_of, amp=True, indexed=indexed, hidden=128) for indexed in (True, False)
    )
    assert len(there) > 6 and there[0] != there[-1]
    assert there == pytest.approx(gathered, rel=1e-2)
