"""Replaces PyG's layers in an existing model by Cohort's."""

from dataclasses import dataclass, field

import torch_geometric.nn as pyg
from torch import nn

from cohort_gnn.nn.pyg_layers import GATConv, GCNConv, HGTConv, SAGEConv

OURS = {pyg.SAGEConv: SAGEConv, pyg.GCNConv: GCNConv, pyg.GATConv: GATConv, pyg.HGTConv: HGTConv}


@dataclass
class Replacement:
    """The result of accelerate(); as text, one line for each layer.

    Attributes:
        replaced: names of the replaced layers, as in ``named_modules()``; "" is the model itself.
        left: names of PyG's layers that were not replaced, each with the reason.
    """

    replaced: list[str] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [f"{name or 'the model'}: replaced" for name in self.replaced]
        lines += [f"{name or 'the model'}: left, {why}" for name, why in self.left.items()]
        return "\n".join(lines) or "no layers of torch_geometric.nn"


def accelerate(model: nn.Module) -> Replacement:
    """Replaces SAGEConv, GCNConv, GATConv and HGTConv of PyG in the model by Cohort's, which give the same results.

    Modules, parameters, hooks, devices and modes do not change, so optimizers and checkpoints of the model stay valid.
    A layer with arguments that Cohort's layer does not support stays PyG's.
    """
    done = Replacement()
    for name, module in model.named_modules():
        if not isinstance(module, pyg.MessagePassing) or isinstance(module, tuple(OURS.values())):
            continue
        kind = type(module)
        if kind not in OURS:
            is_derived = any(base in OURS for base in kind.__mro__)
            why = f"{kind.__name__} is a class of its own" if is_derived else f"cohort.nn has no {kind.__name__}"
            done.left[name] = why
        elif limit := OURS[kind].limit_of(module):
            done.left[name] = f"{limit[1]}, while cohort.nn.{kind.__name__} takes {limit[0]}"
        else:
            module.__class__ = OURS[kind]
            done.replaced.append(name)
    return done
