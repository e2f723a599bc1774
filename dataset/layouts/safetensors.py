"""Files of safetensors: where each tensor lies, with every number of the header checked before it is used."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np

from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.structures import misfit
from cohort_gnn.dataset.array_file import ArrayFile, Bfloat16Array, open_bytes

MAX_HEADER_BYTES = 100_000_000  # the library refuses longer ones, too
LENGTH_BYTES = 8
HINT = "copy it again, or write it anew with safetensors.torch.save_file"
TYPES = {
    "BOOL": "?",
    **{f"U{8 * size}": f"<u{size}" for size in (1, 2, 4, 8)},
    **{f"I{8 * size}": f"<i{size}" for size in (1, 2, 4, 8)},
    **{f"F{8 * size}": f"<f{size}" for size in (2, 4, 8)},
    "BF16": "<u2",  # its bits
}
# Types that are known, but not read -> bits of each number.
UNREAD = {
    **dict.fromkeys(("F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **{"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "C64": 64},
}
FLOAT_HINT = "convert it with tensor.float(), and save it again"
COMPLEX_HINT = "torch.view_as_real(tensor).flatten(1) has real numbers; save it again"

Size = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class Tensor(msgspec.Struct, forbid_unknown_fields=True):
    """What the header says of a tensor; `data_offsets`: its begin and end behind the header."""

    dtype: str
    shape: list[Size]
    data_offsets: tuple[Size, Size]


class SafeTensors:
    """The tensors of a file.

    Attributes:
        names: in the order of the header.
    """

    def __init__(self, path: Path):
        """Raises CohortError: the file is none of safetensors, or its header is damaged."""
        self._path = path
        with open_bytes(path) as file:
            size = file.seek(0, 2)
            file.seek(0)
            length = int.from_bytes(file.read(LENGTH_BYTES), "little")
            if size < LENGTH_BYTES or length > size - LENGTH_BYTES:
                actual = f"a header of {length} bytes in a file of {size}" if size >= LENGTH_BYTES else f"{size} bytes"
                raise CohortError(str(path), "a whole file of safetensors", actual, HINT)
            if length > MAX_HEADER_BYTES:
                raise CohortError(str(path), f"a header of at most {MAX_HEADER_BYTES} bytes", f"{length} bytes", HINT)
            self._tensors = self._parsed(file.read(length))
        self._begin = LENGTH_BYTES + length
        self._demand_places(size - self._begin)
        self.names = list(self._tensors)

    def open(self, name: str) -> ArrayFile | Bfloat16Array:
        """The tensor of this name; its numbers are read piece by piece.

        Raises:
            CohortError: it has a type that no data set holds, or no shape.
        """
        tensor, place = self._tensors[name], f"{self._path}:{name}"
        if tensor.dtype not in TYPES:
            hint = COMPLEX_HINT if tensor.dtype == "C64" else FLOAT_HINT
            raise CohortError(place, "integers, bools, or floats of 16, 32 or 64 bits", tensor.dtype, hint)
        if not tensor.shape:
            raise CohortError(place, "an array", f"one {tensor.dtype}, without a shape", "save tensor.reshape(1)")
        begin = self._begin + tensor.data_offsets[0]
        dtype, shape = np.dtype(TYPES[tensor.dtype]), tuple(tensor.shape)
        array = ArrayFile(place, lambda: open_bytes(self._path), dtype, shape, begin)
        return Bfloat16Array(array) if tensor.dtype == "BF16" else array

    def _parsed(self, header: bytes) -> dict[str, Tensor]:
        """The tensors by name."""
        try:
            content = json.loads(header.decode() if header.startswith(b"{") else "", object_pairs_hook=self._members)
        except (ValueError, RecursionError) as error:
            actual = "other bytes, or damaged ones"
            raise CohortError(str(self._path), "a header of safetensors, in JSON", actual, HINT) from error
        content.pop("__metadata__", None)
        try:
            return msgspec.convert(content, dict[str, Tensor])
        except msgspec.ValidationError as error:
            member, expected, actual = misfit(error)
            place = f"{self._path}: {member}".removesuffix(": ")
            raise CohortError(place, expected or "a tensor's dtype, shape and data_offsets", actual, HINT) from None

    def _members(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        """An object of the header, in which each name is once."""
        content = dict(pairs)
        if len(content) != len(pairs):
            again = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
            raise CohortError(str(self._path), "each name once in the header", f"{again} again", HINT)
        return content

    def _demand_places(self, size: int) -> None:
        """Raises CohortError unless the tensors fill the bytes behind the header, one after the other."""
        end = 0
        for name, tensor in sorted(self._tensors.items(), key=lambda item: item[1].data_offsets):
            place, offsets = f"{self._path}:{name}", tensor.data_offsets
            bits = UNREAD.get(tensor.dtype) or 8 * np.dtype(TYPES.get(tensor.dtype, "V0")).itemsize
            if not bits:
                raise CohortError(place, f"a dtype of safetensors: {', '.join(TYPES)}", tensor.dtype, HINT)
            if 8 * (offsets[1] - offsets[0]) != bits * math.prod(tensor.shape):
                expected = f"bytes for {tensor.dtype} of shape {tensor.shape}"
                raise CohortError(place, expected, f"data_offsets {list(offsets)}", HINT)
            if offsets[0] != end:
                expected = f"data that begin at {end}, behind the tensor before"
                raise CohortError(place, expected, f"data_offsets {list(offsets)}", HINT)
            end = offsets[1]
        if end != size:
            raise CohortError(str(self._path), f"{end} bytes behind the header", f"{size}", HINT)
