"""A model's output for all nodes of a graph, layer by layer, each over full neighbourhoods."""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.files import temporary_folder
from cohort_gnn.base.units import format_bytes
from cohort_gnn.dataset import Dataset
from cohort_gnn.nn.block import Block
from cohort_gnn.trainer.models.sampled import SampledGNN
from cohort_gnn.trainer.predict.full_blocks import FullBlocks, position_dtype
from cohort_gnn.trainer.predict.node_rows import EncodedRows, StoredRows, features_of, new_rows, taken

LEAST_WORK_BYTES = 16 << 20
MOST_WORK_BYTES = 2 << 30
MOST_KEPT_BYTES = 100 << 20  # of arrays of up to 32 MiB, by malloc from piece to piece
BYTES_OF_EDGE = 64  # ids while a block is made, and what attention keeps of an edge; beside its row

RowsOfType: TypeAlias = Tensor | StoredRows | EncodedRows  # of all nodes; a tensor: in the memory of the device
Rows = dict[str, RowsOfType]  # by node type


class Place(StrEnum):
    """Where the rows of all nodes lie that a layer reads."""

    WHOLE = "memory"  # of the device: the layer reads them where they are
    HOST = "host memory"  # a GPU's layer gets copies, piece by piece
    FILES = "files"  # as above


@dataclass(frozen=True)
class MemoryPlan:
    """What goes where within a bound.

    Attributes:
        work_bytes: of a piece of a layer: what becomes of its rows, and copies of those that it reads.
        places: of the rows that each layer reads: the features first, then hidden layers.
        file_bytes: of hidden layers that lie in files at once.
    """

    work_bytes: int
    places: list[Place]
    file_bytes: int = 0


def plan_memory(
    bound_bytes: int, num_nodes: int, widths: list[int], with_degrees: bool, gpu_bytes: int | None = None
) -> MemoryPlan:
    """Shares out the memory of a prediction: hidden layers first, then features.

    Args:
        bound_bytes: of host memory.
        widths: columns of the rows that each layer reads.
        gpu_bytes: what is free on the GPU where layers run; None: they run on the CPU.

    Raises:
        CohortError: the bound is below what every prediction needs.
    """
    fixed = num_nodes * (1 + torch.empty((), dtype=position_dtype(num_nodes)).element_size() + 4 * with_degrees)
    tables = [4 * width * num_nodes for width in widths]
    host_fixed = fixed if gpu_bytes is None else 0
    if bound_bytes < host_fixed + LEAST_WORK_BYTES:
        expected = f"at least {format_bytes(host_fixed + LEAST_WORK_BYTES)} for {num_nodes} nodes"
        raise CohortError("--memory", expected, format_bytes(bound_bytes))
    work = min(max(LEAST_WORK_BYTES, (bound_bytes - host_fixed) // 4), MOST_WORK_BYTES)
    host_room = bound_bytes - host_fixed - work
    if gpu_bytes is not None:
        places = _places(tables, gpu_bytes * 2 // 3 - fixed, host_room)
    else:
        places = _places(tables, host_room, 0)
        if Place.FILES in places[1:]:
            work = min(max(LEAST_WORK_BYTES, (bound_bytes - host_fixed) // 2), MOST_WORK_BYTES)
            places = [Place.FILES] * len(tables)
    in_files = [size * (place == Place.FILES) for size, place in zip(tables[1:], places[1:], strict=True)]
    return MemoryPlan(work, places, max((sum(pair) for pair in pairwise([0, *in_files])), default=0))


def _places(tables: list[int], room: int, host_room: int) -> list[Place]:
    """Where tables of so many bytes lie, of which one is read while the next is written."""
    places = [Place.FILES] * len(tables)
    for place, space in ((Place.WHOLE, room), (Place.HOST, host_room)):
        for i in reversed(range(len(tables))):
            is_free = places[i] == Place.FILES and (i > 0 or place == Place.WHOLE)  # features are in a file already
            beside = [tables[j] for j in (i - 1, i + 1) if 0 <= j < len(tables) and places[j] == place]
            if is_free and tables[i] + max(beside, default=0) <= space:
                places[i] = place
    return places


class LayerByLayer(ABC):
    """Runs a model over a whole graph; Layerwise and TypedLayerwise compute what a layer gives some nodes.

    Args:
        model: of Cohort's layers, with its weights.
        data: the graph and its features.
        memory: as `plan_memory` shares it out; hidden layers of all node types lie together.
        out: hidden layers that lie in files lie in a temporary folder beside it.
        device: where layers run.
        counts: nodes of each node type; "" is the only one.
        gives: of each layer, the node types that it gives rows; the last one makes the scores of one.
    """

    def __init__(
        self, model, data, memory: MemoryPlan, out: Path, device: torch.device, counts: dict, gives: list[list[str]]
    ):
        self.model, self.data, self.memory = model.to(device).eval(), data, memory
        self.out, self.device, self.counts, self.gives = out, device, counts, gives

    @torch.no_grad()
    def run(self, take_scores: Callable[[int, Tensor], None], advance: Callable[[int], None]) -> None:
        """Computes the scores of all nodes.

        Args:
            take_scores: gets the first node of a piece and its scores, float32 [nodes, classes], on the device.
            advance: gets the number of edges and nodes that a layer is done with; `work` of them in all.

        Raises:
            OSError: the disk has no room for the hidden layers.
        """
        rows, places = self._features(), self.memory.places[1:]
        with temporary_folder(self.out) if Place.FILES in places else contextlib.nullcontext() as folder:
            for number, place in enumerate([*places, None]):
                made: Rows = {}
                for name in self.gives[number]:
                    take = take_scores
                    if place is not None:
                        shape = self.counts[name], self._width(number + 1, name)
                        file = folder / f"hidden-{number}-{len(made)}.npy" if folder and place == Place.FILES else None
                        whole = torch.empty(shape, device=self.device) if place == Place.WHOLE else None
                        out = torch.from_numpy(new_rows(shape, file)) if whole is None else whole
                        made[name] = StoredRows(out.numpy()) if whole is None else whole
                        take = keep_scores(out)
                    self._run_layer(number, rows, name, take, advance)
                if folder and number > 0 and places[number - 1] == Place.FILES:
                    for file in folder.glob(f"hidden-{number - 1}-*.npy"):
                        file.unlink()
                rows = made

    @property
    def work(self) -> int:
        """Edges and nodes that `run` goes through, over all layers."""
        layers = enumerate(self.gives)
        return sum(self._work_of(number, name, 0, self.counts[name]) for number, names in layers for name in names)

    @abstractmethod
    def _features(self) -> Rows:
        """What the first layer reads."""

    @abstractmethod
    def _width(self, number: int, name: str) -> int:
        """Columns of the rows of a node type that layer `number` reads."""

    @abstractmethod
    def _work_of(self, number: int, name: str, first: int, last: int) -> int:
        """Edges and nodes of a layer's targets [first, last) of a type."""

    @abstractmethod
    def _output(self, number: int, rows: Rows, name: str, first: int, last: int) -> Tensor:
        """What a layer gives the targets [first, last) of a type."""

    @abstractmethod
    def _pieces(self, number: int, rows: Rows, name: str) -> Iterator[tuple[int, int]]:
        """[first, last) of targets, so many that what a layer makes of them stays within the memory for work."""

    def _run_layer(self, number: int, rows: Rows, name: str, take: Callable, advance: Callable[[int], None]) -> None:
        """Computes what a layer gives the nodes of a type."""
        for first, last in self._pieces(number, rows, name):
            take(first, self._output(number, rows, name, first, last).float())
            advance(self._work_of(number, name, first, last))

    def _limit_bytes(self, of_host: int) -> int:
        """What a piece may take where layers run: of host memory so much."""
        if self.device.type != "cuda":
            return of_host
        torch.cuda.empty_cache()
        return torch.cuda.mem_get_info(self.device)[0] // 2

    def _taken(self, rows: StoredRows | EncodedRows, ids: Tensor | range, dim: int) -> Tensor:
        """Rows that lie elsewhere: float32 [n, dim] on the device."""
        return taken(rows, ids, dim, self.device, self.memory.work_bytes)


class Layerwise(LayerByLayer):
    """A graph of one node type."""

    def __init__(self, model: SampledGNN, data: Dataset, memory: MemoryPlan, out: Path, device: torch.device):
        super().__init__(model, data, memory, out, device, {"": data.num_nodes}, [[""]] * len(model.convs))
        self.blocks = FullBlocks(data.indptr, data.indices, not model.two_sided, device)
        self.edge_rows = features_of(data.edge_table) if data.edge_table and model.edge_dim else None

    def _features(self) -> Rows:
        rows = features_of(self.data)
        if self.memory.places[0] == Place.WHOLE:
            return {"": self._taken(rows, range(self.data.num_nodes), self.data.feature_dim)}
        return {"": rows}

    def _width(self, number: int, name: str) -> int:
        return self.model.width_of(number - 1) if number > 0 else self.data.feature_dim

    def _work_of(self, number: int, name: str, first: int, last: int) -> int:
        return last - first + int(self.data.indptr[last] - self.data.indptr[first])

    def _output(self, number: int, rows: Rows, name: str, first: int, last: int) -> Tensor:
        x, block = self._input(number, rows[""], first, last)
        given = {}
        if self.edge_rows is not None:
            edges = range(int(self.data.indptr[first]), int(self.data.indptr[last]))
            given["edge_attr"] = self._taken(self.edge_rows, edges, self.model.edge_dim)
        return self.model.layer_on_block(number, x, block, **given)

    def _input(self, number: int, rows: RowsOfType, first: int, last: int) -> tuple[Tensor, Block]:
        """What layer `number` reads for the targets [first, last)."""
        whole = isinstance(rows, Tensor)
        if whole and self.model.takes_places and self.model.two_sided:
            return rows, self.blocks.block_of_all(first, last)
        block, ids = self.blocks.block(first, last)
        if whole and self.model.takes_places:
            return rows, replace(block, place=ids, own_place=ids[: last - first])
        return rows[ids] if isinstance(rows, Tensor) else self._taken(rows, ids, self._width(number, "")), block

    def _pieces(self, number: int, rows: Rows, name: str) -> Iterator[tuple[int, int]]:
        work_bytes, width = self.memory.work_bytes, self._width(number, "")
        limit = self._limit_bytes(max(work_bytes // 3, work_bytes - MOST_KEPT_BYTES))
        of_source, of_target = (4 * (width + made) for made in self.model.working_widths_of(number))
        if isinstance(rows[""], Tensor) and self.model.takes_places:
            of_source = 0
        return self.blocks.pieces(of_source + of_target, BYTES_OF_EDGE + 4 * self.model.edge_dim, limit, of_source)


def keep_scores(
    out: np.ndarray | Tensor, best: Callable[[Tensor], Tensor] | None = None
) -> Callable[[int, Tensor], None]:
    """Writes scores, or what `best` makes of them, into `out`."""

    def take(first: int, scores: Tensor) -> None:
        kept = scores if best is None else best(scores)
        out[first : first + len(scores)] = kept if isinstance(out, Tensor) else kept.cpu().numpy()

    return take
