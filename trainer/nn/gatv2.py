"""The layer of graph attention networks with dynamic attention (GATv2)."""

import torch
from torch import Tensor, nn

from cohort_gnn.base.errors import CohortError
from cohort_gnn.nn.attention_ops import loop_means
from cohort_gnn.nn.block import Block, block_of, rows_of_ends
from cohort_gnn.nn.edge_ops import dropped, edge_softmax, weighted_sum
from cohort_gnn.nn.inputs import begin, edge_rows_of, is_prefix
from cohort_gnn.nn.joined_ops import joined_scores
from cohort_gnn.nn.kernels import matrix_of, sum_dtype
from cohort_gnn.nn.linear import called, through


class GATv2Rules:
    """What a layer with PyG's parameters and arguments computes."""

    heads: int
    out_channels: int
    concat: bool
    negative_slope: float
    dropout: float
    training: bool
    add_self_loops: bool
    share_weights: bool
    fill_value: float | Tensor | str
    edge_dim: int | None
    lin_l: nn.Module  # of sources
    lin_r: nn.Module  # of targets
    lin_edge: nn.Module | None
    res: nn.Module | None
    att: Tensor
    bias: Tensor | None

    def forward(
        self,
        x: Tensor | tuple[Tensor, Tensor],
        edge_index: Tensor | Block,
        edge_attr: Tensor | None = None,
    ) -> Tensor:
        """[targets, heads * out_channels], or [targets, out_channels] without ``concat``.

        Args:
            x: [nodes, in_channels], of which a Block's targets are the first; or a pair for sources and targets.
            edge_index: int64 [2, edges] of sources and targets, or a Block.
            edge_attr: [edges, edge_dim] or [edges], in the order of ``edge_index``, or in that of the Block.
        """
        source, target = rows_of_ends(x, edge_index)
        if target is None:
            raise CohortError(f"{type(self).__name__}: x", "rows of sources and of targets", "None for targets")
        block = block_of(edge_index, source.shape[0], target.shape[0])
        shared = self.share_weights and is_prefix(target, source)
        begin(self.res, target.shape[1])  # the first that PyG's layer calls
        rows = matrix_of(through(self.lin_l, source))
        own = rows[: target.shape[0]] if shared else matrix_of(through(self.lin_r, target))
        loops = min(source.shape[0], target.shape[0]) if self.add_self_loops else -1
        edge_rows = self._edge_rows(edge_attr, block, loops, rows.dtype)
        att = self.att[0].to(sum_dtype(rows.dtype)).contiguous()
        edges = block.indptr, block.source
        scores = joined_scores(rows, own, att, *edge_rows, *edges, loops, self.negative_slope)
        weights, loop_weights = edge_softmax(scores[0], scores[1] if loops >= 0 else None, *edges, block.num_targets)
        used, own_used = (dropped(values, self.dropout, self.training) for values in (weights, loop_weights))
        out = weighted_sum(rows, used, own_used if loops >= 0 else None, *edges, block.num_targets)
        out = out if self.concat else out.unflatten(1, (self.heads, -1)).mean(dim=1)
        if self.res is not None:
            out = out + through(self.res, target)
        return out if self.bias is None else out + self.bias.to(out.dtype)

    def _edge_rows(
        self, edge_attr: Tensor | None, block: Block, loops: int, dtype: torch.dtype
    ) -> tuple[Tensor | None, Tensor | None]:
        """The transformed rows of edges, and of those from targets to themselves, as joined_scores() takes them."""
        if edge_attr is None:
            return None, None
        if self.lin_edge is None:
            hint = "give the layer edge_dim, or leave edge_attr out"
            raise CohortError(f"{type(self).__name__}: edge_attr", "none, without edge_dim", "a tensor", hint)
        rows = edge_rows_of(self, edge_attr, block)
        edge_rows = through(self.lin_edge, rows).to(dtype).contiguous()
        if loops < 0:
            return edge_rows, None
        if self.fill_value == "mean":
            wide = rows.to(sum_dtype(rows.dtype)).contiguous()
            filled = loop_means(wide, block.indptr, block.source, loops)[0].to(rows.dtype)
        elif isinstance(self.fill_value, str):
            hint = "use torch_geometric.nn.GATv2Conv, or pass edge_index"
            raise CohortError(f"fill_value {self.fill_value!r}", '"mean", a number or a tensor', "a Block", hint)
        else:
            filled = torch.as_tensor(self.fill_value, dtype=rows.dtype, device=rows.device).expand(loops, rows.shape[1])
        return edge_rows, called(self.lin_edge, filled).to(dtype).contiguous()
