"""The scores of a block of rows with queries, and the pairs of a query and a row that bounds do not rule out.

On a GPU, kernels score rows (ibp/group_scores.cu): first groups of rows, then the rows of groups that may hold one of
the best rows. The product of a row and a query is never written to memory. On other devices torch does the same, where
sums are added up in another order.
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


def of_block(bounds, block: torch.Tensor, k: int) -> "KernelScores | AllScores":
    """The scores of a block.

    Args:
        bounds: search.ScoreBounds.
        block: bfloat16 [n, d]; only zeros are 0.
        k: number of best rows. There are at least 8 k groups, if the block has as many rows.
    """
    if takes(block.is_cuda, block.shape[1]) and len(block) % ROWS == 0 and len(block) // ROWS >= 8 * k:
        return KernelScores(bounds, block)
    group = ROWS
    while group > 1 and (len(block) % group or len(block) // group < 8 * k):
        group //= 2
    return AllScores(bounds, block, group)


def upper_bounds(score: torch.Tensor, radius: torch.Tensor) -> torch.Tensor:
    """float32: the upper bounds of scores; infinite where nothing is known."""
    return (score + radius).nan_to_num(nan=math.inf, posinf=math.inf, neginf=math.inf)


class AllScores:
    """Scores from the products of all rows with all queries. Rows of a group are n / (rows of a group) apart.

    Attributes:
        top: float32 [q, g]: the best score of each group; NaN: unknown.
        widest: float32 [g]: the largest radius of the group's rows.
    """

    def __init__(self, bounds, block: torch.Tensor, group: int):
        empty = ~block.any(1) if bounds.metric == "cosine" else None
        self._score, self._radius = bounds.of_block(block, empty)
        self._step = len(block) // group
        self._members = self._step * torch.arange(group, device=block.device)
        self.top = self._score.view(-1, group, self._step).amax(1)
        self.widest = self._radius.view(group, self._step).amax(0)

    def pairs(self, least: torch.Tensor) -> torch.Tensor:
        """int64 [p], in any order: query * g + group of pairs whose upper bound reaches least[query], float64 [q]."""
        return torch.nonzero(~(self.top + self.widest < least[:, None]).reshape(-1)).squeeze(1)

    def rows_of(self, pairs: torch.Tensor, least: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """(query int64 [n], row int64 [n], upper bound float32 [n], infinite where nothing is known).

        Of rows of `pairs` whose upper bounds reach the least score of their query, in any order.
        """
        of_query, groups = pairs // len(self.widest), pairs % len(self.widest)
        row = groups[:, None] + self._members
        high = upper_bounds(self._score[of_query[:, None], row], self._radius[row])
        pair, member = torch.nonzero(high >= least[of_query][:, None], as_tuple=True)
        return of_query[pair], row[pair, member], high[pair, member]


class KernelScores:
    """What AllScores is, by kernels: the rows are read once for the groups, and again for the rows of pairs().

    A group is ROWS consecutive rows.

    Args:
        block: contiguous bfloat16 [n, d] on a GPU; n is a multiple of ROWS, d a multiple of 8. It must not change until
            the last call.
    """

    def __init__(self, bounds, block: torch.Tensor):
        self._bounds, self._block, self._native = bounds, block, bounds.native()
        num_queries, num_groups = len(bounds.unit), len(block) // ROWS
        sizes = {"best": (num_groups, num_queries), "lengths": (len(block),), "widest": (num_groups,)}
        arrays = {name: torch.empty(size, dtype=torch.float32, device=block.device) for name, size in sizes.items()}
        self._best, self._lengths, self.widest = arrays.values()
        self._scores = _native.GroupScoresRef(*(each.data_ptr() for each in arrays.values()))
        queries = (bounds.unit.data_ptr(), num_queries)
        self._given = _native.RowsAndQueries(block.data_ptr(), len(block), *queries, block.shape[1])
        with torch.cuda.device(block.device):
            _native.score_groups(self._given, self._native, self._scores, self._stream())

    @property
    def top(self) -> torch.Tensor:
        """See AllScores."""
        return self._bounds.of_best(self._best.T.clone())

    def pairs(self, least: torch.Tensor) -> torch.Tensor:
        """See AllScores.pairs()."""

        def find(pairs: torch.Tensor, found: tuple) -> None:
            _native.find_pairs(
                self._given, self._native, self._scores, least.data_ptr(), pairs.data_ptr(), found, self._stream()
            )

        return self._all_found(find, self._best.numel(), torch.int64)[0]

    def rows_of(self, pairs: torch.Tensor, least: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """See AllScores.rows_of()."""

        def find(of_query: torch.Tensor, row: torch.Tensor, high: torch.Tensor, found: tuple) -> None:
            given = (self._lengths.data_ptr(), least.data_ptr(), pairs.data_ptr(), len(pairs))
            to = (of_query.data_ptr(), row.data_ptr(), high.data_ptr())
            _native.score_pairs(self._given, self._native, *given, to, found, self._stream())

        return self._all_found(find, ROWS * len(pairs), torch.int64, torch.int64, torch.float32)

    def _all_found(self, find, most: int, *dtypes: torch.dtype) -> tuple[torch.Tensor, ...]:
        """The arrays that find(*arrays, (address of a count, room)) fills, which counts at most `most`."""
        room = min(most, _ROOM)
        while True:
            count = torch.zeros(1, dtype=torch.int64, device=self._block.device)
            arrays = [torch.empty(room, dtype=dtype, device=self._block.device) for dtype in dtypes]
            with torch.cuda.device(self._block.device):
                find(*arrays, (count.data_ptr(), room))
            found = int(count)
            if found <= room:
                return tuple(each[:found].clone() for each in arrays)  # without the rest of the room
            room = found

    def _stream(self) -> int:
        return handle_of(torch.cuda.current_stream(self._block.device))
