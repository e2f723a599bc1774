"""Results for a row that do not depend on the other rows of a call."""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from cohort_gnn.nn.operators import BODIES

TILE_ROWS = 256
ALIGNED_BYTES = 64

_aten = torch.ops.aten
# The place of the rows among the arguments, and their dimension; arguments before them are added to the product.
_PRODUCTS = {_aten.mm: (0, 0), _aten.addmm: (1, 0), _aten.bmm: (0, 1), _aten.baddbmm: (1, 1), _aten.mv: (0, 0)}
_is_on = threading.local()


@contextlib.contextmanager
def row_tiles() -> Iterator[None]:
    """Inside, on the CPU and without gradients, what layers of ``cohort.nn`` make of a row is the same bytes whichever
    rows stand beside it, as long as torch has the same number of threads.

    Libraries of matrix products choose their code by the number of rows, and with it the order in which a row's
    products are added up. So each product is computed in tiles of ``TILE_ROWS`` rows, the last filled up with zeros. A
    layer that could multiply rows before it sums them, or after, chooses by its widths alone. Long lists of edges are
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
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func in BODIES:
            with self:  # for the products in it
                return BODIES[func](*args, **(kwargs or {}))
        place = _PRODUCTS.get(func.overloadpacket)
        if place is None or args[place[0]].device.type != "cpu":
            return func(*args, **(kwargs or {}))
        return _in_tiles(func.overloadpacket, *place, args, dict(kwargs or {}))


def _in_tiles(product: Any, place: int, dim: int, args: tuple, options: dict[str, Any]) -> Tensor:
    """``product(*args, **options)``, tile by tile along dimension ``dim`` of the argument at ``place``."""
    rows, out = args[place], options.pop("out", None)
    count = rows.shape[dim]
    tiled = [place] if not place or args[0].dim() < rows.dim() or args[0].shape[dim] != count else [0, place]
    for first in range(0, max(count, 1), TILE_ROWS):
        last = min(first + TILE_ROWS, count)
        parts = list(args)
        for number in tiled:
            parts[number] = _tile(args[number], dim, first, last)
        made = product(*parts, **options)
        if out is None:
            shape = list(made.shape)
            shape[dim] = count
            out = made.new_empty(shape)
        out.narrow(dim, first, last - first).copy_(made.narrow(dim, 0, last - first))
    return out


def _tile(array: Tensor, dim: int, first: int, last: int) -> Tensor:
    """TILE_ROWS rows, those from ``last`` on zeros, where libraries find them aligned."""
    part = array.narrow(dim, first, last - first)
    if last - first == TILE_ROWS and part.is_contiguous() and part.data_ptr() % ALIGNED_BYTES == 0:
        return part
    shape = list(part.shape)
    shape[dim] = TILE_ROWS
    tile = part.new_zeros(shape)
    tile.narrow(dim, 0, last - first).copy_(part)
    return tile
