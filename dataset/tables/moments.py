"""Mean and standard deviation of columns that are read in pieces."""

from __future__ import annotations

import numpy as np


class Moments:
    """Count, mean and sum of squared deviations of rows, added up a block at a time.

    Two blocks are joined as in Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing
    sample variances" (1979): with means m1, m2 of n1 and n2 rows, the sum of squared deviations from the common mean is
    that of both plus (m2 - m1)^2 n1 n2 / (n1 + n2).

    >>> moments = Moments()
    >>> moments.add(np.array([[1.0], [2.0]])), moments.add(np.array([[6.0]]))
    (None, None)
    >>> moments.mean.tolist(), (moments.deviation**2).round(6).tolist()
    ([3.0], [4.666667])
    """

    def __init__(self) -> None:
        self.count = 0
        self.mean = np.zeros(1)
        self._squares = np.zeros(1)

    def add(self, rows: np.ndarray) -> None:
        """Adds numbers [n, columns]."""
        if not len(rows):
            return
        rows = rows.astype(np.float64)
        mean = rows.mean(axis=0)
        squares = ((rows - mean) ** 2).sum(axis=0)
        if not self.count:
            self.count, self.mean, self._squares = len(rows), mean, squares
            return
        total, delta = self.count + len(rows), mean - self.mean
        self._squares = self._squares + squares + delta**2 * (self.count * len(rows) / total)
        self.mean = self.mean + delta * (len(rows) / total)
        self.count = total

    @property
    def deviation(self) -> np.ndarray:
        """float64 [columns]: the root of the mean squared deviation from the mean."""
        return np.sqrt(self._squares / max(1, self.count))
