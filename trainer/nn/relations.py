"""One layer of mean aggregation over the relations into several node types."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from cohort.nn import kernels
from cohort.nn.block import Block
from cohort.nn.kernels import Edges, sum_dtype
from cohort.nn.linear import product_of, weight_and_bias_grads
from cohort.trainer import _native


@dataclass(frozen=True)
class Into:
    """The relations into a node type.

    Attributes:
        blocks: of each relation, with the same targets.
        sources: of each relation, the number of the node type that its sources have.
        own: the number of a node type whose first rows are those of the targets; None: targets bring no rows.
    """

    blocks: list[Block]
    sources: list[int]
    own: int | None


def sum_relations(
    into: Sequence[Into],
    rows: Sequence[Tensor],
    dtype: torch.dtype,
    weights: Sequence[Tensor],
    own_weights: Sequence[Tensor | None],
    biases: Sequence[Tensor | None],
) -> tuple[Tensor, ...]:
    """dtype [targets, width] for each of ``into``: the means of the rows of each relation's sources, beside each other,
    times ``weights``, plus the targets' own rows times ``own_weights``, plus ``biases``.

    Args:
        rows: [nodes, any] of each node type.
        weights: [width, columns of all sources] of each of ``into``.
        own_weights: [width, columns of own rows]; None: there are none.
        biases: [width].
    """
    factors = [None if each is None else each.to(dtype) for each in (*weights, *own_weights, *biases)]
    return _SumRelations.apply(into, dtype, len(rows), *map(kernels.rows_of, rows), *factors)


class _SumRelations(torch.autograd.Function):
    """The gradients of a node type's rows are added up in one matrix, relation by relation."""

    @staticmethod
    def forward(ctx, into, dtype, num_types, *tensors):
        rows, factors = tensors[:num_types], tensors[num_types:]
        out, saved = [], []
        for number, each in enumerate(into):
            weight, own_weight, bias = factors[number :: len(into)]
            means, inverse_counts = _means_beside(each, rows, dtype)
            sums = product_of(means, weight, bias)
            if each.own is not None:
                own = rows[each.own][: len(sums)].to(dtype)
                torch.addmm(sums, own, own_weight.t(), out=sums)
            out.append(sums)
            saved += [means, *inverse_counts]
        ctx.save_for_backward(*tensors, *saved)
        ctx.into, ctx.num_types = into, num_types
        return tuple(out)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, *grads):
        into, num_types = ctx.into, ctx.num_types
        needed = ctx.needs_input_grad[3:]
        saved = iter(ctx.saved_tensors)
        rows = [next(saved) for _ in range(num_types)]
        factors = [next(saved) for _ in range(3 * len(into))]
        of_rows, of_factors = _RowGrads(rows, needed), [None] * len(factors)
        for number, (each, grad) in enumerate(zip(into, grads, strict=True)):
            means, *inverse_counts = (next(saved) for _ in range(1 + len(each.blocks)))
            weight, own_weight, bias = factors[number :: len(into)]
            grad, own = grad.contiguous(), None
            of_factors[number], sums = weight_and_bias_grads(grad, means)
            if bias is not None:
                of_factors[number + 2 * len(into)] = sums
            if each.own is not None:
                own = rows[each.own][: len(grad)].to(grad.dtype)
                of_factors[number + len(into)] = weight_and_bias_grads(grad, own)[0]
                of_rows.add_first(each.own, lambda grad=grad, weight=own_weight: grad @ weight)
            if any(needed[source] for source in each.sources):
                columns = (grad @ weight).split([rows[source].shape[1] for source in each.sources], dim=1)
                for source, block, part, inverse_count in zip(
                    each.sources, each.blocks, columns, inverse_counts, strict=True
                ):
                    of_rows.add(source, block, part, inverse_count)
        return None, None, None, *of_rows.all(), *of_factors


def _means_beside(into: Into, rows: Sequence[Tensor], dtype: torch.dtype) -> tuple[Tensor, list[Tensor]]:
    """dtype [targets, columns of all sources], and for each relation 1 / max(1, number of edges) [targets]."""
    sources, num_targets = [rows[number] for number in into.sources], into.blocks[0].num_targets
    widths = [each.shape[1] for each in sources]
    out, inverse_counts = sources[0].new_empty(num_targets, sum(widths), dtype=dtype), []
    for block, each, to in zip(into.blocks, sources, out.split(widths, dim=1), strict=True):
        inverse_counts.append(each.new_empty(num_targets, dtype=sum_dtype(each.dtype)))
        edges = Edges(block.indptr, block.source, num_targets)
        kernels.sum_rows(edges, each, dtype, out=to, mean=True, inverse_count=inverse_counts[-1])
    return out, inverse_counts


class _RowGrads:
    """Gradients of rows by node type, as far as they are needed."""

    def __init__(self, rows: Sequence[Tensor], needed: Sequence[bool]):
        self._rows, self._needed = rows, needed
        self._sums: list[Tensor | None] = [None] * len(rows)  # the first rows' alone, as long as others have none

    def add_first(self, number: int, grads) -> None:
        """Adds grads() to the gradients of the first rows."""
        if not self._needed[number]:
            return
        added, before = grads().to(self._rows[number].dtype), self._sums[number]
        if before is None:
            self._sums[number] = added
        elif len(before) >= len(added):
            before[: len(added)] += added
        else:
            added[: len(before)] += before
            self._sums[number] = added

    def add(self, number: int, block: Block, grad: Tensor, inverse_count: Tensor) -> None:
        """Adds what means over a block bring, whose gradient is ``grad``."""
        if not self._needed[number]:
            return
        before, grad = self._sums[number], grad.to(self._rows[number].dtype)
        edges = kernels.transposed(Edges(block.indptr, block.source, block.num_targets), block.num_sources)
        self._sums[number] = kernels.sum_rows(
            edges,
            grad,
            own_use=_native.NO_OWN if before is None else _native.ADD_OWN,
            own=before,
            num_own=0 if before is None else len(before),
            index_factor=inverse_count,
        )

    def all(self) -> list[Tensor | None]:
        """Those of all rows of each node type; None: not needed, or zeros."""
        return [
            None if sums is None else _padded(sums, len(rows))
            for rows, sums in zip(self._rows, self._sums, strict=True)
        ]


def _padded(rows: Tensor, count: int) -> Tensor:
    return rows if len(rows) == count else F.pad(rows, (0, 0, 0, count - len(rows)))
