"""Models of graphs of several types: R-SAGE, R-GCN, R-GAT and HGT."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn.module_dict import ModuleDict

from cohort_gnn.base.errors import CohortError
from cohort_gnn.nn import kernels
from cohort_gnn.nn.activation import ACTIVATIONS, Activation, activated
from cohort_gnn.nn.block import Block
from cohort_gnn.nn.inputs import IndexedRows
from cohort_gnn.nn.node_embedding import NodeEmbedding
from cohort_gnn.spec.graph import EdgeType, GraphTypes
from cohort_gnn.spec.models import MODELS, ModelKind
from cohort_gnn.trainer.models.ages import AgeRows
from cohort_gnn.trainer.models.sampled import first_rows_of
from cohort_gnn.trainer.models.typed_layers import BatchNorm, relations_of, transformer_of


class TypedGNN(nn.Module):
    """A stack of layers for graphs of several types, with an activation and dropout in between.

    A layer has only the edge types on which the scores of the target type depend, or, to predict links, the rows of
    both ends of the relation. Types without features have no rows
    in the first layer. Row i of a node type becomes a sum over the edge types into it, where j are the sources of the
    edges into i, and W, V, b those of the edge type:

    - "rsage": W mean(x_j) + V x_i + b (GraphSAGE's layer, Hamilton et al., NeurIPS 2017), then ReLU;
    - "rgcn": W mean(x_j); V x_i + b of the node type is added once (Schlichtkrull et al., ESWC 2018), then ReLU;
    - "rgat": attention as in GATConv, heads concatenated, without edges from a node to itself, with the features of
      edges where the edge type has some, then leaky ReLU of slope 0.01; a linear part maps the last layer's rows to
      scores (MLPerf's model of IGBH), unless links are predicted;
    - "hgt": the heterogeneous graph transformer (Hu et al., WWW 2020), without an activation, between a linear part
      with ReLU for each node type and, unless links are predicted, one that makes the scores. Targets without features
      have rows of zeros.

    Where the model reads ages of nodes (``types.age_spans``), all kinds begin as "hgt" does: a linear part of each node
    type's features, to which AgeRows adds those of its nodes' ages, then ReLU. A node type that has ages and no
    features has the rows of its ages.

    Parameters have the names of a ``ModuleList`` ``convs`` of PyG's ``HeteroConv`` with ``aggr="sum"``, of ``SAGEConv``
    or ``GATConv``, or of ``HGTConv``; those of R-GCN's nodes are ``convs.*.root``, those of the last part of R-GAT and
    HGT ``lin``, those of the first part ``lin_dict``, and those of ages ``ages.lins``.

    Args:
        kind: "rsage", "rgcn", "rgat" or "hgt".
        types: of the graph.
        hidden, out_dim: features of hidden layers, classes.
        num_layers: one a hop.
        dropout: probability, on the input of every layer but the first.
        layers: whose they are, "cohort" or "pyg": the same parameters, and the same results but for rounding.
        norm: of a hidden layer's output, before the activation: "layer" normalises each row, "batch" each column over
            the rows of a node type; "none".
        residual: a hidden layer but the first adds the rows of its input, where the node type has some, to its output,
            before ``norm``; not of "hgt".
        heads: of attention.
        featureless: what types without features have in the first layer: "zero" no rows; "embed" learnable ones, of
            ``hidden`` columns, looked up by id.

    Raises:
        CohortError: no features reach the target type within the hops.
    """

    takes_types, two_sided, takes_indexed_blocks = True, True, False

    def __init__(
        self,
        kind: str,
        types: GraphTypes,
        hidden: int,
        out_dim: int,
        num_layers: int,
        dropout: float,
        layers: str = "cohort",
        *,
        norm: str = "none",
        residual: bool = False,
        heads: int = 4,
        featureless: str = "zero",
    ):
        super().__init__()
        self.kind, self.outputs, self.dropout, self.num_classes = kind, types.outputs, dropout, out_dim
        self.of_links, rules = types.relation is not None, self.rules
        self.residual, self.fused = residual, layers == "cohort"
        self.edge_dims = types.edge_dim_of if rules.takes_edge_features else {}
        self.takes_indexed_rows = (
            self.fused and rules.reads_in_place and not types.age_spans
        )  # rows of x may be IndexedRows, see reads_in_place()
        dims = {name: dim for name, dim in types.feature_dims.items() if dim}
        self.embeddings = None
        if featureless == "embed" and (names := types.without_features(num_layers)):
            self.embeddings = ModuleDict({name: NodeEmbedding(types.counts[name], hidden) for name in names})
            dims |= dict.fromkeys(names, hidden)
        self.convs, self.norms = nn.ModuleList(), nn.ModuleList()
        self.edge_types: list[list[EdgeType]] = []  # of each layer
        self.hidden = hidden
        self.lin = nn.Linear(hidden, out_dim) if rules.has_linear_end and not self.of_links else None
        self.lin_dict = ModuleDict()
        self.ages = AgeRows(types.age_spans, hidden) if types.age_spans else None
        if self.begins_linear:
            read = {end for source, _, target in types.edge_types_by_layer(num_layers)[0] for end in (source, target)}
            self.lin_dict.update({name: nn.Linear(dim, hidden) for name, dim in dims.items() if name in read})
            dims = dict.fromkeys((*self.lin_dict.keys(), *types.age_spans), hidden)
        for edge_types in types.edge_types_by_layer(num_layers):
            is_last = len(self.convs) + 1 == num_layers
            known = [name for name in edge_types if name[0] in dims]
            self.edge_types.append(known)
            width = out_dim if is_last and self.lin is None else hidden
            if self.is_transformer and known:
                endpoint_types = {end for source, _, target in known for end in (source, target)}
                node_types = [name for name in types.counts if name in endpoint_types]
                self.convs.append(transformer_of(known, node_types, width, heads, layers))
            else:
                self.convs.append(relations_of(rules, known, dims, width, heads, layers, self.edge_dims))
            dims = {name[2]: width for name in known}
            if norm != "none" and not is_last:
                norm_type = nn.LayerNorm if norm == "layer" else BatchNorm
                self.norms.append(ModuleDict({name: norm_type(width) for name in dims}))
        if without := [name for name in self.outputs if name not in dims]:
            hint = "more hops in --fanout, features of another node type, or --featureless embed"
            actual = ", ".join(name for name, dim in types.feature_dims.items() if dim) or "none"
            raise CohortError("--fanout", f"edges that bring features to {without[0]}", f"features of: {actual}", hint)

    @property
    def rules(self) -> ModelKind:
        """The ModelKind of the model."""
        return MODELS[self.kind]

    @property
    def is_transformer(self) -> bool:
        """Whether its layers are those of the heterogeneous graph transformer."""
        return self.rules.layer == "HGTConv"

    @property
    def begins_linear(self) -> bool:
        """Whether the first layer reads what a linear part of each node type makes of features and ages."""
        return self.is_transformer or self.ages is not None

    def forward(
        self,
        x: dict[str, Tensor | IndexedRows],
        edge_index: dict[EdgeType, Tensor] | list[dict[EdgeType, Block]],
        num_sampled_nodes: dict[str, list[int]] | None = None,
        num_sampled_edges: dict[EdgeType, list[int]] | None = None,
        edge_attr: dict[EdgeType, Tensor] | None = None,
        ages: dict[str, Tensor] | None = None,
    ) -> Tensor | dict[str, Tensor]:
        """Scores float [nodes of the target type, out_dim]; those of seeds are the first. To predict links, rows float
        [nodes, out_dim] of the node type of each end of the relation.

        With the two lists of each type of a sampled batch, a layer leaves out the nodes and edges that no seed needs
        any more.

        Args:
            x: float [nodes, features] of each node type, or, for a model that ``takes_indexed_rows``, IndexedRows; of
                one without features int64 [nodes], ids of the type.
            edge_index: int64 [2, edges] of each edge type; or a dict of Blocks for each layer, of Cohort's layers,
                with the two lists.
            edge_attr: float [edges, edge_dim] of each edge type with features, of "rgat" made with some alone.
            ages: int64 [nodes] of each node type of ``types.age_spans``: the time of a node's seed less the time of the
                node, in the unit of the data set's times; negative: it has none.

        Raises:
            CohortError: ``edge_attr`` lacks an edge type whose features the model reads, or ``ages`` a node type.
        """
        attributes = {name: rows for name, rows in (edge_attr or {}).items() if name in self.edge_dims}
        if lacking := [name for name in self.edge_dims if name not in attributes]:
            expected = f"features [edges, {self.edge_dims[lacking[0]]}] of {', '.join(lacking[0])}"
            raise CohortError("edge_attr", expected, "none")
        num_rows = {name: rows.shape[0] for name, rows in x.items()}
        for number in range(len(self.convs)):
            hops = len(self.convs) - number
            layer_edges = edge_index[number] if isinstance(edge_index, list) else edge_index
            edges: dict = {name: layer_edges[name] for name in self.edge_types[number]}
            if num_sampled_nodes is not None and num_sampled_edges is not None:  # those that this layer still needs
                num_rows = {name: sum(sizes[:hops]) for name, sizes in num_sampled_nodes.items()}
                x = {name: first_rows_of(rows, sum(num_sampled_nodes[name][: hops + 1])) for name, rows in x.items()}
                if not isinstance(edge_index, list):
                    edges = {name: pairs[:, : sum(num_sampled_edges[name][:hops])] for name, pairs in edges.items()}
                attributes = {name: rows[: sum(num_sampled_edges[name][:hops])] for name, rows in attributes.items()}
            x = self.layer_on(number, x, edges, num_rows, attributes, ages)
        return {name: x[name] for name in self.outputs} if self.of_links else x[self.outputs[0]]

    def _first_rows(self, x: dict, ages: dict[str, Tensor] | None) -> dict:
        """What the first layer reads, from rows and ids, and ages, as `forward` takes them."""
        ids, x = x, {name: rows for name, rows in x.items() if len(rows.shape) == 2 and rows.shape[1]}
        if self.embeddings is not None:
            x |= {name: rows(ids[name]) for name, rows in self.embeddings.items()}
        if self.begins_linear:
            x = {name: lin(x[name]) for name, lin in self.lin_dict.items()}
            for name, rows in {} if self.ages is None else self.ages(ages).items():
                x[name] = x[name] + rows if name in x else rows
            x = {name: rows.relu() for name, rows in x.items()}
        return x

    def reads_in_place(self, rows: Tensor) -> bool:
        """Whether the first layer, given IndexedRows of a table, makes no copy of most of them."""
        # A GPU has no kernel for attention's scores of other rows. A CPU has no pools, and so no copies to save.
        has_kernel = not (self.rules.has_heads and rows.is_cuda) or kernels.takes_indexed_scores(rows)
        return self.takes_indexed_rows and has_kernel

    def layer_on(
        self,
        number: int,
        x: dict[str, Tensor],
        edges: dict,
        num_targets: dict[str, int],
        edge_attr: dict[EdgeType, Tensor] | None = None,
        ages: dict[str, Tensor] | None = None,
    ) -> dict[str, Tensor]:
        """The output of a layer, with all that comes before and after it: the input of the next layer, or scores. Edges
        are int64 [2, edges] or a Block of each edge type; x, edge_attr and ages are as `forward` takes them."""
        x = self._first_rows(x, ages) if number == 0 else x
        if self.is_transformer:
            x = self._with_targets(x, self.convs[number], num_targets)
        reads = self._activates_as_it_reads()
        before = Activation("relu", self.dropout, self.training) if reads and number > 0 else None
        others = {"activation": before, "edge_attr": edge_attr}
        out = self.convs[number](x, edges, num_targets, **{name: other for name, other in others.items() if other})
        if number + 1 == len(self.convs):
            return out if self.lin is None else {name: self.lin(rows) for name, rows in out.items()}
        return out if reads else {name: self._between(number, name, rows, x) for name, rows in out.items()}

    def _activates_as_it_reads(self) -> bool:
        """Whether nothing comes between layers but what a layer can do to its input as it reads it."""
        return self.fused and self.rules.activation == "relu" and not self.residual and not len(self.norms)

    def width_of(self, number: int) -> int:
        """Columns of what layer `number`, not the last one, puts out."""
        return self.hidden

    def working_widths_of(self, number: int, width: int, num_relations: int) -> tuple[int, int]:
        """As of SampledGNN: projections, keys, values and what becomes of them, of a target for each edge type."""
        made = 4 * self.hidden
        return made, num_relations * (width + made) - width

    def _between(self, number: int, name: str, rows: Tensor, read: dict[str, Tensor]) -> Tensor:
        """The output of a layer for a node type as the next one reads it; ``read``: what it read itself."""
        if self.residual and number > 0 and name in read:
            rows = rows + read[name][: rows.shape[0]]
        if len(self.norms):
            rows = self.norms[number][name](rows)
        if self.fused and self.rules.activation in ACTIVATIONS:
            return activated(rows, self.rules.activation, self.dropout, self.training)
        if self.rules.activation != "none":
            rows = getattr(F, self.rules.activation)(rows)
        if self.fused and self.dropout and self.training:  # by keys of its own, as a CUDA graph needs it
            return rows * activated(torch.ones_like(rows), "relu", self.dropout)
        return F.dropout(rows, self.dropout, self.training)

    def _with_targets(self, x: dict[str, Tensor], layer: nn.Module, num_targets: dict[str, int]) -> dict[str, Tensor]:
        """The rows that a layer of HGT reads, with zeros where targets have none."""
        some = next(iter(x.values()))
        zeros = {name: some.new_zeros(num_targets[name], self.hidden) for name in layer.node_types if name not in x}
        return {name: (x | zeros)[name] for name in layer.node_types}
