"""The layer of the heterogeneous graph transformer."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cohort_gnn.nn import head_kernels, kernels
from cohort_gnn.nn.block import Block, block_of
from cohort_gnn.nn.head_kernels import EdgeScores, by_head
from cohort_gnn.nn.inputs import require_plain
from cohort_gnn.nn.kernels import GroupedEdges
from cohort_gnn.nn.linear import called, head_linear
from cohort_gnn.nn.operators import once_differentiable
from cohort_gnn.spec.graph import EdgeType


class HGTRules:
    """What a layer with PyG's parameters and arguments computes, where edges are tensors of ids."""

    heads: int
    out_channels: int
    dst_node_types: set[str]
    edge_types_map: dict[EdgeType, int]
    kqv_lin: nn.Module
    out_lin: nn.Module
    k_rel: nn.Module
    v_rel: nn.Module
    p_rel: nn.ParameterDict
    skip: nn.ParameterDict

    def forward(
        self,
        x_dict: dict[str, Tensor],
        edge_index_dict: dict[EdgeType, Tensor],
        num_targets: dict[str, int] | None = None,
    ) -> dict[str, Tensor]:
        """float [targets, out_channels] of each node type that an edge type leads to.

        Args:
            x_dict: [nodes, in_channels] of each node type.
            edge_index_dict: int64 [2, edges] of each edge type.
            num_targets: how many first nodes of each type get rows; None: all.
        """
        if hasattr(self.kqv_lin, "_hook"):  # lazy: as PyG's before its first call
            a_row = {name: rows.new_empty(1, rows.shape[1]) for name, rows in x_dict.items()}  # it reads one's width
            self.kqv_lin.initialize_parameters(self.kqv_lin, (a_row,))
        num_targets = num_targets or {name: rows.shape[0] for name, rows in x_dict.items()}
        source_types = {name[0] for name in edge_index_dict}
        keys_and_values = {
            name: self._projected(name, rows, True) for name, rows in x_dict.items() if name in source_types
        }
        out = {}
        for name in (name for name in x_dict if name in self.dst_node_types):
            own = x_dict[name][: num_targets[name]]
            relations = [relation for relation in edge_index_dict if relation[2] == name]
            sums = self._attended(own, name, relations, keys_and_values, edge_index_dict)
            rows = called(self.out_lin.lins[name], F.gelu(sums))
            if rows.shape[1] == own.shape[1]:
                share = self.skip[name].sigmoid()
                rows = share * rows + (1 - share) * own
            out[name] = rows
        return out

    def _projected(self, name: str, rows: Tensor, for_sources: bool) -> Tensor:
        """Keys and, beside them, values [rows, 2 out_channels] of sources, or queries [rows, out_channels]."""
        lin, width = self.kqv_lin.lins[name], self.out_channels
        require_plain(lin)
        parts = (slice(0, width), slice(2 * width, None)) if for_sources else (slice(width, 2 * width),)
        arrays = [torch.cat([array[part] for part in parts]) for array in (lin.weight, lin.bias) if array is not None]
        return F.linear(
            rows, *(arrays if torch.is_autocast_enabled(rows.device.type) else (a.to(rows) for a in arrays))
        )

    def _attended(
        self,
        own: Tensor,
        name: str,
        relations: list[EdgeType],
        keys_and_values: dict[str, Tensor],
        edge_index: dict[EdgeType, Tensor],
    ) -> Tensor:
        """Values of the sources of all edges into the targets, weighted by one softmax over them."""
        queries = self._projected(name, own, False)
        if not relations:
            return torch.zeros_like(queries)
        source_rows = [keys_and_values[relation[0]] for relation in relations]
        blocks = [
            block_of(edge_index[relation], rows.shape[0], own.shape[0])
            for relation, rows in zip(relations, source_rows, strict=True)
        ]
        by_relation = [
            head_linear(by_head(rows, 2 * self.heads), self._weights(relation)).flatten(1)
            for relation, rows in zip(relations, source_rows, strict=True)
        ]
        indptr, source = merged(blocks)
        return _Attention.apply(torch.cat(by_relation), queries, indptr, source, self.heads)

    def _weights(self, relation: EdgeType) -> Tensor:
        """[2 heads, depth, depth], by which keys and values of an edge type's sources are multiplied.

        Those of keys have what their scores are multiplied by.
        """
        number = self.edge_types_map[relation]
        require_plain(self.k_rel)
        require_plain(self.v_rel)
        key_weights, value_weights = (
            lin.weight.unflatten(0, (self.heads, -1))[:, number].transpose(1, 2) for lin in (self.k_rel, self.v_rel)
        )
        factor = self.p_rel["__".join(relation)].view(-1, 1, 1) / math.sqrt(self.out_channels // self.heads)
        return torch.cat((key_weights * factor, value_weights))


def merged(blocks: list[Block]) -> tuple[Tensor, Tensor]:
    """``indptr`` and ``source`` of one block of the edges of several with the same targets.

    The edges of a target stand block by block; the sources of a block are numbered after those of earlier blocks.
    """
    num_targets, device = blocks[0].num_targets, blocks[0].source.device
    starts = []  # with those of a target more, which has the edges of no target
    for block in blocks:
        start = block.indptr[: num_targets + 1].clamp(max=block.source.numel())
        starts.append(F.pad(start, (0, num_targets + 2 - start.numel()), value=block.source.numel()))
    indptr = torch.stack(starts).sum(dim=0)
    source = torch.empty(sum(block.source.numel() for block in blocks), dtype=torch.int64, device=device)
    next_place, first_source = indptr[:-1].clone(), 0
    for block, start in zip(blocks, starts, strict=True):
        counts = start.diff()
        shift = (next_place - start[:-1]).repeat_interleave(counts, output_size=block.source.numel())
        source[shift + torch.arange(block.source.numel(), device=device)] = block.source + first_source
        next_place += counts
        first_source += block.num_sources
    return indptr[:-1], source


class _Attention(torch.autograd.Function):
    """Sums of the values of a target's sources, weighted for each head by the softmax of <key of source, query>.

    Arguments: keys and values [sources, 2 width], queries [targets, width], indptr, source (see Block), heads.
    """

    @staticmethod
    def forward(ctx, sources, queries, indptr, source, heads):
        keys, values = sources.chunk(2, dim=1)
        edges = GroupedEdges(indptr, source, queries.shape[0])
        scores = head_kernels.dot_rows(edges, by_head(queries, heads), by_head(keys, heads), 0)[0]
        weights, _ = head_kernels.attention(_edges_alone(indptr, scores, queries), _scores(scores))
        ctx.save_for_backward(sources, queries, indptr, source, scores, weights)
        return kernels.sum_rows(edges, values, heads=heads, edge_factor=weights)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        sources, queries, indptr, source, scores, weights = ctx.saved_tensors
        (keys, values), heads, none = sources.chunk(2, dim=1), weights.shape[1], scores.new_empty(0, weights.shape[1])
        grad, edges = grad.contiguous(), GroupedEdges(indptr, source, queries.shape[0])
        columns = kernels.transposed(edges, sources.shape[0])
        grads = head_kernels.dot_rows(edges, by_head(grad, heads), by_head(values, heads), 0)[0]
        target_grads = scores.new_empty(queries.shape[0], heads)  # sums that nobody needs
        alone = _edges_alone(indptr, scores, queries)
        head_kernels.attention_grad(alone, _scores(scores), weights, none, grads, none, target_grads)
        source_grads = torch.empty_like(sources)
        key_grads, value_grads = source_grads.chunk(2, dim=1)
        kernels.sum_rows(columns, queries, out=key_grads, heads=heads, edge_factor=grads)
        kernels.sum_rows(columns, grad, out=value_grads, heads=heads, edge_factor=weights)
        return source_grads, kernels.sum_rows(edges, keys, heads=heads, edge_factor=grads), None, None, None


def _edges_alone(indptr: Tensor, scores: Tensor, queries: Tensor) -> GroupedEdges:
    """Edges that bring the scores of edges instead of rows: each is its own source."""
    numbers = torch.arange(scores.shape[0], device=scores.device)
    return GroupedEdges(indptr, numbers, queries.shape[0])


def _scores(scores: Tensor) -> EdgeScores:
    return EdgeScores(scores, None, 0, 1.0)  # leaky_relu of slope 1 leaves them as they are
