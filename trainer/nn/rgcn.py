"""The layer of relational graph convolutional networks."""

import torch
from torch import Tensor

from cohort_gnn.base.errors import CohortError
from cohort_gnn.nn.block import Block, block_of, rows_of_ends
from cohort_gnn.nn.inputs import amp_dtype
from cohort_gnn.nn.kernels import matrix_of
from cohort_gnn.nn.linear import linear
from cohort_gnn.nn.sage import SUMS
from cohort_gnn.nn.typed_edges import dense_blocks, typed_edges, typed_sums, types_in_order


class RGCNRules:
    """What a layer with PyG's parameters and arguments computes for rows of features."""

    aggr: str
    out_channels: int
    num_relations: int
    num_bases: int | None
    num_blocks: int | None
    weight: Tensor
    comp: Tensor | None
    root: Tensor | None
    bias: Tensor | None

    def forward(
        self, x: Tensor | tuple[Tensor, Tensor], edge_index: Tensor | Block, edge_type: Tensor | None = None
    ) -> Tensor:
        """[targets, out_channels].

        Args:
            x: [nodes, in_channels], of which a Block's targets are the first; or a pair for sources and targets.
            edge_index: int64 [2, edges] of sources and targets, or a Block.
            edge_type: int64 [edges], in [0, num_relations), in the order of ``edge_index``, or in that of the Block.
        """
        name, (source, target) = type(self).__name__, rows_of_ends(x, edge_index)
        if target is None:
            raise CohortError(f"{name}: x", "rows of sources and of targets", "None for targets")
        block, source = block_of(edge_index, source.shape[0], target.shape[0]), matrix_of(source)
        typed = typed_edges(name, block, types_in_order(name, edge_type, block), self.num_relations)
        out = typed_sums(source, self._matrices().unsqueeze(1), typed, mean=SUMS[self.aggr])
        if self.root is not None:
            return out + linear(target.to(amp_dtype(target)), self.root.t(), self.bias)
        return out if self.bias is None else out + self.bias

    def _matrices(self) -> Tensor:
        """[relations, in_channels, out_channels]"""
        if self.num_bases is not None:
            return torch.tensordot(self.comp, self.weight, 1)
        return self.weight if self.num_blocks is None else dense_blocks(self.weight)
