"""Training steps as CUDA graphs: one launch in place of a hundred.

A launch takes the host some microseconds, and the GPU longer while the sampler keeps its bus busy. A graph is captured
once for batches of about one size and replayed for each of them: a batch has room in arrays that are somewhat larger
(Inputs).
"""

import gc
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor

from cohort_gnn.nn.activation import GraphKeys
from cohort_gnn.spec.graph import GraphTypes
from cohort_gnn.trainer.loop.inputs import Inputs, Sizes

WARM_UP_STEPS = 2  # of a size on a stream before its graph: kernels are loaded, the optimizer makes its state
MOST_SIZES = 32  # that have graphs; further ones go without


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Inside, no garbage is collected: freeing memory of the GPU, such as that of old graphs, would end a capture."""
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
    capture_stream = None if stream == torch.cuda.default_stream(device) else stream  # the default cannot capture
    captured = torch.cuda.graph(graph, pool=pool, stream=capture_stream, capture_error_mode="thread_local")
    with _no_garbage_collection(), captured:
        work()
    return graph


class ReplayedWork:
    """Work on tensors that stay where they are, as a CUDA graph for each kind of it and stream that it runs on.

    Args:
        work: puts the same work on the current stream each time that it gets the same arguments.
        keys: of activated() in the work; None: the work does not call it.
    """

    def __init__(self, work: Callable[..., None], device: torch.device, keys: GraphKeys | None = None):
        self._work, self._device, self._keys = work, device, keys
        self._graphs: dict[tuple, torch.cuda.CUDAGraph] = {}
        self._pool = torch.cuda.graph_pool_handle()
        self._warm_up_steps: Counter[tuple] = Counter()  # by kind and stream

    def __call__(self, *arguments, kind: Hashable = None, has_room: bool = True) -> bool:
        """Does the work on the arguments, which must be the same for each kind. Returns whether it ran as a graph,
        which is made if ``has_room``."""
        key = kind, torch.cuda.current_stream(self._device).cuda_stream
        if key not in self._graphs:
            if self._warm_up_steps[key] < WARM_UP_STEPS or not has_room:
                self._warm_up_steps[key] += 1
                self._work(*arguments)
                return False
            with self._keys.recorded() if self._keys else nullcontext():
                self._graphs[key] = _captured(partial(self._work, *arguments), self._device, self._pool)
        if self._keys:
            self._keys.draw()
        self._graphs[key].replay()
        return True


class StepGraphs(ABC):
    """Runs a step on batches as CUDA graphs.

    Args:
        step: takes what Inputs.arguments() returns; what it does must depend on nothing else but tensors that stay
            where they are, and on the keys that activated() draws.
        new_inputs: makes Inputs with room of these sizes for a batch in a slot.
    """

    def __init__(self, step: Callable[..., None], device: torch.device, new_inputs: Callable[[Sizes, Any], Inputs]):
        self._step, self._device, self._new_inputs = step, device, new_inputs
        self._replayed = self._new_work()

    def _new_work(self) -> ReplayedWork:
        # It does not refer to this object, so that its memory is freed with the last reference to it.
        return ReplayedWork(partial(_run, self._step), self._device, GraphKeys(self._device))

    def tables(self) -> Sequence[Tensor | None]:
        """Memory of rows by node type that the next step overwrites; None: a type has no such; empty: no type has."""
        return ()

    @abstractmethod
    def __call__(self, slot) -> None:
        """Runs the step on the batch in a slot."""


class PaddedGraphs(StepGraphs):
    """A graph for each size, rounded up: for graphs of one node type and one edge type."""

    def __init__(self, step: Callable[..., None], device: torch.device, new_inputs: Callable[..., Inputs]):
        super().__init__(step, device, partial(new_inputs, gathers=True))
        self._inputs: dict[Sizes, Inputs] = {}  # of those that have graphs

    def __call__(self, slot) -> None:
        sizes = Sizes.from_slot(slot)
        room = sizes.padded()
        inputs = self._inputs.get(room) or self._new_inputs(room, slot)
        inputs.load(slot, sizes)
        has_room = room in self._inputs or len(self._inputs) < MOST_SIZES
        if self._replayed(inputs, kind=room, has_room=has_room):
            self._inputs[room] = inputs


class GrowingGraph(StepGraphs):
    """One graph with room for every batch so far, and somewhat more; a batch that does not fit gets a larger one.

    Of several types there are too many combinations of sizes to have a graph for each.
    """

    _inputs: Inputs | None = None

    def tables(self) -> Sequence[Tensor | None]:
        tables = self._inputs.tables if self._inputs else []
        return [table if isinstance(table, Tensor) else None for table in tables]

    def __call__(self, slot) -> None:
        sizes, inputs = Sizes.from_slot(slot), self._inputs
        if inputs is None or not sizes.fits(inputs.room):
            room = sizes.grown(inputs.room if inputs else None)
            self._inputs = inputs = None  # the old memory goes before the new comes
            self._replayed = self._new_work()
            self._inputs = inputs = self._new_inputs(room, slot)
        inputs.load(slot, sizes)
        self._replayed(inputs)


def graphs_for(
    step: Callable[..., None],
    device: torch.device,
    types: GraphTypes,
    all_rows: Sequence[Tensor | None] | None,
    is_indexed: Callable[[Tensor], bool],
) -> StepGraphs:
    """The StepGraphs for steps on batches of a graph; for the arguments see StepGraphs and Inputs."""
    kind = PaddedGraphs if len(types.edge_types) == len(types.counts) == 1 else GrowingGraph
    return kind(step, device, partial(Inputs, types=types, all_rows=all_rows, is_indexed=is_indexed))


def _run(step: Callable[..., None], inputs: Inputs) -> None:
    step(*inputs.arguments())
