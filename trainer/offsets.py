"""Offsets of a batch's edges, which loaders leave for layers so that these need not sort the edges again."""

from torch import Tensor

OFFSETS = "_cohort_offsets"  # attribute of a batch's edge_index: its offsets, and its version as it got them


def keep_offsets(edge_index: Tensor, indptr: Tensor) -> Tensor:
    """Remembers with a batch's ``edge_index``, whose targets ascend, the offsets of the targets' edges; returns it."""
    setattr(edge_index, OFFSETS, (indptr, edge_index._version))
    return edge_index
