"""Learnable rows: their optimizer is torch's SparseAdam, and rows that no batch has read stay."""

import pytest
import torch
import torch.nn.functional as F

from cohort.trainer.models.embeddings import NodeEmbeddings, RowAdam


@pytest.mark.parametrize("name", ["author", "items"])  # the second is also a method of dicts of modules
def test_rows_are_trained_as_by_sparse_adam(name):
    torch.manual_seed(1)
    rows = NodeEmbeddings({name: 50}, 8).train()
    before = rows.tables[name].clone()
    table = torch.nn.Parameter(before.clone())
    dense = torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))], lr=0.1, eps=1e-12)
    # SparseAdam adds eps before the correction of squares, Adam after it: small enough to make no difference here
    own, reference = RowAdam(rows, dense), torch.optim.SparseAdam([table], lr=0.1, eps=1e-12)
    for step in range(5):
        ids, weights = torch.randperm(40)[:10], torch.randn(10, 8)
        own.begin()
        (rows(name, ids).tanh() * weights).sum().backward()
        own.step()
        reference.zero_grad()
        (F.embedding(ids, table, sparse=True).tanh() * weights).sum().backward()
        reference.step()
        torch.testing.assert_close(rows.tables[name].detach(), table.detach(), rtol=1e-5, atol=1e-6)
        if step == 2:  # another one goes on
            state = own.state_dict()
            own = RowAdam(rows, dense)
            own.load_state_dict(state)
    assert torch.equal(rows.tables[name][40:], before[40:])
    assert not torch.equal(rows.tables[name][:40], before[:40])


def test_weight_decay_is_that_of_adam():
    torch.manual_seed(2)
    rows = NodeEmbeddings({"author": 6}, 4).train()
    table = torch.nn.Parameter(rows.tables["author"].clone())
    dense = torch.optim.Adam([table], lr=0.1, weight_decay=0.5)
    own = RowAdam(rows, dense)
    for _ in range(3):
        own.begin()
        dense.zero_grad()
        (rows("author", torch.arange(6)).tanh().sum() + table.tanh().sum()).backward()
        own.step()
        dense.step()
    torch.testing.assert_close(rows.tables["author"].detach(), table.detach(), rtol=1e-5, atol=1e-6)


def test_without_an_optimizer_nothing_is_kept():
    rows = NodeEmbeddings({"author": 6}, 4).train()
    assert not rows("author", torch.arange(3)).requires_grad and rows.reads is None
