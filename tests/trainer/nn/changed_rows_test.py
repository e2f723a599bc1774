"""Rows of a NodeEmbedding, or of its table, that a script changes between the forward pass and the optimizer's step."""

import pytest
import torch

from cohort_gnn.nn import NodeEmbedding, RowAdagrad

ROWS, DIM = 60, 12


@pytest.mark.parametrize("place", ["device", "host"])
def test_rows_that_change_between_forward_and_step_are_the_changed_ones(place):
    first = NodeEmbedding(ROWS, DIM, seed=1).weight.clone()
    other = NodeEmbedding(ROWS, DIM, seed=2).weight.clone()
    ids = torch.tensor([3, 5, 3])
    changes = {
        "weight": lambda rows, read: rows.weight.mul_(0.5),
        "state": lambda rows, read: rows.load_state_dict({"weight": other}),
        "read": lambda rows, read: read.detach().zero_(),
    }
    for name, change in changes.items():
        rows = NodeEmbedding(ROWS, DIM, place=place, device="cpu", seed=1)
        optimizer = RowAdagrad(rows, lr=0.1, eps=0)
        read = rows(ids)
        read.sum().backward()
        change(rows, read)
        wanted = {"weight": first * 0.5, "state": other, "read": first}[name].clone()
        wanted[ids] -= 0.1  # the first step of Adagrad
        optimizer.step()
        torch.testing.assert_close(rows.weight, wanted, msg=name)
