"""The layers of `cohort train`: parameters, their names and first values are those of PyG's, without importing PyG.

That would take longer than all else at the begin of a small run.
"""

import math

import torch
from torch import Tensor, nn

from cohort_gnn.nn.gat import GATRules
from cohort_gnn.nn.gcn import GCNRules
from cohort_gnn.nn.graphconv import GraphConvRules
from cohort_gnn.nn.sage import SAGERules


class Linear(nn.Linear):
    """torch's, with the first values of the linear parts of PyG's layers, drawn in the same order.

    Args:
        glorot: uniform by fan-in and fan-out (Glorot and Bengio, AISTATS 2010, eq. 16); else by fan-in alone.
    """

    def __init__(self, in_channels: int, out_channels: int, bias: bool, glorot: bool = False):
        self._glorot = glorot
        super().__init__(in_channels, out_channels, bias)

    def reset_parameters(self) -> None:
        if self._glorot:
            draw_glorot(self.weight)
        else:
            draw(self.weight, math.sqrt(6 / ((1 + math.sqrt(5) ** 2) * self.in_features)))  # He et al., a = sqrt(5)
        if self.bias is not None:
            draw(self.bias, 1 / math.sqrt(self.in_features))


def draw(parameter: Tensor, bound: float, generator: torch.Generator | None = None) -> None:
    """New values, uniform in [-bound, bound)."""
    with torch.no_grad():
        parameter.uniform_(-bound, bound, generator=generator)


def draw_glorot(parameter: Tensor) -> None:
    """New values, uniform by the last two dimensions."""
    draw(parameter, math.sqrt(6 / (parameter.shape[-2] + parameter.shape[-1])))


class SAGEConv(SAGERules, nn.Module):
    """Mean aggregation, and a linear part of the target's own row."""

    aggr, root_weight, project, normalize = "mean", True, False, False

    def __init__(self, in_channels: int, out_channels: int):
        super().__init__()
        self.lin_l = Linear(in_channels, out_channels, bias=True)
        self.lin_r = Linear(in_channels, out_channels, bias=False)
        self.lin_l.reset_parameters()  # as PyG's layer, which draws all of them again when it is whole
        self.lin_r.reset_parameters()


class GraphConv(GraphConvRules, nn.Module):
    """Sums of neighbours, and a linear part of the target's own row."""

    def __init__(self, in_channels: int, out_channels: int):
        super().__init__()
        self.lin_rel = Linear(in_channels, out_channels, bias=True)
        self.lin_root = Linear(in_channels, out_channels, bias=False)
        self.lin_rel.reset_parameters()  # as above
        self.lin_root.reset_parameters()


class GCNConv(GCNRules, nn.Module):
    """Symmetric normalisation, with an edge from each node to itself."""

    normalize, add_self_loops = True, True

    def __init__(self, in_channels: int, out_channels: int):
        super().__init__()
        self.out_channels = out_channels
        self.lin = Linear(in_channels, out_channels, bias=False, glorot=True)
        self.bias = nn.Parameter(torch.zeros(out_channels))
        self.lin.reset_parameters()  # as above


class GATConv(GATRules, nn.Module):
    """Attention of so many heads, with an edge from each node to itself, whose features are the means of the node's
    other edges."""

    negative_slope, dropout, add_self_loops, residual, fill_value = 0.2, 0.0, True, False, "mean"
    lin_src = lin_dst = None

    def __init__(self, in_channels: int, out_channels: int, heads: int, concat: bool, edge_dim: int | None = None):
        super().__init__()
        self.out_channels, self.heads, self.concat = out_channels, heads, concat
        self.lin = Linear(in_channels, heads * out_channels, bias=False, glorot=True)
        self.att_src = nn.Parameter(torch.empty(1, heads, out_channels))
        self.att_dst = nn.Parameter(torch.empty(1, heads, out_channels))
        self.edge_dim, wide = edge_dim, heads * out_channels
        self.lin_edge = None if edge_dim is None else Linear(edge_dim, wide, bias=False, glorot=True)
        if edge_dim is not None:
            self.att_edge = nn.Parameter(torch.empty(1, heads, out_channels))
        self.bias = nn.Parameter(torch.zeros(out_channels * (heads if concat else 1)))
        self.lin.reset_parameters()  # as above
        if self.lin_edge is not None:
            self.lin_edge.reset_parameters()
        draw_glorot(self.att_src)
        draw_glorot(self.att_dst)
        if edge_dim is not None:
            draw_glorot(self.att_edge)
