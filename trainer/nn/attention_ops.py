"""Attention over a block as a custom operator of torch, with gradients."""

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
    shared: bool,
    loops: int,
    slope: float,
    p: float,
    keys: List[int],  # noqa: UP006
    out_dtype: torch.dtype,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Sums of the rows of ``x`` that a target's edges bring, for each head, weighted by softmaxes of the edges' scores.

    Args:
        x: [sources, dim], which all heads share, or [sources, heads * dim].
        scores: sum_dtype [sources, heads]; or [sources, 2 heads]: then the first rows' second halves are the targets'.
        target_scores: [num_targets, heads]; None: in ``scores``, or zeros.
        edge_scores, loop_scores: [edges, heads] and [loops, heads], what edges, and those of targets to themselves, add
            to the scores of their ends, contiguous; None: zeros.
        indptr, source: see Block.
        loops: so many first targets have an edge to themselves, which stands for all such; -1: these are as others.
        slope: of leaky_relu, which the sum of an edge's scores goes through.
        p, keys: of dropout of weights, those of edges and of edges to themselves.

    Returns:
        out_dtype [heads, num_targets, dim] where rows are shared, else [num_targets, heads * dim]; the weights
        [edges, heads] and [loops, heads], and the same after dropout (without: [0]).
    """
    edges = Edges(indptr, source, num_targets, skip_self=loops >= 0)
    ends = _scores(scores, target_scores, edge_scores, loop_scores, num_targets, heads, loops, slope)
    weights, own_weights = head_kernels.attention(edges, ends)
    dropped, own_dropped = weights.new_empty(0), weights.new_empty(0)
    if p:
        dropped, own_dropped = (
            kernels.drop(each, _NOTHING, p, key) for each, key in zip((weights, own_weights), keys, strict=True)
        )
    used, own_used = (dropped, own_dropped) if p else (weights, own_weights)
    out = _weighted(edges, x, used, own_used, heads, shared, out_dtype)
    return out, weights, own_weights, dropped, own_dropped


@attend.register_fake
def _(x, scores, target, edge, loop, indptr, source, num_targets, heads, shared, loops, slope, p, keys, out_dtype):
    shape = (heads, num_targets, x.shape[1]) if shared else (num_targets, x.shape[1])
    shapes = [(source.shape[0], heads), (max(loops, 0), heads)]
    weights = [scores.new_empty(shape) for shape in shapes + (shapes if p else [0, 0])]
    return x.new_empty(shape, dtype=out_dtype), *weights


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
    heads, shared = weights[0].shape[1], grad.dim() == 3
    edges = Edges(indptr, source, num_targets, skip_self=loops >= 0)
    columns = kernels.transposed(edges, x.shape[0], skip_self=loops >= 0)
    used, own_used = weights[2:] if p else weights[:2]
    grad_x = x.new_empty(0)
    grad_scores, grad_target, grads, own_grads = (scores.new_empty(0) for _ in range(4))
    if needs_x:
        by_rows = columns, grad, used, own_used
        grad_x = head_kernels.fold_rows(*by_rows) if shared else _weighted(*by_rows, heads, False, grad.dtype)
    if needs_scores:
        ends = _scores(scores, target_scores, edge_scores, loop_scores, num_targets, heads, loops, slope)
        rows = grad if shared else _by_head(grad, heads), _by_head(x, heads, shared)
        has_edge_scores = edge_scores is not None  # whose gradients are read whole, those of a batch's padding too
        grads, own_grads = head_kernels.dot_rows(edges, *rows, ends.num_own, zero_rest=has_edge_scores)
        if p:
            grads = kernels.drop_grad(used, grads, _NOTHING, p)
            own_grads = kernels.drop_grad(own_used, own_grads, _NOTHING, p)
        grad_scores = torch.zeros_like(scores, memory_format=torch.contiguous_format)
        grad_target = torch.empty(num_targets, heads, dtype=scores.dtype, device=scores.device)
        beside = ends.target is not None and target_scores is None
        to = grad_scores[:num_targets, heads:] if beside else grad_target
        head_kernels.attention_grad(edges, ends, weights[0], weights[1], grads, own_grads, to)
        _sum_by_source(columns, grads, own_grads, grad_scores[:, :heads])
    return grad_x, grad_scores, grad_target, grads, own_grads


@attend_grad.register_fake
def _(
    grad, x, scores, target, edge, loop, indptr, source, weights, num_targets, loops, slope, p, needs_x, needs_scores
):
    grad_x = torch.empty_like(x, memory_format=torch.contiguous_format) if needs_x else x.new_empty(0)
    if not needs_scores:
        return grad_x, *(scores.new_empty(0) for _ in range(4))
    grad_scores = torch.empty_like(scores, memory_format=torch.contiguous_format)
    of_edges = (torch.empty_like(each) for each in weights[:2])
    return grad_x, grad_scores, scores.new_empty(num_targets, weights[0].shape[1]), *of_edges


def _scores(
    scores: Tensor,
    target_scores: Tensor | None,
    edge_scores: Tensor | None,
    loop_scores: Tensor | None,
    num_targets: int,
    heads: int,
    loops: int,
    slope: float,
) -> Scores:
    if target_scores is None and scores.shape[1] == 2 * heads:
        target_scores = scores[:num_targets, heads:]
    return Scores(scores[:, :heads], target_scores, max(loops, 0), slope, edge_scores, loop_scores)


def _by_head(rows: Tensor, heads: int, shared: bool = False) -> Tensor:
    """A view [heads, rows, dim]."""
    if shared:
        return rows.expand(heads, *rows.shape)
    return rows.view(rows.shape[0], heads, -1).transpose(0, 1)


def _weighted(
    edges: Edges, x: Tensor, weights: Tensor, own_weights: Tensor, heads: int, shared: bool, dtype: torch.dtype
) -> Tensor:
    if shared:
        return head_kernels.spread_rows(edges, x, weights, own_weights, dtype)
    num_own = own_weights.shape[0]
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
    *tensors, ctx.num_targets, _, _, ctx.loops, ctx.slope, ctx.p, _, _ = inputs
    ctx.save_for_backward(*tensors, *output[1:])
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)


def _backward(ctx, grad, *_):
    if grad is None:
        return (None,) * 15
    x, *others, indptr, source = ctx.saved_tensors[:7]
    needs = ctx.needs_input_grad[0], any(ctx.needs_input_grad[1:5])
    edges = indptr, source, list(ctx.saved_tensors[7:]), ctx.num_targets, ctx.loops
    grads = attend_grad(grad.to(x.dtype).contiguous(), x, *others, *edges, ctx.slope, ctx.p, *needs)
    wanted = zip(grads, ctx.needs_input_grad[:5], strict=True)
    return *(each if is_needed else None for each, is_needed in wanted), *[None] * 10


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
