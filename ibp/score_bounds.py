"""Bounds of the scores of rows: what top_k() knows of a row before it scores the row in float64."""

import math

import torch

METRICS = ("dot", "cosine", "l2")
_SMALLEST, _LARGEST = 2.0**-40, 2.0**60  # lengths whose squares neither vanish nor overflow in float32
_WIDE_PRODUCTS = "dtype" in torch.ops.aten.mm.overloads()  # torch 2.8: bfloat16 products with sums in float32


class ScoreBounds:
    """Bounds of the scores of rows with queries, from products of bfloat16 numbers. Larger scores are better.

    Let x be a row, a its elements as they are read, and b these as bfloat16. |x - a| is at most error_bound times the
    power of two below |a|, and 0 in rows that plane A has exactly. Rounding adds 2^-8 of this power, and nothing to
    plane A of up to 6 mantissa bits, which bfloat16 holds. So each |x - b| is at most `error` times |b|, the distance
    of x and b at most `error` times the length of b, and that is also how far the products of x and b with a query of
    length 1 lie apart. Queries are divided by their length; the distance that rounding moves them is measured.

    `sums` is more than twice the relative error of sums of `dim` products in float32, also if each addition truncates,
    as in tensor cores. Numbers below 2^-126 may vanish everywhere: lengths are raised by more than these add up to.
    Rows and queries whose squares could overflow have no bounds.

    Attributes:
        scale: float64 [q]: bounds are of the scores over this number.
        slack: float32 [q]: a score lies within score + slack + radius of its query and its row (of_block).

    Args:
        queries: float64 [q, d], finite; for cosine of length 1 or 0.
        error_bound: of the rows as they are read (Profile.error_bound); 0: they are exact.
    """

    def __init__(self, queries: torch.Tensor, error_bound: float, metric: str):
        dim = queries.shape[1]
        length = queries.norm(dim=1)
        zero = (queries == 0).all(1)
        largest = _LARGEST if metric == "l2" else 2.0**900
        known = zero | ((length > 1 / largest) & (length < largest))
        length = torch.where(known & ~zero, length, 1.0)
        unit = torch.where(known[:, None], queries / length[:, None], math.nan)
        self._metric, self._unit = metric, unit.to(torch.bfloat16)
        rounded = self._unit.double()
        self._length = torch.where(zero, 0.0, length).float()
        self._squares = (self._length.double() * rounded.norm(dim=1)).square().float()
        moved = (unit - rounded).norm(dim=1).nan_to_num()
        self._sums = (dim + 8) * 2.0**-22
        self._least = math.sqrt(dim) * 2.0**-50
        error = error_bound if error_bound >= 2.0**-7 else error_bound + 2.0**-8
        rounding = float(moved.max()) if len(moved) else 0.0
        self.scale = torch.ones_like(length) if metric == "l2" else length
        self.slack = torch.zeros_like(self._length)
        if metric == "dot":
            self._slope = error + rounding + 2 * self._sums
        elif metric == "cosine":  # the chord of the angle of x and b, whose sine is at most `error`
            self._slope = math.sqrt(2 - 2 * math.sqrt(1 - error * error)) + rounding + 4 * self._sums
        else:  # an error of 4 * sums in the squared distance, over the squares of both lengths
            self._slope = error + math.sqrt(4 * self._sums)
            self.slack = (self._length.double() * (moved + math.sqrt(4 * self._sums))).float()

    def of_block(self, rows: torch.Tensor, empty: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        """(score float32 [q, n], radius float32 [n]): a score is unknown where one of them is not finite.

        Args:
            rows: bfloat16 [n, d].
            empty: bool [n]: rows of zeros; for cosine.
        """
        length = torch.linalg.vector_norm(rows, dim=1, dtype=torch.float32)
        if empty is not None:
            length = torch.where(empty, 1.0, length)
        radius = self._slope * (length * (1 + self._sums) + self._least)
        score = self._products(rows)
        if self._metric == "cosine":
            score.div_(length)
            radius = torch.where(length > _SMALLEST, torch.full_like(length, self._slope), math.inf)
        if self._metric == "l2":
            score.mul_(-2 * self._length[:, None]).add_(length.square()).add_(self._squares[:, None])
            score.clamp_(min=0).sqrt_().neg_()
        return score, torch.where(length < _LARGEST, radius, math.inf)

    def _products(self, rows: torch.Tensor) -> torch.Tensor:
        """float32 [q, n]."""
        if rows.is_cuda and _WIDE_PRODUCTS:
            return torch.mm(self._unit, rows.T, out_dtype=torch.float32)
        return self._unit.float() @ rows.float().T
