"""The scores of a block of rows with queries, and the pairs of a query and a row that bounds do not rule out.

On a GPU, kernels score rows (group_scores.cu): first groups of rows, then the rows of groups that may hold one of the
best rows. The product of a row and a query is never written to memory. On other devices torch does the same, where sums
are added up in another order.
"""

import math

import torch

from cohort_gnn.ibp import _native
from cohort_gnn.ibp.rows import handle_of

ROWS = 32  # most rows of a group
_ROOM = 1 << 20  # for pairs that a kernel finds; if it finds more, it runs again with more


def takes(on_gpu: bool, dim: int) -> bool:
    """Whether kernels score rows of `dim` columns."""
    return on_gpu and _native.with_cuda and dim % 8 == 0


def score_rows(bounds, block: torch.Tensor, k: int, least: torch.Tensor | None) -> "KernelScores | AllScores":
    """The scores of a block.

    Args:
        bounds: search.ScoreBounds.
        block: bfloat16 [n, d]; only zeros are 0.
        k: number of best rows. There are at least 8 k groups, if the block has as many rows.
        least: float64 [q]: pairs with a lower upper bound are ruled out; None: nothing is known of them.
    """
    if takes(block.is_cuda, block.shape[1]) and len(block) % ROWS == 0 and len(block) // ROWS >= 8 * k:
        return KernelScores(bounds, block, least)
    group = ROWS
    while group > 1 and (len(block) % group or len(block) // group < 8 * k):
        group //= 2
    return AllScores(bounds, block, group, least, 4 * k * len(bounds.unit))


def upper_bounds(score: torch.Tensor, radius: torch.Tensor) -> torch.Tensor:
    """float32: the upper bounds of scores; infinite where nothing is known."""
    return (score + radius).nan_to_num(nan=math.inf, posinf=math.inf, neginf=math.inf)


class AllScores:
    """Scores from the products of all rows with all queries. Rows of a group are n / (rows of a group) apart.

    Args:
        least: see score_rows().
        most: number of pairs of a query and a group above which pairs() returns None.

    Attributes:
        top: float32 [q, g]: the best score of each group; NaN: unknown.
        widest: float32 [g]: the largest radius of the group's rows.
    """

    def __init__(self, bounds, block: torch.Tensor, group: int, least: torch.Tensor | None, most: int):
        empty = ~block.any(1) if bounds.metric == "cosine" else None
        self._least, self._most = least, most
        self._score, self._radius = bounds.score_rows(block, empty)
        self._step = len(block) // group
        self._members = self._step * torch.arange(group, device=block.device)
        self.top = self._score.view(-1, group, self._step).amax(1)
        self.widest = self._radius.view(group, self._step).amax(0)

    def pairs(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None:
        """found_with(least); None if `least` is None or rules out too few pairs, so that it should be raised first."""
        if self._least is None or len(self._pairs(self._least)[0]) > self._most:
            return None
        return self.found_with(self._least)

    def found_with(self, least: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """(query int64 [n], row int64 [n], upper bound float32 [n], infinite where nothing is known), in any order.

        Of pairs of a query and a row whose upper bound is not below the least score of the query.
        """
        query, groups = self._pairs(least)
        row = groups[:, None] + self._members
        high = upper_bounds(self._score[query[:, None], row], self._radius[row])
        pair, member = torch.nonzero(high >= least[query][:, None], as_tuple=True)
        return query[pair], row[pair, member], high[pair, member]

    def _pairs(self, least: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.nonzero(~(self.top + self.widest < least[:, None]), as_tuple=True)


class KernelScores:
    """AllScores by kernels: the rows are read once for the groups, and again for the groups not ruled out.

    A group is ROWS consecutive rows. The constructor starts the kernels; pairs() waits for them.

    Args:
        block: contiguous bfloat16 [n, d] on a GPU; n is a multiple of ROWS, d a multiple of 8. It must not change until
            the last call.
    """

    def __init__(self, bounds, block: torch.Tensor, least: torch.Tensor | None):
        self._bounds, self._block, self._native = bounds, block, bounds.native()
        num_queries, num_groups = len(bounds.unit), len(block) // ROWS
        sizes = {"best": (num_groups, num_queries), "lengths": (len(block),), "widest": (num_groups,)}
        arrays = {name: torch.empty(size, dtype=torch.float32, device=block.device) for name, size in sizes.items()}
        self._best, self._lengths, self.widest = arrays.values()
        self._scores = _native.GroupScoresRef(*(array.data_ptr() for array in arrays.values()))
        queries = (bounds.unit.data_ptr(), num_queries)
        self._given = _native.RowsAndQueries(block.data_ptr(), len(block), *queries, block.shape[1])
        with torch.cuda.device(block.device):
            _native.score_groups(self._given, self._native, self._scores, self._stream())
        self._found = None if least is None else FoundPairs(self, least, _ROOM)

    @property
    def top(self) -> torch.Tensor:
        """See AllScores."""
        return self._bounds.distances(self._best.T.clone())

    def pairs(self) -> tuple[torch.Tensor, ...] | None:
        """See AllScores.pairs()."""
        pairs = self._found
        return pairs.rows() if pairs is not None and pairs.room_needed() <= pairs.room else None

    def found_with(self, least: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """See AllScores.found_with()."""
        pairs = FoundPairs(self, least, _ROOM)
        while (needed := pairs.room_needed()) > pairs.room:
            pairs = FoundPairs(self, least, needed)
        return pairs.rows()

    def start(self, least: torch.Tensor, pairs: torch.Tensor, rows: list[torch.Tensor], counts: torch.Tensor) -> None:
        """Starts both kernels, which fill `pairs` [room] and `rows` [room] each, and add to counts, int64 [2]."""
        pair_count, row_count = ((tensor.data_ptr(), len(pairs)) for tensor in counts)
        known, stream = (self._given, self._native), self._stream()
        bound, to = (least.data_ptr(), pairs.data_ptr()), tuple(tensor.data_ptr() for tensor in rows)
        with torch.cuda.device(self._block.device):
            _native.find_pairs(*known, self._scores, *bound, pair_count, stream)
            _native.score_pairs(*known, self._lengths.data_ptr(), *bound, pair_count, to, row_count, stream)

    def new(self, size: int, dtype: torch.dtype) -> torch.Tensor:
        """An array on the device of the block."""
        return torch.empty(size, dtype=dtype, device=self._block.device)

    def _stream(self) -> int:
        return handle_of(torch.cuda.current_stream(self._block.device))


class FoundPairs:
    """Pairs that kernels find in a block, with room for `room` pairs of a query and a group, and for as many rows."""

    def __init__(self, scores: KernelScores, least: torch.Tensor, room: int):
        self.room, self._least = room, least.contiguous()
        self._pairs = scores.new(room, torch.int64)
        self._rows = [scores.new(room, dtype) for dtype in (torch.int64, torch.int64, torch.float32)]
        counts = scores.new(2, torch.int64).zero_()
        scores.start(self._least, self._pairs, self._rows, counts)
        self._counts = torch.empty(2, dtype=torch.int64, pin_memory=True)
        self._counts.copy_(counts, non_blocking=True)
        self._ended = torch.cuda.current_stream(counts.device).record_event()

    def room_needed(self) -> int:
        """A lower bound; the pairs fit if it is at most `room`. Waits for the kernels."""
        self._ended.synchronize()
        return int(self._counts.max())

    def rows(self) -> tuple[torch.Tensor, ...]:
        """See AllScores.found_with()."""
        return tuple(part[: int(self._counts[1])].clone() for part in self._rows)  # without the rest of the room
