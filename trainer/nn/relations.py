"""Means over several relations into one node type, beside each other in one matrix."""

import torch
from torch import Tensor

from cohort.nn import kernels, ops
from cohort.nn.block import Block
from cohort.nn.kernels import Edges, sum_dtype


def means_beside(blocks: list[Block], own: Tensor | None, dtype: torch.dtype, sources: list[Tensor]) -> Tensor:
    """dtype [targets, columns of all sources + those of own]: for each block the means of the rows of its sources.

    Args:
        blocks: with the same targets.
        own: [targets, any], the last columns.
        sources: [sources, any] of each block.
    """
    return _MeansBeside.apply(blocks, own, dtype, *map(kernels.rows_of, sources))


class _MeansBeside(torch.autograd.Function):
    @staticmethod
    def forward(ctx, blocks, own, dtype, *sources):
        num_targets, widths = blocks[0].num_targets, [rows.shape[1] for rows in sources]
        if own is not None:
            widths.append(own.shape[1])
        out = sources[0].new_empty(num_targets, sum(widths), dtype=dtype)
        columns, inverse_counts = out.split(widths, dim=1), []
        for block, rows, to in zip(blocks, sources, columns, strict=False):
            inverse_counts.append(rows.new_empty(num_targets, dtype=sum_dtype(rows.dtype)))
            edges = Edges(block.indptr, block.source, num_targets)
            kernels.sum_rows(edges, rows, dtype, out=to, mean=True, inverse_count=inverse_counts[-1])
        if own is not None:
            columns[-1].copy_(own)
        ctx.save_for_backward(*inverse_counts)
        ctx.blocks, ctx.widths, ctx.dtypes = blocks, widths, [rows.dtype for rows in sources]
        ctx.own_dtype = own.dtype if own is not None else None
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad):
        columns, of_sources = grad.split(ctx.widths, dim=1), []
        needed = ctx.needs_input_grad[3:]
        of_each = zip(needed, ctx.blocks, columns, ctx.saved_tensors, ctx.dtypes, strict=False)
        for is_needed, block, part, inverse_count, dtype in of_each:
            ends = block.indptr, block.source, block.num_sources
            none = part.new_empty(0, dtype=torch.uint8)
            of_sources.append(
                ops.gather_sum_grad(part.to(dtype), inverse_count, none, *ends, part.shape[1], False, 0.0)
                if is_needed
                else None
            )
        of_own = columns[-1].to(ctx.own_dtype) if ctx.needs_input_grad[1] else None
        return None, of_own, None, *of_sources
