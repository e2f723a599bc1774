"""Tensors in files of safetensors and of torch.save, by the names that users give: FILE.safetensors:NAME, FILE.pt:NAME.

Nothing in a file is run.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.spelling import did_you_mean
from cohort_gnn.dataset.array_file import Array, Bfloat16Array, MemoryArray, demand_bools, open_npy
from cohort_gnn.dataset.layouts.safetensors import COMPLEX_HINT, FLOAT_HINT, SafeTensors
from cohort_gnn.dataset.layouts.torch_files import is_dense, load_tensors
from cohort_gnn.dataset.tables.known_files import demand_fetched
from cohort_gnn.dataset.tables.table import shortened

TENSORS = ("safetensors", "pt")  # kinds of files, and their suffixes
ARRAYS = ("npy", *TENSORS)
NAMED = re.compile(r"(.+?\.(?:safetensors|pt)):(.+)", re.IGNORECASE | re.DOTALL)
TYPES = (
    *("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"),
    *("float16", "float32", "float64", "bfloat16"),
)
PT_HINT = "torch.save(tensor, FILE), or a dict of tensors: torch.save({'x': x}, FILE)"


def file_of(path: Path) -> Path:
    """The file of a path, which may name a tensor in it."""
    return _parts(path)[0]


def _parts(path: Path) -> tuple[Path, str | None]:
    """A file, and the name of a tensor in it; None: the path has none."""
    named = NAMED.fullmatch(str(path))
    return (path, None) if named is None or path.exists() else (Path(named[1]), named[2])


def names_array(text: str) -> bool:
    """Whether a text is the name of a file of one array, or of a tensor in a file."""
    named = NAMED.fullmatch(text)
    return named is not None or text.lower().endswith(tuple(f".{kind}" for kind in ARRAYS))


def open_array(path: Path, kind: str | None) -> Array:
    """The array in a .npy file, or a tensor in a file of safetensors or torch.save.

    Args:
        path: a file; of a file of several tensors, with the name of one: ``FILE:NAME``.
        kind: one of ARRAYS; others: "npy".

    Raises:
        CohortError: the file is damaged, has no such tensor, or several and the path names none.
    """
    demand_fetched(file_of(path))
    if kind not in TENSORS:
        return open_npy(path)
    file, name = _parts(path)
    if kind == "safetensors":
        tensors = SafeTensors(file)
        return tensors.open(_chosen(path, tensors.names))
    content = load_tensors(file, PT_HINT)
    if is_tensor(content) and name is None:
        return _array_of(str(path), content)
    members = {str(key): value for key, value in _members(path, content).items() if is_tensor(value)}
    name = _chosen(path, list(members))
    return _array_of(f"{file}:{name}", members[name])


def is_tensor_file(path: Path, hint: str) -> bool:
    """Whether a file of torch.save is one tensor, or the path names one in it; `hint`: what else it may be."""
    file, name = _parts(path)
    return name is not None or is_tensor(load_tensors(file, hint))


def is_tensor(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor)


def _members(path: Path, content: Any) -> dict:
    content = content.to_dict() if hasattr(content, "to_dict") else content
    if isinstance(content, dict):
        return content
    actual = "one tensor, which has no name" if is_tensor(content) else type(content).__name__
    raise CohortError(str(path), "a dict of tensors", actual, PT_HINT)


def _chosen(path: Path, names: Sequence[str]) -> str:
    """The name of the tensor that a path means: the one that it names, or the only one."""
    file, name = _parts(path)
    if name is None and len(names) == 1:
        return names[0]
    listed = shortened(names) or "no tensors"
    if name is None:
        actual = f"{len(names)}: {listed}" if names else listed
        suffix = file if file.suffix.lower().removeprefix(".") in TENSORS else f"{file}.pt"
        hint = f"name one of them: {suffix}:{names[0]}" if names else PT_HINT
        raise CohortError(str(file), "one tensor, or the name of one", actual, hint)
    if name not in names:
        raise CohortError(str(file), f"a tensor {name}", listed, did_you_mean(name, names) or f"{file}:NAME")
    return name


def _array_of(place: str, tensor: Any) -> Array:
    """The numbers of a tensor, in place; those of bfloat16 as float32."""
    import torch

    dtype = str(tensor.dtype).removeprefix("torch.")
    if not is_dense(tensor) or tensor.device.type != "cpu":
        actual = f"a tensor of layout {tensor.layout}, on {tensor.device}"
        raise CohortError(place, "a dense tensor", actual, "save tensor.to_dense().cpu()")
    if dtype not in TYPES:
        hint = COMPLEX_HINT if tensor.is_complex() else FLOAT_HINT
        raise CohortError(place, "integers, bools, or floats of 16, 32 or 64 bits", dtype, hint)
    if not tensor.shape:
        raise CohortError(place, "an array", f"one {dtype}, without a shape", "save tensor.reshape(1)")
    stored = tensor.untyped_storage().nbytes()
    if tensor.numel() * tensor.element_size() > stored:  # memory for it would be taken when it is read
        actual = f"shape {list(tensor.shape)} of {stored} bytes"
        raise CohortError(place, "a tensor that has all of its numbers", actual, "save tensor.contiguous()")
    tensor = tensor.detach().resolve_neg()
    if dtype == "bfloat16":
        return Bfloat16Array(MemoryArray(place, tensor.view(torch.int16).numpy().view(np.uint16)))
    array = tensor.numpy()
    demand_bools(place, array)
    return MemoryArray(place, array)
