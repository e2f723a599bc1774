"""Batches from a running sampler."""

import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset.reader import open_one_type
from cohort_gnn.spec.graph import EdgeType, GraphTypes
from cohort_gnn.trainer.loader import _native
from cohort_gnn.trainer.loader.seed_files import SeedFiles
from cohort_gnn.trainer.offsets import keep_offsets

REDRAWS = 8  # of a negative that is an edge
AllRows: TypeAlias = list[torch.Tensor | None] | None  # as BatchSource.all_rows has them


@dataclass(frozen=True)
class Pass:
    """One pass over a seed set.

    Attributes:
        number: the channel's number for it.
        num_steps: batches it has for this trainer, less those that were left out.
    """

    number: int
    num_steps: int


@dataclass(frozen=True)
class OfPairs:
    """The draws for a batch of pairs of nodes: fields of channel/request.h; see sampler/pairs.h.

    Attributes:
        negative_mode: "none"; "binary": as many pairs as the batch has, times ``negatives``; "triplet": ``negatives``
            targets for each source; "in_batch": likewise, targets of other pairs of the batch.
        redraws: of a negative that is an edge of the graph, at most.
        exclude: edges that hop 0 does not draw: "none"; "self": those that are pairs of the batch; "reverse": these and
            their reverse edges.
        relation: whose edges the pairs are, by its number among the edge types; 0 where there is one.
        unrelated: they are edges of none, but pairs from source_type to target_type, numbers of node types.
    """

    negative_mode: str = "none"
    negatives: float = 0.0
    redraws: int = 0
    exclude: str = "none"
    relation: int = 0
    unrelated: bool = False
    source_type: int = 0
    target_type: int = 0

    @property
    def are_triplets(self) -> bool:
        """Whether negatives are targets for the sources of the pairs."""
        return self.negative_mode in ("triplet", "in_batch")

    def pairs_of(self, trees: torch.Tensor, num_pairs: int, num_endpoints: int) -> torch.Tensor:
        """The pair of each tree of a batch, int64 [n]; trees are numbered as their roots, the endpoints."""
        if not self.are_triplets:
            return trees % max(num_endpoints // 2, 1) % max(num_pairs, 1)
        pairs_of_negatives = (trees - 2 * num_pairs) // int(self.negatives)
        return torch.where(trees < 2 * num_pairs, trees % max(num_pairs, 1), pairs_of_negatives)


class BatchSource:
    """The trainer's end of a channel: asks for passes and yields the slots that hold their batches.

    Args:
        folder: the channel's folder; the channel must have been announced.
        limit_seconds: how long the sampler may stay in one stage before it counts as hung.
        rank, num_ranks: batch b of a pass is for the trainer b mod ``num_ranks``. All get the same number of batches:
            where a pass has too few, the last one of some has no seeds.
    """

    def __init__(self, folder: Path, limit_seconds: float = 600.0, rank: int = 0, num_ranks: int = 1):
        self.folder = Path(folder)
        self.limit_seconds = limit_seconds
        self.rank, self.num_ranks = rank, num_ranks
        # Of the passes asked for from now on:
        self.labels_of_seeds = False  # y has the seeds alone
        self.last_hop_global = False  # where rows are in place, nodes that only the last hop reaches get no ids
        self.sampler_sms = 0  # what the sampler has for itself, 0: all are shared
        self._receiver = _native.Receiver(str(folder))
        self._groups: list[list[int]] = []  # of each seed set, how many seeds its groups have
        self._seed_files = SeedFiles(self.folder)
        self.first_batch_at: float | None = None  # monotonic seconds when it came
        self._current = 0  # number of the pass being iterated
        self.device = torch.device(self._receiver.device)

    def add_seeds(
        self,
        ids: np.ndarray,
        sizes: Sequence[int] | None = None,
        times: np.ndarray | None = None,
        weights: Sequence[np.ndarray | None] = (None, None),
        node_times: Sequence[np.ndarray | None] = (None, None),
        owner: object = None,
    ) -> int:
        """Registers a seed set, int64 [n] or pairs int64 [n, 2]; returns its number. The sampler checks the ids.

        Args:
            sizes: how many of the seeds, in their order, are each rank's own; None: batches are dealt to the ranks.
            times: int64 [n], of seeds that are nodes: batches then have edges up to the time of their seed.
            weights: int64 [nodes], of pairs, as `weight_sums` makes them, of the nodes that sources and targets of
                negatives are drawn from; None: they are drawn uniformly.
            node_times: int64 [2, nodes], as `nodes_by_time` makes them, of the nodes that both are drawn from: they are
                no later than their pair. Weights are in their order then.
            owner: requests passes over the set; once it is gone, the set's files are removed. None: they stay.
        """
        number, arrays = len(self._groups), {}
        if sizes is not None:
            starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
            arrays[f"seeds-{number}-starts.npy"] = starts
        if times is not None:
            arrays[f"seeds-{number}-times.npy"] = np.ascontiguousarray(times, dtype=np.int64)
        for end, sums in zip(("source", "target"), weights, strict=True):
            if sums is not None:
                arrays[f"weights-{number}-{end}.npy"] = sums
        for end, by_time in zip(("source", "target"), node_times, strict=True):
            if by_time is not None:
                arrays[f"node-times-{number}-{end}.npy"] = by_time
        arrays[f"{'pairs' if ids.ndim == 2 else 'seeds'}-{number}.npy"] = np.ascontiguousarray(ids, dtype=np.int64)
        self._seed_files.add(number, arrays, owner)
        self._groups.append([len(ids)] if sizes is None else list(sizes))
        return number

    def request(
        self,
        seed_set: int,
        fanout: Sequence[int],
        batch_size: int,
        epoch: int = 0,
        shuffle: bool = False,
        done: int = 0,
        pair_draws: OfPairs = OfPairs(),
        **fields,
    ) -> Pass:
        """Asks for a pass without this trainer's first ``done`` batches, which are not built.

        The sampler starts on it as soon as it is done with earlier ones. ``fields``: others that channel/request.h
        lists; one that is left out is 0, False, or the first word of its enum.
        """
        fields |= {"seed_set": seed_set, "epoch": epoch, "shuffle": shuffle, "batch_size": batch_size}
        fields |= {"first_step": self.rank + done * self.num_ranks, "step_stride": self.num_ranks}
        for name in ("labels_of_seeds", "last_hop_global", "sampler_sms"):
            fields[name] = getattr(self, name)
        number = self._receiver.request(list(fanout), **fields, **vars(pair_draws))
        self._seed_files.requested(seed_set, number)
        return Pass(number, max(0, self.steps_of(seed_set, batch_size) - done))

    def steps_of(self, seed_set: int, batch_size: int) -> int:
        """The number of batches that each rank takes in a whole pass; the last of them may be empty."""
        groups = self._groups[seed_set]
        return -(-len(groups) * -(-max(groups) // batch_size) // self.num_ranks)

    def slots(self, which: Pass, num_steps: int | None = None) -> Generator["_native.HeldSlot", None, None]:
        """Yields the slots of a pass's steps, in order; breaking off cancels what is left of it.

        What a slot shows is views, valid as long as the slot or a view is referenced, for work on the stream that is
        PyTorch's current one now; ``record_stream`` is for work on others.
        """
        self._current = which.number
        num_steps = which.num_steps if num_steps is None else num_steps
        try:
            for _ in range(num_steps):
                yield self._next(which)
            self._receiver.set_idle()  # not after an error: the report names the stage it happened in
        finally:
            if self._current == which.number:
                self._receiver.cancel_below(which.number + 1)
                self._seed_files.ended_below(which.number + 1)

    def _next(self, which: Pass) -> "_native.HeldSlot":
        self._demand_current(which)
        stream = torch.cuda.current_stream(self.device).cuda_stream if self.device.type == "cuda" else 0
        try:
            slot = self._receiver.next(which.number, self.limit_seconds, stream)
        except CohortError:
            self._demand_current(which)  # a loop of another thread, which took batches of this one
            raise
        self.first_batch_at = self.first_batch_at or time.monotonic()
        return slot

    def _demand_current(self, which: Pass) -> None:
        if self._current != which.number:
            raise CohortError(
                "iteration",
                "one pass over a sampler at a time",
                "another pass begun in between",
                "finish one loop before the next, or give each loader its own sampler",
            )

    def all_rows(self, dataset: Path) -> AllRows:
        """Feature rows [any, dim] of each node type that batches name by ``row_index``, None where the type has none: a
        table of all rows of the data set, in the memory of the GPU or mapped from the data set's file; or the pool, of
        which only rows that a batch names may be read. None instead of the list: slots have rows."""
        if self.rows_in == "slots":
            return None
        if self.device.type == "cuda":
            return [self._receiver.rows(number) for number in range(self._receiver.num_types)]
        file = open_one_type(dataset).file
        assert file is not None  # else the rows were not a table
        return [torch.from_numpy(np.load(file, mmap_mode="c"))]  # torch wants memory that it may write to

    @property
    def rows_in(self) -> str:
        """Where the rows of batches are: "slots", a "table" of all rows, or a "pool" of rows of recent batches, one for
        each node type."""
        return self._receiver.rows_in

    @property
    def slots_bytes(self) -> int:
        """Memory of the slots of this trainer's channel and of its pools of rows, as large as they are now."""
        return self._receiver.slots_bytes

    def leave(self) -> None:
        """Ends this trainer's part; the sampler ends when all trainers have. Batches still referenced stay valid."""
        self._receiver.leave()

    def fail(self, text: str) -> None:
        """Leaves the reason of this process's failure in the channel."""
        self._receiver.fail(text)


def tables_of(
    slot,
    all_rows: AllRows,
    where_they_are: Callable[[torch.Tensor], bool] | None = None,
    memory: Sequence[torch.Tensor | None] = (),
) -> list[torch.Tensor | tuple[torch.Tensor, torch.Tensor] | None]:
    """The slot's features of each node type: a view, or a copy of the rows that it names; None: the type has none.

    Args:
        where_they_are: for rows that batches name, whether they are not gathered, but come as (rows, row_index); None:
            all are gathered.
        memory: of each node type, for its rows, if there are no more of them; empty: they get memory of their own.
    """
    if all_rows is None:
        return [slot.table(number) for number in range(len(slot.nodes_of_types))]
    tables: list[torch.Tensor | tuple[torch.Tensor, torch.Tensor] | None] = []
    for number, rows in enumerate(all_rows):
        if rows is None:
            tables.append(None)
        elif where_they_are and where_they_are(rows):
            tables.append((rows, slot.row_index_of(number)))
        else:
            row_index, to = slot.row_index_of(number), memory[number] if memory else None
            to = None if to is None or len(to) < len(row_index) else to[: len(row_index)]
            tables.append(torch.index_select(rows, 0, row_index, out=to))
    return tables


def edges_by_type(slot, types: GraphTypes) -> dict[EdgeType, torch.Tensor]:
    """The slot's edges of each edge type, int64 [2, edges], which know their offsets (see cohort.nn.block)."""
    edges = {name: slot.edges(number) for number, name in enumerate(types.edge_types)}
    for number, edge_index in enumerate(edges.values()):
        keep_offsets(edge_index, slot_offsets(slot, number))
    return edges


def slot_offsets(slot, relation: int = 0) -> torch.Tensor:
    """The relation's part of the slot's ``indptr``, of no edges where it has no seeds."""
    return slot.offsets(relation) if slot.num_seeds else torch.zeros(1, dtype=torch.int64, device=slot.n_id.device)


def record_stream(slot, stream) -> None:
    """Declares that work on another CUDA stream uses the slot's views. The slot is filled again only after the work
    that ``stream`` has when the last view is released.

    ``Tensor.record_stream`` has no effect here, since PyTorch's allocator does not own the memory.

    Args:
        stream: a torch.cuda.Stream of the slot's GPU. On the CPU it may also be None, and nothing is done.

    Raises:
        CohortError: ``stream`` is no stream, or belongs to another GPU.
    """
    check_stream(slot.n_id.device, stream)
    if slot.n_id.is_cuda:
        slot.record_stream(stream.cuda_stream)


def check_stream(device: torch.device, stream) -> None:
    """Checks that ``stream`` belongs to ``device``; on the CPU, None and the streams of all devices are accepted.

    Raises:
        CohortError: ``stream`` is not a stream, or belongs to another GPU.
    """
    if device.type == "cuda" and isinstance(stream, torch.cuda.Stream) and stream.device == device:
        return
    if device.type == "cpu" and (stream is None or isinstance(stream, torch.cuda.Stream | torch.cpu.Stream)):
        return
    expected = f"a torch.cuda.Stream of {device}" if device.type == "cuda" else "a stream of torch, or None"
    actual = f"one of {stream.device}" if isinstance(stream, torch.cuda.Stream) else repr(stream)[:80]
    raise CohortError("record_stream", expected, actual)


def wait_for_channel(folder: Path, check: Callable[[], None], limit_seconds: float = 3600.0) -> None:
    """Waits until the sampler has announced its channel in ``folder``; see wait_for."""
    late = CohortError("sampler", f"to be ready within {limit_seconds:.0f} s", "it is still loading", "see its log")
    wait_for((folder / "channel").exists, check, limit_seconds, late)


def wait_for(is_there: Callable[[], bool], check: Callable[[], None], limit_seconds: float, late: CohortError) -> None:
    """Waits until another process has made something.

    Args:
        is_there: whether it has.
        check: called in every round; raises when that process has ended.
        limit_seconds: how long it may take.
        late: raised when it takes longer.
    """
    deadline = time.monotonic() + limit_seconds
    while not is_there():
        check()
        if time.monotonic() > deadline:
            raise late
        time.sleep(0.01)
