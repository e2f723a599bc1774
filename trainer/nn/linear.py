"""The linear part of layers that sum rows before they are multiplied by the weights."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cohort_gnn.nn import kernels
from cohort_gnn.nn.inputs import IndexedRows, amp_dtype, has_hooks, is_plain, materialize
from cohort_gnn.nn.operators import Operator, once_differentiable
from cohort_gnn.nn.row_tiles import rows_stand_alone

PARTS = 512  # into which column_sums() divides many rows; the parts are summed in parallel
MANY_ROWS, FEW_COLUMNS = 32768, 64  # Cohort's products pay with at least as many rows, and as many columns
WIDE_PRODUCTS = "dtype" in torch.ops.aten.mm.overloads()  # since torch 2.8, on GPUs: 16-bit factors, float32 product
_ROOM = 0 if WIDE_PRODUCTS else 10  # powers of two by which 16-bit sums are kept smaller, so they do not overflow


def linear(rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """``F.linear`` for many rows.

    If the GPU can do so, tensor cores multiply float32 as exactly as other float32 products
    (trainer/nn/native/product.h), unless ``torch.set_float32_matmul_precision`` allows less precision; there, an
    infinite factor gives NaN. The gradient of the bias takes no longer than reading the gradient once. Under autocast,
    too, the product has the dtype of ``rows``, which the layer has chosen.
    """
    return _Linear.apply(rows, weight.to(rows.dtype), None if bias is None else bias.to(rows.dtype))


def through(module: nn.Module, rows: Tensor) -> Tensor:
    """``module(rows)``, with linear() for plain linear layers, if ``module`` is one or a Sequential with some."""
    if has_hooks(module) or module._forward_pre_hooks or "forward" in vars(module):
        return module(rows)
    if type(module) is nn.Sequential:
        for part in module:
            rows = through(part, rows)
        return rows
    if is_plain(module) and rows.dim() == 2:
        return linear(rows.to(amp_dtype(rows)), module.weight, module.bias)
    return module(rows)


def called(module: nn.Module, rows: Tensor) -> Tensor:
    """``module(rows)`` of a linear layer, whose weights get the dtype of the rows where they have another."""
    if rows.dtype == module.weight.dtype or torch.is_autocast_enabled(rows.device.type):
        return module(rows)
    materialize(module, rows.shape[1])
    return through(module, rows)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows, weight, bias):
        ctx.save_for_backward(rows, weight)
        return product_of(rows, weight, bias)

    @staticmethod
    def backward(ctx, grad):
        rows, weight = ctx.saved_tensors
        needs_rows, needs_weight, needs_bias = ctx.needs_input_grad
        used = _used_rows(grad)
        grad, rows, unused = grad[:used], rows[:used], rows.shape[0] - used
        grad_rows = F.pad(grad @ weight, (0, 0, 0, unused)) if needs_rows and used else None
        if needs_weight and needs_bias:
            return grad_rows, *weight_and_bias_grads(grad, rows)
        return grad_rows, weight_grad(grad, rows) if needs_weight else None, column_sums(grad) if needs_bias else None


def _used_rows(grad: Tensor) -> int:
    """kernels.used_rows(), or all where most are: a product of fewer rows may round otherwise."""
    used = kernels.used_rows(grad)
    return used if 2 * used < grad.shape[0] else grad.shape[0]


def product_of(rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """``linear`` without gradients; all arguments have one dtype."""
    if rows_stand_alone():
        rows = kernels.in_packs(rows)  # a single row of a wider matrix already counts as contiguous
    if rows.shape[1] <= kernels.MAX_PRODUCT_DEPTH and _pays(rows, weight.shape[0]):
        return _product(rows, weight, bias)
    return F.linear(rows, weight, bias)


def weight_and_bias_grads(grad: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """``grad.t() @ rows`` and ``grad.sum(dim=0)``."""
    if _grad_pays(grad, rows):
        return _product_grad(grad, rows)
    return grad.t() @ rows, column_sums(grad)


def head_linear(rows: Tensor, weight: Tensor) -> Tensor:
    """The rows of each head times the weights of this head.

    Args:
        rows: [heads, rows, depth].
        weight: [heads, width, depth].

    Returns:
        [rows, heads, width], in the dtype of ``rows``. torch.bmm computes it. The gradient of the weights is computed
        head by head: it has few elements, each a sum over all rows, and bmm does not divide a sum among blocks.
    """
    return _HeadLinear.apply(rows, weight.to(rows.dtype), False)


def heads_apart(rows: Tensor, weight: Tensor) -> Tensor:
    """head_linear() as [heads, rows, width], contiguous."""
    return _HeadLinear.apply(rows, weight.to(rows.dtype), True)


class _HeadLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows, weight, heads_first):
        ctx.save_for_backward(rows, weight)
        ctx.heads_first = heads_first
        if heads_first:
            return torch.bmm(rows, weight.transpose(1, 2))
        out = rows.new_empty(rows.shape[1], *weight.shape[:2])
        torch.bmm(rows, weight.transpose(1, 2), out=out.transpose(0, 1))
        return out

    @staticmethod
    def backward(ctx, grad):
        rows, weight = ctx.saved_tensors
        by_head, (needs_rows, needs_weight, _) = grad if ctx.heads_first else grad.transpose(0, 1), ctx.needs_input_grad
        grad_rows = torch.bmm(by_head, weight) if needs_rows else None
        return grad_rows, torch.stack(list(map(weight_grad, by_head, rows))) if needs_weight else None, None


def weight_grad(grad: Tensor, rows: Tensor) -> Tensor:
    """``grad.t() @ rows``"""
    return _product_grad(grad, rows)[0] if _grad_pays(grad, rows) else grad.t() @ rows


def _grad_pays(grad: Tensor, rows: Tensor) -> bool:
    again = torch.is_grad_enabled()  # torch computes gradients of gradients
    return not again and grad.dtype == torch.float32 and _pays(rows, grad.shape[1])


def _pays(rows: Tensor, width: int) -> bool:
    is_many = rows_stand_alone() or rows.shape[0] >= MANY_ROWS  # where they stand alone, widths decide
    large = is_many and min(rows.shape[1], width) >= FEW_COLUMNS
    return large and torch.get_float32_matmul_precision() == "highest" and kernels.takes_products(rows, width)


_product = Operator("product", kernels.product)


@_product.register_fake
def _(rows, weight, bias):
    return rows.new_empty(rows.shape[0], weight.shape[0])


_product_grad = Operator("product_grad", kernels.product_grad)


@_product_grad.register_fake
def _(grad, rows):
    return rows.new_empty(grad.shape[1], rows.shape[1]), rows.new_empty(grad.shape[1])


def column_sums(x: Tensor) -> Tensor:
    """``x.sum(dim=0)`` [columns]; the order of the additions depends on the shape alone."""
    part_rows = x.shape[0] // PARTS
    if part_rows < 2:
        return x.sum(dim=0)
    wide = x.dtype if x.dtype == torch.float64 else torch.float32
    whole = part_rows * PARTS
    sums = x[:whole].unflatten(0, (PARTS, part_rows)).sum(dim=1, dtype=wide).sum(dim=0)
    return (sums + x[whole:].sum(dim=0, dtype=wide)).to(x.dtype)


def end_scores(rows: Tensor | IndexedRows, vectors: Tensor) -> Tensor:
    """``rows @ vectors.t()`` for a few vectors: [rows, vectors], float64 for float64 rows, otherwise float32.

    16-bit rows are multiplied without conversion. The gradient of the vectors, a sum over all rows, also counts
    gradients that are too small for float16. IndexedRows are gathered unless a GPU has a kernel for them.
    """
    if isinstance(rows, IndexedRows):
        if kernels.takes_indexed_scores(rows.rows):
            return _IndexedScores.apply(rows, vectors)
        rows = rows.gathered()
    if rows.element_size() > 2:
        return F.linear(rows, vectors.to(rows.dtype))
    return _Scores.apply(rows, vectors)


class _Scores(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows, vectors):
        ctx.count, ctx.dtype = vectors.shape[0], vectors.dtype
        vectors = _in_eights(vectors.to(rows.dtype))
        ctx.save_for_backward(rows, vectors)
        return _wide_product(rows, vectors.t())[:, : ctx.count]

    @staticmethod
    def backward(ctx, grad):
        rows, vectors = ctx.saved_tensors
        needs_rows, needs_vectors = ctx.needs_input_grad
        grad = F.pad(grad, (0, -ctx.count % 8))
        grad_rows = grad.to(rows.dtype) @ vectors if needs_rows else None
        if not (needs_vectors and rows.shape[0]):
            return grad_rows, vectors.new_zeros(ctx.count, rows.shape[1], dtype=ctx.dtype) if needs_vectors else None
        half, exponent = _scaled(grad, rows.dtype)
        return grad_rows, torch.ldexp(_wide_product(half.t(), rows)[: ctx.count], exponent).to(ctx.dtype)


class _IndexedScores(torch.autograd.Function):
    """Of IndexedRows that kernels.takes_indexed_scores() tells of."""

    @staticmethod
    def forward(ctx, rows, vectors):
        ctx.rows, ctx.count, ctx.dtype = rows, len(vectors), vectors.dtype
        vectors = _in_eights(vectors.to(rows.dtype))
        return kernels.indexed_scores(rows.rows, rows.row_index, vectors)[:, : ctx.count]

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        rows = ctx.rows
        if not len(grad):
            return None, grad.new_zeros(ctx.count, rows.shape[1], dtype=ctx.dtype)
        half, exponent = _scaled(F.pad(grad, (0, -ctx.count % 8)), rows.dtype)
        sums = kernels.indexed_scores_grad(half, rows.rows, rows.row_index)[: ctx.count]
        return None, torch.ldexp(sums, exponent).to(ctx.dtype)


def _in_eights(vectors: Tensor) -> Tensor:
    """Adds zeros at the end, since tensor cores take multiples of eight."""
    return F.pad(vectors, (0, 0, 0, -len(vectors) % 8))


def _scaled(grad: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """In 16 bits, scaled to below 1, so that small ones do not vanish; and by which power of two."""
    exponent = torch.frexp(torch.linalg.vector_norm(grad, torch.inf)).exponent.clamp(-100, 100) + _ROOM
    return torch.ldexp(grad, -exponent).to(dtype), exponent


def _wide_product(left: Tensor, right: Tensor) -> Tensor:
    """The product of two 16-bit matrices, in float32."""
    if not left.is_cuda:
        return left.float() @ right.float()
    return torch.mm(left, right, out_dtype=torch.float32) if WIDE_PRODUCTS else (left @ right).float()
