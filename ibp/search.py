"""top_k(): the rows of an encoded table that score best against queries, exactly, by reading few of the bytes."""

import math

import torch

from cohort_gnn.base.errors import CohortError
from cohort_gnn.ibp.rows import EncodedRows, fetch
from cohort_gnn.ibp.table import Table

METRICS = ("dot", "cosine", "l2")
_PAIR_BYTES = 64 << 20  # of rows that are scored exactly at a time, as float64
_ROUNDING = 2.0**-40  # relative, of sums of up to 16384 products in float64


def top_k(encoded, queries, k, *, metric="dot", block_rows=1 << 16) -> tuple[torch.Tensor, torch.Tensor]:
    """The k rows of a table with the best scores for each query: (values [q, k], ids [q, k]), best first.

    The ids are those of a comparison with all rows in float64; of rows with equal scores the lower id comes first. For
    rows of codec planes, plane A of all rows is read, with bounds of each score, and plane B of those rows alone that
    the bounds leave. Rows of other codecs are all decoded. A score that is no number is the worst.

    Args:
        encoded: EncodedRows or a Table, of float rows [n, d]. Rows that are pinned or on a GPU are read by the GPU.
        queries: float tensor or array [q, d] of finite numbers, on any device.
        k: 1 to n.
        metric: dot: the product, largest first. cosine: the product over both lengths, largest first; 0 where a length
            is 0. l2: the Euclidean distance, smallest first.
        block_rows: rows that are decoded at a time.

    Returns:
        values float32 and ids int64, on the device of `queries`.

    Raises:
        CohortError: an argument that does not fit the table.
    """
    rows = encoded._rows if isinstance(encoded, Table) else encoded
    given = torch.as_tensor(queries)
    _check(rows, given, k, metric, block_rows)
    wide = given.to("cpu" if rows._gpu is None else rows.device, torch.float64)
    if metric == "cosine":
        wide = wide / wide.norm(dim=1, keepdim=True).clamp(min=torch.finfo(torch.float64).tiny)
    of_query, ids = _candidates(rows, wide, k, metric, block_rows)
    scores = _exact_scores(rows, wide, of_query, ids, metric)
    order = torch.argsort(ids, stable=True)
    order = order[torch.argsort(scores[order], descending=True, stable=True)]
    order = order[torch.argsort(of_query[order], stable=True)]
    ends = torch.bincount(of_query, minlength=len(wide)).cumsum(0)
    begins = torch.cat([ends.new_zeros(1), ends[:-1]])
    best = order[begins[:, None] + torch.arange(k, device=order.device)]
    values = -scores[best] if metric == "l2" else scores[best]
    return values.to(given.device, torch.float32), ids[best].to(given.device)


def _check(rows: EncodedRows, queries: torch.Tensor, k: int, metric: str, block_rows: int) -> None:
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
    if not 1 <= k <= num_rows:
        raise CohortError("top_k: k", f"1 to {num_rows}, the rows of the table", str(k))
    if block_rows < 1:
        raise CohortError("top_k: block_rows", "at least 1", str(block_rows))


def _candidates(rows: EncodedRows, queries: torch.Tensor, k: int, metric: str, block_rows: int):
    """(query, row) of all pairs that may be among the best k of the query: int64 [n] each.

    A pair whose upper bound is below the k-th best lower bound of its query is none.
    """
    num_rows, coarse = len(rows), rows.profile.codec == "planes"
    lows = queries.new_full((len(queries), k), -math.inf)  # the best lower bounds so far
    found = []
    for first in range(0, num_rows, block_rows):
        ids = torch.arange(first, min(first + block_rows, num_rows), device=queries.device)
        block = fetch(rows, ids, planes="A" if coarse else "AB").float()
        low, high = _bounds(block, queries, rows.profile.error_bound, metric)
        bounded = torch.isfinite(low) & torch.isfinite(high)
        low, high = torch.where(bounded, low, -math.inf), torch.where(bounded, high, math.inf)
        lows = torch.cat([lows, low.T], 1).topk(k, dim=1).values
        of_block, of_query = torch.nonzero(high >= lows[:, -1], as_tuple=True)
        found.append((of_query, of_block + first, high[of_block, of_query]))
    of_query, ids, high = (torch.cat(parts) for parts in zip(*found, strict=True))
    kept = high >= lows[of_query, -1]
    return of_query[kept], ids[kept]


def _bounds(block: torch.Tensor, queries: torch.Tensor, bound: float, metric: str):
    """Lower and upper bounds of the scores of rows whose elements are known within a bound; larger is better.

    An element x that is given as a lies within bound * 2^floor(log2 |a|) of a (ibp/FORMAT.md 4.5).

    Args:
        block: float32 [n, d].
        queries: float64 [q, d]; for cosine of length 1 or 0.

    Returns:
        (low, high): float64 [n, q] each; not finite where nothing is known.
    """
    wide = block.double()
    powers = (block.view(torch.int32) & 0x7F800000).view(torch.float32).double()
    powers = torch.maximum(powers, wide.abs() / 2)  # of subnormal numbers, for the rounding of the sums
    product = wide @ queries.T
    if metric == "dot":
        error = (bound + 2 * _ROUNDING) * (powers @ queries.abs().T)
        return product - error, product + error
    length, radius = wide.norm(dim=1, keepdim=True), bound * powers.norm(dim=1, keepdim=True)
    if metric == "l2":
        squares = length * length + (queries * queries).sum(1)
        distance = torch.sqrt(torch.clamp(squares - 2 * product, min=0))
        error = radius + torch.sqrt(_ROUNDING * squares)
        return -distance - error, -distance + error
    # The row lies within `radius` of the one that is given: their angle has a sine of at most radius / length.
    sine = torch.where(length > 0, radius / length, 0.0)
    cosine = torch.sqrt(1 - sine * sine)  # NaN, below which no score is, for a sine above 1
    score = torch.where(length > 0, product / length, 0.0).clamp(-1, 1)
    across = torch.sqrt(1 - score * score) * sine
    low = torch.where(score > -cosine, score * cosine - across, -1.0)
    high = torch.where(score < cosine, score * cosine + across, 1.0)
    error = torch.where(torch.isfinite(score), _ROUNDING + math.sqrt(_ROUNDING) * sine, math.inf)
    return low - error, high + error


def _exact_scores(rows: EncodedRows, queries: torch.Tensor, of_query: torch.Tensor, ids: torch.Tensor, metric: str):
    """float64 [n]: of pairs of a query and a row, larger is better, each by the same sums whatever the other pairs."""
    step = max(1, _PAIR_BYTES // (8 * rows.shape[1]))
    order = torch.argsort(ids, stable=True)  # pairs of one row together: it is fetched once
    scores = torch.empty(len(ids), dtype=torch.float64, device=queries.device)
    for part in order.split(step):
        wanted, place = torch.unique_consecutive(ids[part], return_inverse=True)
        scores[part] = scores_of(fetch(rows, wanted)[place], queries[of_query[part]], metric)
    return scores


def scores_of(rows: torch.Tensor, queries: torch.Tensor, metric: str) -> torch.Tensor:
    """float64 [n]: of each row with its query, larger is better; NaN is made the worst.

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
