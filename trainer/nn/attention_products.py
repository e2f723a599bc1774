"""Attention that sums rows before it multiplies them, as one operator of torch with gradients.

All heads sum the same rows, each head with weights of its own; then the sums of each head are multiplied by a matrix of
this head. The sums, [heads, targets, columns of a row], are the largest array of a layer. Very large sums are computed,
multiplied and freed piece by piece, and computed again for the gradients.
"""

from collections.abc import Iterator
from typing import List  # noqa: UP035, torch 2.5 cannot read `list[int]` in an operator's signature

import torch
from torch import Tensor

from cohort_gnn.nn import head_kernels, kernels
from cohort_gnn.nn.attention_ops import (
    attention_weights,
    fake_attention_weights,
    fake_scores_grads,
    scores_grads,
    scores_of,
    used_of,
)
from cohort_gnn.nn.kernels import Edges, sum_dtype
from cohort_gnn.nn.linear import weight_grad
from cohort_gnn.nn.operators import operator

# A layer keeps sums of up to KEPT_BYTES, or up to KEPT_SHARE of a GPU's memory if this is more, for the gradients.
KEPT_BYTES = 1 << 30
KEPT_SHARE = 1 / 6
PIECE_BYTES = 512 << 20  # of a piece of sums that are not kept


def attend_and_multiply(
    x: Tensor,
    weight: Tensor,
    scores: Tensor,
    target_scores: Tensor | None,
    edge_scores: Tensor | None,
    loop_scores: Tensor | None,
    indptr: Tensor,
    source: Tensor,
    num_targets: int,
    loops: int,
    slope: float,
    p: float,
    keys: list[int],
    place: Tensor | None,
    keeps: bool,
) -> Tensor:
    """[num_targets, heads, width]: for each target and head, a weighted sum of the sources' rows, times ``weight``.

    The sum is over the target's edges; their weights are the softmax of their scores.

    Args:
        x: [sources, dim]; or, with ``place``, [any, dim], of which no gradient is known.
        weight: [heads, width, dim], in the dtype of the result.
        scores, target_scores, edge_scores, loop_scores, indptr, source, num_targets, loops, slope, p, keys: see
            attend().
        place: int64 [sources], the row of ``x`` that each source has; not with edges from targets to themselves. None:
            source i has row i.
        keeps: the sums are kept for the gradients; else they are made piece by piece, and again for the gradients.
    """
    row_bytes = weight.shape[0] * weight.shape[2] * weight.element_size()
    piece_rows = 0 if keeps else max(1, PIECE_BYTES // row_bytes)
    ends = scores, target_scores, edge_scores, loop_scores, indptr, source
    row = None if place is None else place[source]
    return _attend_and_multiply(x, weight, *ends, row, num_targets, loops, slope, p, keys, piece_rows)[0]


def kept_bytes(device: torch.device) -> int:
    """Most bytes of sums that a layer keeps."""
    if device.type != "cuda":
        return KEPT_BYTES
    return max(KEPT_BYTES, int(KEPT_SHARE * torch.cuda.get_device_properties(device).total_memory))


def _pieces(num_rows: int, piece_rows: int) -> Iterator[tuple[int, int]]:
    step = piece_rows or num_rows
    return ((first, min(first + step, num_rows)) for first in range(0, num_rows, max(1, step)))


@operator("attend_and_multiply")
def _attend_and_multiply(
    x: Tensor,
    weight: Tensor,
    scores: Tensor,
    target_scores: Tensor | None,
    edge_scores: Tensor | None,
    loop_scores: Tensor | None,
    indptr: Tensor,
    source: Tensor,
    row: Tensor | None,
    num_targets: int,
    loops: int,
    slope: float,
    p: float,
    keys: List[int],  # noqa: UP006
    piece_rows: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The products; the sums [heads, num_targets, dim] if they are kept, else [0]; the edges' weights, see attend().

    Args:
        row: int64 [edges], the row of ``x`` of each edge's source; None: that of the source's number.
        piece_rows: number of targets in a piece of sums; 0: one piece has all targets, and its sums are kept.
    """
    heads, width, dim = weight.shape
    edges = Edges(indptr, source, num_targets, skip_self=loops >= 0)
    ends = scores_of(scores, target_scores, edge_scores, loop_scores, num_targets, heads, loops, slope)
    of_edges = attention_weights(edges, ends, p, keys)
    of_rows = edges if row is None else Edges(indptr, row, num_targets)
    out = weight.new_empty(num_targets, heads, width)
    kept = weight.new_empty(0 if piece_rows else (heads, num_targets, dim))
    for first, end in _pieces(num_targets, piece_rows):
        sums = head_kernels.spread_rows(
            of_rows.rows(first, end), x, *used_of(of_edges, p), weight.dtype, None if piece_rows else kept
        )
        torch.bmm(sums, weight.transpose(1, 2), out=out[first:end].transpose(0, 1))
        del sums  # free them before the next piece
    return out, kept, *of_edges


@_attend_and_multiply.register_fake
def _(x, weight, scores, target, edge, loop, indptr, source, row, num_targets, loops, slope, p, keys, piece_rows):
    heads, width, dim = weight.shape
    kept = weight.new_empty(0 if piece_rows else (heads, num_targets, dim))
    return weight.new_empty(num_targets, heads, width), kept, *fake_attention_weights(scores, source, heads, loops, p)


@operator("attend_and_multiply_grad")
def _attend_and_multiply_grad(
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    scores: Tensor,
    target_scores: Tensor | None,
    edge_scores: Tensor | None,
    loop_scores: Tensor | None,
    indptr: Tensor,
    source: Tensor,
    row: Tensor | None,
    kept: Tensor,
    of_edges: List[Tensor],  # noqa: UP006
    num_targets: int,
    loops: int,
    slope: float,
    p: float,
    piece_rows: int,
    needs_x: bool,
    needs_weight: bool,
    needs_scores: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of ``x``, ``weight`` and the four scores; [0] in place of those that are not needed.

    Args:
        grad: gradient of the products.
        kept, of_edges: the other results of attend_and_multiply.
    """
    heads, used = weight.shape[0], used_of(of_edges, p)
    edges = Edges(indptr, source, num_targets, skip_self=loops >= 0)
    ends = scores_of(scores, target_scores, edge_scores, loop_scores, num_targets, heads, loops, slope)
    of_rows = edges if row is None else Edges(indptr, row, num_targets)
    # The gradients of edges' scores are read as a whole, so the gradients of padding edges must be zeros.
    dots = head_kernels.new_dots(edges, x, heads, ends.num_own, zero_rest=edge_scores is not None)
    grad_sums = x.new_empty(heads, num_targets if needs_x and piece_rows else 0, x.shape[1])
    grad_weight = torch.zeros_like(weight, dtype=sum_dtype(weight.dtype)) if needs_weight else weight.new_empty(0)
    for first, end in _pieces(num_targets, piece_rows):
        piece, by_head = of_rows.rows(first, end), grad[first:end].transpose(0, 1)
        if needs_weight:
            sums = head_kernels.spread_rows(piece, x, *used, weight.dtype) if piece_rows else kept
            for of_head, *rows in zip(grad_weight, by_head, sums, strict=True):
                of_head += weight_grad(*rows)
            del sums
        if needs_x or needs_scores:
            of_piece = torch.bmm(by_head, weight)
            if needs_x:  # fold_rows() below reads the gradients of sums in the dtype of x
                of_piece = of_piece.to(x.dtype)
            if needs_scores:
                head_kernels.dot_rows(piece, of_piece, x.expand(heads, *x.shape), ends.num_own, out=dots)
            if needs_x and piece_rows:
                grad_sums[:, first:end] = of_piece
            elif needs_x:
                grad_sums = of_piece
            del of_piece
    columns = kernels.transposed(edges, scores.shape[0], skip_self=loops >= 0)
    grad_x = head_kernels.fold_rows(columns, grad_sums, *used) if needs_x else x.new_empty(0)
    grads = grad_x, grad_weight.to(weight.dtype)
    if not needs_scores:
        return *grads, *(scores.new_empty(0) for _ in range(4))
    return *grads, *scores_grads(edges, columns, ends, scores, of_edges, dots, p)


@_attend_and_multiply_grad.register_fake
def _(
    grad, x, weight, scores, target, edge, loop, indptr, source, row, kept, of_edges,
    num_targets, loops, slope, p, piece_rows, needs_x, needs_weight, needs_scores,
):  # fmt: skip
    grads = (
        torch.empty_like(each, memory_format=torch.contiguous_format) if is_needed else each.new_empty(0)
        for each, is_needed in ((x, needs_x), (weight, needs_weight))
    )
    return *grads, *fake_scores_grads(scores, of_edges, num_targets, needs_scores)


def _keep(ctx, inputs, output):
    *tensors, ctx.num_targets, ctx.loops, ctx.slope, ctx.p, _, ctx.piece_rows = inputs
    ctx.save_for_backward(*tensors, *output[1:])
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)


def _backward(ctx, grad, *_):
    if grad is None:
        return (None,) * 15
    *tensors, kept = ctx.saved_tensors[:10]
    needs = *ctx.needs_input_grad[:2], any(ctx.needs_input_grad[2:6])
    options = ctx.num_targets, ctx.loops, ctx.slope, ctx.p, ctx.piece_rows
    grads = _attend_and_multiply_grad(grad, *tensors, kept, list(ctx.saved_tensors[10:]), *options, *needs)
    wanted = zip(grads, ctx.needs_input_grad[:6], strict=True)
    return *(each if is_needed else None for each, is_needed in wanted), *[None] * 9


_attend_and_multiply.register_autograd(_backward, setup_context=_keep)
