"""Training steps on graphs of several types as CUDA graphs.

Sizes by type and by relation are too many to have a graph for each combination, as graphs.py has. Here one graph has
room for every batch so far, and somewhat more; a batch that does not fit gets a larger one.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import accumulate

import torch
from torch import Tensor

from cohort_gnn.nn import kernels
from cohort_gnn.nn.activation import GraphKeys
from cohort_gnn.nn.block import Block
from cohort_gnn.nn.inputs import PlacedRows
from cohort_gnn.spec.graph import EdgeType, GraphTypes
from cohort_gnn.trainer.loop.graphs import ReplayedWork


def _counts_up_to(per_hop: Iterable[list[int]]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(accumulate(counts)) for counts in per_hop)


def _room_for(count: int) -> int:
    """Batches of one kind differ by about a hundredth; small counts by more."""
    return count + count // 24 + 64 if count else 0


@dataclass(frozen=True)
class TypedSizes:
    """What a batch has of each node type [hops + 1], seeds first, and of each relation [hops], with the hops before."""

    nodes: tuple[tuple[int, ...], ...]
    edges: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, slot) -> "TypedSizes":
        """Of a batch in a slot."""
        return cls(_counts_up_to(slot.nodes_of_types), _counts_up_to(slot.edges_of_relations))

    def fits(self, room: "TypedSizes") -> bool:
        """Whether a batch of these sizes has room in ``room``, which must have as many seeds."""
        pairs = (*zip(self.nodes, room.nodes, strict=True), *zip(self.edges, room.edges, strict=True))
        has_room = all(all(map(int.__le__, sizes, most)) for sizes, most in pairs)
        return has_room and [each[0] for each in self.nodes] == [each[0] for each in room.nodes]

    def grown(self, room: "TypedSizes | None") -> "TypedSizes":
        """Room for a batch of these sizes and for others like it, and for all that ``room`` has room for."""
        nodes = tuple((each[0], *map(_room_for, each[1:])) for each in self.nodes)
        edges = tuple(tuple(map(_room_for, each)) for each in self.edges)
        if room is None:
            return TypedSizes(nodes, edges)

        def largest(of: tuple, others: tuple) -> tuple:
            return tuple(tuple(map(max, a, b)) for a, b in zip(of, others, strict=True))

        return TypedSizes(largest(nodes, room.nodes), largest(edges, room.edges))


class _Inputs:
    """What a step takes of a batch, where a graph looks for it; ``arguments`` are those of TrainStep's step.

    Nodes beyond those of a batch have no edges, and edges beyond belong to no node, so neither adds to any sum.
    """

    def __init__(
        self,
        room: TypedSizes,
        types: GraphTypes,
        slot,
        all_rows: list[Tensor | None] | None = None,
        is_placed: Callable[[Tensor], bool] | None = None,
    ):
        def empty(count: int) -> Tensor:
            return torch.zeros(count, dtype=torch.int64, device=slot.n_id.device)

        self.room, self._all_rows = room, all_rows
        given = [slot.table(number) for number in range(len(types.counts))] if all_rows is None else all_rows
        self.tables = [
            None if rows is None
            else PlacedRows(rows, empty(sizes[-1])) if all_rows is not None and is_placed and is_placed(rows)
            else rows.new_zeros(sizes[-1], rows.shape[1])
            for rows, sizes in zip(given, room.nodes, strict=True)
        ]  # fmt: skip
        self._edge_tables = {
            name: (number, slot.edge_table(number).new_zeros(room.edges[number][-1], dim))
            for number, (name, dim) in enumerate(zip(types.edge_types, types.edge_dims, strict=False))
            if dim
        }
        self._y = slot.y.new_zeros((slot.num_seeds, *slot.y.shape[1:]))
        self._source = [empty(sizes[-1]) for sizes in room.edges]
        names = list(types.counts)
        self._target_of = [names.index(name[2]) for name in types.edge_types]  # the number of its node type
        nodes_of = dict(zip(names, room.nodes, strict=True))
        # By relation and hop; of all hops up to it.
        self._offsets = [[empty(targets + 1) for targets in nodes_of[name[2]][:-1]] for name in types.edge_types]
        num_hops = len(room.nodes[0]) - 1
        blocks: list[dict[EdgeType, Block]] = [{} for _ in range(num_hops)]  # a layer each: the first takes all hops
        for number, name in enumerate(types.edge_types):
            for hop, (offsets, edges) in enumerate(zip(self._offsets[number], room.edges[number], strict=True)):
                ends = nodes_of[name[0]][hop + 1], nodes_of[name[2]][hop]
                blocks[-1 - hop][name] = Block(offsets, self._source[number][:edges], *ends)
        x = {
            name: self._source[0][:0] if table is None else table
            for name, table in zip(names, self.tables, strict=True)
        }
        self.arguments = (
            x,
            blocks,
            self._y,
            _differences(names, room.nodes),
            _differences(types.edge_types, room.edges),
            {name: table for name, (_, table) in self._edge_tables.items()},
        )

    def load(self, slot, sizes: TypedSizes) -> None:
        """Copies the batch of a slot, which has ``sizes``."""
        parts = []
        for number, (source, per_hop) in enumerate(zip(self._source, self._offsets, strict=True)):
            parts.append((source, slot.edges(number)[0], 0))
            # Up to each hop's own targets: the offsets go on with those of the next hop.
            hops = zip(per_hop, sizes.nodes[self._target_of[number]][:-1], sizes.edges[number], strict=True)
            parts += [(to, slot.offsets(number)[: targets + 1], edges) for to, targets, edges in hops]
        kernels.copy_arrays(parts)
        self._y.copy_(slot.y[: len(self._y)])
        for number, (table, nodes) in enumerate(zip(self.tables, sizes.nodes, strict=True)):
            pool = None if self._all_rows is None else self._all_rows[number]
            if isinstance(table, PlacedRows):
                table.place[: nodes[-1]].copy_(slot.places(number))
                table.place[nodes[-1] :].fill_(-1)
            elif table is not None and pool is not None:
                torch.index_select(pool, 0, slot.places(number), out=table[: nodes[-1]])
            elif table is not None:
                table[: nodes[-1]].copy_(slot.table(number))
        for number, table in self._edge_tables.values():
            rows = slot.edge_table(number)
            table[: len(rows)].copy_(rows)


def _differences(names, counts) -> dict:
    """The lists by hop whose sums are ``counts``."""
    per_hop = [[now - before for now, before in zip(each, (0, *each), strict=False)] for each in counts]
    return dict(zip(names, per_hop, strict=True))


class TypedStepGraphs:
    """Runs a step on batches as a CUDA graph.

    Args:
        step: takes rows by type, Blocks by edge type of each layer, the seeds' labels, sizes by hop of types and of
            edge types, and rows of edges by edge type; what it does must depend on nothing else but tensors that stay
            where they are, and on the keys that activated() draws.
        types: of the graph.
        all_rows: those that batches name, of each node type; None: slots have rows.
        is_placed: whether the step takes rows that batches name as PlacedRows; None: it takes none.
    """

    def __init__(
        self,
        step: Callable[..., None],
        device: torch.device,
        types: GraphTypes,
        all_rows: list[Tensor | None] | None = None,
        is_placed: Callable[[Tensor], bool] | None = None,
    ):
        self._step, self._device, self._types, self._all_rows = step, device, types, all_rows
        self._is_placed = is_placed
        self._keys = GraphKeys(device)
        self._inputs: _Inputs | None = None
        self._work: ReplayedWork | None = None

    def tables(self) -> list[Tensor | None]:
        """Memory of rows by node type, which the next step overwrites; None: a type has no such."""
        tables = self._inputs.tables if self._inputs else []
        return [table if isinstance(table, Tensor) else None for table in tables]

    def __call__(self, slot) -> None:
        """The step on the batch in a slot."""
        sizes, inputs = TypedSizes.of(slot), self._inputs
        if inputs is None or not sizes.fits(inputs.room):
            room = sizes.grown(inputs.room if inputs else None)
            self._inputs = self._work = inputs = None  # the old memory goes before the new comes
            self._inputs = inputs = _Inputs(room, self._types, slot, self._all_rows, self._is_placed)
        inputs.load(slot, sizes)
        if self._work is None:  # which does not refer to this object: its memory goes as soon as nobody refers to it
            self._work = ReplayedWork(partial(self._step, *inputs.arguments), self._device, self._keys)
        self._work()
