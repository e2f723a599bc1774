"""Copies of a NodeEmbedding and of its optimizer; rows that a script changes between the forward pass and the step."""

import copy
import pickle

import pytest
import torch

from cohort_gnn import CohortError
from cohort_gnn.nn import NodeEmbedding, RowAdagrad, RowAdam


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda rows: pickle.loads(pickle.dumps(rows))])
def test_a_copy_keeps_nothing_of_what_it_reads_until_it_has_an_optimizer(copied):
    rows = NodeEmbedding(60, 12, seed=1)
    optimizer = RowAdam(rows, lr=0.1)
    read = rows(torch.tensor([3, 5]))
    again = copied(rows)
    assert not again(torch.tensor([3])).requires_grad and again.reads is None
    read.sum().backward()
    optimizer.step()
    changed = rows.weight != again.weight
    assert changed.any(1).nonzero().flatten().tolist() == [3, 5]
    other = RowAdam(again, lr=0.1)
    again(torch.tensor([3, 5])).sum().backward()
    other.step()
    assert torch.equal(rows.weight, again.weight)


@pytest.mark.parametrize("optimizer", [RowAdagrad, RowAdam])
def test_an_optimizer_is_that_of_its_embeddings_alone(optimizer):
    own = optimizer(NodeEmbedding(60, 12))
    for copied in (copy.deepcopy, pickle.dumps):
        with pytest.raises(CohortError, match=f"(?s)pickle of a {optimizer.__name__}: .*one of embeddings.*state_dict"):
            copied(own)
    with pytest.raises(CohortError, match="add_param_group: expected one group of options, found another"):
        own.add_param_group({"params": [torch.ones(1)], "lr": 1.0})
    with pytest.raises(CohortError, match=r"load_state_dict: .* state_dict\(\) .*, found none of states, steps"):
        own.load_state_dict(torch.optim.Adam([torch.ones(1)]).state_dict())


def test_what_is_no_tensor_of_ids_is_named():
    rows = NodeEmbedding(60, 12)
    for ids in (torch.tensor([3]).to_sparse(), torch.tensor([3], device="meta")):
        with pytest.raises(CohortError, match="NodeEmbedding: ids: expected a dense tensor, found one of layout torch"):
            rows(ids)
    with pytest.raises(CohortError, match=r"NodeEmbedding: hot: expected int32 or int64 \[any\], found list"):
        NodeEmbedding(60, 12, place="host", hot=[3])
    with pytest.raises(CohortError, match=r"betas: expected two numbers .*, found \(0.9,\)"):
        RowAdam(rows, betas=(0.9,))


@pytest.mark.parametrize("place", ["device", "host"])
def test_rows_that_change_between_forward_and_step_are_the_changed_ones(place):
    first = NodeEmbedding(60, 12, seed=1).weight.clone()
    other = NodeEmbedding(60, 12, seed=2).weight.clone()
    ids = torch.tensor([3, 5, 3])
    changes = {
        "weight": lambda rows, read: rows.weight.mul_(0.5),
        "state": lambda rows, read: rows.load_state_dict({"weight": other}),
        "read": lambda rows, read: read.detach().zero_(),
    }
    for name, change in changes.items():
        rows = NodeEmbedding(60, 12, place=place, device="cpu", seed=1)
        optimizer = RowAdagrad(rows, lr=0.1, eps=0)
        read = rows(ids)
        read.sum().backward()
        change(rows, read)
        wanted = {"weight": first * 0.5, "state": other, "read": first}[name].clone()
        wanted[ids] -= 0.1  # the first step of Adagrad
        optimizer.step()
        torch.testing.assert_close(rows.weight, wanted, msg=name)
