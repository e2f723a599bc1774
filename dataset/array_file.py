"""Arrays on disk, read piece by piece: .npy files, members of an .npz, files of bare numbers.

Nothing is mapped, so that an array of any size costs the memory of one piece."""

from __future__ import annotations

import contextlib
import errno
import math
import os
import struct
import threading
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterator
from io import BufferedIOBase
from pathlib import Path
from typing import cast

import numpy as np

from cohort_gnn.base.errors import CohortError, why
from cohort_gnn.base.files import demand_regular
from cohort_gnn.dataset.arrays import IDS_HINT, TIMES_HINT, as_float32

# What NumPy and zipfile raise for files that are none of theirs: their parsers raise whatever they meet.
UNREADABLE = (
    OSError, ValueError, EOFError, KeyError, IndexError, TypeError, AttributeError, SyntaxError, MemoryError,
    OverflowError, RecursionError, NotImplementedError, RuntimeError, tokenize.TokenError, struct.error,
    zipfile.BadZipFile, zlib.error,
)  # fmt: skip
# NumPy parses headers as Python, and CPython 3.11 counts how deep all threads are in that together: SystemError.
ONE_HEADER_AT_ONCE = threading.RLock()
DAMAGED = "damaged bytes"
MAGIC = b"\x93NUMPY"
LONGEST_TEXT = 1024  # bytes of an array of one text, with its header
MOST_DEFLATED = 1032  # bytes of which deflate makes one: 258 for two bits
SAVE_AGAIN = "write it again with numpy.savez or numpy.save; pickled objects are never loaded"
COMPLEX_HINT = "numpy.stack([array.real, array.imag], axis=-1)"
BITS_HINTS = {  # of ml_dtypes, by bytes
    1: "of float8: numpy.save(file, array.astype(numpy.float32))",
    2: "of bfloat16: numpy.save(file, array.view(numpy.uint16)), and --feature-dtype bfloat16",
}


class ArrayFile:
    """An array of numbers in a file.

    Attributes:
        place: for messages.
        shape, dtype: of the array.
        fortran: the first axis lies closest together; such an array must be reshaped to be read.
    """

    def __init__(
        self,
        place: str,
        open_file: Callable[[], BufferedIOBase],
        dtype: np.dtype,
        shape: tuple[int, ...],
        offset: int,
        fortran: bool = False,
    ):
        self.place, self.dtype, self.shape, self.fortran = place, dtype, shape, fortran
        self._open, self._offset = open_file, offset

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def row_bytes(self) -> int:
        """Bytes of one element along the first axis."""
        return int(np.prod(self.shape[1:], dtype=np.int64)) * self.dtype.itemsize

    def rows(self, at_once: int) -> Iterator[np.ndarray]:
        """So many elements along the first axis at a time, [n, ...], each in memory of its own."""
        if self.fortran:
            cure = "write it again with numpy.save(file, numpy.ascontiguousarray(array))"
            raise CohortError(self.place, "an array in C order", "one in Fortran order", cure)
        with contextlib.closing(self._open()) as file:
            self._seek(file, self._offset)
            for begin in range(0, len(self), at_once):
                out = self._room(min(at_once, len(self) - begin))
                self._fill(file, out)
                yield out

    def read(self) -> np.ndarray:
        """The whole array."""
        return next(self.rows(len(self))) if len(self) else self._room(0)

    def reshaped(self, *shape: int, first: int = 0) -> ArrayFile:
        """The same numbers, in the order in which they lie in the file, from the number `first` on."""
        return ArrayFile(self.place, self._open, self.dtype, shape, self._offset + first * self.dtype.itemsize)

    def _room(self, count: int) -> np.ndarray:
        """Memory for so many elements along the first axis."""
        try:
            return np.empty((count, *self.shape[1:]), dtype=self.dtype)
        except (MemoryError, ValueError) as error:
            raise CohortError(self.place, "an array that memory holds", f"{count * self.row_bytes} bytes") from error

    def _seek(self, file: BufferedIOBase, position: int) -> None:
        try:
            file.seek(position)
        except UNREADABLE as error:
            raise CohortError(self.place, "a whole array", why(error, DAMAGED), "copy it again") from error

    def _fill(self, file: BufferedIOBase, out: np.ndarray) -> None:
        view = out.reshape(-1).data.cast("B")
        done = 0
        while done < len(view):
            try:
                count = file.readinto(view[done:])
            except UNREADABLE as error:
                raise CohortError(self.place, "a whole array", why(error, DAMAGED), "copy it again") from error
            if not count:
                expected = f"{self.dtype} of shape {list(self.shape)}"
                raise CohortError(self.place, expected, "a file that ends before", "copy it again")
            done += count
        demand_bools(self.place, out)


class MemoryArray:
    """An array in memory, read as one in a file."""

    def __init__(self, place: str, array: np.ndarray):
        self.place, self.shape, self.dtype, self._array = place, array.shape, array.dtype, array
        self.fortran = array.flags.f_contiguous and not array.flags.c_contiguous

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def row_bytes(self) -> int:
        """Bytes of one element along the first axis."""
        return int(np.prod(self.shape[1:], dtype=np.int64)) * self.dtype.itemsize

    def rows(self, at_once: int) -> Iterator[np.ndarray]:
        """So many elements along the first axis at a time."""
        return (self._array[begin : begin + at_once] for begin in range(0, len(self), at_once))

    def read(self) -> np.ndarray:
        """The whole array."""
        return self._array

    def reshaped(self, *shape: int, first: int = 0) -> MemoryArray:
        """The same numbers, in the order in which they lie in memory, from the number `first` on."""
        numbers = self._array.ravel(order="A")[first : first + math.prod(shape)]
        return MemoryArray(self.place, numbers.reshape(shape))


class Bfloat16Array:
    """Numbers of bfloat16, read as float32, which holds them all.

    Attributes:
        bits: the same array as uint16.
    """

    dtype, fortran = np.dtype(np.float32), False

    def __init__(self, bits: ArrayFile | MemoryArray):
        self.place, self.shape, self.bits = bits.place, bits.shape, bits

    def __len__(self) -> int:
        return self.shape[0]

    def rows(self, at_once: int) -> Iterator[np.ndarray]:
        """So many elements along the first axis at a time."""
        return (as_float32(bits, "bfloat16") for bits in self.bits.rows(at_once))

    def read(self) -> np.ndarray:
        """The whole array."""
        return as_float32(self.bits.read(), "bfloat16")


Array = ArrayFile | MemoryArray | Bfloat16Array


class NamedArrays:
    """The arrays of an .npz file or of a folder of .npy files, each opened when asked for."""

    def __init__(self, path: str | Path, hint: str):
        """`hint`: what to do where one is missing."""
        self.path, self._hint, self._is_folder = Path(path), hint, Path(path).is_dir()
        self._opened: set[str] = set()
        if self._is_folder:
            self._sizes = {file.stem: file.stat().st_size for file in self.path.glob("*.npy")}
        else:
            self._sizes = self._members()

    def __contains__(self, key: str) -> bool:
        return key in self._sizes

    def __getitem__(self, key: str) -> ArrayFile:
        if key not in self:
            present = ", ".join(sorted(self._sizes)) or "no arrays"
            raise CohortError(str(self.path), f"an array {key}", present, self._hint)
        self._opened.add(key)
        return _parse(self.place(key), self._opener(key), self._sizes[key])

    def _opener(self, key: str) -> Callable[[], BufferedIOBase]:
        name = f"{key}.npy"
        return (lambda: open_bytes(self.path / name)) if self._is_folder else (lambda: _member(self.path, name))

    def text(self, key: str) -> str:
        """The text in an array without a shape, such as SciPy's ``format``."""
        place, size = self.place(key), self._sizes[key]
        self._opened.add(key)
        array = np.empty(0)
        if size <= LONGEST_TEXT:
            with contextlib.closing(self._opener(key)()) as file:
                try:
                    array = np.lib.format.read_array(file, allow_pickle=False)
                except UNREADABLE as error:
                    raise CohortError(place, "a short text", why(error, DAMAGED), SAVE_AGAIN) from error
        if array.shape or array.dtype.kind not in "SU":
            stored = f"{size} bytes" if size > LONGEST_TEXT else f"{array.dtype} of shape {list(array.shape)}"
            raise CohortError(place, "a short text", stored, SAVE_AGAIN)
        text = array.item()
        return text.decode("latin1") if isinstance(text, bytes) else text

    @property
    def names(self) -> list[str]:
        """Of all arrays, in their order."""
        return list(self._sizes)

    def place(self, key: str) -> str:
        return f"{self.path}: {key}"

    def unread(self) -> list[str]:
        """The names of the arrays that have not been read."""
        return sorted(self._sizes.keys() - self._opened)

    def _members(self) -> dict[str, int]:
        """Name -> bytes of the members of an archive."""
        demand_regular(self.path)
        try:
            with zipfile.ZipFile(self.path) as archive:
                members = [info for info in archive.infolist() if info.filename.endswith(".npy")]
        except UNREADABLE as error:
            actual = why(error, "another file, or one that is damaged or cut off")
            raise CohortError(str(self.path), "arrays in NumPy's .npz or .npy format", actual, SAVE_AGAIN) from error
        for info in members:
            self._demand_possible(info)
        return {info.filename.removesuffix(".npy"): info.file_size for info in members}

    def _demand_possible(self, info: zipfile.ZipInfo) -> None:
        """Raises CohortError for a member that claims to be larger than its bytes in the archive can be: memory for it
        would be allocated before it is read."""
        place = self.place(info.filename.removesuffix(".npy"))
        most = {zipfile.ZIP_STORED: 1, zipfile.ZIP_DEFLATED: MOST_DEFLATED}.get(info.compress_type, 0)
        if not most:
            method = f"compression method {info.compress_type} of zip"
            raise CohortError(place, "an array as numpy.savez writes it", method, SAVE_AGAIN)
        stored = min(info.compress_size, self.path.stat().st_size)
        if info.file_size > most * stored:
            actual = f"{stored} bytes that claim to be {info.file_size}"
            raise CohortError(place, "a whole array", actual, SAVE_AGAIN)


def demand_bools(place: str, array: np.ndarray) -> None:
    """Raises CohortError for bools that are neither 0 nor 1, of which "and" would make other ones."""
    if array.dtype == bool and array.size and (most := array.view(np.uint8).max()) > 1:
        raise CohortError(place, "bools, bytes of 0 or 1", f"a byte of {most}", "copy the file again")


def open_npy(path: str | Path) -> ArrayFile:
    """The array of a .npy file."""
    with contextlib.closing(open_bytes(path)) as file:
        size = os.fstat(file.fileno()).st_size
    return _parse(str(path), lambda: open_bytes(path), size)


def open_raw(path: str | Path, dtype: str, columns: int | None = None) -> ArrayFile:
    """A file of bare numbers of one type: [n], or [n, columns]."""
    if not Path(path).is_file():
        raise CohortError(str(path), f"a file of {dtype}", "no such file")
    kind = np.dtype(dtype)
    size, row_bytes = Path(path).stat().st_size, kind.itemsize * (columns or 1)
    if size % row_bytes:
        expected = f"rows of {columns or 1} x {kind} ({row_bytes} bytes)"
        raise CohortError(str(path), expected, f"{size} bytes", "look at the type and the number of columns")
    shape = (size // row_bytes,) if columns is None else (size // row_bytes, columns)
    return ArrayFile(str(path), lambda: open_bytes(path), kind, shape, 0)


def is_npy(path: str | Path) -> bool:
    """True when the file starts as a .npy file does."""
    with open_bytes(path) as file:
        return file.read(len(MAGIC)) == MAGIC


def open_bytes(path: str | Path) -> BufferedIOBase:
    """A file for reading."""
    demand_regular(path)
    try:
        return open(path, "rb")
    except OSError as error:
        raise CohortError(str(path), "a readable file", error.strerror or str(error)) from error


def _member(path: str | Path, name: str) -> BufferedIOBase:
    """A member that closes its archive with itself."""
    try:
        with zipfile.ZipFile(path) as archive:  # the member keeps the file open for itself
            return cast(BufferedIOBase, archive.open(name))  # the stub of zipfile says less: IO[bytes]
    except UNREADABLE as error:
        actual = why(error, "one that is encrypted or damaged")
        raise CohortError(f"{path}: {name}", "a member of an .npz file", actual, "copy it again") from error


def _parse(place: str, open_file: Callable[[], BufferedIOBase], size: int) -> ArrayFile:
    hint = "write it again with numpy.save; pickled objects are never loaded"
    with contextlib.closing(open_file()) as file, ONE_HEADER_AT_ONCE:
        try:
            version = np.lib.format.read_magic(file)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, fortran, dtype = read(file)
            offset = file.tell()
        except UNREADABLE as error:
            actual = why(error, _begin_of(open_file))
            raise CohortError(place, "an array in NumPy's .npy format", actual, hint) from error
    if shape == ():
        raise CohortError(place, "an array", f"one {dtype}, without a shape", "save the array: numpy.save(file, array)")
    if dtype.kind not in "biuf":
        hint = {"U": IDS_HINT, "S": IDS_HINT, "M": TIMES_HINT, "m": TIMES_HINT, "c": COMPLEX_HINT}.get(dtype.kind, hint)
        if dtype.kind == "V":  # what numpy.save writes of types that it does not know
            hint = "choose a field: array['NAME']" if dtype.names else BITS_HINTS.get(dtype.itemsize, hint)
        raise CohortError(place, "an array of numbers", f"dtype {dtype}", hint)
    needed = offset + math.prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or size < needed:
        expected, actual = f"{needed} bytes for shape {list(shape)}", f"a file that ends before, after {size} bytes"
        raise CohortError(place, expected, actual, "copy it again")
    return ArrayFile(place, open_file, dtype, shape, offset, fortran and len(shape) > 1)


def _begin_of(open_file: Callable[[], BufferedIOBase]) -> str:
    """What a file is that NumPy does not read."""
    begin = b""
    with contextlib.suppress(*UNREADABLE), contextlib.closing(open_file()) as file:
        begin = file.read(len(MAGIC))
        if begin != MAGIC:
            return "a file that begins otherwise" if begin else "an empty file"
    return "a damaged header" if begin else DAMAGED


def map_array(path: Path) -> np.ndarray:
    """An array of a data set, mapped from disk."""
    try:
        with ONE_HEADER_AT_ONCE:
            return np.load(path, mmap_mode="r", allow_pickle=False)
    except UNREADABLE as error:  # NumPy is stricter about headers than the library
        hint = "write it again with numpy.save"
        if isinstance(error, OSError):
            hint = "raise the limit of open files: ulimit -n" if error.errno == errno.EMFILE else ""
        actual = why(error, "a header that NumPy does not read")
        raise CohortError(str(path), "an array that NumPy reads", actual, hint) from error
