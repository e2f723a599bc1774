"""The scores of all nodes of a type of a graph with several types, layer by layer, each over full neighbourhoods."""

import bisect
import contextlib
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor

from cohort_gnn.base.files import temporary_folder
from cohort_gnn.dataset import HeteroDataset
from cohort_gnn.nn.block import keep_offsets
from cohort_gnn.spec.graph import EdgeType
from cohort_gnn.trainer.models.typed import TypedGNN
from cohort_gnn.trainer.predict.full_blocks import read_ids
from cohort_gnn.trainer.predict.layerwise import BYTES_OF_EDGE, MemoryPlan, Place, keep_scores
from cohort_gnn.trainer.predict.node_rows import EncodedRows, StoredRows, features_of, new_rows, taken

Rows = dict[str, Tensor | StoredRows | EncodedRows]  # of all nodes, by node type; a tensor: in the device's memory


class TypedLayerwise:
    """Runs a model over a whole graph of several types.

    Args:
        model: of Cohort's layers, with its weights.
        data: the graph and its features.
        memory: where hidden layers of all node types together lie.
        out: hidden layers that lie in files lie in a temporary folder beside it.
        device: where layers run.
        name: the node type, one of the model's outputs.
    """

    def __init__(
        self, model: TypedGNN, data: HeteroDataset, memory: MemoryPlan, out: Path, device: torch.device, name: str
    ):
        self.model, self.data, self.memory, self.name = model.to(device).eval(), data, memory, name
        self.out, self.device = out, device
        self._edge_rows = {each: features_of(data.edge_types[each].edge_table) for each in model.edge_dims}
        self._counts = {name: table.num_nodes for name, table in data.node_types.items()}
        first = set() if model.embeddings is None else set(model.embeddings.keys())
        first |= {name for name, table in data.node_types.items() if table.feature_dim}
        # Of each layer: the node types whose rows it reads, and those that it gives rows.
        outputs = [[name for name in self._counts if name in {each[2] for each in all_}] for all_ in model.edge_types]
        outputs[-1] = [name]
        self._reads = [[name for name in self._counts if name in first], *outputs[:-1]]
        self._gives = outputs

    @property
    def work(self) -> int:
        """Edges and nodes that `run` goes through, over all layers."""
        layers = range(len(self._gives))
        return sum(self._cost(number, name, 0, self._counts[name]) for number in layers for name in self._gives[number])

    @torch.no_grad()
    def run(self, take_scores: Callable[[int, Tensor], None], advance: Callable[[int], None]) -> None:
        """Computes the scores: arguments as of `Layerwise.run`.

        Raises:
            OSError: the disk has no room for the hidden layers.
        """
        rows: Rows = {name: features_of(table) for name, table in self.data.node_types.items() if table.feature_dim}
        places = self.memory.places[1:]
        with temporary_folder(self.out) if Place.FILES in places else contextlib.nullcontext() as folder:
            for number, place in enumerate([*places, None]):
                if place is None:
                    self._run_type(number, rows, self.name, take_scores, advance)
                    return
                made: Rows = {}
                for name in self._gives[number]:
                    shape = (self._counts[name], self.model.hidden)
                    file = folder / f"hidden-{number}-{len(made)}.npy" if place == Place.FILES else None
                    whole = torch.empty(shape, device=self.device) if place == Place.WHOLE else None
                    out = torch.from_numpy(new_rows(shape, file)) if whole is None else whole
                    self._run_type(number, rows, name, keep_scores(out), advance)
                    made[name] = StoredRows(out.numpy()) if whole is None else whole
                if number > 0 and places[number - 1] == Place.FILES:
                    for file in folder.glob(f"hidden-{number - 1}-*.npy"):
                        file.unlink()
                rows = made

    def _into(self, number: int, name: str) -> list[EdgeType]:
        return [each for each in self.model.edge_types[number] if each[2] == name]

    def _cost(self, number: int, name: str, first: int, last: int) -> int:
        """Edges and nodes of a layer's targets [first, last) of a type."""
        relations = (self.data.edge_types[each] for each in self._into(number, name))
        return last - first + sum(int(each.indptr[last] - each.indptr[first]) for each in relations)

    def _run_type(
        self, number: int, rows: Rows, name: str, take: Callable[[int, Tensor], None], advance: Callable[[int], None]
    ) -> None:
        """Computes what a layer gives the nodes of a type."""
        for first, last in self._pieces(number, rows, name):
            x, edges, sizes = self._input(number, rows, name, first, last)
            if number == 0:
                x = self.model.first_rows(x)
            x = self.model.layer_on(number, x, edges, sizes, self._edge_attr(number, name, first, last))
            is_last = number + 1 == len(self._gives)
            take(first, (self.model.scores(x, name) if is_last else x[name]).float())
            advance(self._cost(number, name, first, last))

    def _edge_attr(self, number: int, name: str, first: int, last: int) -> dict[EdgeType, Tensor]:
        """The rows of the edges into [first, last) of a type, of the relations whose edges have some that are read; no
        rows of relations into other types."""
        attributes = {}
        for each in self.model.edge_types[number]:
            if each in self._edge_rows:
                indptr, dim = self.data.edge_types[each].indptr, self.model.edge_dims[each]
                edges = range(int(indptr[first]), int(indptr[last])) if each[2] == name else range(0)
                attributes[each] = taken(self._edge_rows[each], edges, dim, self.device, self.memory.work_bytes)
        return attributes

    def _pieces(self, number: int, rows: Rows, name: str) -> Iterator[tuple[int, int]]:
        """[first, last) of targets, at least one, so many that what a layer makes of them stays within the memory."""
        limit = self.memory.work_bytes
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
            limit = torch.cuda.mem_get_info(self.device)[0] // 2
        widths = [self._width(number, each) for each in self._reads[number]]
        of_node = 4 * (max(widths) + 4 * self.model.hidden)  # with projections: keys, values, what becomes of them
        of_target = of_node * (1 + len(self._into(number, name)))
        relations = [self.data.edge_types[each] for each in self._into(number, name)]
        of_edge = of_node + BYTES_OF_EDGE + 4 * max(self.model.edge_dims.values(), default=0)
        first, count = 0, self._counts[name]

        def cost(last: int) -> int:
            edges = sum(int(each.indptr[last] - each.indptr[first]) for each in relations)
            return (last - first) * of_target + edges * of_edge

        while first < count:
            last = bisect.bisect_right(range(count + 1), limit, lo=first + 1, key=cost) - 1
            last = max(last, first + 1)
            yield first, last
            first = last

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
        for type_ in self._counts:
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
        return x, edges, {type_: len(targets) if type_ == name else 0 for type_ in self._counts}

    def _rows_of(self, number: int, rows: Rows, name: str, ids: Tensor) -> Tensor:
        """The rows of nodes of a type that a layer reads; of learned rows the ids."""
        if number == 0 and name not in rows:
            return ids
        of_type = rows[name]
        if isinstance(of_type, Tensor):
            return of_type[ids]
        return taken(of_type, ids, self._width(number, name), self.device, self.memory.work_bytes)


def hidden_widths(model: TypedGNN) -> list[int]:
    """Columns of the rows that each layer reads beside the features, which are read by id: 0 for the first."""
    return [0, *(model.hidden for _ in pairwise(model.convs))]
