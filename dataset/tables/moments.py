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

    Of equal numbers, such as 0.1, the mean is that number, and the deviation 0: sums would be rounded.
    """

    def __init__(self) -> None:
        self.count = 0
        self._joined = 0, np.zeros(1), np.zeros(1)  # count, mean and squares of whole blocks
        self._rest: list[np.ndarray] = []
        self._first: np.ndarray | None = None  # row, and whether there are others, by column
        self._varies = np.zeros(1, bool)

    def add(self, rows: np.ndarray) -> None:
        """Adds numbers [n, columns]."""
        if len(rows):
            self._first = rows[0].astype(np.float64) if self._first is None else self._first
            self._varies = self._varies | (rows != self._first).any(axis=0)
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
        deviation = np.sqrt(squares / max(1, count))
        if self._first is None:
            return mean, deviation
        return np.where(self._varies, mean, self._first), np.where(self._varies, deviation, 0)

    def _with_rest(self) -> tuple[int, np.ndarray, np.ndarray]:
        if not self._rest:
            return self._joined
        rows = np.concatenate(self._rest)
        with np.errstate(over="ignore", invalid="ignore"):  # infinity, or NaN, says so
            mean = rows.mean(axis=0)
            squares = ((rows - mean) ** 2).sum(axis=0)
            before, mean_before, squares_before = self._joined
            if not before:
                return len(rows), mean, squares
            total, delta = before + len(rows), mean - mean_before
            squares = squares_before + squares + delta**2 * (before * len(rows) / total)
        return total, mean_before + delta * (len(rows) / total), squares
