"""Classes that follow from two relations: R-SAGE and R-GCN learn them, and layers without types do not."""

import json
from pathlib import Path

import pytest
import torch
from processes import ALL_TESTS, ran

import cohort_gnn as package

pytestmark = pytest.mark.skipif(
    not ALL_TESTS, reason="examples_test.py learns such classes: tests/run.sh --all runs it"
)
OPTIONS = ["--device", "cpu", "--fanout", "10,1", "--batch-size", 128, "--hidden", 32, "--lr", 0.01, "--dropout", 0.1]
OPTIONS += ["--epochs", 15, "--quiet"]


@pytest.fixture(scope="module")
def graph(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("accuracy") / "typed"
    size = ["--nodes", "6K", "--edges", "75K", "--dim", 16, "--classes", 2]
    ran("dataset", "generate", folder, "--kind", "typed", "--all-features", *size)
    return folder


def accuracy(graph: Path, out: Path, model: str) -> float:
    ran("train", graph, "--model", model, *OPTIONS, "--out", out)
    return json.loads((out / "summary.json").read_text())["test_accuracy"]


@pytest.mark.parametrize("model", ["rsage", "rgcn"])
def test_relations_tell_the_class(graph, tmp_path, model):
    assert accuracy(graph, tmp_path / "run", model) >= 0.95


def test_the_graph_without_types_does_not(graph, tmp_path):
    data = package.dataset.open(graph)
    flat, first = data.to_pyg().to_homogeneous(), data.first_node["paper"]
    labels = torch.full((flat.num_nodes,), -1)
    labels[first : first + len(data.y)] = torch.from_numpy(data.y.copy())
    ids = {name: torch.from_numpy(getattr(data, name) + first) for name in ("train_ids", "val_ids", "test_ids")}
    folder = package.from_tensors(tmp_path / "flat", x=flat.x, y=labels, edge_index=flat.edge_index, **ids)
    assert accuracy(folder, tmp_path / "run", "sage") < 0.8
