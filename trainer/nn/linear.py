"""The linear part of layers that sum rows before they are multiplied by the weights."""

import torch
import torch.nn.functional as F
from torch import Tensor

PARTS = 512  # of many rows, that are summed side by side


def linear(rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """``F.linear``, whose gradient of the bias takes the time of reading, also for many rows of few columns.

    Under autocast too the product is one of the dtype of ``rows``, which its layer has chosen.
    """
    if bias is None:
        return F.linear(rows, weight.to(rows.dtype))
    return _Linear.apply(rows, weight.to(rows.dtype), bias.to(rows.dtype))


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows, weight, bias):
        ctx.save_for_backward(rows, weight)
        return F.linear(rows, weight, bias)

    @staticmethod
    def backward(ctx, grad):
        rows, weight = ctx.saved_tensors
        of_rows, of_weight, of_bias = ctx.needs_input_grad
        return (
            grad @ weight if of_rows else None,
            grad.t() @ rows if of_weight else None,
            column_sums(grad) if of_bias else None,
        )


def column_sums(x: Tensor) -> Tensor:
    """``x.sum(dim=0)`` [columns], in an order that depends on the shape alone."""
    part_rows = x.shape[0] // PARTS
    if part_rows < 2:
        return x.sum(dim=0)
    wide = x.dtype if x.dtype == torch.float64 else torch.float32
    whole = part_rows * PARTS
    sums = x[:whole].unflatten(0, (PARTS, part_rows)).sum(dim=1, dtype=wide).sum(dim=0)
    return (sums + x[whole:].sum(dim=0, dtype=wide)).to(x.dtype)
