"""Layers' functions of both ends of an edge and of its own row, as custom operators of torch with gradients."""

import torch
from torch import Tensor

from cohort_gnn.nn import _native, head_kernels, kernels
from cohort_gnn.nn.head_kernels import Bend, by_head, joined_rows
from cohort_gnn.nn.kernels import GroupedEdges
from cohort_gnn.nn.linear import column_sums
from cohort_gnn.nn.operators import operator


@operator("relu_sum")
def relu_sum(x: Tensor, edge_rows: Tensor, indptr: Tensor, source: Tensor, num_targets: int) -> Tensor:
    """[num_targets, dim], for each target the sum over its edges of relu(row of ``x`` + row of the edge).

    Args:
        x: [sources, dim].
        edge_rows: [edges, dim], contiguous, in the dtype of ``x``.
        indptr, source: see Block.
    """
    out = x.new_empty(num_targets, x.shape[1])
    joined_rows(GroupedEdges(indptr, source, num_targets), x, x=x, edge=edge_rows, bent=out)
    return out


@relu_sum.register_fake
def _(x, edge_rows, indptr, source, num_targets):
    return x.new_empty(num_targets, x.shape[1])


@operator("relu_sum_grad")
def relu_sum_grad(
    grad: Tensor,
    x: Tensor,
    edge_rows: Tensor,
    indptr: Tensor,
    source: Tensor,
    num_targets: int,
    needs_x: bool,
    needs_edges: bool,
) -> tuple[Tensor, Tensor]:
    """Gradients of relu_sum's ``x`` and ``edge_rows``; [0] in place of one that is not needed."""
    edges, grad_edges = GroupedEdges(indptr, source, num_targets), new_edge_rows(edge_rows, indptr, num_targets)
    joined_rows(edges, x, x=x, edge=edge_rows, other=grad, edge_grads=grad_edges)
    grad_x = _sums_by_source(edges, grad_edges, None, x.shape[0]) if needs_x else x.new_empty(0)
    return grad_x, grad_edges if needs_edges else x.new_empty(0)


def _sums_by_source(edges: GroupedEdges, edge_rows: Tensor, loop_rows: Tensor | None, num_sources: int) -> Tensor:
    """[num_sources, columns], for each source the sum of the rows of its edges, and of those from targets to
    themselves."""
    offsets, _, number = kernels.transposed_arrays(edges, num_sources)
    own = {}
    if loop_rows is not None:
        own = {"own_use": _native.ADD_OWN, "own": loop_rows, "num_own": loop_rows.shape[0]}
    return kernels.sum_rows(GroupedEdges(offsets, number.long(), num_sources), edge_rows, **own)


@relu_sum_grad.register_fake
def _(grad, x, edge_rows, indptr, source, num_targets, needs_x, needs_edges):
    return x.new_empty(x.shape if needs_x else 0), x.new_empty(edge_rows.shape if needs_edges else 0)


def new_edge_rows(like: Tensor, indptr: Tensor, num_targets: int) -> Tensor:
    """Memory for a row for each edge; zeros where some edges may be no target's, and so are not written."""
    make = torch.empty_like if num_targets >= indptr.numel() - 1 else torch.zeros_like
    return make(like, memory_format=torch.contiguous_format)


def _keep_sum(ctx, inputs, output):
    *tensors, ctx.num_targets = inputs
    ctx.save_for_backward(*tensors)


def _sum_backward(ctx, grad):
    x, edge_rows, *block = ctx.saved_tensors
    needs = ctx.needs_input_grad[:2]
    grads = relu_sum_grad(grad.to(x.dtype).contiguous(), x, edge_rows, *block, ctx.num_targets, *needs)
    return *(value if is_needed else None for value, is_needed in zip(grads, needs, strict=True)), None, None, None


relu_sum.register_autograd(_sum_backward, setup_context=_keep_sum)


@operator("joined_scores")
def joined_scores(
    x: Tensor,
    target: Tensor,
    att: Tensor,
    edge_rows: Tensor | None,
    loop_rows: Tensor | None,
    indptr: Tensor,
    source: Tensor,
    loops: int,
    slope: float,
) -> tuple[Tensor, Tensor]:
    """For each edge and head, <att, leaky_relu(row of ``x`` + row of ``target`` + row of the edge)>.

    Args:
        x: [sources, heads * dim].
        target: [targets, heads * dim], in the dtype of ``x``.
        att: sum_dtype [heads, dim], contiguous.
        edge_rows, loop_rows: [edges, heads * dim] and [loops, heads * dim], rows of edges and of those of targets to
            themselves, contiguous, in the dtype of ``x``; None: zeros.
        indptr, source: see Block.
        loops: so many first targets have an edge to themselves, which stands for all such; -1: these are as others.
        slope: of leaky_relu.

    Returns:
        sum_dtype [edges, heads] and [loops, heads]; zeros for edges that do not count, or are no target's.
    """
    heads, num_own = att.shape[0], max(loops, 0)
    edges = GroupedEdges(indptr, source, target.shape[0], skip_self=loops >= 0)
    out = new_edge_scores(edges, x, heads), x.new_empty((num_own, heads), dtype=kernels.sum_dtype(x.dtype))
    bend = Bend(att, slope, edge_rows, loop_rows)
    return head_kernels.dot_rows(edges, by_head(target, heads), by_head(x, heads), num_own, out, bend)


def new_edge_scores(edges: GroupedEdges, x: Tensor, heads: int) -> Tensor:
    """Zeros, [edges, heads] in the dtype of sums of ``x``."""
    return x.new_zeros((edges.num_edges, heads), dtype=kernels.sum_dtype(x.dtype))


@joined_scores.register_fake
def _(x, target, att, edge_rows, loop_rows, indptr, source, loops, slope):
    return tuple(att.new_empty(count, att.shape[0]) for count in (source.shape[0], max(loops, 0)))


@operator("joined_scores_grad")
def joined_scores_grad(
    grad: Tensor,
    loop_grad: Tensor,
    x: Tensor,
    target: Tensor,
    att: Tensor,
    edge_rows: Tensor | None,
    loop_rows: Tensor | None,
    indptr: Tensor,
    source: Tensor,
    loops: int,
    slope: float,
    needs_x: bool,
    needs_edges: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of joined_scores' ``x``, ``target``, ``att``, ``edge_rows`` and ``loop_rows``; [0] in place of those of
    ``x`` and of edges that are not needed, or not there."""
    edges = GroupedEdges(indptr, source, target.shape[0], skip_self=loops >= 0)
    own = {"num_own": max(loops, 0), "own_edge": loop_rows, "own_factor": loop_grad}
    common = {"edge": edge_rows, "factor": grad, "scale": att, "slope": slope, "heads": att.shape[0], **own}
    grad_x = grad_edges = grad_loops = x.new_empty(0)
    grad_target, bent = (x.new_empty(target.shape) for _ in range(2))
    grads = {"slopes": grad_target, "bent": bent}
    if needs_edges and edge_rows is not None:
        grad_edges = new_edge_rows(edge_rows, indptr, target.shape[0])
        grads["edge_grads"] = grad_edges
        if loop_rows is not None:
            grad_loops = torch.empty_like(loop_rows)
            grads["own_edge_grads"] = grad_loops
    joined_rows(edges, x, own=target, x=x, **common, **grads)
    if needs_x and grad_edges.numel():
        grad_x = _sums_by_source(edges, grad_edges, None if loop_rows is None else grad_loops, x.shape[0])
    elif needs_x:
        grad_x = x.new_empty(x.shape)
        joined_rows(kernels.transposed(edges, x.shape[0]), x, own=x, x=target, **common, slopes=grad_x)
    return grad_x, grad_target, column_sums(bent).view(att.shape).to(att.dtype), grad_edges, grad_loops


@joined_scores_grad.register_fake
def _(
    grad, loop_grad, x, target, att, edge_rows, loop_rows, indptr, source, loops, slope, needs_x, needs_edges
):  # fmt: skip
    edge_grads = [x.new_empty(rows.shape if needs_edges and rows is not None else 0) for rows in (edge_rows, loop_rows)]
    return x.new_empty(x.shape if needs_x else 0), x.new_empty(target.shape), torch.empty_like(att), *edge_grads


def _keep_scores(ctx, inputs, output):
    *tensors, ctx.loops, ctx.slope = inputs
    ctx.save_for_backward(*tensors)


def _scores_backward(ctx, grad, loop_grad):
    needs = ctx.needs_input_grad
    tensors, options = ctx.saved_tensors, (ctx.loops, ctx.slope, needs[0], any(needs[3:5]))
    grads = joined_scores_grad(grad.contiguous(), loop_grad.contiguous(), *tensors, *options)
    return *(value if is_needed else None for value, is_needed in zip(grads, needs, strict=False)), *[None] * 4


joined_scores.register_autograd(_scores_backward, setup_context=_keep_scores)
