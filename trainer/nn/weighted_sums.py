"""Sums over edges that have weights."""

import torch
from torch import Tensor

from cohort_gnn.base.errors import CohortError
from cohort_gnn.nn import head_kernels, kernels
from cohort_gnn.nn.block import Block
from cohort_gnn.nn.kernels import GroupedEdges, sum_dtype
from cohort_gnn.nn.operators import once_differentiable


def weighted_sums(x: Tensor, edge_weight: Tensor, block: Block) -> Tensor:
    """[targets, columns] in the dtype of ``x``: for each target, the sum over its edges of row times weight.

    Args:
        x: [sources, columns].
        edge_weight: float [edges], in the order of the unsorted ``edge_index``, without a gradient.

    Raises:
        CohortError: other weights than one for each edge.
    """
    if edge_weight.shape != block.source.shape or edge_weight.requires_grad:
        actual = f"shape {list(edge_weight.shape)}" + (", requires_grad" if edge_weight.requires_grad else "")
        raise CohortError("edge_weight", f"float [{block.source.numel()}], without a gradient", actual)
    ordered = edge_weight if block.order is None else edge_weight[block.order]
    return _WeightedSums.apply(x, ordered.to(sum_dtype(x.dtype)).unsqueeze(1).contiguous(), block)


class _WeightedSums(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weights, block):
        ctx.block, ctx.num_rows = block, x.shape[0]
        ctx.save_for_backward(weights)
        edges = GroupedEdges(block.indptr, block.source, block.num_targets)
        return head_kernels.spread_rows(edges, x, weights, weights[:0], x.dtype)[0]

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        (weights,), block = ctx.saved_tensors, ctx.block
        edges = GroupedEdges(block.indptr, block.source, block.num_targets)
        columns = kernels.transposed(edges, ctx.num_rows)
        return head_kernels.fold_rows(columns, grad.contiguous().unsqueeze(0), weights, weights[:0]), None, None
