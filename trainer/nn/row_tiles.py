"""Results for a row that do not depend on the other rows of a call."""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from cohort_gnn.nn.operators import BODIES

TILE_ROWS = 128
LEAST_TILES = 2  # of a single one, threads may share out the products of a row
ALIGNED_BYTES = 64

_aten = torch.ops.aten
# The place of the rows among the arguments, which are followed by the weights.
_PRODUCTS = {_aten.mm: 0, _aten.addmm: 1, _aten.bmm: 0, _aten.baddbmm: 1, _aten.mv: 0}
_is_on = threading.local()


@contextlib.contextmanager
def row_tiles() -> Iterator[None]:
    """Inside, on the CPU and without gradients, what layers of ``cohort.nn`` make of a row is the same bytes whichever
    rows stand beside it, and however many threads torch has.

    Libraries of matrix products choose their code by the number of rows, and with it the order in which a row's
    products are added up. So each product is a batch of products of ``TILE_ROWS`` rows, the last filled up with zeros.
    A layer that could multiply rows before it sums them, or after, chooses by its widths alone. Long lists of edges are
    summed in pieces that are counted from the list's first edge.

    Examples:
        >>> with torch.no_grad(), row_tiles():
        ...     some, all_rows = layer(x[:3]), layer(x)
        >>> torch.equal(some, all_rows[:3])
        True
    """
    before = rows_stand_alone()
    _is_on.value = True
    try:
        with _Tiles():
            yield
    finally:
        _is_on.value = before


def rows_stand_alone() -> bool:
    """Whether this thread is inside `row_tiles`."""
    return getattr(_is_on, "value", False)


class _Tiles(TorchDispatchMode):
    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """No: torch would import its compiler, which takes seconds, and ask it at every operation."""
        return False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func in BODIES:
            with self:  # for the products in it
                return BODIES[func](*args, **(kwargs or {}))
        place = _PRODUCTS.get(func.overloadpacket)
        if place is None or args[place].device.type != "cpu":
            return func(*args, **(kwargs or {}))
        return _sum_with(args[:place], _product(*args[place : place + 2]), **(kwargs or {}))


def _sum_with(first: tuple[Tensor, ...], product: Tensor, beta: float = 1, alpha: float = 1, out: Any = None) -> Tensor:
    """``beta * first[0] + alpha * product``, or ``product``; in ``out`` if it is given, or in the product's memory."""
    made = product if alpha == 1 else product.mul_(alpha)
    made = made.add_(first[0], alpha=beta) if first else made
    return made if out is None else out.copy_(made)


def _product(rows: Tensor, weight: Tensor) -> Tensor:
    """``rows @ weight``: [n, k] @ [k, m] or [k], or [b, n, k] @ [b, k, m]."""
    if weight.dim() == 1:
        return _product_in_tiles(rows, weight.unsqueeze(1)).squeeze(1)
    if rows.dim() == 2:
        return _product_in_tiles(rows, weight)
    return torch.stack(list(map(_product_in_tiles, rows, weight))) if len(rows) else torch.bmm(rows, weight)


def _product_in_tiles(rows: Tensor, weight: Tensor) -> Tensor:
    """[n, k] @ [k, m] as a batch of equal products: that takes no longer than one product."""
    count, out = len(rows), rows.new_empty(len(rows), weight.shape[1])
    is_aligned = rows.is_contiguous() and rows.data_ptr() % ALIGNED_BYTES == 0
    tiles = count // TILE_ROWS if is_aligned and count >= LEAST_TILES * TILE_ROWS else 0
    if tiles:
        first = rows[: tiles * TILE_ROWS].view(tiles, TILE_ROWS, -1)
        torch.bmm(first, weight.expand(tiles, -1, -1), out=out[: tiles * TILE_ROWS].view(tiles, TILE_ROWS, -1))
    if rest := count - tiles * TILE_ROWS:
        tiles = max(LEAST_TILES, -(-rest // TILE_ROWS))
        padded = rows.new_zeros(tiles, TILE_ROWS, rows.shape[1])
        padded.view(-1, rows.shape[1])[:rest] = rows[count - rest :]
        out[count - rest :] = torch.bmm(padded, weight.expand(tiles, -1, -1)).view(-1, weight.shape[1])[:rest]
    return out
