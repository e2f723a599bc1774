"""History: encoded rows that programs push and pull by id."""

import numpy as np
import torch
from torch import Tensor

from cohort.base.errors import CohortError
from cohort.ibp import arrays
from cohort.ibp.rows import Profile, encode, fit, take
from cohort.ibp.table import Table, TableStats

SAMPLE_ROWS = 65536  # of a push, of which the room for each row is learned


class History:
    """Rows [num_rows, dim] that change, stored encoded in host memory, bit for bit: historical embeddings, key-value
    caches, outputs of hidden layers. Rows that were never pushed are zeros.

    The first push chooses how rows are encoded, and how much room each row gets; longer rows are stored raw in an
    overflow area. Pushed rows take memory, others do not.

    Args:
        num_rows: number of rows.
        dim: number of columns.
        dtype: of the rows: torch.float32, float16 or bfloat16.
        profile: how rows are encoded, from `fit`; None: fitted to the rows of the first push.
        codec: as for `fit`.
    """

    def __init__(
        self,
        num_rows: int,
        dim: int,
        dtype: torch.dtype = torch.float32,
        *,
        profile: Profile | None = None,
        codec: str = "auto",
    ):
        if num_rows < 1 or dim < 1:
            raise CohortError("History", "num_rows and dim of at least 1", f"{num_rows} and {dim}")
        if dtype not in (torch.float32, torch.float16, torch.bfloat16):
            raise CohortError("History: dtype", "torch.float32, float16 or bfloat16", str(dtype))
        wanted = str(dtype).removeprefix("torch."), dim
        if profile is not None and (profile.dtype, profile.num_columns) != wanted:
            expected, found = (
                f"{kind} x {columns}" for kind, columns in (wanted, (profile.dtype, profile.num_columns))
            )
            raise CohortError("History: profile", expected, found)
        self.shape, self.dtype = (num_rows, dim), dtype
        self._given, self._codec = profile, codec
        self._table: Table | None = None

    @property
    def profile(self) -> Profile | None:
        """How rows are encoded; None before the first push."""
        return self._given if self._table is None else self._table.profile

    def push(self, ids: Tensor, rows: Tensor) -> None:
        """Row ids[i] becomes rows[i]. Rows of a GPU are copied to the host, which encodes them.

        Args:
            ids: integers of any shape, each at most once, on any device.
            rows: [*ids.shape, dim] of the dtype, on any device.

        Raises:
            CohortError: ids out of range or twice, or other rows; nothing has changed then.
        """
        if not isinstance(rows, Tensor) or rows.dtype != self.dtype or tuple(rows.shape) != (*ids.shape, self.shape[1]):
            found = f"{rows.dtype} {list(rows.shape)}" if isinstance(rows, Tensor) else type(rows).__name__
            raise CohortError("History.push: rows", f"{self.dtype} {[*ids.shape, self.shape[1]]}", found)
        if ids.numel() == 0:
            return
        values = rows.detach().cpu().reshape(-1, self.shape[1]).contiguous()
        table = self._table or self._fitted(values)
        table.put(ids.detach().cpu().reshape(-1), values)
        self._table = table

    def pull(self, ids: Tensor, out: Tensor | None = None) -> Tensor:
        """Rows by id: [*ids.shape, dim] on the device of the ids.

        Args:
            ids: integers of any shape, on any device; they may repeat.
            out: contiguous rows to write to, on any device.
        """
        shape = (*ids.shape, self.shape[1])
        if out is not None and (tuple(out.shape) != shape or out.dtype != self.dtype):
            raise CohortError("History.pull: out", f"{self.dtype} {list(shape)}", f"{out.dtype} {list(out.shape)}")
        if self._table is None:
            self._check(ids)
            return torch.zeros(shape, dtype=self.dtype, device=ids.device) if out is None else out.zero_()
        on_host = ids.detach().cpu()
        if out is None:
            return self._table.fetch(on_host).to(ids.device)
        if out.device.type == "cpu":
            return self._table.fetch(on_host, out)
        return out.copy_(self._table.fetch(on_host))

    def refit(self) -> None:
        """Forgets all rows, which are zeros again, and a fitted profile: the next push chooses anew."""
        self._table = None

    def stats(self) -> TableStats:
        """Of the rows since the first push, or since `refit`."""
        return TableStats(0, 0, 0, 0.0) if self._table is None else self._table.stats()

    def _check(self, ids: Tensor) -> None:
        flat, _ = arrays.ids_of(ids.detach().cpu(), "History.pull: ids")
        wrong = flat[(flat < 0) | (flat >= self.shape[0])]
        if len(wrong):
            raise CohortError("History.pull: ids", f"0 to {self.shape[0] - 1}", str(wrong[0]))

    def _fitted(self, rows: Tensor) -> Table:
        profile = self._given or fit(rows, self._codec)
        kind = arrays.kind_of(rows)
        return Table.of_zeros(profile, self.shape[0], room_for(rows[:SAMPLE_ROWS], profile), kind)


def room_for(rows: Tensor, profile: Profile) -> int:
    """Bytes for each row, a multiple of 4, by which such rows take least memory: longer ones take these and are stored
    raw elsewhere."""
    raw_bytes = -(-profile.row_bytes // 16) * 16
    entries, _ = take(encode(rows, profile, layout="packed"), np.arange(len(rows)))
    used = (entries >> np.uint64(40) & np.uint64(0xFFFF)).astype(np.int64) * 4  # FORMAT.md 2
    rooms, counts = np.unique(used, return_counts=True)
    longer = len(rows) - np.cumsum(counts)
    return int(rooms[np.argmin(len(rows) * rooms + longer * raw_bytes)])
