"""Table: encoded rows for any program, by id, in its own library and on its own device; rows may change."""

import math
import os
import threading
from dataclasses import dataclass

import numpy as np

from cohort.base.errors import CohortError
from cohort.ibp import _native, arrays
from cohort.ibp.rows import EncodedRows, Profile, encode, fetch, fit, load

_DIRECTORY_BYTES = {"packed": 8.0, "in place": 2.0, "slots": 0.25}  # of a row: FORMAT.md 2


@dataclass(frozen=True)
class TableStats:
    """Counts of the reads and changes of a table since it was made.

    Attributes:
        rows_fetched: rows that fetch() and table[ids] returned.
        bytes_fetched: decoded bytes of these rows.
        rows_put: rows that put() replaced.
        saved: share of the table's bytes that encoding currently saves.
    """

    rows_fetched: int
    bytes_fetched: int
    rows_put: int
    saved: float


class Table:
    """Rows [num_rows, num_columns] that are stored encoded: ``table[ids]`` is ``array[ids]``, bit for bit.

    Args:
        rows: torch, numpy or DLPack array [num_rows, num_columns], or encoded rows. ``Table.load`` reads a file.
        codec: as for ``fit``.
        place: cpu, pinned (host memory that a GPU reads) or cuda; default: where encoded rows are, for arrays cpu.
        device: the GPU that reads the rows, as a number or as torch names it; default: the current one.
        layout: as for ``encode``.
    """

    def __init__(self, rows, codec="auto", place=None, *, device=None, layout="auto"):
        encoded = rows if isinstance(rows, EncodedRows) else _encoded(rows, codec, layout)
        self._rows = encoded if place is None else encoded.to(place, device)
        self._written: _native.WritableRows | None = None  # once rows were put; _rows are then its rows
        self._lock = threading.Lock()  # of the numbers below, and of rows that change
        self._rows_fetched = self._rows_put = 0

    @classmethod
    def load(cls, path, place="cpu", *, device=None, dtype=None, verify=True) -> "Table":
        """Maps a file of encoded rows, of ``save``, ``encode(out=)`` or ``cohort ibp encode``.

        Args:
            place: as for Table.
            device: as for Table.
            dtype: torch or numpy dtype of the rows, if it is not float16, bfloat16 or float32: of other types, the file
                records only the width.
            verify: False skips the rows' checksums.
        """
        encoded = load(path, verify=verify)
        if dtype is not None:
            encoded._kind = _kind_named(dtype, encoded.profile, str(path))
        return cls(encoded, place=place, device=device)

    @classmethod
    def of_zeros(cls, profile: Profile, num_rows: int, slot_bytes: int, kind: tuple) -> "Table":
        """Rows of zeros, for put(). Each has room for `slot_bytes`, a multiple of 4; memory is taken by rows put.

        Args:
            kind: (library, dtype) of the rows, as arrays.kind_of gives it.
        """
        written = _native.WritableRows(profile.native, num_rows, slot_bytes)
        table = cls(EncodedRows(written.rows, kind))
        table._written = written
        return table

    def save(self, path) -> None:
        """Writes the rows, as they are now, to a file for ``load``: whole, or not at all."""
        if self._written is None:
            return self._rows.save(path)
        with self._lock:  # encodes again: into a file without gaps
            encode(self._rows, self.profile, out=path)

    def to(self, place, device=None) -> "Table":
        """A table of the same rows in another place: cpu, pinned or cuda."""
        if self._written is None:
            return Table(self._rows, place=place, device=device)
        with self._lock:  # later changes are not the new table's
            copy = EncodedRows(_native.WritableRows(self._rows._native).rows, self._rows._kind)
        return Table(copy, place=place, device=device)

    profile = property(lambda self: self._rows.profile)
    place = property(lambda self: self._rows.place)
    device = property(lambda self: self._rows.device)
    shape = property(lambda self: self._rows.shape)

    @property
    def dtype(self):
        """Of the rows, in the library that they came from; numpy's for rows of a file, if numpy has it."""
        return self.dtype_for(None)

    def dtype_for(self, like):
        """Of the rows that fetch() gives for ids of this array's library."""
        return arrays.kind_for(self._rows._kind, self.profile.dtype, like)[1]

    @property
    def nbytes(self) -> int:
        """Bytes of the rows as an array."""
        return len(self) * self.profile.row_bytes

    @property
    def stored_bytes(self) -> int:
        """Bytes of the encoded rows and of what finds them."""
        return self._rows.stored_bytes + math.ceil(len(self) * _DIRECTORY_BYTES[self._rows.layout])

    def __len__(self) -> int:
        return self._rows.num_rows

    def __getitem__(self, ids):
        """Rows of an integer, a slice, or integers of any type and shape, as ``fetch`` gives them."""
        return self.fetch(range(len(self))[ids] if isinstance(ids, slice) else ids)

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
        if self._written is None:  # asked after _rows were taken: these do not change
            found = fetch(encoded, ids, out, stream, planes=planes)
        else:
            with self._lock:
                found = fetch(self._rows, ids, out, stream, planes=planes)
        with self._lock:
            self._rows_fetched += math.prod(found.shape[:-1])
        return found

    def check(self) -> None:
        """Raises the error of a finished fetch on a GPU, if there was one."""
        self._rows.check()

    def put(self, ids, rows) -> None:
        """Replaces rows, in memory: row ids[i] becomes rows[i]. For tables with place cpu.

        The first call copies the encoded rows. A new row that needs more bytes than the old row is stored raw, in an
        overflow area. If ids or rows are wrong, nothing changes. Other threads may fetch at the same time.

        Args:
            ids: integers of any type and shape, each at most once.
            rows: [*ids.shape, num_columns] in host memory, of the table's dtype.
        """
        if self.place != "cpu":
            hint = 'put rows into a table with place="cpu", then call its to() for one that a GPU reads'
            raise CohortError("Table.put", "a table with place cpu", f"place {self.place}", hint)
        flat, shape = arrays.ids_of(ids, "Table.put: ids")
        given = self._checked(rows, shape)
        with self._lock:
            if self._written is None:
                self._written = _native.WritableRows(self._rows._native)
                self._rows = EncodedRows(self._written.rows, self._rows._kind)
            self._written.put(flat, given)
            self._rows_put += len(flat)

    def _checked(self, rows, shape):
        """The rows as put() stores them: contiguous [n, num_columns] of the table's dtype."""
        place, wanted = "Table.put: rows", (*shape, self.shape[1])
        kind = arrays.kind_of(rows)
        if kind is None or arrays.is_cuda(rows):
            found = "a CUDA tensor" if kind else type(rows).__name__
            raise CohortError(place, "a torch or numpy array in host memory", found)
        right = self._rows._kind is None or self.dtype_for(rows) == kind[1]
        if not right or tuple(rows.shape) != wanted:
            raise CohortError(place, f"{self.dtype} {list(wanted)}", f"{kind[1]} {list(rows.shape)}")
        flat = rows.reshape(math.prod(shape), wanted[-1])
        return flat.detach().contiguous() if kind[0] == "torch" else np.ascontiguousarray(flat)

    def stats(self) -> TableStats:
        with self._lock:
            fetched, put = self._rows_fetched, self._rows_put
        saved = 1 - self.stored_bytes / self.nbytes if self.nbytes else 0.0
        return TableStats(fetched, fetched * self.profile.row_bytes, put, saved)

    def __repr__(self) -> str:
        where = self.place if self.place == "cpu" else f"{self.place}, {self.device}"
        return f"Table({list(self.shape)}, {self.dtype}, {self.profile.codec}, {where})"


def _encoded(array, codec: str, layout: str) -> EncodedRows:
    if isinstance(array, str | os.PathLike) or not (hasattr(array, "__dlpack__") or isinstance(array, np.ndarray)):
        hint = "Table.load(path) reads a file of encoded rows"
        raise CohortError("Table: rows", "an array [rows, columns] or encoded rows", type(array).__name__, hint)
    if arrays.is_torch(array):
        array = array.detach()
    elif isinstance(array, np.ndarray) and not (array.dtype.isnative and array.dtype.kind in "biufc"):
        hint = "convert them with astype() or view()"
        raise CohortError("Table: rows", "numbers in the byte order of this machine", str(array.dtype), hint)
    return encode(array, fit(array, codec), layout=layout)


def _kind_named(dtype, profile: Profile, place: str) -> tuple:
    """The kind of rows whose dtype the caller names."""
    kind = ("numpy", np.dtype(dtype)) if not arrays.is_torch_dtype(dtype) else ("torch", dtype)
    known = arrays.default_kind(profile.dtype, arrays.new_array(0, kind))
    is_float = profile.dtype in ("float16", "bfloat16", "float32")
    if kind[1].itemsize != known[1].itemsize or (is_float and kind[1] != known[1]):
        raise CohortError(f"{place}: dtype", f"one of rows that are {profile.dtype}", str(dtype))
    return kind
