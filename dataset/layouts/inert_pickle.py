"""Pickles of NumPy arrays, SciPy CSR matrices, dicts and lists, read without running anything that they name.

What a pickle may call are the few constructors below. They make objects of this module that only remember what they
were given; arrays are made of that afterwards, and every other name in a pickle ends the reading.
"""

from __future__ import annotations

import io
import pickle
import struct
from pathlib import Path
from typing import Any, Literal

import numpy as np
import scipy  # its packages load on first use

from cohort_gnn.base.errors import CohortError, why
from cohort_gnn.base.files import demand_regular
from cohort_gnn.dataset import arrays

HINT = "only NumPy arrays of numbers, SciPy CSR matrices, dicts and lists are read from pickles"
BROKEN = (
    pickle.UnpicklingError, EOFError, OSError, ValueError, TypeError, AttributeError, IndexError, KeyError,
    OverflowError, MemoryError, RecursionError, ImportError, AssertionError, SyntaxError, struct.error,
)  # fmt: skip
ORDERS: dict[str, Literal["<", ">", "="]] = {"<": "<", ">": ">"}  # others are the machine's


class _Refused(pickle.UnpicklingError):
    """What a pickle has that is never loaded."""


class InertDtype:
    """numpy.dtype of a pickle: its name, and its byte order."""

    def __init__(self, name: Any = "", *_: Any):
        self.name = name.decode("ascii") if isinstance(name, bytes) else str(name)
        self.order = "|"

    def __setstate__(self, state: tuple) -> None:
        self.order = str(state[1])

    def dtype(self) -> np.dtype:
        out = np.dtype(self.name.lstrip("<>|=")).newbyteorder(ORDERS.get(self.order, "="))
        if out.kind not in "biuf":
            raise _Refused(f"dtype {out}")
        return out


class InertArray:
    """numpy.ndarray of a pickle, whatever it is first made of: its type, shape and bytes."""

    def __init__(self, *_: Any):
        self.state: tuple = ()

    def __setstate__(self, state: tuple) -> None:
        self.state = state

    def array(self) -> np.ndarray:
        _, shape, dtype, fortran, data = self.state
        if not isinstance(dtype, InertDtype):
            raise _Refused("an array without a type")
        kind = dtype.dtype()
        raw = data.encode("latin1") if isinstance(data, str) else bytes(data)
        flat = np.frombuffer(raw, dtype=kind)
        return flat.reshape(shape, order="F" if fortran else "C")


class InertMatrix:
    """scipy.sparse.csr_matrix of a pickle: its members."""

    def __setstate__(self, state: dict) -> None:
        self.members = dict(state)

    def matrix(self) -> scipy.sparse.csr_matrix:
        data, indices, indptr = (self.members[name].array() for name in ("data", "indices", "indptr"))
        shape = [int(length) for length in self.members["_shape" if "_shape" in self.members else "shape"]]
        if len(shape) != 2:
            raise _Refused(f"a matrix of shape {shape}")
        return arrays.csr_matrix("", data, indices, indptr, shape)


def _encode(text: str, encoding: str = "latin1") -> bytes:
    return text.encode("latin1" if encoding == "latin1" else "ascii")


def _new_object(kind: type, *_: Any) -> Any:
    """copy_reg._reconstructor of an inert class."""
    if kind is not InertMatrix:
        raise _Refused("an object of another class")
    return InertMatrix()


ADMITTED: dict[tuple[str, str], Any] = {
    **{(f"numpy.{core}.multiarray", "_reconstruct"): InertArray for core in ("core", "_core")},
    ("numpy", "ndarray"): InertArray,
    ("numpy", "dtype"): InertDtype,
    **{(f"scipy.sparse.{module}", "csr_matrix"): InertMatrix for module in ("csr", "_csr")},
    ("_codecs", "encode"): _encode,
    ("collections", "defaultdict"): lambda *_: {},  # what it would make of a missing key does not matter here
    **{(module, "_reconstructor"): _new_object for module in ("copy_reg", "copyreg")},
    **{(module, "object"): object for module in ("__builtin__", "builtins")},
    **{(module, "list"): list for module in ("__builtin__", "builtins")},
}


class _Unpickler(pickle._Unpickler):
    """Python's own unpickler: the one in C allocates as many objects as a damaged file claims to have."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ADMITTED:
            raise _Refused(f"the name {module}.{name}")
        return ADMITTED[module, name]

    def persistent_load(self, pid: Any) -> Any:
        raise _Refused("a reference to something outside")


def load_inert_pickle(path: Path) -> Any:
    """A NumPy array, a SciPy CSR matrix, or a dict or list of numbers.

    Raises:
        CohortError: the file is missing, damaged, or names anything else.
    """
    demand_regular(path)
    try:
        actual = _Unpickler(io.BytesIO(path.read_bytes()), encoding="latin1").load()
        if isinstance(actual, InertArray):
            return actual.array()
        return actual.matrix() if isinstance(actual, InertMatrix) else actual
    except CohortError as error:
        raise CohortError(f"{path}: {error.place}", error.expected, error.found, error.hint) from error
    except BROKEN as error:
        damaged = "another file, or a pickle that is damaged or cut off"
        actual = str(error) if isinstance(error, _Refused) else why(error, damaged)
        raise CohortError(str(path), "a pickle of plain arrays, dicts and lists", actual, HINT) from error
