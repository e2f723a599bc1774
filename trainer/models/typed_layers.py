"""The layers of models of graphs of several types."""

import importlib
import warnings
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn import HeteroConv, HGTConv
from torch_geometric.nn.module_dict import ModuleDict

from cohort_gnn.nn.activation import Activation
from cohort_gnn.nn.block import block_of
from cohort_gnn.nn.gat import GATRules
from cohort_gnn.nn.inputs import IndexedRows, amp_dtype, require_plain
from cohort_gnn.nn.relations import Into, sum_attentions, sum_relations
from cohort_gnn.spec.graph import EdgeType
from cohort_gnn.spec.models import ModelKind


class SummedRelations(HeteroConv):
    """A layer for each edge type; a node type gets the sum of the outputs of all edge types into it.

    Args:
        convs: SAGEConv or GATConv by edge type.
        root: by node type, what is added of its own rows.
        fused: convs are Cohort's: SAGEConv, whose means and own rows have one product for each node type, or GATConv,
            for whose scores a node type's rows are read once.
    """

    def __init__(self, convs: dict[EdgeType, nn.Module], root: dict[str, nn.Module], fused: bool):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # sources that no edge type leads to keep their features
            super().__init__(convs, aggr="sum")
        self.root, self.fused = ModuleDict(root), fused

    def forward(
        self,
        x: dict[str, Any],
        edge_index: dict[EdgeType, Tensor],
        num_targets: dict[str, int],
        activation: Activation | None = None,
        edge_attr: dict[EdgeType, Tensor] | None = None,
    ) -> dict[str, Tensor]:
        """float [num_targets, width] of each node type that an edge type leads to.

        Args:
            x: float [nodes, features] of the node types that have rows; targets are the first of their type. Those of a
                ``fused`` layer may be IndexedRows.
            edge_index: int64 [2, edges] of each edge type.
            activation: what x goes through first; where SAGEConv is ``fused``.
            edge_attr: [edges, edge_dim] of the edge types whose convs take them; of GATConv.
        """
        if self.fused and isinstance(next(iter(self.convs.values()), None), GATRules):
            blocks = {
                name: block_of(edge_index[name], x[name[0]].shape[0], num_targets[name[2]])
                for name in self.convs.keys()
            }
            return sum_attentions(dict(self.convs.items()), x, blocks, edge_attr or {})
        if self.fused:
            return self._products(x, edge_index, num_targets, activation)
        sums: dict[str, Tensor] = {}
        for name, conv in self.convs.items():
            source, target, size = x[name[0]], x.get(name[2]), num_targets[name[2]]
            own = None if target is None or not getattr(conv, "root_weight", True) else target[:size]
            edge_options = {"edge_attr": edge_attr[name]} if edge_attr and name in edge_attr else {}
            rows = conv((source, own), edge_index[name], size=(source.shape[0], size), **edge_options)
            sums[name[2]] = sums[name[2]] + rows if name[2] in sums else rows
        return {
            name: rows + self.root[name](x[name][: num_targets[name]]) if name in self.root else rows
            for name, rows in sums.items()
        }

    def _products(
        self,
        x: dict[str, Tensor | IndexedRows],
        edge_index: dict[EdgeType, Tensor],
        num_targets: dict[str, int],
        activation: Activation | None,
    ) -> dict[str, Tensor]:
        """The sums, of all node types at once."""
        relations: dict[str, list[EdgeType]] = {}
        for name in self.convs.keys():
            relations.setdefault(name[2], []).append(name)
        read = {name[0] for name in self.convs.keys()} | (relations.keys() & x.keys())
        numbers = {name: number for number, name in enumerate(name for name in x if name in read)}
        into, weights, own_weights, biases = [], [], [], []
        for target, edge_types in relations.items():
            convs = [self.convs[relation] for relation in edge_types]
            own_parts = [conv.lin_r for conv in convs if conv.root_weight]
            own_parts += [self.root[target]] if target in self.root else []
            for lin in (*(conv.lin_l for conv in convs), *own_parts):
                require_plain(lin)
            given_biases = [lin.bias for lin in (*(conv.lin_l for conv in convs), *own_parts) if lin.bias is not None]
            blocks = [
                block_of(edge_index[relation], x[relation[0]].shape[0], num_targets[target]) for relation in edge_types
            ]
            sources = [numbers[relation[0]] for relation in edge_types]
            into.append(Into(blocks, sources, numbers[target] if own_parts else None))
            weights.append(torch.cat([conv.lin_l.weight for conv in convs], dim=1))
            own_weights.append(_sum([lin.weight for lin in own_parts]))
            biases.append(_sum(given_biases))
        rows = [x[name] for name in numbers]
        dtype = amp_dtype(rows[into[0].sources[0]])
        out = sum_relations(into, rows, dtype, weights, own_weights, biases, activation)
        return dict(zip(relations, out, strict=True))


def _sum(parts: list[Tensor]) -> Tensor | None:
    return None if not parts else parts[0] if len(parts) == 1 else torch.stack(parts).sum(dim=0)


class _FirstRows(HGTConv):
    """PyG's layer; rows of the first nodes alone."""

    def forward(
        self, x: dict[str, Tensor], edge_index: dict[EdgeType, Tensor], num_targets: dict[str, int]
    ) -> dict[str, Tensor]:
        """As of SummedRelations."""
        return {name: rows[: num_targets[name]] for name, rows in super().forward(x, edge_index).items()}


def transformer_of(edge_types: list[EdgeType], node_types: list[str], width: int, heads: int, layers: str) -> HGTConv:
    """A layer of TypedGNN: HGT, on rows of ``width`` columns of each of ``node_types``."""
    conv = _FirstRows if layers == "pyg" else importlib.import_module("cohort_gnn.nn").HGTConv
    layer = conv(width, width, (node_types, edge_types), heads)
    for name in node_types:
        is_target = name in layer.dst_node_types
        layer.out_lin.lins[name].requires_grad_(is_target)
        layer.skip[name].requires_grad_(is_target)
    return layer


class BatchNorm(nn.BatchNorm1d):
    """torch's, which in training leaves a batch of fewer than two rows to the means of earlier batches."""

    def forward(self, rows: Tensor) -> Tensor:
        if self.training and rows.shape[0] > 1:
            return super().forward(rows)
        scale = self.weight / (self.running_var + self.eps).sqrt()
        return (rows - self.running_mean) * scale + self.bias


def relations_of(
    rules: ModelKind,
    edge_types: list[EdgeType],
    dims: dict[str, int],
    width: int,
    heads: int,
    layers: str,
    edge_dims: dict[EdgeType, int],
) -> SummedRelations:
    """A layer of TypedGNN.

    Args:
        dims: features of the node types that have rows.
        width: columns of its output.
        layers: "cohort" or "pyg".
        edge_dims: features of each edge, of the edge types that have some; read where layers have heads.
    """
    library = importlib.import_module("torch_geometric.nn" if layers == "pyg" else "cohort_gnn.nn")
    conv, convs = getattr(library, rules.layer), {}
    for name in edge_types:
        source, target = dims[name[0]], dims.get(name[2], 0)
        if rules.has_heads:
            shape = source if target in (0, source) else (source, target)
            edge_options = {"edge_dim": edge_dims[name]} if name in edge_dims else {}
            convs[name] = conv(shape, width // heads, heads=heads, add_self_loops=False, **edge_options)
            convs[name].att_dst.requires_grad_(target > 0)  # without rows of targets nothing depends on it
        else:
            own = target > 0 and not rules.own_by_type
            convs[name] = conv((source, target), width, root_weight=own, bias=not rules.own_by_type)
    has_root = {name[2]: dims[name[2]] for name in edge_types if rules.own_by_type and name[2] in dims}
    return SummedRelations(
        convs,
        {name: nn.Linear(dim, width) for name, dim in has_root.items()},
        fused=layers == "cohort",
    )
