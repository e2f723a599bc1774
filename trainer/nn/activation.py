"""Activation and dropout in one pass."""

import torch
from torch import Tensor

from cohort.base.errors import CohortError
from cohort.nn import kernels

ACTIVATIONS = {"relu": 0, "elu": 1}  # as in trainer/native/activation.h


def activated(x: Tensor, activation: str, p: float = 0.0, training: bool = True) -> Tensor:
    """``dropout(activation(x), p)`` without the memory of a step in between.

    Which elements are dropped follows from torch's generator of the CPU, on every device. An element that the
    activation makes exactly 0 has no gradient.

    Args:
        activation: "relu" or "elu".
        p: the probability with which an element is dropped, in [0, 1).
    """
    if activation not in ACTIVATIONS or not 0 <= p < 1:
        raise CohortError("activated", '"relu" or "elu", and p in [0, 1)', f"{activation!r}, {p}")
    p = p if training else 0.0
    key = int(torch.randint(2**62, ())) if p else 0
    return _drop(x, ACTIVATIONS[activation], p, key)


@torch.library.custom_op("cohort::drop", mutates_args=())
def _drop(x: Tensor, activation: int, p: float, key: int) -> Tensor:
    return kernels.drop(x, activation, p, key)


@_drop.register_fake
def _(x, activation, p, key):
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@torch.library.custom_op("cohort::drop_grad", mutates_args=())
def _drop_grad(y: Tensor, grad: Tensor, activation: int, p: float) -> Tensor:
    return kernels.drop_grad(y, grad, activation, p)


@_drop_grad.register_fake
def _(y, grad, activation, p):
    return torch.empty_like(y)


def _keep(ctx, inputs, output):
    _, ctx.activation, ctx.p, _ = inputs
    ctx.save_for_backward(output)


def _backward(ctx, grad):
    (y,) = ctx.saved_tensors
    return _drop_grad(y, grad, ctx.activation, ctx.p), None, None, None


_drop.register_autograd(_backward, setup_context=_keep)
