"""The scores of all nodes of a type of a graph with several types, layer by layer, each over full neighbourhoods."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor

from cohort_gnn.dataset import HeteroDataset
from cohort_gnn.nn.block import keep_offsets
from cohort_gnn.spec.graph import EdgeType
from cohort_gnn.trainer.models.typed import TypedGNN
from cohort_gnn.trainer.predict.full_blocks import pieces_below, read_ids
from cohort_gnn.trainer.predict.layerwise import BYTES_OF_EDGE, LayerByLayer, MemoryPlan, Rows
from cohort_gnn.trainer.predict.node_rows import features_of


class TypedLayerwise(LayerByLayer):
    """A graph of several types.

    Args:
        name: the node type, one of the model's outputs.
    """

    def __init__(
        self, model: TypedGNN, data: HeteroDataset, memory: MemoryPlan, out: Path, device: torch.device, name: str
    ):
        counts = {name: table.num_nodes for name, table in data.node_types.items()}
        # Of each layer: the node types that it gives rows, and those whose rows it reads.
        gives = [[name for name in counts if name in {each[2] for each in all_}] for all_ in model.edge_types]
        gives[-1] = [name]
        super().__init__(model, data, memory, out, device, counts, gives)
        tables = {each: data.edge_types[each].edge_table for each in model.edge_dims}
        self._edge_rows = {each: features_of(table) for each, table in tables.items() if table is not None}
        first = set() if model.embeddings is None else set(model.embeddings.keys())
        first |= {name for name, table in data.node_types.items() if table.feature_dim}
        self._reads = [[name for name in counts if name in first], *gives[:-1]]

    def _features(self) -> Rows:
        return {name: features_of(table) for name, table in self.data.node_types.items() if table.feature_dim}

    def _into(self, number: int, name: str) -> list[EdgeType]:
        return [each for each in self.model.edge_types[number] if each[2] == name]

    def _work_of(self, number: int, name: str, first: int, last: int) -> int:
        relations = (self.data.edge_types[each] for each in self._into(number, name))
        return last - first + sum(int(each.indptr[last] - each.indptr[first]) for each in relations)

    def _output(self, number: int, rows: Rows, name: str, first: int, last: int) -> Tensor:
        x, edges, sizes = self._input(number, rows, name, first, last)
        if number == 0:
            x = self.model.first_rows(x)
        x = self.model.layer_on(number, x, edges, sizes, self._edge_attr(number, name, first, last))
        return self.model.scores(x, name) if number + 1 == len(self.gives) else x[name]

    def _edge_attr(self, number: int, name: str, first: int, last: int) -> dict[EdgeType, Tensor]:
        """The rows of the edges into [first, last) of a type, of the relations whose edges have some that are read; no
        rows of relations into other types."""
        attributes = {}
        for each in self.model.edge_types[number]:
            if each in self._edge_rows:
                indptr, dim = self.data.edge_types[each].indptr, self.model.edge_dims[each]
                edges = range(int(indptr[first]), int(indptr[last])) if each[2] == name else range(0)
                attributes[each] = self._taken(self._edge_rows[each], edges, dim)
        return attributes

    def _pieces(self, number: int, rows: Rows, name: str) -> Iterator[tuple[int, int]]:
        widths = [self._width(number, each) for each in self._reads[number]]
        of_node = 4 * (max(widths) + 4 * self.model.hidden)  # with projections: keys, values, what becomes of them
        of_target = of_node * (1 + len(self._into(number, name)))
        relations = [self.data.edge_types[each] for each in self._into(number, name)]
        of_edge = of_node + BYTES_OF_EDGE + 4 * max(self.model.edge_dims.values(), default=0)

        def cost(first: int, last: int) -> int:
            edges = sum(int(each.indptr[last] - each.indptr[first]) for each in relations)
            return (last - first) * of_target + edges * of_edge

        return pieces_below(self._limit_bytes(self.memory.work_bytes), self.counts[name], cost)

    def _width(self, number: int, name: str) -> int:
        return self.model.hidden if number > 0 else self.data.node_types[name].feature_dim

    def _input(
        self, number: int, rows: Rows, name: str, first: int, last: int
    ) -> tuple[dict[str, Tensor], dict[EdgeType, Tensor], dict[str, int]]:
        """What a layer reads for the targets [first, last) of a type: rows, targets first, edges, and how many targets
        each type has."""
        targets = torch.arange(first, last, device=self.device)
        offsets, sources = {}, {}
        for each in self._into(number, name):
            relation = self.data.edge_types[each]
            begin, end = int(relation.indptr[first]), int(relation.indptr[last])
            offsets[each] = read_ids(relation.indptr, first, last + 1, self.device) - begin
            sources[each] = read_ids(relation.indices, begin, end, self.device)
        none = targets[:0]
        ids, edges = {}, dict.fromkeys(self.model.edge_types[number], torch.stack([none, none]))
        for type_ in self.counts:
            of_type = [each for each in sources if each[0] == type_]
            own = targets if type_ == name else none
            others = torch.cat([none, *(sources[each] for each in of_type)]).unique()
            if type_ == name:
                others = others[(others < first) | (others >= last)]
            ids[type_] = torch.cat([own, others])
            for each in of_type:
                local = len(own) + torch.searchsorted(others, sources[each])
                if type_ == name:
                    is_target = (sources[each] >= first) & (sources[each] < last)
                    local = torch.where(is_target, sources[each] - first, local)
                target = torch.arange(len(targets), device=self.device).repeat_interleave(offsets[each].diff())
                edges[each] = keep_offsets(torch.stack([local, target]), offsets[each])
        x = {each: self._rows_of(number, rows, each, ids[each]) for each in self._reads[number]}
        return x, edges, {type_: len(targets) if type_ == name else 0 for type_ in self.counts}

    def _rows_of(self, number: int, rows: Rows, name: str, ids: Tensor) -> Tensor:
        """The rows of nodes of a type that a layer reads; of learned rows the ids."""
        if number == 0 and name not in rows:
            return ids
        of_type = rows[name]
        if isinstance(of_type, Tensor):
            return of_type[ids]
        return self._taken(of_type, ids, self._width(number, name))


def hidden_widths(model: TypedGNN) -> list[int]:
    """Columns of the rows that each layer reads beside the features, which are read by id: 0 for the first."""
    return [0, *(model.hidden for _ in pairwise(model.convs))]
