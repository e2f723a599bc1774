"""Activation and dropout in one pass."""

import contextlib

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
    if p and _recording is not None:
        return _drop(x, ACTIVATIONS[activation], p, 0, _recording.next())
    return _drop(x, ACTIVATIONS[activation], p, _draw_key() if p else 0, None)


def _draw_key() -> int:
    return int(torch.randint(2**62, ()))


class GraphKeys:
    """Keys of dropout in device memory: a CUDA graph finds others there at each replay.

    Args:
        most: how many calls of activated() a graph may have.
    """

    def __init__(self, device: torch.device, most: int = 64):
        self._keys = torch.zeros(most, dtype=torch.int64, device=device)
        self._used = 0

    @contextlib.contextmanager
    def recorded(self):
        """Inside, activated() reads its keys from here, the first call the first; a graph is captured meanwhile."""
        global _recording
        self._used, _recording = 0, self
        try:
            yield
        finally:
            _recording = None

    def next(self) -> Tensor:
        self._used += 1
        if self._used > self._keys.numel():
            raise CohortError("GraphKeys", f"at most {self._keys.numel()} calls of activated()", "more")
        return self._keys[self._used - 1]

    def draw(self) -> None:
        """Draws the keys of the next replay, the same as activated() would without a graph."""
        for i in range(self._used):
            self._keys[i].fill_(_draw_key())


_recording: GraphKeys | None = None


@torch.library.custom_op("cohort::drop", mutates_args=())
def _drop(x: Tensor, activation: int, p: float, key: int, key_at: Tensor | None) -> Tensor:
    return kernels.drop(x, activation, p, key, key_at)


@_drop.register_fake
def _(x, activation, p, key, key_at):
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@torch.library.custom_op("cohort::drop_grad", mutates_args=())
def _drop_grad(y: Tensor, grad: Tensor, activation: int, p: float) -> Tensor:
    return kernels.drop_grad(y, grad, activation, p)


@_drop_grad.register_fake
def _(y, grad, activation, p):
    return torch.empty_like(y)


def _keep(ctx, inputs, output):
    _, ctx.activation, ctx.p, _, _ = inputs
    ctx.save_for_backward(output)


def _backward(ctx, grad):
    (y,) = ctx.saved_tensors
    return _drop_grad(y, grad, ctx.activation, ctx.p), None, None, None, None


_drop.register_autograd(_backward, setup_context=_keep)
