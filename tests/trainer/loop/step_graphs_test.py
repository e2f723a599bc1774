"""Batches that are padded for CUDA graphs bring what they bring as they are; replayed steps are the steps."""

import contextlib
import copy
import gc
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from cohort_gnn.nn import activated
from cohort_gnn.nn.activation import GraphKeys
from cohort_gnn.nn.inputs import IndexedRows
from cohort_gnn.spec.graph import EDGE_TYPE, NODE_TYPE, ONE_OF_EACH
from cohort_gnn.trainer.loader import _native
from cohort_gnn.trainer.loop.graphs import ReplayedWork, StepGraphs, graphs_for
from cohort_gnn.trainer.loop.inputs import Inputs, Sizes
from cohort_gnn.trainer.loop.ranks import StepSums
from cohort_gnn.trainer.loop.step import Scores, TrainStep, adam
from cohort_gnn.trainer.models.sampled import SampledGNN

SEEDS, DIM, CLASSES = 40, 12, 5
CPU = torch.device("cpu")
KINDS = [
    ("sage", False),
    ("sage", True),
    ("gcn", False),
    ("gat", False),
    ("graphconv", True),
    ("shares", False),
    ("shares", True),
]  # "shares": SAGE, whose edges have shares of means; whether the last hop's nodes have no ids


def test_padding_is_small_and_monotone():
    padded = [_native.padded(count) for count in range(5000)]
    assert padded == sorted(padded)
    assert all(count <= found <= max(count, count * 33 / 32) for count, found in enumerate(padded))
    assert len(set(padded[1024:2048])) == 33, "batches of about one size have one"
    assert _native.padded(1 << 40) == 1 << 40


class Batch(SimpleNamespace):
    """A batch of a graph of one node type, with its arrays by type as a slot has them."""

    nodes_of_types = property(lambda self: [self.num_sampled_nodes])
    edges_of_relations = property(lambda self: [self.num_sampled_edges])
    n_id = property(lambda self: torch.arange(sum(self.num_sampled_nodes), device=self.y.device))

    def table(self, number: int) -> torch.Tensor:
        return self.x

    def row_index_of(self, number: int) -> torch.Tensor:
        return self.row_index

    def edges(self, number: int) -> torch.Tensor:
        return self.edge_index

    def offsets(self, number: int) -> torch.Tensor:
        return self.indptr


def slot_of(hops: int, device: torch.device, seed: int = 0) -> Batch:
    """A batch as a slot shows it: hubs, and nodes without edges."""
    draw = np.random.default_rng(seed)
    nodes = [SEEDS]
    indptr, source, edges = [0], [], []
    for hop in range(hops):
        before = sum(nodes)
        nodes.append(int(draw.integers(90, 110)) * 3 ** (hop + 1))
        for _ in range(nodes[hop]):
            degree = int(draw.choice([0, 1, 4, 300], p=[0.2, 0.4, 0.35, 0.05]))
            source.extend(draw.integers(0, before + nodes[-1], degree))
            indptr.append(len(source))
        edges.append(len(source) - sum(edges))
    total = sum(nodes)
    targets = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    return Batch(
        x=torch.from_numpy(draw.standard_normal((total, DIM), np.float32)).to(device),
        edge_index=torch.tensor(np.array([source, targets])).to(device),
        indptr=torch.tensor(indptr).to(device),
        y=torch.from_numpy(draw.integers(-1, CLASSES, total)).to(device),
        num_seeds=SEEDS,
        num_sampled_nodes=nodes,
        num_sampled_edges=edges,
        last_hop_global=False,
    )


def model_of(kind: str, hops: int, dropout: float) -> SampledGNN:
    by_shares = kind == "shares"
    return SampledGNN("sage" if by_shares else kind, DIM, 16, CLASSES, hops, dropout, edge_weights=by_shares)


def give_shares(*slots: Batch) -> None:
    for slot in slots:
        slot.edge_weight = torch.rand(sum(slot.num_sampled_edges), device=slot.y.device)


def leave_last_hop_global(slot: Batch) -> None:
    """The batch as the sampler leaves it where sources of the last hop get no ids."""
    slot.last_hop_global, slot.source_node = True, slot.row_index[slot.edge_index[0]]
    slot.edge_index = slot.edge_index[:, : sum(slot.num_sampled_edges[:-1])].clone()
    slot.row_index = slot.row_index[: sum(slot.num_sampled_nodes[:-1])].clone()
    slot.num_sampled_nodes = [*slot.num_sampled_nodes[:-1], 0]


def all_rows_of(*slots: Batch, global_too: bool = False) -> torch.Tensor:
    """The rows of all batches in an order of their own, which each slot's nodes then name."""
    rows = torch.cat([slot.x for slot in slots])
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0)).to(rows.device)
    for slot, ids in zip(slots, order.split([len(slot.x) for slot in slots]), strict=True):
        slot.row_index = ids
        if global_too:
            leave_last_hop_global(slot)
    return torch.empty_like(rows).index_copy_(0, order, rows)


def graphs_of(step, device: torch.device, rows: torch.Tensor) -> StepGraphs:
    return graphs_for(step, device, ONE_OF_EACH, [rows], lambda rows: False)


@pytest.mark.parametrize("hops", [1, 2, 3])
@pytest.mark.parametrize(("kind", "is_global"), KINDS)
def test_a_padded_batch_has_the_same_scores_and_gradients(kind, is_global, hops):
    torch.manual_seed(1)
    model = model_of(kind, hops, dropout=0.0)
    slot, before = slot_of(hops, CPU), slot_of(hops, CPU)
    if kind == "shares":
        give_shares(before, slot)

    def compare(scores: torch.Tensor) -> None:
        torch.testing.assert_close(scores, plain, rtol=1e-4, atol=1e-4)
        found = torch.autograd.grad(scores.square().sum(), list(model.parameters()))
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)

    plain = Scores(model).score_slot(slot)
    wanted = torch.autograd.grad(plain.square().sum(), list(model.parameters()))
    if kind == "shares":
        slot.edge_weight, weights = None, slot.edge_weight
        assert (Scores(model).score_slot(slot) - plain).abs().max() > 1e-3, "shares do not count"
        slot.edge_weight = weights
    rows = all_rows_of(before, slot, global_too=is_global)
    compare(Scores(model, all_rows=[rows]).score_slot(slot))
    sizes = Sizes.from_slot(slot)
    padded, count = sizes.padded(), sizes.nodes[0][-1]
    assert (is_global or padded.nodes[0][-1] > count) and padded.edges[0][-1] > sizes.edges[0][-1], "nothing is padded"
    inputs = Inputs(padded, slot, ONE_OF_EACH, [rows], Scores(model).is_indexed, gathers=True)
    for other in (before, slot):  # what an earlier batch left does not matter
        inputs.load(other, sizes)
    x, blocks, y, *per_hop = inputs.arguments()
    compare(Scores(model)(x, blocks, SEEDS, *per_hop))
    assert torch.equal(y, slot.y[:SEEDS])
    assert isinstance(x[NODE_TYPE], IndexedRows) == (kind != "gat")
    if kind == "gat":
        x = x[NODE_TYPE]
        assert torch.equal(x[:count], slot.x) and not x[count:].any() and len(x) > count


def test_inputs_forget_the_batch_before():
    """A smaller batch of the same padded sizes after a larger one."""
    large, small = (Sizes(((64, count),), ((count,),)) for count in (3000, 2950))
    assert large.padded() == small.padded()
    y = (torch.arange(3014 * 3).reshape(-1, 3) % 2).to(torch.uint8)
    slot, rows = Batch(y=y, num_seeds=64, last_hop_global=False), torch.ones(3014, 1)
    inputs = Inputs(large.padded(), slot, ONE_OF_EACH, [rows], gathers=True)
    for sizes in (large, small):
        count = sizes.edges[0][0]
        indptr = torch.linspace(0, count, 65).long()
        edge_index = torch.ones(2, count, dtype=torch.int64)
        row_index = torch.arange(count)
        inputs.load(Batch(y=y, edge_index=edge_index, indptr=indptr, row_index=row_index), sizes)
        x, blocks, found, *_ = inputs.arguments()
        is_there = torch.arange(large.padded().nodes[0][1]) < count
        assert torch.equal(x[NODE_TYPE].flatten(), is_there.float())
        assert blocks[0][EDGE_TYPE].indptr[64] == count
        assert torch.equal(found, y[:64])


def test_keys_of_a_graph_are_those_of_steps_without():
    x = torch.ones(1000)
    keys = GraphKeys(CPU)
    with keys.recorded():
        activated(x, "relu", 0.5), activated(x, "relu", 0.3)
    torch.manual_seed(7)
    wanted = [activated(x, "relu", 0.5), activated(x, "relu", 0.3)]
    torch.manual_seed(7)
    keys.draw()
    with keys.recorded():
        found = [activated(x, "relu", 0.5), activated(x, "relu", 0.3)]
    assert all(map(torch.equal, found, wanted))
    assert not torch.equal(wanted[0] > 0, wanted[1] > 0)


class RecordedGraph:
    """In place of a CUDA graph, on the CPU: replaying it runs nothing."""

    replayed = 0

    def replay(self):
        RecordedGraph.replayed += 1


@pytest.fixture
def streams(monkeypatch):
    """CUDA's part of a capture, played on the CPU; the list holds the current stream."""
    current = [SimpleNamespace(cuda_stream=1)]
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: current[0])
    monkeypatch.setattr(torch.cuda, "default_stream", lambda device: None)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", RecordedGraph)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
    monkeypatch.setattr(torch.cuda, "graph", lambda graph, **options: contextlib.nullcontext())
    RecordedGraph.replayed = 0
    return current


def test_each_size_is_warm_on_each_stream_before_it_is_captured(streams):
    calls = []
    slots = [slot_of(1, CPU, seed=seed) for seed in (0, 1)]
    graphs = graphs_of(lambda *_: calls.append(gc.isenabled()), CPU, all_rows_of(*slots))
    for slot in slots:
        for _ in range(5):
            graphs(slot)
    of_a_size = [True, True, False]  # two steps as they are, one captured, without a collector that frees memory
    assert calls == of_a_size * 2 and RecordedGraph.replayed == 6
    streams[0] = SimpleNamespace(cuda_stream=2)
    for _ in range(4):
        graphs(slots[0])
    assert calls == of_a_size * 3 and RecordedGraph.replayed == 8
    assert gc.isenabled()


def test_work_is_warm_on_each_stream_before_it_is_captured(streams):
    calls = []
    work = ReplayedWork(lambda: calls.append(gc.isenabled()), CPU)
    for number in (1, 2, 1):
        streams[0] = SimpleNamespace(cuda_stream=number)
        for _ in range(4):
            work()
    assert calls == [True, True, False] * 2 and RecordedGraph.replayed == 2 + 2 + 4


def test_a_capture_that_fails_leaves_the_collector_on(streams):
    calls = []

    def step(*_):
        calls.append(None)
        if len(calls) == 3:
            raise RuntimeError("in a capture")

    slot = slot_of(1, CPU)
    graphs = graphs_of(step, CPU, all_rows_of(slot))
    for _ in range(2):
        graphs(slot)
    with pytest.raises(RuntimeError, match="in a capture"):
        graphs(slot)
    assert gc.isenabled()


def losses_of_steps(
    model: SampledGNN,
    device: torch.device,
    graphs_of: int | None,
    ranks: int = 1,
    named: bool = True,
    is_global: bool = False,
) -> list[float]:
    """Of two sizes and two slots, with a smaller batch in between; other ranks have the same batches as this one."""
    own = copy.deepcopy(model)
    sums = StepSums(list(own.parameters()), lambda values: values.mul_(ranks))
    slots = [slot_of(2, device, seed=seed) for seed in (0, 1)]
    few = slot_of(2, device, seed=5)
    torch.manual_seed(3)
    if own.takes_weights:
        give_shares(*slots, few)
    scores = Scores(own, all_rows=[all_rows_of(*slots, few, global_too=is_global)] if named else None)
    step = TrainStep(scores, adam(own, device, 0.01), device, graphs_of, sums=sums if ranks > 1 else None)
    torch.manual_seed(3)
    few.num_seeds = SEEDS - 7  # runs without a graph
    losses = []
    for slot in [*slots, *slots, *slots, few, *slots]:
        step.reset()
        step(slot)
        losses.append((ranks * step.loss_sum / step.num_labelled).item())
    return losses


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_two_equal_ranks_train_as_one(device):
    torch.manual_seed(2)
    model = SampledGNN("sage", DIM, 16, CLASSES, 2, dropout=0.4).to(device)
    one, two = (losses_of_steps(model, torch.device(device), None, ranks) for ranks in (1, 2))
    assert one == pytest.approx(two, rel=1e-5) and one[0] != one[2]


@pytest.mark.gpu
@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize(("kind", "is_global"), KINDS)
def test_replayed_steps_train_as_others_do(kind, is_global, ranks):
    device = torch.device("cuda")
    torch.manual_seed(2)
    model = model_of(kind, 2, dropout=0.4).to(device)
    plain = losses_of_steps(model, device, None, ranks, named=False)
    assert plain[0] != plain[2], "nothing is learned"
    for graphs_of in (None, SEEDS):
        found = losses_of_steps(model, device, graphs_of, ranks, is_global=is_global)
        assert found == pytest.approx(plain, rel=1e-4)


@pytest.mark.gpu
def test_graphs_are_made_once_and_sizes_beyond_the_most_go_without(monkeypatch):
    monkeypatch.setattr("cohort_gnn.trainer.loop.graphs.MOST_SIZES", 1)
    device = torch.device("cuda")
    calls = []
    slots = [slot_of(2, device, seed=seed) for seed in (0, 1)]
    rows = all_rows_of(*slots)
    graphs = graphs_of(lambda x, blocks, y, *_: calls.append(x[NODE_TYPE].sum() + y.sum()), device, rows)
    for slot in [slots[0]] * 6 + [slots[1]] * 3:
        graphs(slot)
    assert len(calls) == 2 + 1 + 3, "two to warm up, one captured and replayed, three of another size"
