"""The native bodies of attention on torch's tensors; as in kernels.py, nothing here knows of gradients."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from cohort_gnn.nn import _native
from cohort_gnn.nn.kernels import GroupedEdges, _address, _scratch, run, sum_dtype


@dataclass(frozen=True)
class EdgeScores:
    """Of edges, the sum of what their ends and they themselves score, before leaky_relu.

    Attributes:
        source: float32 or float64 [sources, heads].
        target: likewise [targets, heads]; None: zeros.
        num_own: the first so many targets have an edge to themselves.
        slope: of leaky_relu where its argument is negative.
        edge: likewise [num_edges, heads], contiguous; None: zeros.
        own_edge: likewise [num_own, heads], of edges to themselves; None: zeros.
    """

    source: Tensor
    target: Tensor | None
    num_own: int
    slope: float
    edge: Tensor | None = None
    own_edge: Tensor | None = None

    def native(self) -> _native.EdgeScores:
        return _native.EdgeScores(
            source=self.source.data_ptr(),
            source_stride=self.source.stride(0),
            target=_address(self.target),
            target_stride=0 if self.target is None else self.target.stride(0),
            slope=self.slope,
            edge=_address(self.edge),
            own_edge=_address(self.own_edge),
        )


def attention(edges: GroupedEdges, scores: EdgeScores) -> tuple[Tensor, Tensor]:
    """Softmaxes over the edges of each row, [num_edges, heads] and, of edges to themselves, [num_own, heads]."""
    source, heads = scores.source, scores.source.shape[1]
    weights, own_weights = source.new_empty(edges.num_edges, heads), source.new_empty(scores.num_own, heads)
    stats = source.new_empty(2, edges.num_rows, heads)
    partial = _scratch(edges, source, source.dtype, 2 * heads)
    softmaxes = {"scores": scores.native(), "num_own": scores.num_own, "weights": weights, "own_weights": own_weights}
    over = {"largest": stats[0], "sums": stats[1], "partial": partial}
    run(_native.attention, source, **_sizes(edges, source, heads), **softmaxes, **over)
    return weights, own_weights


def attention_grad(
    edges: GroupedEdges,
    scores: EdgeScores,
    weights: Tensor,
    own_weights: Tensor,
    grads: Tensor,
    own_grads: Tensor,
    target_grads: Tensor,
) -> None:
    """Turns gradients of softmaxes into those of their arguments, in place; sums by row go into target_grads."""
    source, heads = scores.source, scores.source.shape[1]
    sums = source.new_empty(edges.num_rows, heads)
    partial = _scratch(edges, source, source.dtype, heads)
    softmaxes = {"scores": scores.native(), "num_own": scores.num_own, "weights": weights, "own_weights": own_weights}
    back = {"grads": grads, "own_grads": own_grads, "sums": sums, "partial": partial}
    back |= {"target_grads": target_grads, "target_grads_stride": target_grads.stride(0)}
    run(_native.attention_grad, source, **_sizes(edges, source, heads), **softmaxes, **back)


def spread_rows(
    edges: GroupedEdges,
    x: Tensor,
    weights: Tensor,
    own_weights: Tensor,
    out_dtype: torch.dtype,
    out: Tensor | None = None,
) -> Tensor:
    """[heads, num_rows, dim], the sums of each head of rows that all share; see trainer/nn/native/head_rows.h.

    Args:
        edges: also a part of the rows; own_weights are those of all.
    """
    dim, heads = x.shape[1], weights.shape[1]
    if out is None:
        out = x.new_empty((heads, edges.num_rows, dim), dtype=out_dtype)
    partial = _scratch(edges, x, sum_dtype(x.dtype), heads * dim)
    sizes = _sizes(edges, x, dim) | {"heads": heads, "out_dtype": out_dtype, "x_stride": x.stride(0)}
    used = {"weights": weights, "own_weights": own_weights, "num_own": own_weights.shape[0]}
    run(_native.spread_rows, x, **sizes, **used, first_row=edges.first_row, x=x, out=out, partial=partial)
    return out


def fold_rows(edges: GroupedEdges, x: Tensor, weights: Tensor, own_weights: Tensor) -> Tensor:
    """[num_rows, dim], sums over heads of ``x`` [heads, rows, dim], contiguous; edges are transposed."""
    heads, num_rows, dim = x.shape
    out = x.new_empty((edges.num_rows, dim))
    partial = _scratch(edges, x, sum_dtype(x.dtype), dim)
    sizes = _sizes(edges, x, dim) | {"heads": heads, "x_rows": num_rows}
    used = {"weights": weights, "own_weights": own_weights, "num_own": own_weights.shape[0]}
    run(_native.fold_rows, x, **sizes, **used, x=x, out=out, partial=partial)
    return out


def new_dots(
    edges: GroupedEdges, x: Tensor, heads: int, num_own: int, zero_rest: bool = False
) -> tuple[Tensor, Tensor]:
    """Memory for the products of edges' rows, [num_edges, heads], and of rows with themselves, [num_own, heads].

    Args:
        zero_rest: edges that belong to no row have zeros; else memory as it was.
    """
    kind = sum_dtype(x.dtype)
    dots, own_dots = (x.new_empty((count, heads), dtype=kind) for count in (edges.num_edges, num_own))
    return dots.zero_() if zero_rest else dots, own_dots


@dataclass(frozen=True)
class Bend:
    """What dot_rows() computes in place of products: for each head the sum of att * leaky_relu(grad + x + edge).

    Attributes:
        att: sum_dtype [heads, dim], contiguous.
        slope: of leaky_relu where its argument is negative.
        edge: [num_edges, heads * dim], contiguous, rows of edges; None: zeros.
        own_edge: [num_own, heads * dim], likewise of edges from rows to themselves.
    """

    att: Tensor
    slope: float
    edge: Tensor | None = None
    own_edge: Tensor | None = None

    def native(self) -> _native.Bend:
        addresses = {name: _address(getattr(self, name)) for name in ("att", "edge", "own_edge")}
        return _native.Bend(**addresses, slope=self.slope)


_NO_BEND = _native.Bend(att=0, edge=0, own_edge=0, slope=0.0)


def dot_rows(
    edges: GroupedEdges,
    grad: Tensor,
    x: Tensor,
    num_own: int,
    out: tuple[Tensor, Tensor] | None = None,
    bend: Bend | None = None,
) -> tuple[Tensor, Tensor]:
    """Products of each edge's two rows and of a row's with its own, as new_dots() has them.

    Args:
        edges: also a part of the rows.
        grad: [heads, num_rows, dim], of the dtype of ``x``, or of 16 bits where ``x`` has 16 or 32.
        x: [heads, rows, dim]; heads that share their rows have a stride of 0.
        out: from new_dots(), for all rows.
        bend: what becomes of the rows in place of products; both have one dtype then, and heads have rows of their own.
    """
    heads, _, dim = grad.shape
    dots, own_dots = out or new_dots(edges, x, heads, num_own)
    sizes = _sizes(edges, x, dim) | {"heads": heads, "num_own": num_own, "first_row": edges.first_row}
    sizes |= {"grad_dtype": grad.dtype, "bend": _NO_BEND if bend is None else bend.native()}
    run(_native.dot_rows, x, **sizes, grad=_head_rows(grad), x=_head_rows(x), dots=dots, own_dots=own_dots)
    return dots, own_dots


_PLAIN_JOINED = {"heads": 1, "slope": 0.0, "num_own": 0}
_JOINED_ROWS = ("own", "x", "edge", "own_edge", "factor", "own_factor", "scale", "other")
_JOINED_SUMS = ("slopes", "bent", "edge_grads", "own_edge_grads")


def joined_rows(edges: GroupedEdges, like: Tensor, **fields: Any) -> None:
    """Sums of what both ends of an edge bring together, into the arrays that ``fields`` name.

    Args:
        like: a tensor [any, dim] with the dtype and the device of all rows.
        fields: of JoinedCall in trainer/nn/native/joined_rows.h, where the formula stands; absent: None, or as in
            _PLAIN_JOINED.
    """
    fields = _PLAIN_JOINED | dict.fromkeys((*_JOINED_ROWS, *_JOINED_SUMS)) | fields
    strides = {
        f"{name}_stride": 0 if fields[name] is None else fields[name].stride(0) for name in ("own", "x", "other")
    }
    partial = _scratch(edges, like, sum_dtype(like.dtype), 2 * like.shape[1])
    run(_native.joined_rows, like, **_sizes(edges, like, like.shape[1]), **fields, **strides, partial=partial)


def by_head(rows: Tensor, heads: int) -> Tensor:
    """A view [heads, rows, dim]."""
    return rows.unflatten(1, (heads, -1)).transpose(0, 1)


def _sizes(edges: GroupedEdges, x: Tensor, dim: int) -> dict[str, Any]:
    return {"block": edges.ref, "dtype": x.dtype, "dim": dim}


def _head_rows(rows: Tensor) -> _native.HeadRows:
    return _native.HeadRows(data=rows.data_ptr(), row_stride=rows.stride(1), head_stride=rows.stride(0))
