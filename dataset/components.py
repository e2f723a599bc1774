"""The principal components that `--pca` made of feature rows, by which more rows are treated alike: components.npy."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy  # its packages load on first use

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset.array_file import open_npy

FILE = "components.npy"
HINT = "import the data set again"


@dataclass(frozen=True)
class Components:
    """The directions whose coordinates are the features.

    Attributes:
        mean: float64 [D], of the columns.
        directions: float64 [D, K].
    """

    mean: np.ndarray
    directions: np.ndarray

    def coordinates(self, x: np.ndarray | scipy.sparse.csr_matrix, place: str) -> np.ndarray:
        """float32 [n, K] of rows [n, D]. Each row is multiplied alone: a product of many may round it otherwise.

        Raises:
            CohortError: rows of another number of columns.
        """
        dim, count = self.directions.shape
        if x.shape[1] != dim:
            hint = "give the columns as they were before --pca, in the same order"
            raise CohortError(place, f"{dim} columns, of which {count} components were made", f"{x.shape[1]}", hint)
        out = np.empty((x.shape[0], count), np.float32)
        for number, row in enumerate(x):
            dense = row.toarray()[0] if scipy.sparse.issparse(row) else row
            out[number] = (dense.astype(np.float64) - self.mean) @ self.directions
        return out

    def save(self, folder: Path) -> None:
        """Writes components.npy: float64 [1 + K, D], the mean and the directions."""
        np.save(folder / FILE, np.ascontiguousarray(np.vstack([self.mean, self.directions.T])))


def read_components(folder: Path) -> Components | None:
    """The components of a data set; None: it has none, or is of a version that kept none.

    Raises:
        CohortError: the file is damaged.
    """
    if not (folder / FILE).exists():
        return None
    rows = open_npy(folder / FILE).read()
    if rows.dtype != np.float64 or rows.ndim != 2 or len(rows) < 2 or not np.isfinite(rows).all():
        expected = "finite float64 [1 + K, D]"
        raise CohortError(str(folder / FILE), expected, f"{rows.dtype} {list(rows.shape)}", HINT)
    return Components(rows[0], np.ascontiguousarray(rows[1:].T))


def copy_components(folder: Path, out: Path) -> None:
    """Writes components.npy of a data set to another folder; one that is there goes."""
    (out / FILE).unlink(missing_ok=True)
    if (components := read_components(folder)) is not None:
        components.save(out)


def same_components(one: Path, other: Path) -> bool:
    """Whether two folders have the same components.

    Raises:
        CohortError: a file is damaged.
    """
    both = read_components(one), read_components(other)
    if both[0] is None or both[1] is None:
        return False
    return all(np.array_equal(getattr(both[0], name), getattr(both[1], name)) for name in ("mean", "directions"))
