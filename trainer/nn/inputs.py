"""Checks and conversions of the arguments of layers."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from cohort_gnn.base.errors import CohortError
from cohort_gnn.nn import kernels
from cohort_gnn.nn.block import Block

# Of reading or writing an element, in multiplications of a matrix product; and where 16 bits are multiplied on a GPU.
ELEMENT_COST, ELEMENT_COST_16 = 32, 128


@dataclass(frozen=True)
class IndexedRows:
    """Rows of a larger table, by index: row i is ``rows[row_index[i]]``, or zeros where that is negative. Edges may
    not name a row with a negative index. The rows get no gradient.

    Attributes:
        rows: [any, columns].
        row_index: int64 [n].
    """

    rows: Tensor
    row_index: Tensor

    @property
    def shape(self) -> torch.Size:
        """(n, columns)"""
        return torch.Size((self.row_index.shape[0], self.rows.shape[1]))

    @property
    def device(self) -> torch.device:
        """Where all of them are."""
        return self.rows.device

    @property
    def dtype(self) -> torch.dtype:
        """Of their elements."""
        return self.rows.dtype

    def first(self, count: int) -> "IndexedRows":
        """The first ones."""
        return IndexedRows(self.rows, self.row_index[:count])

    def gathered(self, dtype: torch.dtype | None = None) -> Tensor:
        """[n, columns], of ``dtype``; None: of that of ``rows``."""
        return kernels.gather_rows(self.rows, self.row_index, dtype or self.rows.dtype)


def amp_dtype(x: Tensor | IndexedRows) -> torch.dtype:
    """The dtype in which a layer hands rows to its linear parts: autocast's, else that of ``x``."""
    kind = x.device.type
    if torch.is_autocast_enabled(kind) and x.dtype != torch.float64:
        return torch.get_autocast_dtype(kind)
    return x.dtype


def element_cost(x: Tensor | IndexedRows) -> int:
    """ELEMENT_COST where rows like ``x`` go through linear parts."""
    return ELEMENT_COST_16 if x.device.type == "cuda" and amp_dtype(x).itemsize == 2 else ELEMENT_COST


def is_indexed(edge_index) -> bool:
    """True for a Block whose targets have their rows anywhere in ``x``."""
    return isinstance(edge_index, Block) and edge_index.own_row_index is not None


def require_indexed_rows(layer: nn.Module, x: Tensor, takes: bool, activation) -> None:
    """Raises CohortError unless the layer can read rows of ``x`` by index; ``takes``: its arguments allow it."""
    good = isinstance(x, Tensor) and x.dtype == torch.float32 and x.dim() == 2 and not x.requires_grad
    if takes and good and activation is None:
        return
    expected = "float32 rows [any, columns] without gradients or activation, and sums or means of them"
    raise CohortError(
        f"{type(layer).__name__} on a Block with own_row_index", expected, "another use", "gather the rows first"
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


# Linear layers whose weights may be read, in place of a call.
_PLAIN = {
    ("torch.nn.modules.linear", "Linear"),
    ("cohort_gnn.nn.own_layers", "Linear"),
    ("torch_geometric.nn.dense.linear", "Linear"),
    ("torch_geometric.nn.dense.linear", "HeteroLinear"),
}


def has_hooks(module: nn.Module) -> bool:
    """Whether calls do something else too, or afterwards."""
    return bool(module._forward_hooks or module._backward_hooks or module._backward_pre_hooks)


def is_plain(lin: nn.Module, biased: bool = True) -> bool:
    """Whether a linear layer has the weights that a call would use: nothing makes them, or other rows, before it, as
    torch.nn.utils.prune and weight_norm and layers in its place (LoRA) do. Not ``biased``: it may have no bias."""
    kind = type(lin)
    plain = (kind.__module__, kind.__name__) in _PLAIN and "forward" not in vars(lin)
    return (
        plain and (biased or lin.bias is None) and len(lin._forward_pre_hooks) == hasattr(lin, "_hook")
    )  # lazy layers have one


def require_plain(lin: nn.Module, biased: bool = True) -> None:
    """Raises CohortError unless the weights of a linear layer may be read; not ``biased``: and it has no bias."""
    if not is_plain(lin, biased):
        hint = "use the layers of PyG, and edge_index; of a run cohort.load_model(RUN, layers='pyg')"
        actual = (
            f"{type(lin).__name__}, which was changed (by torch.nn.utils.prune, weight_norm, LoRA, a bias or the like)"
        )
        raise CohortError("a layer of cohort.nn", "plain linear layers inside", actual, hint)


def materialize(lin: nn.Module, width: int, biased: bool = True) -> None:
    """Like `begin`; raises CohortError as `require_plain` does."""
    require_plain(lin, biased)
    begin(lin, width)


def begin(lin: nn.Module | None, width: int) -> None:
    """Gives a lazy linear layer its weights, as its first call would."""
    if lin is not None and hasattr(lin, "_hook"):
        lin.initialize_parameters(lin, (torch.empty(0, width),))


def edge_rows_of(layer: nn.Module, edge_attr: Tensor, block: Block, width: int | None = None) -> Tensor:
    """Features of edges as a matrix in the order of the block's edges.

    Args:
        edge_attr: [edges, any], or [edges] for one column, in the order of ``edge_index``, or in that of the Block.
        width: of the columns; None: any number.

    Raises:
        CohortError: there are none, or not as many.
    """
    rows = edge_attr.view(-1, 1) if edge_attr is not None and edge_attr.dim() == 1 else edge_attr
    count, good = block.source.numel(), rows is not None and rows.dim() == 2 and rows.shape[0] == block.source.numel()
    if not good or width is not None and rows.shape[1] != width:
        actual = "None" if edge_attr is None else str(list(edge_attr.shape))
        expected = f"[{count}, {'any' if width is None else width}], a row for each edge"
        cure = f"make the layer with edge_dim={rows.shape[1]}" if good else ""
        raise CohortError(f"{type(layer).__name__}: edge_attr: shape", expected, actual, cure)
    return rows if block.order is None else rows.index_select(0, block.order)
