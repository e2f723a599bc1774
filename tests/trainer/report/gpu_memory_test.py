"""What a run takes of a GPU beside its slots."""

import torch

from cohort_gnn.trainer.report.gpu_memory import peak_beside_slots


def test_what_pytorch_has_given_back_counts_and_slots_do_not(monkeypatch):
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (60, 100))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 20)
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda device: 25)
    assert peak_beside_slots(torch.device("cuda"), slots_bytes=10) == 35
