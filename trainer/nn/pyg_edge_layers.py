"""The layers of the same names in torch_geometric.nn whose edges may have features or types, and GINConv.

As those of pyg_layers.py, each is PyG's layer with a faster path before it.
"""

import torch
import torch_geometric.nn as pyg
from torch import Tensor
from torch_geometric.typing import OptPairTensor, OptTensor, PairTensor

from cohort_gnn.base.errors import CohortError
from cohort_gnn.nn.block import Block
from cohort_gnn.nn.gatv2 import GATv2Rules
from cohort_gnn.nn.gin import GINERules, GINRules
from cohort_gnn.nn.pyg_base import ADD, Checked, in_pygs_dtype, takes_pygs_way
from cohort_gnn.nn.rgat import RGATRules
from cohort_gnn.nn.rgcn import RGCNRules
from cohort_gnn.nn.sage import AGGREGATIONS, SUMS
from cohort_gnn.nn.transformer import TransformerRules


class GATv2Conv(Checked, GATv2Rules, pyg.GATv2Conv):
    """``torch_geometric.nn.GATv2Conv`` with scores, softmax and sums by edge in kernels: same arguments, parameters and
    results. Nothing of size [edges, columns] is made but the transformed features of edges, if there are any.

    Examples:
        >>> x, edge_index = torch.randn(5, 8), torch.tensor([[1, 2, 4], [0, 0, 3]])
        >>> cohort.nn.GATv2Conv(8, 4, heads=2, edge_dim=3)(x, edge_index, torch.randn(3, 3)).shape
        torch.Size([5, 8])

    Torch's CPU generator determines which edges dropout removes.

    Raises:
        CohortError: an aggregation other than "add" and "sum", or ``flow="target_to_source"``.
    """

    aggregations = ADD
    propagate_type = {"x": PairTensor, "alpha": Tensor}  # PyG reads these from sources, which are not here
    edge_updater_type = {"x": PairTensor, "edge_attr": OptTensor}

    def forward(
        self,
        x: Tensor | tuple[Tensor, Tensor],
        edge_index: Tensor | Block,
        edge_attr: Tensor | None = None,
        return_attention_weights: bool | None = None,
    ) -> Tensor:
        """Like GATv2Rules.forward; PyG's code runs where attention weights are wanted, for sparse matrices, and where
        the features of loops are other reductions than means."""
        reduces = isinstance(self.fill_value, str) and self.fill_value != "mean"
        other_loops = edge_attr is not None and self.add_self_loops and reduces and not isinstance(edge_index, Block)
        if return_attention_weights is not None or takes_pygs_way(self, edge_index, x) or other_loops:
            return pyg.GATv2Conv.forward(self, x, edge_index, edge_attr, return_attention_weights)
        return in_pygs_dtype(GATv2Rules.forward(self, x, edge_index, edge_attr), self.att)


class TransformerConv(Checked, TransformerRules, pyg.TransformerConv):
    """``torch_geometric.nn.TransformerConv`` with scores, softmax and sums by edge in kernels: same arguments,
    parameters and results. Nothing of size [edges, columns] is made.

    Examples:
        >>> x, edge_index = torch.randn(5, 8), torch.tensor([[1, 2, 4], [0, 0, 3]])
        >>> cohort.nn.TransformerConv(8, 4, heads=2, beta=True)(x, edge_index).shape
        torch.Size([5, 8])

    Rows are multiplied by the weights of keys and values before or after the sum, whichever is less work. Torch's CPU
    generator determines which edges dropout removes.

    Raises:
        CohortError: an aggregation other than "add" and "sum", or ``flow="target_to_source"``.
    """

    aggregations = ADD
    biasless = ("lin_edge",)
    # PyG reads this from sources, which are not here
    propagate_type = {"query": Tensor, "key": Tensor, "value": Tensor, "edge_attr": OptTensor}

    def forward(
        self,
        x: Tensor | tuple[Tensor, Tensor],
        edge_index: Tensor | Block,
        edge_attr: Tensor | None = None,
        return_attention_weights: bool | None = None,
    ) -> Tensor:
        """Like TransformerRules.forward; PyG's code runs where attention weights are wanted, for sparse matrices."""
        if return_attention_weights is not None or takes_pygs_way(self, edge_index, x):
            return pyg.TransformerConv.forward(self, x, edge_index, edge_attr, return_attention_weights)
        return TransformerRules.forward(self, x, edge_index, edge_attr)


class GINConv(Checked, GINRules, pyg.GINConv):
    """``torch_geometric.nn.GINConv`` with gather and reduction in one kernel: same arguments, parameters and results.

    Examples:
        >>> x, edge_index = torch.randn(5, 8), torch.tensor([[1, 2, 4], [0, 0, 3]])
        >>> cohort.nn.GINConv(torch.nn.Linear(8, 4), train_eps=True)(x, edge_index).shape
        torch.Size([5, 4])

    Raises:
        CohortError: an aggregation other than "mean", "sum", "add" and "max", or ``flow="target_to_source"``.
    """

    aggregations = AGGREGATIONS
    propagate_type = {"x": OptPairTensor}  # PyG reads this from sources, which are not here

    def forward(
        self,
        x: Tensor | tuple[Tensor, Tensor | None],
        edge_index: Tensor | Block,
        size: tuple[int, int] | None = None,
    ) -> Tensor:
        """Like GINRules.forward; PyG's code runs for sparse matrices."""
        if takes_pygs_way(self, edge_index, x):
            return pyg.GINConv.forward(self, x, edge_index, size)
        return GINRules.forward(self, x, edge_index, size)


class GINEConv(Checked, GINERules, pyg.GINEConv):
    """``torch_geometric.nn.GINEConv`` with gather, ReLU and sum in one kernel: same arguments, parameters and results.
    With ``edge_dim``, the transformed features of edges are all there is of size [edges, columns].

    Examples:
        >>> x, edge_index = torch.randn(5, 8), torch.tensor([[1, 2, 4], [0, 0, 3]])
        >>> cohort.nn.GINEConv(torch.nn.Linear(8, 4), edge_dim=3)(x, edge_index, torch.randn(3, 3)).shape
        torch.Size([5, 4])

    Raises:
        CohortError: an aggregation other than "add" and "sum", or ``flow="target_to_source"``.
    """

    aggregations = ADD
    propagate_type = {"x": OptPairTensor, "edge_attr": OptTensor}  # PyG reads this from sources, which are not here

    def forward(
        self,
        x: Tensor | tuple[Tensor, Tensor | None],
        edge_index: Tensor | Block,
        edge_attr: Tensor | None = None,
        size: tuple[int, int] | None = None,
    ) -> Tensor:
        """Like GINERules.forward; PyG's code runs for sparse matrices."""
        if takes_pygs_way(self, edge_index, x):
            return pyg.GINEConv.forward(self, x, edge_index, edge_attr, size)
        return GINERules.forward(self, x, edge_index, edge_attr, size)


class RGCNConv(Checked, RGCNRules, pyg.RGCNConv):
    """``torch_geometric.nn.RGCNConv`` with gather and reduction in one kernel for each relation: same arguments,
    parameters and results. Targets without edges of a relation cost nothing; on a GPU the host waits a few times.

    Examples:
        >>> x, edge_index = torch.randn(5, 8), torch.tensor([[1, 2, 4], [0, 0, 3]])
        >>> cohort.nn.RGCNConv(8, 4, num_relations=2, num_bases=1)(x, edge_index, torch.tensor([0, 1, 1])).shape
        torch.Size([5, 4])

    Raises:
        CohortError: an aggregation other than "mean", "sum" and "add", or ``flow="target_to_source"``.
    """

    aggregations = tuple(SUMS)
    propagate_type = {"x": Tensor, "edge_type_ptr": OptTensor}  # PyG reads this from sources, which are not here

    def forward(
        self,
        x: Tensor | tuple[Tensor, Tensor] | None,
        edge_index: Tensor | Block,
        edge_type: Tensor | None = None,
    ) -> Tensor:
        """Like RGCNRules.forward; PyG's code runs for nodes without rows (None, or their numbers), for types of other
        dtypes, and for sparse matrices."""
        by_rules = _has_rows(self, x, edge_index) and _has_int64_types(edge_type, edge_index)
        if by_rules and not takes_pygs_way(self, edge_index, x):
            return RGCNRules.forward(self, x, edge_index, edge_type)
        return pyg.RGCNConv.forward(self, x, edge_index, edge_type)


class RGATConv(Checked, RGATRules, pyg.RGATConv):
    """``torch_geometric.nn.RGATConv`` with scores, softmax and sums by edge in kernels: same arguments, parameters and
    results. PyG's layer makes a matrix for each edge; here rows are summed before they are multiplied by matrices.

    Examples:
        >>> x, edge_index = torch.randn(5, 8), torch.tensor([[1, 2, 4], [0, 0, 3]])
        >>> conv = cohort.nn.RGATConv(8, 4, num_relations=2, heads=2)
        >>> conv(x, edge_index, torch.tensor([0, 1, 1])).shape
        torch.Size([5, 8])

    On a GPU the host waits a few times in a call. Torch's CPU generator determines which edges dropout removes.

    Raises:
        CohortError: an aggregation other than "add" and "sum", or ``flow="target_to_source"``.
    """

    aggregations = ADD
    biasless = ("lin_edge",)
    # PyG reads this from sources, which are not here
    propagate_type = {"x": Tensor, "edge_type": OptTensor, "edge_attr": OptTensor}

    def forward(
        self,
        x: Tensor | tuple[Tensor, Tensor],
        edge_index: Tensor | Block,
        edge_type: Tensor | None = None,
        edge_attr: Tensor | None = None,
        size: tuple[int, int] | None = None,
        return_attention_weights: bool | None = None,
    ) -> Tensor:
        """Like RGATRules.forward; PyG's code runs where attention weights are wanted, for nodes without rows, for types
        of other dtypes, and for sparse matrices."""
        by_rules = _has_rows(self, x, edge_index) and _has_int64_types(edge_type, edge_index)
        by_rules = by_rules and return_attention_weights is None
        if by_rules and not takes_pygs_way(self, edge_index, x):
            return RGATRules.forward(self, x, edge_index, edge_type, edge_attr)
        return pyg.RGATConv.forward(self, x, edge_index, edge_type, edge_attr, size, return_attention_weights)


def _has_rows(layer: pyg.MessagePassing, x: Tensor | tuple[Tensor, Tensor] | None, edge_index) -> bool:
    """Whether nodes have rows of features, not numbers.

    Raises:
        CohortError: they have none, and the edges are a Block.
    """
    tensors = [x] if x is None or isinstance(x, Tensor) else list(x)
    has_rows = all(rows is not None and rows.is_floating_point() for rows in tensors)
    if isinstance(edge_index, Block) and not has_rows:
        raise CohortError(f"{type(layer).__name__}: x", "rows of features, beside a Block", "none", "pass edge_index")
    return has_rows


def _has_int64_types(edge_type: Tensor | None, edge_index) -> bool:
    """Whether types of edges are such, or are for the rules to refuse."""
    return edge_type is None or edge_type.dtype == torch.int64 or isinstance(edge_index, Block)
