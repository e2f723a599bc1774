"""cohort dataset generate --kind mag, mag240m, igbh: the sizes, the same files again, encoded rows alone."""

import json

import numpy as np
import pytest
from processes import ran

from cohort_gnn import CohortError
from cohort_gnn.dataset import check
from cohort_gnn.dataset import open as open_dataset
from cohort_gnn.dataset.generating.shapes import LEAST_NODES, SHAPES, generate_shape
from cohort_gnn.launch import main


@pytest.mark.parametrize("kind", SHAPES)
def test_a_share_of_a_published_graph(tmp_path, kind):
    scale = 300 / sum(SHAPES[kind].nodes.values())
    generate_shape(tmp_path / "out", kind=kind, scale=scale, dim=8)
    assert check(tmp_path / "out") == []
    data, shape = open_dataset(tmp_path / "out"), SHAPES[kind]
    assert (data.target, data.num_classes) == ("paper", shape.classes)
    for name, count in shape.nodes.items():
        table = data.node_types[name]
        assert table.num_nodes == max(LEAST_NODES, round(scale * count))
        assert (table.feature_dim, table.feature_dtype) == (8, shape.dtype)
    for relation, count in shape.edges.items():
        assert data.edge_types[relation].num_edges == round(scale * count)
    reverses = {relation: edges.reverse_of for relation, edges in data.edge_types.items() if edges.reverse_of}
    assert set(reverses.values()) == set(shape.edges), "each has a reverse"
    for reverse, relation in reverses.items():
        there = data.edge_types[relation].edge_index()
        back = data.edge_types[reverse].edge_index()[::-1]
        assert sorted(map(tuple, there.T)) == sorted(map(tuple, back.T))


def test_few_nodes_have_many_edges(tmp_path):
    generate_shape(tmp_path / "out", kind="mag", scale=0.01, dim=1)
    for (_, name, _), edges in open_dataset(tmp_path / "out").edge_types.items():
        degrees = np.sort(np.diff(edges.indptr))[::-1]
        share = degrees[: max(1, len(degrees) // 100)].sum() / degrees.sum()
        assert share == pytest.approx(0.1, abs=0.02), f"{name}: 1 % of the nodes have sqrt(0.01) of the edges"


def test_the_same_seed_gives_the_same_files(tmp_path):
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        generate_shape(tmp_path / name, kind="mag", scale=0.001, dim=4, seed=seed)
    files = [path.name for path in (tmp_path / "a").glob("*.npy")]
    same = {name: (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes() for name in files}
    assert all(same.values()), same
    for name in ("paper.features.npy", "author.writes.paper.indices.npy", "paper.labels.npy"):
        assert (tmp_path / "a" / name).read_bytes() != (tmp_path / "c" / name).read_bytes()


def test_encoded_rows_alone_are_the_same_rows(tmp_path):
    """...and a model trains on them with the losses of the raw ones."""
    losses = {}
    for name, more in (("raw", []), ("encoded", ["--prepared", "--codec", "exponent"])):
        shape = ["--kind", "igbh", "--scale", "2e-6", "--dim", "64", "--classes", "5"]
        assert main.main(["dataset", "generate", str(tmp_path / name), *shape, *more]) == 0
        options = ["--device", "cpu", "--model", "rgat", "--fanout", "3,2", "--hidden", 8, "--heads", 2, "--epochs", 1]
        ran("train", tmp_path / name, *options, "--out", tmp_path / f"run-{name}")
        epochs = json.loads((tmp_path / f"run-{name}" / "summary.json").read_text())["epochs"]
        losses[name] = [epoch["loss"] for epoch in epochs]
    encoded = open_dataset(tmp_path / "encoded")
    assert not list((tmp_path / "encoded").glob("*.features.npy"))
    assert all(table.x is None and table.feature_dim == 64 for table in encoded.node_types.values())
    assert losses["raw"] == losses["encoded"]


@pytest.mark.parametrize("scale", [0.0, -0.5, 1.5, float("nan")])
def test_refuses_a_scale_out_of_range(tmp_path, scale):
    with pytest.raises(CohortError) as error:
        generate_shape(tmp_path / "out", kind="mag", scale=scale)
    assert error.value.place == "--scale" and not (tmp_path / "out").exists()
