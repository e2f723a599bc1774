"""``cohort dataset derive``: features of a type as the means of its neighbours'."""

import json
import shutil

import numpy as np
import pytest
import torch

from cohort_gnn.dataset import check, generate, generate_typed
from cohort_gnn.dataset import open as open_dataset
from cohort_gnn.launch.data import derive
from cohort_gnn.launch.main import main


@pytest.fixture(scope="module")
def papers(tmp_path_factory):
    """Papers with features; authors and fields without."""
    out = tmp_path_factory.mktemp("derive") / "papers"
    generate_typed(out, nodes=1200, edges=9000, dim=6, classes=2, seed=5, dtype="float16")
    return out


@pytest.fixture
def copy(papers, tmp_path):
    return shutil.copytree(papers, tmp_path / "data")


def run(folder, *words) -> int:
    return main(["dataset", "derive", str(folder), *words])


AUTHORS = ("author", "--mean-of", "paper", "--over", "writes")


def expected_means(data, relation, source) -> np.ndarray:
    x = data.node_types[source].x_float32().astype(np.float64)
    edges = data.edge_types[relation]
    lists = np.split(edges.indices, edges.indptr[1:-1])
    return np.stack([x[each].mean(0) if len(each) else np.zeros(x.shape[1]) for each in lists])


@pytest.mark.parametrize("name", ["writes", "rev_writes"])
@pytest.mark.parametrize("batch_bytes", [1, 24 * 50, 64 << 20], ids=["an edge at a time", "50 edges", "all"])
def test_authors_have_the_means_of_their_papers(copy, monkeypatch, batch_bytes, name):
    monkeypatch.setattr(derive, "BATCH_BYTES", batch_bytes)
    expected = expected_means(open_dataset(copy), ("paper", "rev_writes", "author"), "paper")
    assert run(copy, "author", "--mean-of", "paper", "--over", name) == 0
    table = open_dataset(copy).node_types["author"]
    assert (table.feature_dim, table.feature_dtype) == (6, "float16") and check(copy) == []
    np.testing.assert_allclose(table.x_float32(), expected, rtol=2e-3, atol=1e-4)
    assert open_dataset(copy).node_types["field"].x is None


def test_nodes_without_neighbours_have_zeros(copy):
    meta = json.loads((copy / "meta.json").read_text())
    indptr = np.load(copy / "paper.rev_writes.author.indptr.npy")
    file = copy / "paper.rev_writes.author.indptr.npy"
    indptr[1:4] = [indptr[3]] * 3  # author 1 and 2 give their papers to author 0
    np.save(file, indptr)
    assert run(copy, *AUTHORS) == 0
    x = open_dataset(copy).node_types["author"].x_float32()
    assert not x[1:3].any() and x[0].any() and len(x) == meta["nodes"][1]["count"]


def test_rows_that_are_only_encoded_and_bfloat16_ones(tmp_path):
    generate_typed(tmp_path / "data", nodes=1200, edges=9000, dim=32, classes=2, dtype="float32")
    x = torch.from_numpy(np.load(tmp_path / "data/paper.features.npy")).bfloat16()
    np.save(tmp_path / "data/paper.features.npy", x.view(torch.int16).numpy().view(np.uint16))
    meta = (tmp_path / "data/meta.json").read_text().replace('"float32"', '"bfloat16"')
    (tmp_path / "data/meta.json").write_text(meta)
    expected = expected_means(open_dataset(tmp_path / "data"), ("paper", "has", "field"), "paper")
    assert main(["dataset", "prepare", str(tmp_path / "data"), "--codec", "exponent", "--drop-raw"]) == 0
    assert not (tmp_path / "data/paper.features.npy").exists()
    assert run(tmp_path / "data", "field", "--mean-of", "paper", "--over", "has") == 0
    table = open_dataset(tmp_path / "data").node_types["field"]
    assert table.feature_dtype == "bfloat16"
    np.testing.assert_allclose(table.x_float32(), expected, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("editor", *AUTHORS[1:]), "TYPE: expected one of the node types paper, author, field, found editor"),
        (("author", "--mean-of", "field", "--over", "has"), "--mean-of: expected a node type with features, found fie"),
        (("paper", *AUTHORS[1:]), "TYPE: expected a node type without features, found paper, which has some"),
        ((*AUTHORS[:4], "cites"), "--over cites: expected one relation from paper to author, found paper, rev_writes"),
    ],
)
def test_refuses_what_cannot_be_averaged(copy, capsys, words, told):
    before = {file.name: file.read_bytes() for file in copy.iterdir()}
    assert run(copy, *words) == 1 and told in capsys.readouterr().err
    assert {file.name: file.read_bytes() for file in copy.iterdir()} == before


def test_features_are_replaced_where_that_is_asked_for(copy, capsys):
    assert run(copy, *AUTHORS) == 0
    first = open_dataset(copy).node_types["author"].x_float32()
    np.save(copy / "author.features.npy", np.zeros((len(first), 6), np.float16))
    assert run(copy, *AUTHORS) == 1 and "pass --overwrite" in capsys.readouterr().err
    assert run(copy, *AUTHORS, "--overwrite") == 0
    np.testing.assert_array_equal(open_dataset(copy).node_types["author"].x_float32(), first)


def test_refuses_a_data_set_of_one_type(tmp_path, capsys):
    generate(tmp_path / "data", kind="sbm", nodes=50, edges=100, dim=4)
    assert run(tmp_path / "data", *AUTHORS) == 1
    assert "expected a data set of several node types, found one of one node type" in capsys.readouterr().err
