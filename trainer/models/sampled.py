"""GraphSAGE, GCN, GAT and GraphConv over sampled batches, from Cohort's layers or PyG's."""

import importlib
from collections.abc import Callable
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cohort_gnn.base.errors import CohortError
from cohort_gnn.nn import own_layers
from cohort_gnn.nn.activation import Activation, activated
from cohort_gnn.nn.block import Block, block_of
from cohort_gnn.nn.inputs import IndexedRows, is_indexed
from cohort_gnn.spec.graph import EDGE_TYPE, EdgeType
from cohort_gnn.spec.models import MODELS, ONE_TYPE, listed, models_with


class SampledGNN(nn.Module):
    """A stack of layers with ReLU (GAT: ELU) and dropout in between.

    Parameters have the names of torch_geometric.nn.models.GraphSAGE, GCN and GAT: weights load both ways (there with
    ``norm=torch.nn.LayerNorm(hidden)`` where ``norm`` is "layer"). PyG's classes know no ``residual``. PyG has no model
    for "graphconv"; parameters of its layers have the names of torch_geometric.nn.GraphConv.

    Args:
        kind: "sage" (mean aggregation), "gcn", "gat" (heads are concatenated in hidden layers, averaged in the last) or
            "graphconv" (sums).
        in_dim, hidden, out_dim: features in, features of hidden layers, classes.
        num_layers: one a hop.
        dropout: probability, on the input of every layer but the first.
        layers: whose they are, "cohort" or "pyg": the same parameters, and the same results but for rounding.
        edge_weights: edges will have weights; of "gcn" and "graphconv", whose code is PyG's then, and of Cohort's
            "sage", as the shares of edges in means.
        norm: "layer" normalises each row of a hidden layer's output before the activation; "none".
        residual: a hidden layer but the first adds the rows of its input to its output, before ``norm``.
        heads: of "gat".
        edge_dim: features of each edge, of "gat" alone; 0: edges have none.

    Raises:
        CohortError: sizes that do not fit each other.
    """

    embeddings = ages = None  # of nodes without features, and of nodes with times, of TypedGNN

    def __init__(
        self,
        kind: str,
        in_dim: int,
        hidden: int,
        out_dim: int,
        num_layers: int,
        dropout: float,
        layers: str = "cohort",
        edge_weights: bool = False,
        *,
        norm: str = "none",
        residual: bool = False,
        heads: int = 4,
        edge_dim: int = 0,
    ):
        super().__init__()
        if kind not in ONE_TYPE:
            raise CohortError("--model", listed(ONE_TYPE), kind)
        rules = MODELS[kind]
        self.takes_weights = rules.takes_weights and (edge_weights or layers == "pyg")
        self.takes_weights |= rules.takes_shares and edge_weights and layers == "cohort"
        if rules.has_heads and hidden % heads:
            raise CohortError("--hidden", f"a multiple of {heads}, the --heads of {kind}", str(hidden))
        if residual and num_layers < 3:
            hint = "the first and the last layer have rows of other sizes on their two sides"
            raise CohortError("--residual", "at least three layers", str(num_layers), hint)
        dims = [in_dim] + [hidden] * (num_layers - 1) + [out_dim]
        heads = heads if rules.has_heads else 1
        conv = getattr(_library(layers, edge_weights and rules.takes_weights), rules.layer)
        head_options = {"heads": heads, "edge_dim": edge_dim or None} if rules.has_heads else {}
        self.convs = nn.ModuleList()
        for i in range(num_layers):
            is_last = i == num_layers - 1
            width = dims[i + 1] if is_last else dims[i + 1] // heads  # heads of the last layer are averaged
            self.convs.append(conv(dims[i], width, **head_options | ({"concat": not is_last} if head_options else {})))
        self.norms = nn.ModuleList(nn.LayerNorm(hidden) for _ in range(num_layers - 1)) if norm == "layer" else None
        self.residual = residual
        wide = [dims[i + 1] * (heads if i == num_layers - 1 else 1) for i in range(num_layers)]
        more = 2 + residual + (norm != "none")
        self.widths = [  # columns of a layer's output, and of all that it may make of a source's row and a target's
            (dims[i + 1], wide[i] + 2 * heads if rules.projects_sources else 0, dims[i] + more * wide[i] + 4 * heads)
            for i in range(num_layers)
        ]
        self.num_classes, self.edge_dim = out_dim, edge_dim
        self.edge_types, self.edge_dims = [[EDGE_TYPE]] * num_layers, {EDGE_TYPE: edge_dim} if edge_dim else {}
        self.activation = rules.activation
        self.dropout = dropout
        self.two_sided = rules.two_sided
        self.takes_indexed_blocks = (
            layers == "cohort" and rules.reads_in_place and (rules.takes_shares or not edge_weights)
        )
        self.fused = layers == "cohort"

    def forward(
        self,
        x: Tensor | IndexedRows,
        edge_index: Tensor | list[Block],
        num_sampled_nodes: list[int] | None = None,
        num_sampled_edges: list[int] | None = None,
        edge_weight: Tensor | None = None,
        edge_attr: Tensor | None = None,
    ) -> Tensor:
        """Scores float [rows, out_dim]; the seeds are the first rows.

        Edges are one tensor for all layers, or a Block for each, of Cohort's layers; with Blocks rows may be
        IndexedRows where the model ``reads_in_place``. With the two lists of a sampled batch, each layer leaves out the
        nodes and edges that no seed needs any more. ``edge_weight`` [edges], in the order of the first layer's, is for
        models that take weights; ``edge_attr`` [edges, edge_dim], likewise, for models made with an ``edge_dim``.
        """
        if edge_weight is not None and not self.takes_weights:
            expected = f"a model that takes weights: {models_with('takes_weights')}, made with edge_weights"
            raise CohortError("edge_weight", expected, "a model without them", "leave the weights out")
        if (edge_attr is None) != (self.edge_dim == 0):
            expected = f"features [edges, {self.edge_dim}]" if self.edge_dim else "none: the model was made without"
            raise CohortError("edge_attr", expected, "none" if edge_attr is None else str(list(edge_attr.shape)))
        edges, named = edge_index, (("edge_weight", edge_weight), ("edge_attr", edge_attr))
        inputs = edge_inputs = {name: values for name, values in named if values is not None}
        # Layers that take it do it as they read their input, where nothing comes between.
        is_read = self.fused and self.activation == "relu" and self.norms is None and not self.residual
        between = Activation("relu", self.dropout, self.training) if is_read else None
        for i, layer in enumerate(self.convs):
            read = x
            if isinstance(edge_index, list):
                edges = edge_index[i]
                inputs = {name: values[: edges.source.shape[0]] for name, values in edge_inputs.items()}
                if isinstance(x, IndexedRows):
                    x, edges = x.rows, _indexed(edges, x.row_index)
                if not is_indexed(edges):  # where they are, x has rows of others, too
                    x = first_rows_of(x, edges.num_sources)
                    x = (x, x[: edges.num_targets]) if self.two_sided else x
            elif num_sampled_nodes is not None and num_sampled_edges is not None:
                hops = len(num_sampled_edges) - i  # whose edges this layer still needs
                x = first_rows_of(x, sum(num_sampled_nodes[: hops + 1]))
                edges = edge_index[:, : sum(num_sampled_edges[:hops])]
                num_targets = sum(num_sampled_nodes[:hops])  # rows only for the nodes that the next layer reads
                inputs = {name: values[: edges.shape[1]] for name, values in edge_inputs.items()}
                if self.two_sided:
                    x = (x, x[:num_targets])
                elif self.fused and not inputs:
                    edges = block_of(edges, x.shape[0], num_targets)
            x = layer(x, edges, activation=between, **inputs) if between and i > 0 else layer(x, edges, **inputs)
            x = x if between else self._after(i, x, read)
        return x

    def reads_in_place(self, rows: Tensor) -> bool:
        """Whether the model, given IndexedRows of a table and Blocks, makes no copy of them."""
        return self.takes_indexed_blocks and rows.dtype == torch.float32

    def layer_on(
        self,
        number: int,
        x: dict[str, Tensor],
        blocks: dict[EdgeType, Block],
        num_targets: dict[str, int],
        edge_attr: dict[EdgeType, Tensor],
    ) -> dict[str, Tensor]:
        """The output of layer `number`, one of Cohort's: the targets' rows, activated where another layer follows.

        ``x`` has the rows of a block's sources, targets first, or all rows that a block with own_row_index may
        name. All is by type, as in TypedGNN; ``edge_attr``: [edges, edge_dim]."""
        ((name, rows),), ((relation, block),) = x.items(), blocks.items()
        pair = self.two_sided and not is_indexed(block)
        own = rows[block.own_row_index] if is_indexed(block) and self.residual else rows
        inputs = (rows, rows[: block.num_targets]) if pair else rows
        edge_inputs = {"edge_attr": edge_attr[relation]} if edge_attr else {}
        return {name: self._after(number, self.convs[number](inputs, block, **edge_inputs), own)}

    def width_of(self, number: int) -> int:
        """Columns of the output of layer `number`."""
        return self.widths[number][0]

    def working_widths_of(self, number: int, width: int, num_relations: int) -> tuple[int, int]:
        """Columns beside its input that layer `number` may make of a source's row, and of a target's.

        Args:
            width: columns of its input.
            num_relations: edge types into the targets.
        """
        return self.widths[number][1:]

    def _after(self, number: int, x: Tensor, read: Tensor) -> Tensor:
        """The output of layer `number` as the next one reads it; ``read``: what it read itself, targets first."""
        if number == len(self.convs) - 1:
            return x
        if self.residual and number > 0:
            x = x + read[: x.shape[0]]
        x = x if self.norms is None else self.norms[number](x)
        if self.fused:
            return activated(x, self.activation, self.dropout, self.training)
        return F.dropout(getattr(F, self.activation)(x), self.dropout, self.training)


def called_by_type(model: Callable) -> Callable:
    """Wraps a SampledGNN, or a model with its arguments, in a function with the arguments of a TypedGNN, for batches of
    a graph of one node type; weights of edges come last."""

    def call(x, edges, nodes=None, counts=None, edge_attr=None, edge_weight=None):
        (rows,) = x.values()
        layers = [only for blocks in (edges if isinstance(edges, list) else [edges]) for only in blocks.values()]
        edge_index = layers if isinstance(edges, list) else layers[0]
        if nodes is None or counts is None:
            return model(rows, edge_index)
        edge_data = edge_weight, next(iter(edge_attr.values()), None) if edge_attr else None
        return model(rows, edge_index, *nodes.values(), *counts.values(), *edge_data)

    return call


def _indexed(block: Block, row_index: Tensor) -> Block:
    """A block whose sources are rows ``row_index``, int64 [nodes], unless its sources are rows already."""
    return (
        block
        if is_indexed(block)
        else replace(block, row_index=row_index, own_row_index=row_index[: block.num_targets])
    )


def first_rows_of(x, count: int):
    """``x[:count]`` of a tensor or of IndexedRows, without a step of its own on the way back where that is all."""
    if count == x.shape[0]:
        return x
    return x.first(count) if isinstance(x, IndexedRows) else x[:count]


def _library(layers: str, edge_weights: bool):
    """The package or module that has the layers. PyG's is imported only where it is asked for."""
    if layers not in ("cohort", "pyg"):
        raise CohortError("--layers", "cohort or pyg", layers)
    if layers == "cohort" and not edge_weights:
        return own_layers
    return importlib.import_module("torch_geometric.nn" if layers == "pyg" else "cohort_gnn.nn")


def model_input(x: torch.Tensor, keep_half: bool = False) -> torch.Tensor:
    """Features as the model takes them: uint8 becomes float32, and so do 16-bit floats unless ``keep_half``."""
    return x if x.dtype in input_dtypes(keep_half) else x.float()


def input_dtypes(keep_half: bool = False) -> set[torch.dtype]:
    """Dtypes of features that model_input() leaves as they are."""
    return {torch.float32, torch.bfloat16, torch.float16} if keep_half else {torch.float32}
