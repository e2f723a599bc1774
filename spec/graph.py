"""The types of a graph's nodes and edges, as loaders, trainers and run.json have them."""

from dataclasses import dataclass, field
from itertools import accumulate

EdgeType = tuple[str, str, str]

# What the node type and the edge type are called where the data set or the user names none: of a `Dataset`, of PyG's
# `Data`, and of meta.json of versions 1 and 2. Files, results and messages leave these names out.
NODE_TYPE = "node"
EDGE_TYPE = (NODE_TYPE, "to", NODE_TYPE)
NO_TIME = -(2**63)  # of a node that is always there


@dataclass(frozen=True)
class GraphTypes:
    """Node types and edge types, one of each at least, in the order in which the sampler numbers them.

    Attributes:
        counts: nodes of each node type.
        feature_dims: features of each node type, in the same order; 0: it has none.
        edge_types: (source type, name, target type).
        target: the node type that has labels.
        relation: whose edges are predicted; of a task of links (source type, its name, target type), which is none of
            edge_types; None: labels are.
        edge_dims: features of each edge that batches have, by edge type, in the same order; empty: they have none.
        age_spans: of the node types of which a model reads how old nodes are: the greatest age in training, at least 1.
    """

    counts: dict[str, int]
    feature_dims: dict[str, int]
    edge_types: list[EdgeType]
    target: str
    relation: EdgeType | None = None
    edge_dims: list[int] = field(default_factory=list)
    age_spans: dict[str, int] = field(default_factory=dict)

    @property
    def edge_dim_of(self) -> dict[EdgeType, int]:
        """Features of each edge that batches have, of those edge types that have some."""
        return {name: dim for name, dim in zip(self.edge_types, self.edge_dims, strict=False) if dim}

    @property
    def outputs(self) -> list[str]:
        """The node types that a model has outputs for: the target, or both node types of the predicted relation."""
        predicted = {self.target} if self.relation is None else {self.relation[0], self.relation[2]}
        return [name for name in self.counts if name in predicted]

    def edge_types_by_layer(self, num_layers: int) -> list[list[EdgeType]]:
        """For each layer of a model, the first one first, the edge types on which its outputs depend."""
        wanted, layers = set(self.outputs), []
        for _ in range(num_layers):
            layers.append([name for name in self.edge_types if name[2] in wanted])
            wanted |= {name[0] for name in layers[-1]}
        return layers[::-1]

    def without_features(self, num_layers: int) -> list[str]:
        """The node types that the first layer of a model reads and that have no features."""
        endpoints = {end for source, _, target in self.edge_types_by_layer(num_layers)[0] for end in (source, target)}
        return [name for name, dim in self.feature_dims.items() if not dim and name in endpoints]

    def numbered(self, ids, fanout: list[int]):
        """Nodes of the target type, int [n], and a fanout of all edge types, as the sampler takes them: ids among the
        nodes of all types, and a fanout for each edge type."""
        return ids + self.first_node[self.target], fanout * len(self.edge_types)

    @property
    def first_node(self) -> dict[str, int]:
        """Of each node type, the number of its first node when the nodes of all types are numbered through."""
        return dict(zip(self.counts, accumulate(self.counts.values(), initial=0), strict=False))


ONE_OF_EACH = GraphTypes({NODE_TYPE: 0}, {NODE_TYPE: 0}, [EDGE_TYPE], NODE_TYPE)  # whatever the numbers are
