"""A model's output for all nodes of a graph, layer by layer, each over full neighbourhoods."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from cohort.base.errors import CohortError
from cohort.base.units import format_bytes
from cohort.dataset import Dataset
from cohort.trainer.full_blocks import FullBlocks, position_dtype
from cohort.trainer.models import SampledGNN, model_input
from cohort.trainer.node_rows import StoredRows, features_of, new_rows

LEAST_WORK_BYTES = 16 << 20
MOST_WORK_BYTES = 2 << 30
BYTES_OF_EDGE = 32  # ids while a block is made, beside its rows


@dataclass(frozen=True)
class MemoryPlan:
    """What goes where within a bound.

    Attributes:
        work_bytes: of a piece of a layer: the rows that it reads, and what becomes of them.
        hidden_bytes: of the hidden layers that are there at once.
        mapped: hidden layers lie in files.
    """

    work_bytes: int
    hidden_bytes: int
    mapped: bool


def plan_memory(bound_bytes: int, num_nodes: int, hidden: int, num_layers: int, with_degrees: bool) -> MemoryPlan:
    """Shares out the memory of a prediction.

    Args:
        hidden: features of a hidden layer.

    Raises:
        CohortError: the bound is below what every prediction needs.
    """
    fixed = num_nodes * (1 + torch.empty((), dtype=position_dtype(num_nodes)).element_size() + 4 * with_degrees)
    least = fixed + LEAST_WORK_BYTES
    if bound_bytes < least:
        found = format_bytes(bound_bytes)
        raise CohortError("--memory", f"at least {format_bytes(least)} for {num_nodes} nodes", found)
    hidden_bytes = min(num_layers - 1, 2) * num_nodes * hidden * 4  # one is read while the next is written
    work = min(max((bound_bytes - fixed) // 4, LEAST_WORK_BYTES), MOST_WORK_BYTES)
    if fixed + work + hidden_bytes <= bound_bytes:
        return MemoryPlan(work, hidden_bytes, mapped=False)
    return MemoryPlan(
        min(max((bound_bytes - fixed) // 2, LEAST_WORK_BYTES), MOST_WORK_BYTES), hidden_bytes, mapped=True
    )


class Layerwise:
    """Runs a model over a whole graph.

    Args:
        model: of Cohort's layers, with its weights.
        data: the graph and its features.
        memory: as `plan_memory` shares it out.
        scratch: a folder for hidden layers that are mapped; made and removed here.
        device: where layers run.
    """

    def __init__(self, model: SampledGNN, data: Dataset, memory: MemoryPlan, scratch: Path, device: torch.device):
        self.model, self.data, self.memory = model.to(device).eval(), data, memory
        self.scratch, self.device = scratch, device
        self.blocks = FullBlocks(data.indptr, data.indices, with_degrees=not model.two_sided)

    @torch.no_grad()
    def run(self, take_scores: Callable[[int, torch.Tensor], None], advance: Callable[[int], None]) -> None:
        """Computes the scores of all nodes.

        Args:
            take_scores: gets the first node of a piece and its scores, float32 [nodes, classes], on the CPU.
            advance: gets the number of edges and nodes that a layer is done with; `work` of them in all.

        Raises:
            OSError: the disk has no room for the hidden layers.
        """
        rows = features_of(self.data)
        if self.memory.mapped:
            self.scratch.mkdir()
        try:
            for number in range(len(self.model.layers)):
                last = number == len(self.model.layers) - 1
                out = None if last else new_rows((self.data.num_nodes, self.model.width_of(number)), self._file(number))

                def keep(first: int, of_piece: torch.Tensor, out=out) -> None:
                    out[first : first + len(of_piece)] = of_piece.numpy()

                self._run_layer(number, rows, take_scores if last else keep, advance)
                if number > 0 and self.memory.mapped:
                    self._file(number - 1).unlink()
                rows = None if last else StoredRows(out)
        finally:
            if self.memory.mapped:
                shutil.rmtree(self.scratch)

    @property
    def work(self) -> int:
        return len(self.model.layers) * (self.data.num_edges + self.data.num_nodes)

    def _run_layer(self, number: int, rows, take: Callable, advance: Callable[[int], None]) -> None:
        row_bytes = rows.row_bytes + 4 * self.model.working_width_of(number)
        pieces = self.blocks.pieces(2 * row_bytes, BYTES_OF_EDGE + row_bytes, self._limit_bytes())
        for first, last in pieces:
            block, ids = self.blocks.block(first, last)
            x = model_input(rows.take(ids).to(self.device))
            out = self.model.layer_on_block(number, x, block.to(self.device))
            take(first, out.float().cpu())
            advance(int(self.data.indptr[last] - self.data.indptr[first]) + last - first)

    def _limit_bytes(self) -> int:
        """Of a piece: GPU memory bounds it too."""
        if self.device.type != "cuda":
            return self.memory.work_bytes
        return min(self.memory.work_bytes, torch.cuda.mem_get_info(self.device)[0] // 4)

    def _file(self, number: int) -> Path | None:
        return self.scratch / f"hidden-{number}.npy" if self.memory.mapped else None


def keep_scores(
    out: np.ndarray, best: Callable[[torch.Tensor], torch.Tensor] | None = None
) -> Callable[[int, torch.Tensor], None]:
    """Writes scores, or what `best` makes of them, into `out`."""

    def take(first: int, scores: torch.Tensor) -> None:
        kept = scores if best is None else best(scores)
        out[first : first + len(scores)] = kept.numpy()

    return take
