"""PyG's layers for sampled blocks, with gather and reduction in one kernel.

``SAGEConv`` has the arguments, parameters and results of the layer of that name in torch_geometric.nn. It takes
the batches of ``cohort.NeighborLoader`` without sorting anything; see ``Block``.
"""

from cohort.nn.block import Block
from cohort.nn.sage import SAGEConv

__all__ = ["Block", "SAGEConv"]
