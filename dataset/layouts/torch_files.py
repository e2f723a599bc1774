"""PyTorch's files, without anything in them that could run."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cohort_gnn.base.errors import CohortError, why_not_loaded
from cohort_gnn.base.files import demand_regular
from cohort_gnn.dataset import arrays
from cohort_gnn.dataset.inert_torch import PICKLE, ZIP, is_zip, load_inert
from cohort_gnn.dataset.layouts.inert_pickle import ADMITTED, BROKEN, InertArray
from cohort_gnn.dataset.layouts.streams import Rows


def load_tensors(path: Path, hint: str, also: Sequence[Any] = ()) -> Any:
    """What torch.load makes of a file with weights_only: tensors, lists, dicts, and PyG's Data where it is installed.

    Args:
        also: functions and classes that the file may name.

    Raises:
        CohortError: the file is damaged or holds other objects.
    """
    import torch

    demand_regular(path)
    try:
        with torch.serialization.safe_globals([*(_data_classes() if _may_name_pyg(path) else ()), *also]):
            return load_inert(path, (ZIP, PICKLE), mmap=is_zip(path))
    except CohortError:
        raise
    except Exception as error:  # noqa: BLE001 (bytes from outside: torch raises whatever its parsers meet)
        actual = why_not_loaded(error)
        raise CohortError(str(path), "only tensors (pickled objects are never loaded)", actual, hint) from error


def load_arrays(path: Path, hint: str) -> dict[str, Any]:
    """A dict of tensors, NumPy arrays, lists and numbers that torch.save wrote; all but numbers become arrays.

    Raises:
        CohortError: as load_tensors, and for anything but a dict.
    """
    content = load_tensors(path, hint, _inert_numpy())
    if not isinstance(content, dict):
        raise CohortError(str(path), "a dict of arrays", type(content).__name__, hint)
    try:
        return {str(key): _plain(value) for key, value in content.items()}
    except BROKEN as error:
        raise CohortError(str(path), "a dict of arrays", "an array that is damaged", hint) from error


def _plain(value: Any) -> Any:
    if isinstance(value, InertArray):
        return value.array()
    if isinstance(value, dict):
        return {str(key): _plain(member) for key, member in value.items()}
    if isinstance(value, list):
        return np.asarray(value)
    return array_of(value) if is_dense(value) else value


def _inert_numpy() -> list[Any]:
    """What pickles of NumPy arrays name, as objects that only remember what they were given."""
    names = [(name, thing) for name, thing in ADMITTED.items() if name[0].split(".")[0] in ("numpy", "_codecs")]
    return [InertArray, *(_named(thing, *name) for name, thing in names)]


def _named(thing: Any, module: str, name: str) -> Any:
    """A class or function under the name by which torch finds it."""
    if isinstance(thing, type):
        return type(name, (thing,), {"__module__": module})

    def call(*args: Any) -> Any:
        return thing(*args)

    call.__module__, call.__name__, call.__qualname__ = module, name, name
    return call


def is_dense(value: Any) -> bool:
    """Whether it is a tensor that has all of its elements."""
    import torch

    return isinstance(value, torch.Tensor) and value.layout == torch.strided


def array_of(tensor: Any) -> np.ndarray:
    """The numbers of a dense tensor; those of bfloat16, which NumPy has not, as float32."""
    import torch

    tensor = tensor.detach()
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()


def rows_of_tensor(place: str, tensor: Any) -> Rows:
    """Feature rows of a dense tensor; of bfloat16 they stay so."""
    import torch

    if tensor.dtype != torch.bfloat16:
        return Rows.from_matrix(place, arrays.features(place, array_of(tensor)))
    arrays.demand_shape(place, tensor, (None, None))
    return Rows.from_matrix(place, tensor.detach().contiguous().view(torch.int16).numpy().view(np.uint16), "bfloat16")


def _may_name_pyg(path: Path) -> bool:
    """Whether a file may have a Data in it; PyG takes seconds to import."""
    if not is_zip(path):
        return True
    with zipfile.ZipFile(path) as archive:
        pickles = [info for info in archive.infolist() if info.filename.endswith("data.pkl")]
        is_packed = any(info.file_size != info.compress_size for info in pickles)  # such a file is refused
        return not is_packed and any(b"torch_geometric" in archive.read(info) for info in pickles)


def _data_classes() -> list[type]:
    """The classes that a saved Data consists of."""
    from torch_geometric.data.data import Data, DataEdgeAttr, DataTensorAttr
    from torch_geometric.data.storage import EdgeStorage, GlobalStorage, NodeStorage

    return [Data, DataEdgeAttr, DataTensorAttr, GlobalStorage, NodeStorage, EdgeStorage]
