"""History: encoded rows that programs push and pull by id."""

import math
import numbers

import numpy as np
import torch
from torch import Tensor

from cohort_gnn.base.errors import CohortError
from cohort_gnn.ibp import arrays
from cohort_gnn.ibp.profile import CODECS, Profile, fit
from cohort_gnn.ibp.rows import encode, gpu_of
from cohort_gnn.ibp.stored import take
from cohort_gnn.ibp.table import Table, TableStats, lock_for_forks
from cohort_gnn.spec.types import checked_arguments

SAMPLE_ROWS = 65536  # of a push, of which the room for each row is learned
_FIRST_PUSH = lock_for_forks()


class History:
    """Rows [num_rows, dim] that change, stored encoded, bit for bit: historical embeddings, key-value caches, outputs
    of hidden layers. Rows that were never pushed are zeros.

    Examples:
        >>> history, ids = cohort.ibp.History(1000, 16), torch.arange(500)
        >>> history.push(ids, rows := torch.randn(500, 16))
        >>> torch.equal(history.pull(ids), rows)
        True

    The first push chooses how rows are encoded, and how much room each row gets; longer rows are stored raw in an
    overflow area.

    With place cpu, the CPU encodes and decodes, rows of a GPU are copied, and only rows that were pushed take memory,
    besides 8 bytes for each row.
    With place pinned (host memory that a GPU reads and writes) or cuda (GPU memory), the GPU encodes and decodes; the
    first push takes all memory, and later ones do not wait for the GPU.

    Args:
        num_rows: number of rows.
        dim: number of columns.
        dtype: of the rows: torch.float32, float16 or bfloat16.
        profile: how rows are encoded, from `fit`; None: fitted to the rows of the first push.
        codec: as for `fit`, but not planes.
        place: cpu, pinned or cuda.
        device: the GPU, as a number or as torch names it; default: the current one.
        spare: with place pinned or cuda, the share of the rows for which the overflow area has room beyond what the
            rows of the first push need; with 1 there is always room.
    """

    @checked_arguments
    def __init__(
        self,
        num_rows: int,
        dim: int,
        dtype: torch.dtype = torch.float32,
        *,
        profile: Profile | None = None,
        codec: str = "auto",
        place: str = "cpu",
        device=None,
        spare: float = 0.05,
    ):
        if not all(isinstance(size, numbers.Integral) and size > 0 for size in (num_rows, dim)):
            raise CohortError("History", "integers num_rows and dim of at least 1", f"{num_rows} and {dim}")
        if dtype not in (torch.float32, torch.float16, torch.bfloat16):
            raise CohortError("History: dtype", "torch.float32, float16 or bfloat16", str(dtype))
        if not 0 <= spare <= 1:
            raise CohortError("History: spare", "a share, 0 to 1", str(spare))
        wanted = str(dtype).removeprefix("torch."), dim
        if not isinstance(profile, Profile | None):
            raise CohortError("History: profile", "a Profile, of fit()", type(profile).__name__)
        if profile is not None and (profile.dtype, profile.num_columns) != wanted:
            expected, actual = (
                f"{kind} x {columns}" for kind, columns in (wanted, (profile.dtype, profile.num_columns))
            )
            raise CohortError("History: profile", expected, actual)
        if "planes" in (codec, getattr(profile, "codec", None)):
            raise CohortError("History: codec", "a codec whose rows are one plane", "planes")
        if codec not in CODECS:
            raise CohortError("History: codec", f"one of {', '.join(CODECS)}", codec)
        self.shape, self.dtype = (num_rows, dim), dtype
        self.place, gpu = ("cpu", None) if place == "cpu" else gpu_of(place, device)
        self._device = torch.device("cpu") if gpu is None else torch.device("cuda", gpu)
        self._given, self._codec, self._spare = profile, codec, spare
        self._table: Table | None = None

    def __getstate__(self) -> dict:
        if self._table is None:
            return self.__dict__
        hint = "pull the rows, and push them into another History(..., profile=history.profile)"
        raise CohortError("copy or pickle of a History", "a History without rows", "a History with rows", hint)

    @property
    def profile(self) -> Profile | None:
        """How rows are encoded; None before the first push."""
        return self._given if self._table is None else self._table.profile

    def push(self, ids, rows: Tensor) -> None:
        """Row ids[i] becomes rows[i].

        Args:
            ids: integers of any shape, each at most once, on any device.
            rows: [*ids.shape, dim] of the dtype, on any device.

        Raises:
            CohortError: rows of another shape or dtype; with place cpu also ids out of range or twice. Nothing has
                changed then. With place pinned or cuda, such ids change nothing, but the next push or `check` raises
                the error; so does it if the overflow area has no room left for a row, which keeps its value.
        """
        ids = _as_tensor(ids, "History.push: ids")
        if not isinstance(rows, Tensor) or rows.dtype != self.dtype or tuple(rows.shape) != (*ids.shape, self.shape[1]):
            actual = f"{rows.dtype} {list(rows.shape)}" if isinstance(rows, Tensor) else type(rows).__name__
            raise CohortError("History.push: rows", f"{self.dtype} {[*ids.shape, self.shape[1]]}", actual)
        if ids.numel() == 0:
            return
        arrays.demand_rows(rows, "History.push: rows")
        values = rows.detach().to(self._device).reshape(-1, self.shape[1]).contiguous()
        named = ids.detach().to(self._device).reshape(-1)
        table = self._table
        if table is None:
            with _FIRST_PUSH:  # of several threads
                table = self._table or self._fitted(values)
                table.put(named, values)
                self._table = table
        else:
            table.put(named, values)

    def pull(self, ids, out: Tensor | None = None) -> Tensor:
        """Rows by id: [*ids.shape, dim] on the device of the ids.

        Args:
            ids: integers of any shape, on any device; they may repeat. With place pinned or cuda, if the rows go to a
                GPU, those of ids out of range are zeros, and the next pull or `check` raises the error.
            out: contiguous rows to write to, on any device; default: that of the ids.
        """
        ids = _as_tensor(ids, "History.pull: ids")
        shape = (*ids.shape, self.shape[1])
        if out is not None:
            if not isinstance(out, Tensor):
                raise CohortError("History.pull: out", f"a tensor, {self.dtype} {list(shape)}", type(out).__name__)
            arrays.check_out("History.pull: out", out, shape, "", ("torch", self.dtype), out.device.type)
        if self._table is None:
            flat, _ = arrays.host_ids(ids.detach().cpu(), "History.pull: ids")
            wrong = flat[(flat < 0) | (flat >= self.shape[0])]
            if len(wrong):
                raise CohortError("History.pull: ids", f"0 to {self.shape[0] - 1}", str(wrong[0]))
            return torch.zeros(shape, dtype=self.dtype, device=ids.device) if out is None else out.zero_()
        named = ids.detach().to(self._device)
        if out is not None and out.device == self._device:
            return self._table.fetch(named, out)
        rows = self._table.fetch(named)
        rows = rows.to(ids.device) if out is None else out.copy_(rows)
        if not rows.is_cuda:
            self.check()
        return rows

    def check(self) -> None:
        """Raises the error of a finished push or pull on a GPU, if there was one."""
        if self._table is not None:
            self._table.check()

    def refit(self) -> None:
        """Forgets all rows, which are zeros again, and a fitted profile: the next push chooses anew."""
        self._table = None

    def stats(self) -> TableStats:
        """Of the rows since the first push, or since `refit`."""
        return TableStats(0, 0, 0, 0.0) if self._table is None else self._table.stats()

    def _fitted(self, rows: Tensor) -> Table:
        profile = self._given or fit(rows, self._codec)
        step = 4 if self.place == "cpu" else 16  # a GPU stores whole words of 16 bytes faster
        room, longer = room_for(rows[:SAMPLE_ROWS].cpu(), profile, step)
        num_rows = self.shape[0]
        spare = min(num_rows, math.ceil(num_rows * (longer + self._spare)))
        kind = arrays.output_kind(rows)
        return Table.of_zeros(profile, num_rows, room, kind, self.place, device=self._device.index, spare_rows=spare)


def _as_tensor(ids, place: str) -> Tensor:
    if isinstance(ids, Tensor):
        return ids
    numbers, shape = arrays.host_ids(ids, place)
    return torch.from_numpy(numbers).view(shape)


def room_for(rows: Tensor, profile: Profile, step: int = 4) -> tuple[int, float]:
    """(bytes for each row, a multiple of `step`, by which such rows take least memory; the share of longer rows, which
    are stored raw elsewhere)"""
    raw_bytes = -(-profile.row_bytes // 16) * 16
    entries, _ = take(encode(rows, profile, layout="packed"), np.arange(len(rows)))
    used = (entries >> np.uint64(40) & np.uint64(0xFFFF)).astype(np.int64) * 4  # FORMAT.md 2
    rooms, counts = np.unique(-(-used // step) * step, return_counts=True)
    longer = len(rows) - np.cumsum(counts)
    best = np.argmin(len(rows) * rooms + longer * raw_bytes)
    return int(rooms[best]), float(longer[best] / len(rows))
