"""Batches of loaders, compared member by member."""

import torch
from torch_geometric.data import Data, HeteroData


def expect_same(found, expected, name="batch") -> None:
    """Both have the same members with equal values, on whatever device."""
    if isinstance(expected, (Data, HeteroData)):
        found, expected = found.to_dict(), expected.to_dict()
    if isinstance(expected, dict):
        assert found.keys() == expected.keys(), name
        for key, value in expected.items():
            expect_same(found[key], value, key)
    elif isinstance(expected, torch.Tensor):
        assert torch.equal(found.cpu(), expected.cpu()), name
    else:
        assert found == expected, name


def expect_same_passes(found, expected) -> None:
    """As many batches, one as the other."""
    for one, other in zip(found, expected, strict=True):
        expect_same(one, other)
