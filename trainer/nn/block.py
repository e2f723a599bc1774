"""The edges that a layer sums over, grouped by target."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from cohort_gnn.base.errors import CohortError
from cohort_gnn.nn.operators import demand_run, operator
from cohort_gnn.trainer.offsets import OFFSETS


@dataclass(frozen=True)
class Block:
    """The edges of a layer, ordered by target; layers accept a Block in place of ``edge_index``. Nobody checks that its
    offsets ascend and that its rows are there, as is done on the CPU for ``edge_index``.

    Examples:
        >>> block = cohort.nn.Block(torch.tensor([0, 2, 3]), torch.tensor([1, 2, 2]), num_sources=3, num_targets=2)
        >>> cohort.nn.SAGEConv(8, 4)(torch.randn(3, 8), block).shape
        torch.Size([2, 4])

    Attributes:
        indptr: int64 [any], the first edge of each target. Targets from the last entry on have no edges, and offsets
            beyond the number of edges count as that number, so one array of a batch serves every layer.
        source: int64 [num_edges], the row of x that each edge sends.
        num_sources, num_targets: rows of x (without ``own_row_index``), and rows of the layer's output.
        order: int64 [num_edges], the position of each edge in the unsorted ``edge_index``; None: the same position.
        row_index: int64 [num_sources], the row of each source in a larger ``x``; None: source i has row i.
        own_row_index: int64 [num_targets], the row of each target in the larger ``x``; a negative one means zeros. Only
            for SAGEConv and GCNConv, float32 rows and rows without gradients. None: targets are the first sources.
        degrees: int32 [num_sources], the in-degree of each source in a larger graph, by which GCNConv normalises
            (without self-loops if the layer adds its own); None: the in-degrees in the block.
    """

    indptr: Tensor
    source: Tensor
    num_sources: int
    num_targets: int
    order: Tensor | None = None
    degrees: Tensor | None = None
    row_index: Tensor | None = None
    own_row_index: Tensor | None = None

    def __post_init__(self):
        for name in ("indptr", "source"):
            array = getattr(self, name)
            if array.dtype != torch.int64 or array.dim() != 1 or not array.is_contiguous():
                actual = f"{array.dtype} {list(array.shape)}"
                raise CohortError(f"Block: {name}", "int64 [any], contiguous", actual, ".long().contiguous()")

    def to(self, device: torch.device) -> "Block":
        """The same block on a device."""
        moved = {
            name: value.to(device)
            for name in ("indptr", "source", "order", "degrees", "row_index", "own_row_index")
            if (value := getattr(self, name)) is not None
        }
        return replace(self, **moved)


def rows_of_ends(x: Tensor | tuple[Tensor, Tensor | None], edge_index: Tensor | Block) -> tuple[Tensor, Tensor | None]:
    """The rows of sources and of targets; of a single tensor, a Block's targets are the first rows."""
    if not isinstance(x, Tensor):
        return x
    is_part = isinstance(edge_index, Block) and edge_index.num_targets < x.shape[0]
    return x, x[: edge_index.num_targets] if is_part else x


def block_of(edge_index: Tensor | Block, num_sources: int, num_targets: int) -> Block:
    """The edges as a block.

    The offsets of a batch are used when ``edge_index`` is the batch's, or its first columns. Other edges are sorted by
    target on their device; those of one target stay in their order.

    Args:
        edge_index: int64 [2, num_edges], row 0 source, row 1 target; on a GPU nobody checks that ids are in range.

    Raises:
        CohortError: no such edges, or torch records what layers do.
    """
    demand_run()
    if isinstance(edge_index, Block):
        if edge_index.own_row_index is not None:
            raise CohortError("block", "one whose sources are the rows of x", "a Block with own_row_index")
        actual = (edge_index.num_sources, edge_index.num_targets)
        if actual != (num_sources, num_targets):
            raise CohortError("block", f"{num_sources} sources and {num_targets} targets, the rows of x", str(actual))
        return edge_index
    if edge_index.dtype != torch.int64:
        raise CohortError("edge_index", "an int64 tensor of shape [2, edges], or a Block", str(edge_index.dtype))
    if edge_index.dim() != 2 or edge_index.shape[0] != 2:
        raise CohortError("edge_index: shape", "[2, edges]", str(list(edge_index.shape)))
    indptr = offsets_of(edge_index)
    if indptr is not None:
        if not torch.compiler.is_compiling():
            _demand_ids("source", edge_index[0], num_sources)
        return Block(indptr, edge_index[0], num_sources, num_targets)
    return _sorted(edge_index, num_sources, num_targets)


def offsets_of(edge_index: Tensor) -> Tensor | None:
    """The offsets of the batch whose first edges these are, unless the edges have been written to."""
    base = edge_index if edge_index._base is None else edge_index._base
    indptr, version = getattr(base, OFFSETS, (None, None))
    is_compiling = torch.compiler.is_compiling()  # and knows no version yet
    if indptr is None or not is_compiling and base._version != version:
        return None
    if edge_index is not base:  # in a compiled model a batch's are the base, and older torch compiles no offsets
        same = edge_index.storage_offset() == base.storage_offset() and edge_index.stride() == base.stride()
        if not same or edge_index.dim() != 2:
            return None
    return _unwritten(indptr, base, version) if is_compiling else indptr


@operator("unwritten")
def _unwritten(indptr: Tensor, edge_index: Tensor, version: int) -> Tensor:
    """In a compiled model: a copy of a batch's offsets. What the model itself writes to is not noticed.

    Raises:
        CohortError: somebody has written into the edges.
    """
    if edge_index._version != version:
        hint = "pass a copy to the model: batch.edge_index.clone()"
        raise CohortError("edge_index of a compiled model", "the edges of a batch", "others, written over them", hint)
    return indptr.clone()


_unwritten.register_fake(lambda indptr, edge_index, version: torch.empty_like(indptr))


def _sorted(edge_index: Tensor, num_sources: int, num_targets: int) -> Block:
    source, target = edge_index
    _demand_ids("source", source, num_sources)
    _demand_ids("target", target, num_targets)
    ordered = torch.sort(target, stable=True)
    targets = torch.arange(num_targets + 1, device=target.device)
    indptr = torch.searchsorted(ordered.values, targets)
    return Block(indptr, source[ordered.indices], num_sources, num_targets, ordered.indices)


def _demand_ids(name: str, ids: Tensor, end: int) -> None:
    """Raises CohortError for ids of rows that there are not; on a GPU nobody knows them."""
    if ids.device.type == "cpu" and ids.numel():
        low, high = (int(value) for value in ids.aminmax())
        if low < 0 or high >= end:
            raise CohortError(f"edge_index: {name}", f"ids in [0, {end})", f"{low} to {high}", "x has too few rows")
