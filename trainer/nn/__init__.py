"""PyG's layers for sampled blocks, with gather and reduction in one kernel.

``SAGEConv``, ``GraphConv``, ``GCNConv``, ``GATConv``, ``GATv2Conv``, ``TransformerConv``, ``GINConv``, ``GINEConv``,
``RGCNConv``, ``RGATConv`` and ``HGTConv`` have the arguments, parameters and results of the layers of the same names in
torch_geometric.nn. They accept batches of ``cohort.NeighborLoader`` without sorting edges; see ``Block``.
``accelerate`` replaces PyG's layers in an existing model.

``NodeEmbedding`` holds learnable rows of nodes, also in host memory; ``RowAdam`` and ``RowAdagrad`` train the rows that
batches read.
"""

import importlib

# Loaded on first use: some import PyG, for which no run of `cohort train` shall wait.
_HOMES = {
    "Block": "block",
    "GATConv": "pyg_layers",
    "GATv2Conv": "pyg_edge_layers",
    "GCNConv": "pyg_layers",
    "GINConv": "pyg_edge_layers",
    "GINEConv": "pyg_edge_layers",
    "GraphConv": "pyg_layers",
    "HGTConv": "pyg_layers",
    "NodeEmbedding": "node_embedding",
    "RGATConv": "pyg_edge_layers",
    "RGCNConv": "pyg_edge_layers",
    "Replacement": "pyg_layers",
    "RowAdagrad": "row_optimizers",
    "RowAdam": "row_optimizers",
    "SAGEConv": "pyg_layers",
    "TransformerConv": "pyg_edge_layers",
    "accelerate": "pyg_layers",
    "activated": "activation",
}
__all__ = [*_HOMES]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str):
    if name in _HOMES:
        return getattr(importlib.import_module(f"cohort_gnn.nn.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'cohort_gnn.nn' has no attribute {name!r}")
