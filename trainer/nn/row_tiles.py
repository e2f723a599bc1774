"""Results for a row that do not depend on the other rows of a call."""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from cohort_gnn.nn.operators import BODIES

TILE_ROWS = 128  # on the CPU
LEAST_TILES = 2  # of a single one, threads may share out the products of a row
GPU_TILE_ROWS = 4096
ALIGNED_BYTES = 64

_aten = torch.ops.aten
# The place of the rows among the arguments, which are followed by the weights.
_PRODUCTS = {_aten.mm: 0, _aten.addmm: 1, _aten.bmm: 0, _aten.baddbmm: 1, _aten.mv: 0}
_is_on = threading.local()


@contextlib.contextmanager
def row_tiles(tile_rows: int = TILE_ROWS) -> Iterator[None]:
    """Inside, without gradients, what layers of ``cohort.nn`` make of a row is the same bytes whichever rows stand
    beside it, and however many threads torch has.

    Libraries of matrix products choose their code by the number of rows, and with it the order in which a row's
    products are added up. So each product is that of tiles of as many rows, the last filled up with zeros: a batch of
    tiles of ``tile_rows`` rows on the CPU, one tile of ``GPU_TILE_ROWS`` after the other on a GPU. A layer that could
    multiply rows before it sums them, or after, chooses by its widths alone. Long lists of edges are summed in pieces
    that are counted from the list's first edge.

    Examples:
        >>> with torch.no_grad(), row_tiles():
        ...     some, all_rows = layer(x[:3]), layer(x)
        >>> torch.equal(some, all_rows[:3])
        True
    """
    before = rows_stand_alone()
    _is_on.value = True
    try:
        with _Tiles(tile_rows):
            yield
    finally:
        _is_on.value = before


def rows_stand_alone() -> bool:
    """Whether this thread is inside `row_tiles`."""
    return getattr(_is_on, "value", False)


class _Tiles(TorchDispatchMode):
    def __init__(self, tile_rows: int):
        super().__init__()
        self._tile_rows = tile_rows

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """No: torch would import its compiler, which takes seconds, and ask it at every operation."""
        return False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func in BODIES:
            with self:  # for the products in it
                return BODIES[func](*args, **(kwargs or {}))
        place = _PRODUCTS.get(func.overloadpacket)
        if place is None:
            return func(*args, **(kwargs or {}))
        rows, weight, *wide = args[place:]
        return _sum_with(args[:place], _product(rows, weight, self._tile_rows, *wide), **(kwargs or {}))


def _sum_with(first: tuple[Tensor, ...], product: Tensor, beta: float = 1, alpha: float = 1, out: Any = None) -> Tensor:
    """``beta * first[0] + alpha * product``, or ``product``; in ``out`` if it is given, or in the product's memory."""
    made = product if alpha == 1 else product.mul_(alpha)
    made = made.add_(first[0], alpha=beta) if first else made
    return made if out is None else out.copy_(made)


def _product(rows: Tensor, weight: Tensor, tile_rows: int, out_dtype: torch.dtype | None = None) -> Tensor:
    """``rows @ weight``, [n, k] @ [k, m] or [k], or [b, n, k] @ [b, k, m]; in the dtype of the rows by default."""
    dtype = out_dtype or rows.dtype
    if weight.dim() == 1:
        return _product_in_tiles(rows, weight.unsqueeze(1), tile_rows, dtype).squeeze(1)
    if rows.dim() == 2:
        return _product_in_tiles(rows, weight, tile_rows, dtype)
    if not len(rows):
        return rows.new_empty(0, rows.shape[1], weight.shape[2], dtype=dtype)
    return torch.stack([_product_in_tiles(rows[i], weight[i], tile_rows, dtype) for i in range(len(rows))])


def _product_in_tiles(rows: Tensor, weight: Tensor, tile_rows: int, dtype: torch.dtype) -> Tensor:
    """[n, k] @ [k, m] as a number of equal products."""
    tile_rows, least = (GPU_TILE_ROWS, 1) if rows.is_cuda else (tile_rows, LEAST_TILES)
    count, out = len(rows), rows.new_empty(len(rows), weight.shape[1], dtype=dtype)
    is_aligned = rows.is_contiguous() and rows.data_ptr() % ALIGNED_BYTES == 0
    tiles = count // tile_rows if is_aligned and count >= least * tile_rows else 0
    if tiles:
        _fill(out[: tiles * tile_rows], rows[: tiles * tile_rows], weight, tile_rows)
    if rest := count - tiles * tile_rows:
        room = max(least, -(-rest // tile_rows)) * tile_rows
        padded, made = rows.new_zeros(room, rows.shape[1]), out.new_empty(room, weight.shape[1])
        padded[:rest] = rows[count - rest :]
        _fill(made, padded, weight, tile_rows)
        out[count - rest :] = made[:rest]
    return out


def _fill(out: Tensor, rows: Tensor, weight: Tensor, tile_rows: int) -> None:
    """Puts the products of whole tiles into ``out``."""
    if not rows.is_cuda:  # a batch takes no longer than one product
        tiles = len(rows) // tile_rows
        batch = rows.view(tiles, tile_rows, -1), weight.expand(tiles, -1, -1)
        torch.bmm(*batch, out=out.view(tiles, tile_rows, -1))
        return
    wide = {} if out.dtype == rows.dtype else {"out_dtype": out.dtype}
    for some, made in zip(rows.split(tile_rows), out.split(tile_rows), strict=True):
        torch.mm(some, weight, **wide, out=made)
