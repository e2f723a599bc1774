"""Activation and dropout in one pass."""

import contextlib
from dataclasses import dataclass

import torch
from torch import Tensor

from cohort_gnn.base.errors import CohortError
from cohort_gnn.nn import _native, kernels
from cohort_gnn.nn.inputs import is_prefix
from cohort_gnn.nn.operators import Operator

ACTIVATIONS = {"relu": _native.RELU, "elu": _native.ELU, "leaky_relu": _native.LEAKY_RELU}


def activated(x: Tensor, activation: str, p: float = 0.0, training: bool = True) -> Tensor:
    """``dropout(activation(x), p)`` without an intermediate tensor.

    Torch's CPU generator determines which elements are dropped, on every device. An element that "relu" or "elu" makes
    exactly 0 has no gradient.

    Args:
        activation: "relu", "elu" or "leaky_relu", of slope 0.01.
        p: the probability that an element is dropped, in [0, 1).
    """
    if activation not in ACTIVATIONS or not 0 <= p < 1:
        expected = f"{', '.join(map(repr, ACTIVATIONS))}, and p in [0, 1)"
        raise CohortError("activated", expected, f"{activation!r}, {p}")
    p = p if training else 0.0
    return _drop(x, ACTIVATIONS[activation], p, *key_for(p))


@dataclass(frozen=True)
class Activation:
    """activated() and its arguments, for layers that apply it to their input as they read it."""

    name: str
    p: float
    training: bool

    def __call__(self, x: Tensor) -> Tensor:
        return activated(x, self.name, self.p, self.training)

    def fuses(self, x: Tensor) -> bool:
        """Whether a sum of rows of ``x`` can do it."""
        return self.name == "relu" and kernels.takes_drop_in(x)

    def drawn(self) -> tuple[bool, float, int, Tensor | None]:
        """The last arguments of ops.gather_sum and gather_normalized."""
        p = self.p if self.training else 0.0
        return True, p, *key_for(p)


def apply_to_ends(activation: Activation, x: Tensor | tuple[Tensor, Tensor | None]):
    """The activation of a layer's rows: of sources, and of targets, which may be the first of them, or None."""
    if isinstance(x, Tensor):
        return activation(x)
    source, target = x
    out = activation(source)
    if target is None:
        return out, None
    return out, out[: target.shape[0]] if is_prefix(target, source) else activation(target)


def key_for(p: float) -> tuple[int, Tensor | None]:
    """The key of dropout, or where in GPU memory it will stand."""
    if not p:
        return 0, None
    return (0, _recording.next()) if _recording is not None else (_draw_key(), None)


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


_drop = Operator("drop", kernels.drop)


@_drop.register_fake
def _(x, activation, p, key, key_at):
    return torch.empty_like(x, memory_format=torch.contiguous_format)


_drop_grad = Operator("drop_grad", kernels.drop_grad)


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
