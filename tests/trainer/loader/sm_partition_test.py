"""Which SMs the sampler gets."""

import json

import pytest
import torch

from cohort_gnn import NeighborLoader
from cohort_gnn.base.errors import CohortError
from cohort_gnn.launch.main import main


@pytest.mark.parametrize(
    ("arguments", "words"), [(["--device", "cpu"], "a GPU"), (["--device", "cuda", "--no-mps"], "MPS")]
)
def test_without_a_gpu_to_divide_it_is_refused(cora, capsys, monkeypatch, arguments, words):
    for user in ("run.job", "options.effects"):
        monkeypatch.setattr(f"cohort_gnn.launch.{user}.resolve_device", lambda name: name)
    assert main(["train", str(cora), "--sampler-sms", "16", *arguments]) == 1
    error = capsys.readouterr().err
    assert "--sampler-sms" in error and words in error


def test_bad_numbers_exit_with_2(cora):
    with pytest.raises(SystemExit) as stop:
        main(["train", str(cora), "--sampler-sms", "-1"])
    assert stop.value.code == 2


@pytest.mark.gpu
def test_losses_are_those_of_a_shared_gpu(cora, tmp_path):
    losses = []
    for name, more in (("shared", []), ("divided", ["--sampler-sms", "16"])):
        arguments = ["--device", "cuda", "--batch-size", "64", "--epochs", "3", "--dropout", "0", "--quiet", *more]
        assert main(["train", str(cora), "--out", str(tmp_path / name), *arguments]) == 0
        summary = json.loads((tmp_path / name / "summary.json").read_text())
        losses.append([epoch["loss"] for epoch in summary["epochs"]])
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)


def test_a_loader_has_no_gpu_to_divide(cora, shm):
    with pytest.raises(CohortError, match="sampler_sms: expected a GPU"):
        NeighborLoader(cora, [3], device="cpu", sampler_sms=8)
    assert shm.runs() == []


@pytest.mark.gpu
def test_a_loader_divides_the_gpu(cora, shm):
    whole = torch.cuda.current_stream()
    try:
        batches = []
        for sampler_sms in (0, 16):
            with NeighborLoader(cora, [4, 3], batch_size=300, device="cuda", sampler_sms=sampler_sms) as loader:
                batches.append([(batch.x * 2, batch.n_id.cpu()) for batch in loader])
        assert torch.cuda.current_stream() != whole
        for (x, n_id), (other_x, other_n_id) in zip(*batches, strict=True):
            assert torch.equal(x, other_x) and torch.equal(n_id, other_n_id)
    finally:
        torch.cuda.synchronize()
        torch.cuda.set_stream(whole)
