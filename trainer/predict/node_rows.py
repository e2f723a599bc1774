"""Rows [V, dim] of nodes, or of edges: whole where there is room, else read by id; written in order."""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from cohort_gnn import ibp
from cohort_gnn.base.files import demand_room
from cohort_gnn.dataset import _native as dataset_native
from cohort_gnn.dataset.stored_graph import FeatureTable
from cohort_gnn.trainer.predict.copies import Copies

MOST_BYTES_TO_GPU = 64 << 20  # of rows on their way
MOST_BYTES_TO_FLOAT = 4 << 20  # the same; arrays of up to 32 MiB are kept by malloc when they are freed


class ArrayRows:
    """Rows of an array, in memory or mapped; `array` is [V, dim] (uint16: the bits of bfloat16)."""

    def __init__(self, array: np.ndarray, dtype: torch.dtype = torch.float32):
        self.array, self.dtype = array, dtype
        self._bytes = array.view(np.uint8)
        self.row_bytes = self._bytes.shape[1]

    def take(self, ids: Tensor, pin: bool = False) -> Tensor:
        """The rows of nodes, int64 [n]: [n, dim], in page-locked memory where that is asked for."""
        out = torch.empty((len(ids), self.row_bytes), dtype=torch.uint8, pin_memory=pin)
        dataset_native.take_rows(self._bytes, ids.numpy(), out.numpy())
        return out.view(self.dtype)

    def piece(self, first: int, last: int) -> Tensor:
        """float32 [last - first, dim]: the rows of nodes [first, last)."""
        return torch.from_numpy(self.array[first:last])


class PreparedRows:
    """Rows of a prepared data set's encoded file."""

    def __init__(self, path: Path):
        self._rows = ibp.load(path)
        self.profile = self._rows.profile
        self.dtype = getattr(torch, self.profile.dtype)
        self.row_bytes = self.profile.row_bytes

    def take(self, ids: Tensor, pin: bool = False) -> Tensor:
        """As `StoredRows.take`."""
        out = torch.empty((len(ids), self._rows.shape[1]), dtype=self.dtype, pin_memory=pin)
        return ibp.fetch(self._rows, ids, out=out)


class UpdatedRows:
    """Rows of an earlier predict, but for some nodes that have others since or are new.

    Args:
        before: float32 [nodes that were there, dim], mapped from a .npy file.
        nodes: int64 [n], ascending: those with others.
        rows: float32 [n, dim]: theirs.
        copies: of the rows from before, which may have begun.
    """

    dtype = torch.float32

    def __init__(self, before: np.memmap, nodes: Tensor, rows: np.ndarray, copies: Copies):
        self._before, self._nodes, self._rows, self._copies = before, nodes, ArrayRows(rows), copies
        self.row_bytes = self._rows.row_bytes

    def take(self, ids: Tensor, pin: bool = False) -> Tensor:
        """As `ArrayRows.take`."""
        places = torch.searchsorted(self._nodes, ids)
        are_others = torch.cat((self._nodes, self._nodes.new_full((1,), -1)))[places] == ids
        last = len(self._before) - 1
        out = torch.empty((len(ids), self.row_bytes // 4))
        if last >= 0:
            out = ArrayRows(self._before).take(ids.clamp(max=last))
        out[are_others] = self._rows.take(places[are_others])
        return out.pin_memory() if pin else out

    def piece(self, first: int, last: int) -> Tensor:
        """float32 [last - first, dim]: the rows of nodes [first, last)."""
        out = torch.empty((last - first, self.row_bytes // 4))
        there = self._before[first:last]
        out.numpy()[: len(there)] = there
        begin, end = torch.searchsorted(self._nodes, torch.tensor([first, last])).tolist()
        out[self._nodes[begin:end] - first] = torch.from_numpy(self._rows.array[begin:end])
        return out

    def write(self, file: Path, count: int) -> None:
        """Writes the rows of all nodes, so many, into a .npy file.

        Raises:
            OSError: the disk has no room for them.
        """
        if self._copies.end(self._before, file, count):  # blocks that are written to below become the file's own
            block = os.statvfs(file).f_bsize
            most_bytes = len(self._nodes) * (self.row_bytes // block + 2) * block
            demand_room(file.parent, min(file.stat().st_size, most_bytes))
        rows = torch.from_numpy(np.lib.format.open_memmap(file, mode="r+"))
        rows[self._nodes] = torch.from_numpy(self._rows.array)  # by all cores


def features_of(table: FeatureTable) -> ArrayRows | PreparedRows:
    """The feature rows of nodes or edges of a type: raw where the data set has them, else encoded."""
    if table.x is not None and table.feature_dtype is not None:
        return ArrayRows(table.x, getattr(torch, table.feature_dtype))
    assert table.encoded_rows is not None  # without features nobody asks
    return PreparedRows(table.encoded_rows)


def taken(
    rows: ArrayRows | PreparedRows | UpdatedRows, ids: Tensor | range, dim: int, device: torch.device, work_bytes: int
) -> Tensor:
    """The rows of nodes, or of edges, int64 [n]: float32 [n, dim] on a device.

    Args:
        work_bytes: of host memory, beside the result, for pieces: a GPU copies some as others are read, and types of
            less bytes become float32.
    """
    on_gpu = device.type == "cuda"
    if isinstance(ids, Tensor) and not on_gpu and rows.dtype == torch.float32:
        return rows.take(ids)
    out, first = torch.empty((len(ids), dim), device=device), 0
    piece_bytes = min(work_bytes // 4, MOST_BYTES_TO_GPU if on_gpu else MOST_BYTES_TO_FLOAT)
    for some in _on_host(ids, max(piece_bytes // rows.row_bytes, 1), max(piece_bytes // 8, 1)):
        out[first : first + len(some)].copy_(rows.take(some, pin=on_gpu).to(device, non_blocking=True))
        first += len(some)
    return out


def _on_host(ids: Tensor | range, step: int, at_once: int) -> Iterator[Tensor]:
    """The ids by `step`, on the CPU; more come from a GPU at once, as it is done with all its copies first."""
    for first in range(0, len(ids), at_once):
        some = ids[first : first + at_once]
        yield from (torch.arange(some.start, some.stop) if isinstance(some, range) else some.cpu()).split(step)


def new_rows(shape: tuple[int, ...], file: Path | None, dtype=np.float32) -> np.ndarray:
    """Rows to be written: in memory, or mapped from a new .npy file whose space is reserved at once.

    Raises:
        OSError: the disk has no room for them.
    """
    if file is None:
        return np.empty(shape, dtype)
    array = np.lib.format.open_memmap(file, mode="w+", dtype=dtype, shape=shape)
    with file.open("r+b") as opened:  # a disk that fills up later would end the process with SIGBUS
        try:
            os.posix_fallocate(opened.fileno(), 0, file.stat().st_size)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(file)) from None
    return array
