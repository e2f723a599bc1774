"""Operators of torch that are Cohort's."""

import functools
from collections.abc import Callable

import torch
from torch.autograd import forward_ad

from cohort_gnn.base.errors import CohortError

GRADIENTS_OF_GRADIENTS = "gradients of gradients (create_graph=True)"
_library = torch.library.Library("cohort", "DEF")
BODIES: dict[torch._ops.OpOverload, Callable] = {}  # of operators, by what torch calls


class Operator:
    """torch.ops.cohort.NAME: what ``body`` does, for autograd and torch.compile one step.

    What torch.library.custom_op makes would do, but its first call imports torch's compiler, seconds of a run's start.

    Args:
        name: after ``cohort::``.
        body: with types for all it takes and returns; it changes nothing and returns new tensors.
    """

    def __init__(self, name: str, body: Callable):
        self._name = f"cohort::{name}"
        self._backward: Callable | None = None
        self._setup_context: Callable | None = None
        _library.define(name + torch.library.infer_schema(body, mutates_args=()))
        _library.impl(name, body, "CompositeExplicitAutograd")
        torch.library.register_autograd(self._name, self._go_back, setup_context=self._keep, lib=_library)
        self.overload = getattr(torch.ops.cohort, name).default
        BODIES[self.overload] = body

    def __call__(self, *args, **kwargs):
        if getattr(forward_ad, "_current_level", -1) >= 0:  # torch would take the tangents for zeros
            raise not_derived("tangents (torch.func.jvp, jacfwd)")
        demand_run()
        return self.overload(*args, **kwargs)

    def register_fake(self, shapes: Callable) -> None:
        """Says what results look like: ``shapes`` takes what the body does, but tensors without data."""
        torch.library.register_fake(self._name, shapes, lib=_library)

    def register_autograd(self, backward: Callable, setup_context: Callable) -> None:
        """As of torch.library. Until then a gradient of the operator is an error."""
        self._backward, self._setup_context = backward, setup_context

    def _keep(self, ctx, inputs, output):
        if self._setup_context is not None:
            self._setup_context(ctx, inputs, output)

    def _go_back(self, ctx, *grads):
        if self._backward is None:
            raise not_derived(GRADIENTS_OF_GRADIENTS)
        return self._backward(ctx, *grads)


def operator(name: str) -> Callable[[Callable], Operator]:
    """A decorator for the body of an Operator."""
    return lambda body: Operator(name, body)


def is_recorded() -> bool:
    """Whether torch makes another program, or a derivative, of what layers do now: torch.jit.trace, torch.export,
    torch.onnx, torch.func. It takes numbers of nodes for constants, or knows no rules of Cohort's operators."""
    if torch.compiler.is_compiling():
        return torch.compiler.is_exporting()
    return torch.jit.is_tracing() or torch._C._functorch.peek_interpreter_stack() is not None


def demand_run() -> None:
    """Raises CohortError where it `is_recorded`."""
    if is_recorded():
        hint = "use PyG's layers; of a run cohort.load_model(RUN, layers='pyg')"
        raise CohortError("cohort.nn", "layers that run", "torch.jit.trace, torch.export or torch.func", hint)


def once_differentiable(backward: Callable) -> Callable:
    """As torch's decorator for a Function's ``backward``, whose error torch.autograd.grad does not meet: its gradients
    of gradients would lack a part."""

    @functools.wraps(backward)
    def once(ctx, *grads):
        if torch.is_grad_enabled():
            raise not_derived(GRADIENTS_OF_GRADIENTS)
        return backward(ctx, *grads)

    return once


def not_derived(what: str) -> CohortError:
    """The error of derivatives that layers do not have."""
    return CohortError("cohort.nn", "gradients alone", what, "use PyG's layers: do not call cohort.nn.accelerate()")
