"""PyTorch's files, without anything in them that could run."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from cohort.base.errors import CohortError, why_not_loaded


def load_tensors(path: Path, hint: str) -> Any:
    """What torch.load makes of a file with weights_only: tensors, lists, dicts, and PyG's Data where it is installed.

    Raises:
        CohortError: the file is damaged or holds other objects.
    """
    import torch

    try:
        with _admitted(_data_classes()):
            return torch.load(path, map_location="cpu", weights_only=True, mmap=_is_zip(path))
    except Exception as error:  # noqa: BLE001 (bytes from outside: torch raises whatever its parsers meet)
        found = why_not_loaded(error)
        raise CohortError(str(path), "tensors alone (pickled objects are never loaded)", found, hint) from error


def _admitted(classes: list[type]) -> contextlib.AbstractContextManager:
    """Lets weights_only make objects of these classes; in torch 2.4 for the rest of the process."""
    from torch import serialization

    if hasattr(serialization, "safe_globals"):
        return serialization.safe_globals(classes)
    serialization.add_safe_globals(classes)
    return contextlib.nullcontext()


def _is_zip(path: Path) -> bool:
    """torch.save's usual form, which can be mapped."""
    with open(path, "rb") as file:
        return file.read(2) == b"PK"


def _data_classes() -> list[type]:
    """The classes that a saved Data consists of."""
    from torch_geometric.data.data import Data, DataEdgeAttr, DataTensorAttr
    from torch_geometric.data.storage import EdgeStorage, GlobalStorage, NodeStorage

    return [Data, DataEdgeAttr, DataTensorAttr, GlobalStorage, NodeStorage, EdgeStorage]
