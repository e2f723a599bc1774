"""Test MRR of temporal link prediction with cohort.LinkNeighborLoader, beside PyG on all that each seed may see.

    PYTHONPATH=build/python python bench/accuracy_temporal.py [--seeds 5] [--epochs 12] [--lr 0.01]

The data is a generated event stream, another one for each seed: learners take courses, each course once. A learner has
a topic and moves to the next topic now and then, so the courses of the past tell which topic is the present one, and
those of the future would tell it, too. Features say only that a node is a learner, or (with noise) the topic of a
course. The task: which course does a learner take at a time step, given all events of earlier steps? The first steps
are history alone, then come steps for training, for validation and for the test.

Both sides have two SAGE layers with the same initial weights, the dot product as score, binary cross entropy with one
random course as negative, and Adam with a rate that falls linearly; both report the test MRR, each pair among 100 other
courses, at the best validation MRR. Cohort's side is a user's script: a loader with ``time_attr``. The reference is PyG
alone, trained on the same pairs and negatives in the same order, as the order alone moves the MRR by half a point: the
rule of PyG's temporal loader says which edges a seed may see, and its SAGEConv takes them all, in one graph that has a
node for each node and time step. Three rows:

- uniform: Cohort draws 25 and 10 of the earlier events, in validation and test all; the reference takes all.
- last: Cohort takes the latest 10 and 10 events; the reference takes the same ones.
- no times: PyG is trained on all events of the training steps, earlier or later, except the pairs of the batch. Its
  test is that of the reference. It tells whether the task is one of time.

Exit status 1 when the mean of a row of Cohort is more than 0.5 points below its reference's, or when training without
times costs less than 5 points.
"""

import argparse
import copy
import math
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from accuracy import ROOT, mean_and_spread
from accuracy_links import Reference as Model
from accuracy_links import metrics
from torch import Tensor
from torch_geometric.sampler import NegativeSampling

import cohort_gnn as cohort
from cohort_gnn.dataset import HeldOut

ALLOWED_LOSS_POINTS, LEAST_COST_OF_NO_TIMES = 0.5, 5.0
TOPICS, COURSES_OF_TOPIC, LEARNERS = 16, 20, 800
COURSES = TOPICS * COURSES_OF_TOPIC
STEPS, TRAIN, VAL, TEST = 40, range(8, 32), range(32, 35), range(35, 40)
NEGATIVES, HIDDEN = 100, 64
ROWS = {"uniform": "PyG", "last": "PyG, last", "PyG, no times": "PyG"}  # and what each is compared with
FANOUTS = {"uniform": [25, 10], "last": [10, 10]}
EVAL_FANOUTS = {"uniform": [-1, -1], "last": [10, 10]}


@dataclass(frozen=True)
class Stream:
    """Events in the order of time.

    Attributes:
        x: float32 [N, TOPICS + 1], courses first, then learners.
        learner, course, time: int64 [events].
        negatives: int64 [events, NEGATIVES], courses that the learner does not take at that step.
    """

    x: Tensor
    learner: Tensor
    course: Tensor
    time: Tensor
    negatives: Tensor

    @property
    def num_nodes(self) -> int:
        return len(self.x)

    @cached_property
    def edges(self) -> tuple[Tensor, Tensor]:
        """Both directions of each event, int64 [2, 2 events], and their times, int64 [2 events]."""
        forth = torch.stack([self.learner, self.course])
        return torch.cat([forth, forth.flip(0)], dim=1), self.time.repeat(2)

    def of_steps(self, steps: range) -> Tensor:
        """bool [events]"""
        return (self.time >= steps.start) & (self.time < steps.stop)

    def held_out(self, steps: range) -> HeldOut:
        """Events of these steps, with nodes numbered as `snapshots` does: as they are before the event's step."""
        chosen = self.of_steps(steps)
        first = ((self.time[chosen] - 1) * self.num_nodes)[:, None]
        pairs = torch.stack([self.learner[chosen], self.course[chosen]], dim=1)
        return HeldOut((first + pairs).numpy(), (first + self.negatives[chosen]).numpy())


def event_stream(seed: int) -> Stream:
    """At each step, half of the learners who have arrived take a course: nine times in ten one of their topic."""
    rng = np.random.default_rng(seed)
    arrival = rng.integers(STEPS // 4, size=LEARNERS)
    topic = rng.integers(TOPICS, size=LEARNERS)
    taken = np.zeros((LEARNERS, COURSES), bool)
    learners, courses, times = [], [], []
    for step in range(STEPS):
        topic = (topic + (rng.random(LEARNERS) < 0.12)) % TOPICS
        active = np.flatnonzero((arrival <= step) & (rng.random(LEARNERS) < 0.5))
        of_topic = np.arange(COURSES) // COURSES_OF_TOPIC == topic[active, None]
        wanted = np.where(of_topic | (rng.random(len(active)) < 0.1)[:, None], rng.random((len(active), COURSES)), 0)
        course = np.where(taken[active], -1, wanted).argmax(1)
        taken[active, course] = True
        learners.append(active + COURSES)
        courses.append(course)
        times.append(np.full(len(active), step))
    course = np.concatenate(courses)
    x = np.zeros((COURSES + LEARNERS, TOPICS + 1), np.float32)
    x[np.arange(COURSES), np.arange(COURSES) // COURSES_OF_TOPIC] = 1
    x[:COURSES, :TOPICS] += 0.4 * rng.standard_normal((COURSES, TOPICS), np.float32)
    x[COURSES:, TOPICS] = 1
    negatives = (course[:, None] + rng.random((len(course), COURSES - 1)).argsort(1)[:, :NEGATIVES] + 1) % COURSES
    events = [np.concatenate(learners), course, np.concatenate(times), negatives]
    return Stream(torch.from_numpy(x), *map(torch.from_numpy, events))


def snapshots(stream: Stream, num_steps: int, latest: int | None) -> Tensor:
    """float32 [num_steps N, num_steps N], sparse CSR: node t * N + v is v as it is at the end of step t, and has a one
    for each in-neighbour by an edge that is no later: for all of them, or the ``latest`` ones of the order in time,
    then source."""
    (source, target), time = stream.edges
    order = np.lexsort((source, time, target))
    source, target, time = (each[torch.from_numpy(order)] for each in (source, target, time))
    first = torch.searchsorted(target, torch.arange(stream.num_nodes))
    place = torch.arange(len(target)) - first[target]  # in the target's list, which ascends by time
    found = []
    for step in range(num_steps):
        seen = time <= step
        count = torch.bincount(target[seen], minlength=stream.num_nodes)
        chosen = seen if latest is None else seen & (place >= count[target] - latest)
        found.append(torch.stack([target[chosen], source[chosen]]) + step * stream.num_nodes)
    return matrix_of(torch.cat(found, dim=1), num_steps * stream.num_nodes)


def matrix_of(places: Tensor, size: int) -> Tensor:
    """float32 [size, size], sparse CSR: ones at the places, int64 [2, any]."""
    return torch.sparse_coo_tensor(places, torch.ones(places.shape[1]), (size, size)).to_sparse_csr()


Scores = tuple[Tensor, Tensor]  # of a batch's pairs, and of their negatives
Epochs = list[list[Tensor]]  # of each batch, int64 [4, pairs]: learners, courses, other courses, times


class FullGraph:
    """The reference: each batch and test sees all edges, or the latest ones, that its pairs may see.

    Args:
        epochs: the batches to train on.
    """

    def __init__(self, stream: Stream, latest: int | None, epochs: Epochs):
        self._stream, self._epochs = stream, iter(epochs)
        self._train = snapshots(stream, TRAIN.stop, latest)
        self._all = snapshots(stream, STEPS, latest)

    def epoch(self, model: Model) -> Iterator[Scores]:
        for *nodes, time in next(self._epochs):
            rows = self._rows(model, torch.stack(nodes[:2]))
            yield scores_of(rows, *(self._numbers(ids, time) for ids in nodes))

    def _rows(self, model: Model, _pairs: Tensor) -> Tensor:
        """float32 [any, HIDDEN]: of the batch of these pairs."""
        return model(self._stream.x.repeat(TRAIN.stop, 1), self._train)

    def _numbers(self, ids: Tensor, time: Tensor) -> Tensor:
        """int64 [pairs]: places of the nodes among these rows."""
        return time * self._stream.num_nodes + ids

    def rows(self, model: Model, _links: HeldOut) -> Tensor:
        """float32 [STEPS N, HIDDEN]"""
        return model(self._stream.x.repeat(STEPS, 1), self._all)


class NoTimes(FullGraph):
    """Each batch sees the events of all training steps except its own pairs; the test is the reference's."""

    def _rows(self, model: Model, pairs: Tensor) -> Tensor:
        stream, (edge_index, time) = self._stream, self._stream.edges
        names = edge_index.amin(0) * stream.num_nodes + edge_index.amax(0)  # a course, a learner
        seen = (time < TRAIN.stop) & ~torch.isin(names, pairs[1] * stream.num_nodes + pairs[0])
        return model(stream.x, matrix_of(edge_index[:, seen].flip(0), stream.num_nodes))

    def _numbers(self, ids: Tensor, time: Tensor) -> Tensor:
        return ids


class Sampled:
    """Cohort's side: batches and tests are those of a loader.

    Attributes:
        epochs: the batches so far.
    """

    def __init__(self, loader: cohort.LinkNeighborLoader, stream: Stream, eval_fanout: list[int]):
        self._loader, self._stream, self._eval_fanout = loader, stream, eval_fanout
        self.epochs: Epochs = []

    def epoch(self, model: Model) -> Iterator[Scores]:
        self.epochs.append([])
        for batch in self._loader:
            roots = torch.stack([batch.src_index, batch.dst_pos_index, batch.dst_neg_index])
            self.epochs[-1].append(torch.cat([batch.n_id[roots], batch.seed_time[None]]))
            rows = model(batch.x, batch.edge_index)
            yield scores_of(rows, *roots)

    def rows(self, model: Model, links: HeldOut) -> Tensor:
        """float32 [STEPS N, HIDDEN]; only the links' nodes have rows."""
        numbers = torch.from_numpy(np.union1d(links.pairs, links.negatives))
        times, nodes = numbers // self._stream.num_nodes, numbers % self._stream.num_nodes
        found = torch.zeros(STEPS * self._stream.num_nodes, HIDDEN)
        for batch in self._loader.with_nodes(nodes, input_time=times, num_neighbors=self._eval_fanout):
            found[numbers[batch.input_id]] = model(batch.x, batch.edge_index)[: batch.batch_size]
        return found


def scores_of(rows: Tensor, source: Tensor, target: Tensor, other: Tensor) -> Scores:
    return (rows[source] * rows[target]).sum(1), (rows[source] * rows[other]).sum(1)


def test_mrr(stream: Stream, side: FullGraph | Sampled, accelerate: Callable, seed: int, args) -> float:
    """Test MRR in percent, at the best validation MRR."""
    torch.manual_seed(seed)
    model = Model(stream.x.shape[1], HIDDEN)
    accelerate(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    decay = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.05, max(1, args.epochs - 1))
    val, test = stream.held_out(VAL), stream.held_out(TEST)
    best, best_weights = -1.0, {}
    for _ in range(args.epochs):
        for own, others in side.epoch(model):
            wanted = torch.arange(2 * len(own)) < len(own)
            optimizer.zero_grad()
            F.binary_cross_entropy_with_logits(torch.cat([own, others]), wanted.float()).backward()
            optimizer.step()
        decay.step()
        with torch.no_grad():
            value = metrics(side.rows(model, val), val).mrr
        if value > best:
            best, best_weights = value, copy.deepcopy(model.state_dict())
    model.load_state_dict(best_weights)
    with torch.no_grad():
        return 100 * metrics(side.rows(model, test), test).mrr


def loader_of(stream: Stream, strategy: str, seed: int, batch_size: int, folder: Path) -> cohort.LinkNeighborLoader:
    """A loader of the training pairs, each with the events of earlier steps."""
    chosen, (edge_index, edge_time) = stream.of_steps(TRAIN), stream.edges
    is_course = (torch.arange(stream.num_nodes) < COURSES).float()
    return cohort.LinkNeighborLoader(
        cohort.from_tensors(folder / "events", x=stream.x, edge_index=edge_index, edge_time=edge_time),
        FANOUTS[strategy],
        torch.stack([stream.learner, stream.course])[:, chosen],
        edge_label_time=stream.time[chosen] - 1,
        time_attr="edge_time",
        temporal_strategy=strategy,
        exclude="none",  # the pair's own edge is later than its time
        neg_sampling=NegativeSampling("triplet", 1, dst_weight=is_course),
        batch_size=batch_size,
        shuffle=True,
        seed=seed,
        device="cpu",
    )


def sampled_mrr(stream: Stream, strategy: str, seed: int, args: argparse.Namespace) -> tuple[float, Epochs]:
    """Test MRR in percent of a user's script with a loader, and its batches."""
    with (
        tempfile.TemporaryDirectory(dir=args.out) as scratch,
        loader_of(stream, strategy, seed, args.batch_size, Path(scratch)) as loader,
    ):
        side = Sampled(loader, stream, EVAL_FANOUTS[strategy])
        return test_mrr(stream, side, cohort.nn.accelerate, seed, args), side.epochs


def measure(seed: int, args: argparse.Namespace) -> dict[str, float]:
    """Test MRR in percent of every side, on the stream of this seed."""
    stream = event_stream(seed)

    def reference(side: FullGraph) -> float:
        return test_mrr(stream, side, lambda model: None, seed, args)

    found = {}
    found["uniform"], epochs = sampled_mrr(stream, "uniform", seed, args)
    found["PyG"] = reference(FullGraph(stream, None, epochs))
    found["PyG, no times"] = reference(NoTimes(stream, None, epochs))
    found["last"], epochs = sampled_mrr(stream, "last", seed, args)
    found["PyG, last"] = reference(FullGraph(stream, FANOUTS["last"][0], epochs))
    print(f"seed {seed}: " + ", ".join(f"{side} {value:.2f}" for side, value in found.items()), flush=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--out", type=Path, default=ROOT / ".bench/accuracy_temporal", help="data sets, deleted after")
    args = parser.parse_args()
    if min(args.seeds, args.epochs) < 1:
        parser.error(f"--seeds, --epochs: expected at least 1, found {args.seeds}, {args.epochs}")
    args.out.mkdir(parents=True, exist_ok=True)
    runs = [measure(seed, args) for seed in range(args.seeds)]
    print("| row | PyG | measured | difference | standard error |\n|---|---|---|---|---|")
    means = {}
    for row, side in ROWS.items():
        pairs = [(run[side], run[row]) for run in runs]
        differences = [ours - theirs for theirs, ours in pairs]
        means[row] = statistics.mean(differences)
        error = statistics.stdev(differences) / math.sqrt(len(runs)) if len(runs) > 1 else math.nan
        theirs, ours = (mean_and_spread(list(values)) for values in zip(*pairs, strict=True))
        print(f"| {row} | {theirs} | {ours} | {means[row]:+.2f} | {error:.2f} |")
    is_worse = min(means["uniform"], means["last"]) < -ALLOWED_LOSS_POINTS
    return int(is_worse or means["PyG, no times"] > -LEAST_COST_OF_NO_TIMES)


if __name__ == "__main__":
    sys.exit(main())
