"""The layer of graph attention networks."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cohort_gnn.base.errors import CohortError
from cohort_gnn.nn.attention_ops import loop_means
from cohort_gnn.nn.attention_products import attend, kept_bytes, piece_rows_of
from cohort_gnn.nn.block import Block, block_of, rows_of_ends
from cohort_gnn.nn.inputs import IndexedRows, amp_dtype, begin, element_cost, is_prefix, materialize, require_plain
from cohort_gnn.nn.kernels import matrix_of, sum_dtype
from cohort_gnn.nn.linear import called, end_scores
from cohort_gnn.nn.row_tiles import rows_stand_alone


class GATRules:
    """What a layer with PyG's parameters and arguments computes."""

    heads: int
    out_channels: int
    concat: bool
    negative_slope: float
    dropout: float
    training: bool
    add_self_loops: bool
    residual: bool
    fill_value: float | Tensor | str
    edge_dim: int | None
    lin: nn.Module | None  # of both ends; None: they have one each
    lin_src: nn.Module | None
    lin_dst: nn.Module | None
    lin_edge: nn.Module | None
    res: nn.Module
    att_src: Tensor
    att_dst: Tensor
    att_edge: Tensor
    bias: Tensor | None

    def forward(
        self,
        x: Tensor | tuple[Tensor, Tensor | None],
        edge_index: Tensor | Block,
        *,
        size: tuple[int, int] | None = None,
        edge_attr: Tensor | None = None,
    ) -> Tensor:
        """[targets, heads * out_channels], or [targets, out_channels] without ``concat``.

        Args:
            x: [nodes, in_channels], of which a Block's targets are the first; or a pair for sources and targets; None
                for targets: they have no rows.
            edge_index: int64 [2, edges] of sources and targets, or a Block.
            size: (sources, targets), needed only without rows of targets.
            edge_attr: [edges, edge_dim] or [edges], in the order of ``edge_index``, or in that of the Block.
        """
        source, target = rows_of_ends(x, edge_index)
        num_targets = target.shape[0] if target is not None else (size or source.shape)[1 if size else 0]
        block = block_of(edge_index, source.shape[0], num_targets)
        num_shared = min(size) if size else min(source.shape[0], num_targets)
        rows = matrix_of(source)
        if self.residual and target is not None:
            begin(self.res, target.shape[1])  # the first that PyG's layer calls
        scores = self._scores(rows, target)
        edge_scores = self._edge_scores(edge_attr, block, num_shared, sum_dtype(source.dtype))
        keeps = self.sum_bytes(rows, block) <= kept_bytes(rows.device)
        out = self._attended(rows, scores, block, num_shared, edge_scores, keeps)
        if self.residual and target is not None:
            out = out + called(self.res, target)
        return out if self.bias is None else out + self.bias.to(out.dtype)

    def from_scores(
        self,
        source: Tensor | IndexedRows,
        scores: tuple[Tensor, Tensor | None],
        block: Block,
        edge_attr: Tensor | None = None,
        keeps: bool = True,
    ) -> Tensor:
        """[targets, heads * out_channels], what forward() gives without bias and residual, and without edges of targets
        to themselves.

        Args:
            source: [sources, in_channels]; IndexedRows only where sums_first() says True.
            scores: float [sources, heads] and [targets, heads], products with score_vectors(); None: zeros.
            block, edge_attr: as forward() takes them.
            keeps: the sums of sum_bytes() are kept for the gradients.
        """
        edge_scores = self._edge_scores(edge_attr, block, 0, sum_dtype(source.dtype))
        return self._attended(source, scores, block, 0, edge_scores, keeps)

    def sum_bytes(self, source: Tensor | IndexedRows, block: Block) -> int:
        """Bytes of the sums of rows that are multiplied by the weights; 0: rows are multiplied first."""
        width = source.shape[1]
        if not self.sums_first(block, source):
            return 0
        return block.num_targets * self.heads * width * amp_dtype(source).itemsize

    def score_vectors(self, for_targets: bool) -> Tensor:
        """[heads, in_channels], whose products with the rows of sources, or of targets, are the ends' scores."""
        return self._vectors(self._lin(for_targets), self.att_dst if for_targets else self.att_src)

    def _lin(self, for_targets: bool) -> nn.Module:
        """What transforms the rows of sources, or of targets."""
        if self.lin is not None:
            return self.lin
        return self.lin_dst if for_targets else self.lin_src

    def _edge_scores(
        self, edge_attr: Tensor | None, block: Block, num_shared: int, dtype: torch.dtype
    ) -> tuple[Tensor | None, Tensor | None]:
        """What edges, and those of targets to themselves, add to the scores of their ends, as attend() takes it."""
        if edge_attr is None or self.lin_edge is None:
            return None, None
        rows = edge_attr.view(-1, 1) if edge_attr.dim() == 1 else edge_attr
        if rows.dim() != 2 or rows.shape[0] != block.source.numel():
            expected = f"[{block.source.numel()}, {self.edge_dim}], a row for each edge"
            raise CohortError("edge_attr: shape", expected, str(list(edge_attr.shape)))
        begin(self.lin_edge, rows.shape[1])
        with torch.autocast(rows.device.type, enabled=False):
            vectors = self._vectors(self.lin_edge, self.att_edge).to(dtype)
            scores = F.linear(rows.to(dtype), vectors)
            scores = (scores if block.order is None else scores[block.order]).contiguous()
            if not self.add_self_loops:
                return scores, None
            if self.fill_value == "mean":  # of the rows of a target's edges: their scores are linear
                return scores, loop_means(scores, block.indptr, block.source, num_shared)[0]
            filled = torch.as_tensor(self.fill_value, dtype=dtype, device=rows.device).expand(1, rows.shape[1])
            return scores, F.linear(filled, vectors).expand(num_shared, -1).contiguous()

    def _attended(
        self,
        source: Tensor | IndexedRows,
        scores: tuple[Tensor, Tensor | None],
        block: Block,
        num_shared: int,
        edge_scores: tuple[Tensor | None, Tensor | None],
        keeps: bool,
    ) -> Tensor:
        """The heads' sums, beside each other or averaged; the first ``num_shared`` targets are sources too."""
        lin = self._lin(for_targets=False)
        dtype = amp_dtype(source)
        p = self.dropout if self.training else 0.0
        keys = torch.randint(2**62, (2,)).tolist() if p else [0, 0]
        loops = num_shared if self.add_self_loops else -1
        weight, row_index, piece_rows = None, None, 0
        if self.sums_first(block, source):
            weight = lin.weight.to(dtype).view(self.heads, self.out_channels, -1)
            rows, row_index = (source.rows, source.row_index) if isinstance(source, IndexedRows) else (source, None)
            piece_rows = piece_rows_of(weight, keeps)
        else:
            rows = called(lin, source)
        row = None if row_index is None else row_index[block.source]
        inputs = *scores, *edge_scores, block.indptr, block.source, row, block.num_targets
        out = attend(rows, weight, *inputs, self.heads, loops, self.negative_slope, p, keys, piece_rows, dtype)[0]
        out = out.reshape(block.num_targets, self.heads, self.out_channels)
        return out.flatten(1) if self.concat else out.mean(dim=1)

    def _scores(self, source: Tensor, target: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """What the ends of edges score, as attend() takes it: [sources, heads or 2 heads], [targets, heads] or None."""
        lin = self._lin(for_targets=False)
        materialize(lin, source.shape[1], biased=False)
        with torch.autocast(source.device.type, enabled=False):
            if target is None:
                return end_scores(source, self.score_vectors(for_targets=False)), None
            target_lin = self._lin(for_targets=True)
            materialize(target_lin, target.shape[1], biased=False)
            if not is_prefix(target, source):
                scores = end_scores(source, self.score_vectors(for_targets=False))
                return scores, end_scores(target, self.score_vectors(for_targets=True))
            if target_lin is lin:
                vectors = self._vectors(lin, self.att_src, self.att_dst)
            else:
                vectors = torch.cat([self.score_vectors(for_targets) for for_targets in (False, True)])
            return end_scores(source, vectors), None

    def _vectors(self, lin: nn.Module, *attentions: Tensor) -> Tensor:
        """[attentions * heads, in_channels], whose products with a row are those of its transformed heads."""
        require_plain(lin, biased=False)
        weight = lin.weight.view(self.heads, self.out_channels, -1)
        attention = attentions[0] if len(attentions) == 1 else torch.cat(attentions)
        return (weight * attention.unsqueeze(-1)).sum(dim=2).flatten(0, 1)

    def sums_first(self, block: Block, source: Tensor | IndexedRows) -> bool:
        """Whether it is less work to sum rows before they are multiplied by the weights."""
        return sums_first(block, source, self.heads, self.out_channels)


def sums_first(block: Block, source: Tensor | IndexedRows, heads: int, out_channels: int) -> bool:
    """Whether it is less work to sum rows for each head, and then multiply them by its weights."""
    edges, width, wide = block.source.numel(), source.shape[1], heads * out_channels
    if rows_stand_alone():
        return width <= wide
    elements = edges * width + block.num_targets * heads * width
    transformed = (edges + block.num_sources) * wide
    products = (block.num_targets - block.num_sources) * width * wide
    return (elements - transformed) * element_cost(source) + products <= 0
