"""The scores of a block of rows with queries: the best score of each group of rows, and all scores of some groups.

On a GPU, kernels compute both from the rows (ibp/group_scores.cu): the product of a row and a query is written to
memory only if the row's group may hold one of the best rows. For other devices, best_of_groups() and
products_of_pairs() are written in torch, where sums are added up in another order.
"""

import torch

from cohort_gnn.ibp import _native
from cohort_gnn.ibp.rows import handle_of

ROWS = 32  # most rows of a group


def takes(on_gpu: bool, dim: int) -> bool:
    """Whether kernels score rows of `dim` columns."""
    return on_gpu and _native.with_cuda and dim % 8 == 0


def of_block(bounds, block: torch.Tensor, k: int) -> "GroupScores | AllScores":
    """The scores of a block.

    Args:
        bounds: search.ScoreBounds.
        block: bfloat16 [n, d]; only zeros are 0.
        k: number of best rows. There are at least 8 k groups, if the block has as many rows.
    """
    if takes(block.is_cuda, block.shape[1]) and len(block) % ROWS == 0 and len(block) // ROWS >= 8 * k:
        return GroupScores(bounds, block)
    group = ROWS
    while group > 1 and (len(block) % group or len(block) // group < 8 * k):
        group //= 2
    return AllScores(bounds, block, group)


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

    def of_pairs(self, of_query: torch.Tensor, groups: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """(row int64, score float32, radius float32), each [p, rows of a group], of p pairs of a query and a group."""
        row = groups[:, None] + self._members
        return row, self._score[of_query[:, None], row], self._radius[row]


class GroupScores:
    """Scores from two passes over the rows: the best score of each group, then the products of the pairs of of_pairs().

    A group is ROWS consecutive rows. The attributes are those of AllScores.

    Args:
        block: must not change until the last call of of_pairs().
    """

    def __init__(self, bounds, block: torch.Tensor):
        self._bounds, self._block = bounds, block
        best, self._lengths = best_of_groups(bounds, block)
        self._radius = bounds.radius(self._lengths)
        self.top = bounds.of_best(best)
        self.widest = self._radius.view(-1, ROWS).amax(1)

    def of_pairs(self, of_query: torch.Tensor, groups: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """See AllScores.of_pairs()."""
        row = groups[:, None] * ROWS + torch.arange(ROWS, device=groups.device)
        products = products_of_pairs(self._bounds.unit, self._block, of_query, groups)
        return row, self._bounds.of_products(products, self._lengths[row], of_query), self._radius[row]


def _given(queries: torch.Tensor, block: torch.Tensor):
    """The native view of both arrays, and the stream for kernels that read them."""
    given = _native.RowsAndQueries(block.data_ptr(), len(block), queries.data_ptr(), len(queries), block.shape[1])
    return given, handle_of(torch.cuda.current_stream(block.device))


def best_of_groups(bounds, block: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(best float32 [q, n / ROWS], lengths of rows float32 [n]); for cosine, rows of zeros have length 1.

    `best` is the maximum over a group's rows of: dot: the product of row and query (bounds.unit); cosine: the product
    divided by the length of the row; l2: the product times bounds.factors, less the square of the length. If one of
    these numbers is NaN, `best` is NaN.

    Args:
        bounds: search.ScoreBounds.
        block: contiguous bfloat16 [n, d]; n is a multiple of ROWS, and on a GPU d is a multiple of 8.
    """
    num_queries, num_groups = len(bounds.unit), len(block) // ROWS
    if block.is_cuda:
        best = torch.empty(num_groups, num_queries, dtype=torch.float32, device=block.device)
        lengths = torch.empty(len(block), dtype=torch.float32, device=block.device)
        with torch.cuda.device(block.device):
            given, stream = _given(bounds.unit, block)
            pointers = (bounds.factors.data_ptr(), best.data_ptr(), lengths.data_ptr())
            _native.score_groups(given, bounds.metric, *pointers, stream)
        return best.T, lengths
    lengths = torch.linalg.vector_norm(block, dim=1, dtype=torch.float32)
    products = bounds.products(block) * bounds.factors[:, None]
    if bounds.metric == "cosine":
        lengths = torch.where(block.any(1), lengths, 1.0)
        products = products / lengths
    if bounds.metric == "l2":
        products = products - lengths.square()
    return products.view(num_queries, num_groups, ROWS).amax(2), lengths


def products_of_pairs(queries, block: torch.Tensor, of_query: torch.Tensor, groups: torch.Tensor) -> torch.Tensor:
    """float32 [p, ROWS]: the products of queries[of_query[i]] with the rows of group groups[i].

    Args:
        queries: contiguous bfloat16 [q, d].
        block: see best_of_groups().
        of_query, groups: int64 [p].
    """
    if block.is_cuda:
        products = torch.empty(len(groups), ROWS, dtype=torch.float32, device=block.device)
        of_query, groups = of_query.contiguous(), groups.contiguous()
        with torch.cuda.device(block.device):
            given, stream = _given(queries, block)
            pairs = (of_query.data_ptr(), groups.data_ptr(), len(groups))
            _native.score_pairs(given, *pairs, products.data_ptr(), stream)
        return products
    rows = block.view(-1, ROWS, block.shape[1])[groups].float()
    return torch.bmm(rows, queries[of_query].float()[:, :, None]).squeeze(2)
