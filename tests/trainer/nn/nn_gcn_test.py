"""GCNConv of cohort.nn against PyG's."""

import pytest
import torch
from blocks import DEVICES, assert_as_close, assert_same, by_target, pair_of, random_edges, with_loops
from hypothesis import given, settings
from hypothesis import strategies as st
from processes import ALL_TESTS

from cohort_gnn.nn import Block, GCNConv


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dims", [(1, 9), (9, 1), (100, 64), (1000, 8), (8, 1000)])
def test_outputs_and_gradients_are_pygs(device, dims):
    theirs, ours = (layer.to(device) for layer in pair_of(GCNConv, *dims))
    x = torch.randn(90, dims[0], device=device).requires_grad_()
    assert_same(theirs, ours, x, with_loops(random_edges(90, 90, 700)).to(device))


@given(
    nodes=st.integers(1, 60),
    num_edges=st.integers(0, 400),
    dim=st.integers(1, 40),
    options=st.fixed_dictionaries(
        {"improved": st.booleans(), "bias": st.booleans(), "add_self_loops": st.booleans(), "normalize": st.just(True)}
    )
    | st.just({"normalize": False}),
    seed=st.integers(0, 10),
)
@settings(max_examples=150 if ALL_TESTS else 50, deadline=None)
def test_any_graph_and_any_options(nodes, num_edges, dim, options, seed):
    dtype = torch.float32 if options["normalize"] else torch.float64  # plain sums of hundreds may cancel out
    theirs, ours = (layer.to(dtype) for layer in pair_of(GCNConv, dim, 5, **options))
    x = torch.randn(nodes, dim, dtype=dtype).requires_grad_()
    assert_same(theirs, ours, x, with_loops(random_edges(nodes, nodes, num_edges, seed)))


def test_a_block_gives_rows_for_its_targets_alone():
    edge_index, indptr = by_target(with_loops(random_edges(60, 40, 500)), 40)
    edge_index[0] = edge_index[0].clamp(max=59)
    for dims in ((6, 90), (90, 6)):
        theirs, ours = pair_of(GCNConv, *dims)
        x = torch.randn(60, dims[0]).requires_grad_()
        out = ours(x, Block(indptr, edge_index[0], 60, 40))
        grad = torch.randn(40, dims[1])
        (found,) = torch.autograd.grad(out, x, grad)
        expected = theirs(x, edge_index)[:40]
        assert_as_close(out, expected)
        assert_as_close(found, torch.autograd.grad(expected, x, grad)[0])
