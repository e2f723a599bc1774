"""A model's output for all nodes of a graph, layer by layer, each over full neighbourhoods."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.files import temporary_folder
from cohort_gnn.base.units import format_bytes
from cohort_gnn.dataset import StoredGraph
from cohort_gnn.nn.block import Block
from cohort_gnn.nn.row_tiles import row_tiles
from cohort_gnn.spec.graph import EdgeType
from cohort_gnn.trainer.predict.full_blocks import FullBlocks, Nodes, position_dtype
from cohort_gnn.trainer.predict.node_rows import ArrayRows, PreparedRows, UpdatedRows, features_of, new_rows, taken

LEAST_WORK_BYTES = 16 << 20
MOST_WORK_BYTES = 2 << 30
MOST_KEPT_BYTES = 100 << 20  # of arrays of up to 32 MiB, by malloc from piece to piece
BYTES_OF_EDGE = 64  # ids while a block is made, and what attention keeps of an edge; beside its row

RowsOfType: TypeAlias = (
    Tensor | ArrayRows | PreparedRows | UpdatedRows
)  # of all nodes; a tensor: in the memory of the device
RowsByType = dict[str, RowsOfType]  # by node type


class KeptIn(StrEnum):
    """Where the rows of all nodes lie that a layer reads."""

    WHOLE = "memory"  # of the device: the layer reads them where they are
    HOST = "host memory"  # a GPU's layer gets copies, piece by piece
    FILES = "files"  # as above


@dataclass(frozen=True)
class MemoryPlan:
    """Where tables are kept within a bound of memory.

    Attributes:
        work_bytes: of a piece of a layer: what becomes of its rows, and copies of those that it reads.
        kept_in: of the rows that each layer reads: the features first, then hidden layers.
        file_bytes: of hidden layers that lie in files at once.
    """

    work_bytes: int
    kept_in: list[KeptIn]
    file_bytes: int = 0


def plan_memory(
    bound_bytes: int, num_nodes: int, tables: list[int], with_degrees: bool, gpu_bytes: int | None = None
) -> MemoryPlan:
    """Shares out the memory of a prediction: hidden layers first, then features.

    Args:
        bound_bytes: of host memory.
        tables: bytes of the rows that each layer reads, as `table_bytes` counts them.
        gpu_bytes: what is free on the GPU where layers run; None: they run on the CPU.

    Raises:
        CohortError: the bound is below what every prediction needs.
    """
    fixed = num_nodes * (1 + torch.empty((), dtype=position_dtype(num_nodes)).element_size() + 4 * with_degrees)
    host_fixed = fixed if gpu_bytes is None else 0
    if bound_bytes < host_fixed + LEAST_WORK_BYTES:
        expected = f"at least {format_bytes(host_fixed + LEAST_WORK_BYTES)} for {num_nodes} nodes"
        raise CohortError("--memory", expected, format_bytes(bound_bytes))
    work = min(max(LEAST_WORK_BYTES, (bound_bytes - host_fixed) // 4), MOST_WORK_BYTES)
    host_room = bound_bytes - host_fixed - work
    if gpu_bytes is not None:
        memories = _choose_memories(tables, gpu_bytes * 2 // 3 - fixed, host_room)
    else:
        memories = _choose_memories(tables, host_room, 0)
        if KeptIn.FILES in memories[1:]:
            work = min(max(LEAST_WORK_BYTES, (bound_bytes - host_fixed) // 2), MOST_WORK_BYTES)
            memories = [KeptIn.FILES] * len(tables)
    in_files = [size * (memory == KeptIn.FILES) for size, memory in zip(tables[1:], memories[1:], strict=True)]
    return MemoryPlan(work, memories, max((sum(pair) for pair in pairwise([0, *in_files])), default=0))


def _choose_memories(tables: list[int], room: int, host_room: int) -> list[KeptIn]:
    """Where tables of so many bytes lie, of which one is read while the next is written."""
    memories = [KeptIn.FILES] * len(tables)
    for memory, space in ((KeptIn.WHOLE, room), (KeptIn.HOST, host_room)):
        for i in reversed(range(len(tables))):
            is_free = memories[i] == KeptIn.FILES and (
                i > 0 or memory == KeptIn.WHOLE
            )  # features are in a file already
            beside = [tables[j] for j in (i - 1, i + 1) if 0 <= j < len(tables) and memories[j] == memory]
            if is_free and tables[i] + max(beside, default=0) <= space:
                memories[i] = memory
    return memories


class Layerwise:
    """Runs a model over a whole graph.

    Args:
        model: a SampledGNN or a TypedGNN of Cohort's layers, with its weights.
        data: the graph and its features.
        memory: as `plan_memory` shares it out; hidden layers of all node types lie together.
        out: hidden layers that lie in files lie in a temporary folder beside it.
        device: where layers run.
        name: the node type whose scores are computed, one of the model's outputs.
        spans: of edges in time, as `FullBlocks` takes them.
        at_time: of all scores, where the model reads ages of nodes.

    Attributes:
        model, memory, out, device: as given.
        spans: as given, or empty.
        node_types: of the data set.
        gives: the node types for which each layer computes rows.
    """

    def __init__(
        self,
        model: Any,
        data: StoredGraph,
        memory: MemoryPlan,
        out: Path,
        device: torch.device,
        name: str,
        spans: Mapping[EdgeType, tuple[int, int]] | None = None,
        at_time: int | None = None,
    ):
        self._at_time, self._aged = at_time, list(model.ages.spans) if model.ages else []  # node types
        self.model, self.memory = model.to(device).eval(), memory
        self.out, self.device, self.spans = out, device, spans or {}
        self._tables, self.node_types = data.node_types, list(data.node_types)
        self.gives = outputs_of_layers(model, self._tables, name)
        self._reads = [[node_type for node_type in self._tables if self._has_rows(node_type)], *self.gives[:-1]]
        counts = {node_type: table.num_nodes for node_type, table in self._tables.items()}
        self._blocks = FullBlocks(counts, data.edge_types, not model.two_sided, device, spans)
        tables = {relation: data.edge_types[relation].edge_table for relation in model.edge_dims}
        self._edge_rows = {relation: features_of(table) for relation, table in tables.items() if table is not None}

    @torch.no_grad()
    def run(self, take_scores: Callable[[int, Tensor], None], advance: Callable[[int], None]) -> None:
        """Computes the scores of all nodes.

        Args:
            take_scores: gets the first node of a piece and its scores, float32 [nodes, classes], on the device.
            advance: gets the number of edges and nodes that a layer is done with; `work` of them in all.

        Raises:
            OSError: the disk has no room for the hidden layers.
        """
        rows, memories = self.features(), self.memory.kept_in[1:]
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(temporary_folder(self.out)) if KeptIn.FILES in memories else None
            stack.enter_context(row_tiles())
            for number, memory in enumerate([*memories, None]):
                made: RowsByType = {}
                for name in self.gives[number]:
                    take = take_scores
                    if memory is not None:
                        shape = self.shape_of(number, name)
                        file = (
                            folder / f"hidden-{number}-{len(made)}.npy" if folder and memory == KeptIn.FILES else None
                        )
                        whole = torch.empty(shape, device=self.device) if memory == KeptIn.WHOLE else None
                        out = torch.from_numpy(new_rows(shape, file)) if whole is None else whole
                        made[name] = ArrayRows(out.numpy()) if whole is None else whole
                        take = keep_scores(out)
                    self.run_layer(number, rows, name, self.nodes_of(name), take, advance)
                if folder and number > 0 and memories[number - 1] == KeptIn.FILES:
                    for file in folder.glob(f"hidden-{number - 1}-*.npy"):
                        file.unlink()
                rows = made

    @property
    def work(self) -> int:
        """Edges and nodes that `run` goes through, over all layers."""
        layers = enumerate(self.gives)
        return sum(self.work_of(number, name, self.nodes_of(name)) for number, names in layers for name in names)

    def nodes_of(self, name: str) -> range:
        """All nodes of a type."""
        return range(self._tables[name].num_nodes)

    def shape_of(self, number: int, name: str) -> tuple[int, int]:
        """Of what a layer makes for all nodes of a type: its last one, scores."""
        is_last = number == len(self.gives) - 1
        return self._tables[name].num_nodes, self.model.num_classes if is_last else self.model.width_of(number)

    def run_layer(
        self,
        number: int,
        rows: RowsByType,
        name: str,
        nodes: Nodes,
        take: Callable[[int, Tensor], None],
        advance: Callable[[int], None],
    ) -> None:
        """Computes what a layer gives some nodes of a type.

        Args:
            rows: of all nodes, what it reads.
            take: gets the place among the nodes of the first of a piece, and what the layer gives it, float32.
        """
        for first, last in self._pieces(number, rows, name, nodes):
            piece = nodes[first:last]
            take(first, self._output(number, rows, name, piece).float())
            advance(self.work_of(number, name, piece))

    def features_by_id(self) -> dict[str, ArrayRows | PreparedRows]:
        """What the first layer reads, where it lies."""
        return {name: features_of(table) for name, table in self._tables.items() if table.feature_dim}

    def features(self) -> RowsByType:
        """What the first layer reads, in the memory of the device if it has room."""
        return self.in_memory(0, dict(self.features_by_id()))

    def in_memory(self, number: int, rows: RowsByType) -> RowsByType:
        """The rows that a layer reads, in the memory of the device if it has room."""
        if self.memory.kept_in[number] != KeptIn.WHOLE:
            return rows
        widths = {name: self._width(number, name) for name, some in rows.items() if not isinstance(some, Tensor)}
        return rows | {name: self._taken(rows[name], self.nodes_of(name), width) for name, width in widths.items()}

    def reads_many(self, number: int, nodes: Mapping[str, Tensor]) -> bool:
        """Whether a layer, for some nodes of each type, reads more rows than there are: then rows of all nodes in the
        memory of the device cost less than copies of those of each piece."""
        read = sum(self.work_of(number, name, some) for name, some in nodes.items())
        return read > sum(table.num_nodes for table in self._tables.values())

    def _has_rows(self, name: str) -> bool:
        """Whether nodes of a type have features, learned rows or ages."""
        learned = self.model.embeddings
        has_learned = learned is not None and name in learned.keys()
        return self._tables[name].feature_dim > 0 or has_learned or name in self._aged

    def _width(self, number: int, name: str) -> int:
        """Columns of the rows of a node type that layer `number` reads."""
        return self.model.width_of(number - 1) if number > 0 else self._tables[name].feature_dim

    def into(self, number: int, name: str) -> list[EdgeType]:
        """The edge types of a layer that lead to a node type."""
        return [relation for relation in self.model.edge_types[number] if relation[2] == name]

    def work_of(self, number: int, name: str, nodes: Nodes) -> int:
        """Edges and nodes of some targets of a layer, of a type."""
        return len(nodes) + self._blocks.num_edges(self.into(number, name), nodes)

    def _output(self, number: int, rows: RowsByType, name: str, nodes: Nodes) -> Tensor:
        """What a layer gives some targets of a type."""
        x, blocks, ages = self._input(number, rows, name, nodes)
        num_targets = {node_type: len(nodes) if node_type == name else 0 for node_type in self._tables}
        edge_attr, others = self._edge_attr(number, name, nodes), {"ages": ages} if ages else {}
        return self.model.layer_on(number, x, blocks, num_targets, edge_attr, **others)[name]

    def _input(
        self, number: int, rows: RowsByType, name: str, nodes: Nodes
    ) -> tuple[dict[str, Any], dict[EdgeType, Block], dict[str, Tensor]]:
        """What a layer reads for some targets of a type: rows, of their type targets first, edges, and the first layer
        ages of nodes."""
        relations, in_place = self.into(number, name), self._reads_in_place(number, rows)
        if in_place and self.model.two_sided:
            return rows, self._blocks.blocks_of_all(relations, nodes), {}
        blocks, ids = self._blocks.blocks(name, relations, nodes)
        if in_place:
            own = ids[name][: len(nodes)]
            placed = {name: replace(block, row_index=ids[name[0]], own_row_index=own) for name, block in blocks.items()}
            return rows, placed, {}
        none = torch.zeros(1, dtype=torch.int64, device=self.device)
        for relation in self.model.edge_types[number]:
            if relation[2] != name:  # whose targets are other nodes
                blocks[relation] = Block(none, none[:0], len(ids[relation[0]]), 0)
        x = {node_type: self._rows_of(number, rows, node_type, ids[node_type]) for node_type in self._reads[number]}
        return x, blocks, {aged: self._ages_of(aged, ids[aged]) for aged in self._aged if number == 0}

    def _reads_in_place(self, number: int, rows: RowsByType) -> bool:
        """Whether a layer reads rows where those of all nodes lie, which is in the memory of the device."""
        lie_there = (isinstance(rows.get(name), Tensor) for name in self._reads[number])
        return self.model.takes_indexed_blocks and all(lie_there)

    def _rows_of(self, number: int, rows: RowsByType, name: str, ids: Tensor) -> Tensor:
        """The rows of nodes of a type that a layer reads; of learned rows the ids."""
        if number == 0 and name not in rows:
            return ids
        table = rows[name]
        return table[ids] if isinstance(table, Tensor) else self._taken(table, ids, self._width(number, name))

    def _ages_of(self, name: str, ids: Tensor) -> Tensor:
        """int64 [n], of nodes of a type at the time of the scores."""
        times = self._tables[name].node_times
        assert times is not None and self._at_time is not None
        return self._at_time - torch.from_numpy(times[ids.cpu().numpy()]).to(ids.device)

    def _edge_attr(self, number: int, name: str, nodes: Nodes) -> dict[EdgeType, Tensor]:
        attributes = {}
        for relation in self.model.edge_types[number]:
            if relation in self._edge_rows:
                edges = self._blocks.positions(relation, nodes) if relation[2] == name else range(0)
                attributes[relation] = self._taken(self._edge_rows[relation], edges, self.model.edge_dims[relation])
        return attributes

    def _pieces(self, number: int, rows: RowsByType, name: str, nodes: Nodes) -> Iterator[tuple[int, int]]:
        """[first, last) of some targets, so many that what a layer makes of them stays within the memory for work."""
        relations = self.into(number, name)
        width = max(self._width(number, node_type) for node_type in self._reads[number])
        source_bytes, target_bytes = (
            4 * (width + columns) for columns in self.model.working_widths_of(number, width, len(relations))
        )
        if self._reads_in_place(number, rows):
            source_bytes = 0
        edge_bytes = BYTES_OF_EDGE + 4 * max(self.model.edge_dims.values(), default=0)
        return self._blocks.pieces(
            relations, nodes, source_bytes + target_bytes, edge_bytes, self._limit_bytes(), source_bytes
        )

    def _limit_bytes(self) -> int:
        """What a piece may take where layers run."""
        if self.device.type != "cuda":
            work_bytes = self.memory.work_bytes
            return max(work_bytes // 3, work_bytes - MOST_KEPT_BYTES)
        torch.cuda.empty_cache()
        return torch.cuda.mem_get_info(self.device)[0] // 2

    def _taken(self, rows: ArrayRows | PreparedRows | UpdatedRows, ids: Tensor | range, dim: int) -> Tensor:
        """Rows that lie elsewhere: float32 [n, dim] on the device."""
        return taken(rows, ids, dim, self.device, self.memory.work_bytes)


def outputs_of_layers(model: Any, names: Iterable[str], name: str) -> list[list[str]]:
    """The node types for which each layer computes rows; the last layer computes the scores of one type."""
    targets = [{relation[2] for relation in relations} for relations in model.edge_types]
    return [*([node_type for node_type in names if node_type in some] for some in targets[:-1]), [name]]


def table_bytes(model: Any, data: StoredGraph, name: str) -> list[int]:
    """Bytes of the float32 rows of all nodes that each layer reads to compute the scores of a node type."""
    tables = data.node_types
    features = sum(table.num_nodes * table.feature_dim for table in tables.values())
    hidden = [
        model.width_of(number) * sum(tables[node_type].num_nodes for node_type in names)
        for number, names in enumerate(outputs_of_layers(model, tables, name)[:-1])
    ]
    return [4 * elements for elements in (features, *hidden)]


def keep_scores(
    out: np.ndarray | Tensor, best: Callable[[Tensor], Tensor] | None = None
) -> Callable[[int, Tensor], None]:
    """Writes scores, or what `best` makes of them, into `out`."""

    def take(first: int, scores: Tensor) -> None:
        kept = scores if best is None else best(scores)
        out[first : first + len(scores)] = kept if isinstance(out, Tensor) else kept.cpu().numpy()

    return take
