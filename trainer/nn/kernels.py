"""The native bodies on torch's tensors: memory, addresses and streams. Nothing here knows of gradients."""

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from cohort_gnn.base.errors import CohortError
from cohort_gnn.nn import _native
from cohort_gnn.nn.row_tiles import rows_stand_alone

_DTYPES = {
    torch.float32: _native.FLOAT32,
    torch.bfloat16: _native.BFLOAT16,
    torch.float16: _native.FLOAT16,
    torch.float64: _native.FLOAT64,
}
_NO_DROP = _native.RowDrop(use=_native.NO_DROP, p=0.0, key=0, key_at=0, kept=0)
MAX_PRODUCT_DEPTH = getattr(_native, "max_product_depth", 0)  # 0: a build without CUDA


class GroupedEdges:
    """Edges grouped by row, as the native bodies take them.

    Args:
        indptr, index: int64; see Block.
        num_rows: rows that are reduced into.
        edge: int32 [num_edges], the number of each edge where factors of edges are looked up; None: its position.
        skip_self: leave out edges from a row to itself.
        first_row: the number of the first row, where rows are compared with ``index``; other than 0 only for
            spread_rows() and dot_rows() of head_kernels.py, and where none are compared.
    """

    def __init__(
        self,
        indptr: Tensor,
        index: Tensor,
        num_rows: int,
        edge: Tensor | None = None,
        skip_self: bool = False,
        first_row: int = 0,
    ):
        self._kept = indptr, index, edge
        self.num_edges, self.num_rows, self.first_row, self.skip_self = index.numel(), num_rows, first_row, skip_self
        self.ref = _native.BlockRef(
            offsets=indptr.data_ptr(),
            num_offsets=indptr.numel(),
            index=index.data_ptr(),
            edge=_address(edge),
            num_edges=self.num_edges,
            num_rows=num_rows,
            skip_self=skip_self,
            own_pieces=rows_stand_alone(),
        )

    def numbers(self) -> "GroupedEdges":
        """The same with the numbers of edges in place of the rows that they bring; they count all."""
        indptr, index, edge = self._kept
        number = torch.arange(len(index), device=index.device) if edge is None else edge.long()
        return GroupedEdges(indptr, number, self.num_rows)

    def rows(self, first: int, end: int) -> "GroupedEdges":
        """Those of rows [first, end)."""
        indptr, index, edge = self._kept
        return GroupedEdges(indptr[first:], index, end - first, edge, self.skip_self, self.first_row + first)


def run(body, device_of: Tensor, **fields) -> None:
    """Calls a native body on the current stream of a tensor's device: with tensors as addresses, None as 0."""
    arguments = {name: _as_native(value) for name, value in fields.items()}
    with torch.cuda.device_of(device_of):
        body(_stream(device_of), **arguments)


def _as_native(value):
    if value is None:
        return 0
    if type(value) is int:  # most are, and isinstance() takes longer
        return value
    if isinstance(value, Tensor):
        return value.data_ptr()
    return _DTYPES[value] if isinstance(value, torch.dtype) else value


def sum_dtype(dtype: torch.dtype) -> torch.dtype:
    """What rows of a dtype are summed in, and the dtype of their factors."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def matrix_of(x: Tensor) -> Tensor:
    """The matrix, with elements of a row side by side.

    Raises:
        CohortError: no matrix of floats.
    """
    if x.dtype not in _DTYPES or x.dim() != 2:
        kinds = "float32, bfloat16, float16 or float64"
        raise CohortError("features", f"[rows, columns] of {kinds}", f"{list(x.shape)} of {x.dtype}")
    return x if x.stride(1) == 1 or x.shape[1] <= 1 else x.contiguous()


def used_rows(grad: Tensor) -> int:
    """How many rows of a gradient [rows, columns] count: those after them are zeros, of nodes whose values nothing has
    used. All rows on a GPU, which is not waited for, and where torch needs more than the values."""
    is_known = grad.device.type == "cpu" and grad.dim() == 2 and grad.stride(1) == 1
    if not is_known or torch.is_grad_enabled() or torch.compiler.is_compiling():
        return grad.shape[0]
    width = grad.element_size()
    return _native.used_rows(grad.data_ptr(), grad.shape[0], grad.shape[1] * width, grad.stride(0) * width)


_PLAIN_SUM = {"own_use": _native.NO_OWN, "own": None, "num_own": 0, "heads": 1, "mean": False, "inverse_count": None}
_PLAIN_SUM |= dict.fromkeys(("edge_factor", "index_factor", "own_factor", "row_factor", "row_index", "own_row_index"))


def sum_rows(
    edges: GroupedEdges,
    x: Tensor,
    out_dtype: torch.dtype | None = None,
    out: Tensor | None = None,
    drop: "Drop | None" = None,
    **fields: Any,
) -> Tensor:
    """[num_rows, dim], or [num_rows, 2 dim] with own rows beside.

    Args:
        fields: others of SumRows in trainer/nn/native/sum_rows.h, where the formula stands, in place of _PLAIN_SUM.
    """
    fields = _PLAIN_SUM | fields
    dim, out_dtype, own = x.shape[1], out_dtype or x.dtype, fields["own"]
    if out is None:
        width = 2 * dim if fields["own_use"] == _native.OWN_BESIDE else dim
        out = x.new_empty((edges.num_rows, width), dtype=out_dtype)
    partial = _scratch(edges, x, sum_dtype(x.dtype))
    strides = {"x_stride": x.stride(0), "own_stride": 0 if own is None else own.stride(0), "out_stride": out.stride(0)}
    sizes = {"dtype": x.dtype, "out_dtype": out_dtype, "dim": dim}
    arrays = {"x": x, "out": out, "partial": partial, "drop": _NO_DROP if drop is None else drop.ref}
    run(_native.sum_rows, x, block=edges.ref, **sizes, **arrays, **strides, **fields)
    return out


def gather_rows(x: Tensor, row_index: Tensor, dtype: torch.dtype) -> Tensor:
    """``dtype`` [n, columns], the rows of ``x`` by ``row_index`` [n], with zeros where this is negative."""
    x, row_index = matrix_of(x), row_index.contiguous()
    out = x.new_empty((len(row_index), x.shape[1]), dtype=dtype)
    sizes = {"dtype": x.dtype, "out_dtype": dtype, "num_rows": len(row_index), "dim": x.shape[1]}
    run(_native.gather_rows, x, **sizes, x=x, x_stride=x.stride(0), row_index=row_index, out=out)
    return out


def max_rows(edges: GroupedEdges, x: Tensor) -> tuple[Tensor, Tensor]:
    """The largest of the rows of ``x`` that edges bring, [num_rows, dim], and how many bring it, in sum_dtype."""
    out = x.new_empty(edges.num_rows, x.shape[1])
    ties = torch.empty_like(out, dtype=sum_dtype(x.dtype))
    partial = _scratch(edges, x, ties.dtype, 2 * x.shape[1])
    sizes = {"block": edges.ref, "dtype": x.dtype, "dim": x.shape[1], "x_stride": x.stride(0)}
    run(_native.max_rows, x, **sizes, x=x, out=out, ties=ties, partial=partial)
    return out, ties


def max_rows_grad(columns: GroupedEdges, x: Tensor, largest: Tensor, shares: Tensor) -> Tensor:
    """The gradient of ``x`` [num_rows, dim]: for each edge of the transposed block, the share [rows, dim] of its row,
    where ``x`` is the largest."""
    out = x.new_empty(columns.num_rows, x.shape[1])
    partial = _scratch(columns, x, sum_dtype(x.dtype))
    sizes = {"block": columns.ref, "dtype": x.dtype, "dim": x.shape[1], "x_stride": x.stride(0)}
    run(_native.max_rows_grad, x, **sizes, x=x, largest=largest, shares=shares, out=out, partial=partial)
    return out


class Drop:
    """ReLU and dropout as part of sum_rows(), see RowDrop in trainer/nn/native/sum_rows.h.

    Args:
        use: DROP_IN or DROP_BACK.
        kept: uint8 [rows, dim / 4].
        p, key, key_at: as for drop().
    """

    def __init__(self, use: int, kept: Tensor, p: float, key: int = 0, key_at: Tensor | None = None):
        self._kept, self.p = (kept, key_at), p
        self.ref = _native.RowDrop(use=use, p=p, key=key, key_at=_address(key_at), kept=kept.data_ptr())


def takes_drop_in(x: Tensor) -> bool:
    """Whether rows [rows, dim] can have ReLU and dropout as part of sum_rows()."""
    packed = x.dim() == 2 and x.shape[1] > 0 and x.shape[1] * x.element_size() % 16 == 0
    return packed and x.element_size() <= 4 and _is_packed(x)


def takes_products(rows: Tensor, weight_rows: int) -> bool:
    """Whether product_grad() takes float32 rows [many, depth] and gradients [many, weight_rows], on this GPU."""
    packed = rows.dtype == torch.float32 and rows.dim() == 2 and rows.shape[1] % 4 == 0 and weight_rows % 4 == 0
    return rows.is_cuda and packed and _is_packed(rows) and _has_products(rows.device)


@functools.cache
def _has_products(device: torch.device) -> bool:
    with torch.cuda.device(device):
        return _native.has_products()


def _is_packed(x: Tensor) -> bool:
    return x.is_contiguous() and x.data_ptr() % 16 == 0


def product(rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """``F.linear`` [rows, width] of what takes_products(); of at most MAX_PRODUCT_DEPTH columns."""
    weight, bias = in_packs(weight), None if bias is None else in_packs(bias)
    out = rows.new_empty(rows.shape[0], weight.shape[0])
    num_rows, depth = rows.shape
    sizes = {"num_rows": num_rows, "depth": depth, "width": weight.shape[0]}
    run(_native.product, rows, **sizes, rows=rows, weight=weight, bias=bias, out=out)
    return out


def product_grad(grad: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """``grad.t() @ rows`` and ``grad.sum(dim=0)``, of what takes_products()."""
    grad, sizes = in_packs(grad), {"num_rows": rows.shape[0], "depth": rows.shape[1], "width": grad.shape[1]}
    out, sums = rows.new_empty(grad.shape[1], rows.shape[1]), rows.new_empty(grad.shape[1])
    partial = rows.new_empty(_native.num_product_parts(**sizes), grad.shape[1] * (rows.shape[1] + 1))
    run(_native.product_grad, rows, **sizes, grad=grad, rows=rows, out=out, column_sums=sums, partial=partial)
    return out, sums


def takes_indexed_scores(rows: Tensor) -> bool:
    """Whether indexed_scores() and indexed_scores_grad() take rows [any, dim], on this GPU."""
    is_half = rows.dtype in (torch.float16, torch.bfloat16)
    return rows.is_cuda and is_half and rows.shape[1] % _native.score_columns == 0 and _is_packed(rows)


def indexed_scores(rows: Tensor, row_index: Tensor, vectors: Tensor) -> Tensor:
    """float32 [n, vectors], the products of rows, by index, which takes_indexed_scores() tells of, and vectors.

    Args:
        vectors: [a multiple of 8, dim], in the dtype of ``rows``.
    """
    count, dim = len(row_index), rows.shape[1]
    room = -count % _native.score_rows + count
    parts = []
    for some in map(in_packs, vectors.split(_native.most_scores)):
        parts.append(rows.new_empty(room, len(some), dtype=torch.float32))
        sizes = {"dtype": rows.dtype, "count": count, "dim": dim, "width": len(some)}
        run(_native.indexed_scores, rows, **sizes, rows=rows, row_index=row_index, vectors=some, out=parts[-1])
    return (parts[0] if len(parts) == 1 else torch.cat(parts, dim=1))[:count]


def indexed_scores_grad(grad: Tensor, rows: Tensor, row_index: Tensor) -> Tensor:
    """float32 [vectors, dim], ``grad.t()`` times rows by index; for the arguments see indexed_scores().

    Args:
        grad: [n, a multiple of 8], in the dtype of ``rows``.
    """
    count, dim = len(row_index), rows.shape[1]
    num_parts, sums = _native.num_score_parts(count, dim), []
    for some in map(in_packs, grad.split(_native.most_scores, dim=1)):
        width = some.shape[1]
        partial = rows.new_empty(num_parts, width, dim, dtype=torch.float32)
        sizes = {"dtype": rows.dtype, "count": count, "dim": dim, "width": width, "parts": num_parts}
        run(_native.indexed_scores_grad, rows, **sizes, rows=rows, row_index=row_index, grad=some, partial=partial)
        sums.append(partial.sum(dim=0))
    return torch.cat(sums)


def in_packs(x: Tensor) -> Tensor:
    """Contiguous, and where sixteen bytes can be read at once."""
    return x if _is_packed(x) else x.clone(memory_format=torch.contiguous_format)


def transposed(edges: GroupedEdges, num_columns: int) -> GroupedEdges:
    """The same edges grouped by what they bring, in their order."""
    offsets, index, edge = transposed_arrays(edges, num_columns)
    return GroupedEdges(offsets, index, num_columns, edge, edges.skip_self)


def transposed_arrays(edges: GroupedEdges, num_columns: int) -> tuple[Tensor, Tensor, Tensor]:
    """The arrays of transposed(): int64 [num_columns + 1], the first edge of each column; int64 [num_edges], the row of
    each edge; int32 [num_edges], its number. Edges that are no row's, or no column's, come last."""
    device, num_edges = edges._kept[1].device, edges.num_edges
    if num_edges >= 2**31:
        raise CohortError("layer", "fewer than 2147483648 edges", str(num_edges), "use a smaller batch or fanout")
    offsets = torch.empty(num_columns + 1, dtype=torch.int64, device=device)
    index = torch.empty(num_edges, dtype=torch.int64, device=device)
    edge = torch.empty(num_edges, dtype=torch.int32, device=device)
    num_bytes = _native.transpose_scratch_bytes(_stream(index), num_edges)
    scratch = torch.empty(num_bytes, dtype=torch.uint8, device=device)
    arrays = {"offsets": offsets, "index": index, "edge": edge, "scratch": scratch, "scratch_bytes": num_bytes}
    run(_native.transpose, index, block=edges.ref, num_columns=num_columns, **arrays)
    return offsets, index, edge


def copy_arrays(parts: list[tuple[Tensor, Tensor, int]]) -> None:
    """Copies int64 tensors, all at once.

    Args:
        parts: one or more of (to, from, fill), contiguous, on one device; what `to` is longer becomes `fill`.
    """
    copies = [(source.data_ptr(), to.data_ptr(), source.numel(), to.numel(), fill) for to, source, fill in parts]
    with torch.cuda.device_of(parts[0][0]):
        _native.copy_arrays(_stream(parts[0][0]), copies)


def _scratch(edges: GroupedEdges, x: Tensor, dtype: torch.dtype, dim: int | None = None) -> Tensor | None:
    """Room for pieces of long rows [pieces, dim, x's if None]; the CPU needs none."""
    pieces = _native.max_pieces(edges.num_edges) if x.is_cuda else 0
    return x.new_empty((pieces, x.shape[1] if dim is None else dim), dtype=dtype) if pieces else None


def _address(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


def _stream(tensor: Tensor) -> int | None:
    return torch.cuda.current_stream(tensor.device).cuda_stream if tensor.is_cuda else None


def drop(x: Tensor, activation: int, p: float, key: int, key_at: Tensor | None = None) -> Tensor:
    """Activation and dropout, see trainer/nn/native/activation.h.

    Args:
        key_at: int64 [], on the device of ``x``, in place of ``key``.
    """
    if x.dtype not in _DTYPES:
        raise CohortError("activated", "float32, bfloat16, float16 or float64", str(x.dtype))
    x = _aligned(x)
    out = torch.empty_like(x)
    sizes = {"dtype": x.dtype, "activation": activation, "size": x.numel()}
    run(_native.drop, x, **sizes, p=p, key=key, key_at=key_at, x=x, out=out)
    return out


def drop_grad(y: Tensor, grad: Tensor, activation: int, p: float) -> Tensor:
    """Its gradient, from what came out."""
    grad = _aligned(grad)
    out = torch.empty_like(y)
    sizes = {"dtype": y.dtype, "activation": activation, "size": y.numel()}
    run(_native.drop_grad, y, **sizes, p=p, y=y, grad=grad, out=out)
    return out


def totals(parts: Sequence[Tensor], bias: Tensor | None = None) -> Tensor:
    """The sum of tensors of one shape [rows, columns] and dtype, and of ``bias`` [columns] for each row, rounded once
    for each _native.MOST_PARTS of them."""
    out, rest = parts[0], list(parts[1:])
    while rest or bias is not None:
        some = [part.contiguous() for part in (out, *rest[: _native.MOST_PARTS - 1])]
        rest = rest[_native.MOST_PARTS - 1 :]
        out = torch.empty_like(some[0])
        sizes = {"dtype": _DTYPES[out.dtype], "size": out.numel(), "columns": out.shape[-1]}
        last = None if rest or bias is None else bias.contiguous()
        with torch.cuda.device_of(out):
            addresses = [part.data_ptr() for part in some]
            _native.totals(_stream(out), **sizes, parts=addresses, bias=_address(last), out=out.data_ptr())
        bias = bias if rest else None
    return out


def _aligned(x: Tensor) -> Tensor:
    """Contiguous, and where groups of four elements can be read at once."""
    x = x.contiguous()
    return x if x.data_ptr() % (4 * x.element_size()) == 0 else x.clone()
