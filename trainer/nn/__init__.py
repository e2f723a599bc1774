"""PyG's layers for sampled blocks, with gather and reduction in one kernel.

``SAGEConv``, ``GCNConv`` and ``GATConv`` have the arguments, parameters and results of the layers of these names in
torch_geometric.nn. They take the batches of ``cohort.NeighborLoader`` without sorting anything; see ``Block``.
``accelerate`` puts them in the place of PyG's in a model that is there.
"""

import importlib

# Loaded on first use: some import PyG, for which no run of `cohort train` shall wait.
_HOMES = {
    "Block": "block",
    "GATConv": "pyg_layers",
    "GCNConv": "pyg_layers",
    "Replacement": "replace",
    "SAGEConv": "pyg_layers",
    "accelerate": "replace",
    "activated": "activation",
}
__all__ = ["Block", "GATConv", "GCNConv", "Replacement", "SAGEConv", "accelerate", "activated"]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str):
    if name in _HOMES:
        return getattr(importlib.import_module(f"cohort.nn.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'cohort.nn' has no attribute {name!r}")
