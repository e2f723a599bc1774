"""Models of graphs of several types: a layer for each edge type, and their sums for each node type."""

import importlib
import warnings

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cohort.base.errors import CohortError
from cohort.spec.graph import EdgeType, GraphTypes
from cohort.trainer.models.sampled import model_input
from cohort.trainer.source import edges_by_type


class RelationalSAGE(nn.Module):
    """GraphSAGE's layer (Hamilton et al., NeurIPS 2017) for each edge type, summed as in R-GCN (Schlichtkrull et al.,
    ESWC 2018); ReLU and dropout in between.

    Row i of a node type becomes the sum, over the edge types into it, of W mean(x_j) + V x_i + b, where j are the
    sources of the edges into i; W, V and b are those of the edge type. Types without features have no rows in the first
    layer. A layer has only the edge types on which the scores of the target type depend.

    Parameters have the names of a ``ModuleList`` ``convs`` of PyG's ``HeteroConv`` with ``aggr="sum"``.

    Args:
        types: of the graph.
        hidden, out_dim: features of hidden layers, classes.
        num_layers: one a hop.
        dropout: probability, on the input of every layer but the first.
        layers: whose they are, "cohort" or "pyg": the same parameters, and the same results but for rounding.

    Raises:
        CohortError: no features reach the target type within the hops.
    """

    def __init__(
        self, types: GraphTypes, hidden: int, out_dim: int, num_layers: int, dropout: float, layers: str = "cohort"
    ):
        super().__init__()
        from torch_geometric.nn import HeteroConv

        conv = importlib.import_module("torch_geometric.nn" if layers == "pyg" else "cohort.nn").SAGEConv
        self.target, self.dropout, self.num_classes = types.target, dropout, out_dim
        dims = {name: dim for name, dim in types.feature_dims.items() if dim}
        self.convs = nn.ModuleList()
        wanted, needed = {types.target}, []  # for each layer the edge types on which the target's scores depend
        for _ in range(num_layers):
            needed.append([name for name in types.edge_types if name[2] in wanted])
            wanted |= {name[0] for name in needed[-1]}
        for edge_types in reversed(needed):
            known = [name for name in edge_types if name[0] in dims]
            width = hidden if len(self.convs) + 1 < num_layers else out_dim
            of_type = {
                name: conv((dims[name[0]], dims.get(name[2], 0)), width, root_weight=name[2] in dims) for name in known
            }
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # sources that no edge type leads to keep their features
                self.convs.append(HeteroConv(of_type, aggr="sum"))
            dims = {name[2]: width for name in known}
        if types.target not in dims:
            hint = "more hops in --fanout, or features of another node type"
            found = ", ".join(name for name, dim in types.feature_dims.items() if dim) or "none"
            raise CohortError("--fanout", f"edges that bring features to {types.target}", f"features of: {found}", hint)

    def forward(
        self,
        x: dict[str, Tensor],
        edge_index: dict[EdgeType, Tensor],
        num_sampled_nodes: dict[str, list[int]] | None = None,
        num_sampled_edges: dict[EdgeType, list[int]] | None = None,
    ) -> Tensor:
        """Scores float [nodes of the target type, out_dim]; those of seeds are the first.

        With the two lists of each type of a sampled batch, a layer leaves out the nodes and edges that no seed needs
        any more.

        Args:
            x: float [nodes, features] of each node type; of one without features [nodes, 0].
            edge_index: int64 [2, edges] of each edge type.
        """
        sizes = {name: rows.shape[0] for name, rows in x.items()}
        for number, layer in enumerate(self.convs):
            hops = len(self.convs) - number  # whose edges this layer still needs
            sums: dict[str, Tensor] = {}
            for name, conv in layer.convs.items():
                source, target, edges = x[name[0]], x.get(name[2]), edge_index[name]
                num_targets = sizes[name[2]]
                if num_sampled_nodes is not None and num_sampled_edges is not None:
                    source = source[: sum(num_sampled_nodes[name[0]][: hops + 1])]
                    num_targets = sum(num_sampled_nodes[name[2]][:hops])
                    edges = edges[:, : sum(num_sampled_edges[name][:hops])]
                own = target[:num_targets] if conv.root_weight and target is not None else None
                rows = conv((source, own), edges, size=(source.shape[0], num_targets))
                sums[name[2]] = sums[name[2]] + rows if name[2] in sums else rows
            x = sums if hops == 1 else {name: self._between(rows) for name, rows in sums.items()}
        return x[self.target]

    def _between(self, rows: Tensor) -> Tensor:
        return F.dropout(F.relu(rows), self.dropout, self.training)


def typed_inputs_of(slot, types: GraphTypes) -> tuple:
    """What a model takes of the batch in a slot: features, edges, and sizes by hop, by type."""
    nodes = dict(zip(types.counts, slot.nodes_of_types, strict=True))
    x = {}
    for number, (name, per_hop) in enumerate(nodes.items()):
        table = slot.table(number)
        x[name] = torch.empty(sum(per_hop), 0, device=slot.n_id.device) if table is None else model_input(table)
    edges = dict(zip(types.edge_types, slot.edges_of_relations, strict=True))
    return x, edges_by_type(slot, types), nodes, edges
