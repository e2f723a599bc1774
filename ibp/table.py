"""Table: encoded rows for any program, by id, in its own library and on its own device; rows may change."""

import math
import os
import threading
import weakref
from dataclasses import dataclass
from typing import Any

import numpy as np

from cohort_gnn.base.errors import CohortError
from cohort_gnn.ibp import _native, arrays
from cohort_gnn.ibp.profile import Profile, fit
from cohort_gnn.ibp.rows import (
    EncodedRows,
    encode,
    fetch,
    fetch_distinct,
    gpu_of,
    handle_of,
    ids_on_gpu,
    load,
    on_gpu,
    stream_of,
)

_locks: weakref.WeakValueDictionary = weakref.WeakValueDictionary()  # by id(), in the order in which they are taken
HEADER_BYTES = 128  # of a file: FORMAT.md 6
_DIRECTORY_BYTES = {"packed": 8.0, "in place": 2.0, "slots": 0.25}  # of a row: FORMAT.md 2


@dataclass(frozen=True)
class TableStats:
    """Counts of the reads and changes of a table since it was made.

    Attributes:
        rows_fetched: rows that fetch() and table[ids] returned.
        bytes_fetched: decoded bytes of these rows.
        rows_put: rows that put() replaced.
        saved: share of the table's bytes that encoding currently saves.
        room_left: on a GPU, once rows were put: rows that the overflow area still has room for, after the puts that
            have ended.
    """

    rows_fetched: int
    bytes_fetched: int
    rows_put: int
    saved: float
    room_left: int | None = None


class Table:
    """Rows [num_rows, num_columns] that are stored encoded: ``table[ids]`` is ``array[ids]``, bit for bit.

    Examples:
        >>> rows = torch.randn(1000, 16)
        >>> table = cohort.ibp.Table(rows)
        >>> torch.equal(table[torch.tensor([5, 2])], rows[[5, 2]])
        True

    Args:
        rows: torch, numpy or DLPack array [num_rows, num_columns], or encoded rows. ``Table.load`` reads a file.
        codec: as for ``fit``.
        place: cpu, pinned (host memory that a GPU reads) or cuda; default: where encoded rows are, for arrays cpu.
        device: the GPU that reads the rows, as a number or as torch names it; default: the current one.
        layout: as for ``encode``.
        spare: on a GPU, ``put`` makes room for this share of the rows in the overflow area; with 1 there is always
            room. In host memory the area grows.

    Attributes:
        shape: (num_rows, num_columns).
        profile: how the rows are encoded.
        place: cpu, pinned or cuda.
        device: cpu, or the GPU that fetches: cuda:0.

    A table that ``load`` has mapped can be pickled, and is mapped again where it arrives; others cannot. Deep copies
    share memory until ``put`` changes one of them.

    Raises:
        CohortError: rows of another shape or type, an unknown codec, layout or place, or a GPU that is not there.
    """

    def __init__(self, rows, codec="auto", place=None, *, device=None, layout="auto", spare=0.05):
        if not 0 <= spare <= 1:
            raise CohortError("Table: spare", "a share, 0 to 1", str(spare))
        encoded = rows if isinstance(rows, EncodedRows) else _encoded(rows, codec, layout)
        self._rows = encoded if place is None else encoded.to(place, device)
        self._spare = spare
        # Once rows were put, WritableRows or DeviceWritableRows of _native: _rows are then its rows.
        self._written: Any = None
        self._lock = lock_for_forks()  # of the numbers below, and of rows that change
        self._rows_fetched = self._rows_put = 0
        self._loaded: tuple | None = None  # what _loaded_again() takes, of a file

    def __reduce__(self):
        if self._loaded is None or self._written is not None:
            actual = "rows in memory" if self._written is None else "rows that were changed"
            hint = "call save(), and use what Table.load() returns"
            raise CohortError("pickle of a Table", "rows of a file", actual, hint)
        return _loaded_again, self._loaded

    def __deepcopy__(self, memo) -> "Table":
        if self._written is not None:
            return self.to(self.place, None if self.place == "cpu" else self.device)
        copied = Table(self._rows.shared(), spare=self._spare)  # these rows do not change
        copied._loaded = self._loaded
        return copied

    @classmethod
    def load(cls, path, place="cpu", *, device=None, dtype=None, verify=True, spare=0.05) -> "Table":
        """Maps a file of encoded rows, of ``save``, ``encode(out=)`` or ``cohort ibp encode``.

        Args:
            place: as for Table.
            device: as for Table.
            dtype: torch or numpy dtype of the rows, if it is not float16, bfloat16 or float32: of other types, the file
                records only the width.
            verify: False skips the rows' checksums.
            spare: as for Table.
        """
        header = _header_of(path)
        encoded = load(path, verify=verify)
        if dtype is not None:
            encoded._kind = _kind_named(dtype, encoded.profile, str(path))
        table = cls(encoded, place=place, device=device, spare=spare)
        table._loaded = (os.path.abspath(path), header, place, device, dtype, spare)
        return table

    @classmethod
    def of_zeros(
        cls, profile: Profile, num_rows: int, slot_bytes: int, kind: tuple, place="cpu", *, device=None, spare_rows=0
    ) -> "Table":
        """Rows of zeros, for put(). Each has room for `slot_bytes`, a multiple of 4; in host memory, memory is taken by
        rows put.

        Args:
            profile: the codec of the rows.
            num_rows: how many there are.
            slot_bytes: room for an encoded row.
            kind: (library, dtype) of the rows, as arrays.kind_of gives it.
            place: as for Table.
            device: as for Table.
            spare_rows: on a GPU, rows for which the overflow area has room.
        """
        if place == "cpu":
            changing: Any = _native.WritableRows(profile.native, num_rows, slot_bytes)
            table = cls(EncodedRows(changing.rows, kind))
        else:
            name, gpu = gpu_of(place, device)
            with on_gpu(gpu):
                arguments = num_rows, slot_bytes, name == "pinned", spare_rows
                changing = _native.DeviceWritableRows(profile.native, *arguments)
            table = cls(EncodedRows.replaced_on_gpu(changing, kind, name, gpu))
        table._written = changing
        return table

    def save(self, path) -> None:
        """Writes the rows, as they are now, to a file for ``load``: whole, or not at all."""
        if self._written is None:
            return self._rows.save(path)
        with self._lock:  # encodes again: into a file without gaps
            encode(self._rows if self.place == "cpu" else self._copy(), self.profile, out=path)

    def to(self, place, device=None) -> "Table":
        """A table of the same rows in another place: cpu, pinned or cuda."""
        if self._written is None:
            return Table(self._rows, place=place, device=device, spare=self._spare)
        with self._lock:  # later changes are not the new table's
            copy = self._copy()
        return Table(copy, place=place, device=device, spare=self._spare)

    def _copy(self) -> EncodedRows:
        """A copy of a table with rows that were put, in host memory."""
        if self.place == "cpu":
            return EncodedRows(_native.WritableRows(self._rows._native).rows, self._rows._kind)
        with on_gpu(self._rows._gpu):
            return EncodedRows(self._written.to_host(), self._rows._kind)

    profile = property(lambda self: self._rows.profile)
    place = property(lambda self: self._rows.place)
    device = property(lambda self: self._rows.device)
    shape = property(lambda self: self._rows.shape)

    @property
    def dtype(self):
        """The dtype of the rows, in the library that they came from; numpy's for rows of a file, if numpy has it."""
        return self.dtype_for(None)

    def dtype_for(self, like):
        """The dtype of the rows that fetch() returns for ids of this array's library."""
        return arrays.kind_for(self._rows._kind, self.profile.dtype, like)[1]

    @property
    def nbytes(self) -> int:
        """Bytes of the rows as an array."""
        return len(self) * self.profile.row_bytes

    @property
    def stored_bytes(self) -> int:
        """Bytes of the encoded rows and of the index that finds them."""
        return self._rows.stored_bytes + math.ceil(len(self) * _DIRECTORY_BYTES[self._rows.layout])

    def __len__(self) -> int:
        return self._rows.num_rows

    def __getitem__(self, ids):
        """Rows of an integer, a slice, or integers of any type and shape, as ``fetch`` gives them.

        Raises:
            CohortError: ids are a tuple, for which an array returns elements, or as ``fetch``.
        """
        return self.fetch(arrays.subscript(ids, len(self)))

    def __iter__(self):
        return (self[row] for row in range(len(self)))

    def fetch(self, ids, out=None, stream=None, planes="AB"):
        """Rows by id: [*ids.shape, num_columns], in the library and on the device of `ids`.

        Args:
            ids: integers of any type and shape. CUDA tensors need a table with place pinned or cuda.
            out: contiguous rows to write to. If `out` is on a GPU, ids may be on the CPU.
            stream: torch stream or its handle; default: the current one. On a GPU, fetch does not wait for the stream:
                an id outside the table gives a row of zeros, and the next fetch or ``check`` raises the error.
            planes: A: of rows of codec planes plane A alone, as for ``cohort.ibp.fetch``.
        """
        encoded = self._rows
        if self._written is None:  # checked after reading _rows: those do not change
            rows = fetch(encoded, ids, out, stream, planes=planes)
        else:
            with self._lock:
                rows = fetch(self._rows, ids, out, stream, planes=planes)
        with self._lock:
            self._rows_fetched += math.prod(rows.shape[:-1])
        return rows

    def _fetch_distinct(self, ids, padding: int | None):
        """Returns what the function fetch_distinct() returns."""
        encoded = self._rows
        if self._written is None:
            result = fetch_distinct(encoded, ids, padding)
        else:
            with self._lock:
                result = fetch_distinct(self._rows, ids, padding)
        with self._lock:
            self._rows_fetched += len(result[0]) if result else 0
        return result

    def check(self) -> None:
        """Raises the error of a finished fetch or put on a GPU, if there was one."""
        self._rows.check()
        if self._written is not None and self.place != "cpu":
            self._written.check()

    def put(self, ids, rows, stream=None) -> None:
        """Replaces rows: row ids[i] becomes rows[i].

        The first call copies the encoded rows. A new row that needs more bytes than its place has is stored raw, in an
        overflow area.

        With place cpu, wrong ids or rows change nothing, and other threads may fetch at the same time. With place
        pinned or cuda, the GPU encodes, and put does not wait for it: fetches and puts on other streams need to be
        ordered by the caller. If ids are outside the table or occur twice, nothing changes. If the overflow area has no
        room left for a row, the row keeps its value. The next put or ``check`` raises the error.

        Args:
            ids: integers of any type and shape, each at most once.
            rows: [*ids.shape, num_columns] of the table's dtype. For place cpu, in host memory.
            stream: torch stream or its handle, for a GPU; default: the current one.
        """
        if self.place != "cpu":
            return self._put_on_gpu(ids, rows, stream)
        flat, shape = arrays.host_ids(ids, "Table.put: ids")
        values = self._checked(rows, shape)
        with self._lock:
            if self._written is None:
                self._written = _native.WritableRows(self._rows._native)
                self._rows = EncodedRows(self._written.rows, self._rows._kind)
            self._written.put(flat, values)
            self._rows_put += len(flat)

    def _put_on_gpu(self, ids, rows, stream) -> None:
        import torch

        gpu = self._rows._gpu
        with on_gpu(gpu):
            handle = handle_of(stream)
            with torch.cuda.stream(stream_of(stream)):  # what is copied and converted here belongs to it
                named = ids_on_gpu(ids, self.device, "Table.put: ids")
                fresh = self._checked(rows, tuple(named.shape))
                if not arrays.is_torch(fresh):
                    fresh = torch.from_numpy(fresh.view(np.uint8))
                fresh = fresh.to(self.device)
            with self._lock:
                if self._written is None:
                    torch.cuda.synchronize()  # for fetches from the rows that are replaced
                    spare = math.ceil(self._spare * len(self))
                    self._written = _native.DeviceWritableRows(self._rows._native, self.place == "pinned", spare)
                    kind = self._rows._kind
                    self._rows = EncodedRows.replaced_on_gpu(self._written, kind, self.place, gpu)
                self._written.put(named.data_ptr(), fresh.data_ptr(), named.numel(), handle, 0)
                self._rows_put += named.numel()

    def _checked(self, rows, shape):
        """The rows as put() stores them: contiguous [n, num_columns] of the table's dtype."""
        place, wanted = "Table.put: rows", (*shape, self.shape[1])
        kind = arrays.output_kind(rows)
        if kind is None or (arrays.is_cuda(rows) and self.place == "cpu"):
            actual = "a CUDA tensor" if kind else type(rows).__name__
            where = "a torch or numpy array" + (" in host memory" if self.place == "cpu" else "")
            hint = "" if kind is None else 'call .cpu(), or make the table with place="cuda" or "pinned"'
            raise CohortError(place, where, actual, hint)
        arrays.demand_rows(rows, place)
        if self._rows._kind is None:
            _kind_named(kind[1], self.profile, place)
        right = self._rows._kind is None or self.dtype_for(rows) == kind[1]
        if not right or tuple(rows.shape) != wanted:
            raise CohortError(place, f"{self.dtype} {list(wanted)}", f"{kind[1]} {list(rows.shape)}")
        flat = rows.reshape(math.prod(shape), wanted[-1])
        return arrays.computed(flat).contiguous() if kind[0] == "torch" else np.ascontiguousarray(flat)

    def stats(self) -> TableStats:
        """What was read and changed since the table was made."""
        with self._lock:
            fetched, put = self._rows_fetched, self._rows_put
            room = self._written.room_left if self._rows._only_on_gpu else None
        saved = 1 - self.stored_bytes / self.nbytes if self.nbytes else 0.0
        return TableStats(fetched, fetched * self.profile.row_bytes, put, saved, room)

    def __repr__(self) -> str:
        where = self.place if self.place == "cpu" else f"{self.place}, {self.device}"
        return f"Table({list(self.shape)}, {self.dtype}, {self.profile.codec}, {where})"


_held: list = []  # during a fork


def lock_for_forks():
    """A lock that no other thread has while a process is forked; whoever has it takes only ones made later."""
    lock = threading.RLock()
    _locks[id(lock)] = lock
    return lock


def _hold_locks() -> None:
    """Before a fork: no other thread is within a put() then, or has a lock for which the new process would wait."""
    for reference in _locks.valuerefs():
        if (lock := reference()) is not None:
            lock.acquire()
            _held.append(lock)


def _release_locks() -> None:
    while _held:
        _held.pop().release()


os.register_at_fork(before=_hold_locks, after_in_parent=_release_locks, after_in_child=_release_locks)


def _header_of(path) -> bytes:
    """What tells a file of encoded rows from others: its sizes and checksums. Nothing of one that load() refuses."""
    try:
        with open(path, "rb") as file:
            return file.read(HEADER_BYTES)
    except OSError:
        return b""


def _loaded_again(path: str, header: bytes, place: str, device, dtype, spare: float) -> Table:
    if (present := _header_of(path)) and present != header:
        raise CohortError(path, "the file of the table that was pickled", "one with other rows", "pickle it again")
    return Table.load(path, place, device=device, dtype=dtype, verify=False, spare=spare)


def _encoded(array, codec: str, layout: str) -> EncodedRows:
    if isinstance(array, str | os.PathLike) or not (hasattr(array, "__dlpack__") or isinstance(array, np.ndarray)):
        hint = "Table.load(path) reads a file of encoded rows"
        raise CohortError("Table: rows", "an array [rows, columns] or encoded rows", type(array).__name__, hint)
    arrays.demand_rows(array, "Table: rows")
    array = arrays.computed(array)
    return encode(array, fit(array, codec), layout=layout)


def _kind_named(dtype, profile: Profile, place: str) -> tuple:
    """The kind of rows whose dtype the caller names."""
    try:
        kind = ("torch", dtype) if arrays.is_torch_dtype(dtype) else ("numpy", np.dtype(dtype))
    except TypeError as error:
        raise CohortError(f"{place}: dtype", "the name of a dtype", str(dtype)) from error
    known = arrays.default_kind(profile.dtype, arrays.new_array(0, kind))
    is_float = profile.dtype in ("float16", "bfloat16", "float32")
    is_number = kind[0] == "torch" or arrays.is_encodable(kind[1])
    if not is_number or kind[1].itemsize != known[1].itemsize or (is_float and kind[1] != known[1]):
        raise CohortError(f"{place}: dtype", f"one of rows that are {profile.dtype}", str(dtype))
    return kind
