"""The linear part of layers that sum rows before they are multiplied by the weights."""

import torch
import torch.nn.functional as F
from torch import Tensor

from cohort.trainer import _native

PARTS = 512  # of many rows, that are summed side by side
MANY_ROWS, FEW_COLUMNS = 4096, 64  # from which, and below which, products of our own pay, and not


def linear(rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """``F.linear`` for many rows.

    On a GPU float32 is multiplied on tensor cores at float32's accuracy (trainer/native/product.h), unless torch was
    told that less will do; an infinite factor makes NaN there. The bias has its gradient in the time of reading. Under
    autocast too the product is one of the dtype of ``rows``, which its layer has chosen.
    """
    bias = None if bias is None else bias.to(rows.dtype)
    return _Linear.apply(rows, weight.to(rows.dtype), bias)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows, weight, bias):
        ctx.save_for_backward(rows, weight)
        if _multiplies(rows, weight.shape[0]) and weight.is_contiguous():
            return _product(rows, weight, bias)
        return F.linear(rows, weight, bias)

    @staticmethod
    def backward(ctx, grad):
        rows, weight = ctx.saved_tensors
        of_rows, of_weight, of_bias = ctx.needs_input_grad
        return (
            grad @ weight if of_rows else None,
            _grad_of_weight(grad, rows) if of_weight else None,
            column_sums(grad) if of_bias else None,
        )


def _multiplies(rows: Tensor, width: int) -> bool:
    """Whether the product of [many, depth] and [depth, width] is for our own kernels."""
    if not rows.is_cuda or rows.dtype != torch.float32 or torch.get_float32_matmul_precision() != "highest":
        return False
    long = MANY_ROWS <= rows.shape[0] < 2**31 and width >= FEW_COLUMNS
    packs = rows.shape[1] % 4 == 0 and rows.shape[1] > 0 and width % 4 == 0
    return long and packs and rows.is_contiguous() and rows.data_ptr() % 16 == 0


def _grad_of_weight(grad: Tensor, rows: Tensor) -> Tensor:
    differentiable = torch.is_grad_enabled() and (grad.requires_grad or rows.requires_grad)
    if differentiable or not _multiplies(rows, grad.shape[1]) or grad.dtype != torch.float32:
        return grad.t() @ rows
    return _product_grad(grad.contiguous(), rows)


@torch.library.custom_op("cohort::product", mutates_args=())
def _product(rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    out = rows.new_empty(rows.shape[0], weight.shape[0])
    with torch.cuda.device_of(rows):
        _native.product(
            torch.cuda.current_stream(rows.device).cuda_stream,
            *rows.shape,
            weight.shape[0],
            rows.data_ptr(),
            weight.data_ptr(),
            0 if bias is None else bias.data_ptr(),
            out.data_ptr(),
        )
    return out


@_product.register_fake
def _(rows, weight, bias):
    return rows.new_empty(rows.shape[0], weight.shape[0])


@torch.library.custom_op("cohort::product_grad", mutates_args=())
def _product_grad(grad: Tensor, rows: Tensor) -> Tensor:
    """``grad.t() @ rows``"""
    size = grad.shape[1], rows.shape[1]
    out, partial = rows.new_empty(size), rows.new_empty(-(-rows.shape[0] // _native.product_part_rows), *size)
    with torch.cuda.device_of(rows):
        _native.product_grad(
            torch.cuda.current_stream(rows.device).cuda_stream,
            *rows.shape,
            grad.shape[1],
            grad.data_ptr(),
            rows.data_ptr(),
            out.data_ptr(),
            partial.data_ptr(),
        )
    return out


@_product_grad.register_fake
def _(grad, rows):
    return rows.new_empty(grad.shape[1], rows.shape[1])


def column_sums(x: Tensor) -> Tensor:
    """``x.sum(dim=0)`` [columns], in an order that depends on the shape alone."""
    part_rows = x.shape[0] // PARTS
    if part_rows < 2:
        return x.sum(dim=0)
    wide = x.dtype if x.dtype == torch.float64 else torch.float32
    whole = part_rows * PARTS
    sums = x[:whole].unflatten(0, (PARTS, part_rows)).sum(dim=1, dtype=wide).sum(dim=0)
    return (sums + x[whole:].sum(dim=0, dtype=wide)).to(x.dtype)
