"""The rows that a rank of `ShardedRows` keeps, and those that it gets: on the CPU or on a GPU."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from cohort_gnn import ibp
from cohort_gnn.base.errors import CohortError
from cohort_gnn.ibp import stored
from cohort_gnn.ibp.arrays import computed, demand_rows

OFFSET_MASK = (1 << 40) - 1  # of an entry: the row's first byte, divided by 4
ALIGNED = 16  # bytes: where messages begin that a GPU decodes
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def put_rows(rows: Tensor, positions: Tensor, values: Tensor) -> None:
    """rows[positions[i]] = values[i], of any dtype: torch puts no float8 and no unsigned integers above 8 bits."""
    bits = _INTEGERS.get(rows.dtype.itemsize, rows.dtype)
    rows.view(bits).index_copy_(0, positions, values.view(bits))


class Part:
    """A rank's rows [v, D].

    Args:
        rows: cohort.ibp.EncodedRows, or a tensor or array.
        device: of the exchanges: the CPU, which has `rows` in host memory, or a GPU, which reads them.

    Attributes:
        dtype: of decoded rows.
        row_bytes: of a decoded row.

    Raises:
        CohortError: rows that the device cannot read.
    """

    def __init__(self, rows: ibp.EncodedRows | Tensor | np.ndarray, device: torch.device):
        self.device = device
        if isinstance(rows, ibp.EncodedRows):
            if device.type == "cuda" and torch.device(rows.device) != device:
                hint = f'call to("pinned", device="{device}") or to("{device}") first'
                raise CohortError("ShardedRows: rows", f"rows that {device} reads", f"rows for {rows.device}", hint)
            self._encoded: ibp.EncodedRows | None = rows
            self._plain = torch.empty(0, 0)
            self.shape, self.profile = rows.shape, rows.profile
            self.dtype = torch.as_tensor(ibp.fetch(rows, self._ids(torch.empty(0, dtype=torch.int64)))).dtype
        else:
            self._plain, self._encoded, self.profile = _plain_rows(rows, device), None, None
            self.shape, self.dtype = tuple(self._plain.shape), self._plain.dtype
        self.row_bytes = self.shape[1] * self.dtype.itemsize

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def table(self):
        """The _native.DeviceTable of rows in the GPU's memory; None: they are not encoded, or in host memory."""
        here = self._encoded is not None and self.device.type == "cuda" and self._encoded.place == "cuda"
        return self._encoded._table if here and self._encoded is not None else None

    def fetch(self, positions: Tensor) -> Tensor:
        """Rows at these positions int64 [n], decoded: [n, D]."""
        if self._encoded is None:
            return self._plain[positions]
        return torch.as_tensor(ibp.fetch(self._encoded, self._ids(positions)))

    def take(self, positions: Tensor, counts: list[int], encoded: bool) -> tuple[Tensor, Tensor, list[int]]:
        """Rows to be sent, `counts` of them to each rank in turn.

        Returns:
            (entries, data, sizes): as cohort.ibp.take() returns them, entries as int64 and none of rows that are not
            sent encoded; and the bytes of `data` for each rank.
        """
        if not encoded:
            rows = self.fetch(positions).reshape(-1).contiguous().view(torch.uint8)
            return positions[:0], rows, [count * self.row_bytes for count in counts]
        assert self._encoded is not None
        first = torch.tensor([0, *counts]).cumsum(0)  # of the rows of each rank
        if self.device.type == "cuda":
            _, end_offsets = stored.sizes_on_gpu(self._encoded, positions)
            bounds = torch.cat([end_offsets.new_zeros(1), end_offsets])[first.to(self.device)].cpu()
            entries, data = stored.take_on_gpu(self._encoded, positions, end_offsets, int(bounds[-1]))
        else:
            taken = ibp.take(self._encoded, positions.numpy())
            entries, data = torch.from_numpy(taken[0].view(np.int64)), torch.from_numpy(taken[1])
            begins = torch.cat([4 * (entries & OFFSET_MASK), torch.tensor([len(data)])])
            bounds = begins[first]
        return entries, data, bounds.diff().tolist()

    def _ids(self, positions: Tensor):
        return positions.to(self.device) if self.device.type == "cuda" else positions.numpy()


class Messages:
    """Decodes the rows of other ranks where an exchange leaves them.

    Args:
        profiles: of each rank; None: its rows come decoded.
    """

    def __init__(self, profiles: list[ibp.Profile | None], device: torch.device):
        self._profiles, self._device = profiles, device
        self._decoders = [
            stored.Decoder(profile, device) if profile is not None and device.type == "cuda" else None
            for profile in profiles
        ]

    def write(self, rank: int, message: tuple[Tensor, Tensor], count: Tensor, positions: Tensor, rows: Tensor) -> None:
        """rows[positions[i]] = the i-th row of a message (entries, data) of a rank.

        Args:
            count: int64 [1], of these rows, on the device. positions: int64 [n].
        """
        entries, data = message
        if len(positions) == 0:
            return
        profile, decoder = self._profiles[rank], self._decoders[rank]
        if profile is None:
            some = data.clone() if data.data_ptr() % ALIGNED else data  # as elements: at multiples of their size
            put_rows(rows, positions, some.view(rows.dtype).view(len(positions), -1))
            return
        entries = entries - (entries[:1] & OFFSET_MASK)  # the rank's rows for all ranks come one after the other
        if decoder is None:
            decoded = torch.empty((len(positions), rows.shape[1]), dtype=rows.dtype)
            ibp.decode_stored(profile, entries.numpy().view(np.uint64), data.numpy(), decoded)
            put_rows(rows, positions, decoded)
            return
        if data.data_ptr() % ALIGNED:  # behind decoded rows
            data = torch.cat([data, data.new_empty(stored.SLACK_BYTES)])[: len(data)]
        decoder.decode(entries, data, count, positions.to(torch.int32), rows)

    def check(self) -> None:
        """Raises a CohortError if a row that was decoded by a GPU is damaged."""
        for decoder in self._decoders:
            if decoder is not None:
                decoder.check()


def _plain_rows(rows: Tensor | np.ndarray, device: torch.device) -> Tensor:
    """[v, D] on the device."""
    if isinstance(rows, ibp.Table):
        hint = "pass what cohort.ibp.encode() or load() returns"
        raise CohortError("ShardedRows: rows", "EncodedRows, or a tensor or array", "a Table", hint)
    if isinstance(rows, np.ndarray | Tensor):
        demand_rows(rows, "ShardedRows: rows")
    tensor = computed(torch.as_tensor(rows))
    if tensor.dim() != 2 or tensor.device != device:
        where = "in host memory" if device.type == "cpu" else f"on {device}"
        raise CohortError("ShardedRows: rows", f"[v, D] {where}", f"{tensor.device} {list(tensor.shape)}")
    return tensor
