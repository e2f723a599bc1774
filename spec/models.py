"""The built-in models of ``cohort train``: an entry of MODELS each.

The command line, checks of options, the planner, benches and the trainer read it. SampledGNN (graphs of one node type)
and TypedGNN (several), in trainer/models/, make the layers.
"""

from dataclasses import dataclass
from functools import partial


@dataclass(frozen=True)
class ModelKind:
    """What ``--model`` can name.

    Attributes:
        title: its name in texts.
        layer: the class of its layers, in cohort.nn and in torch_geometric.nn.
        several_types: it is for graphs of several node types, otherwise of one.
        activation: between layers: "relu", "elu", "leaky_relu" or "none".
        has_heads: layers have attention heads (--heads).
        takes_weights, takes_edge_features: layers read the weights of edges (--use-edge-weights), their features.
        takes_shares: layers compute means, to which edges can have unlike shares (--importance-sampling).
        takes_residual: hidden layers can add their input to their output (--residual).
        two_sided: a layer reads rows of sources and of targets; otherwise rows of one set of nodes, and their degrees.
        reads_in_place: the first layer can read rows where they are in a table or a pool.
        projects_sources: a layer may multiply the rows of sources by weights before it sums them.
        has_linear_end: a linear part makes the scores from the rows of the last layer.
        own_by_type: weights of a target's own row, and the bias, are of its node type, otherwise of each edge type.
        parameters: matrices [input columns, output columns] and vectors [output columns] of each head of a layer,
            beside the bias; None: nobody has counted them.
    """

    title: str
    layer: str = ""
    several_types: bool = False
    activation: str = "relu"
    has_heads: bool = False
    takes_weights: bool = False
    takes_edge_features: bool = False
    takes_shares: bool = False
    takes_residual: bool = True
    two_sided: bool = True
    reads_in_place: bool = True
    projects_sources: bool = True
    has_linear_end: bool = False
    own_by_type: bool = False
    parameters: tuple[int, int] | None = None

    @property
    def skips_last_ids(self) -> bool:
        """Whether the first layer needs no ids of nodes that only the last hop reaches, where it reads in place."""
        return not self.several_types and self.two_sided and self.reads_in_place


_attention = partial(ModelKind, has_heads=True)
MODELS = {
    "sage": ModelKind("SAGE (mean)", "SAGEConv", takes_shares=True, projects_sources=False, parameters=(2, 0)),
    "gcn": ModelKind("GCN", "GCNConv", takes_weights=True, two_sided=False, parameters=(1, 0)),
    "gat": _attention(
        "GAT", "GATConv", False, "elu", takes_edge_features=True, reads_in_place=False, parameters=(1, 2)
    ),
    "graphconv": ModelKind("GraphConv", "GraphConv", takes_weights=True, projects_sources=False, parameters=(2, 0)),
    "rsage": ModelKind("R-SAGE", "SAGEConv", True),
    "rgcn": ModelKind("R-GCN", "SAGEConv", True, own_by_type=True),
    "rgat": _attention("R-GAT", "GATConv", True, "leaky_relu", takes_edge_features=True, has_linear_end=True),
    "hgt": _attention("HGT", "HGTConv", True, "none", takes_residual=False, reads_in_place=False, has_linear_end=True),
}
OWN_MODEL = ModelKind(
    "a class of your own", takes_weights=True, takes_edge_features=True, takes_shares=True, reads_in_place=False
)
ONE_TYPE = [name for name, kind in MODELS.items() if not kind.several_types]
SEVERAL_TYPES = [name for name, kind in MODELS.items() if kind.several_types]


def listed(names: list[str], word: str = "or") -> str:
    """The names in a sentence.

    >>> listed(["sage", "gcn", "gat"])
    'sage, gcn or gat'
    """
    return f" {word} ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def models_with(attribute: str, word: str = "or") -> str:
    """The names of the models of which an attribute of ModelKind is true, in a sentence."""
    return listed([name for name, kind in MODELS.items() if getattr(kind, attribute)], word)
