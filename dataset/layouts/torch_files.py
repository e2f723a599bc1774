"""PyTorch's files, without anything in them that could run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from cohort.base.errors import CohortError, why_not_loaded
from cohort.dataset import arrays
from cohort.dataset.layouts.graph import Rows, rows_of_matrix


def load_tensors(path: Path, hint: str) -> Any:
    """What torch.load makes of a file with weights_only: tensors, lists, dicts, and PyG's Data where it is installed.

    Raises:
        CohortError: the file is damaged or holds other objects.
    """
    import torch

    try:
        with torch.serialization.safe_globals(_data_classes()):
            return torch.load(path, map_location="cpu", weights_only=True, mmap=_is_zip(path))
    except Exception as error:  # noqa: BLE001 (bytes from outside: torch raises whatever its parsers meet)
        found = why_not_loaded(error)
        raise CohortError(str(path), "only tensors (pickled objects are never loaded)", found, hint) from error


def is_dense(found: Any) -> bool:
    """Whether it is a tensor that has all of its elements."""
    import torch

    return isinstance(found, torch.Tensor) and found.layout == torch.strided


def array_of(tensor: Any) -> np.ndarray:
    """The numbers of a dense tensor; those of bfloat16, which NumPy has not, as float32."""
    import torch

    tensor = tensor.detach()
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()


def rows_of_tensor(place: str, tensor: Any) -> Rows:
    """Feature rows of a dense tensor; of bfloat16 they stay so."""
    import torch

    if tensor.dtype != torch.bfloat16:
        return rows_of_matrix(place, arrays.features(place, array_of(tensor)))
    arrays.demand_shape(place, tensor, (None, None))
    return rows_of_matrix(place, tensor.detach().contiguous().view(torch.int16).numpy().view(np.uint16), "bfloat16")


def _is_zip(path: Path) -> bool:
    """torch.save's usual form, which can be mapped."""
    with open(path, "rb") as file:
        return file.read(2) == b"PK"


def _data_classes() -> list[type]:
    """The classes that a saved Data consists of."""
    from torch_geometric.data.data import Data, DataEdgeAttr, DataTensorAttr
    from torch_geometric.data.storage import EdgeStorage, GlobalStorage, NodeStorage

    return [Data, DataEdgeAttr, DataTensorAttr, GlobalStorage, NodeStorage, EdgeStorage]
