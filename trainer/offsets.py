"""Offsets of a batch's edges, which loaders leave for layers so that these need not sort the edges again."""

from torch import Tensor

OFFSETS = "_cohort_offsets"  # attribute of a batch's edge_index: its offsets, and its version as it got them


def keep_offsets(edge_index: Tensor, indptr: Tensor) -> Tensor:
    """Remembers with a batch's ``edge_index``, whose targets ascend, the offsets of the targets' edges; returns it."""
    setattr(edge_index, OFFSETS, (indptr, edge_index._version))
    return edge_index


def offsets_kept(edge_index: Tensor) -> Tensor | None:
    """What `keep_offsets` left, unless the edges have been written to since."""
    indptr, version = getattr(edge_index, OFFSETS, (None, None))
    return indptr if indptr is not None and edge_index._version == version else None


def copy_offsets(edge_index: Tensor, copied: Tensor) -> None:
    """Remembers the offsets of a batch's ``edge_index`` with a copy of it, on any device; an inference tensor has no
    version by which writes would be noticed, and gets none."""
    indptr = offsets_kept(edge_index)
    if indptr is not None and copied is not edge_index and not copied.is_inference():
        keep_offsets(copied, indptr.to(copied.device, copy=True))
