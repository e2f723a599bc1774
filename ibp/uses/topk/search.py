"""top_k(): an exact search for the rows of an encoded table with the best scores, which reads few of the bytes."""

import math
from collections import deque

import numpy as np
import torch

from cohort_gnn.base.errors import CohortError
from cohort_gnn.ibp import _native
from cohort_gnn.ibp.arrays import demand_rows
from cohort_gnn.ibp.rows import EncodedRows, fetch
from cohort_gnn.ibp.table import Table
from cohort_gnn.ibp.uses.topk import group_scores
from cohort_gnn.ibp.uses.topk.blocks import BEGUN, row_blocks

METRICS = ("dot", "cosine", "l2")
_HOST_BYTES, _GPU_BYTES = 32 << 20, 512 << 20  # most bytes of a block's rows, and of its scores
# How many pairs are scored exactly at a time. With fewer rows, torch may add up a row in another order.
_LEAST_PAIRS, _MOST_PAIRS = 1 << 10, 1 << 18
# Blocks, besides the first. The least scores rise with the logarithm of their number, and the GPU waits for the host
# meanwhile.
_NARROWED_AFTER = frozenset(4**i for i in range(1, 16))
_SMALLEST, _LARGEST = 2.0**-40, 2.0**60  # between these, squares of lengths neither vanish nor overflow in float32
_WIDE_PRODUCTS = "dtype" in torch.ops.aten.mm.overloads()  # since torch 2.8: bfloat16 products, sums in float32


def top_k(encoded, queries, k, *, metric="dot", block_rows=None) -> tuple[torch.Tensor, torch.Tensor]:
    """The k rows of a table with the best scores for each query: (values [q, k], ids [q, k]), best first.

    The ids are those of a comparison with all rows in float64; of rows with equal scores the lower id comes first. For
    rows of codec planes, plane A of all rows is read, which gives bounds of each score; plane B is read only for rows
    that the bounds do not rule out. Rows of other codecs are all decoded. A NaN counts as the worst score.

    Args:
        encoded: EncodedRows or a Table, of float rows [n, d]. Rows that are pinned or on a GPU are read by the GPU.
        queries: float tensor or array [q, d] of finite numbers, on any device.
        k: 1 to n.
        metric: dot: the product, largest first. cosine: the product divided by both lengths, largest first, or 0 if a
            length is 0. l2: the Euclidean distance, smallest first.
        block_rows: number of rows in a block, which are decoded at a time. Default: as many as take 32 MiB on the CPU,
            and up to 512 MiB on a GPU, which holds five blocks at a time.

    Returns:
        values float32 and ids int64, on the device of `queries`. Scores that float32 cannot represent become 0 or
        infinite; the order of the ids is that of the scores in float64.

    Raises:
        CohortError: an argument that does not fit the table.
    """
    rows = encoded._rows if isinstance(encoded, Table) else encoded
    if not isinstance(rows, EncodedRows):
        hint = "cohort.ibp.encode(rows, cohort.ibp.fit(rows)) encodes them"
        raise CohortError("top_k: encoded", "EncodedRows or a Table", type(encoded).__name__, hint)
    if isinstance(queries, np.ndarray):
        demand_rows(queries, "top_k: queries")
    query_tensor = torch.as_tensor(queries).detach()
    _check(rows, query_tensor, k, metric, block_rows)
    wide = query_tensor.to("cpu" if rows._gpu is None else rows.device, torch.float64)
    if metric == "cosine":
        wide = unit_length(wide)
    search = _Search(rows, wide, k, metric, block_rows)
    with torch.autocast(wide.device.type, enabled=False):
        query, ids = search.candidates()
        scores = search.exact_scores(query, ids)
    order = torch.argsort(ids, stable=True)
    query, ids, scores = _in_order(query[order], ids[order], scores[order])
    best = _begins(query, len(wide))[:, None] + torch.arange(k, device=ids.device)
    values = -scores[best] if metric == "l2" else scores[best]
    return values.to(query_tensor.device, torch.float32), ids[best].to(query_tensor.device)


def unit_length(queries: torch.Tensor) -> torch.Tensor:
    """float64 [q, d]: finite queries, float64, divided by their lengths; zeros stay zeros.

    Queries are first divided by a power of two that makes the largest element 1 to 2, because squares of elements above
    2^511 overflow, and squares of elements below 2^-511 lose bits or vanish.
    """
    largest = queries.abs().amax(dim=1, keepdim=True)
    power = largest / (2 * torch.frexp(largest).mantissa)  # exact
    scaled = queries / torch.where(largest == 0, 1.0, power)
    return scaled / scaled.norm(dim=1, keepdim=True).clamp(min=1)


def _check(rows: EncodedRows, queries: torch.Tensor, k: int, metric: str, block_rows: int | None) -> None:
    num_rows, dim = rows.shape
    dtype = rows.profile.dtype
    if dtype not in ("float32", "float16", "bfloat16"):
        raise CohortError("top_k: rows", "float32, float16 or bfloat16", dtype)
    if queries.dim() != 2 or queries.shape[1] != dim or not queries.is_floating_point():
        raise CohortError("top_k: queries", f"floats [q, {dim}]", f"{queries.dtype} {list(queries.shape)}")
    if not torch.isfinite(queries).all():
        raise CohortError("top_k: queries", "finite numbers", "infinities or NaNs")
    if metric not in METRICS:
        raise CohortError("top_k: metric", " or ".join(METRICS), str(metric))
    if not isinstance(k, int | np.integer) or not 1 <= k <= num_rows:
        raise CohortError("top_k: k", f"1 to {num_rows}, the rows of the table", str(k))
    if block_rows is not None and block_rows < 1:
        raise CohortError("top_k: block_rows", "at least 1", str(block_rows))


def _block_bytes(rows: EncodedRows) -> int:
    """Most bytes of a block: on a GPU a sixteenth of the free memory, but _HOST_BYTES to _GPU_BYTES."""
    if rows._gpu is None:
        return _HOST_BYTES
    unused = torch.cuda.memory_reserved(rows._gpu) - torch.cuda.memory_allocated(rows._gpu)
    return max(min((torch.cuda.mem_get_info(rows._gpu)[0] + unused) // 16, _GPU_BYTES), _HOST_BYTES)


def _in_order(query: torch.Tensor, ids: torch.Tensor, scores: torch.Tensor):
    """Sorts pairs by query, then by score, largest first; pairs with equal query and score keep their order."""
    order = torch.argsort(scores, descending=True, stable=True)
    order = order[torch.argsort(query[order], stable=True)]
    return query[order], ids[order], scores[order]


def _as_table_rows(pairs: tuple[torch.Tensor, ...], first: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Pairs of a block as pairs of the table, whose row `first` is the first of the block."""
    query, row, high = pairs
    return query, row + first, high


def _begins(query: torch.Tensor, num_queries: int) -> torch.Tensor:
    """int64 [q]: the index of the first pair of each query, if pairs are ordered by query."""
    counts = torch.bincount(query, minlength=num_queries)
    return counts.cumsum(0) - counts


class _Search:
    """The pairs of a query and a row that may be among the best k of the query.

    A pair is ruled out if its upper bound is below the least score of its query, which at least k rows reach. The
    least score is the larger of two numbers: the k-th best lower bound of the rows of all blocks so far, and the k-th
    best exact score of the pairs that were the most promising after some of the blocks.

    Args:
        queries: float64 [q, d], on the device that reads the rows; for cosine of length 1 or 0.
        block_rows: see top_k().
    """

    def __init__(self, rows: EncodedRows, queries: torch.Tensor, k: int, metric: str, block_rows: int | None):
        self._rows, self._queries, self._k, self._metric = rows, queries, k, metric
        self._block_bytes = _block_bytes(rows)
        self._pairs = min(max(self._block_bytes // (16 * rows.shape[1]), _LEAST_PAIRS), _MOST_PAIRS)
        if rows._gpu is not None:
            rows.reserve(min(self._pairs, len(rows)))  # now, for all calls of exact_scores()
        self._blocks = row_blocks(
            rows, block_rows or self._default_block_rows()
        )  # a GPU fetches the first ones meanwhile
        self._bounds = ScoreBounds(queries, rows.profile.error_bound, metric)
        self._lows = queries.new_full((len(queries), k), -math.inf, dtype=torch.float32)  # the best lower bounds so far
        self._least = queries.new_full((len(queries),), -math.inf)  # rules out pairs with a lower upper bound

    def _default_block_rows(self) -> int:
        num_queries, dim = self._queries.shape
        row_bytes = 4 * max(num_queries, dim, 64)  # of a row in float32, or of its scores
        if group_scores.takes(self._rows._gpu is not None, dim):
            row_bytes = max(2 * dim, num_queries, 64)  # of a row in bfloat16, or of its share of groups' scores
        return max(self._block_bytes // row_bytes // group_scores.ROWS, 1) * group_scores.ROWS

    def candidates(self) -> tuple[torch.Tensor, torch.Tensor]:
        """(query, row) of all pairs that may be among the best: int64 [n] each."""
        pairs: list[tuple] = []
        begun: deque[tuple] = deque()  # blocks that a GPU scores while the host looks at what it found in earlier ones
        for number, (first, block) in enumerate(self._blocks):
            least = self._least if number else None
            begun.append((number, first, group_scores.score_rows(self._bounds, block, self._k, least)))
            if number == 0 or len(begun) > BEGUN:
                pairs = self._with_block(pairs, *begun.popleft())
        for pending in begun:
            pairs = self._with_block(pairs, *pending)
        query, row, _ = self._narrowed(pairs, self._pairs)
        return query, row

    def _with_block(self, pairs: list[tuple], number: int, first: int, scores) -> list[tuple]:
        """`pairs`, and the pairs of a block, (query int64 [n], row int64 [n], upper bound float32 [n]).

        Args:
            first: number of the block's first row.
            scores: the block's group_scores.AllScores or KernelScores.
        """
        block_pairs = scores.pairs()
        if block_pairs is None:
            self._raise_least(scores)
            if (
                number == 0
            ):  # few pairs raise the least scores by exact scores, which rule out most of the block's pairs
                self._narrowed([_as_table_rows(scores.found_with(self._promising(scores)), first)], 0)
            block_pairs = scores.found_with(self._least)
        pairs = [*pairs, _as_table_rows(block_pairs, first)]
        if number + 1 not in _NARROWED_AFTER:
            return pairs
        return [self._narrowed(pairs, 4 * len(self._queries) * self._k)]

    def _raise_least(self, scores) -> None:
        """Raises the least scores to the k-th best lower bounds of all groups so far.

        The lower bound of a group is its best score less its largest radius. Groups have no rows in common, so the k
        best lower bounds belong to k different rows.
        """
        low = (scores.top - scores.widest).nan_to_num(nan=-math.inf, posinf=-math.inf, neginf=-math.inf)
        self._lows = torch.cat([self._lows, low], 1).topk(self._k, dim=1).values
        self._least = torch.maximum(self._least, self._lows[:, -1].double() - 2 * self._bounds.slack)

    def _promising(self, scores) -> torch.Tensor:
        """float64 [q]: scores that about 4 k groups of a block reach: enough rows to raise the least scores by."""
        high = group_scores.upper_bounds(scores.top, scores.widest)
        reached = high.topk(min(4 * self._k, high.shape[1]), dim=1).values[:, -1]
        return torch.maximum(self._least, reached.double())

    def _narrowed(self, pairs: list[tuple], few: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The pairs that are left after the most promising pairs were scored exactly, which raises the least scores.

        Args:
            few: up to so many pairs are left as they are.
        """
        query, ids, high = (torch.cat(parts) for parts in zip(*pairs, strict=True))
        query, ids, high = self._reaching(query, ids, high)
        num_queries, some = len(self._queries), 2 * self._k
        if len(ids) <= few:
            return query, ids, high
        query, ids, high = _in_order(query, ids, torch.where(high.isinf(), -math.inf, high))  # unknown: last
        high = torch.where(high.isinf(), math.inf, high)
        rank = torch.arange(len(ids), device=ids.device) - _begins(query, num_queries)[query]
        promising = torch.nonzero(rank < some).squeeze(1)
        scores = self._queries.new_full((num_queries, some), -math.inf)
        promising_query = query[promising]
        scores[promising_query, rank[promising]] = self.exact_scores(promising_query, ids[promising])
        least = scores.topk(self._k, dim=1).values[:, -1] / self._bounds.scale - self._bounds.slack
        self._least = torch.maximum(self._least, least)
        return self._reaching(query, ids, high)

    def _reaching(self, query: torch.Tensor, ids: torch.Tensor, high: torch.Tensor):
        """The pairs whose upper bounds reach the least scores of their queries."""
        kept = torch.nonzero(high >= self._least[query]).squeeze(1)
        return query[kept], ids[kept], high[kept]

    def exact_scores(self, query: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """float64 [n]: the scores of pairs; larger is better. A pair's score does not depend on the other pairs."""
        order = torch.argsort(ids, stable=True)  # the pairs of a row stand together, so it is fetched once
        scores = torch.empty(len(ids), dtype=torch.float64, device=ids.device)
        for part in order.split(self._pairs) if len(ids) else ():
            part = torch.cat([part, part[-1:].expand(max(_LEAST_PAIRS - len(part), 0))])  # filled with the last pair
            wanted, place = torch.unique_consecutive(ids[part], return_inverse=True)
            rows = fetch(self._rows, wanted)[place]
            scores[part] = pair_scores(rows, self._queries[query[part]], self._metric)
        return scores


class ScoreBounds:
    """Bounds of the scores of rows with queries, from products of bfloat16 numbers. Larger scores are better.

    Let x be a row, a the row as it is read (of codec planes, plane A alone), and b the row a rounded to bfloat16.

    - |x - a| of an element is at most error_bound times the largest power of two up to |a|. It is 0 in rows that plane
      A holds exactly.
    - Rounding a to b adds at most 2^-8 times this power. It adds nothing to a plane A of up to 6 mantissa bits, which
      fits bfloat16. To rows that such a plane A holds exactly, rounding adds less than error_bound, which then is 2^-7
      or more.
    - So |x - b| of an element is at most `error` times |b|, and the distance of x and b at most `error` times the
      length of b. The products of x and of b with a query of length 1 differ by no more than this distance.
    - Queries are divided by their lengths and rounded; how far rounding moves a query is computed exactly.

    `sums` is more than twice the relative error of sums of `dim` products in float32, even if each addition truncates,
    as in tensor cores. Numbers below 2^-126 may become 0 or 2^-133 in any step; lengths are raised by more than the
    sum of such errors. Rows and queries whose squares could overflow have no bounds.

    Attributes:
        metric: metric of the scores.
        unit: bfloat16 [q, d]: the queries divided by their lengths; NaN: nothing is known of the query's scores.
        factors: float32 [q]: factors of the products.
        scale: float64 [q]: bounds are bounds of the scores divided by this number.
        slack: float32 [q]: the exact score of a pair, divided by scale, differs from the score of score_rows() by at
            most slack of the query plus radius of the row.

    Args:
        queries: float64 [q, d], finite; for cosine of length 1 or 0.
        error_bound: bound of the rows as they are read (Profile.error_bound); 0: they are exact.
    """

    def __init__(self, queries: torch.Tensor, error_bound: float, metric: str):
        dim = queries.shape[1]
        length = queries.norm(dim=1)
        zero = (queries == 0).all(1)
        largest = _LARGEST if metric == "l2" else 2.0**900
        known = zero | ((length > 1 / largest) & (length < largest))
        length = torch.where(known & ~zero, length, 1.0)
        unit = torch.where(known[:, None], queries / length[:, None], math.nan)
        self.metric, self.unit = metric, unit.to(torch.bfloat16)
        rounded = self.unit.double()
        self._length = torch.where(zero, 0.0, length).float()
        self._squares = (self._length.double() * rounded.norm(dim=1)).square().float()
        self.factors = 2 * self._length if metric == "l2" else torch.ones_like(self._length)
        moved = (unit - rounded).norm(dim=1).nan_to_num()
        self._sums = (dim + 8) * 2.0**-22
        self._least = math.sqrt(dim) * 2.0**-50
        error = error_bound if error_bound >= 2.0**-7 else error_bound + 2.0**-8
        rounding = float(moved.max()) if len(moved) else 0.0
        self.scale = torch.ones_like(length) if metric == "l2" else length
        self.slack = torch.zeros_like(self._length)
        if metric == "dot":
            self._slope = error + rounding + 2 * self._sums
        elif metric == "cosine":  # the chord of the angle between x and b; its sine is at most `error`
            self._slope = math.sqrt(2 - 2 * math.sqrt(1 - error * error)) + rounding + 4 * self._sums
        else:  # the squared distance has an error of 4 * sums, relative to the squares of both lengths
            self._slope = error + math.sqrt(4 * self._sums)
            self.slack = (self._length.double() * (moved + math.sqrt(4 * self._sums))).float()

    def native(self):
        """The bounds for kernels, which are valid as long as this object."""
        numbers = (self._slope, 1 + self._sums, self._least, _SMALLEST, _LARGEST)
        return _native.ScoreBoundsRef(self.metric, self.factors.data_ptr(), self._squares.data_ptr(), *numbers)

    def score_rows(self, rows: torch.Tensor, empty: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        """(score float32 [q, n], radius float32 [n]): if either is not finite, nothing is known of the pair's score.

        Args:
            rows: bfloat16 [n, d].
            empty: bool [n]: which rows are all zeros, for cosine; None for other metrics.
        """
        length = torch.linalg.vector_norm(rows, dim=1, dtype=torch.float32)
        if empty is not None:
            length = torch.where(empty, 1.0, length)
        score = self.products(rows)
        if self.metric == "cosine":
            score.div_(length)
        if self.metric == "l2":
            score.mul_(self.factors[:, None]).sub_(length.square())
        return self.distances(score), self.radius(length)

    def radius(self, length: torch.Tensor) -> torch.Tensor:
        """float32 [n]: the radius of rows, from their lengths, float32 [n]; for cosine, rows of zeros have length 1."""
        radius = self._slope * (length * (1 + self._sums) + self._least)
        if self.metric == "cosine":
            radius = torch.where(length > _SMALLEST, torch.full_like(length, self._slope), math.inf)
        return torch.where(length < _LARGEST, radius, math.inf)

    def distances(self, scores: torch.Tensor) -> torch.Tensor:
        """For l2, the scores from 2 * product - square of the row's length, float32 [q, any], in place; scores of other
        metrics do not change."""
        if self.metric == "l2":
            scores.sub_(self._squares[:, None]).neg_().clamp_(min=0).sqrt_().neg_()
        return scores

    def products(self, rows: torch.Tensor) -> torch.Tensor:
        """float32 [q, n]: the products of the rows with `unit`."""
        if rows.is_cuda and _WIDE_PRODUCTS:
            return torch.mm(self.unit, rows.T, out_dtype=torch.float32)
        return self.unit.float() @ rows.float().T


def pair_scores(rows: torch.Tensor, queries: torch.Tensor, metric: str) -> torch.Tensor:
    """float64 [n]: the score of each row with its query; larger is better, and NaN becomes -inf, the worst.

    Args:
        rows: [n, d].
        queries: float64 [n, d]; for cosine of length 1 or 0.
    """
    wide = rows.double()
    if metric == "l2":
        scores = -torch.sqrt(((wide - queries) ** 2).sum(1))
    else:
        scores = (wide * queries).sum(1)
    if metric == "cosine":
        length = torch.sqrt((wide * wide).sum(1))
        scores = torch.where(length == 0, 0.0, scores / length)
    return torch.where(torch.isnan(scores), -math.inf, scores)
