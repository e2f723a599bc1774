"""The layers of the same names in torch_geometric.nn, with gather and reduction in one kernel; and accelerate().

Each is PyG's layer with a faster path before it; PyG's own code runs for all inputs that the faster path does not take.
"""

from dataclasses import dataclass, field

import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch_geometric.typing import OptPairTensor, OptTensor

from cohort_gnn.base.errors import CohortError
from cohort_gnn.nn.activation import Activation, apply_to_ends
from cohort_gnn.nn.block import Block
from cohort_gnn.nn.gat import GATRules
from cohort_gnn.nn.gcn import GCNRules
from cohort_gnn.nn.graphconv import GraphConvRules
from cohort_gnn.nn.hgt import HGTRules
from cohort_gnn.nn.inputs import is_indexed, require_indexed_rows
from cohort_gnn.nn.pyg_base import ADD, Checked, in_pygs_dtype, takes_pygs_way
from cohort_gnn.nn.pyg_edge_layers import GATv2Conv, GINConv, GINEConv, RGATConv, RGCNConv, TransformerConv
from cohort_gnn.nn.sage import AGGREGATIONS, SUMS, SAGERules
from cohort_gnn.nn.trim import trim_by_hops


class SAGEConv(Checked, SAGERules, pyg.SAGEConv):
    """``torch_geometric.nn.SAGEConv`` with gather and reduction in one kernel: same arguments, parameters and results.

    Examples:
        >>> x, edge_index = torch.randn(5, 8), torch.tensor([[1, 2, 4], [0, 0, 3]])
        >>> cohort.nn.SAGEConv(8, 4)(x, edge_index).shape
        torch.Size([5, 4])

    Raises:
        CohortError: an aggregation other than "mean", "sum", "add" and "max", or ``flow="target_to_source"``.
    """

    aggregations = AGGREGATIONS
    biasless = ("lin_r",)
    propagate_type = {"x": OptPairTensor}  # PyG reads this from sources, which are not here

    def forward(
        self,
        x: Tensor | tuple[Tensor, Tensor | None],
        edge_index: Tensor | Block,
        size=None,
        activation: Activation | None = None,
        edge_weight: Tensor | None = None,
    ) -> Tensor:
        """Like SAGERules.forward; PyG's code runs for sparse matrices."""
        if edge_weight is None and takes_pygs_way(self, edge_index, x):
            x = x if activation is None else apply_to_ends(activation, x)
            return pyg.SAGEConv.forward(self, x, edge_index, size)
        return super().forward(x, edge_index, size, activation, edge_weight)


class GraphConv(Checked, GraphConvRules, pyg.GraphConv):
    """``torch_geometric.nn.GraphConv`` with gather and reduction in one kernel: same arguments, parameters and results.

    Examples:
        >>> x, edge_index = torch.randn(5, 8), torch.tensor([[1, 2, 4], [0, 0, 3]])
        >>> cohort.nn.GraphConv(8, 4)(x, edge_index).shape
        torch.Size([5, 4])

    Raises:
        CohortError: an aggregation other than "mean", "sum" and "add", or ``flow="target_to_source"``.
    """

    aggregations = tuple(SUMS)
    biasless = ("lin_root",)
    propagate_type = {"x": OptPairTensor, "edge_weight": OptTensor}  # PyG reads this from sources, which are not here

    def forward(  # type: ignore[override]  # arguments in the order of PyG
        self,
        x: Tensor | tuple[Tensor, Tensor | None],
        edge_index: Tensor | Block,
        edge_weight: Tensor | None = None,
        size=None,
        activation: Activation | None = None,
    ) -> Tensor:
        """Like SAGERules.forward; PyG's code runs with edge weights, and for sparse matrices."""
        if edge_weight is not None and isinstance(edge_index, Block):
            raise CohortError("GraphConv: edge_weight", "edge_index of the edges that they are of", "a Block")
        if edge_weight is not None or takes_pygs_way(self, edge_index, x):
            x = x if activation is None else apply_to_ends(activation, x)
            return pyg.GraphConv.forward(self, x, edge_index, edge_weight, size)
        return super().forward(x, edge_index, size, activation)


class GCNConv(Checked, GCNRules, pyg.GCNConv):
    """``torch_geometric.nn.GCNConv`` with gather and reduction in one kernel: same arguments, parameters and results.

    Examples:
        >>> x, edge_index = torch.randn(5, 8), torch.tensor([[1, 2, 4], [0, 0, 3]])
        >>> cohort.nn.GCNConv(8, 4)(x, edge_index).shape
        torch.Size([5, 4])

    With a Block, the output has rows only for the targets, which are the first sources. A source that is not a target
    counts as a node without edges, as in PyG's layer on the same edges, unless the block has ``degrees``. Rows are
    multiplied by the weights before or after the sum, whichever is less work.

    Raises:
        CohortError: cached normalisation, an aggregation other than "add" and "sum", ``flow="target_to_source"``.
    """

    aggregations = ADD
    biasless = ("lin",)
    propagate_type = {"x": Tensor, "edge_weight": OptTensor}  # PyG reads this from sources, which are not here

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor | Block,
        edge_weight: Tensor | None = None,
        activation: Activation | None = None,
    ) -> Tensor:
        """Like GCNRules.forward; PyG's code runs with edge weights, and for sparse matrices."""
        if is_indexed(edge_index) and edge_weight is not None:
            require_indexed_rows(self, x, False, activation)
        if isinstance(x, Tensor) and (edge_weight is not None or takes_pygs_way(self, edge_index, x)):
            x = x if activation is None else activation(x)
            return pyg.GCNConv.forward(self, x, edge_index, edge_weight)
        return in_pygs_dtype(super().forward(x, edge_index, activation=activation), x, self.bias)


class GATConv(Checked, GATRules, pyg.GATConv):
    """``torch_geometric.nn.GATConv`` with gather and reduction in one kernel: same arguments, parameters and results.

    Examples:
        >>> x, edge_index = torch.randn(5, 8), torch.tensor([[1, 2, 4], [0, 0, 3]])
        >>> cohort.nn.GATConv(8, 4, heads=2, concat=False)(x, edge_index).shape
        torch.Size([5, 4])

    Rows are multiplied by the weights before or after the sum, whichever is less work. The scores of edges are computed
    from rows and the product of weights and attention vectors, in the dtype of the rows also under autocast. Torch's
    CPU generator determines which edges dropout removes.

    Raises:
        CohortError: an aggregation other than "add" and "sum", or ``flow="target_to_source"``.
    """

    aggregations = ADD
    biasless = ("lin", "lin_src", "lin_dst", "lin_edge")
    propagate_type = {"x": OptPairTensor, "alpha": Tensor}  # PyG reads these from sources, which are not here
    edge_updater_type = {"alpha": OptPairTensor, "edge_attr": OptTensor}

    def forward(
        self,
        x: Tensor | tuple[Tensor, Tensor | None],
        edge_index: Tensor | Block,
        edge_attr: Tensor | None = None,
        size: tuple[int, int] | None = None,
        return_attention_weights: bool | None = None,
    ) -> Tensor:
        """Like GATRules.forward; PyG's code runs where attention weights are wanted, for sparse matrices, and where the
        features of loops are other reductions than means."""
        reduces = isinstance(self.fill_value, str) and self.fill_value != "mean"
        other_loops = edge_attr is not None and self.lin_edge is not None and self.add_self_loops and reduces
        if return_attention_weights is not None or takes_pygs_way(self, edge_index, x) or other_loops:
            return pyg.GATConv.forward(self, x, edge_index, edge_attr, size, return_attention_weights)
        return in_pygs_dtype(super().forward(x, edge_index, size=size, edge_attr=edge_attr), self.att_src)


class HGTConv(Checked, HGTRules, pyg.HGTConv):
    """``torch_geometric.nn.HGTConv`` with scores, softmax and sums by edge in kernels: same arguments, parameters and
    results. The edges of all edge types into a node type are merged into one block.

    Examples:
        >>> cites = ("paper", "cites", "paper")
        >>> conv = cohort.nn.HGTConv(8, 4, metadata=(["paper"], [cites]), heads=2)
        >>> conv({"paper": torch.randn(5, 8)}, {cites: torch.tensor([[1, 2, 4], [0, 0, 3]])})["paper"].shape
        torch.Size([5, 4])

    Raises:
        CohortError: ``flow="target_to_source"``.
    """

    biasless = ("k_rel", "v_rel")
    propagate_type = {"k": Tensor, "q": Tensor, "v": Tensor, "edge_attr": Tensor}  # PyG reads this from sources

    def forward(self, x_dict, edge_index_dict, num_targets: dict[str, int] | None = None) -> dict[str, Tensor]:
        """Like HGTRules.forward; without ``num_targets`` PyG's code runs for sparse matrices."""
        if num_targets is None and any(takes_pygs_way(self, edges) for edges in edge_index_dict.values()):
            return pyg.HGTConv.forward(self, x_dict, edge_index_dict)
        return super().forward(x_dict, edge_index_dict, num_targets)


OURS = {
    pyg.SAGEConv: SAGEConv,
    pyg.GraphConv: GraphConv,
    pyg.GCNConv: GCNConv,
    pyg.GATConv: GATConv,
    pyg.GATv2Conv: GATv2Conv,
    pyg.TransformerConv: TransformerConv,
    pyg.GINConv: GINConv,
    pyg.GINEConv: GINEConv,
    pyg.RGCNConv: RGCNConv,
    pyg.RGATConv: RGATConv,
    pyg.HGTConv: HGTConv,
}


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
    """Replaces layers of PyG in the model by Cohort's layers of the same names, which give the same results.

    Modules, parameters, hooks, devices and modes do not change, so optimizers and checkpoints of the model stay valid.
    A layer with arguments that Cohort's layer does not support stays PyG's. If a model of PyG gets a batch of Cohort's
    loader with its sizes by hop, layers do not compute rows that PyG would cut off before the next layer; dropout in
    between draws numbers for the other rows alone.
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
    trim_by_hops(model)
    return done
