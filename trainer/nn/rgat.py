"""The layer of relational graph attention networks."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cohort_gnn.base.errors import CohortError
from cohort_gnn.nn.block import Block, block_of, rows_of_ends
from cohort_gnn.nn.edge_ops import dropped, edge_softmax, take_rows
from cohort_gnn.nn.inputs import edge_rows_of
from cohort_gnn.nn.kernels import matrix_of
from cohort_gnn.nn.linear import end_scores
from cohort_gnn.nn.typed_edges import TypedEdges, dense_blocks, typed_edges, typed_sums, types_in_order


class RGATRules:
    """What a layer with PyG's parameters and arguments computes for rows of features.

    Scores of edges are products of rows with a few vectors for each type, and sums of rows are multiplied by the
    matrices, not the rows of edges.
    """

    attention_mechanism: str
    attention_mode: str
    heads: int
    dim: int
    concat: bool
    negative_slope: float
    dropout: float
    training: bool
    mod: str | None
    out_channels: int
    num_relations: int
    num_bases: int | None
    num_blocks: int | None
    lin_edge: nn.Module | None
    weight: Tensor
    basis: Tensor
    att: Tensor
    q: Tensor
    k: Tensor
    e: Tensor
    w: Tensor
    l1: Tensor
    b1: Tensor
    l2: Tensor
    b2: Tensor
    bias: Tensor | None

    def forward(
        self,
        x: Tensor | tuple[Tensor, Tensor],
        edge_index: Tensor | Block,
        edge_type: Tensor | None = None,
        edge_attr: Tensor | None = None,
    ) -> Tensor:
        """[targets, heads * dim * out_channels], or [targets, dim * out_channels] without ``concat``.

        Args:
            x: [nodes, in_channels], of which a Block's targets are the first; or a pair for sources and targets.
            edge_index: int64 [2, edges] of sources and targets, or a Block.
            edge_type: int64 [edges], in [0, num_relations), in the order of ``edge_index``, or in that of the Block.
            edge_attr: [edges, edge_dim] or [edges], in the same order; only with edge_dim.
        """
        name, (source, target) = type(self).__name__, rows_of_ends(x, edge_index)
        if target is None:
            raise CohortError(f"{name}: x", "rows of sources and of targets", "None for targets")
        if edge_attr is not None and self.lin_edge is None:
            hint = "give the layer edge_dim, or leave edge_attr out"
            raise CohortError(f"{name}: edge_attr", "none, without edge_dim", "a tensor", hint)
        block, source = block_of(edge_index, source.shape[0], target.shape[0]), matrix_of(source)
        types = types_in_order(name, edge_type, block)
        typed = typed_edges(name, block, types, self.num_relations)
        row = _targets(block)
        with torch.autocast(source.device.type, enabled=False):
            matrices = self._matrices()
        scores = self._scores((source, matrix_of(target)), matrices, block, row, types, edge_attr)
        weights = self._weights(scores, block, typed)
        weight = matrices.unflatten(2, (self.heads, -1)).transpose(1, 2)  # [relations, heads, in, out]
        out = self._summed(source, weight, typed, weights, block, row)
        out = out.flatten(1) if self.concat else out.mean(dim=1).flatten(1)
        return out if self.bias is None else out + self.bias

    def _matrices(self) -> Tensor:
        """[relations, in_channels, heads * out_channels]"""
        if self.num_bases is not None:
            return torch.tensordot(self.att, self.basis, 1)
        return self.weight if self.num_blocks is None else dense_blocks(self.weight)

    def _scores(
        self,
        rows: tuple[Tensor, Tensor],
        matrices: Tensor,
        block: Block,
        row: Tensor,
        types: Tensor,
        edge_attr: Tensor | None,
    ) -> Tensor:
        """sum_dtype [edges, heads * dim], what softmaxes are taken of. ``row``: the target of each edge."""
        with torch.autocast(rows[0].device.type, enabled=False):
            parts = []
            for side, vectors, index in ((rows[0], self.k, block.source), (rows[1], self.q, row)):
                by_type = (matrices @ vectors).transpose(1, 2).flatten(0, 1)  # [relations * heads * dim, in]
                by_row = end_scores(side, by_type).reshape(-1, vectors.shape[1])
                parts.append(take_rows(by_row, index * self.num_relations + types))
            if edge_attr is not None and self.lin_edge is not None:
                features = edge_rows_of(self, edge_attr, block).to(parts[0].dtype)
                parts.append(F.linear(features, (self.lin_edge.weight.t() @ self.e).t().to(features.dtype)))
        if self.attention_mode == "additive-self-attention":
            return F.leaky_relu(sum(parts[1:], parts[0]), self.negative_slope)
        product = parts[0] * parts[1]
        return product if len(parts) == 2 else product * parts[2]

    def _weights(self, scores: Tensor, block: Block, typed: TypedEdges) -> Tensor:
        """Softmaxes over the edges of each target, or over those of one type."""
        if self.attention_mechanism == "across-relation":
            return edge_softmax(scores.contiguous(), None, block.indptr, block.source, block.num_targets)[0]
        number = typed.number.long()
        weights = edge_softmax(scores.index_select(0, number), None, typed.indptr, typed.source, typed.num_pairs)[0]
        return torch.zeros_like(scores).index_copy(0, number, weights)

    def _summed(
        self, x: Tensor, weight: Tensor, typed: TypedEdges, weights: Tensor, block: Block, row: Tensor
    ) -> Tensor:
        """[targets, heads, dim, out_channels], with what ``mod`` makes of weights or of sums."""
        degree = block.indptr.new_zeros(block.num_targets).to(weights.dtype)
        if self.mod in ("scaled", "f-scaled"):
            counts = block.indptr[: block.num_targets + 1].clamp(max=block.source.numel()).diff()
            degree[: len(counts)] = counts.to(degree.dtype)
        if self.mod == "f-additive":
            weights = torch.where(weights > 0, weights + 1, weights)
        elif self.mod == "f-scaled":
            weights = weights * degree[row].unsqueeze(1)
        elif self.mod is None:
            weights = dropped(weights, self.dropout, self.training)
        wide = weight.repeat_interleave(self.dim, dim=1) if self.dim > 1 else weight
        out = typed_sums(x, wide, typed, edge_weights=weights.contiguous())
        out = out.view(block.num_targets, self.heads, self.dim, self.out_channels)
        if self.mod == "additive":
            ones = weights.new_ones(weights.shape[0], self.heads)
            plain = typed_sums(x, weight, typed, edge_weights=ones)
            return out + self.w * plain.view(block.num_targets, self.heads, 1, self.out_channels)
        if self.mod == "scaled":
            factor = (degree.to(self.l1.dtype).unsqueeze(1) @ self.l1 + self.b1).relu() @ self.l2 + self.b2
            return out * factor.view(-1, 1, 1, self.out_channels)
        return out


def _targets(block: Block) -> Tensor:
    """int64 [edges], the target of each edge; the last one for edges that are no target's."""
    numbers = torch.arange(block.source.numel(), device=block.source.device)
    return (torch.searchsorted(block.indptr, numbers, right=True) - 1).clamp(0, max(0, block.num_targets - 1))
