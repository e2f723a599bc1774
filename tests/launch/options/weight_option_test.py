"""`--weight-attr`: batches of `cohort digest` and `cohort train` whose neighbours are drawn by weight."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from processes import cohort, here, ran, refused
from torch_geometric.data import HeteroData

from cohort_gnn import from_pyg

pytestmark = pytest.mark.usefixtures("shm")
BY_WEIGHT = ("--weight-attr", "edge_weight")


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("weights") / "set"
    sizes = ["--nodes", "4K", "--edges", "60K", "--dim", 8, "--classes", 3, "--seed", 5]
    ran("dataset", "generate", folder, "--random-edge-weights", *sizes)
    return folder


@pytest.fixture(scope="module")
def types(tmp_path_factory) -> Path:
    """Of two node types; papers cite by weight."""
    random, data = np.random.default_rng(8), HeteroData()
    for name, count in (("author", 500), ("paper", 900)):
        data[name].x = torch.from_numpy(random.normal(size=(count, 6)).astype(np.float32))
    data["paper"].y = torch.from_numpy(random.integers(3, size=900))
    for source, name in (("author", "writes"), ("paper", "cites")):
        ends = [random.integers(data[end].num_nodes, size=9000) for end in (source, "paper")]
        data[source, name, "paper"].edge_index = torch.from_numpy(np.stack(ends))
    data["paper", "cites", "paper"].edge_weight = torch.from_numpy(random.random(9000, np.float32))
    return from_pyg(data, tmp_path_factory.mktemp("types") / "set", reverse_edges=True)


def lines_of(data: Path, *options) -> list[str]:
    done = ran("digest", data, "--fanout", "4,-1,3", "--batch-size", 100, "--batches", 4, *options)
    return done.stdout.splitlines()


CACHED = ["--cache-ratio", "0.4", "--topology", "host"]


def test_batches_follow_from_the_weights_alone(data):
    by_weight = lines_of(data, *BY_WEIGHT, "--device", "cpu")
    assert by_weight != lines_of(data, "--device", "cpu")
    assert by_weight == lines_of(data, *BY_WEIGHT, "--device", "cpu", "--ranks", 3)
    lines_of(data, *CACHED, "--device", "cpu")
    uniform = set(data.glob("hotness-*"))
    assert by_weight == lines_of(data, *BY_WEIGHT, *CACHED, "--device", "cpu")
    assert len(set(data.glob("hotness-*")) - uniform) == 1, "reads are counted by weight, too"


@pytest.mark.gpu
@pytest.mark.parametrize("options", [[], ["--topology", "host"], CACHED], ids=str)
@pytest.mark.parametrize("graph", ["data", "types"])
def test_a_gpu_makes_the_same_batches(request, graph, options):
    graph = request.getfixturevalue(graph)
    assert lines_of(graph, *BY_WEIGHT, *options) == lines_of(graph, *BY_WEIGHT, "--device", "cpu")


def test_several_types(types, tmp_path):
    for file in types.glob("hotness-*"):
        file.unlink()
    uniform = lines_of(types, "--device", "cpu")
    counts = set(types.glob("hotness-*"))
    assert lines_of(types, *BY_WEIGHT, *CACHED, "--device", "cpu") != uniform
    assert len(set(types.glob("hotness-*")) - counts) == 1
    train = ["train", types, "--model", "rsage", "--fanout", "5,5", "--hidden", 8, "--epochs", 1, "--device", "cpu"]
    ran(*train, *BY_WEIGHT, "--out", tmp_path / "run")
    done = cohort("predict", tmp_path / "run", types, "--out", tmp_path / "pred.npy", "--device", "cpu")
    assert done.returncode == 1 and "a run without --weight-attr" in done.stderr


def test_a_run(data, cora, tmp_path):
    train = ["train", data, "--fanout", "5,5", "--hidden", 8, "--batch-size", 500, "--epochs", 1, "--device", "cpu"]
    ran(*train, *BY_WEIGHT, "--out", tmp_path / "run")
    assert np.isfinite(json.loads((tmp_path / "run/summary.json").read_text())["epochs"][-1]["loss"])
    done = cohort("predict", tmp_path / "run", data, "--out", tmp_path / "pred.npy", "--device", "cpu")
    assert done.returncode == 1 and "a run without --weight-attr" in done.stderr
    done = cohort("train", cora, *BY_WEIGHT, "--device", "cpu", "--out", tmp_path / "other")
    assert done.returncode == 1 and "--weight-attr: expected weights in" in done.stderr


def test_other_attributes_are_refused(data):
    refused(here("digest", data, "--weight-attr", "edge_attr"), 2, "edge_weight")
