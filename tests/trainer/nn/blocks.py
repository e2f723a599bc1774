"""Random blocks for the tests of layers."""

import copy
from dataclasses import replace

import pytest
import torch
import torch_geometric.nn as pyg

from cohort_gnn.nn import Block

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def random_edges(num_sources: int, num_targets: int, num_edges: int, seed: int = 0, hub: int = 0) -> torch.Tensor:
    """int64 [2, num_edges + hub], unordered; the last tenth of the targets has no edges, target 1 has ``hub`` more."""
    generator = torch.Generator().manual_seed(seed)
    source = torch.randint(num_sources, (num_edges + hub,), generator=generator)
    target = torch.randint(max(1, num_targets * 9 // 10), (num_edges + hub,), generator=generator)
    target[num_edges:] = min(1, num_targets - 1)
    order = torch.randperm(num_edges + hub, generator=generator)
    return torch.stack([source, target])[:, order]


def with_loops(edge_index: torch.Tensor) -> torch.Tensor:
    """Every tenth edge begins where it ends."""
    edge_index = edge_index.clone()
    edge_index[0, ::10] = edge_index[1, ::10]
    return edge_index


def by_target(edge_index: torch.Tensor, num_targets: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(the edges by ascending target, int64 [num_targets + 1] the first of each target)."""
    edge_index = edge_index[:, edge_index[1].sort(stable=True).indices]
    return edge_index, torch.searchsorted(edge_index[1].contiguous(), torch.arange(num_targets + 1))


def assert_as_close(found: torch.Tensor, expected: torch.Tensor, relative: float = 1e-5) -> None:
    """Equal but for so many times the largest value."""
    assert found.shape == expected.shape and found.dtype == expected.dtype
    if expected.numel():
        error = (found.double() - expected.double()).abs().max().item()
        assert error <= relative * max(expected.double().abs().max().item(), 1e-6), error


def run_layer(layer, x, edges, grad_seed: int = 0) -> dict[str, torch.Tensor]:
    """Output, and gradients of what requires one, of a layer whose output has random gradients.

    Args:
        x: a tensor, or a pair.
        edges: what comes after x.
    """
    layer.zero_grad()
    inputs = (x,) if isinstance(x, torch.Tensor) else x
    for each in inputs:
        if each is not None and each.is_leaf:
            each.grad = None
    out = layer(x, *edges)
    generator = torch.Generator().manual_seed(grad_seed)
    out.backward(torch.randn(out.shape, generator=generator).to(out))
    found = {"out": out.detach()} | {name: weight.grad for name, weight in layer.named_parameters()}
    leaves = {f"x{i}": each.grad for i, each in enumerate(inputs) if each is not None and each.is_leaf}
    return found | {name: grad for name, grad in leaves.items() if grad is not None}


def pair_of(kind: type, *args, **kwargs) -> tuple:
    """PyG's layer, and ours (of the same name, a ``kind``) with its weights."""
    torch.manual_seed(3)
    theirs, ours = getattr(pyg, kind.__name__)(*args, **kwargs), kind(*copy.deepcopy(args), **kwargs)
    ours.load_state_dict(theirs.state_dict())
    assert list(theirs.state_dict()) == list(ours.state_dict())
    return theirs, ours


def assert_same(theirs, ours, x, *edges, relative: float = 1e-5) -> None:
    """Outputs and gradients of both on the same input."""
    expected, found = run_layer(theirs, x, edges), run_layer(ours, x, edges)
    assert expected.keys() == found.keys()
    for name, value in expected.items():
        assert_as_close(found[name], value, relative)


def assert_as_exact(theirs, ours, x, target_rows, *edges, relative=1e-5):
    """No farther from PyG in float64 than ``relative``, or ten times PyG in x's dtype: gradients of att_* cancel.

    Args:
        target_rows: the rows of targets, from those of sources.
        edges: what comes after x; the gradients of floats count, too.
    """

    def run(layer, dtype):
        rows = x.detach().to(dtype).requires_grad_()
        values = [each.detach().to(dtype).requires_grad_() if each.is_floating_point() else each for each in edges]
        found = run_layer(layer.to(dtype), (rows, target_rows(rows)), values)
        found |= {f"edges{i}": each.grad for i, each in enumerate(values) if each.requires_grad}
        return {name: value.clone() for name, value in found.items() if value is not None}

    found, rounded, exact = run(ours, x.dtype), run(theirs, x.dtype), run(theirs, torch.float64)
    assert exact.keys() == found.keys()
    for name, value in exact.items():
        scale = value.abs().max().clamp(min=1e-6)
        error, pygs = ((each[name].double() - value).abs().max() / scale for each in (found, rounded))
        assert error <= max(relative, 10 * pygs), (name, error, pygs)


def indexed(block: Block, x: torch.Tensor, seed: int = 0) -> tuple[Block, torch.Tensor]:
    """The block by index of larger rows, and these: those of ``x`` among as many others, and apart from each other."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.full((2 * len(x), x.shape[1] + 4), torch.nan)
    row_index = torch.randperm(len(rows), generator=generator)[: len(x)]
    rows[row_index, : x.shape[1]] = x.cpu()
    row_index = row_index.to(x.device)
    return replace(block, row_index=row_index, own_row_index=row_index[: block.num_targets]), rows.to(x.device)[
        :, : x.shape[1]
    ]
