"""The types of a graph with several of them, as loaders, trainers and run.json have them."""

from dataclasses import dataclass
from itertools import accumulate

EdgeType = tuple[str, str, str]


@dataclass(frozen=True)
class GraphTypes:
    """Node types and edge types, in the order in which the sampler numbers them.

    Attributes:
        counts: nodes of each node type.
        feature_dims: features of each node type, in the same order; 0: it has none.
        edge_types: (source type, name, target type).
        target: the node type that has labels.
    """

    counts: dict[str, int]
    feature_dims: dict[str, int]
    edge_types: list[EdgeType]
    target: str

    @property
    def first_node(self) -> dict[str, int]:
        """Of each node type, the number of its first node when the nodes of all types are numbered through."""
        return dict(zip(self.counts, accumulate(self.counts.values(), initial=0), strict=False))
