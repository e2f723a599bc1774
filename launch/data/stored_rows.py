"""The feature rows of a data set as bytes, raw or decoded."""

import numpy as np

from cohort_gnn import ibp
from cohort_gnn.dataset.prepared import take_rows
from cohort_gnn.dataset.stored_graph import FeatureTable


class StoredRows:
    """The feature rows of a data set, of the nodes or the edges of a type, as bytes: raw where it has them, else
    decoded.

    Args:
        encoded: the rows to decode though there are raw ones; None: raw ones where there are some.

    Attributes:
        file: of the raw rows; it is not there where only encoded ones were kept.
        dtype: of the features.
    """

    def __init__(self, table: FeatureTable, encoded: ibp.EncodedRows | None = None):
        assert table.feature_dtype is not None and table.file is not None  # a table without features has no rows
        self.dtype, self.file, self.num_rows = table.feature_dtype, table.file, table.num_rows
        if encoded is None and table.x is None and table.encoded_rows is not None:
            encoded = ibp.load(table.encoded_rows)
        self._rows: np.ndarray | ibp.EncodedRows
        if encoded is None:
            self._rows = np.load(self.file, mmap_mode="c").view(np.uint8)  # torch takes no read-only memory
            self.row_bytes: int = self._rows.shape[1]
        else:
            self._rows, self.row_bytes = encoded, encoded.profile.row_bytes

    def slice(self, first: int, last: int) -> np.ndarray:
        """uint8 [last - first, row_bytes]"""
        return self._rows[first:last] if isinstance(self._rows, np.ndarray) else self.take(np.arange(first, last))

    def take(self, ids: np.ndarray) -> np.ndarray:
        """uint8 [n, row_bytes]"""
        return take_rows(rows, ids) if isinstance(rows := self._rows, np.ndarray) else bytes_of(ibp.fetch(rows, ids))


def bytes_of(rows) -> np.ndarray:
    """uint8 [n, row_bytes] of an array as ibp gives it."""
    if not isinstance(rows, np.ndarray):
        import torch

        rows = rows.view(torch.int16).numpy()
    return rows.view(np.uint8)
