"""Reductions of rows as custom operators of torch, with gradients."""

import torch
from torch import Tensor

from cohort_gnn.nn import _native, kernels
from cohort_gnn.nn.kernels import Drop, GroupedEdges
from cohort_gnn.nn.operators import operator

BESIDE_NONE, BESIDE_PREFIX, BESIDE_OWN = 0, 1, 2


@operator("gather_sum")
def gather_sum(
    x: Tensor,
    own: Tensor | None,
    norm: Tensor | None,
    indptr: Tensor,
    source: Tensor,
    num_targets: int,
    mean: bool,
    beside: int,
    loop: float,
    out_dtype: torch.dtype,
    relu: bool = False,
    p: float = 0.0,
    key: int = 0,
    key_at: Tensor | None = None,
    row_index: Tensor | None = None,
    own_row_index: Tensor | None = None,
    edge_weight: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Sums (or means) of the rows of ``x`` that a target's edges bring.

    Args:
        x: [sources, dim].
        own: [num_targets, dim], for BESIDE_OWN.
        norm: sum_dtype [sources], no gradient goes there: sums are GCN's, norm[i] * (sum over edges of norm[j] * x[j] +
            loop * norm[i] * x[i]), where targets are the first sources, with nothing beside. None: sums are plain.
        indptr, source: see Block.
        beside: what stands beside each sum: nothing, the target's own row of ``x`` (targets are the first sources), or
            its row of ``own``.
        loop: with ``norm``, weight of the edge from a node to itself, which then stands for all such edges; 0: they are
            as others.
        relu: rows of ``x`` go through ReLU and dropout first, see Activation.fuses(); not with BESIDE_OWN.
        p, key, key_at: of dropout.
        row_index, own_row_index: int64 [sources], [num_targets], rows of ``x`` that stand for sources and targets, see
            Block; then ``x`` gets no gradient.
        edge_weight: sum_dtype [edges], by which the rows that edges bring are multiplied; no gradient goes there.

    Returns:
        out_dtype [num_targets, dim or 2 dim]; with ``mean`` 1 / (number of edges, at least 1) [num_targets], else [0];
        with ``relu`` uint8 [sources, dim / 4], which elements came through, else [0].
    """
    kept = _kept(x, relu)
    inverse_count = x.new_empty(num_targets if mean else 0, dtype=kernels.sum_dtype(x.dtype))
    fields = {
        "mean": mean,
        "inverse_count": inverse_count if mean else None,
        "row_index": row_index,
        "own_row_index": own_row_index,
        "edge_factor": edge_weight,
    }
    if norm is not None:
        fields |= _normalized(x, norm, num_targets, loop) | {"own_row_index": row_index}
    elif beside:
        fields |= {"own_use": _native.OWN_BESIDE, "own": own if beside == BESIDE_OWN else x, "num_own": num_targets}
    drop = Drop(_native.DROP_IN, kept, p, key, key_at) if relu else None
    edges = GroupedEdges(indptr, source, num_targets, skip_self=loop != 0)
    return kernels.sum_rows(edges, x, out_dtype, drop=drop, **fields), inverse_count, kept


def _kept(x: Tensor, relu: bool) -> Tensor:
    return x.new_empty((x.shape[0], x.shape[1] // 4) if relu else 0, dtype=torch.uint8)


def _normalized(x: Tensor, norm: Tensor, num_own: int, loop: float) -> dict:
    """One formula for both ways: the matrix that multiplies the rows is symmetric where it is square."""
    own = {"own_use": _native.ADD_OWN, "own": x, "num_own": num_own} if loop else {}
    return own | {"index_factor": norm, "own_factor": norm if loop == 1 else norm * loop, "row_factor": norm}


@gather_sum.register_fake
def _(x, own, norm, indptr, source, num_targets, mean, beside, loop, out_dtype, relu=False, *_, **__):
    width = 2 * x.shape[1] if beside else x.shape[1]
    inverse_count = x.new_empty(num_targets if mean else 0, dtype=kernels.sum_dtype(x.dtype))
    return x.new_empty((num_targets, width), dtype=out_dtype), inverse_count, _kept(x, relu)


@operator("gather_sum_grad")
def gather_sum_grad(
    grad: Tensor,
    norm: Tensor | None,
    inverse_count: Tensor,
    kept: Tensor,
    indptr: Tensor,
    source: Tensor,
    num_sources: int,
    dim: int,
    prefix: bool,
    loop: float,
    p: float,
    edge_weight: Tensor | None = None,
) -> Tensor:
    """The gradient of gather_sum's ``x`` [num_sources, dim], in the dtype of ``grad`` [targets, dim or 2 dim]."""
    grad = grad[: kernels.used_rows(grad)]
    num_targets = grad.shape[0]
    edges = GroupedEdges(indptr, source, num_targets, skip_self=loop != 0)
    columns = kernels.transposed(edges, num_sources)
    fields = {"index_factor": inverse_count if inverse_count.numel() else None, "edge_factor": edge_weight}
    if norm is not None:
        fields = _normalized(grad, norm, num_targets, loop)
    elif prefix:
        fields |= {"own_use": _native.ADD_OWN, "own": grad[:, dim:], "num_own": num_targets}
    drop = Drop(_native.DROP_BACK, kept, p) if kept.numel() else None
    return kernels.sum_rows(columns, grad[:, :dim], drop=drop, **fields)


@gather_sum_grad.register_fake
def _(grad, norm, inverse_count, kept, indptr, source, num_sources, dim, prefix, loop, p, edge_weight=None):
    return grad.new_empty((num_sources, dim))


def _keep(ctx, inputs, output):
    x, own, norm, indptr, source, _, _, ctx.beside, ctx.loop, _, _, ctx.p, *_, edge_weight = inputs
    ctx.save_for_backward(norm, output[1], output[2], indptr, source, edge_weight)
    ctx.mark_non_differentiable(*output[1:])
    ctx.num_sources, ctx.dim = x.shape
    ctx.dtypes = x.dtype, own.dtype if own is not None else None


def _backward(ctx, grad, *_):
    grad_x = grad_own = None
    if ctx.needs_input_grad[0]:
        wide, sizes = grad.to(ctx.dtypes[0]).contiguous(), (ctx.num_sources, ctx.dim)
        *saved, edge_weight = ctx.saved_tensors
        prefix = ctx.beside == BESIDE_PREFIX
        grad_x = gather_sum_grad(wide, *saved, *sizes, prefix, ctx.loop, ctx.p, edge_weight)
    if ctx.needs_input_grad[1]:
        grad_own = grad[:, ctx.dim :].to(ctx.dtypes[1])
    return grad_x, grad_own, *[None] * 15


gather_sum.register_autograd(_backward, setup_context=_keep)


@operator("gather_max")
def gather_max(x: Tensor, indptr: Tensor, source: Tensor, num_targets: int) -> tuple[Tensor, Tensor]:
    """The largest of the rows of ``x`` that a target's edges bring, column by column; zeros without edges.

    Args:
        x: [sources, dim].
        indptr, source: see Block.

    Returns:
        [num_targets, dim], in the dtype of ``x``; how many edges bring the largest, sum_dtype [num_targets, dim].
    """
    return kernels.max_rows(GroupedEdges(indptr, source, num_targets), x)


@gather_max.register_fake
def _(x, indptr, source, num_targets):
    out = x.new_empty(num_targets, x.shape[1])
    return out, torch.empty_like(out, dtype=kernels.sum_dtype(x.dtype))


@operator("gather_max_grad")
def gather_max_grad(grad: Tensor, x: Tensor, largest: Tensor, ties: Tensor, indptr: Tensor, source: Tensor) -> Tensor:
    """The gradient of gather_max's ``x``; edges that bring the largest have equal parts of ``grad`` [targets, dim].

    Where the largest is zero, torch's scatter_reduce(), which PyG's layer calls, counts one edge more: the zero that it
    begins with. So do these.
    """
    used = kernels.used_rows(grad)
    columns = kernels.transposed(GroupedEdges(indptr, source, used), x.shape[0])
    shares = grad[:used] / (ties[:used] + (largest[:used] == 0))
    return kernels.max_rows_grad(columns, x, largest, shares.to(x.dtype).contiguous())


gather_max_grad.register_fake(lambda grad, x, *_: x.new_empty(x.shape))


def _keep_max(ctx, inputs, output):
    ctx.save_for_backward(inputs[0], *output, *inputs[1:3])
    ctx.mark_non_differentiable(output[1])


def _max_backward(ctx, grad, _):
    return gather_max_grad(grad, *ctx.saved_tensors), None, None, None


gather_max.register_autograd(_max_backward, setup_context=_keep_max)
