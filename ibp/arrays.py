"""Arrays of other libraries: what they are, and new ones like them. torch is imported only if the caller uses it."""

import contextlib
import sys

import numpy as np

from cohort_gnn.base.errors import CohortError

OF_A_MASK = "of a mask: numpy.where(mask)[0], torch.where(mask)[0]"
_LARGEST = np.iinfo(np.int64).max
# Names that numpy and torch have for dtypes of profiles.
_NUMPY = {"bits32": "uint32", "bits64": "uint64"}
_TORCH = {"bits32": "int32", "bits64": "int64"}


def is_torch(array) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def is_torch_dtype(dtype) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(dtype, torch.dtype)


def is_cuda(array) -> bool:
    return is_torch(array) and array.is_cuda


def wants_grad(array) -> bool:
    """Whether autograd would not notice writes to the array from outside torch."""
    return is_torch(array) and array.requires_grad and sys.modules["torch"].is_grad_enabled()


def changed(out):
    """The array after a write from outside torch: autograd raises an error if it needs the earlier values."""
    if is_torch(out) and not out.is_inference():
        sys.modules["torch"].autograd.graph.increment_version(out)
    return out


def output_kind(array):
    """The library and dtype that outputs should have: ("torch", dtype) for tensors, ("numpy", dtype) for all other
    arrays; None for an array whose dtype numpy lacks."""
    if is_torch(array):
        return "torch", array.dtype
    if isinstance(array, np.ndarray):
        return "numpy", array.dtype
    try:
        return "numpy", np.from_dlpack(array).dtype
    except (AttributeError, BufferError, RuntimeError):  # none that numpy has
        return None


def is_encodable(dtype: np.dtype) -> bool:
    """Whether rows of this dtype can be encoded."""
    return dtype.isnative and dtype.kind in "biufc" and dtype.char not in "gG"  # long doubles


def demand_rows(rows, place: str) -> None:
    """Raises a CohortError unless rows are an array of numbers as this machine has them."""
    if is_torch(rows):
        if str(rows.layout) != "torch.strided":
            raise CohortError(place, "a dense tensor", f"a tensor of layout {rows.layout}", "call .to_dense()")
        if rows.is_meta or rows.is_quantized or rows.is_nested:
            actual = "a tensor on the device meta" if rows.is_meta else "a quantized or nested tensor"
            raise CohortError(place, "a dense tensor", actual)
    elif isinstance(rows, np.ndarray):
        if not is_encodable(rows.dtype):
            hint = "convert them with astype() or view()"
            if not rows.dtype.isnative:
                hint = "convert them: array.astype(array.dtype.newbyteorder('='))"
            raise CohortError(place, "numbers in the byte order of this machine", str(rows.dtype), hint)
    elif not hasattr(rows, "__dlpack__"):
        raise CohortError(place, "an array [rows, columns]", f"{type(rows).__name__} {rows!r}"[:80])


def computed(rows):
    """Rows whose memory has their values: torch may have put off the conjugates and signs of a tensor."""
    return rows.detach().resolve_conj().resolve_neg() if is_torch(rows) else rows


def demand_integer(place: str, value, least: int, most: int) -> None:
    """Raises a CohortError unless the value is an integer from `least` to `most`."""
    if not isinstance(value, int | np.integer) or not least <= value <= most:
        raise CohortError(place, f"an integer, {least} to {most}", repr(value)[:80])


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

        return "torch", getattr(torch, _TORCH.get(dtype, dtype))
    return "numpy", np.dtype(_NUMPY.get(dtype, dtype))


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
    if isinstance(index, np.ndarray) and kind[0] == "torch":
        import torch

        with contextlib.suppress(TypeError):  # numpy has no bfloat16
            return "numpy", torch.empty(0, dtype=kind[1]).numpy().dtype
    return kind


def holds(kind: tuple | None, dtype: str, out) -> bool:
    """Whether the elements of `out` are those of rows, whose kind and dtype are as for kind_for()."""
    wanted = kind_for(kind, dtype, out)[1]
    if kind is None and dtype not in ("float16", "bfloat16", "float32"):  # the width alone is known
        return (is_torch(out) or is_encodable(out.dtype)) and out.dtype.itemsize == wanted.itemsize
    return is_torch(out) == is_torch_dtype(wanted) and out.dtype == wanted


def check_out(
    place: str, out, shape: tuple[int, ...], dtype: str, kind: tuple | None = None, device="cpu", rounds=False
):
    """Raises an error unless rows [*shape] fit `out`, an array in host memory ("cpu") or a tensor on a GPU ("cuda").

    Args:
        place: of the error.
        dtype, kind: of the rows, as for kind_for().
        rounds: the rows are written as bfloat16.
    """
    name = "bfloat16" if rounds else str(kind[1]).removeprefix("torch.") if kind else dtype
    expected = f"{name} {list(shape)}"
    if is_torch(out):
        where, contiguous, writeable = (
            out.device.type,
            out.is_contiguous() and not (out.is_conj() or out.is_neg()),
            True,
        )
    elif isinstance(out, np.ndarray):
        where, contiguous, writeable = "cpu", out.flags.c_contiguous, out.flags.writeable
    else:
        raise CohortError(place, f"a torch tensor or numpy array, {expected}", type(out).__name__)
    has_grad = wants_grad(out)
    fits = where == device and tuple(out.shape) == shape and contiguous and writeable and not has_grad
    if fits and (rounds or holds(kind, dtype, out)):
        return
    notes = [f"on {where}"] * (where != device) + ["not contiguous"] * (not contiguous)
    notes += ["read-only"] * (not writeable) + ["with gradients"] * has_grad
    expected = f"contiguous{' CUDA' if device == 'cuda' else ''} {expected}"
    raise CohortError(place, expected, ", ".join([f"{out.dtype} {list(out.shape)}", *notes]))


def subscript(index, num_rows: int):
    """What ``[index]`` of rows asks ``fetch`` for.

    Raises:
        CohortError: the index is a tuple: ``array[3, 5]`` is an element, not two rows.
    """
    if isinstance(index, tuple):
        hint = "ids as a list: rows[[3, 5]]; columns of the rows that come back: rows[ids][..., columns]"
        raise CohortError("rows[...]", "integers or a slice", repr(index)[:80], hint)
    return range(num_rows)[index] if isinstance(index, slice) else index


def host_ids(index, place: str = "fetch: index") -> tuple[np.ndarray, tuple[int, ...]]:
    """int64 [n] in host memory, and the shape in which the integers were given."""
    if isinstance(index, range):  # numpy would ask for its numbers one by one
        index = np.arange(index.start, index.stop, index.step)
    if is_cuda(index):
        raise CohortError(place, "integers in host memory", "a CUDA tensor", "call .cpu()")
    if is_torch(index):
        index = _integers(index, place)
    try:
        array = np.asarray(index)
    except ValueError as error:  # lists of several lengths
        raise CohortError(place, "integers", "lists of different lengths") from error
    if array.dtype.kind == "b" or (array.size > 0 and array.dtype.kind not in "iu"):
        hint = OF_A_MASK if array.dtype.kind == "b" else ""
        raise CohortError(place, "integers", f"{array.dtype} {list(array.shape)}", hint)
    if array.dtype == np.uint64 and array.size > 0 and array.max() > _LARGEST:
        raise CohortError(place, f"integers up to {_LARGEST}", str(array.max()))
    return np.ascontiguousarray(array, dtype=np.int64).reshape(-1), array.shape


def _integers(index, place: str) -> np.ndarray:
    """Those of a tensor; any dtype where it is empty."""
    if str(index.layout) != "torch.strided" or index.is_meta:
        actual = "a tensor on the device meta" if index.is_meta else f"a tensor of layout {index.layout}"
        raise CohortError(place, "a dense tensor in host memory", actual)
    if index.numel() == 0:
        return np.empty(tuple(index.shape), np.bool_ if str(index.dtype) == "torch.bool" else np.int64)
    if index.is_floating_point() or index.is_complex():
        raise CohortError(place, "integers", f"{str(index.dtype).removeprefix('torch.')} {list(index.shape)}")
    return index.numpy()


def as_index(index) -> np.ndarray:
    """int64 [n] in host memory."""
    ids, shape = host_ids(index, "index")
    if len(shape) != 1:
        raise CohortError("index", "integers [n]", f"{list(shape)}")
    return ids
