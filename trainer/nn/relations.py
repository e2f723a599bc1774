"""One layer over the relations into several node types, by mean aggregation or by attention."""

import functools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from cohort_gnn.nn import _native, kernels
from cohort_gnn.nn.activation import Activation
from cohort_gnn.nn.attention_products import kept_bytes
from cohort_gnn.nn.block import Block
from cohort_gnn.nn.gat import GATRules
from cohort_gnn.nn.inputs import IndexedRows, amp_dtype
from cohort_gnn.nn.kernels import Drop, GroupedEdges, sum_dtype
from cohort_gnn.nn.linear import end_scores, product_of, weight_and_bias_grads
from cohort_gnn.nn.operators import once_differentiable
from cohort_gnn.spec.graph import EdgeType


@dataclass(frozen=True)
class Into:
    """The relations into a node type.

    Attributes:
        blocks: the block of each relation; all have the same targets.
        sources: for each relation, the number of the node type of its sources.
        own: the number of the node type whose first rows are the targets' own rows; None: targets have no own rows.
    """

    blocks: list[Block]
    sources: list[int]
    own: int | None


def sum_relations(
    into: Sequence[Into],
    rows: Sequence[Tensor | IndexedRows],
    dtype: torch.dtype,
    weights: Sequence[Tensor],
    own_weights: Sequence[Tensor | None],
    biases: Sequence[Tensor | None],
    activation: Activation | None = None,
) -> tuple[Tensor, ...]:
    """dtype [targets, width] for each entry of ``into``: means @ weight.T + own rows @ own weight.T + bias.

    ``means`` has, for each target, the mean of its sources' rows in each relation, one relation beside the other.

    Args:
        into: the node types that relations lead to.
        rows: [nodes, any] of each node type. IndexedRows are read by their index; they cannot have an activation.
        dtype: dtype of the results; weights and biases are converted to it.
        weights: [width, columns of all sources] for each entry of ``into``.
        own_weights: [width, columns of own rows] for each entry; None: the targets have no own rows.
        biases: [width] for each entry; None: no bias.
        activation: activation that all rows go through before they are used; None: no activation.
    """
    row_indices = [tensor.row_index if isinstance(tensor, IndexedRows) else None for tensor in rows]
    inputs = [kernels.matrix_of(tensor.rows if isinstance(tensor, IndexedRows) else tensor) for tensor in rows]
    # The arguments of ReLU and dropout that rows go through as they are read: kernels.Drop.
    reads: list[tuple | None] = [None] * len(inputs)
    if activation is not None:
        for number, tensor in enumerate(inputs):
            if activation.fuses(tensor):
                reads[number] = activation.drawn()[1:]
            else:
                inputs[number] = activation(tensor)
    factors = [None if tensor is None else tensor.to(dtype) for tensor in (*weights, *own_weights, *biases)]
    return _SumRelations.apply(into, dtype, reads, row_indices, *inputs, *factors)


def sum_attentions(
    convs: Mapping[EdgeType, GATRules],
    x: Mapping[str, Tensor | IndexedRows],
    blocks: Mapping[EdgeType, Block],
    edge_attr: Mapping[EdgeType, Tensor],
) -> dict[str, Tensor]:
    """[targets, width] for each node type that an edge type leads to: the sum of the results of its GATConvs.

    The rows of a node type are read once for the scores of all edge types that begin or end at this type.

    Args:
        convs: a GATConv for each edge type; it concatenates its heads, and adds no edges from targets to themselves.
        x: [nodes, any] for each node type with rows; the targets are the first nodes of their type. IndexedRows are
            read by their index, but gathered for GATConvs that multiply rows by their weights first.
        blocks: a block for each edge type.
        edge_attr: feature rows of edges, for the edge types whose convs take them.
    """
    x = {kind: _read_rows(rows, kind, convs, blocks) for kind, rows in x.items()}
    # For each node type: its edge types, and whether it is their target.
    roles_by_type: dict[str, list[tuple[EdgeType, bool]]] = {}
    for name in convs:
        roles_by_type.setdefault(name[0], []).append((name, False))
        if name[2] in x:
            roles_by_type.setdefault(name[2], []).append((name, True))
    scores: dict[tuple[EdgeType, bool], Tensor] = {}
    for kind, roles in roles_by_type.items():
        num_rows = max(blocks[name].num_targets if is_target else x[kind].shape[0] for name, is_target in roles)
        rows = x[kind]
        if num_rows < rows.shape[0]:
            rows = rows.first(num_rows) if isinstance(rows, IndexedRows) else rows[:num_rows]
        with torch.autocast(rows.device.type, enabled=False):
            vectors = [convs[name].score_vectors(is_target) for name, is_target in roles]
            products = end_scores(rows, torch.cat(vectors))
        scores |= zip(roles, products.split([len(vector) for vector in vectors], dim=1), strict=True)
    uses = Counter(name[0] for name in convs)
    shared = {kind: list(_shared(rows, uses[kind])) for kind, rows in x.items()}
    sums: dict[str, list[Tensor]] = {}
    gathered: dict[str, Tensor] = {}
    biases: dict[str, Tensor] = {}
    left = kept_bytes(next(iter(x.values())).device) if x else 0
    for name, conv in convs.items():
        needed = conv.sum_bytes(x[name[0]], blocks[name])
        keeps = needed <= left
        left -= needed if keeps else 0
        block, target_scores = blocks[name], scores.get((name, True))
        target_scores = None if target_scores is None else target_scores[: block.num_targets]
        rows = shared[name[0]].pop()
        if isinstance(rows, IndexedRows) and not conv.sums_first(block, rows):
            rows = gathered[name[0]] = gathered[name[0]] if name[0] in gathered else rows.gathered(amp_dtype(rows))
        out = conv.from_scores(rows, (scores[name, False], target_scores), block, edge_attr.get(name), keeps)
        sums.setdefault(name[2], []).append(out)
        if conv.bias is not None:
            biases[name[2]] = biases[name[2]] + conv.bias if name[2] in biases else conv.bias
    return {name: _total(parts, biases.get(name)) for name, parts in sums.items()}


class _Total(torch.autograd.Function):
    """kernels.totals() with gradients."""

    @staticmethod
    def forward(ctx, bias, *parts):
        return kernels.totals(parts, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        needs_bias, *needs = ctx.needs_input_grad
        return grad.sum(dim=0) if needs_bias else None, *(grad if is_needed else None for is_needed in needs)


def _total(parts: list[Tensor], bias: Tensor | None) -> Tensor:
    """The sum of parts [rows, columns], with ``bias`` [columns] added to each row."""
    if len(parts) == 1 and bias is None:
        return parts[0]
    dtype = functools.reduce(torch.promote_types, [part.dtype for part in parts])
    return _Total.apply(None if bias is None else bias.to(dtype), *(part.to(dtype) for part in parts))


class _Shared(torch.autograd.Function):
    """The same rows several times, whose gradients are added up in one pass."""

    @staticmethod
    def forward(ctx, rows, count):
        ctx.set_materialize_grads(False)
        return tuple(rows.view_as(rows) for _ in range(count))

    @staticmethod
    @once_differentiable
    def backward(ctx, *grads):
        some = [grad for grad in grads if grad is not None]
        return kernels.totals(some) if some else None, None


def _shared(rows: Tensor | IndexedRows, count: int) -> Sequence[Tensor | IndexedRows]:
    """``rows`` for each of ``count`` readers."""
    is_one = isinstance(rows, IndexedRows) or not rows.requires_grad or count < 2
    return [rows] * count if is_one else _Shared.apply(rows, count)


def _read_rows(
    rows: Tensor | IndexedRows, kind: str, convs: Mapping[EdgeType, GATRules], blocks: Mapping[EdgeType, Block]
) -> Tensor | IndexedRows:
    """The rows of a node type, gathered where scores cannot read them by index and some GATConv neither."""
    if not isinstance(rows, IndexedRows):
        return kernels.matrix_of(rows)
    relations = [name for name in convs if name[0] == kind]
    by_index = kernels.takes_indexed_scores(rows.rows) or all(convs[n].sums_first(blocks[n], rows) for n in relations)
    return rows if by_index else rows.gathered()


class _SumRelations(torch.autograd.Function):
    """sum_relations() with gradients: those of a node type's rows are added up in one matrix, relation by relation."""

    @staticmethod
    def forward(ctx, into, dtype, reads, row_indices, *tensors):
        rows, factors = tensors[: len(reads)], tensors[len(reads) :]
        kept = [
            None if read is None else values.new_empty((values.shape[0], values.shape[1] // 4), dtype=torch.uint8)
            for values, read in zip(rows, reads, strict=True)
        ]
        drops = [
            None if read is None else Drop(_native.DROP_IN, bits, *read) for bits, read in zip(kept, reads, strict=True)
        ]
        out, saved = [], []
        for number, entry in enumerate(into):
            weight, own_weight, bias = factors[number :: len(into)]
            means, inverse_counts = _means_beside(entry, rows, row_indices, drops, dtype)
            sums, own = product_of(means, weight, bias), None
            if entry.own is not None:
                own, row_index = rows[entry.own], row_indices[entry.own]
                own = own[: len(sums)] if row_index is None else IndexedRows(own, row_index[: len(sums)]).gathered()
                if (read := reads[entry.own]) is not None:
                    own = kernels.drop(own, _native.RELU, *read)
                torch.addmm(sums, own.to(dtype), own_weight.t(), out=sums)
            out.append(sums)
            saved += [own, means, *inverse_counts]
        ctx.save_for_backward(*factors, *kept, *saved)
        ctx.into, ctx.reads, ctx.shapes = into, reads, [(*values.shape, values.dtype) for values in rows]
        return tuple(out)

    @staticmethod
    @once_differentiable
    def backward(ctx, *grads):
        into, count = ctx.into, len(ctx.into)
        needed = ctx.needs_input_grad[4 : 4 + len(ctx.reads)]
        saved = iter(ctx.saved_tensors)
        factors = [next(saved) for _ in range(3 * count)]
        kept = [next(saved) for _ in ctx.reads]
        drops = [
            None if read is None else Drop(_native.DROP_BACK, bits, read[0])
            for bits, read in zip(kept, ctx.reads, strict=True)
        ]
        row_grads, factor_grads = _RowGrads(into, ctx.shapes, needed, drops), [None] * len(factors)
        for number, (entry, grad) in enumerate(zip(into, grads, strict=True)):
            own, means, *inverse_counts = (next(saved) for _ in range(2 + len(entry.blocks)))
            weight, own_weight, bias = factors[number::count]
            grad = grad.contiguous()
            factor_grads[number], sums = weight_and_bias_grads(grad, means)
            if bias is not None:
                factor_grads[number + 2 * count] = sums
            if own is not None:
                factor_grads[number + count] = weight_and_bias_grads(grad, own.to(grad.dtype))[0]
                if needed[entry.own]:
                    row_grads.add_first(entry.own, grad @ own_weight, own)
            if any(needed[source] for source in entry.sources):
                parts = (grad @ weight).split([ctx.shapes[source][1] for source in entry.sources], dim=1)
                for source, block, *part in zip(entry.sources, entry.blocks, parts, inverse_counts, strict=True):
                    row_grads.add(source, block, *part)
        return None, None, None, None, *row_grads.all(), *factor_grads


def _means_beside(
    into: Into,
    rows: Sequence[Tensor],
    row_indices: Sequence[Tensor | None],
    drops: Sequence[Drop | None],
    dtype: torch.dtype,
) -> tuple[Tensor, list[Tensor]]:
    """The means, dtype [targets, columns of all sources]; for each relation 1 / max(1, number of edges) [targets]."""
    num_targets, widths = into.blocks[0].num_targets, [rows[number].shape[1] for number in into.sources]
    out, inverse_counts = rows[0].new_empty(num_targets, sum(widths), dtype=dtype), []
    for number, block, to in zip(into.sources, into.blocks, out.split(widths, dim=1), strict=True):
        inverse_counts.append(to.new_empty(num_targets, dtype=sum_dtype(rows[number].dtype)))
        row_index = row_indices[number]
        edges = GroupedEdges(block.indptr, block.source if row_index is None else row_index[block.source], num_targets)
        options = {"out": to, "drop": drops[number]}
        kernels.sum_rows(edges, rows[number], dtype, **options, mean=True, inverse_count=inverse_counts[-1])
    return out, inverse_counts


class _RowGrads:
    """Gradients of the rows of each node type, if they are needed.

    Args:
        into: see sum_relations().
        shapes: rows, columns and dtype of each node type.
        needed: for each node type, whether the gradient is needed.
        drops: the backward pass of the ReLU and dropout of each node type; None: its rows have none.
    """

    def __init__(
        self,
        into: Sequence[Into],
        shapes: Sequence[tuple[int, int, torch.dtype]],
        needed: Sequence[bool],
        drops: Sequence[Drop | None],
    ):
        self._shapes, self._needed, self._drops = shapes, needed, drops
        self._left = Counter(source for entry in into for source in entry.sources)  # relations to come
        self._sums: list[Tensor | None] = [None] * len(shapes)  # gradients from the means of relations
        self._of_first: list[Tensor | None] = [None] * len(shapes)

    def add_first(self, number: int, grad: Tensor, own: Tensor) -> None:
        """Adds the gradient of the targets' own rows. ``own``: the own rows as forward() used them."""
        drop = self._drops[number]
        grad = grad.to(self._shapes[number][2])
        grad = grad if drop is None else kernels.drop_grad(own, grad, _native.RELU, drop.p)
        before = self._of_first[number]
        self._of_first[number] = grad if before is None else before + grad

    def add(self, number: int, block: Block, grad: Tensor, inverse_count: Tensor) -> None:
        """Adds the gradient of the sources' rows, from ``grad``, the gradient of the means over a block."""
        self._left[number] -= 1
        if not self._needed[number]:
            return
        before = self._sums[number]
        edges = kernels.transposed(GroupedEdges(block.indptr, block.source, block.num_targets), block.num_sources)
        self._sums[number] = kernels.sum_rows(
            edges,
            grad.to(self._shapes[number][2]),
            out=before,  # each row is read before it is written
            drop=None if self._left[number] else self._drops[number],
            own_use=_native.NO_OWN if before is None else _native.ADD_OWN,
            own=before,
            num_own=0 if before is None else len(before),
            index_factor=inverse_count,
        )

    def all(self) -> list[Tensor | None]:
        """The gradients of all rows of each node type; None: not needed."""
        for sums, first_grads in zip(self._sums, self._of_first, strict=True):
            if sums is not None and first_grads is not None:
                sums[: len(first_grads)] += first_grads
        return [
            F.pad(first_grads, (0, 0, 0, shape[0] - len(first_grads)))
            if sums is None and first_grads is not None
            else sums
            for sums, first_grads, shape in zip(self._sums, self._of_first, self._shapes, strict=True)
        ]
