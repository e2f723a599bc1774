"""Parts of attention over a block: the weights of edges and their gradients, sums by head, and means for loops."""

from collections.abc import Sequence

import torch
from torch import Tensor

from cohort_gnn.nn import _native, head_kernels, kernels
from cohort_gnn.nn.activation import ACTIVATIONS
from cohort_gnn.nn.head_kernels import EdgeScores
from cohort_gnn.nn.kernels import GroupedEdges
from cohort_gnn.nn.operators import operator

_NOTHING = ACTIVATIONS["relu"]  # of weights, which are never negative


def attention_weights(
    edges: GroupedEdges, score_parts: EdgeScores, p: float, keys: list[int]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The weights of edges and of targets' edges to themselves, and the same after dropout (without: [0])."""
    weights = head_kernels.attention(edges, score_parts)
    dropped = [
        kernels.drop(tensor, _NOTHING, p, key) if p else tensor.new_empty(0)
        for tensor, key in zip(weights, keys, strict=True)
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
    edges: GroupedEdges,
    columns: GroupedEdges,
    score_parts: EdgeScores,
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
    head_kernels.attention_grad(edges, score_parts, weights[0], weights[1], grads, own_grads, to)
    by_source = grad_scores[:, :heads]
    if columns.skip_self or own_grads.shape[0]:
        weighted(columns, _ones(grads), grads, own_grads, out=by_source)
    else:
        kernels.sum_rows(columns.numbers(), grads, out=by_source)
    return grad_scores, grad_target, grads, own_grads


def fake_scores_grads(scores: Tensor, weights: Sequence[Tensor], num_targets: int, needs_scores: bool) -> list[Tensor]:
    """The shapes of scores_grads(); [0] each, where they are not needed."""
    if not needs_scores:
        return [scores.new_empty(0) for _ in range(4)]
    grad_scores = torch.empty_like(scores, memory_format=torch.contiguous_format)
    edge_grads = (torch.empty_like(tensor) for tensor in weights[:2])
    return [grad_scores, scores.new_empty(num_targets, weights[0].shape[1]), *edge_grads]


def scores_of_edges(
    scores: Tensor,
    target_scores: Tensor | None,
    edge_scores: Tensor | None,
    loop_scores: Tensor | None,
    num_targets: int,
    heads: int,
    loops: int,
    slope: float,
) -> EdgeScores:
    """The scores of edges, from the arguments of attend()."""
    if target_scores is None and scores.shape[1] == 2 * heads:
        target_scores = scores[:num_targets, heads:]
    return EdgeScores(scores[:, :heads], target_scores, max(loops, 0), slope, edge_scores, loop_scores)


def weighted(
    edges: GroupedEdges,
    x: Tensor,
    weights: Tensor,
    own_weights: Tensor,
    dtype: torch.dtype | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """[num_rows, heads * dim], sums of rows ``x`` [any, heads * dim] of which each head has its own columns."""
    num_own, heads = own_weights.shape
    own = {"own_use": _native.ADD_OWN, "own": x, "num_own": num_own} if num_own else {}
    factors = {"edge_factor": weights, "own_factor": own_weights}
    return kernels.sum_rows(edges, x, dtype, out, heads=heads, **own, **factors)


def _ones(like: Tensor) -> Tensor:
    """Rows of ones, of as many columns, at a stride of 0, so any number of them."""
    return like.new_ones(1, like.shape[1]).expand(2, like.shape[1])


@operator("loop_means")
def loop_means(scores: Tensor, indptr: Tensor, source: Tensor, loops: int) -> tuple[Tensor, Tensor]:
    """For each of the first ``loops`` targets, the mean of what its edges from others score; 0 without any.

    Args:
        scores: float32 or float64 [edges, heads], contiguous.
        indptr, source: see Block.

    Returns:
        [loops, heads], and the factors by which sums became means, [loops, 1].
    """
    edges, ones = GroupedEdges(indptr, source, loops, skip_self=True), _ones(scores)
    inverse = kernels.sum_rows(edges, ones[:, :1]).clamp_(min=1).reciprocal_()
    return weighted(edges, ones, scores, scores[:0]).mul_(inverse), inverse


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
    row_grads = torch.cat((grad * inverse, grad.new_zeros(1, grad.shape[1])))
    return row_grads[torch.where(counts, row, inverse.shape[0])], None, None, None


loop_means.register_autograd(_loops_backward, setup_context=_keep_loops)
