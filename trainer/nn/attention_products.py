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
    scores_of_edges,
    used_of,
    weighted,
)
from cohort_gnn.nn.head_kernels import by_head
from cohort_gnn.nn.kernels import GroupedEdges, sum_dtype
from cohort_gnn.nn.linear import weight_grad
from cohort_gnn.nn.operators import operator

# A layer keeps sums of up to KEPT_BYTES, or up to KEPT_SHARE of a GPU's memory if this is more, for the gradients.
KEPT_BYTES = 1 << 30
KEPT_SHARE = 1 / 6
PIECE_BYTES = 512 << 20  # of a piece of sums that are not kept


def piece_rows_of(weight: Tensor, keeps: bool) -> int:
    """Targets in a piece of sums for weights [heads, width, dim]; 0: the sums are made at once, and kept."""
    row_bytes = weight.shape[0] * weight.shape[2] * weight.element_size()
    return 0 if keeps else max(1, PIECE_BYTES // row_bytes)


def kept_bytes(device: torch.device) -> int:
    """Most bytes of sums that a layer keeps."""
    if device.type != "cuda":
        return KEPT_BYTES
    return max(KEPT_BYTES, int(KEPT_SHARE * torch.cuda.get_device_properties(device).total_memory))


def _pieces(num_rows: int, piece_rows: int) -> Iterator[tuple[int, int]]:
    step = piece_rows or num_rows
    return ((first, min(first + step, num_rows)) for first in range(0, num_rows, max(1, step)))


@operator("attend")
def attend(
    x: Tensor,
    weight: Tensor | None,
    scores: Tensor,
    target_scores: Tensor | None,
    edge_scores: Tensor | None,
    loop_scores: Tensor | None,
    indptr: Tensor,
    source: Tensor,
    row: Tensor | None,
    num_targets: int,
    heads: int,
    loops: int,
    slope: float,
    p: float,
    keys: List[int],  # noqa: UP006
    piece_rows: int,
    out_dtype: torch.dtype,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Sums of the rows of ``x`` that a target's edges bring, for each head, weighted by softmaxes of the edges' scores;
    with ``weight`` times this.

    Args:
        x: [sources, heads * dim]; with ``weight`` [sources, dim], which all heads sum; with ``row`` [any, dim].
        weight: [heads, width, dim], in the dtype of the result; None: the sums are the result.
        scores: sum_dtype [sources, heads]; or [sources, 2 heads]: then the first rows' second halves are the targets'.
        target_scores: [num_targets, heads]; None: in ``scores``, or zeros.
        edge_scores, loop_scores: [edges, heads] and [loops, heads], what edges, and those of targets to themselves, add
            to the scores of their ends, contiguous; None: zeros.
        indptr, source: see Block.
        row: int64 [edges], the row of ``x`` of each edge's source, of which no gradient is known; not without
            ``weight``, nor with edges from targets to themselves. None: that of the source's number.
        loops: so many first targets have an edge to themselves, which stands for all such; -1: these are as others.
        slope: of leaky_relu, which the sum of an edge's scores goes through.
        p, keys: of dropout of weights, those of edges and of edges to themselves.
        piece_rows: with ``weight``, number of targets in a piece of sums, which are made again for the gradients; 0:
            one piece has all targets, and its sums are kept.

    Returns:
        out_dtype [num_targets, heads * dim], or [num_targets, heads, width]; the sums [heads, num_targets, dim] if they
        are kept, else [0]; the edges' weights [edges, heads] and [loops, heads], and the same after dropout (without:
        [0]).
    """
    edges = GroupedEdges(indptr, source, num_targets, skip_self=loops >= 0)
    score_parts = scores_of_edges(scores, target_scores, edge_scores, loop_scores, num_targets, heads, loops, slope)
    edge_weights = attention_weights(edges, score_parts, p, keys)
    used = used_of(edge_weights, p)
    if weight is None:
        return weighted(edges, x, *used, out_dtype), x.new_empty(0), *edge_weights
    row_edges = edges if row is None else GroupedEdges(indptr, row, num_targets)
    out = weight.new_empty(num_targets, *weight.shape[:2])
    kept = weight.new_empty(0 if piece_rows else (heads, num_targets, weight.shape[2]))
    for first, end in _pieces(num_targets, piece_rows):
        to = None if piece_rows else kept
        sums = head_kernels.spread_rows(row_edges.rows(first, end), x, *used, weight.dtype, to)
        torch.bmm(sums, weight.transpose(1, 2), out=out[first:end].transpose(0, 1))
        del sums  # free them before the next piece
    return out, kept, *edge_weights


@attend.register_fake
def _(
    x, weight, scores, target, edge, loop, indptr, source, row,
    num_targets, heads, loops, slope, p, keys, piece_rows, out_dtype,
):  # fmt: skip
    edge_weights = fake_attention_weights(scores, source, heads, loops, p)
    if weight is None:
        return x.new_empty((num_targets, x.shape[1]), dtype=out_dtype), x.new_empty(0), *edge_weights
    kept = weight.new_empty(0 if piece_rows else (heads, num_targets, weight.shape[2]))
    return weight.new_empty(num_targets, *weight.shape[:2]), kept, *edge_weights


@operator("attend_grad")
def attend_grad(
    grad: Tensor,
    x: Tensor,
    weight: Tensor | None,
    scores: Tensor,
    target_scores: Tensor | None,
    edge_scores: Tensor | None,
    loop_scores: Tensor | None,
    indptr: Tensor,
    source: Tensor,
    row: Tensor | None,
    kept: Tensor,
    edge_weights: List[Tensor],  # noqa: UP006
    num_targets: int,
    loops: int,
    slope: float,
    p: float,
    piece_rows: int,
    needs_x: bool,
    needs_weight: bool,
    needs_scores: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of attend's ``x``, ``weight`` and the four scores; [0] in place of those that are not needed.

    Args:
        grad: of attend's first result; without ``weight`` contiguous, in the dtype of ``x``.
        kept, edge_weights: attend's other results.
    """
    heads, used = edge_weights[0].shape[1], used_of(edge_weights, p)
    edges = GroupedEdges(indptr, source, num_targets, skip_self=loops >= 0)
    score_parts = scores_of_edges(scores, target_scores, edge_scores, loop_scores, num_targets, heads, loops, slope)
    grad_x = grad_sums = x.new_empty(0)
    grad_weight, dots = x.new_empty(0), (grad_x, grad_x)
    if needs_scores:
        # The gradients of edges' scores are read as a whole, so the gradients of padding edges must be zeros.
        dots = head_kernels.new_dots(edges, x, heads, score_parts.num_own, zero_rest=edge_scores is not None)
    if weight is None and needs_scores:
        head_kernels.dot_rows(edges, by_head(grad, heads), by_head(x, heads), score_parts.num_own, dots)
    if weight is not None:
        row_edges = edges if row is None else GroupedEdges(indptr, row, num_targets)
        grad_sums = x.new_empty(heads, num_targets if needs_x and piece_rows else 0, x.shape[1])
        if needs_weight:
            grad_weight = torch.zeros_like(weight, dtype=sum_dtype(weight.dtype))
        for first, end in _pieces(num_targets, piece_rows):
            piece, piece_grad = row_edges.rows(first, end), grad[first:end].transpose(0, 1)
            if needs_weight:
                sums = head_kernels.spread_rows(piece, x, *used, weight.dtype) if piece_rows else kept
                for head_grad, *rows in zip(grad_weight, piece_grad, sums, strict=True):
                    head_grad += weight_grad(*rows)
                del sums
            if needs_x or needs_scores:
                piece_grad = torch.bmm(piece_grad, weight)
                if needs_x:  # fold_rows() below reads the gradients of sums in the dtype of x
                    piece_grad = piece_grad.to(x.dtype)
                if needs_scores:
                    head_kernels.dot_rows(piece, piece_grad, x.expand(heads, *x.shape), score_parts.num_own, dots)
                if needs_x and piece_rows:
                    grad_sums[:, first:end] = piece_grad
                elif needs_x:
                    grad_sums = piece_grad
            del piece_grad
        if needs_weight:
            grad_weight = grad_weight.to(weight.dtype)
    columns = kernels.transposed(edges, scores.shape[0])
    if needs_x and weight is None:
        grad_x = weighted(columns, grad, *used, grad.dtype)
    elif needs_x:
        grad_x = head_kernels.fold_rows(columns, grad_sums, *used)
    if not needs_scores:
        return grad_x, grad_weight, *(scores.new_empty(0) for _ in range(4))
    return grad_x, grad_weight, *scores_grads(edges, columns, score_parts, scores, edge_weights, dots, p)


@attend_grad.register_fake
def _(
    grad, x, weight, scores, target, edge, loop, indptr, source, row, kept, edge_weights,
    num_targets, loops, slope, p, piece_rows, needs_x, needs_weight, needs_scores,
):  # fmt: skip
    grads = (
        torch.empty_like(tensor, memory_format=torch.contiguous_format) if is_needed else x.new_empty(0)
        for tensor, is_needed in ((x, needs_x), (weight, needs_weight))
    )
    return *grads, *fake_scores_grads(scores, edge_weights, num_targets, needs_scores)


def _keep(ctx, inputs, output):
    *tensors, ctx.num_targets, _, ctx.loops, ctx.slope, ctx.p, _, ctx.piece_rows, _ = inputs
    ctx.save_for_backward(*tensors, *output[1:])
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)


def _backward(ctx, grad, *_):
    if grad is None:
        return (None,) * 17
    x, weight, *others = ctx.saved_tensors  # which a checkpoint gives once
    others, kept, edge_weights = others[:7], others[7], others[8:]
    grad = grad.to(x.dtype).contiguous() if weight is None else grad
    needs = *ctx.needs_input_grad[:2], any(ctx.needs_input_grad[2:6])
    options = ctx.num_targets, ctx.loops, ctx.slope, ctx.p, ctx.piece_rows
    grads = attend_grad(grad, x, weight, *others, kept, edge_weights, *options, *needs)
    wanted = zip(grads, ctx.needs_input_grad[:6], strict=True)
    return *(tensor if is_needed else None for tensor, is_needed in wanted), *[None] * 11


attend.register_autograd(_backward, setup_context=_keep)
