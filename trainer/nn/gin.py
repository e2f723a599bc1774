"""The layers of graph isomorphism networks, without and with features of edges."""

import torch
from torch import Tensor, nn

from cohort_gnn.base.errors import CohortError
from cohort_gnn.nn import ops
from cohort_gnn.nn.block import Block, block_of, rows_of_ends
from cohort_gnn.nn.inputs import edge_rows_of
from cohort_gnn.nn.joined_ops import relu_sum
from cohort_gnn.nn.kernels import matrix_of
from cohort_gnn.nn.linear import through
from cohort_gnn.nn.sage import SUMS


class GINRules:
    """What a layer with PyG's parameters and arguments computes."""

    aggr: str
    nn: nn.Module
    eps: Tensor

    def forward(
        self,
        x: Tensor | tuple[Tensor, Tensor | None],
        edge_index: Tensor | Block,
        size: tuple[int, int] | None = None,
    ) -> Tensor:
        """What ``nn`` makes of [targets, in_channels]: (1 + eps) * own row + sum of the rows of sources.

        Args:
            x: [nodes, in_channels], of which a Block's targets are the first; or a pair for sources and targets; None
                for targets: they have no rows.
            edge_index: int64 [2, edges] of sources and targets, or a Block.
            size: (sources, targets), needed only without rows of targets.
        """
        source, target, block = _rows_and_block(x, edge_index, size)
        if self.aggr in SUMS:
            edges = block.indptr, block.source, block.num_targets
            out = ops.gather_sum(source, None, None, *edges, SUMS[self.aggr], ops.BESIDE_NONE, 0.0, source.dtype)[0]
        else:
            out = ops.gather_max(source, block.indptr, block.source, block.num_targets)[0]
        return through(self.nn, _with_own(out, target, self.eps))


class GINERules:
    """What a layer with PyG's parameters and arguments computes."""

    nn: nn.Module
    eps: Tensor
    lin: nn.Module | None

    def forward(
        self,
        x: Tensor | tuple[Tensor, Tensor | None],
        edge_index: Tensor | Block,
        edge_attr: Tensor | None = None,
        size: tuple[int, int] | None = None,
    ) -> Tensor:
        """What ``nn`` makes of [targets, in_channels]: (1 + eps) * own row + sum of relu(source's row + edge's row).

        Args:
            x, edge_index, size: as of GINRules.
            edge_attr: [edges, edge_dim], or without edge_dim [edges, in_channels]; in the order of ``edge_index``, or
                in that of the Block.
        """
        source, target, block = _rows_and_block(x, edge_index, size)
        if self.lin is None:
            rows = edge_rows_of(self, edge_attr, block, source.shape[1])
        else:
            rows = through(self.lin, edge_rows_of(self, edge_attr, block))
            if rows.shape[1] != source.shape[1]:
                expected = f"{rows.shape[1]} columns, the inputs of nn when the layer was made with edge_dim"
                raise CohortError(f"{type(self).__name__}: x", expected, f"{source.shape[1]} columns")
        out = relu_sum(source, rows.to(source.dtype).contiguous(), block.indptr, block.source, block.num_targets)
        return through(self.nn, _with_own(out, target, self.eps))


def _rows_and_block(
    x: Tensor | tuple[Tensor, Tensor | None], edge_index: Tensor | Block, size: tuple[int, int] | None
) -> tuple[Tensor, Tensor | None, Block]:
    """Rows of sources, rows of targets, the edges between them."""
    source, target = rows_of_ends(x, edge_index)
    num_targets = target.shape[0] if target is not None else (size or source.shape)[1 if size else 0]
    return matrix_of(source), target, block_of(edge_index, source.shape[0], num_targets)


def _with_own(out: Tensor, target: Tensor | None, eps: Tensor) -> Tensor:
    """Sums and (1 + eps) * own rows."""
    return out if target is None else torch.addcmul(out, target, (1 + eps).to(out.dtype))
