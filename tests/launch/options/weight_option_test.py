"""`--weight-attr` and `--sampling`: batches of `cohort digest` and `cohort train` whose draws are not uniform ones."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from processes import cohort, here, ran, refused
from torch_geometric.data import HeteroData

from cohort_gnn import from_pyg, from_tensors

pytestmark = pytest.mark.usefixtures("shm")
BY_WEIGHT = ("--weight-attr", "edge_weight")
BY_LAYER = ("--sampling", "labor", "--batch-dependency", 3, "--layer-dependency")
BY_LAYER += ("--seed-order", "DATA/communities.npy", "--seed-mix", 0.3)
BY_IMPORTANCE = ("--sampling", "labor", "--importance-sampling")


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("weights") / "set"
    sizes = ["--nodes", "4K", "--edges", "60K", "--dim", 8, "--classes", 3, "--seed", 5]
    ran("dataset", "generate", folder, "--random-edge-weights", *sizes)
    np.save(folder / "communities.npy", np.arange(4000) % 30)
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
    folder = from_pyg(data, tmp_path_factory.mktemp("types") / "set", reverse_edges=True)
    np.save(folder / "communities.npy", np.arange(1400, dtype=np.int32) % 30)
    return folder


def lines_of(data: Path, *options) -> list[str]:
    options = [str(option).replace("DATA", str(data)) for option in options]
    done = ran("digest", data, "--fanout", "4,-1,3", "--batch-size", 100, "--batches", 4, *options)
    return done.stdout.splitlines()


CACHED = ["--cache-ratio", "0.4", "--topology", "host"]


@pytest.mark.parametrize("how", [BY_WEIGHT, BY_LAYER, BY_IMPORTANCE], ids=str)
def test_batches_follow_from_the_draws_alone(data, how):
    drawn = lines_of(data, *how, "--device", "cpu")
    assert drawn != lines_of(data, "--device", "cpu")
    assert drawn == lines_of(data, *how, "--device", "cpu", "--ranks", 3)
    lines_of(data, *CACHED, "--device", "cpu")
    others = set(data.glob("hotness-*"))
    assert drawn == lines_of(data, *how, *CACHED, "--device", "cpu")
    assert len(set(data.glob("hotness-*")) - others) == 1, "reads are counted as the run draws, too"


@pytest.mark.gpu
@pytest.mark.parametrize("options", [[], ["--topology", "host"], CACHED], ids=str)
@pytest.mark.parametrize("graph", ["data", "types"])
@pytest.mark.parametrize("how", [BY_WEIGHT, BY_LAYER, BY_IMPORTANCE], ids=str)
def test_a_gpu_makes_the_same_batches(request, graph, how, options):
    graph = request.getfixturevalue(graph)
    assert lines_of(graph, *how, *options) == lines_of(graph, *how, "--device", "cpu")


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


def test_other_attributes_are_refused(data, cora):
    refused(here("digest", data, "--weight-attr", "edge_attr"), 2, "edge_weight")
    refused(here("train", cora, *BY_WEIGHT, "--device", "cpu"), 1, "--weight-attr: expected weights in")


def test_draws_that_exclude_each_other_are_refused(data):
    refused(here("digest", data, *BY_WEIGHT, *BY_LAYER), 1, "sampling: expected neighbor, with weight_attr")
    for options, name in (
        (["--batch-dependency", 3], "batch_dependency"),
        (["--layer-dependency"], "layer_dependency"),
        (["--importance-sampling"], "importance_sampling"),
    ):
        refused(here("digest", data, *options), 1, f"{name}: expected", "say sampling='labor', or --sampling labor")


OWN = """
import torch
from torch_geometric.nn import GraphSAGE

class Checked(torch.nn.Module):
    def __init__(self, **sizes):
        super().__init__()
        self.layers = GraphSAGE(**sizes)

    def forward(self, x, edge_index, edge_weight):
        sums = x.new_zeros(len(x)).index_add_(0, edge_index[1], edge_weight)
        assert edge_weight.dtype == torch.float32 and (sums[edge_index[1]] - 1).abs().max() < 1e-5
        return self.layers(x, edge_index)
"""


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_shares_of_means_reach_models(data, types, tmp_path, device):
    small = ["--fanout", "5,3", "--hidden", 8, "--epochs", 1, "--device", device]
    train, scores = ["train", data, *small], []
    for name, options in (("run", BY_IMPORTANCE), ("other", BY_IMPORTANCE[:2])):
        ran(*train, *options, "--out", tmp_path / name)
        ran("predict", tmp_path / name, data, "--out", tmp_path / f"{name}.npy", "--device", device)
        scores.append(np.load(tmp_path / f"{name}.npy"))
    assert np.isfinite(scores[0]).all() and np.abs(scores[0] - scores[1]).max() > 1e-3
    expected = "--importance-sampling: expected --model sage with --layers cohort, or a model of your own"
    for options in (["--model", "gcn"], ["--layers", "pyg"], ["--model", "gat"]):
        refused(here(*train, *BY_IMPORTANCE, *options), 1, expected)
    refused(here("train", types, *small, *BY_IMPORTANCE, "--model", "rsage"), 1, expected)
    both = ["--model", "gcn", "--use-edge-weights"]
    refused(here(*train, *BY_IMPORTANCE, *both), 1, "importance_sampling: expected False, with edge_weights")
    (tmp_path / "own.py").write_text(OWN)
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    ran(*train, *BY_IMPORTANCE, "--model", "own:Checked", "--out", tmp_path / "own", env=env)
    for options in (BY_IMPORTANCE, ["--use-edge-weights"]):
        done = cohort(*train, *options, "--model", "torch_geometric.nn:GraphSAGE", "--out", tmp_path / "none")
        refused(done, 1, "expected layers that take edge_weight, found supports_edge_weight = False")


def test_orders_of_seeds_that_are_none_are_refused(data, cora):
    refused(
        here("digest", data, "--seed-mix", 0.2), 1, "seed_mix: expected 0.5, with seed_order shuffle", "--seed-order"
    )
    refused(
        here("digest", data, "--seed-order", "communities.csv"), 2, "expected shuffle, or a .npy file with the comm"
    )
    other = ("digest", cora, "--seed-order", data / "communities.npy", "--device", "cpu")
    refused(cohort(*other), 1, "int32 or int64 [2708], found int64 [4000]")
    train = ("train", cora, "--device", "cpu")
    refused(
        here(*train, "--seed-order", "none.npy"), 1, "--seed-order: expected a file with the community of each node"
    )
    refused(here(*train, "--task", "link", "--seed-order", cora / "labels.npy"), 1, "--seed-order: expected nodes")


def test_parallel_edges_that_stand_apart_are_refused(tmp_path):
    """Lists of edges with times are in the order of the times."""
    nodes = {"x": np.ones((3, 2), np.float32), "y": np.zeros(3, np.int64), "train_ids": np.arange(3)}
    sources = np.array([1, 2, 2, 1, 0])
    for name, times in {"apart": [0, 1, 2, 3, 4], "together": [0, 2, 3, 1, 4]}.items():
        edges = {"edge_index": np.stack([sources, [0, 0, 0, 0, 1]]), "edge_time": np.array(times)}
        from_tensors(tmp_path / name, **nodes, **edges)
    options = ("--fanout", "2", "--batch-size", 3, "--device", "cpu", *BY_LAYER[:2])
    result = cohort("digest", tmp_path / "apart", *options)
    refused(result, 1, "indices.npy: several edges from node 1 to node 0", "--sampling neighbor")
    ran("digest", tmp_path / "together", *options)
