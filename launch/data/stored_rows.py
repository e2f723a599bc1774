"""The feature rows of a data set as bytes, raw or decoded."""

import numpy as np

from cohort_gnn import ibp
from cohort_gnn.dataset import Dataset
from cohort_gnn.dataset.hetero import FeatureTable
from cohort_gnn.dataset.prepared import take_rows


class StoredRows:
    """The feature rows of a data set, of one of its node types, or of the edges of a relation, as bytes: raw where it
    has them, else decoded.

    Args:
        prefer_raw: False: decoded also where there are raw ones.

    Attributes:
        file: of the raw rows; it is not there where only encoded ones were kept.
        dtype: of the features.
        encoded: the rows that are decoded, or None.
    """

    def __init__(self, data: Dataset | FeatureTable, prefer_raw: bool = True):
        self.dtype, self.file = data.feature_dtype, data.file
        self.num_rows = data.num_nodes if isinstance(data, Dataset) else data.num_rows
        self._raw = self.encoded = None
        if data.x is None or not prefer_raw:
            self.encoded = ibp.load(data.encoded_rows)
            self.row_bytes = self.encoded.profile.row_bytes
        else:
            self._raw = np.load(self.file, mmap_mode="c").view(np.uint8)  # torch takes no read-only memory
            self.row_bytes = self._raw.shape[1]

    def slice(self, first: int, last: int) -> np.ndarray:
        """uint8 [last - first, row_bytes]"""
        return self.take(np.arange(first, last)) if self._raw is None else self._raw[first:last]

    def take(self, ids: np.ndarray) -> np.ndarray:
        """uint8 [n, row_bytes]"""
        return bytes_of(ibp.fetch(self.encoded, ids)) if self._raw is None else take_rows(self._raw, ids)


def bytes_of(rows) -> np.ndarray:
    """uint8 [n, row_bytes] of an array as ibp gives it."""
    if not isinstance(rows, np.ndarray):
        import torch

        rows = rows.view(torch.int16).numpy()
    return rows.view(np.uint8)
