"""--coarse-epochs: training on plane A for some epochs, exact ones after them; validation and test are always exact."""

import json

import numpy as np
import pytest
from processes import cohort, ran

from cohort_gnn import ibp
from cohort_gnn.dataset import open as open_dataset

pytestmark = pytest.mark.usefixtures("shm")

TRAIN = ["--device", "cpu", "--fanout", "6,4", "--batch-size", 256, "--hidden", 16, "--seed", 4, "--quiet"]


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    """3000 nodes with rows of codec planes, and the same graph with the rows that plane A stands for."""
    folder = tmp_path_factory.mktemp("coarse")
    sizes = ["--nodes", 3000, "--edges", 30000, "--dim", 32, "--classes", 5, "--seed", 2]
    for name in ("exact", "coarse"):
        ran("dataset", "generate", folder / name, *sizes)
    ran("dataset", "prepare", folder / "exact", "--codec", "planes", "--mantissa-bits", 2)
    encoded = ibp.load(open_dataset(folder / "exact").encoded_rows)
    rows = ibp.fetch(encoded, np.arange(3000), planes="A")
    np.save(folder / "coarse" / "features.npy", rows)
    return folder


def summary(graph, tmp_path, name: str, epochs: int, *options) -> dict:
    ran("train", graph / name, *TRAIN, "--epochs", epochs, "--out", tmp_path / "run", *options)
    return json.loads((tmp_path / "run" / "summary.json").read_text())


def test_training_reads_plane_a_and_then_exact_rows(graph, tmp_path):
    found = summary(graph, tmp_path, "exact", 3, "--coarse-epochs", 2)
    assert (found["coarse_epochs"], found["coarse_error"]) == (2, 1 / 8)
    assert [epoch["coarse"] for epoch in found["epochs"]] == [True, True, False]
    run = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (run["trainer"]["coarse_epochs"], run["trainer"]["coarse_error"]) == (2, 1 / 8)
    assert run["sampler"]["compress"] == "both"
    shown = ran("report", tmp_path / "run").stdout
    assert "features of the first 2 epochs: within 0.125 of each feature's size" in " ".join(shown.split())
    by_epoch = [epoch["host_bytes"] / epoch["num_nodes"] for epoch in found["epochs"]]
    assert by_epoch[0] < 0.4 * by_epoch[2]


def test_losses_are_those_of_the_rows_that_plane_a_stands_for(graph, tmp_path):
    coarse = summary(graph, tmp_path / "a", "exact", 2, "--coarse-epochs", 2)
    same = summary(graph, tmp_path / "b", "coarse", 2)
    assert [epoch["loss"] for epoch in coarse["epochs"]] == [epoch["loss"] for epoch in same["epochs"]]
    assert [epoch["val_accuracy"] for epoch in coarse["epochs"]] != [epoch["val_accuracy"] for epoch in same["epochs"]]
    exact = summary(graph, tmp_path / "c", "exact", 2)
    assert exact["epochs"][0]["loss"] != coarse["epochs"][0]["loss"]
    assert (exact["coarse_epochs"], exact["coarse_error"], exact["epochs"][0]["coarse"]) == (0, 0.0, False)


def test_a_resumed_run_goes_on_as_it_would_have(graph, tmp_path):
    whole = summary(graph, tmp_path / "whole", "exact", 3, "--coarse-epochs", 2)
    summary(graph, tmp_path / "parts", "exact", 1, "--coarse-epochs", 2)
    ran("train", "--resume", tmp_path / "parts" / "run", "--epochs", 3, "--quiet")
    parts = json.loads((tmp_path / "parts" / "run" / "summary.json").read_text())
    assert [epoch["loss"] for epoch in parts["epochs"]] == [epoch["loss"] for epoch in whole["epochs"]]
    assert [epoch["coarse"] for epoch in parts["epochs"]] == [True, True, False]
    other = cohort("train", "--resume", tmp_path / "parts" / "run", "--epochs", 4, "--coarse-epochs", 3)
    assert other.returncode == 1 and "coarse" in other.stderr


def test_rows_without_planes_are_refused(graph, tmp_path):
    for name, options, text in [
        ("coarse", [], "expected feature rows of codec planes, found none in"),
        ("exact", ["--compress", "none"], "expected --compress both or auto: rows that stay encoded"),
    ]:
        out = tmp_path / "run"
        result = cohort("train", graph / name, *TRAIN, "--coarse-epochs", 1, "--out", out, *options)
        assert result.returncode == 1 and f"--coarse-epochs 1: {text}" in result.stderr


@pytest.mark.gpu
@pytest.mark.parametrize("options", [[], ["--slots", 2, "--batch-size", 60, "--fanout", "3,2"]], ids=["large", "small"])
def test_rows_of_one_kind_are_never_found_as_those_of_the_other(graph, tmp_path, options):
    """A pool keeps rows over passes of both kinds: training on plane A, and exact validation in between."""
    options = ["--device", "cuda", "--coarse-epochs", 2, *options]
    found = summary(graph, tmp_path / "a", "exact", 3, *options, "--debug-poison-slots")
    plain = summary(graph, tmp_path / "b", "exact", 3, *options, "--no-reuse", "--slots", 8)
    for name in ("loss", "val_accuracy"):
        values = [[epoch[name] for epoch in run["epochs"]] for run in (found, plain)]
        assert values[0] == pytest.approx(values[1], rel=1e-3), name
    assert all(epoch["row_tiers"]["recent"]["rows"] > 0 for epoch in found["epochs"])
