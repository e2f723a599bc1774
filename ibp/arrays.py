"""Arrays of other libraries: what they are, and new ones like them. torch is imported only if the caller uses it."""

import sys

import numpy as np

from cohort_gnn.base.errors import CohortError

OF_A_MASK = "of a mask: numpy.where(mask)[0], torch.where(mask)[0]"
_LARGEST = np.iinfo(np.int64).max
_NUMPY = {
    "uint8": np.uint8,
    "float16": np.float16,
    "float32": np.float32,
    "bits32": np.uint32,
    "bits64": np.uint64,
}
_TORCH = {"uint8": "uint8", "float16": "float16", "bfloat16": "bfloat16", "float32": "float32"}
_TORCH |= {"bits32": "int32", "bits64": "int64"}


def is_torch(array) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def is_torch_dtype(dtype) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(dtype, torch.dtype)


def is_cuda(array) -> bool:
    return is_torch(array) and array.is_cuda


def kind_of(array):
    """What outputs should look like: ("torch", dtype) or ("numpy", dtype); None for other DLPack arrays."""
    if is_torch(array):
        return "torch", array.dtype
    return ("numpy", array.dtype) if isinstance(array, np.ndarray) else None


def new_array(shape, kind: tuple, device=None):
    """An empty array [shape] of the library and dtype that `kind` names."""
    if kind[0] == "torch":
        import torch

        return torch.empty(shape, dtype=kind[1], device=device)
    return np.empty(shape, dtype=kind[1])


def default_kind(dtype: str, like) -> tuple:
    """The kind for rows of unknown origin (a file), given the index that asks for them."""
    if is_torch(like) or dtype == "bfloat16":
        import torch

        return "torch", getattr(torch, _TORCH[dtype])
    return "numpy", np.dtype(_NUMPY[dtype])


def kind_for(kind: tuple | None, dtype: str, index) -> tuple:
    """The kind of rows that `index` asks for: of its library, if that is torch or numpy and has their dtype.

    Args:
        kind: of the encoded rows; None: unknown.
        dtype: of their profile.
    """
    if kind is None:
        return default_kind(dtype, index)
    if is_torch(index) and kind[0] == "numpy":
        import torch

        return "torch", torch.from_numpy(np.empty(0, kind[1])).dtype
    if isinstance(index, np.ndarray) and kind[0] == "torch" and dtype != "bfloat16":
        import torch

        return "numpy", torch.empty(0, dtype=kind[1]).numpy().dtype
    return kind


def subscript(index, num_rows: int):
    """What ``[index]`` of rows asks ``fetch`` for.

    Raises:
        CohortError: the index is a tuple: ``array[3, 5]`` is an element, not two rows.
    """
    if isinstance(index, tuple):
        hint = "ids as a list: rows[[3, 5]]; columns of the rows that come back: rows[ids][..., columns]"
        raise CohortError("rows[...]", "integers or a slice", repr(index)[:80], hint)
    return range(num_rows)[index] if isinstance(index, slice) else index


def ids_of(index, place: str = "fetch: index") -> tuple[np.ndarray, tuple[int, ...]]:
    """int64 [n] in host memory, and the shape in which the integers were given."""
    if isinstance(index, range):  # numpy would ask for its numbers one by one
        index = np.arange(index.start, index.stop, index.step)
    if is_cuda(index):
        raise CohortError(place, "integers in host memory", "a CUDA tensor", "call .cpu()")
    try:
        array = np.asarray(index.numpy() if is_torch(index) else index)
    except ValueError as error:  # lists of several lengths
        raise CohortError(place, "integers", "lists of different lengths") from error
    if array.dtype.kind == "b" or (array.size > 0 and array.dtype.kind not in "iu"):
        hint = OF_A_MASK if array.dtype.kind == "b" else ""
        raise CohortError(place, "integers", f"{array.dtype} {list(array.shape)}", hint)
    if array.dtype == np.uint64 and array.size > 0 and array.max() > _LARGEST:
        raise CohortError(place, f"integers up to {_LARGEST}", str(array.max()))
    return np.ascontiguousarray(array, dtype=np.int64).reshape(-1), array.shape


def as_index(index) -> np.ndarray:
    """int64 [n] in host memory."""
    ids, shape = ids_of(index, "index")
    if len(shape) != 1:
        raise CohortError("index", "integers [n]", f"{list(shape)}")
    return ids
