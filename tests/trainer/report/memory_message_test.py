"""What a run takes of a GPU beside its slots, and what the trainer says when no memory is left."""

import pytest
import torch

from cohort_gnn.base.errors import CohortError
from cohort_gnn.trainer.report.gpu_memory import peak_beside_slots
from cohort_gnn.trainer.report.messages import with_cure_for_lack_of_memory

TORCHS = (
    "CUDA out of memory. Tried to allocate 3.61 GiB. GPU 0 has a total capacity of 79.19 GiB of which 1.20 GiB is free."
    " If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
)


def test_a_lack_of_gpu_memory_names_what_gives_memory_back():
    with pytest.raises(CohortError) as error, with_cure_for_lack_of_memory():
        raise torch.OutOfMemoryError(TORCHS)
    assert (
        error.value.found.endswith("of which 1.20 GiB is free.") and "Tried to allocate 3.61 GiB" in error.value.found
    )
    for option in ("--cache-ratio auto", "--topology host", "--batch-size", "--fanout", "--hidden"):
        assert option in error.value.hint


@pytest.mark.parametrize(
    ("num_bytes", "found"), [(1 << 60, "can't allocate memory: you tried to allocate"), (0, "too")]
)
def test_a_lack_of_host_memory_names_them_too(num_bytes, found):
    with pytest.raises(CohortError) as error, with_cure_for_lack_of_memory():
        if not num_bytes:
            raise MemoryError
        torch.empty(num_bytes, dtype=torch.uint8)
    assert error.value.place == "host memory" and error.value.found.startswith(found)
    assert "--batch-size" in error.value.hint and "--hidden" in error.value.hint


def test_other_errors_stay_what_they_are():
    with pytest.raises(RuntimeError, match="another"), with_cure_for_lack_of_memory():
        raise RuntimeError("another")


def test_what_pytorch_has_given_back_counts_and_slots_do_not(monkeypatch):
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (60, 100))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 20)
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda device: 25)
    assert peak_beside_slots(torch.device("cuda"), slots_bytes=10) == 35
