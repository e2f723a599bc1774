"""What a step takes of a batch, by node type and edge type: as a slot has it, and where a CUDA graph looks for it."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import torch
from torch import Tensor

from cohort_gnn.nn import kernels
from cohort_gnn.nn.block import Block
from cohort_gnn.nn.inputs import IndexedRows
from cohort_gnn.spec.graph import EdgeType, GraphTypes
from cohort_gnn.trainer.loader import _native
from cohort_gnn.trainer.loader.source import slot_offsets

Blocks = list[dict[EdgeType, Block]]  # of each layer; the first layer takes the edges of all hops


def _counts_up_to(per_hop: Iterable[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(accumulate(counts)) for counts in per_hop)


def _room_for(count: int) -> int:
    """Batches of one kind differ by about a hundredth; small counts by more."""
    return count + count // 24 + 64 if count else 0


@dataclass(frozen=True)
class Sizes:
    """The numbers of nodes of each node type [hops + 1], seeds first, and of edges of each edge type [hops] in a batch;
    each number includes the hops before."""

    nodes: tuple[tuple[int, ...], ...]
    edges: tuple[tuple[int, ...], ...]

    @classmethod
    def from_slot(cls, slot) -> "Sizes":
        """The sizes of the batch in a slot."""
        return cls(_counts_up_to(slot.nodes_of_types), _counts_up_to(slot.edges_of_relations))

    def rounded(self, up: Callable[[int], int]) -> "Sizes":
        """Sizes with all numbers replaced by ``up`` of them, except those of seeds."""
        nodes = tuple((per_hop[0], *map(up, per_hop[1:])) for per_hop in self.nodes)
        return Sizes(nodes, tuple(tuple(map(up, per_hop)) for per_hop in self.edges))

    def padded(self) -> "Sizes":
        """Rounded up, so that batches of about one size have the same."""
        return self.rounded(_native.padded)

    def fits(self, room: "Sizes") -> bool:
        """Whether a batch of these sizes has room in ``room``, which must have as many seeds."""
        pairs = (*zip(self.nodes, room.nodes, strict=True), *zip(self.edges, room.edges, strict=True))
        has_room = all(all(map(int.__le__, sizes, most)) for sizes, most in pairs)
        return has_room and [per_hop[0] for per_hop in self.nodes] == [per_hop[0] for per_hop in room.nodes]

    def grown(self, room: "Sizes | None") -> "Sizes":
        """Room for a batch of these sizes and for others like it, and for all that ``room`` has room for."""
        own = self.rounded(_room_for)
        if room is None:
            return own

        def largest(one: tuple, other: tuple) -> tuple:
            return tuple(tuple(map(max, a, b)) for a, b in zip(one, other, strict=True))

        return Sizes(largest(own.nodes, room.nodes), largest(own.edges, room.edges))


def blocks_by_layer(
    types: GraphTypes, sizes: Sizes, offsets: Sequence[Sequence[Tensor]], sources: Sequence[Tensor]
) -> Blocks:
    """The edges of each layer.

    Args:
        offsets: of each edge type and hop int64 [any], the first edge of each target, see Block.
        sources: int64 [edges] of each edge type.
    """
    nodes = dict(zip(types.counts, sizes.nodes, strict=True))
    layers: Blocks = [{} for _ in sizes.edges[0]]
    by_type = zip(types.edge_types, offsets, sources, sizes.edges, strict=True)
    for relation, per_hop, source, counts in by_type:
        for hop, (indptr, num_edges) in enumerate(zip(per_hop, counts, strict=True)):
            num_nodes = nodes[relation[0]][hop + 1], nodes[relation[2]][hop]
            layers[-1 - hop][relation] = Block(indptr, source[:num_edges], *num_nodes)
    return layers


def blocks_of(slot, types: GraphTypes) -> Blocks:
    """The edges of the batch in a slot for each layer."""
    numbers, sizes = range(len(types.edge_types)), Sizes.from_slot(slot)
    offsets = [[slot_offsets(slot, number)] * len(sizes.edges[0]) for number in numbers]
    layers = blocks_by_layer(types, sizes, offsets, [slot.edges(number)[0] for number in numbers])
    if slot.last_hop_global:
        _read_globally(layers, slot.source_node, slot.row_index_of(0))
    return layers


def _read_globally(layers: Blocks, source_node: Tensor, row_index: Tensor) -> None:
    """Has the first layer read the row ``source_node`` of all rows for each edge, int64 [edges], of a graph of one node
    type; targets have indices int64 [nodes]."""
    ((relation, block),) = layers[0].items()
    layers[0][relation] = replace(block, source=source_node, own_row_index=row_index[: block.num_targets])


class Inputs:
    """What a step takes of a batch, where a CUDA graph looks for it.

    Nodes beyond those of a batch have no edges, and edges beyond belong to no node, so neither adds to any sum.

    Args:
        room: of the arrays; a batch fits if it has as many seeds.
        slot: with a batch, whose dtypes and columns the arrays have.
        types: of the graph.
        all_rows: those that batches name, of each node type; None: slots have rows.
        is_indexed: whether the step takes rows that batches name as IndexedRows; None: it takes none.
        gathers: rows that batches name are gathered by the step, in memory that all graphs share; otherwise by load(),
            in memory of their own.

    Attributes:
        tables: of each node type the rows that load() writes, [nodes, columns], or IndexedRows; None: it has none.
    """

    def __init__(
        self,
        room: Sizes,
        slot,
        types: GraphTypes,
        all_rows: Sequence[Tensor | None] | None = None,
        is_indexed: Callable[[Tensor], bool] | None = None,
        gathers: bool = False,
    ):
        self._device = slot.y.device
        self.room, self._types, self._all_rows = room, types, all_rows
        self._is_indexed = is_indexed or (lambda rows: False)
        self.tables = [self._table_of(slot, number, gathers) for number in range(len(types.counts))]
        self._edge_tables = {
            name: (number, slot.edge_table(number).new_zeros(room.edges[number][-1], dim))
            for number, (name, dim) in enumerate(zip(types.edge_types, types.edge_dims, strict=False))
            if dim
        }
        self._ages = {
            name: self._empty(sizes[-1])
            for name, sizes in zip(types.counts, room.nodes, strict=True)
            if name in types.age_spans
        }
        weights = getattr(slot, "edge_weight", None)
        self._edge_weight = None if weights is None else weights.new_zeros(room.edges[0][-1])
        self._y = slot.y.new_zeros((slot.num_seeds, *slot.y.shape[1:]))
        self._source = [self._empty(sizes[-1]) for sizes in room.edges]
        names = list(types.counts)
        self._target_of = [names.index(name[2]) for name in types.edge_types]  # the number of its node type
        # By edge type and hop; of all hops up to it.
        self._offsets = [[self._empty(count + 1) for count in room.nodes[target][:-1]] for target in self._target_of]
        self._blocks = blocks_by_layer(types, room, self._offsets, self._source)
        self._source_node = None
        if slot.last_hop_global:
            (table,), self._source_node = self.tables, self._empty(room.edges[0][-1])
            assert isinstance(table, IndexedRows)
            _read_globally(self._blocks, self._source_node, table.row_index)

    def _empty(self, count: int) -> Tensor:
        return torch.zeros(count, dtype=torch.int64, device=self._device)

    def _table_of(self, slot, number: int, gathers: bool) -> Tensor | IndexedRows | None:
        rows = slot.table(number) if self._all_rows is None else self._all_rows[number]
        if rows is None:
            return None
        count = self.room.nodes[number][-1]
        if self._all_rows is not None and (gathers or self._is_indexed(rows)):
            return IndexedRows(rows, self._empty(count))
        return rows.new_zeros(count, rows.shape[1])

    def arguments(self) -> tuple:
        """Those of TrainStep's step. Called by the step, whose graph gathers rows then."""
        x: dict[str, Tensor | IndexedRows] = {}
        for name, table in zip(self._types.counts, self.tables, strict=True):
            if isinstance(table, IndexedRows) and not self._is_indexed(table.rows):
                table = _gathered(table)
            x[name] = self._source[0][:0] if table is None else table
        nodes = _differences(self._types.counts, self.room.nodes)
        edges = _differences(self._types.edge_types, self.room.edges)
        attributes = {name: table for name, (_, table) in self._edge_tables.items()}
        last = self._ages or self._edge_weight
        return x, self._blocks, self._y, nodes, edges, attributes, *([] if last is None else [last])

    def load(self, slot, sizes: Sizes) -> None:
        """Copies the batch of a slot, which has ``sizes``."""
        parts = []
        for number, (to, per_hop) in enumerate(zip(self._source, self._offsets, strict=True)):
            source, offsets = slot.edges(number)[0], slot.offsets(number)
            parts.append((to[: len(source)], source, 0))
            # Up to each hop's own targets: the offsets go on with those of the next hop.
            hops = zip(per_hop, sizes.nodes[self._target_of[number]][:-1], sizes.edges[number], strict=True)
            parts += [(to, offsets[: targets + 1], edges) for to, targets, edges in hops]
        row_indices = (
            (table.row_index, number) for number, table in enumerate(self.tables) if isinstance(table, IndexedRows)
        )
        parts += [
            (row_index, slot.row_index_of(number)[: sizes.nodes[number][-1]], -1) for row_index, number in row_indices
        ]
        parts += [(ages, slot.ages[name], -1) for name, ages in self._ages.items()]
        if self._source_node is not None:
            parts.append((self._source_node, slot.source_node, 0))
        if self._y.dtype == torch.int64:
            parts.append((self._y, slot.y[: len(self._y)], 0))
        else:
            self._y.copy_(slot.y[: len(self._y)])
        kernels.copy_arrays(parts)
        if self._edge_weight is not None:
            self._edge_weight[: len(slot.edge_weight)].copy_(slot.edge_weight)
        self._load_tables(slot, sizes)

    def _load_tables(self, slot, sizes: Sizes) -> None:
        for number, (table, nodes) in enumerate(zip(self.tables, sizes.nodes, strict=True)):
            rows = None if self._all_rows is None else self._all_rows[number]
            if isinstance(table, Tensor) and rows is not None:
                torch.index_select(rows, 0, slot.row_index_of(number), out=table[: nodes[-1]])
            elif isinstance(table, Tensor):
                table[: nodes[-1]].copy_(slot.table(number))
        for number, table in self._edge_tables.values():
            rows = slot.edge_table(number)
            table[: len(rows)].copy_(rows)


def _gathered(table: IndexedRows) -> Tensor:
    """``table.gathered()``, where at most the last of 32 have index -1."""
    rows = table.rows.index_select(0, table.row_index.clamp(min=0))
    lacks = (1 << (len(rows).bit_length() - 1)) // 32
    if lacks:
        rows[-lacks:].masked_fill_((table.row_index[-lacks:] < 0).unsqueeze(1), 0)
    return rows


def _differences(names: Iterable, counts: Iterable[tuple[int, ...]]) -> dict:
    """The lists by hop whose running sums are ``counts``."""
    per_hop = [[now - before for now, before in zip(totals, (0, *totals), strict=False)] for totals in counts]
    return dict(zip(names, per_hop, strict=True))
