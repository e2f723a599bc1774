"""GraphSAGE, GCN and GAT over sampled batches, from PyG's layers."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GCNConv, SAGEConv

from cohort.base.errors import CohortError

GAT_HEADS = 4


class SampledGNN(nn.Module):
    """A stack of layers with ReLU (GAT: ELU) and dropout in between.

    Args:
        kind: "sage" (mean aggregation), "gcn" or "gat" (4 heads, concatenated in hidden layers, averaged in the last).
        in_dim, hidden, out_dim: features in, features of hidden layers, classes.
        num_layers: one a hop.
        dropout: probability, on the input of every layer but the first.
    """

    def __init__(self, kind: str, in_dim: int, hidden: int, out_dim: int, num_layers: int, dropout: float):
        super().__init__()
        if kind == "gat" and hidden % GAT_HEADS:
            raise CohortError("--hidden", f"a multiple of {GAT_HEADS} for gat", str(hidden))
        dims = [in_dim] + [hidden] * (num_layers - 1) + [out_dim]
        self.layers = nn.ModuleList(
            _layer(kind, dims[i], dims[i + 1], last=i == num_layers - 1) for i in range(num_layers)
        )
        self.activation = F.elu if kind == "gat" else F.relu
        self.dropout = dropout
        self.two_sided = kind != "gcn"  # GCNConv's normalisation wants sources and targets in one set

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        num_sampled_nodes: list[int] | None = None,
        num_sampled_edges: list[int] | None = None,
    ) -> Tensor:
        """Scores float [rows, out_dim]; the seeds are the first rows.

        With the two lists of a sampled batch, each layer leaves out the nodes and edges that no seed needs any more.
        """
        for i, layer in enumerate(self.layers):
            if num_sampled_nodes is not None:
                hops = len(num_sampled_edges) - i  # whose edges this layer still needs
                x, edge_index = x[: sum(num_sampled_nodes[: hops + 1])], edge_index[:, : sum(num_sampled_edges[:hops])]
                if self.two_sided:  # rows only for the nodes that the next layer reads
                    x = (x, x[: sum(num_sampled_nodes[:hops])])
            x = layer(x, edge_index)
            if i < len(self.layers) - 1:
                x = F.dropout(self.activation(x), self.dropout, self.training)
        return x


def _layer(kind: str, in_dim: int, out_dim: int, last: bool) -> nn.Module:
    if kind == "sage":
        return SAGEConv(in_dim, out_dim)
    if kind == "gcn":
        return GCNConv(in_dim, out_dim)
    if kind == "gat":
        return GATConv(in_dim, out_dim if last else out_dim // GAT_HEADS, heads=GAT_HEADS, concat=not last)
    raise CohortError("--model", "sage, gcn or gat", kind)


def model_input(x: torch.Tensor) -> torch.Tensor:
    """Features as the model takes them: uint8 and 16-bit floats become float32."""
    return x if x.dtype == torch.float32 else x.float()
