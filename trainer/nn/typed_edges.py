"""Sums over edges of several types, each of which has a matrix of its own."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from cohort_gnn.base.errors import CohortError
from cohort_gnn.nn import head_kernels, kernels
from cohort_gnn.nn.block import Block
from cohort_gnn.nn.inputs import amp_dtype
from cohort_gnn.nn.kernels import GroupedEdges, sum_dtype
from cohort_gnn.nn.linear import product_of, weight_grad
from cohort_gnn.nn.operators import once_differentiable


@dataclass(frozen=True)
class TypedEdges:
    """The edges of a block by type, then by target. A pair is a type and a target with edges of this type.

    Attributes:
        indptr: int64 [pairs + 1], the first edge of each pair.
        source: int64 [counted edges], the row that each edge sends; edges that are no target's do not count.
        number: int32 [counted edges], the place of each edge in the block.
        target: int64 [pairs], the target of each pair.
        first_pairs: the first pair of each type, and at last the number of pairs.
        num_edges, num_sources, num_targets: those of the block.
    """

    indptr: Tensor
    source: Tensor
    number: Tensor
    target: Tensor
    first_pairs: list[int]
    num_edges: int
    num_sources: int
    num_targets: int

    @property
    def num_pairs(self) -> int:
        """Pairs with edges."""
        return self.first_pairs[-1]

    def edges(self) -> GroupedEdges:
        """The edges grouped by pair; factors are looked up in the order of the block."""
        return GroupedEdges(self.indptr, self.source, self.num_pairs, self.number)

    def columns(self) -> GroupedEdges:
        """The same transposed: the pairs of each source."""
        offsets, pair, place = kernels.transposed_arrays(self.edges(), self.num_sources)
        return GroupedEdges(offsets, pair, self.num_sources, self.number.index_select(0, place))


def types_in_order(layer: str, edge_type: Tensor | None, block: Block) -> Tensor:
    """The types of edges in the order of the block's edges.

    Args:
        layer: the name of the layer, for errors.
        edge_type: int64 [edges], in the order of ``edge_index``, or in that of the Block.

    Raises:
        CohortError: there are none, or not as many.
    """
    if edge_type is None or edge_type.dtype != torch.int64 or edge_type.shape != block.source.shape:
        actual = "None" if edge_type is None else f"{list(edge_type.shape)} of {edge_type.dtype}"
        raise CohortError(f"{layer}: edge_type", f"int64 [{block.source.numel()}], a type for each edge", actual)
    return edge_type.contiguous() if block.order is None else edge_type[block.order]


def typed_edges(layer: str, block: Block, edge_type: Tensor, num_types: int) -> TypedEdges:
    """The edges of a block by type; on a GPU the host waits for their numbers.

    Args:
        layer: the name of the layer, for errors.
        edge_type: from types_in_order().

    Raises:
        CohortError: no such types.
    """
    known = edge_type.clamp(0, num_types - 1)  # others are refused below, when the host knows of them
    edges = GroupedEdges(block.indptr, known, block.num_targets)
    offsets, targets, number = kernels.transposed_arrays(edges, num_types)
    begins = torch.ones(len(targets) + 1, dtype=torch.bool, device=targets.device)  # a pair
    begins[1:-1] = targets[1:] != targets[:-1]
    begins[offsets] = True
    begins = begins[:-1] & (torch.arange(len(targets), device=targets.device) < offsets[-1])
    first_pairs = F.pad(begins.cumsum(0), (1, 0))[offsets]
    low, high = edge_type.aminmax() if len(edge_type) else (offsets[0], offsets[0])
    *firsts, num_counted, lowest, highest = torch.cat((first_pairs, torch.stack((offsets[-1], low, high)))).tolist()
    if lowest < 0 or highest >= num_types:
        raise CohortError(f"{layer}: edge_type", f"types in [0, {num_types})", f"{lowest} to {highest}")
    places = begins.nonzero().view(-1)
    sizes = block.source.numel(), block.num_sources, block.num_targets
    number, indptr = number[:num_counted], F.pad(places, (0, 1), value=num_counted)
    return TypedEdges(indptr, block.source.index_select(0, number), number, targets[places], firsts, *sizes)


def typed_sums(
    x: Tensor, weight: Tensor, typed: TypedEdges, mean: bool = False, edge_weights: Tensor | None = None
) -> Tensor:
    """sum_dtype [targets, heads * width]: for each target the sum over types, and over edges of a type, of row @ matrix
    of the type and head, times the weight of the edge and head.

    Args:
        x: [sources, columns].
        weight: [types, heads, columns, width].
        mean: the sum over the edges of a type is divided by their number; only without ``edge_weights``.
        edge_weights: sum_dtype [edges, heads], in the order of the block; None: ones, for one head.
    """
    return _TypedSums.apply(x, weight.to(amp_dtype(x)), edge_weights, typed, mean)


class _TypedSums(torch.autograd.Function):
    """Type by type: sums of rows for each pair, which are multiplied. A GPU computes them again for the gradients: its
    memory is the scarcer, and reads faster."""

    @staticmethod
    def forward(ctx, x, weight, edge_weights, typed, mean):
        ctx.typed, ctx.mean, kept = typed, mean, []
        width = weight.shape[1] * weight.shape[3]
        out = x.new_zeros((typed.num_targets, width), dtype=sum_dtype(x.dtype))
        for kind, first, end in _types(typed):
            sums = _sums(x, weight, edge_weights, typed, mean, first, end)
            if not x.is_cuda and ctx.needs_input_grad[1]:
                kept.append(sums)
            if len(sums) == 1:
                products = product_of(sums[0], weight[kind, 0].t(), None)
            else:
                products = torch.bmm(sums, weight[kind]).transpose(0, 1).flatten(1)
            out.index_add_(0, typed.target[first:end], products.to(out.dtype))
        ctx.save_for_backward(x, weight, edge_weights, *kept)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        typed, (x, weight, edge_weights, *kept) = ctx.typed, ctx.saved_tensors
        needs_x, needs_weight, needs_edges = ctx.needs_input_grad[:3]
        edges, (heads, depth) = typed.edges(), weight.shape[1:3]
        grad_weight = torch.zeros_like(weight) if needs_weight else weight[:0]
        sum_grads = x.new_empty((heads, typed.num_pairs if needs_x else 0, depth))
        dots = head_kernels.new_dots(edges, x, heads, 0)
        for kind, first, end in _types(typed):
            rows = grad.index_select(0, typed.target[first:end]).to(weight.dtype)
            by_head = rows.unflatten(1, (heads, -1)).transpose(0, 1)
            if needs_weight:
                sums = kept.pop(0) if kept else _sums(x, weight, edge_weights, typed, ctx.mean, first, end)
                for to, *factors in zip(grad_weight[kind], sums, by_head, strict=True):
                    to.copy_(weight_grad(*factors))
            if needs_x and heads == 1 and weight.dtype == x.dtype and not needs_edges:
                torch.mm(rows, weight[kind, 0].t(), out=sum_grads[0, first:end])
            elif needs_x or needs_edges:  # in the dtype of x
                piece_grads = torch.bmm(by_head, weight[kind].transpose(1, 2)).to(x.dtype)
                if needs_edges:
                    head_kernels.dot_rows(edges.rows(first, end), piece_grads, x.expand(heads, *x.shape), 0, dots)
                if needs_x:
                    sum_grads[:, first:end] = piece_grads
        grad_edges = None
        if needs_edges:
            grad_edges = dots[0].new_zeros(typed.num_edges, heads).index_copy_(0, typed.number.long(), dots[0])
        return (
            _row_grads(sum_grads, edge_weights, typed, ctx.mean) if needs_x else None,
            grad_weight,
            grad_edges,
            None,
            None,
        )


def _types(typed: TypedEdges):
    """(number, first pair, end of pairs) of each type that has edges."""
    bounds = zip(typed.first_pairs, typed.first_pairs[1:], strict=False)
    return ((kind, first, end) for kind, (first, end) in enumerate(bounds) if first < end)


def _sums(
    x: Tensor, weight: Tensor, edge_weights: Tensor | None, typed: TypedEdges, mean: bool, first: int, end: int
) -> Tensor:
    """[heads, pairs, columns], the sums or means of pairs [first, end), in the dtype of ``weight``."""
    edges = typed.edges().rows(first, end)
    if edge_weights is None:
        return kernels.sum_rows(edges, x, weight.dtype, mean=mean).unsqueeze(0)
    return head_kernels.spread_rows(edges, x, edge_weights, edge_weights[:0], weight.dtype)


def _row_grads(sum_grads: Tensor, edge_weights: Tensor | None, typed: TypedEdges, mean: bool) -> Tensor:
    """The gradient of ``x`` from those of the pairs' sums."""
    if edge_weights is not None:
        return head_kernels.fold_rows(typed.columns(), sum_grads, edge_weights, edge_weights[:0])
    inverse_counts = typed.indptr.diff().to(sum_dtype(sum_grads.dtype)).reciprocal_() if mean else None
    return kernels.sum_rows(typed.columns(), sum_grads[0], index_factor=inverse_counts)


def dense_blocks(weight: Tensor) -> Tensor:
    """[types, blocks * columns, blocks * width] with the blocks [types, blocks, columns, width] on its diagonal."""
    num_types, count, depth, width = weight.shape
    diagonal = torch.eye(count, dtype=weight.dtype, device=weight.device).view(1, count, 1, count, 1)
    return (weight.unsqueeze(3) * diagonal).reshape(num_types, count * depth, count * width)
