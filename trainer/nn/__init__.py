"""PyG's layers for sampled blocks, with gather and reduction in one kernel.

``SAGEConv``, ``GCNConv`` and ``GATConv`` have the arguments, parameters and results of the layers of these names in
torch_geometric.nn. They take the batches of ``cohort.NeighborLoader`` without sorting anything; see ``Block``.
``accelerate`` puts them in the place of PyG's in a model that is there.
"""

from cohort.nn.activation import activated
from cohort.nn.block import Block
from cohort.nn.gat import GATConv
from cohort.nn.gcn import GCNConv
from cohort.nn.replace import Replacement, accelerate
from cohort.nn.sage import SAGEConv

__all__ = ["Block", "GATConv", "GCNConv", "Replacement", "SAGEConv", "accelerate", "activated"]
