"""GraphSAGE's layer."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cohort_gnn.base.errors import CohortError
from cohort_gnn.nn import ops
from cohort_gnn.nn.activation import Activation, apply_to_ends
from cohort_gnn.nn.block import Block, block_of, rows_of_ends
from cohort_gnn.nn.inputs import amp_dtype, is_indexed, is_prefix, materialize, require_indexed_rows
from cohort_gnn.nn.kernels import matrix_of, sum_dtype
from cohort_gnn.nn.linear import linear, through

SUMS = {"mean": True, "sum": False, "add": False}  # whether to divide
AGGREGATIONS = (*SUMS, "max")


class SAGERules:
    """What a layer with PyG's parameters and arguments computes, where edges are a Block or a tensor of ids."""

    aggr: str
    root_weight: bool
    project: bool
    normalize: bool
    lin: nn.Module  # where `project`
    lin_l: nn.Module
    lin_r: nn.Module  # where `root_weight`

    def forward(
        self,
        x: Tensor | tuple[Tensor, Tensor | None],
        edge_index: Tensor | Block,
        size=None,
        activation: Activation | None = None,
        edge_weight: Tensor | None = None,
    ) -> Tensor:
        """[targets, out_channels].

        Args:
            x: [nodes, in_channels], of which a Block's targets are the first; or a pair for sources and targets; None
                for targets: they have no rows. For a Block with own_row_index all rows that it may name.
            edge_index: int64 [2, edges] of sources and targets, or a Block.
            size: (sources, targets), needed only without rows of targets.
            activation: what becomes of ``x`` first, as part of the same pass over memory where that is possible.
            edge_weight: float32 [edges], in the order of ``edge_index``, by which rows are multiplied before they are
                added up: the shares of edges in means, which add up to 1 for each target. Only "mean" takes them; they
                get no gradient.
        """
        if edge_weight is not None and self.aggr != "mean":
            raise CohortError(f"{type(self).__name__}: edge_weight", 'aggr="mean"', f"aggr={self.aggr!r}")
        if is_indexed(edge_index):
            require_indexed_rows(self, x, not self.project and self.aggr in SUMS, activation)
            return self._normalized(self._linear_of_sums(matrix_of(x), x, edge_index, True, None, edge_weight))
        if activation is not None and not self._fuses(activation, x):
            x, activation = apply_to_ends(activation, x), None
        source, target = rows_of_ends(x, edge_index)
        num_targets = target.shape[0] if target is not None else (size or source.shape)[1 if size else 0]
        block = block_of(edge_index, source.shape[0], num_targets)
        shared = target is not None and not self.project and is_prefix(target, source)
        if self.project:
            source = self.lin(source).relu()
        source = matrix_of(source)
        return self._normalized(self._linear_of_sums(source, target, block, shared, activation, edge_weight))

    def _normalized(self, out: Tensor) -> Tensor:
        return F.normalize(out, p=2.0, dim=-1) if self.normalize else out

    def _fuses(self, activation: Activation, x: Tensor | tuple[Tensor, Tensor | None]) -> bool:
        if self.project or self.aggr not in SUMS:
            return False
        source, target = (x, x) if isinstance(x, Tensor) else x
        own_rows = self.root_weight and target is not None and not is_prefix(target, source)
        return not own_rows and activation.fuses(source)

    def _linear_of_sums(
        self,
        source: Tensor,
        target: Tensor | None,
        block: Block,
        shared: bool,
        activation: Activation | None,
        edge_weight: Tensor | None,
    ) -> Tensor:
        """One product for both linear parts where targets have rows as wide as those of sources; two for maxima."""
        target = target if self.root_weight else None
        if self.aggr not in SUMS:
            out = through(self.lin_l, ops.gather_max(source, block.indptr, block.source, block.num_targets)[0])
            return out if target is None else out + through(self.lin_r, target)
        beside = ops.BESIDE_NONE
        if target is not None and (shared or (target.shape[1], target.dtype) == (source.shape[1], source.dtype)):
            beside = ops.BESIDE_PREFIX if shared else ops.BESIDE_OWN
        own = matrix_of(target) if beside == ops.BESIDE_OWN else None
        dtype = amp_dtype(source)
        mean = SUMS[self.aggr] and edge_weight is None
        drawn = activation.drawn() if activation is not None else ()
        summed = self._summed_targets(block) if beside == ops.BESIDE_PREFIX and not drawn else block.num_targets
        edges = block.indptr, block.source, summed
        rows = ops.gather_sum(
            source,
            own,
            None,
            *edges,
            mean,
            beside,
            0.0,
            dtype,
            *drawn,
            row_index=block.row_index,
            own_row_index=block.own_row_index,
            edge_weight=None if edge_weight is None else _shares_of(edge_weight, block, sum_dtype(source.dtype)),
        )[0]
        if target is None:
            return self.lin_l(rows)
        if not beside:
            return self.lin_l(rows) + self.lin_r(target)
        materialize(self.lin_l, source.shape[1])
        materialize(self.lin_r, source.shape[1], biased=False)
        weight = torch.cat((self.lin_l.weight, self.lin_r.weight), dim=1)
        out = linear(rows, weight, self.lin_l.bias)
        if summed == block.num_targets:
            return out
        alone = source[summed : block.num_targets].to(dtype)
        return torch.cat((out, linear(alone, self.lin_r.weight, self.lin_l.bias)))

    def _summed_targets(self, block: Block) -> int:
        """Targets from this number on have no edges, and on a CPU no sums: those would take as long as others."""
        in_batch = block.indptr.shape[0] - 1
        is_open = block.indptr.device.type == "cpu" and not torch.compiler.is_compiling()
        return (
            max(0, min(in_batch, block.num_targets)) if is_open and block.own_row_index is None else block.num_targets
        )


def _shares_of(edge_weight: Tensor, block: Block, dtype: torch.dtype) -> Tensor:
    """``edge_weight`` in the order of the block's edges."""
    if edge_weight.shape != block.source.shape or edge_weight.requires_grad:
        actual = f"shape {list(edge_weight.shape)}" + (", requires_grad" if edge_weight.requires_grad else "")
        raise CohortError("edge_weight", f"float [{block.source.numel()}], without a gradient", actual)
    ordered = edge_weight if block.order is None else edge_weight[block.order]
    return ordered.to(dtype).contiguous()
