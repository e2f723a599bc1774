"""`--use-edge-features`: batches of `cohort digest` with rows of edges, raw and encoded, and GAT, which reads them."""

import json
from pathlib import Path

import numpy as np
import pytest
from processes import cohort, ran, refused

from cohort_gnn.dataset import open as open_dataset

pytestmark = pytest.mark.usefixtures("shm")
SIZES = ["--kind", "powerlaw", "--nodes", "3K", "--edges", "60K", "--dim", 4, "--classes", 8, "--seed", 5]


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("edges") / "set"
    ran("dataset", "generate", folder, *SIZES, "--edge-dim", 6)
    return folder


def lines_of(data: Path, *options) -> list[str]:
    done = ran("digest", data, "--fanout", "4,-1,3", "--batch-size", 100, "--batches", 4, *options)
    return done.stdout.splitlines()


CACHED = ["--cache-ratio", "0.4", "--topology", "host"]


def test_digests_tell_of_the_rows(data, tmp_path):
    with_rows = lines_of(data, "--device", "cpu")
    assert with_rows == lines_of(data, "--device", "cpu", "--ranks", 3)
    assert with_rows == lines_of(data, *CACHED, "--device", "cpu")
    without = lines_of(data, "--device", "cpu", "--no-use-edge-features")
    assert without != with_rows
    ran("dataset", "generate", tmp_path / "plain", *SIZES)
    assert without == lines_of(tmp_path / "plain", "--device", "cpu")


@pytest.fixture
def packed(tmp_path) -> Path:
    """Rows of edges that codecs make smaller."""
    folder = tmp_path / "packed"
    rows = np.random.default_rng(1).integers(0, 2, (60_000, 40)).astype(np.float32)
    ran("dataset", "generate", folder, *SIZES, "--edge-dim", 40)
    np.save(folder / "edge_features.npy", rows)
    return folder


def test_encoded_rows_are_the_same(packed):
    raw = lines_of(packed, "--device", "cpu")
    done = ran("dataset", "prepare", packed)
    assert "edge_features.ibp" in done.stderr
    told = json.loads((packed / "prepared/prepared.json").read_text())
    assert [(each["relation"], each["file"]) for each in told["edge_tables"]] == [(0, "edge_features.ibp")]
    for compress in ("auto", "host", "none"):
        assert raw == lines_of(packed, "--device", "cpu", "--compress", compress)
    assert "encoded" in cohort("dataset", "info", packed).stdout.split("edge features")[1].splitlines()[0]
    (packed / "edge_features.npy").touch()
    refused(cohort("dataset", "info", packed), 1, "a file that has changed since")
    ran("dataset", "prepare", packed, "--codec", "auto")
    ran("dataset", "prepare", packed, "--codec", "sparse", "--drop-raw")
    assert not (packed / "edge_features.npy").exists() and not (packed / "features.npy").exists()
    graph = open_dataset(packed)
    assert graph.edge_attr is None and graph.edge_table.feature_dim == 40
    for compress in ("auto", "host", "none"):
        assert raw == lines_of(packed, "--device", "cpu", "--compress", compress)
    damaged = packed / "prepared/edge_features.ibp"
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    refused(cohort("digest", packed, "--device", "cpu", "--batches", 1), 1, "edge_features.ibp")


@pytest.mark.gpu
@pytest.mark.parametrize("options", [[], ["--topology", "host"], CACHED, ["--order", "asis"]], ids=str)
def test_a_gpu_has_the_same_rows(data, options):
    expected = lines_of(data, "--device", "cpu")
    assert expected == lines_of(data, *options, "--device", "cuda")
    assert expected == lines_of(data, *options, "--device", "cuda", "--no-reuse", "--no-mps")


@pytest.mark.gpu
def test_a_gpu_decodes_the_same_rows(packed):
    ran("dataset", "prepare", packed)
    expected = lines_of(packed, "--device", "cpu", "--compress", "none")
    for compress in ("none", "host", "both"):
        assert expected == lines_of(packed, "--device", "cuda", "--compress", compress)


OPTIONS = ["--model", "gat", "--device", "cpu", "--fanout", "10,5", "--batch-size", 256, "--hidden", 32, "--quiet"]
OPTIONS += ["--lr", 0.01, "--dropout", 0]


def trained(data: Path, out: Path, *options, model=OPTIONS) -> dict:
    ran("train", data, *model, "--out", out, *options)
    return json.loads((out / "summary.json").read_text())


def test_attention_learns_from_the_rows(data, tmp_path):
    """An eighth of the neighbours have the node's class, and only the rows of edges tell which."""
    with_rows = trained(data, tmp_path / "with", "--epochs", 6)
    without = trained(data, tmp_path / "without", "--epochs", 6, "--no-use-edge-features")
    assert with_rows["test_accuracy"] > without["test_accuracy"] + 0.05
    pygs = trained(data, tmp_path / "pyg", "--epochs", 2, "--layers", "pyg")
    for ours, theirs in zip(with_rows["epochs"], pygs["epochs"], strict=False):
        assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-3)
    right = {}
    for name, scored in (("with", with_rows), ("without", without)):
        done = ran("predict", tmp_path / name, data, "--classes", "--out", tmp_path / "classes.npy")
        ids, labels = np.load(data / "test_ids.npy"), np.load(data / "labels.npy")
        right[name] = (np.load(tmp_path / "classes.npy")[ids] == labels[ids]).mean()
        assert right[name] > scored["test_accuracy"] - 0.05  # of samples; here of all neighbours
    assert right["with"] > right["without"] + 0.05
    other = tmp_path / "other"
    ran("dataset", "generate", other, *SIZES, "--edge-dim", 3)
    done = cohort("predict", tmp_path / "with", other, "--out", tmp_path / "scores.npy")
    assert done.returncode == 1 and "features per edge, as the run had" in done.stderr


def test_ranks_and_resumed_runs_learn_the_same(data, tmp_path):
    whole = trained(data, tmp_path / "whole", "--epochs", 2, "--ranks", 2, "--batch-size", 128)
    part = trained(data, tmp_path / "part", "--epochs", 1, "--ranks", 2, "--batch-size", 128)
    ran("train", "--resume", tmp_path / "part", "--epochs", 2)
    part = json.loads((tmp_path / "part/summary.json").read_text())
    assert [epoch["loss"] for epoch in part["epochs"]] == [epoch["loss"] for epoch in whole["epochs"]]
    rows = np.load(data / "edge_features.npy")
    np.save(data / "edge_features.npy", -rows)
    try:
        refused(cohort("train", "--resume", tmp_path / "part", "--epochs", 3), 1, "one with other edge features")
    finally:
        np.save(data / "edge_features.npy", rows)


def test_other_models_do_not_read_the_rows(data, tmp_path):
    run = ran("train", data, *OPTIONS, "--epochs", 1, "--model", "sage", "--out", tmp_path / "sage")
    assert "edge features are not used: --model sage takes none" in run.stderr
    assert "edge_features" not in json.loads((tmp_path / "sage/run.json").read_text())["sampler"]
    model = tmp_path / "with_edges.py"
    model.write_text(
        "import torch_geometric.nn as pyg\n"
        "class Net(pyg.GAT):\n"
        "    def __init__(self, **sizes):\n"
        "        super().__init__(**sizes, edge_dim=6)\n"
        "    def forward(self, x, edge_index, edge_attr):\n"
        "        assert edge_attr.shape == (edge_index.shape[1], 6)\n"
        "        return super().forward(x, edge_index, edge_attr=edge_attr)\n"
    )
    options = ["--epochs", 1, "--model", "with_edges:Net", "--out", tmp_path / "own"]
    ran("train", data, *OPTIONS, *options, cwd=tmp_path)
