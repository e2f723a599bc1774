"""What the layers make of their arguments."""

import torch
import torch_geometric.nn as pyg
from torch import Tensor
from torch_geometric import EdgeIndex

from cohort.base.errors import CohortError
from cohort.nn.block import Block

ELEMENT_COST = 32  # of reading or writing an element, in multiplications of a matrix product
_HOOKS = [
    f"_{step}_forward_{when}hooks"
    for step in ("propagate", "message", "aggregate", "message_and_aggregate", "edge_update")
    for when in ("pre_", "")
]


def amp_dtype(x: Tensor) -> torch.dtype:
    """The dtype in which a layer hands rows to its linear parts: autocast's, else that of ``x``."""
    kind = x.device.type
    if torch.is_autocast_enabled(kind) and x.dtype != torch.float64:
        return torch.get_autocast_dtype(kind)
    return x.dtype


def takes_pygs_way(layer: pyg.MessagePassing, edge_index) -> bool:
    """True where PyG's own code runs: sparse matrices, EdgeIndex, explanations, hooks on messages; not for Blocks."""
    if isinstance(edge_index, Block):
        return False
    plain = isinstance(edge_index, Tensor) and edge_index.layout == torch.strided
    if layer.explain:  # PyG's own propagate() for this may be the one that it made for the class we derive from
        layer.propagate = pyg.MessagePassing.propagate.__get__(layer)
        return True
    return not plain or isinstance(edge_index, EdgeIndex) or any(getattr(layer, name) for name in _HOOKS)


def is_placed(edge_index) -> bool:
    """True for a Block whose targets have their rows anywhere in ``x``."""
    return isinstance(edge_index, Block) and edge_index.own_place is not None


def require_placed_rows(layer: pyg.MessagePassing, x: Tensor, takes: bool, activation) -> None:
    """Raises CohortError unless the layer can read rows ``x`` at places; ``takes``: whether its arguments allow it."""
    good = isinstance(x, Tensor) and x.dtype == torch.float32 and x.dim() == 2 and not x.requires_grad
    if takes and good and activation is None:
        return
    expected = "float32 rows [any, columns] without gradients or activation, and sums or means of them"
    raise CohortError(
        f"{type(layer).__name__} on a Block with places", expected, "another use", "gather the rows first"
    )


def is_prefix(part: Tensor, whole: Tensor) -> bool:
    """True when ``part`` is the first rows of ``whole``, also for gradients."""
    if part is whole:
        return True
    same_memory = part.data_ptr() == whole.data_ptr() and part.stride() == whole.stride() and part.dtype == whole.dtype
    fits = part.dim() == 2 and part.shape[0] <= whole.shape[0] and part.shape[1] == whole.shape[1]
    if not (same_memory and fits) or part.requires_grad != whole.requires_grad:
        return False
    return not part.requires_grad or part._base is (whole if whole._base is None else whole._base)


def limit_of_flow(layer: pyg.MessagePassing) -> tuple[str, str] | None:
    """(what is expected, what is found) of a layer whose edges run against their direction."""
    return None if layer.flow == "source_to_target" else ("flow source_to_target", f"flow {layer.flow}")


def require_supported(layer: pyg.MessagePassing) -> None:
    """Raises CohortError for arguments that the layer does not take."""
    limit = type(layer).limit_of(layer)
    if limit is not None:
        raise CohortError(type(layer).__name__, *limit, f"use torch_geometric.nn.{type(layer).__name__} for others")


def materialize(lin: pyg.Linear, width: int) -> None:
    """Gives a lazy linear layer its weights, as its first call would."""
    if hasattr(lin, "_hook"):
        lin.initialize_parameters(lin, (torch.empty(0, width),))
