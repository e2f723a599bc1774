"""Reductions of rows as custom operators of torch, with gradients."""

import torch
from torch import Tensor

from cohort_gnn.nn import kernels
from cohort_gnn.nn.kernels import Drop, Edges
from cohort_gnn.nn.operators import operator
from cohort_gnn.trainer import _native

BESIDE_NONE, BESIDE_PREFIX, BESIDE_OWN = 0, 1, 2


@operator("gather_sum")
def gather_sum(
    x: Tensor,
    own: Tensor | None,
    indptr: Tensor,
    source: Tensor,
    num_targets: int,
    mean: bool,
    beside: int,
    out_dtype: torch.dtype,
    relu: bool = False,
    p: float = 0.0,
    key: int = 0,
    key_at: Tensor | None = None,
    place: Tensor | None = None,
    own_place: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Sums (or means) of the rows of ``x`` that a target's edges bring.

    Args:
        x: [sources, dim].
        own: [num_targets, dim], for BESIDE_OWN.
        indptr, source: see Block.
        beside: what stands beside each sum: nothing, the target's own row of ``x`` (targets are the first sources), or
            its row of ``own``.
        relu: rows of ``x`` go through ReLU and dropout first, see Activation.fuses(); not with BESIDE_OWN.
        p, key, key_at: of dropout.
        place, own_place: int64 [sources], [num_targets], rows of ``x`` that stand for sources and targets, see Block;
            then ``x`` gets no gradient.

    Returns:
        out_dtype [num_targets, dim or 2 dim]; with ``mean`` 1 / (number of edges, at least 1) [num_targets], else [0];
        with ``relu`` uint8 [sources, dim / 4], which elements came through, else [0].
    """
    kept = _kept(x, relu)
    inverse_count = x.new_empty(num_targets if mean else 0, dtype=kernels.sum_dtype(x.dtype))
    out = kernels.sum_rows(
        Edges(indptr, source, num_targets),
        x,
        out_dtype,
        own_use=_native.OWN_BESIDE if beside else _native.NO_OWN,
        own=own if beside == BESIDE_OWN else x if beside else None,
        num_own=num_targets if beside else 0,
        mean=mean,
        inverse_count=inverse_count if mean else None,
        drop=Drop(_native.DROP_IN, kept, p, key, key_at) if relu else None,
        place=place,
        own_place=own_place,
    )
    return out, inverse_count, kept


def _kept(x: Tensor, relu: bool) -> Tensor:
    return x.new_empty((x.shape[0], x.shape[1] // 4) if relu else 0, dtype=torch.uint8)


@gather_sum.register_fake
def _(x, own, indptr, source, num_targets, mean, beside, out_dtype, relu=False, *_, **__):
    width = 2 * x.shape[1] if beside else x.shape[1]
    inverse_count = x.new_empty(num_targets if mean else 0, dtype=kernels.sum_dtype(x.dtype))
    return x.new_empty((num_targets, width), dtype=out_dtype), inverse_count, _kept(x, relu)


@operator("gather_sum_grad")
def gather_sum_grad(
    grad: Tensor,
    inverse_count: Tensor,
    kept: Tensor,
    indptr: Tensor,
    source: Tensor,
    num_sources: int,
    dim: int,
    prefix: bool,
    p: float,
) -> Tensor:
    """The gradient of gather_sum's ``x`` [num_sources, dim], in the dtype of ``grad`` [targets, dim or 2 dim]."""
    num_targets = grad.shape[0]
    edges = kernels.transposed(Edges(indptr, source, num_targets), num_sources)
    return kernels.sum_rows(
        edges,
        grad[:, :dim],
        own_use=_native.ADD_OWN if prefix else _native.NO_OWN,
        own=grad[:, dim:] if prefix else None,
        num_own=num_targets if prefix else 0,
        index_factor=inverse_count if inverse_count.numel() else None,
        drop=_drop_back(kept, p),
    )


def _drop_back(kept: Tensor, p: float) -> Drop | None:
    return Drop(_native.DROP_BACK, kept, p) if kept.numel() else None


@gather_sum_grad.register_fake
def _(grad, inverse_count, kept, indptr, source, num_sources, dim, prefix, p):
    return grad.new_empty((num_sources, dim))


def _keep_for_sum(ctx, inputs, output):
    x, own, indptr, source, _, _, beside, _, _, ctx.p, *_ = inputs
    ctx.save_for_backward(output[1], output[2], indptr, source)
    ctx.mark_non_differentiable(*output[1:])
    ctx.num_sources, ctx.dim, ctx.beside = x.shape[0], x.shape[1], beside
    ctx.dtypes = x.dtype, own.dtype if own is not None else None


def _sum_backward(ctx, grad, *_):
    inverse_count, kept, indptr, source = ctx.saved_tensors
    grad_x = grad_own = None
    if ctx.needs_input_grad[0]:
        wide = grad.to(ctx.dtypes[0]).contiguous()
        prefix = ctx.beside == BESIDE_PREFIX
        grad_x = gather_sum_grad(wide, inverse_count, kept, indptr, source, ctx.num_sources, ctx.dim, prefix, ctx.p)
    if ctx.needs_input_grad[1]:
        grad_own = grad[:, ctx.dim :].to(ctx.dtypes[1])
    return grad_x, grad_own, *[None] * 12


gather_sum.register_autograd(_sum_backward, setup_context=_keep_for_sum)


@operator("gather_normalized")
def gather_normalized(
    x: Tensor,
    norm: Tensor,
    indptr: Tensor,
    source: Tensor,
    num_targets: int,
    loop: float,
    out_dtype: torch.dtype,
    relu: bool = False,
    p: float = 0.0,
    key: int = 0,
    key_at: Tensor | None = None,
    place: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """GCN's sums: norm[i] * (sum over edges of norm[j] * x[j] + loop * norm[i] * x[i]), out_dtype [num_targets, dim].

    Args:
        x: [sources, dim]; targets are the first sources.
        norm: sum_dtype [sources], no gradient goes there.
        loop: weight of the edge from a node to itself, which then stands for all such edges; 0: they are as others.
        relu, p, key, key_at, place: as for gather_sum; so is the second result.
    """
    kept = _kept(x, relu)
    drop = Drop(_native.DROP_IN, kept, p, key, key_at) if relu else None
    edges = Edges(indptr, source, num_targets, skip_self=loop != 0)
    return _normalized(edges, x, norm, num_targets, loop, out_dtype, drop, place), kept


@gather_normalized.register_fake
def _(x, norm, indptr, source, num_targets, loop, out_dtype, relu=False, *_, **__):
    return x.new_empty((num_targets, x.shape[1]), dtype=out_dtype), _kept(x, relu)


@operator("gather_normalized_grad")
def gather_normalized_grad(
    grad: Tensor, norm: Tensor, kept: Tensor, indptr: Tensor, source: Tensor, loop: float, p: float
) -> Tensor:
    """The gradient of gather_normalized's ``x``, in the dtype of ``grad``."""
    num_targets = grad.shape[0]
    edges = kernels.transposed(Edges(indptr, source, num_targets), norm.numel(), skip_self=loop != 0)
    return _normalized(edges, grad, norm, num_targets, loop, grad.dtype, _drop_back(kept, p))


@gather_normalized_grad.register_fake
def _(grad, norm, kept, indptr, source, loop, p):
    return grad.new_empty((norm.numel(), grad.shape[1]))


def _normalized(
    edges: Edges,
    rows: Tensor,
    norm: Tensor,
    num_own: int,
    loop: float,
    dtype: torch.dtype,
    drop: Drop | None,
    place: Tensor | None = None,
) -> Tensor:
    """One formula for both ways: the matrix that multiplies the rows is symmetric where it is square."""
    return kernels.sum_rows(
        edges,
        rows,
        dtype,
        own_use=_native.ADD_OWN if loop else _native.NO_OWN,
        own=rows if loop else None,
        num_own=num_own if loop else 0,
        index_factor=norm,
        own_factor=norm if loop == 1 else norm * loop,
        row_factor=norm,
        drop=drop,
        place=place,
        own_place=place,
    )


def _keep_for_normalized(ctx, inputs, output):
    x, norm, indptr, source, _, ctx.loop, _, _, ctx.p, *_ = inputs
    ctx.save_for_backward(norm, output[1], indptr, source)
    ctx.mark_non_differentiable(output[1])
    ctx.dtype = x.dtype


def _normalized_backward(ctx, grad, _):
    grad_x = None
    if ctx.needs_input_grad[0]:
        grad_x = gather_normalized_grad(grad.to(ctx.dtype).contiguous(), *ctx.saved_tensors, ctx.loop, ctx.p)
    return grad_x, *[None] * 11


gather_normalized.register_autograd(_normalized_backward, setup_context=_keep_for_normalized)
