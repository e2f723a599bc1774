"""The layer of graph convolutional networks."""

import torch
from torch import Tensor, nn

from cohort_gnn.base.errors import CohortError
from cohort_gnn.nn import kernels, ops
from cohort_gnn.nn.activation import Activation
from cohort_gnn.nn.block import Block, block_of
from cohort_gnn.nn.inputs import ELEMENT_COST, amp_dtype, is_indexed, materialize, require_indexed_rows
from cohort_gnn.nn.linear import called, linear
from cohort_gnn.nn.operators import operator
from cohort_gnn.nn.row_tiles import rows_stand_alone


class GCNRules:
    """What a layer with PyG's parameters and arguments computes, where edges have no weights."""

    out_channels: int
    normalize: bool
    add_self_loops: bool
    lin: nn.Module
    bias: Tensor | None

    def forward(self, x: Tensor, edge_index: Tensor | Block, *, activation: Activation | None = None) -> Tensor:
        """[targets, out_channels].

        Args:
            x: [nodes, in_channels]; for a Block with own_row_index all rows that it may name.
            edge_index: int64 [2, edges] of sources and targets, both nodes; or a Block.
            activation: what becomes of ``x`` first, as part of the same pass over memory where that is possible.
        """
        if not isinstance(x, Tensor):
            raise CohortError("GCNConv: x", "a tensor", type(x).__name__, "use SAGEConv for pairs")
        loop = 1.0 if self.add_self_loops else 0.0  # also where `improved`: PyG makes it 2 only beside weights
        if is_indexed(edge_index):
            require_indexed_rows(self, x, edge_index.row_index is not None, activation)
            return self._linear_of_sums(kernels.matrix_of(x), edge_index, loop, None)
        num_targets = edge_index.num_targets if isinstance(edge_index, Block) else x.shape[0]
        block = block_of(edge_index, x.shape[0], num_targets)
        x = kernels.matrix_of(x)
        sums_first = self._sums_first(block, x.shape[1])
        if activation is not None and not (sums_first and activation.fuses(x)):
            x, activation = activation(x), None
        if sums_first:
            return self._linear_of_sums(x, block, loop, activation)
        transformed = called(self.lin, x)
        out = self._summed(transformed, block, loop, transformed.dtype)
        if self.bias is None:
            return out
        is_amp = torch.is_autocast_enabled(x.device.type)
        return out + (self.bias if is_amp else self.bias.to(out.dtype))

    def _linear_of_sums(self, x: Tensor, block: Block, loop: float, activation: Activation | None) -> Tensor:
        """Rows are summed, then multiplied by the weights."""
        materialize(self.lin, x.shape[1], biased=False)
        rows = self._summed(x, block, loop, amp_dtype(x), activation)
        return linear(rows, self.lin.weight, self.bias)

    def _sums_first(self, block: Block, width: int) -> bool:
        """Whether it is less work to sum rows before they are multiplied by the weights; as where rows are indexed, if
        they stand alone."""
        if rows_stand_alone():
            return True
        edges, product = block.source.numel() * ELEMENT_COST, width * self.out_channels
        return edges * width + block.num_targets * product <= edges * self.out_channels + block.num_sources * product

    def _summed(
        self, x: Tensor, block: Block, loop: float, dtype: torch.dtype, activation: Activation | None = None
    ) -> Tensor:
        norm, drawn = self._norm(x, block, loop), activation.drawn() if activation is not None else ()
        edges, kind = (block.indptr, block.source, block.num_targets), (False, ops.BESIDE_NONE)
        loop_norm = 0.0 if norm is None else loop
        return ops.gather_sum(x, None, norm, *edges, *kind, loop_norm, dtype, *drawn, row_index=block.row_index)[0]

    def _norm(self, x: Tensor, block: Block, loop: float) -> Tensor | None:
        """1 / sqrt(degree) of each source, 0 without edges; None: the sums are plain."""
        if not self.normalize:
            return None
        dtype = kernels.sum_dtype(x.dtype)
        if block.degrees is not None:
            norm = (block.degrees.to(dtype) + loop).rsqrt_()
        else:
            norm = norm_of_degrees(block.indptr, block.source, block.num_targets, block.num_sources, loop, dtype)
        return norm if loop else norm.masked_fill(norm == float("inf"), 0.0)


@operator("norm_of_degrees")
def norm_of_degrees(
    indptr: Tensor, source: Tensor, num_targets: int, num_sources: int, loop: float, dtype: torch.dtype
) -> Tensor:
    """1 / sqrt(degree) of each source [num_sources]; its degree is the number of its edges as a target, without loops
    where each node gets one, and ``loop``.

    One step in a compiled model: where a graph breaks, torch keeps the batch until garbage is collected.
    """
    edges = kernels.GroupedEdges(indptr, source, num_targets, skip_self=loop != 0)
    one = torch.ones(1, 1, dtype=dtype, device=indptr.device)
    norm = one.new_full((num_sources,), loop)
    norm[:num_targets] += kernels.sum_rows(edges, one.expand(num_sources, 1)).view(-1)
    return norm.rsqrt_()


@norm_of_degrees.register_fake
def _(indptr, source, num_targets, num_sources, loop, dtype):
    return indptr.new_empty(num_sources, dtype=dtype)
