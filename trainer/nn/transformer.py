"""The layer of graph transformers: attention by products of queries and keys."""

import math

import torch
from torch import Tensor, nn

from cohort_gnn.base.errors import CohortError
from cohort_gnn.nn.block import Block, block_of, rows_of_ends
from cohort_gnn.nn.edge_ops import dot_scores, dropped, edge_softmax, shared_scores, shared_sums, weighted_sum
from cohort_gnn.nn.gat import sums_first
from cohort_gnn.nn.inputs import edge_rows_of, materialize
from cohort_gnn.nn.kernels import matrix_of
from cohort_gnn.nn.linear import head_linear, heads_apart, through


class TransformerRules:
    """What a layer with PyG's parameters and arguments computes.

    Features of edges are linear in keys and in values, so no edge's are multiplied by weights: queries are, and sums.
    So are rows of sources where that is less work.
    """

    heads: int
    out_channels: int
    concat: bool
    dropout: float
    training: bool
    root_weight: bool
    lin_key: nn.Module
    lin_query: nn.Module
    lin_value: nn.Module
    lin_edge: nn.Module | None
    lin_skip: nn.Module
    lin_beta: nn.Module | None

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
            edge_attr: [edges, edge_dim], in the order of ``edge_index``, or in that of the Block; only with edge_dim.
        """
        source, target = rows_of_ends(x, edge_index)
        if target is None:
            raise CohortError(f"{type(self).__name__}: x", "rows of sources and of targets", "None for targets")
        if edge_attr is not None and self.lin_edge is None:
            hint = "give the layer edge_dim, or leave edge_attr out"
            raise CohortError(f"{type(self).__name__}: edge_attr", "none, without edge_dim", "a tensor", hint)
        block, source = block_of(edge_index, source.shape[0], target.shape[0]), matrix_of(source)
        for lin, rows in ((self.lin_query, target), (self.lin_key, source), (self.lin_value, source)):  # as PyG draws
            materialize(lin, rows.shape[1])
        queries = through(self.lin_query, target) * (1 / math.sqrt(self.out_channels))
        out = self._attended(source, queries, block, edge_attr)
        out = out.flatten(1) if self.concat else out.mean(dim=1)
        if not self.root_weight:
            return out
        own = through(self.lin_skip, target)
        if self.lin_beta is None:
            return out + own
        share = self.lin_beta(torch.cat([out, own, out - own], dim=-1)).sigmoid()
        return share * own + (1 - share) * out

    def _attended(self, source: Tensor, queries: Tensor, block: Block, edge_attr: Tensor | None) -> Tensor:
        """[targets, heads, out_channels], sums of values."""
        edges, num_targets = (block.indptr, block.source), block.num_targets
        by_index = sums_first(block, source, self.heads, self.out_channels)
        edge_inputs: tuple[Tensor, ...] = ()
        if self.lin_edge is not None:
            rows = edge_rows_of(self, edge_attr, block, self.lin_edge.weight.shape[1]).to(queries.dtype).contiguous()
            edge_inputs = rows, block.indptr, torch.arange(len(rows), device=rows.device)
        if by_index:
            scores = shared_scores(self._times(queries, self.lin_key).to(source.dtype), source, *edges)
        else:
            scores = dot_scores(queries, through(self.lin_key, source), *edges, self.heads)
        if edge_inputs:
            scores = scores + shared_scores(self._times(queries, self.lin_edge), *edge_inputs)
        weights = dropped(edge_softmax(scores, None, *edges, num_targets)[0], self.dropout, self.training)
        if by_index:
            sums = shared_sums(weights, source, *edges, num_targets)
            out = self._values(sums.to(queries.dtype), weights, block)
        else:
            out = weighted_sum(through(self.lin_value, source), weights, None, *edges, num_targets)
            out = out.unflatten(1, (self.heads, -1))
        if edge_inputs:
            sums = shared_sums(weights, *edge_inputs, num_targets)
            out = out + head_linear(sums, self._by_head(self.lin_edge))
        return out

    def _by_head(self, lin: nn.Module) -> Tensor:
        """[heads, out_channels, columns]"""
        return lin.weight.unflatten(0, (self.heads, -1))

    def _times(self, queries: Tensor, lin: nn.Module) -> Tensor:
        """[heads, targets, columns], whose products with a row are those of queries with the transformed row."""
        by_head = queries.unflatten(1, (self.heads, -1)).transpose(0, 1)
        return heads_apart(by_head, self._by_head(lin).transpose(1, 2))

    def _values(self, sums: Tensor, weights: Tensor, block: Block) -> Tensor:
        """Sums of values from sums of rows [heads, targets, columns]."""
        out = head_linear(sums, self._by_head(self.lin_value))
        if self.lin_value.bias is None:
            return out
        ones = weights.new_ones(1, self.heads).expand(block.num_sources, -1)
        total = weighted_sum(ones, weights, None, block.indptr, block.source, block.num_targets)
        # A bias of keys changes no softmax: its gradient is zero, as in PyG's layer.
        bias = self.lin_value.bias
        bias = bias if self.lin_key.bias is None else bias + 0 * self.lin_key.bias
        return out + (total.unsqueeze(-1) * bias.view(self.heads, -1)).to(out.dtype)
