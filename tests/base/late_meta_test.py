"""What trainers leave out of PyTorch, and when they need it."""

import subprocess
import sys

import pytest

from cohort_gnn.trainer.program import is_ours

LOOKED_UP = """
import sys
from cohort_gnn.base.late_meta import put_off_meta

put_off_meta()
import torch

module = torch._meta_registrations
assert "torch._decomp" not in sys.modules and not hasattr(module, "__file__")
assert callable(module.meta_index_Tensor)
assert torch._meta_registrations is module and module.__file__.endswith(".py")
assert torch.fft.fft(torch.empty(4, device="meta")).shape == (4,)
"""


@pytest.mark.fresh  # what is forked has all of PyTorch
def test_what_is_left_out_comes_when_it_is_needed():
    done = subprocess.run([sys.executable, "-c", LOOKED_UP], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, True),
        ({"layers": "pyg"}, False),
        ({"model": "own:Net"}, False),
        ({"loss": "own.py:Loss"}, False),
        ({"callbacks": ["own:Log"]}, False),
    ],
)
def test_runs_with_code_of_others_get_all_of_it(changed, expected):
    assert is_ours({"layers": "cohort", "model": "sage", "loss": "auto", "callbacks": None} | changed) == expected
