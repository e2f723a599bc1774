"""Attention over a block as a custom operator of torch, with gradients: over rows of which each head has its own."""

from collections.abc import Sequence
from typing import List  # noqa: UP035, as torch 2.5 reads no `list[int]` in an operator's signature

import torch
from torch import Tensor

from cohort_gnn.nn import head_kernels, kernels
from cohort_gnn.nn.activation import ACTIVATIONS
from cohort_gnn.nn.head_kernels import Scores
from cohort_gnn.nn.kernels import Edges
from cohort_gnn.nn.operators import operator
from cohort_gnn.trainer import _native

_NOTHING = ACTIVATIONS["relu"]  # of weights, which are never negative


@operator("attend")
def attend(
    x: Tensor,
    scores: Tensor,
    target_scores: Tensor | None,
    edge_scores: Tensor | None,
    loop_scores: Tensor | None,
    indptr: Tensor,
    source: Tensor,
    num_targets: int,
    heads: int,
    loops: int,
    slope: float,
    p: float,
    keys: List[int],  # noqa: UP006
    out_dtype: torch.dtype,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Sums of the rows of ``x`` that a target's edges bring, for each head, weighted by softmaxes of the edges' scores.

    Args:
        x: [sources, heads * dim].
        scores: sum_dtype [sources, heads]; or [sources, 2 heads]: then the first rows' second halves are the targets'.
        target_scores: [num_targets, heads]; None: in ``scores``, or zeros.
        edge_scores, loop_scores: [edges, heads] and [loops, heads], what edges, and those of targets to themselves, add
            to the scores of their ends, contiguous; None: zeros.
        indptr, source: see Block.
        loops: so many first targets have an edge to themselves, which stands for all such; -1: these are as others.
        slope: of leaky_relu, which the sum of an edge's scores goes through.
        p, keys: of dropout of weights, those of edges and of edges to themselves.

    Returns:
        out_dtype [num_targets, heads * dim]; the weights [edges, heads] and [loops, heads], and the same after dropout
        (without: [0]).
    """
    edges = Edges(indptr, source, num_targets, skip_self=loops >= 0)
    ends = scores_of(scores, target_scores, edge_scores, loop_scores, num_targets, heads, loops, slope)
    of_edges = attention_weights(edges, ends, p, keys)
    return _weighted(edges, x, *used_of(of_edges, p), out_dtype), *of_edges


@attend.register_fake
def _(x, scores, target, edge, loop, indptr, source, num_targets, heads, loops, slope, p, keys, out_dtype):
    out = x.new_empty((num_targets, x.shape[1]), dtype=out_dtype)
    return out, *fake_attention_weights(scores, source, heads, loops, p)


@operator("attend_grad")
def attend_grad(
    grad: Tensor,
    x: Tensor,
    scores: Tensor,
    target_scores: Tensor | None,
    edge_scores: Tensor | None,
    loop_scores: Tensor | None,
    indptr: Tensor,
    source: Tensor,
    weights: List[Tensor],  # noqa: UP006
    num_targets: int,
    loops: int,
    slope: float,
    p: float,
    needs_x: bool,
    needs_scores: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of attend's ``x``, ``scores``, ``target_scores``, ``edge_scores`` and ``loop_scores``; [0] in place of
    those that are not needed.

    Args:
        grad: of attend's first result, contiguous, in the dtype of x.
        weights: attend's other results.
    """
    heads = weights[0].shape[1]
    edges = Edges(indptr, source, num_targets, skip_self=loops >= 0)
    columns = kernels.transposed(edges, x.shape[0], skip_self=loops >= 0)
    grad_x = _weighted(columns, grad, *used_of(weights, p), grad.dtype) if needs_x else x.new_empty(0)
    if not needs_scores:
        return grad_x, *(scores.new_empty(0) for _ in range(4))
    ends = scores_of(scores, target_scores, edge_scores, loop_scores, num_targets, heads, loops, slope)
    rows = _by_head(grad, heads), _by_head(x, heads)
    # Gradients of edges' scores are read whole, those of a batch's padding too.
    dots = head_kernels.dot_rows(edges, *rows, ends.num_own, zero_rest=edge_scores is not None)
    return grad_x, *scores_grads(edges, columns, ends, scores, weights, dots, p)


@attend_grad.register_fake
def _(
    grad, x, scores, target, edge, loop, indptr, source, weights, num_targets, loops, slope, p, needs_x, needs_scores
):
    grad_x = torch.empty_like(x, memory_format=torch.contiguous_format) if needs_x else x.new_empty(0)
    return grad_x, *fake_scores_grads(scores, weights, num_targets, needs_scores)


def attention_weights(edges: Edges, ends: Scores, p: float, keys: list[int]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Those of edges and of edges to themselves, and the same after dropout (without: [0])."""
    weights = head_kernels.attention(edges, ends)
    dropped = [
        kernels.drop(each, _NOTHING, p, key) if p else each.new_empty(0)
        for each, key in zip(weights, keys, strict=True)
    ]
    return *weights, *dropped


def used_of(weights: Sequence[Tensor], p: float) -> tuple[Tensor, Tensor]:
    """Of attention_weights(), the two that rows are multiplied by."""
    return (weights[2], weights[3]) if p else (weights[0], weights[1])


def fake_attention_weights(scores: Tensor, source: Tensor, heads: int, loops: int, p: float) -> list[Tensor]:
    """The shapes of attention_weights()."""
    shapes = [(source.shape[0], heads), (max(loops, 0), heads)]
    return [scores.new_empty(shape) for shape in shapes + (shapes if p else [0, 0])]


def scores_grads(
    edges: Edges,
    columns: Edges,
    ends: Scores,
    scores: Tensor,
    weights: Sequence[Tensor],
    dots: tuple[Tensor, Tensor],
    p: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of attend's ``scores``, ``target_scores``, ``edge_scores`` and ``loop_scores``.

    Args:
        columns: the edges transposed.
        weights: from attention_weights().
        dots: gradients of the weights that were used, from dot_rows().
    """
    heads, (grads, own_grads) = weights[0].shape[1], dots
    if p:
        used, own_used = used_of(weights, p)
        grads = kernels.drop_grad(used, grads, _NOTHING, p)
        own_grads = kernels.drop_grad(own_used, own_grads, _NOTHING, p)
    grad_scores = torch.zeros_like(scores, memory_format=torch.contiguous_format)
    grad_target = torch.empty(edges.num_rows, heads, dtype=scores.dtype, device=scores.device)
    beside = scores.shape[1] == 2 * heads
    to = grad_scores[: edges.num_rows, heads:] if beside else grad_target
    head_kernels.attention_grad(edges, ends, weights[0], weights[1], grads, own_grads, to)
    _sum_by_source(columns, grads, own_grads, grad_scores[:, :heads])
    return grad_scores, grad_target, grads, own_grads


def fake_scores_grads(scores: Tensor, weights: Sequence[Tensor], num_targets: int, needs_scores: bool) -> list[Tensor]:
    """The shapes of scores_grads(); [0] each, where they are not needed."""
    if not needs_scores:
        return [scores.new_empty(0) for _ in range(4)]
    grad_scores = torch.empty_like(scores, memory_format=torch.contiguous_format)
    of_edges = (torch.empty_like(each) for each in weights[:2])
    return [grad_scores, scores.new_empty(num_targets, weights[0].shape[1]), *of_edges]


def scores_of(
    scores: Tensor,
    target_scores: Tensor | None,
    edge_scores: Tensor | None,
    loop_scores: Tensor | None,
    num_targets: int,
    heads: int,
    loops: int,
    slope: float,
) -> Scores:
    """As attend() takes them."""
    if target_scores is None and scores.shape[1] == 2 * heads:
        target_scores = scores[:num_targets, heads:]
    return Scores(scores[:, :heads], target_scores, max(loops, 0), slope, edge_scores, loop_scores)


def _by_head(rows: Tensor, heads: int) -> Tensor:
    """A view [heads, rows, dim]."""
    return rows.view(rows.shape[0], heads, rows.shape[1] // heads).transpose(0, 1)


def _weighted(edges: Edges, x: Tensor, weights: Tensor, own_weights: Tensor, dtype: torch.dtype) -> Tensor:
    num_own, heads = own_weights.shape
    return kernels.sum_rows(
        edges,
        x,
        dtype,
        own_use=_native.ADD_OWN if num_own else _native.NO_OWN,
        own=x if num_own else None,
        num_own=num_own,
        heads=heads,
        edge_factor=weights,
        own_factor=own_weights,
    )


def _sum_by_source(columns: Edges, grads: Tensor, own_grads: Tensor, out: Tensor) -> None:
    """Sums of the edges' gradients by source: of ones, with gradients as factors."""
    num_own, heads = own_grads.shape
    ones = grads.new_ones(1, heads).expand(2, heads)  # rows at a stride of 0, so any number of them
    kernels.sum_rows(
        columns,
        ones,
        own_use=_native.ADD_OWN if num_own else _native.NO_OWN,
        own=ones if num_own else None,
        num_own=num_own,
        heads=heads,
        edge_factor=grads,
        own_factor=own_grads,
        out=out,
    )


def _keep(ctx, inputs, output):
    *tensors, ctx.num_targets, _, ctx.loops, ctx.slope, ctx.p, _, _ = inputs
    ctx.save_for_backward(*tensors, *output[1:])
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)


def _backward(ctx, grad, *_):
    if grad is None:
        return (None,) * 14
    x, *others, indptr, source = ctx.saved_tensors[:7]
    needs = ctx.needs_input_grad[0], any(ctx.needs_input_grad[1:5])
    edges = indptr, source, list(ctx.saved_tensors[7:]), ctx.num_targets, ctx.loops
    grads = attend_grad(grad.to(x.dtype).contiguous(), x, *others, *edges, ctx.slope, ctx.p, *needs)
    wanted = zip(grads, ctx.needs_input_grad[:5], strict=True)
    return *(each if is_needed else None for each, is_needed in wanted), *[None] * 9


attend.register_autograd(_backward, setup_context=_keep)


@operator("loop_means")
def loop_means(scores: Tensor, indptr: Tensor, source: Tensor, loops: int) -> tuple[Tensor, Tensor]:
    """For each of the first ``loops`` targets, the mean of what its edges from others score; 0 without any.

    Args:
        scores: float32 or float64 [edges, heads], contiguous.
        indptr, source: see Block.

    Returns:
        [loops, heads], and the factors by which sums became means, [loops, 1].
    """
    edges, heads = Edges(indptr, source, loops, skip_self=True), scores.shape[1]
    ones = scores.new_ones(1, heads).expand(2, heads)  # rows at a stride of 0, so any number of them
    inverse = kernels.sum_rows(edges, ones[:, :1]).clamp_(min=1).reciprocal_()
    return kernels.sum_rows(edges, ones, heads=heads, edge_factor=scores).mul_(inverse), inverse


@loop_means.register_fake
def _(scores, indptr, source, loops):
    return scores.new_empty(loops, scores.shape[1]), scores.new_empty(loops, 1)


def _keep_loops(ctx, inputs, output):
    ctx.save_for_backward(*inputs[1:3], output[1])
    ctx.mark_non_differentiable(output[1])


def _loops_backward(ctx, grad, _):
    indptr, source, inverse = ctx.saved_tensors
    row = torch.searchsorted(indptr, torch.arange(source.numel(), device=source.device), right=True) - 1
    counts = (row < inverse.shape[0]) & (row != source)
    of_rows = torch.cat((grad * inverse, grad.new_zeros(1, grad.shape[1])))
    return of_rows[torch.where(counts, row, inverse.shape[0])], None, None, None


loop_means.register_autograd(_loops_backward, setup_context=_keep_loops)
