"""What all layers on PyG's have in common: arguments that they do not take, and where PyG's own code runs."""

import contextlib
import copy
import functools
import importlib.util
import linecache
import os
import sys
from collections.abc import Sequence

import torch
import torch_geometric.nn as pyg
from torch import Tensor
from torch_geometric import EdgeIndex

from cohort_gnn.base.errors import CohortError
from cohort_gnn.nn.block import Block
from cohort_gnn.nn.operators import is_recorded
from cohort_gnn.nn.trim import has_message_hooks, has_plain_parts

ADD = ("add", "sum")
# What PyG aggregates by; it need not be that of the name any more.
MODULES = {"add": "SumAggregation", "sum": "SumAggregation", "mean": "MeanAggregation", "max": "MaxAggregation"}


class Checked:
    """What the layers have in common: arguments of PyG's that they do not take."""

    aggregations: tuple[str, ...] = ()  # that are taken; (): there is no choice
    biasless: tuple[str, ...] = ()  # linear layers inside whose bias, which PyG gives them none, the rules do not read

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        remove_sources(type(self))
        if limit := self.limit_of(self):
            hint = f"use torch_geometric.nn.{_pygs_class(self).__name__} for others"
            raise CohortError(type(self).__name__, *limit, hint)

    def __prepare_scriptable__(self) -> pyg.MessagePassing:
        """What torch.jit.script compiles: PyG's layer, with the same parameters."""
        layer = copy.copy(self)
        layer.__class__ = _pygs_class(self)
        return layer

    @classmethod
    def limit_of(cls, layer: pyg.MessagePassing) -> tuple[str, str] | None:
        """(what is expected, what is found) where PyG's layer has arguments or steps that this one does not take."""
        if own := _own_step(layer):
            return "PyG's steps alone", f"{own}() of its own"
        own = vars(layer)  # attributes of modules are slow, and this is looked at in each call
        aggr, flow = own["aggr"], own["flow"]
        if cls.aggregations and aggr not in cls.aggregations:
            return f"aggr {' or '.join(map(repr, cls.aggregations))}", f"aggr {aggr!r}"
        if cls.aggregations and (module := type(own["_modules"]["aggr_module"]).__name__) != MODULES[aggr]:
            return f"the {MODULES[aggr]} of aggr {aggr!r}", f"aggr_module {module}"
        if own.get("cached"):
            return "cached=False", "cached=True"
        if own.get("dropout", 0.0) >= 1:
            return "dropout below 1", f"dropout {layer.dropout}"
        return None if flow == "source_to_target" else ("flow source_to_target", f"flow {flow}")


def _pygs_class(layer: Checked) -> type:
    return next(kind for kind in type(layer).__mro__ if kind.__module__.startswith("torch_geometric."))


_STEPS = ("message", "aggregate", "message_and_aggregate", "update", "edge_update")
_WHOLE_STEPS = ("propagate", "edge_updater")  # PyG writes some for each class, and sets them for explanations


def _own_step(layer: pyg.MessagePassing) -> str | None:
    """A step of the layer, of its class or of a class of PyG's that is not as PyG has it."""
    own, kind = vars(layer), type(layer)
    for step in _STEPS:
        if step in own or getattr(getattr(kind, step), "__module__", "")[:16] != "torch_geometric.":
            return step
    for step in _WHOLE_STEPS:
        if step in own:
            names = (step, f"_orig_{step}", f"_jinja_{step}")
            if getattr(own[step], "__func__", step) not in {
                vars(base).get(name) for base in kind.__mro__ for name in names
            }:
                return step
    return None


def in_pygs_dtype(out: Tensor, *others: Tensor | None) -> Tensor:
    """What a layer returns. Under autocast PyG multiplies it by others, or adds them, in the larger of the dtypes."""
    if not torch.is_autocast_enabled(out.device.type):
        return out
    return out.to(functools.reduce(torch.promote_types, (x.dtype for x in others if x is not None), out.dtype))


def remove_sources(layer_class: type) -> None:
    """Removes files that PyG writes into the temporary folder for a class of layers, and leaves there: their modules
    are imported, and `inspect` finds their lines."""
    for method in ("propagate", "edge_updater"):
        module = sys.modules.get(f"{layer_class.__module__}_{layer_class.__name__}_{method}")
        file = getattr(module, "__file__", None)
        if file is None or not os.path.exists(file):
            continue
        lines = linecache.getlines(file)
        linecache.cache[file] = (sum(map(len, lines)), None, lines, file)
        for left in (file, importlib.util.cache_from_source(file)):
            with contextlib.suppress(OSError):
                os.unlink(left)


def takes_pygs_way(layer: pyg.MessagePassing, edge_index, x: Tensor | Sequence[Tensor | None] | None = None) -> bool:
    """True where PyG's own code runs: sparse matrices, EdgeIndex, edges of int32, rows of several graphs with the same
    edges, explanations, hooks on messages, linear layers inside that are no plain ones, arguments and steps that the
    layer does not take, if they were changed, and where torch records or transforms what layers do.

    Args:
        x: rows of nodes, or of sources and targets.

    Raises:
        CohortError: for a Block, with which PyG's own code cannot run, where it would have to.
    """
    if isinstance(edge_index, Block):
        if not is_recorded():
            _demand_rules(layer)
        return False
    plain = isinstance(edge_index, Tensor) and edge_index.layout == torch.strided and edge_index.dtype != torch.int32
    if layer.explain:  # PyG's own propagate() for this may be the one that it made for the class we derive from
        layer.propagate = pyg.MessagePassing.propagate.__get__(layer)
        return True
    if not plain or isinstance(edge_index, EdgeIndex) or is_recorded() or layer.limit_of(layer):
        return True
    if has_message_hooks(layer) or not has_plain_parts(layer):
        return True
    return any(rows is not None and rows.dim() > 2 for rows in ([x] if isinstance(x, Tensor) else x or ()))


def _demand_rules(layer: pyg.MessagePassing) -> None:
    expected, actual = layer.limit_of(layer) or ("", "")
    if has_message_hooks(layer) or layer.explain:
        expected, actual = (
            "no explanations or hooks on messages",
            "explain=True" if layer.explain else "hooks on messages",
        )
    if expected:
        hint = "give it edge_index: PyG's own code runs then"
        raise CohortError(f"{type(layer).__name__} with a Block", expected, actual, hint)
