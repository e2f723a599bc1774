"""Importing graphs of several types: a YAML file of tables, options, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from damages import members
from import_helpers import imported, refusal
from typed_layout_writers import assert_holds, sample, write_described

from cohort_gnn.dataset import Dataset


@pytest.mark.parametrize("texts", ["author.parquet", "edges-1.parquet"])
def test_texts_of_digits_name_the_nodes_that_integers_name(tmp_path, texts):
    import pyarrow.parquet as pq

    data = sample(("paper", "author"))
    file = write_described(tmp_path / "mine", data, ids="numbers") / texts
    columns = pq.read_table(file).to_pydict()
    table(file, **{name: list(map(str, of)) if name in ("id", "from_", "to_") else of for name, of in columns.items()})
    assert_holds(imported(tmp_path / "mine"), data)


def edit(folder: Path, change) -> Path:
    found = json.loads((folder / "graph.yaml").read_text())
    change(found)
    (folder / "graph.yaml").write_text(json.dumps(found))
    return folder


def test_arrays_may_take_the_place_of_tables(tmp_path):
    data = sample(dtype=torch.float16)
    folder = write_described(tmp_path / "mine", data)
    np.save(folder / "x.npy", data["paper"].x.numpy())
    np.save(folder / "y.npy", data["paper"].y.numpy())
    np.save(folder / "writes.npy", data["author", "writes", "paper"].edge_index.numpy())
    for name in ("train", "val", "test"):
        np.save(folder / f"{name}.npy", np.flatnonzero(data["paper"][f"{name}_mask"].numpy()))

    def change(found):
        found["nodes"]["paper"] = {"features": "x.npy", "label": "y.npy", "split": ["train.npy", "val.npy", "test.npy"]}
        found["edges"][1] = {"type": ["author", "writes", "paper"], "file": "writes.npy"}
        found["name"] = "arrays"

    edit(folder, change)
    (folder / "graph.yaml").rename(folder / "other.yaml")
    read = imported(folder / "other.yaml")
    assert_holds(read, data)
    assert read.name == "arrays"


@pytest.mark.parametrize("others", [{}, {"b": {"count": 3}}])
def test_nodes_may_have_a_column_of_ones(tmp_path, others):
    np.save(tmp_path / "edges.npy", np.array([[0, 1, 4], [1, 2, 0]]))
    np.save(tmp_path / "y.npy", np.arange(5) % 2)
    described = {
        "nodes": {"a": {"count": 5, "label": "y.npy"}, **others},
        "edges": [{"type": ["a", "to", "a"], "file": "edges.npy"}],
    }
    (tmp_path / "graph.yaml").write_text(json.dumps(described))
    if not others:
        assert "features: [COLUMN] or ones" in refusal(tmp_path / "graph.yaml").hint
    described["nodes"]["a"]["features"] = "ones"
    (tmp_path / "graph.yaml").write_text(json.dumps(described))
    data = imported(tmp_path / "graph.yaml")
    nodes = data.node_types["a" if others else "node"]
    assert nodes.x.dtype == np.uint8 and nodes.x.tolist() == [[1]] * 5
    assert all(data.node_types[name].x is None for name in others)


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_weights_are_a_column_or_a_file(tmp_path, form):
    data = sample()

    def change(found):
        for edges in found["edges"]:
            if edges["type"][1] == "writes":
                edges["weight"] = "weight"  # in the tables, the sources once more
            elif edges["type"][1] == "cites":
                edges["weight"] = "cites.npy"
                np.save(tmp_path / "mine" / "cites.npy", data["paper", "cites", "paper"].edge_index[1].numpy() / 2)

    edit(write_described(tmp_path / "mine", data, form), change)
    found = imported(tmp_path / "mine", reverse=True).to_pyg()
    sources = found["author", "writes", "paper"]
    assert sources.edge_weight.tolist() == sources.edge_index[0].tolist()
    reverse = found["paper", "rev_writes", "author"]
    assert reverse.edge_weight.tolist() == reverse.edge_index[1].tolist()
    cites = found["paper", "cites", "paper"]
    assert cites.edge_weight.tolist() == (cites.edge_index[1] / 2).tolist()
    assert sum("edge_weight" in found[name] for name in found.edge_types) == 4


def test_reverse_edges_add_a_relation_each(tmp_path):
    data, notes = sample(), []
    write_described(tmp_path / "mine", data)
    assert_holds(imported(tmp_path / "mine", reverse=True, note=notes.append), data, reverses=True)
    assert notes == ["mine: 13 of 50 nodes have no label (-1)", "splits: train 20, val 10, test 7 (from graph.yaml)"]
    imported(tmp_path / "mine", note=notes.append)
    assert notes[-1] == "author receives no edges; --reverse-edges adds the reverse of each relation"


def test_dedupe_and_self_loops(tmp_path):
    data = sample()
    data["author", "writes", "paper"].edge_index[:, :9] = data["author", "writes", "paper"].edge_index[:, 9:18]
    write_described(tmp_path / "mine", data)
    found = imported(tmp_path / "mine", reverse=True, dedupe=True, self_loops="add")
    for relation in data.edge_types:
        data[relation].edge_index = data[relation].edge_index.unique(dim=1)
    cites = data["paper", "cites", "paper"].edge_index
    loops = torch.arange(50).expand(2, 50)
    data["paper", "cites", "paper"].edge_index = torch.cat([cites[:, cites[0] != cites[1]], loops], dim=1)
    assert_holds(found, data, reverses=True)


def test_labels_and_splits_may_be_replaced(tmp_path):
    data = sample()
    write_described(tmp_path / "mine", data)
    np.save(tmp_path / "y.npy", np.linspace(0, 1, 50, dtype=np.float32))
    for name, ids in (("a", [1]), ("b", [2, 3]), ("c", [])):
        np.save(tmp_path / f"{name}.npy", np.array(ids, np.int64))
    files = {"labels": tmp_path / "y.npy", "splits": [tmp_path / f"{name}.npy" for name in "abc"]}
    found = imported(tmp_path / "mine", **files, task="regression")
    assert found.task == "regression" and found.y[49] == 1 and found.val_ids.tolist() == [2, 3]


def test_a_graph_of_one_type_becomes_one_without_types(tmp_path):
    data = sample()

    def change(found):
        found["nodes"] = {"paper": found["nodes"]["paper"]}
        found["edges"] = found["edges"][2:]

    edit(write_described(tmp_path / "mine", data, "csv", "texts"), change)
    found = imported(tmp_path / "mine", undirected=True)
    assert isinstance(found, Dataset) and found.reversed_share() == 1
    np.testing.assert_array_equal(found.x, data["paper"].x)


def test_the_target_may_be_named(tmp_path):
    def change(found):
        found["nodes"]["paper"].pop("label")
        found["target"] = "author"

    edit(write_described(tmp_path / "mine", sample()), change)
    found = imported(tmp_path / "mine")
    assert found.target == "author" and (found.y == -1).all() and len(found.y) == 30


def test_the_command_says_what_it_wrote(tmp_path, run, capsys):
    write_described(tmp_path / "mine", sample())
    assert run("import", tmp_path / "mine", tmp_path / "out", "--reverse-edges", "--memory", "16MB") == 0
    told = " ".join(capsys.readouterr().err.split())
    assert "85 nodes, 500 edges, 3 node types, 6 relations, 3 classes, written in" in told
    assert run("import", tmp_path / "mine", tmp_path / "none", "--undirected") == 1
    assert "--undirected: expected a graph of one node type" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *[("transpose", True), ("pca", 2), ("row_normalize", True), ("nodes", 9)],
        *[("features", Path(__file__)), ("edge_weights", Path(__file__))],
    ],
)
def test_options_of_one_type_are_refused(tmp_path, option, value):
    error = refusal(write_described(tmp_path / "mine", sample()), **{option: value})
    assert error.expected == "a graph of one node type" and error.found == "several: author, institution, paper"


def member(*path, **values):
    """Other members of a part of the description."""
    return members("graph.yaml", *path, **values)


REFUSED = {
    "yaml": (member(edges=None), "graph.yaml", "at least one relation", "none"),
    "typo": (member("nodes", "paper", labels="y"), "graph.yaml: nodes.paper", "keys that are known", "labels"),
    "no_file": (member("edges", 0, file="no.parquet"), "no.parquet", "a Parquet file", ""),
    "no_table": (
        member("nodes", "author", id="id", file=None, count=3),
        "nodes.author.id",
        "a file that has",
        "no file",
    ),
    "no_column": (member("nodes", "paper", label="grade"), "paper.parquet", "a column grade", "f0, f1"),
    "no_edge_column": (member("edges", 0, target="t"), "edges-0.parquet", "a column t", "from_"),
    "one_column": (member("edges", 0, target=None), "author, affiliated_with", "source and target, or neither", "one"),
    "type": (
        member("edges", 0, type=["writer", "of", "paper"]),
        "writer, of, paper",
        "one of the node types",
        "writer",
    ),
    "name": (member("edges", 0, type=["author", "../x", "paper"]), "node and edge types", "names of 1 to 64", "../x"),
    "twice": (member("edges", 0, type=["author", "writes", "paper"]), "graph.yaml", "each relation once", "writes"),
    "no_edges": (member(edges=[]), "graph.yaml", "at least one relation", "none"),
    "no_label": (member("nodes", "paper", label=None), "graph.yaml", "labels of one node type", "none"),
    "target": (member(target="venue"), "the type that has labels", "one of the node types", "venue"),
    "count": (
        member("nodes", "institution", count=4),
        "edges-0.parquet: destination",
        "type institution in [0, 4)",
        "4",
    ),
    "nothing": (member("nodes", "institution", count=None), "nodes.institution", "a file, features or a count", "none"),
    "no_nodes": (
        member("nodes", "institution", count=0),
        "nodes.institution.count",
        "an integer of at least 1",
        "another",
    ),
    "features": (member("nodes", "paper", features="f0"), "nodes.paper.features", "a list of columns, or a", "f0"),
    "text_features": (member("nodes", "paper", features=["part"]), "column part", "numbers", "string"),
    "split": (member("nodes", "paper", split="class"), "column class", "train, val, test or nothing", "0"),
    "splits": (member("nodes", "paper", split=["a.npy"]), "nodes.paper.split", "files of train, val and test", "a.npy"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_descriptions_are_refused(tmp_path, name):
    change, place, expected, found = REFUSED[name]
    change(write_described(tmp_path / "mine", sample()))
    error = refusal(tmp_path / "mine")
    assert place in error.place and expected in error.expected and found in error.found, error


def table(path: Path, **columns) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table(columns), path)


WITH_IDS = {
    "no_author": (
        {"from_": ["a/1"], "to_": ["p/1"]},
        "edges-1.parquet: from_ of edge 0",
        "an id of type author",
        "a/1",
    ),
    "numbers": ({"from_": [4], "to_": [5]}, "edges-1.parquet: from_ of edge 0", "an id of type author", "4"),
    "null": ({"from_": [None, "a/3"], "to_": ["p/1"] * 2}, "edges-1.parquet", "a value in each", "1 null in from_"),
    "empty": ({"from_": ["", "a/3"], "to_": ["p/1"] * 2}, "edges-1.parquet", "a value in", "1 empty text in from_"),
    "no_text": ({"from_": [b"p/\xe3"], "to_": ["p"]}, "edges-1.parquet: column from_", "texts in UTF-8", "other bytes"),
    "floats": ({"from_": [0.5], "to_": ["p"]}, "edges-1.parquet: column from_", "integers or texts", "double"),
}


@pytest.mark.parametrize("name", WITH_IDS)
def test_ids_that_name_no_node_are_refused(tmp_path, name):
    columns, place, expected, found = WITH_IDS[name]
    write_described(tmp_path / "mine", sample(), ids="texts")
    table(tmp_path / "mine" / "edges-1.parquet", **columns)
    error = refusal(tmp_path / "mine")
    assert place in error.place and expected in error.expected and found in error.found, error


def test_a_file_of_rows_has_no_ids_among_the_features(tmp_path):
    member("nodes", "paper", features="paper.parquet")(write_described(tmp_path / "mine", sample(), ids="numbers"))
    error = refusal(tmp_path / "mine")
    assert error.place.endswith("nodes.paper.features: paper.parquet") and error.found == "id among them"


def test_a_count_that_differs_from_the_ids_is_refused(tmp_path):
    member("nodes", "author", count=31)(write_described(tmp_path / "mine", sample(), ids="numbers"))
    error = refusal(tmp_path / "mine")
    assert error.place.endswith("nodes.author.count") and error.expected == "30 nodes, one per id"


def test_a_table_without_ids_counts_nodes_whatever_its_columns_are(tmp_path):
    write_described(tmp_path / "mine", sample())
    member("nodes", "institution", file="institution.parquet", count=None)(tmp_path / "mine")
    table(tmp_path / "mine" / "institution.parquet", rows=[[0.5, 1.5]] * 5)
    assert_holds(imported(tmp_path / "mine"), sample())


@pytest.mark.parametrize("ids", [["x", "y", "x"], [3, 4, 3]])
def test_an_id_of_two_nodes_is_refused(tmp_path, ids):
    write_described(tmp_path / "mine", sample(), ids="texts")
    table(tmp_path / "mine" / "author.parquet", id=ids)
    error = refusal(tmp_path / "mine")
    assert "author.parquet: column id" in error.place and error.found == f"{ids[0]} in 2 rows"


def test_ids_need_memory(tmp_path):
    write_described(tmp_path / "mine", sample(), ids="numbers")
    table(tmp_path / "mine" / "author.parquet", id=np.arange(600_000))
    error = refusal(tmp_path / "mine", memory=16_000_000)
    assert error.place == "--memory" and "for the ids" in error.expected


@pytest.mark.parametrize("found", ["nodes", "paper", "file"])
def test_a_key_given_twice_is_refused(tmp_path, found):
    """YAML's reader would keep the last one."""
    lines = ["nodes:", "  paper: {count: 3}", "  author: &same", "    file: a.csv", "edges: []", "more: *same"]
    again = {"nodes": "nodes: {paper: {count: 4}}", "paper": "  paper: {count: 4}", "file": "    file: b.csv"}
    at = {"nodes": 6, "paper": 4, "file": 4}[found]
    (tmp_path / "graph.yaml").write_text(
        "\n".join([*lines[:5][:at], again[found], *lines[:5][at:]]).replace("&same", "")
    )
    error = refusal(tmp_path, format="yaml")
    assert (error.expected, error.found) == ("each key once in its mapping", f"line {min(at, 5) + 1}: {found} again")
