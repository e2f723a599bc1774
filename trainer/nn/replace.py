"""Our layers in place of PyG's, in a model that is there."""

from dataclasses import dataclass, field

import torch_geometric.nn as pyg
from torch import nn

from cohort.nn.pyg_layers import GATConv, GCNConv, SAGEConv

OURS = {pyg.SAGEConv: SAGEConv, pyg.GCNConv: GCNConv, pyg.GATConv: GATConv}


@dataclass
class Replacement:
    """What accelerate() did; as text, a line for each layer.

    Attributes:
        replaced: the names of layers that are ours now, as in ``named_modules()``; "" is the model itself.
        left: the names of PyG's other layers, and why they are as they were.
    """

    replaced: list[str] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [f"{name or 'the model'}: replaced" for name in self.replaced]
        lines += [f"{name or 'the model'}: left, {why}" for name, why in self.left.items()]
        return "\n".join(lines) or "no layers of torch_geometric.nn"


def accelerate(model: nn.Module) -> Replacement:
    """Makes PyG's SAGEConv, GCNConv and GATConv, wherever they are in the model, ours, which give the same results.

    Modules, parameters, hooks, devices and modes stay what they are, so optimizers and checkpoints of the model go on
    to fit. What our layers do not take stays PyG's.
    """
    done = Replacement()
    for name, module in model.named_modules():
        if not isinstance(module, pyg.MessagePassing) or isinstance(module, tuple(OURS.values())):
            continue
        why = _why_left(module)
        if why is None:
            module.__class__ = OURS[type(module)]
            done.replaced.append(name)
        else:
            done.left[name] = why
    return done


def _why_left(module: pyg.MessagePassing) -> str | None:
    kind = type(module)
    if kind not in OURS:
        derived = next((base for base in kind.__mro__ if base in OURS), None)
        return f"{kind.__name__} is a class of its own" if derived else f"cohort.nn has no {kind.__name__}"
    limit = OURS[kind].limit_of(module)
    return None if limit is None else f"{limit[1]}, while cohort.nn.{kind.__name__} takes {limit[0]}"
