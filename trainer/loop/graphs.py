"""Training steps as CUDA graphs: one launch in place of a hundred.

A launch takes the host some microseconds, and the GPU longer while the sampler keeps its bus busy. A graph is captured
once for batches of about one size and replayed for each of them: sizes are rounded up (channel/layout.h), nodes and
edges that a batch lacks are nodes without edges and edges of no node, and bring nothing to any sum.
"""

import gc
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import accumulate

import torch
from torch import Tensor

from cohort_gnn.nn import kernels
from cohort_gnn.nn.activation import GraphKeys
from cohort_gnn.nn.block import Block
from cohort_gnn.trainer import _native
from cohort_gnn.trainer.source import placed

WARM_UP_STEPS = 2  # of a size on a stream before its graph: kernels are loaded, the optimizer makes its state
MOST_SIZES = 32  # that have graphs; further ones go without


@dataclass(frozen=True)
class Sizes:
    """What a batch has, with what the hops before have: nodes [hops + 1], seeds first, and edges [hops]."""

    nodes: tuple[int, ...]
    edges: tuple[int, ...]

    @classmethod
    def of(cls, slot) -> "Sizes":
        """Of a batch in a slot."""
        return cls(tuple(accumulate(slot.num_sampled_nodes)), tuple(accumulate(slot.num_sampled_edges)))

    def padded(self) -> "Sizes":
        """Rounded up, but for the seeds."""
        nodes = (self.nodes[0], *map(_native.padded, self.nodes[1:]))
        return Sizes(nodes, tuple(map(_native.padded, self.edges)))


class _Inputs:
    """A batch's edges and labels where the graphs of one size look for them.

    Args:
        sizes: padded.
        slot: with a batch of these sizes.
        takes_places: the step takes all rows, and the first Block says which are the batch's; else these alone.
    """

    def __init__(self, sizes: Sizes, device: torch.device, slot, takes_places: bool):
        def empty(count: int) -> Tensor:
            return torch.zeros(count, dtype=torch.int64, device=device)

        self.y = slot.y.new_zeros((sizes.nodes[0], *slot.y.shape[1:]), device=device)
        self._source = empty(sizes.edges[-1])
        self._offsets = [empty(targets + 1) for targets in sizes.nodes[:-1]]  # by hop; of all hops up to it
        parts = zip(self._offsets, sizes.edges, sizes.nodes[1:], sizes.nodes[:-1], strict=True)
        blocks = [Block(offsets, self._source[:edges], *ends) for offsets, edges, *ends in parts]
        self._place, self._source_node, self._takes_places = empty(sizes.nodes[-1]), None, takes_places
        if takes_places:
            self._source_node = empty(sizes.edges[-1]) if slot.last_hop_global else None
            blocks[-1] = placed(blocks[-1], self._place, self._source_node)
        self.blocks = blocks[::-1]  # a layer each: the first takes all hops

    def rows_of(self, all_rows: Tensor) -> Tensor:
        """The features that the step takes, of those of the table or the pool."""
        if self._takes_places:
            return all_rows
        rows = all_rows.index_select(0, self._place.clamp(min=0))
        lacks = (1 << (len(rows).bit_length() - 1)) // 32  # at most so many of the last ones are not the batch's
        if lacks:
            rows[-lacks:].masked_fill_((self._place[-lacks:] < 0).unsqueeze(1), 0)
        return rows

    def load(self, slot, sizes: Sizes) -> None:
        """Copies the batch of a slot, which has ``sizes``."""
        source, indptr = slot.edge_index[0], slot.indptr
        parts = [(self._source[: len(source)], source, 0)]
        for offsets, edges, targets in zip(self._offsets, sizes.edges, sizes.nodes[:-1], strict=True):
            parts.append((offsets, indptr[: targets + 1], edges))
        parts.append((self._place, slot.place[: sizes.nodes[-1]], -1))
        if self._source_node is not None:
            parts.append((self._source_node[: sizes.edges[-1]], slot.source_node, 0))
        if self.y.dtype == torch.int64:
            parts.append((self.y, slot.y[: len(self.y)], 0))
        else:
            self.y.copy_(slot.y[: len(self.y)])
        kernels.copy_arrays(parts)


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Memory of the GPU that is freed during a capture, as that of graphs nobody needs any more, ends it."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _captured(work: Callable[[], None], device: torch.device, pool) -> torch.cuda.CUDAGraph:
    """A graph of what ``work`` puts on the current stream."""
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.current_stream(device)
    of_its_own = None if stream == torch.cuda.default_stream(device) else stream  # the default cannot capture
    captured = torch.cuda.graph(graph, pool=pool, stream=of_its_own, capture_error_mode="thread_local")
    with _no_garbage_collection(), captured:
        work()
    return graph


class ReplayedWork:
    """Work on tensors that stay where they are, as a CUDA graph for each kind of it and stream that it runs on.

    Args:
        work: puts the same on the current stream each time that it gets the same.
        keys: of activated() in the work; None: the work does not call it.
    """

    def __init__(self, work: Callable[..., None], device: torch.device, keys: GraphKeys | None = None):
        self._work, self._device, self._keys = work, device, keys
        self._graphs: dict[tuple, torch.cuda.CUDAGraph] = {}
        self._pool = torch.cuda.graph_pool_handle()
        self._warm_up_steps: Counter[tuple] = Counter()  # by kind and stream

    def __call__(self, *given, kind: Hashable = None, has_room: bool = True) -> bool:
        """The work on what is given, the same for each kind; whether it ran as a graph, which is made if there is room
        for it."""
        key = kind, torch.cuda.current_stream(self._device).cuda_stream
        if key not in self._graphs:
            if self._warm_up_steps[key] < WARM_UP_STEPS or not has_room:
                self._warm_up_steps[key] += 1
                self._work(*given)
                return False
            with self._keys.recorded() if self._keys else nullcontext():
                self._graphs[key] = _captured(partial(self._work, *given), self._device, self._pool)
        if self._keys:
            self._keys.draw()
        self._graphs[key].replay()
        return True


class StepGraphs:
    """Runs a step on batches as CUDA graphs.

    Args:
        step: takes features, a Block a layer, and the seeds' labels; what it does must depend on nothing else but
            tensors that stay where they are, and on the keys that activated() draws.
        all_rows: the table or pool, of which batches name rows.
        takes_places: the features are all of it, and the first Block says where the batch's rows are; else those of the
            batch, [padded nodes, dim].
    """

    def __init__(
        self,
        step: Callable[[Tensor, list[Block], Tensor], None],
        device: torch.device,
        all_rows: Tensor,
        takes_places: bool,
    ):
        self._device, self._takes_places = device, takes_places
        self._inputs: dict[Sizes, _Inputs] = {}  # of those that have graphs
        # It does not refer to this object: its memory goes as soon as nobody refers to it.
        self._replayed = ReplayedWork(partial(_run, step, all_rows), device, GraphKeys(device))

    def __call__(self, slot) -> None:
        """The step on the batch in a slot."""
        sizes = Sizes.of(slot)
        padded = sizes.padded()
        inputs = self._inputs.get(padded) or _Inputs(padded, self._device, slot, self._takes_places)
        inputs.load(slot, sizes)
        has_room = padded in self._inputs or len(self._inputs) < MOST_SIZES
        if self._replayed(inputs, kind=padded, has_room=has_room):
            self._inputs[padded] = inputs


def _run(step: Callable[[Tensor, list[Block], Tensor], None], all_rows: Tensor, inputs: _Inputs) -> None:
    step(inputs.rows_of(all_rows), inputs.blocks, inputs.y)
