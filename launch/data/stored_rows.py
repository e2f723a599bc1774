"""The feature rows of a data set as bytes, raw or decoded."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cohort import ibp
from cohort.dataset import Dataset
from cohort.dataset.prepared import take_rows


def stored_rows(data: Dataset) -> "RawRows | DecodedRows":
    """The feature rows of a data set as bytes: raw where it has them, else decoded."""
    return RawRows(data) if data.x is not None else DecodedRows(data)


@dataclass
class RawRows:
    """The rows of the file of raw features."""

    data: Dataset

    def __post_init__(self):
        x = self.data.x
        self.file, self.dtype = Path(x.filename), self.data.feature_dtype
        self.num_rows, self.row_bytes = len(x), x.shape[1] * x.itemsize
        writable = np.load(self.file, mmap_mode="c")  # torch takes no read-only memory; nothing is written
        self.bytes = writable.view(np.uint8)

    def slice(self, first: int, last: int) -> np.ndarray:
        return self.bytes[first:last]

    def take(self, ids: np.ndarray) -> np.ndarray:
        return take_rows(self.bytes, ids)


@dataclass
class DecodedRows:
    """The rows of a file of encoded rows, whose raw copy was dropped."""

    data: Dataset

    def __post_init__(self):
        files = json.loads((self.data.path / "meta.json").read_text())["files"]
        self.file = self.data.path / files["features"]  # which is not there
        self.dtype = self.data.feature_dtype
        self.encoded = ibp.load(self.data.encoded_rows)
        self.num_rows, self.row_bytes = len(self.encoded), self.encoded.profile.row_bytes

    def slice(self, first: int, last: int) -> np.ndarray:
        return self.take(np.arange(first, last))

    def take(self, ids: np.ndarray) -> np.ndarray:
        return bytes_of(ibp.fetch(self.encoded, ids))


def bytes_of(rows) -> np.ndarray:
    """uint8 [n, row_bytes] of an array as ibp gives it."""
    if not isinstance(rows, np.ndarray):
        import torch

        rows = rows.view(torch.int16).numpy()
    return rows.view(np.uint8)
