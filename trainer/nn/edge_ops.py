"""Attention in steps, each a custom operator of torch with gradients: scores of edges, softmaxes, weighted sums.

``attend`` of attention_products.py does the last two at once. Arrays of edges are [edges, heads], in the order of the
block's edges; edges that are no target's have zeros.
"""

import torch
from torch import Tensor

from cohort_gnn.nn import head_kernels, kernels
from cohort_gnn.nn.activation import activated
from cohort_gnn.nn.attention_ops import weighted
from cohort_gnn.nn.head_kernels import EdgeScores, by_head
from cohort_gnn.nn.joined_ops import new_edge_scores
from cohort_gnn.nn.kernels import GroupedEdges, sum_dtype
from cohort_gnn.nn.operators import operator


def dropped(weights: Tensor, p: float, training: bool) -> Tensor:
    """Dropout of weights, which are never negative."""
    return activated(weights, "relu", p) if p and training else weights


@operator("dot_scores")
def dot_scores(queries: Tensor, keys: Tensor, indptr: Tensor, source: Tensor, heads: int) -> Tensor:
    """sum_dtype [edges, heads], for each edge and head <query of the target, key of the source>.

    Args:
        queries: [targets, heads * dim].
        keys: [sources, heads * dim], in the dtype of ``queries``.
        indptr, source: see Block.
    """
    edges = GroupedEdges(indptr, source, queries.shape[0])
    scores = new_edge_scores(edges, keys, heads)
    return head_kernels.dot_rows(edges, by_head(queries, heads), by_head(keys, heads), 0, (scores, scores[:0]))[0]


@dot_scores.register_fake
def _(queries, keys, indptr, source, heads):
    return keys.new_empty((source.shape[0], heads), dtype=sum_dtype(keys.dtype))


@operator("dot_scores_grad")
def dot_scores_grad(
    grad: Tensor, queries: Tensor, keys: Tensor, indptr: Tensor, source: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients of dot_scores' ``queries`` and ``keys``."""
    edges, factors = GroupedEdges(indptr, source, queries.shape[0]), {"heads": grad.shape[1], "edge_factor": grad}
    columns = kernels.transposed(edges, keys.shape[0])
    return kernels.sum_rows(edges, keys, **factors), kernels.sum_rows(columns, queries, **factors)


@dot_scores_grad.register_fake
def _(grad, queries, keys, indptr, source):
    return queries.new_empty(queries.shape), keys.new_empty(keys.shape)


def _keep_dots(ctx, inputs, output):
    ctx.save_for_backward(*inputs[:4])


def _dots_backward(ctx, grad):
    return *dot_scores_grad(grad.contiguous(), *ctx.saved_tensors), None, None, None


dot_scores.register_autograd(_dots_backward, setup_context=_keep_dots)


@operator("shared_scores")
def shared_scores(queries: Tensor, rows: Tensor, indptr: Tensor, row: Tensor) -> Tensor:
    """sum_dtype [edges, heads], for each edge and head <query of the target, row of the edge>; heads share the rows.

    Args:
        queries: [heads, targets, dim], contiguous.
        rows: [any, dim], in the dtype of ``queries``.
        indptr: see Block.
        row: int64 [edges], the row of each edge.
    """
    edges, heads = GroupedEdges(indptr, row, queries.shape[1]), queries.shape[0]
    scores = new_edge_scores(edges, rows, heads)
    return head_kernels.dot_rows(edges, queries, rows.expand(heads, *rows.shape), 0, (scores, scores[:0]))[0]


@shared_scores.register_fake
def _(queries, rows, indptr, row):
    return rows.new_empty((row.shape[0], queries.shape[0]), dtype=sum_dtype(rows.dtype))


@operator("shared_sums")
def shared_sums(weights: Tensor, rows: Tensor, indptr: Tensor, row: Tensor, num_targets: int) -> Tensor:
    """[heads, num_targets, dim], for each target and head the sum over edges of weight * row of the edge.

    Args:
        weights: sum_dtype [edges, heads], contiguous.
        rows: [any, dim].
        indptr, row: as of shared_scores().
    """
    return head_kernels.spread_rows(GroupedEdges(indptr, row, num_targets), rows, weights, weights[:0], rows.dtype)


@shared_sums.register_fake
def _(weights, rows, indptr, row, num_targets):
    return rows.new_empty(weights.shape[1], num_targets, rows.shape[1])


@operator("shared_rows_grad")
def shared_rows_grad(targets: Tensor, weights: Tensor, rows: Tensor, indptr: Tensor, row: Tensor) -> Tensor:
    """[any, dim], for each row the sum over its edges and over heads of weight * row of the target.

    Args:
        targets: [heads, targets, dim], contiguous.
        weights, rows, indptr, row: as of shared_sums().
    """
    columns = kernels.transposed(GroupedEdges(indptr, row, targets.shape[1]), rows.shape[0])
    return head_kernels.fold_rows(columns, targets, weights, weights[:0])


shared_rows_grad.register_fake(lambda targets, weights, rows, indptr, row: rows.new_empty(rows.shape))


def _keep_shared(ctx, inputs, output):
    ctx.save_for_backward(*inputs[:4])


def _shared_scores_backward(ctx, grad):
    queries, rows, indptr, row = ctx.saved_tensors
    grad, (needs_queries, needs_rows, *_) = grad.contiguous(), ctx.needs_input_grad
    grad_queries = shared_sums(grad, rows, indptr, row, queries.shape[1]) if needs_queries else None
    return grad_queries, shared_rows_grad(queries, grad, rows, indptr, row) if needs_rows else None, None, None


def _shared_sums_backward(ctx, grad):
    weights, rows, indptr, row = ctx.saved_tensors
    grad, (needs_weights, needs_rows, *_) = grad.to(rows.dtype).contiguous(), ctx.needs_input_grad
    grad_weights = shared_scores(grad, rows, indptr, row) if needs_weights else None
    return grad_weights, shared_rows_grad(grad, weights, rows, indptr, row) if needs_rows else None, *[None] * 3


shared_scores.register_autograd(_shared_scores_backward, setup_context=_keep_shared)
shared_sums.register_autograd(_shared_sums_backward, setup_context=_keep_shared)


@operator("edge_softmax")
def edge_softmax(
    scores: Tensor, loop_scores: Tensor | None, indptr: Tensor, source: Tensor, num_targets: int
) -> tuple[Tensor, Tensor]:
    """Softmaxes of scores over the edges of each target, those of targets to themselves among them.

    Args:
        scores: float32 or float64 [edges, heads], contiguous.
        loop_scores: [loops, heads], of edges from so many first targets to themselves, which stand for all such; None:
            these are as others.
        indptr, source: see Block.
    """
    edges = GroupedEdges(indptr, source, num_targets, skip_self=loop_scores is not None)
    weights, loop_weights = head_kernels.attention(edges, _parts(scores, loop_scores))
    return _zeros_beyond(weights, indptr, num_targets), loop_weights


def _parts(scores: Tensor, loop_scores: Tensor | None) -> EdgeScores:
    """Scores as the kernels take them; leaky_relu of slope 1 leaves them as they are."""
    nothing = scores.new_zeros(1, scores.shape[1]).expand(2, -1)  # at a stride of 0, so for any number of sources
    return EdgeScores(nothing, None, 0 if loop_scores is None else loop_scores.shape[0], 1.0, scores, loop_scores)


def _zeros_beyond(values: Tensor, indptr: Tensor, num_targets: int) -> Tensor:
    """Values of edges, with zeros for those that are no target's."""
    if num_targets >= indptr.numel() - 1:
        return values
    numbers = torch.arange(values.shape[0], device=values.device)
    return values.masked_fill_((numbers >= indptr[num_targets]).unsqueeze(1), 0)


@edge_softmax.register_fake
def _(scores, loop_scores, indptr, source, num_targets):
    return torch.empty_like(scores), torch.empty_like(scores[:0] if loop_scores is None else loop_scores)


@operator("edge_softmax_grad")
def edge_softmax_grad(
    grad: Tensor,
    loop_grad: Tensor,
    weights: Tensor,
    loop_weights: Tensor,
    scores: Tensor,
    loop_scores: Tensor | None,
    indptr: Tensor,
    source: Tensor,
    num_targets: int,
) -> tuple[Tensor, Tensor]:
    """Gradients of edge_softmax's ``scores`` and ``loop_scores``."""
    edges, parts = (
        GroupedEdges(indptr, source, num_targets, skip_self=loop_scores is not None),
        _parts(scores, loop_scores),
    )
    grads, loop_grads = (values.clone(memory_format=torch.contiguous_format) for values in (grad, loop_grad))
    sums = scores.new_empty(num_targets, scores.shape[1])  # that nobody needs
    head_kernels.attention_grad(edges, parts, weights, loop_weights, grads, loop_grads, sums)
    return _zeros_beyond(grads, indptr, num_targets), loop_grads


@edge_softmax_grad.register_fake
def _(grad, loop_grad, *_):
    return tuple(torch.empty_like(values, memory_format=torch.contiguous_format) for values in (grad, loop_grad))


def _keep_softmax(ctx, inputs, output):
    scores, loop_scores, indptr, source, ctx.num_targets = inputs
    ctx.save_for_backward(*output, scores, loop_scores, indptr, source)


def _softmax_backward(ctx, grad, loop_grad):
    grads = edge_softmax_grad(grad, loop_grad, *ctx.saved_tensors, ctx.num_targets)
    return *(value if is_needed else None for value, is_needed in zip(grads, ctx.needs_input_grad, strict=False)), *[
        None
    ] * 3


edge_softmax.register_autograd(_softmax_backward, setup_context=_keep_softmax)


@operator("weighted_sum")
def weighted_sum(
    x: Tensor, weights: Tensor, loop_weights: Tensor | None, indptr: Tensor, source: Tensor, num_targets: int
) -> Tensor:
    """[num_targets, heads * dim], sums of the rows of ``x`` that edges bring, each head times its weight.

    Args:
        x: [sources, heads * dim].
        weights: sum_dtype [edges, heads], contiguous.
        loop_weights: [loops, heads], as of edge_softmax().
        indptr, source: see Block.
    """
    edges = GroupedEdges(indptr, source, num_targets, skip_self=loop_weights is not None)
    return weighted(edges, x, weights, weights[:0] if loop_weights is None else loop_weights)


@weighted_sum.register_fake
def _(x, weights, loop_weights, indptr, source, num_targets):
    return x.new_empty(num_targets, x.shape[1])


@operator("weighted_sum_grad")
def weighted_sum_grad(
    grad: Tensor,
    x: Tensor,
    weights: Tensor,
    loop_weights: Tensor | None,
    indptr: Tensor,
    source: Tensor,
    needs_x: bool,
    needs_weights: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of weighted_sum's ``x``, ``weights`` and ``loop_weights``; [0] in place of those not needed."""
    num_targets, heads = grad.shape[0], weights.shape[1]
    edges = GroupedEdges(indptr, source, num_targets, skip_self=loop_weights is not None)
    loops = weights[:0] if loop_weights is None else loop_weights
    grad_x, dots = x.new_empty(0), (weights.new_empty(0), weights.new_empty(0))
    if needs_x:
        grad_x = weighted(kernels.transposed(edges, x.shape[0]), grad, weights, loops)
    if needs_weights:
        dots = new_edge_scores(edges, x, heads), torch.empty_like(loops)
        head_kernels.dot_rows(edges, by_head(grad, heads), by_head(x, heads), loops.shape[0], dots)
    return grad_x, *dots


@weighted_sum_grad.register_fake
def _(grad, x, weights, loop_weights, indptr, source, needs_x, needs_weights):
    loops = weights[:0] if loop_weights is None else loop_weights
    dots = (torch.empty_like(values) if needs_weights else values.new_empty(0) for values in (weights, loops))
    return x.new_empty(x.shape if needs_x else 0), *dots


def _keep_weighted(ctx, inputs, output):
    ctx.save_for_backward(*inputs[:5])


def _weighted_backward(ctx, grad):
    needs_x, *needs_weights = ctx.needs_input_grad[:3]
    x, *others = ctx.saved_tensors
    grads = weighted_sum_grad(grad.to(x.dtype).contiguous(), x, *others, needs_x, any(needs_weights))
    return *(value if is_needed else None for value, is_needed in zip(grads, ctx.needs_input_grad, strict=False)), *[
        None
    ] * 3


weighted_sum.register_autograd(_weighted_backward, setup_context=_keep_weighted)


@operator("take_rows_of")
def take_rows(rows: Tensor, index: Tensor) -> Tensor:
    """``rows[index]`` [n, columns], whose gradient is summed in a fixed order.

    Args:
        rows: [any, columns].
        index: int64 [n], contiguous.
    """
    return rows.index_select(0, index)


take_rows.register_fake(lambda rows, index: rows.new_empty(index.shape[0], rows.shape[1]))


@operator("take_rows_grad")
def take_rows_grad(grad: Tensor, index: Tensor, num_rows: int) -> Tensor:
    """The gradient of take_rows' ``rows`` [num_rows, columns]."""
    starts = torch.arange(index.shape[0] + 1, device=index.device)
    columns = kernels.transposed(GroupedEdges(starts, index, index.shape[0]), num_rows)
    return kernels.sum_rows(columns, grad)


take_rows_grad.register_fake(lambda grad, index, num_rows: grad.new_empty(num_rows, grad.shape[1]))


def _keep_taken(ctx, inputs, output):
    ctx.num_rows = inputs[0].shape[0]
    ctx.save_for_backward(inputs[1])


take_rows.register_autograd(
    lambda ctx, grad: (take_rows_grad(grad.contiguous(), *ctx.saved_tensors, ctx.num_rows), None),
    setup_context=_keep_taken,
)
