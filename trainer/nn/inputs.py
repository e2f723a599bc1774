"""What the layers make of their arguments."""

import torch
import torch_geometric.nn as pyg
from torch import Tensor

from cohort.base.errors import CohortError
from cohort.nn.block import Block

ELEMENT_COST = 32  # of reading or writing an element, in multiplications of a matrix product


def amp_dtype(x: Tensor) -> torch.dtype:
    """The dtype in which a layer hands rows to its linear parts: autocast's, else that of ``x``."""
    kind = x.device.type
    if torch.is_autocast_enabled(kind) and x.dtype != torch.float64:
        return torch.get_autocast_dtype(kind)
    return x.dtype


def is_matrix(edge_index) -> bool:
    """True for edges as a sparse matrix, of which PyG's own code makes more than ours."""
    return not isinstance(edge_index, Block) and (
        not isinstance(edge_index, Tensor) or edge_index.layout != torch.strided
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


def require_plain_flow(layer) -> None:
    """Raises CohortError for a layer whose edges run against their direction, or are to be explained."""
    if layer.flow != "source_to_target":
        raise CohortError(
            type(layer).__name__, "flow source_to_target", layer.flow, "use the layer of torch_geometric.nn"
        )


def materialize(lin: pyg.Linear, width: int) -> None:
    """Gives a lazy linear layer its weights, as its first call would."""
    if hasattr(lin, "_hook"):
        lin.initialize_parameters(lin, (torch.empty(0, width),))
