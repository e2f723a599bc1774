"""CUDA_VISIBLE_DEVICES and --gpus name the same GPUs with an MPS daemon as without."""

import os

import pytest
import torch
from processes import cohort, ran

pytestmark = pytest.mark.usefixtures("shm")


@pytest.mark.gpu
def test_a_gpu_that_is_not_the_first(cora, tmp_path, monkeypatch):
    if torch.cuda.device_count() < 2:
        pytest.skip(f"needs 2 GPUs; {torch.cuda.device_count()} here")
    uuids = [str(torch.cuda.get_device_properties(gpu).uuid) for gpu in range(2)]
    (tmp_path / "script.py").write_text("import torch\nprint(torch.cuda.get_device_properties(0).uuid)\n")
    by_number = cohort("run", "--gpus", "1", tmp_path / "script.py")
    assert (by_number.returncode, by_number.stdout.strip()) == (0, uuids[1]), by_number.stderr
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", os.environ.get("CUDA_VISIBLE_DEVICES", "0,1").split(",")[1])
    by_variable = cohort("run", tmp_path / "script.py")
    assert (by_variable.returncode, by_variable.stdout.strip()) == (0, uuids[1]), by_variable.stderr
    ran("train", cora, "--device", "cuda", "--fanout", "5,3", "--epochs", 1, "--out", tmp_path / "run")
