"""`cohort train --init RUN`: weights of another run that fit are loaded, others are named."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from processes import cohort as run_cohort
from processes import ran, refused

import cohort_gnn as cohort
from cohort_gnn.dataset.columns import Columns, write_columns

TINY = ["--device", "cpu", "--fanout", "4,4", "--batch-size", 40, "--hidden", 8, "--dropout", 0, "--lr", 1e-12]
pytestmark = pytest.mark.usefixtures("shm")


def data_set(out: Path, nodes: int, dim: int = 5, classes: int = 3) -> Path:
    random = torch.Generator().manual_seed(nodes)
    edge_index = torch.randint(nodes, (2, 6 * nodes), generator=random)
    x, y = torch.randn(nodes, dim, generator=random), torch.arange(nodes) % classes
    return cohort.from_tensors(out, x=x, y=y, edge_index=edge_index, split=(0.5, 0.25, 0.25))


@pytest.fixture(scope="module")
def first(tmp_path_factory) -> tuple[Path, Path]:
    """A data set, and a run on it."""
    folder = tmp_path_factory.mktemp("first")
    data = data_set(folder / "data", 200)
    ran("train", data, *TINY, "--lr", 0.05, "--epochs", 2, "--quiet", "--out", folder / "run")
    return data, folder / "run"


def weights_of(run: Path) -> dict[str, torch.Tensor]:
    return torch.load(run / "model.pt", weights_only=True)


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_grown_data_set_goes_on_with_all_weights(first, tmp_path, ranks):
    """With a rate of almost nothing, the weights stay those of the earlier run."""
    grown, (_, run) = data_set(tmp_path / "grown", 240), first
    options = [*TINY, "--seed", 7, "--ranks", ranks, "--init", run, "--epochs", 1]
    done = ran("train", grown, *options, "--out", tmp_path / "run")
    before, after = weights_of(run), weights_of(tmp_path / "run")
    assert f"{len(before)} of {len(before)} loaded" in done.stdout and "not loaded" not in done.stdout
    for name, values in before.items():
        torch.testing.assert_close(after[name], values, atol=1e-8, rtol=0)
    assert json.loads((tmp_path / "run/run.json").read_text())["trainer"]["init"] == str(run)


def test_what_does_not_fit_is_named_and_starts_anew(first, tmp_path):
    other, (_, run) = data_set(tmp_path / "other", 200, classes=4), first
    run = shutil.copytree(run, tmp_path / "copy")
    for folder, names in ((run, "abc"), (other, "bcde")):
        write_columns(folder, Columns(classes=list(names)))
    done = ran("train", other, *TINY, "--seed", 7, "--init", run, "--epochs", 1, "--out", tmp_path / "run")
    before, after = weights_of(run), weights_of(tmp_path / "run")
    named = [name for name in before if before[name].shape != after[name].shape]
    assert named and len(named) < len(before) and f"{len(before) - len(named)} of {len(before)} loaded" in done.stdout
    assert "warning: weights of" in done.stdout and "classes mean something else" in " ".join(done.stdout.split())
    for name, values in before.items():
        if name in named:
            assert f"{name} {list(after[name].shape)}, there {list(values.shape)}" in done.stdout
        else:
            torch.testing.assert_close(after[name], values, atol=1e-8, rtol=0)


def test_another_depth_names_what_is_not_used(first, tmp_path):
    data, run = first
    how = ["--fanout", "4,4,4", "--init", run, "--epochs", 1, "--out", tmp_path / "run"]
    done = ran("train", data, *TINY, *how)
    assert "which is not there" in done.stdout


def test_a_run_that_goes_on_needs_no_earlier_run(first, tmp_path):
    data, run = first
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "model.pt").write_bytes((run / "model.pt").read_bytes())
    options = [*TINY, "--init", copy, "--quiet"]
    ran("train", data, *options, "--epochs", 1, "--out", tmp_path / "run")
    (copy / "model.pt").unlink()
    ran("train", "--resume", tmp_path / "run", "--epochs", 2, "--quiet")
    assert len(json.loads((tmp_path / "run/summary.json").read_text())["epochs"]) == 2
    refused(run_cohort("train", "--resume", tmp_path / "run", "--init", run), 1, "--init: expected")


def test_where_nothing_fits_a_run_is_refused(first, tmp_path):
    data, run = first
    other = data_set(tmp_path / "other", 100, dim=6, classes=4)
    result = run_cohort("train", other, *TINY, "--hidden", 12, "--init", run, "--out", tmp_path / "run")
    refused(result, 1, "expected weights of the names and shapes of this model", "there [8, 5]")
    for init, words in ((tmp_path, "expected the folder of a run with model.pt"), (run, "expected another folder")):
        more = ["--overwrite", "--out", run] if init == run else ["--out", tmp_path / "new"]
        refused(run_cohort("train", data, *TINY, "--init", init, *more), 1, "--init", words)
    assert (run / "model.pt").exists()
