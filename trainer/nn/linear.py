"""The linear part of layers that sum rows before they are multiplied by the weights."""

import torch
import torch.nn.functional as F
from torch import Tensor

from cohort_gnn.nn import kernels
from cohort_gnn.nn.operators import Operator

PARTS = 512  # of many rows, that are summed side by side
MANY_ROWS, FEW_COLUMNS = 32768, 64  # from which, and below which, products of our own pay, and not


def linear(rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """``F.linear`` for many rows.

    GPUs that can do so multiply float32 on tensor cores, as exactly as float32 is multiplied elsewhere
    (trainer/native/product.h), unless torch was told that less will do (``torch.set_float32_matmul_precision``); an
    infinite factor makes NaN there. The bias has its gradient in the time of reading. Under autocast too the product is
    one of the dtype of ``rows``, which its layer has chosen.
    """
    return _Linear.apply(rows, weight.to(rows.dtype), None if bias is None else bias.to(rows.dtype))


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows, weight, bias):
        ctx.save_for_backward(rows, weight)
        return product_of(rows, weight, bias)

    @staticmethod
    def backward(ctx, grad):
        rows, weight = ctx.saved_tensors
        of_rows, of_weight, of_bias = ctx.needs_input_grad
        grad_rows = grad @ weight if of_rows else None
        if of_weight and of_bias:
            return grad_rows, *weight_and_bias_grads(grad, rows)
        return grad_rows, weight_grad(grad, rows) if of_weight else None, column_sums(grad) if of_bias else None


def product_of(rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """``linear`` without a gradient, of one dtype."""
    if rows.shape[1] <= kernels.MAX_PRODUCT_DEPTH and _pays(rows, weight.shape[0]):
        return _product(rows, weight, bias)
    return F.linear(rows, weight, bias)


def weight_and_bias_grads(grad: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """``grad.t() @ rows`` and ``grad.sum(dim=0)``."""
    if _grad_pays(grad, rows):
        return _product_grad(grad, rows)
    return grad.t() @ rows, column_sums(grad)


def head_linear(rows: Tensor, weight: Tensor) -> Tensor:
    """Rows of several heads [heads, rows, depth], each times its own of weight [heads, width, depth].

    Returns:
        [rows, heads, width], in the dtype of ``rows``. It is torch.bmm's; but the gradient of the weights, a few sums
        over all rows, is formed head by head, since bmm does not divide a sum among blocks.
    """
    return _HeadLinear.apply(rows, weight.to(rows.dtype))


class _HeadLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows, weight):
        ctx.save_for_backward(rows, weight)
        out = rows.new_empty(rows.shape[1], *weight.shape[:2])
        torch.bmm(rows, weight.transpose(1, 2), out=out.transpose(0, 1))
        return out

    @staticmethod
    def backward(ctx, grad):
        rows, weight = ctx.saved_tensors
        by_head, (of_rows, of_weight) = grad.transpose(0, 1), ctx.needs_input_grad
        grad_rows = torch.bmm(by_head, weight) if of_rows else None
        return grad_rows, torch.stack(list(map(weight_grad, by_head, rows))) if of_weight else None


def weight_grad(grad: Tensor, rows: Tensor) -> Tensor:
    """``grad.t() @ rows``"""
    return _product_grad(grad, rows)[0] if _grad_pays(grad, rows) else grad.t() @ rows


def _grad_pays(grad: Tensor, rows: Tensor) -> bool:
    again = torch.is_grad_enabled()  # gradients of gradients are torch's
    return not again and grad.dtype == torch.float32 and _pays(rows, grad.shape[1])


def _pays(rows: Tensor, width: int) -> bool:
    large = rows.shape[0] >= MANY_ROWS and min(rows.shape[1], width) >= FEW_COLUMNS
    return large and torch.get_float32_matmul_precision() == "highest" and kernels.takes_products(rows, width)


_product = Operator("product", kernels.product)


@_product.register_fake
def _(rows, weight, bias):
    return rows.new_empty(rows.shape[0], weight.shape[0])


_product_grad = Operator("product_grad", kernels.product_grad)


@_product_grad.register_fake
def _(grad, rows):
    return rows.new_empty(grad.shape[1], rows.shape[1]), rows.new_empty(grad.shape[1])


def column_sums(x: Tensor) -> Tensor:
    """``x.sum(dim=0)`` [columns], in an order that depends on the shape alone."""
    part_rows = x.shape[0] // PARTS
    if part_rows < 2:
        return x.sum(dim=0)
    wide = x.dtype if x.dtype == torch.float64 else torch.float32
    whole = part_rows * PARTS
    sums = x[:whole].unflatten(0, (PARTS, part_rows)).sum(dim=1, dtype=wide).sum(dim=0)
    return (sums + x[whole:].sum(dim=0, dtype=wide)).to(x.dtype)
