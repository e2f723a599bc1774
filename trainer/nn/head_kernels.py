"""The native bodies of attention on torch's tensors; as in kernels.py, nothing here knows of gradients."""

from dataclasses import dataclass

import torch
from torch import Tensor

from cohort.nn.kernels import _DTYPES, Edges, _address, _device_of, _scratch, _stream, sum_dtype
from cohort.trainer import _native


@dataclass(frozen=True)
class Scores:
    """Of edges, the sum of what their ends score, before leaky_relu.

    Attributes:
        source: float32 or float64 [sources, heads].
        target: likewise [targets, heads]; None: zeros.
        num_own: the first so many targets have an edge to themselves.
        slope: of leaky_relu where its argument is negative.
    """

    source: Tensor
    target: Tensor | None
    num_own: int
    slope: float

    def native(self) -> tuple:
        target_stride = 0 if self.target is None else self.target.stride(0)
        return self.source.data_ptr(), self.source.stride(0), _address(self.target), target_stride, self.slope


def attention(edges: Edges, scores: Scores) -> tuple[Tensor, Tensor]:
    """Softmaxes over the edges of each row, [num_edges, heads] and, of edges to themselves, [num_own, heads]."""
    source, heads = scores.source, scores.source.shape[1]
    weights, own_weights = source.new_empty(edges.num_edges, heads), source.new_empty(scores.num_own, heads)
    stats = source.new_empty(2, edges.num_rows, heads)
    partial = _scratch(edges, source, source.dtype, 2 * heads)
    with _device_of(source):
        _native.attention(
            _stream(source),
            edges.ref,
            _DTYPES[source.dtype],
            heads,
            scores.native(),
            scores.num_own,
            weights.data_ptr(),
            own_weights.data_ptr(),
            stats[0].data_ptr(),
            stats[1].data_ptr(),
            _address(partial),
        )
    return weights, own_weights


def attention_grad(
    edges: Edges,
    scores: Scores,
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
    with _device_of(source):
        _native.attention_grad(
            _stream(source),
            edges.ref,
            _DTYPES[source.dtype],
            heads,
            scores.native(),
            scores.num_own,
            weights.data_ptr(),
            own_weights.data_ptr(),
            grads.data_ptr(),
            own_grads.data_ptr(),
            target_grads.data_ptr(),
            target_grads.stride(0),
            sums.data_ptr(),
            _address(partial),
        )


def spread_rows(edges: Edges, x: Tensor, weights: Tensor, own_weights: Tensor, out_dtype: torch.dtype) -> Tensor:
    """[heads, num_rows, dim], the sums of each head of rows that all share; see trainer/native/head_rows.h."""
    dim, heads = x.shape[1], weights.shape[1]
    out = x.new_empty((heads, edges.num_rows, dim), dtype=out_dtype)
    partial = _scratch(edges, x, sum_dtype(x.dtype), heads * dim)
    with _device_of(x):
        _native.spread_rows(
            _stream(x),
            edges.ref,
            _DTYPES[x.dtype],
            _DTYPES[out_dtype],
            dim,
            heads,
            x.data_ptr(),
            x.stride(0),
            weights.data_ptr(),
            own_weights.data_ptr(),
            own_weights.shape[0],
            out.data_ptr(),
            _address(partial),
        )
    return out


def fold_rows(edges: Edges, x: Tensor, weights: Tensor, own_weights: Tensor) -> Tensor:
    """[num_rows, dim], sums over heads of ``x`` [heads, rows, dim], contiguous; edges are transposed."""
    heads, num_rows, dim = x.shape
    out = x.new_empty((edges.num_rows, dim))
    partial = _scratch(edges, x, sum_dtype(x.dtype), dim)
    with _device_of(x):
        _native.fold_rows(
            _stream(x),
            edges.ref,
            _DTYPES[x.dtype],
            dim,
            heads,
            x.data_ptr(),
            num_rows,
            weights.data_ptr(),
            own_weights.data_ptr(),
            own_weights.shape[0],
            out.data_ptr(),
            _address(partial),
        )
    return out


def dot_rows(edges: Edges, grad: Tensor, x: Tensor, num_own: int) -> tuple[Tensor, Tensor]:
    """Products of each edge's two rows, [num_edges, heads], and of a row's with its own, [num_own, heads].

    Args:
        grad: [heads, num_rows, dim].
        x: [heads, rows, dim]; heads that share their rows have a stride of 0.
    """
    heads, _, dim = grad.shape
    kind = sum_dtype(x.dtype)
    dots, own_dots = x.new_empty((edges.num_edges, heads), dtype=kind), x.new_empty((num_own, heads), dtype=kind)
    with _device_of(x):
        _native.dot_rows(
            _stream(x),
            edges.ref,
            _DTYPES[x.dtype],
            dim,
            heads,
            (grad.data_ptr(), grad.stride(1), grad.stride(0)),
            (x.data_ptr(), x.stride(1), x.stride(0)),
            num_own,
            dots.data_ptr(),
            own_dots.data_ptr(),
        )
    return dots, own_dots
