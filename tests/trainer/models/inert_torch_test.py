"""What reads files of torch.save runs nothing in them, and reads no form that torch.save does not write."""

import io
import pickle
import re
import tarfile
import zipfile
from pathlib import Path

import pytest
import torch

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset.inert_torch import LEAST_TORCH, PICKLE, ZIP, is_safe, load_inert
from cohort_gnn.dataset.layouts.torch_files import load_tensors
from cohort_gnn.spec import files
from cohort_gnn.trainer.loop import checkpoint
from cohort_gnn.trainer.models.weights import load_weights

STATE = {"weight": torch.ones(2, 3)}
ROOT = Path(__file__).parents[3]


def saved(**how) -> bytes:
    torch.save(STATE, file := io.BytesIO(), **how)
    return file.getvalue()


def tarred() -> bytes:
    with tarfile.open(fileobj=(file := io.BytesIO()), mode="w") as archive:
        archive.addfile(tarfile.TarInfo("storages"))
    return file.getvalue()


FORMS = {
    "old": saved(_use_new_zipfile_serialization=False),
    "tar": tarred(),
    "behind a pickle": pickle.dumps(STATE["weight"].tolist(), protocol=2) + saved(),
    "text": b"weights",
    "nothing": b"",
}


@pytest.fixture
def no_reader(monkeypatch):
    """torch.load must not see the file."""
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("torch.load was called"))


@pytest.mark.parametrize("form", FORMS)
def test_a_run_has_files_in_the_form_of_torch_save_alone(tmp_path, no_reader, form):
    for name in (files.MODEL, files.CHECKPOINT):
        (tmp_path / name).write_bytes(FORMS[form])
    with pytest.raises(CohortError, match="model.pt: expected the weights of a run, .* found no file of torch.save"):
        load_weights(tmp_path, torch.nn.Linear(3, 2))
    with pytest.raises(CohortError, match="checkpoint.pt: expected a checkpoint of cohort train"):
        checkpoint.load_checkpoint(tmp_path / files.CHECKPOINT)


@pytest.mark.parametrize("form", FORMS.keys() - {"old", "behind a pickle"})
def test_imports_read_the_two_forms_of_torch_save(tmp_path, no_reader, form):
    (tmp_path / "data.pt").write_bytes(FORMS[form])
    with pytest.raises(CohortError, match="data.pt: expected only tensors .* found no file of torch.save"):
        load_tensors(tmp_path / "data.pt", "")


@pytest.mark.parametrize("how", [{}, {"_use_new_zipfile_serialization": False}], ids=["zip", "old"])
def test_files_of_every_pytorch_are_imported(tmp_path, how):
    """Some of OGB's are older than PyTorch 1.6."""
    (tmp_path / "data.pt").write_bytes(whole := saved(**how))
    assert whole.startswith((ZIP, PICKLE))
    assert torch.equal(load_tensors(tmp_path / "data.pt", "")["weight"], STATE["weight"])


def test_a_compressed_member_is_not_read_as_it_is(tmp_path):
    path = tmp_path / "data.pt"
    with zipfile.ZipFile(io.BytesIO(saved())) as whole, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for name in whole.namelist():
            packed.writestr(name, whole.read(name))
    with pytest.raises(CohortError, match="found a compressed member, "):
        load_tensors(path, "")


@pytest.mark.parametrize("version", ["2.5.1", "2.9.1+cu128", "1.13"])
def test_a_pytorch_with_known_holes_reads_nothing(tmp_path, no_reader, monkeypatch, version):
    monkeypatch.setattr(torch, "__version__", version)
    for name in (files.MODEL, files.CHECKPOINT):
        (tmp_path / name).write_bytes(saved())
    reads = (
        lambda: load_weights(tmp_path, torch.nn.Linear(3, 2)),
        lambda: checkpoint.load_checkpoint(tmp_path / files.CHECKPOINT),
        lambda: load_tensors(tmp_path / files.MODEL, ""),
    )
    for read in reads:
        with pytest.raises(CohortError, match=f"PyTorch: expected version {LEAST_TORCH} or newer.*found {version[:3]}"):
            read()
    assert not is_safe(version) and is_safe(LEAST_TORCH) and is_safe("2.10.0a0+git") and is_safe("3.0")


def test_the_minimum_of_pytorch_is_the_same_everywhere():
    for file, words in (
        ("pyproject.toml", f'"torch>={LEAST_TORCH}"'),
        ("README.md", f"PyTorch {LEAST_TORCH} "),
        ("docs/install.md", f"torch {LEAST_TORCH} or newer"),
        ("SECURITY.md", f"PyTorch {LEAST_TORCH}"),
    ):
        assert words in (ROOT / file).read_text(), file


def test_nothing_else_reads_files_of_torch_save():
    rooms = ("base", "spec", "ibp", "dataset", "channel", "cache", "trainer", "launch")
    sources = [path for room in rooms for path in (ROOT / room).rglob("*.py")]
    reading = [path.name for path in sources if re.search(r"^[^`#]*torch\.load\(", path.read_text(), re.MULTILINE)]
    assert reading == ["inert_torch.py"]
    assert load_inert(io.BytesIO(saved())).keys() == STATE.keys()
