"""Mean and standard deviation of columns that are read in pieces."""

from __future__ import annotations

import numpy as np

BLOCK = 1 << 16  # rows that are added up at once


class Moments:
    """Count, mean and sum of squared deviations of rows, added up a block at a time. Blocks have the same rows however
    the table comes in pieces, so that row groups, parts and formats of files make no difference.

    Two blocks are joined as in Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing
    sample variances" (1979): with means m1, m2 of n1 and n2 rows, the sum of squared deviations from the common mean is
    that of both plus (m2 - m1)^2 n1 n2 / (n1 + n2).

    >>> moments = Moments()
    >>> moments.add(np.array([[1.0], [2.0]])), moments.add(np.array([[6.0]]))
    (None, None)
    >>> [values.round(6).tolist() for values in moments.mean_and_deviation()]
    [[3.0], [2.160247]]
    """

    def __init__(self) -> None:
        self.count = 0
        self._joined = 0, np.zeros(1), np.zeros(1)  # count, mean and squares of whole blocks
        self._rest: list[np.ndarray] = []

    def add(self, rows: np.ndarray) -> None:
        """Adds numbers [n, columns]."""
        while len(rows):
            room = BLOCK - self.count % BLOCK
            self._rest.append(rows[:room].astype(np.float64))
            self.count += len(self._rest[-1])
            rows = rows[room:]
            if self.count % BLOCK == 0:
                self._joined, self._rest = self._with_rest(), []

    def mean_and_deviation(self) -> tuple[np.ndarray, np.ndarray]:
        """float64 [columns] each; the deviation is the root of the mean squared deviation from the mean."""
        count, mean, squares = self._with_rest()
        return mean, np.sqrt(squares / max(1, count))

    def _with_rest(self) -> tuple[int, np.ndarray, np.ndarray]:
        if not self._rest:
            return self._joined
        rows = np.concatenate(self._rest)
        mean = rows.mean(axis=0)
        squares = ((rows - mean) ** 2).sum(axis=0)
        before, mean_before, squares_before = self._joined
        if not before:
            return len(rows), mean, squares
        total, delta = before + len(rows), mean - mean_before
        squares = squares_before + squares + delta**2 * (before * len(rows) / total)
        return total, mean_before + delta * (len(rows) / total), squares
