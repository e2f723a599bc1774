"""Learnable rows of node types without features."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch_geometric.nn.parameter_dict import ParameterDict

from cohort.nn import kernels
from cohort.nn.kernels import Edges
from cohort.nn.own_layers import draw_glorot
from cohort.trainer.ranks import Ranks


@dataclass
class Read:
    """Rows of a table that a batch has read.

    Attributes:
        name: the node type.
        ids: int64 [rows], each once.
        rows: float32 [rows, dim], a leaf, which has the gradient.
    """

    name: str
    ids: Tensor
    rows: Tensor


class NodeEmbeddings(nn.Module):
    """A table [nodes, dim] of each node type, looked up by ids of the type.

    The tables are no parameters that an optimizer trains; RowAdam does.

    Attributes:
        reads: of training, in order, for RowAdam, which empties it; None: nobody trains the rows.
    """

    def __init__(self, counts: dict[str, int], dim: int):
        super().__init__()
        tables = {name: nn.Parameter(torch.empty(count, dim), requires_grad=False) for name, count in counts.items()}
        for table in tables.values():
            draw_glorot(table)
        self.tables = ParameterDict(tables)
        self.reads: list[Read] | None = None

    def forward(self, name: str, ids: Tensor) -> Tensor:
        """float32 [ids, dim]."""
        rows = self.tables[name][ids]
        if self.reads is not None and self.training and torch.is_grad_enabled():
            self.reads.append(Read(name, ids, rows.requires_grad_()))
        return rows


class RowAdam:
    """Adam (Kingma and Ba, ICLR 2015) of the rows that a batch has read; other rows and their moments stay as they are.

    As in torch.optim.SparseAdam, moments are corrected by the number of all steps; eps is added as in torch.optim.Adam.

    Args:
        embeddings: whose rows are trained.
        dense: the optimizer of the other parameters, whose rate, betas, eps and weight decay hold here too.
        ranks: which add up the gradients of rows; None: this one is alone.
    """

    def __init__(self, embeddings: NodeEmbeddings, dense: torch.optim.Optimizer, ranks: Ranks | None = None):
        self._embeddings, self._dense, self.steps = embeddings, dense, 0
        self._gather: Callable[[Tensor], Tensor] = ranks.gather_rows if ranks else lambda rows: rows
        embeddings.reads = []
        self._moments = {
            name: [torch.zeros_like(table), torch.zeros_like(table)] for name, table in embeddings.tables.items()
        }

    def begin(self) -> None:
        """Before a forward pass."""
        self._embeddings.reads = []

    def share(self, labelled: Tensor) -> None:
        """Makes the gradients those of all ranks, divided by their labels."""
        reads = []
        for each in self._embeddings.reads or []:
            ids, grads = (self._gather(part) for part in (each.ids, _grad(each)))
            ids, grads = _added_up(ids, grads)
            rows = grads.new_empty(grads.shape)
            rows.grad = grads.div_(labelled.clamp(min=1))
            reads.append(Read(each.name, ids, rows))
        self._embeddings.reads = reads

    def rows(self) -> list[Tensor]:
        """Tensors with the gradients."""
        return [each.rows for each in self._embeddings.reads or []]

    @torch.no_grad()
    def step(self) -> None:
        """Changes the rows."""
        group, self.steps = self._dense.param_groups[0], self.steps + 1
        beta1, beta2 = group["betas"]
        for each in self._embeddings.reads or []:
            table, (first, second) = self._embeddings.tables[each.name], self._moments[each.name]
            before, grad = table[each.ids], _grad(each)
            if group["weight_decay"]:
                grad = grad + group["weight_decay"] * before
            means = first[each.ids].lerp_(grad, 1 - beta1)
            squares = second[each.ids].mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
            first[each.ids], second[each.ids] = means, squares
            scale = (squares / (1 - beta2**self.steps)).sqrt_().add_(group["eps"])
            table[each.ids] = before - group["lr"] * (means / (1 - beta1**self.steps) / scale)
        self.begin()

    def state_dict(self) -> dict:
        """Steps, and both moments of each table."""
        return {"steps": self.steps, "moments": self._moments}

    def load_state_dict(self, state: dict) -> None:
        """Takes up a state."""
        self.steps = state["steps"]
        for name, moments in self._moments.items():
            for to, values in zip(moments, state["moments"][name], strict=True):
                to.copy_(values)


def _grad(read: Read) -> Tensor:
    return torch.zeros_like(read.rows) if read.rows.grad is None else read.rows.grad


def _added_up(ids: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Each id once, ascending, with the sum of its rows, in their order: the same bits on every rank."""
    ordered = torch.sort(ids, stable=True)
    unique, counts = torch.unique_consecutive(ordered.values, return_counts=True)
    indptr = torch.nn.functional.pad(counts.cumsum(0), (1, 0))
    return unique, kernels.sum_rows(Edges(indptr, ordered.indices, unique.numel()), rows)
