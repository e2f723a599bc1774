"""Columns of ids, and which column is the source of an edge: said by a name or an option, or asked for."""

from __future__ import annotations

import os

import import_helpers
import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest
from import_helpers import edge_pairs, refusal
from rules_test import edges, imported, refused  # noqa: F401

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset import from_tables
from cohort_gnn.dataset import open as open_dataset
from cohort_gnn.dataset.tables.column_names import end_columns, is_id_name

ANY_NAME = "movie,label\n2,0\n0,2\n1,1\n"


def test_rows_in_the_order_of_ids_are_asked_for(tmp_path, edges):  # noqa: F811
    error = refused(edges, {"labels": ANY_NAME}, label_columns=["label"])
    assert error.expected == "row i to be node i: movie 0 in row 0" and error.found == "movie 2"
    assert "--id-column labels=movie:" in error.hint and "--id-column labels=none" in error.hint
    of_ids = imported(edges, {"labels": ANY_NAME}, id_column="movie")
    of_rows = imported(edges, {"labels": ANY_NAME}, id_column="none", label_columns=["label"])
    assert of_ids.y.tolist() == [2, 1, 0] and of_rows.y.tolist() == [0, 2, 1]
    sorted_ = "movie,label\n0,2\n1,1\n2,0\n"
    assert imported(edges, {"labels": sorted_}, label_columns=["label"]).y.tolist() == [2, 1, 0]


def test_features_with_ids_say_which_nodes_they_are_of(tmp_path):
    (tmp_path / "e.csv").write_text("src,dst\n70,50\n50,60\n")
    text = "movie,f\n60,0.5\n70,1.5\n50,1.5\n"
    assert (
        "movie among them, integers of which none comes twice" in refused(tmp_path / "e.csv", {"features": text}).found
    )
    files = {"features": text, "labels": "movie,label\n50,1\n60,0\n"}
    data = imported(tmp_path / "e.csv", files, id_column="movie")
    assert data.x[:, 0].tolist() == [0.5, 1.5, 1.5] and data.y.tolist() == [0, -1, 1]
    assert edge_pairs(data) == [(2, 0), (1, 2)]
    files["labels"] = "movie,label\n50,1\n50,0\n"
    assert "an id named once" in refused(tmp_path / "e.csv", files, id_column="movie").expected
    files["labels"] = "movie,label\n50,1\n80,0\n"
    assert "the id of a node" in refused(tmp_path / "e.csv", files, id_column="movie").expected


@pytest.mark.parametrize("name", ["__index_level_0__", "user"])
def test_an_index_of_pandas_is_a_column_of_ids(tmp_path, edges, name):  # noqa: F811
    index = b'{"index_columns": ["%b"], "columns": []}' % name.encode()
    table = pa.table({"f": [0.5, 0.5, 1.5], name: [2, 2, 0]}).replace_schema_metadata({b"pandas": index})
    pq.write_table(table, tmp_path / "x.parquet")
    assert f"{name} among them" in refused(edges, features=tmp_path / "x.parquet").found
    chosen = {"features": tmp_path / "x.parquet", "feature_columns": ["f"]}
    assert f"{name} 2" in refused(edges, **chosen).found
    assert imported(edges, **chosen, id_column="none").x[:, 0].tolist() == [0.5, 0.5, 1.5]


def test_an_index_of_pandas_may_be_a_range(tmp_path, edges):  # noqa: F811
    for start, stop, step in ((0, 3, 1), (2, -1, -1), (3, 6, 1)):
        index = f'{{"index_columns": [{{"kind": "range", "start": {start}, "stop": {stop}, "step": {step}}}]}}'
        table = pa.table({"f": [0.5, 0.5, 1.5]}).replace_schema_metadata({b"pandas": index.encode()})
        pq.write_table(table, tmp_path / "x.parquet")
        if step == 1 and not start:
            imported(edges, features=tmp_path / "x.parquet")
            continue
        for of in ("features", "labels"):
            error = refused(edges, task="regression", **{of: tmp_path / "x.parquet"})
            assert f"from {start} in steps of {step}" in error.found and f"--id-column {of}=none" in error.hint


def test_other_integers_are_not_asked_about_where_a_name_says_ids(tmp_path, edges):  # noqa: F811
    text = "id,f,label\n0,7,1\n1,9,0\n2,8,1\n"
    assert imported(edges, {"labels": text}, label_columns=["label"]).y.tolist() == [1, 0, 1]


@pytest.mark.parametrize("header", [",f,g", "Unnamed: 0,f,g", "index,f,g", "nodeId,f,g"])
def test_an_index_in_text_is_no_feature(tmp_path, edges, header):  # noqa: F811
    text = f"{header}\n2,1,1\n0,1,1\n0,1,1\n"
    assert "among them" in refused(edges, {"features": text}).found
    assert "in row 0" in refused(edges, {"features": text}, feature_columns=["f", "g"]).expected


def test_rows_are_not_given_to_renamed_nodes(tmp_path, run, capsys):
    (tmp_path / "e.csv").write_text("src,dst\n500,400\n400,300\n")
    np.save(tmp_path / "x.npy", np.array([[5.0], [4.0], [3.0]]))
    np.save(tmp_path / "ids.npy", np.array([500, 400, 300]))
    source, out = tmp_path / "e.csv", tmp_path / "out"
    for given in ({"features": tmp_path / "x.npy"}, {"features": "ones", "labels": tmp_path / "ids.npy"}):
        error = refused(source, **given, rename=True)
        assert (error.place, error.expected) == (
            "--rename",
            "edges alone, as rows do not say whose they are",
        ) and "--node-ids FILE" in error.hint
    assert run("import", source, out, "--features", tmp_path / "x.npy") == 1
    assert "--node-ids FILE" in capsys.readouterr().err
    assert run("import", source, out, "--features", tmp_path / "x.npy", "--node-ids", tmp_path / "ids.npy") == 0
    assert edge_pairs(out) == [(0, 1), (1, 2)]
    labels = tmp_path / "y.csv"
    labels.write_text("id,label\n500,1\n300,0\n")
    command = ["--features", "ones", "--labels", labels, "--id-column", "id", "--rename", "--overwrite"]
    assert run("import", source, out, *command) == 0
    assert open_dataset(out).y.tolist() == [0, -1, 1]


def test_names_say_the_direction(tmp_path):
    (tmp_path / "e.csv").write_text("destination_id,source_id\n1,0\n2,1\n")
    assert edge_pairs(imported(tmp_path / "e.csv")) == [(0, 1), (1, 2)]
    for header in ("target,a", "a,source", "to,a", "dst_user,src_user", "node2,node1", "nodeTo,a"):
        (tmp_path / "e.csv").write_text(f"{header}\n1,0\n")
        assert "--columns" in refused(tmp_path / "e.csv").hint
    for header in ("node1,node2", "v1,v2", "src_user,dst_user", "a,b"):
        (tmp_path / "e.csv").write_text(f"{header}\n0,1\n")
        assert edge_pairs(imported(tmp_path / "e.csv")) == [(0, 1)]
    (tmp_path / "e.csv").write_text("src,dst,from,to\n1,0,1,0\n")
    assert "one pair of columns" in refused(tmp_path / "e.csv").expected
    (tmp_path / "e.csv").write_text("5,0,1\n6,1,2\n")  # an index, and edges
    assert "two columns" in refused(tmp_path / "e.csv", header="no").expected


@pytest.mark.parametrize(
    ("names", "ends"),
    [
        (["dst", "src"], (1, 0)),
        (["w", "FromNodeId", "ToNodeId"], (1, 2)),
        ([":END_ID", ":START_ID"], (1, 0)),
        (["targetId", "sourceId"], (1, 0)),
        (["node_dst", "node_src", "", "x"], (1, 0)),
        (["v", "u"], (1, 0)),
        (["object", "predicate", "subject"], (2, 0)),
        (["col", "row", "value"], (1, 0)),
    ],
)
def test_ends_of_edges_are_known_by_their_names(names, ends):
    assert end_columns(names) == [ends]


def test_types_say_the_direction():
    assert end_columns(["product_id", "customer_id"], ("customer", "product")) == [(1, 0)]
    assert end_columns(["product_id", "customer_id"]) == []


def test_ids_are_known_by_their_names():
    assert all(map(is_id_name, ["id", "nodeId", "NODE_ID", "__index_level_1__", "Index", "vertex"]))
    assert not any(map(is_id_name, ["f0", "valid", "grid", "x", ""]))


# --- graph.yaml -------------------------------------------------------------------------------------------------------


def described(folder, nodes: str, relation: str, **files: str):
    pytest.importorskip("yaml")
    for name, text in files.items():
        (folder / f"{name}.csv").write_text(text)
    (folder / "graph.yaml").write_text(f"target: a\nnodes:\n  a: {nodes}\n  b: {{count: 3}}\nedges:\n  - {relation}\n")
    return folder / "graph.yaml"


BETWEEN = "{type: [a, to, b], file: e.csv}"


def pairs(source) -> list[tuple[int, int]]:
    """The edges of what a description becomes."""
    relation = import_helpers.imported(source).edge_types["a", "to", "b"]
    return sorted(map(tuple, relation.edge_index().T.tolist()))


def test_a_description_has_the_same_rules(tmp_path):
    source = described(tmp_path, "{count: 3}", BETWEEN, e="0,1\n1,2\n2,1\n")
    error = refusal(source)
    assert "which may be either" in error.found and "header: yes" in error.hint
    described(tmp_path, "{count: 3}", "{type: [a, to, b], file: e.csv, header: no}")
    assert pairs(source) == [(0, 1), (1, 2), (2, 1)]
    relation = "{type: [a, to, b], file: e.csv, comment: '#', separator: semicolon}"
    described(tmp_path, "{count: 3}", relation, e="# c\nb;a\n1;0\n# d\n2;1\n")
    assert pairs(source) == [(0, 1), (1, 2)]


@pytest.mark.parametrize("nodes", ["{file: n.csv, id: '0'}", "{file: n.csv, id: '0', features: ['1'], split: '2'}"])
def test_texts_of_a_description_do_not_tell_a_row_from_names(tmp_path, nodes):
    relation = "{type: [a, to, b], file: e.csv, source: a, target: b}"
    files = {"n": "x 1,5,train\nx 2,6,val\nx 3,6,test\n", "e": "a,b\nx 2,0\nx 3,2\n"}
    assert "which may be either" in refusal(described(tmp_path, nodes, relation, **files)).found
    assert pairs(described(tmp_path, nodes.replace("}", ", header: no}"), relation)) == [(1, 0), (2, 2)]
    named = described(tmp_path, nodes.replace("}", ", header: yes}"), relation, n="key,f,part\n" + files["n"])
    assert pairs(named) == [(1, 0), (2, 2)]


def test_ids_of_a_description_may_have_blanks_and_marks(tmp_path):
    relation = "{type: [a, to, b], file: e.csv, source: city, target: shop}"
    files = {"n": "city\nNew York\n#Rome\nBern\n", "e": "city,shop\nNew York,0\n#Rome,2\n"}
    assert pairs(described(tmp_path, "{file: n.csv, id: city}", relation, **files)) == [(0, 0), (1, 2)]


def test_a_description_asks_for_ids(tmp_path):
    files = {"n": "movie,f\n2,1\n0,1\n1,1\n", "e": "a,b\n0,0\n1,2\n"}
    error = refusal(described(tmp_path, "{file: n.csv, features: [f]}", BETWEEN, **files))
    assert "row i to be node i" in error.expected and "id: none" in error.hint
    for ids, wanted in (("none", [(0, 0), (1, 2)]), ("movie", [(1, 0), (2, 2)])):
        assert pairs(described(tmp_path, f"{{file: n.csv, features: [f], id: {ids}}}", BETWEEN)) == wanted


@pytest.mark.parametrize("label", ["is_fraud", "[is_fraud]"])
def test_one_of_several_labels_may_be_described(tmp_path, label):
    files = {"n": "f,is_fraud\n1,1\n2,0\n2,1\n", "e": "a,b\n0,0\n1,2\n"}
    source = described(tmp_path, f"{{file: n.csv, features: [f], label: {label}}}", BETWEEN, **files)
    assert import_helpers.imported(source, task="multilabel").y.tolist() == [[1], [0], [1]]


def test_a_description_stays_in_its_folder_and_waits_for_nobody(tmp_path, run, capsys):
    (tmp_path / "in").mkdir()
    (tmp_path / "e.csv").write_text("a,b\n0,1\n")
    os.mkfifo(tmp_path / "in" / "e.csv")
    (tmp_path / "in/link.csv").symlink_to("e.csv")
    outside = "in the folder"
    for file, words in (
        ("../e.csv", outside),
        (tmp_path / "e.csv", outside),
        ("e.csv", "a pipe"),
        ("link.csv", "a pipe"),
    ):
        source = described(tmp_path / "in", "{count: 3}", f"{{type: [a, to, b], file: {file}}}")
        assert words in str(refusal(source))
    assert run("import", source, tmp_path / "out", "--rename") == 1  # before a file is read
    assert "the key id of a node type names its column" in " ".join(capsys.readouterr().err.split())


def test_a_link_in_the_folder_of_a_description_is_followed(tmp_path):
    """As SECURITY.md says, and the cure of a name that leads out."""
    (tmp_path / "in").mkdir()
    (tmp_path / "e.csv").write_text("a,b\n0,1\n2,1\n")
    (tmp_path / "in/linked.csv").symlink_to(tmp_path / "e.csv")
    source = described(tmp_path / "in", "{count: 3}", "{type: [a, to, b], file: linked.csv}")
    assert pairs(source) == [(0, 1), (2, 1)]


@pytest.mark.parametrize(
    ("ids", "found", "cure"),
    [
        (pa.array([1.0, 2.5]), "double", "BIGINT"),
        (pa.array([True, False]), "bool", "VARCHAR"),
        (pa.array([[1], [2]]), "list", "VARCHAR"),
        (pa.array([1, 2], pa.date32()), "date32", "VARCHAR"),
    ],
)
def test_ids_of_other_types_name_their_column_and_a_cure(tmp_path, ids, found, cure):
    source = described(tmp_path, "{file: n.parquet, id: key}", BETWEEN, e="a,b\n0,0\n")
    pq.write_table(pa.table({"key": ids}), tmp_path / "n.parquet")
    error = refusal(source)
    assert error.place.endswith("column key") and error.expected.startswith("integers")
    assert found in error.found and f"CAST(key AS {cure})" in error.hint


@pytest.mark.parametrize(("odd", "there"), [("b ", "b"), ("B", "b"), ("e\u0301", "é"), ("Ulm", "ULM")])
def test_ids_that_are_almost_those_of_a_node_are_named(tmp_path, odd, there):
    """Blanks, case and composed letters: what they would be is said, and whoever wants to leaves them out."""
    nodes = {"n": {"table": pa.table({"id": ["a", "b", "é", "ULM"]}), "id": "id", "features": "ones"}}
    relation = {("n", "e", "n"): {"table": pa.table({"src": ["a", odd], "dst": ["b", "a"]})}}
    with pytest.raises(CohortError) as error:
        from_tables(tmp_path / "out", nodes=nodes, edges=relation)
    assert f"there is {there!r}, written otherwise than {odd!r}" in error.value.hint
    nodes["n"] |= {"table": pa.table({"id": ["a", "b", "é", "ULM"], "up": ["a", odd, "b", None]})}
    nodes["n"] |= {"keys": [{"column": "up", "to": "n"}]}
    with pytest.raises(CohortError, match=f"there is {there!r}, written otherwise.*unknown_ids: skip"):
        from_tables(tmp_path / "out", nodes=nodes)


def test_texts_that_are_one_number_say_so(tmp_path):
    table = pa.table({"id": ["007", "7", "8"]})
    relation = {("n", "e", "n"): {"table": pa.table({"src": ["007"], "dst": ["8"]})}}
    with pytest.raises(CohortError, match="(?s)found 7 in 2 rows.*compared as numbers, 007 as 7"):
        from_tables(tmp_path / "out", nodes={"n": {"table": table, "id": "id", "features": "ones"}}, edges=relation)


@pytest.mark.parametrize("table", [{"id": [1]}, [{"id": 1}], np.array([[1.0]]), "users.csv"])
def test_what_is_no_table_says_what_makes_one(tmp_path, table):
    cure = "pyarrow.dataset.dataset" if isinstance(table, str) else "pandas.DataFrame"
    with pytest.raises(CohortError, match=cure):
        from_tables(tmp_path / "out", nodes={"n": {"table": table, "features": ["id"]}}, edges={})


@pytest.mark.parametrize("name", ["id", "nr"])
def test_integers_in_texts_are_ids_in_every_kind_of_table(tmp_path, name):
    np.save(tmp_path / "e.npy", np.array([[0, 1], [1, 2]]))
    table = pa.table({name: ["2", "0", "1"], "x": [2.0, 0.0, 1.0]})
    pq.write_table(table, tmp_path / "x.parquet")
    csv.write_csv(table, tmp_path / "x.csv")
    text = "edges: [{type: [a, to, a], file: e.npy}]\ntarget: a\nnodes: {a: {file: FILE, features: [x]}}\n"
    for file in ("x.csv", "x.parquet"):
        (tmp_path / "graph.yaml").write_text(text.replace("FILE", file))
        error = refused(tmp_path / "graph.yaml")
        assert f"{name} 0 in row 0" in error.expected and f"id: {name}:" in error.hint
    for others in (["b", "a", "2"], [b"\xff", b"\xfe", b"2"], ["2", None, "1"]):
        pq.write_table(pa.table({name: others, "x": [2.0, 0.0, 1.0]}), tmp_path / "x.parquet")
        assert import_helpers.imported(tmp_path / "graph.yaml").x.ravel().tolist() == [2.0, 0.0, 1.0]
