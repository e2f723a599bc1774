"""``cohort dataset derive``: features of a type as the means of its neighbours'."""

import json
import shutil

import numpy as np
import pytest
import torch

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset import append, check, generate, generate_typed, import_graph, split_links
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


GRAPH = (
    "name: papers\nnodes: {{{nodes}}}\nedges: [{{type: [author, writes, paper], file: writes.npy}}{edges}]\n"
    "target: paper\n"
)
IN = ", {type: [author, in, house], file: in.npy}"
HOUSES = ("house", "--mean-of", "author", "--over", "in")


def described(folder, papers: slice, writes: slice, authors: int = 3, edges: str = IN):
    """A graph.yaml of some of the papers, of authors and of houses, or of what comes to them."""
    folder.mkdir()
    np.save(folder / "x.npy", np.arange(12, dtype=np.float32).reshape(6, 2)[papers])
    np.save(folder / "writes.npy", np.array([[0, 1, 2, 0, 3, 1], [0, 1, 2, 3, 4, 5]])[:, writes])
    np.save(folder / "in.npy", np.array([[0, 1, 2], [0, 0, 1]]))
    nodes = {"paper": "{features: x.npy}", "author": f"{{count: {authors}}}", "house": "{count: 2}"}
    gone = {"paper": papers == slice(0), "author": authors == 0, "house": not edges}
    text = ", ".join(f"{name}: {keys}" for name, keys in nodes.items() if not gone[name])
    (folder / "graph.yaml").write_text(GRAPH.format(nodes=text, edges=edges))
    return folder / "graph.yaml"


def test_an_append_leaves_out_means_of_what_has_changed(tmp_path):
    told: list[str] = []
    import_graph(described(tmp_path / "first", slice(4), slice(4)), tmp_path / "data", reverse=True)
    assert run(tmp_path / "data", *AUTHORS) == run(tmp_path / "data", *HOUSES) == 0
    before = {name: (tmp_path / "data" / f"{name}.features.npy").read_bytes() for name in ("author", "house")}
    np.save(tmp_path / "x.npy", np.ones((1, 2), np.float32))
    (tmp_path / "rows.yaml").write_text("nodes: {author: {features: x.npy}}\nedges: []\n")
    with pytest.raises(CohortError, match="expected nodes of type author, whose features were derived, found rows"):
        append(tmp_path / "data", edges=tmp_path / "rows.yaml")
    more = described(tmp_path / "more", slice(4, 6), slice(4, 6), authors=1, edges="")
    append(tmp_path / "data", edges=more, note=told.append)
    assert {name: (tmp_path / "data" / f"{name}.features.npy").exists() for name in before} == dict.fromkeys(
        before, False
    )
    words = [" ".join(each) for each in (AUTHORS, HOUSES)]
    words = [text.replace("writes", "rev_writes") for text in words]
    assert [text in " ".join(told) for text in words] == [True, True]
    import_graph(described(tmp_path / "whole", slice(6), slice(6), authors=4), tmp_path / "fresh", reverse=True)
    for data in (tmp_path / "data", tmp_path / "fresh"):
        assert run(data, *AUTHORS) == run(data, *HOUSES) == 0 and check(data) == []
    rows = [open_dataset(tmp_path / name).node_types["author"].x_float32() for name in ("data", "fresh")]
    np.testing.assert_array_equal(*rows)
    (tmp_path / "in.yaml").write_text("nodes: {house: {count: 1}}\nedges: []\n")
    append(tmp_path / "data", edges=tmp_path / "in.yaml")
    tables = open_dataset(tmp_path / "data").node_types
    assert tables["house"].x is None and tables["author"].x is not None, "only means of what has changed"


def test_links_are_not_held_out_of_means_of_them(tmp_path):
    import_graph(described(tmp_path / "first", slice(4), slice(4)), tmp_path / "data", reverse=True)
    assert run(tmp_path / "data", *AUTHORS) == 0
    with pytest.raises(CohortError, match="expected features that are no means over the links .*found those of author"):
        split_links(tmp_path / "data", tmp_path / "split", relation="writes", shares=(0.25, 0.25), negatives=2)
    split_links(tmp_path / "data", tmp_path / "split", relation="in", shares=(0.3, 0.3), negatives=2)


def test_refuses_a_data_set_of_one_type(tmp_path, capsys):
    generate(tmp_path / "data", kind="sbm", nodes=50, edges=100, dim=4)
    assert run(tmp_path / "data", *AUTHORS) == 1
    assert "expected a data set of several node types, found one of one node type" in capsys.readouterr().err
