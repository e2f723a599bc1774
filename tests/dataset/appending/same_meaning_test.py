"""What comes to a data set means what it did in the first import: its columns, labels and times, or it is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from random_graphs import files_of

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset import append, append_from_tables, from_tables, import_graph
from cohort_gnn.dataset.columns import Columns, first_difference, read_columns
from cohort_gnn.dataset.importing.beside import SourceOptions

FILES = {
    "nodes": "age,pay,a,b,since\n10.5,1.5,1,0,1\n30,2.5,0,1,2\n50.5,3.5,1,1,2\n",
    "edges": "src,dst,f,g,day,t\n0,1,1,2,2020-01-01,20\n1,2,3,4,2020-01-05,30\n2,0,5,6,2020-02-01,40\n",
    "more-nodes": "b,a,pay,age,since\n1,0,4.5,70.5,4\n",
    "more-edges": "src,dst,g,f,day,t\n0,2,8,7,2020-03-01,50\n",
}
GRAPH = "name: same\nnodes: {{{nodes}}}\nedges: [{{type: [u, e, u], file: {file}{edges}}}]\n"
DAYS, SECONDS = (f", time: day, time_unit: {unit}, time_zone: UTC" for unit in ("days", "s"))
DECLARED = "[{column: age, standardize: true}]"


@pytest.fixture
def folder(tmp_path) -> Path:
    for name, text in FILES.items():
        (tmp_path / f"{name}.csv").write_text(text)
    return tmp_path


def described(folder: Path, name: str, nodes: str | None, edges: str = "") -> Path:
    """graph.yaml of the first tables, or of those that come; `nodes`, `edges`: what is read beside the ends."""
    more = "more-" if name == "more" else ""
    files = "" if nodes is None else f"u: {{file: {more}nodes.csv{nodes}}}"
    (folder / f"{name}.yaml").write_text(GRAPH.format(nodes=files, file=f"{more}edges.csv", edges=edges))
    return folder / f"{name}.yaml"


PLAIN = ", features: [age, pay]"
CASES = {
    "columns": ((PLAIN, ""), (", features: [pay, age]", ""), "features of node: expected age as column 0.*found pay"),
    "a column less": ((PLAIN, ""), (", features: [age]", ""), "expected pay as column 1.*found no column"),
    "columns of edges": (
        (PLAIN, ", features: [f, g]"),
        (None, ", features: [g, f]"),
        "features of node.to.node: expected f as column 0.*found g",
    ),
    "declared columns": (
        (f", features: {DECLARED}", ""),
        (", features: [age]", ""),
        "expected columns of node declared as in .*found rows as they are",
    ),
    "declared columns of edges": (
        (PLAIN, ", features: [{column: f, standardize: true}]"),
        (None, ", features: [f]"),
        "expected columns of node.to.node declared as in .*found rows as they are",
    ),
    "labels": (
        (f"{PLAIN}, label: [a, b]", ""),
        (f"{PLAIN}, label: [b, a]", ""),
        "expected the labels of .*: a, b, found b, a",
    ),
    "unit": ((PLAIN, DAYS), (None, SECONDS), "time_unit: expected the unit of the times of .*: days, found s"),
    "unit of nodes": (
        (f"{PLAIN}, time: since", DAYS),
        (f"{PLAIN}, time: since, time_unit: s", ", time: t"),
        "expected the unit of the times of .*: days, found s",
    ),
    "times of edges": (
        (f"{PLAIN}, time: since", ", time: t"),
        (None, ""),
        "times: expected edges with times, as .* has, found none",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_means_something_else_is_refused(folder, name):
    first, more, text = CASES[name]
    task = "multilabel" if name == "labels" else "classification"
    import_graph(described(folder, "first", *first), folder / "data", task=task)
    before = files_of(folder / "data")
    with pytest.raises(CohortError, match=text):
        append(folder / "data", edges=described(folder, "more", *more), split=(1, 0, 0))
    assert files_of(folder / "data") == before


def test_columns_of_another_order_are_taken_by_their_names(folder):
    """From a table that has them in another order, as an import of a table of all rows takes them."""
    names = ["age", "pay"]
    (folder / "whole.csv").write_text(FILES["nodes"] + "70.5,4.5,0,1,4\n")
    for data, table in (("data", "nodes"), ("fresh", "whole")):
        inputs = SourceOptions(features=folder / f"{table}.csv", feature_columns=names)
        import_graph(folder / "edges.csv", folder / data, inputs=inputs)
    append(folder / "data", inputs=SourceOptions(features=folder / "more-nodes.csv", feature_columns=names))
    assert files_of(folder / "data") == files_of(folder / "fresh")
    np.save(folder / "x.npy", np.ones((1, 2), np.float32))
    append(folder / "data", inputs=SourceOptions(features=folder / "x.npy"))  # an array has no names


def test_edges_without_times_exist_from_their_source_on(folder):
    import_graph(described(folder, "first", f"{PLAIN}, time: since"), folder / "data")
    append(folder / "data", edges=described(folder, "more", None))
    assert np.load(folder / "data" / "edge_times.npy").tolist() == [2, 1, 1, 2]


def test_numbers_that_may_be_names_of_classes_are_refused(folder):
    import_graph(described(folder, "first", f"{PLAIN}, label: a, classes: ['1', '0']"), folder / "data")
    assert np.load(folder / "data" / "labels.npy").tolist() == [0, 1, 0]
    with pytest.raises(CohortError, match="column a: expected names of the classes of .*: 1, 0, found numbers"):
        append(folder / "data", edges=described(folder, "more", f"{PLAIN}, label: a"), split=(1, 0, 0))
    append(folder / "data", edges=described(folder, "more", f"{PLAIN}, label: b, classes: ['0', '1']"), split=(1, 0, 0))
    assert np.load(folder / "data" / "labels.npy").tolist() == [0, 1, 0, 0], "by their names, whatever their order"


def test_models_are_for_columns_of_the_same_names(folder):
    known = {}
    for name, features in (("a", "[age, pay]"), ("b", "[pay, age]"), ("c", "[age, pay]")):
        source = described(
            folder, name, f", features: {features}", f", features: {'[g, f]' if name == 'c' else '[f, g]'}"
        )
        import_graph(source, folder / f"data-{name}")
        known[name] = read_columns(folder / f"data-{name}")
    assert known["a"].plain == {"node": ["age", "pay"], "node.to.node": ["f", "g"]}
    differences = [first_difference(known["a"], other) for other in (*known.values(), Columns())]
    assert differences == [None, "features", "features of edges", None], "arrays have no names"


def test_columns_from_another_data_set_are_declared_again(folder):
    import_graph(described(folder, "first", f", features: {DECLARED}"), folder / "data")
    source = described(folder, "plain", f"{PLAIN}, label: a")
    with pytest.raises(CohortError, match="declared as in .*found rows as they are"):
        import_graph(source, folder / "other", columns_from=folder / "data")
    np.save(folder / "x.npy", np.ones((3, 2), np.float32))
    inputs = SourceOptions(features=folder / "x.npy")
    import_graph(folder / "edges.csv", folder / "arrays", inputs=inputs)
    with pytest.raises(CohortError, match="--columns-from: expected columns or classes with names, found none"):
        import_graph(folder / "edges.csv", folder / "other", inputs=inputs, columns_from=folder / "arrays")


def test_ids_of_new_rows_go_on_where_those_before_end(folder):
    """A column of ids has the numbers of the new nodes: with those of nodes that are there, it is refused."""
    frame = pd.DataFrame({"id": np.arange(8), "a": np.arange(8) / 2, "y": [0, 1] * 4})
    keys = {"features": ["a"], "label": "y"}
    edges = pd.DataFrame({"a": [0, 1], "b": [1, 2]})
    from_tables(
        folder / "data",
        nodes={"u": {"table": frame[:3]} | keys},
        edges={("u", "e", "u"): {"table": edges, "source": "a", "target": "b"}},
    )
    for some in (frame[:2], frame[4:6]):
        with pytest.raises(CohortError, match=r"expected row i to be node 3 \+ i"):
            append_from_tables(folder / "data", nodes={"u": {"table": some} | keys}, split=(1, 0, 0))
    append_from_tables(folder / "data", nodes={"u": {"table": frame[3:5]} | keys}, split=(1, 0, 0))
    columns = {"feature_columns": ["a"], "label_columns": ["y"]}
    for name, some in (("csv", frame[5:7]), ("parquet", frame[7:].drop(columns="id"))):  # with an index of pandas, too
        file = folder / f"more.{name}"
        some.to_csv(file, index=False) if name == "csv" else some.to_parquet(file)
        append(folder / "data", inputs=SourceOptions(features=file, labels=file, **columns), split=(1, 0, 0))
        with pytest.raises(CohortError, match=r"expected row i to be node \d \+ i"):
            append(folder / "data", inputs=SourceOptions(features=file, labels=file, **columns), split=(1, 0, 0))
    assert np.load(folder / "data" / "features.npy")[:, 0].tolist() == frame["a"].tolist()
    frame[:1].drop(columns="id").to_csv(folder / "counted.csv")  # a frame of its own: pandas counts its rows
    append(folder / "data", inputs=SourceOptions(features=folder / "counted.csv", feature_columns=["a"]))


@pytest.mark.parametrize("source", ["table", "rename", "node_ids"])
def test_ids_that_were_not_kept_are_not_taken_for_numbers(folder, source):
    """Ids are 2, 1, 0: the edge 2 -> 1 of ids is 0 -> 1 of nodes."""
    users = pd.DataFrame({"id": [2, 1, 0], "a": [0.5, 1, 1.5]})
    edges = pd.DataFrame({"src": [2, 1], "dst": [1, 0]})
    relation = ("u", "e", "u")
    if source == "table":
        nodes = {"u": {"table": users, "id": "id", "features": ["a"]}}
        from_tables(folder / "data", nodes=nodes, edges={relation: {"table": edges}}, ids=False)
    else:
        edges.to_csv(folder / "first.csv", index=False)
        np.save(folder / "ids.npy", users["id"])
        inputs = {"node_ids": folder / "ids.npy"} if source == "node_ids" else {}
        options = {"rename": True} if source == "rename" else {}
        import_graph(
            folder / "first.csv", folder / "data", inputs=SourceOptions(features="ones", **inputs), ids=False, **options
        )
    assert not list((folder / "data").glob("id_of_node*"))
    before, more = files_of(folder / "data"), pd.DataFrame({"src": [2], "dst": [2]})
    more.to_csv(folder / "more.csv", index=False)
    for wanted in ({"edges": folder / "more.csv"}, {"remove_edges": folder / "more.csv"}):
        with pytest.raises(CohortError, match="(?s)expected ids of the nodes of .*--no-ids.*these edges have numbers"):
            append(folder / "data", **wanted)
    with pytest.raises(CohortError, match="these edges have numbers"):
        append_from_tables(folder / "data", edges={relation: {"table": more}})
    assert files_of(folder / "data") == before
    append(folder / "data", edges=folder / "more.csv", ids=False)
    assert np.load(folder / "data" / "indices.npy")[-1] == 2


def test_other_types_are_not_taken_for_the_only_one(folder):
    """A graph of one type keeps no names in its files, and yet shops are no users."""
    users = {"table": pd.DataFrame({"id": ["a", "b"], "x": [1.0, 2.0]}), "id": "id", "features": ["x"]}
    ends = {"table": pd.DataFrame({"src": ["a"], "dst": ["b"]})}
    from_tables(folder / "data", nodes={"user": users}, edges={("user", "pays", "user"): ends})
    shops = users | {"table": pd.DataFrame({"id": ["s"], "x": [3.0]})}
    for nodes, edges, odd in (
        ({"shop": shops}, {}, "shop"),
        ({}, {("user", "likes", "user"): ends}, "user, likes, user"),
    ):
        with pytest.raises(CohortError, match=f"expected user, pays, user, as in .*, found {odd}"):
            append_from_tables(folder / "data", nodes=nodes, edges=edges)
    append_from_tables(folder / "data", nodes={"user": shops}, edges={("user", "pays", "user"): ends})
    assert np.load(folder / "data" / "features.npy")[:, 0].tolist() == [1, 2, 3]


def test_numbers_of_nodes_need_no_option(folder):
    (folder / "more.csv").write_text("src,dst\n0,2\n")
    import_graph(folder / "more.csv", folder / "data", inputs=SourceOptions(features="ones"), ids=False)
    append(folder / "data", edges=folder / "more.csv")
    assert np.load(folder / "data" / "indices.npy").tolist() == [0, 0]
    with pytest.raises(CohortError, match="--no-ids: expected a data set that was imported with --no-ids"):
        append(folder / "data", edges=folder / "more.csv", ids=False)


def test_edges_do_not_turn_round(folder):
    """Columns in another order, of names that do not say which is the source."""
    np.save(folder / "x.npy", np.ones((3, 1), np.float32))
    (folder / "first.csv").write_text("buyer,seller\n0,1\n1,2\n2,0\n")
    (folder / "more.csv").write_text("seller,buyer\n1,0\n")
    import_graph(folder / "first.csv", folder / "data", inputs=SourceOptions(features=folder / "x.npy"))
    for options in ({"edges": folder / "more.csv"}, {"remove_edges": folder / "more.csv"}):
        with pytest.raises(CohortError, match="expected buyer -> seller, as in .*found seller -> buyer") as refused:
            append(folder / "data", **options)
        assert "--columns buyer,seller" in refused.value.hint
    append(folder / "data", edges=folder / "more.csv", inputs=SourceOptions(columns=["buyer", "seller"]))
    assert np.load(folder / "data" / "indices.npy").tolist() == [2, 0, 0, 1]


def test_texts_name_files_too(folder):
    columns = {"feature_columns": ["age", "pay"], "id_column": "none"}
    of_paths, of_texts = (SourceOptions(features=kind(folder / "nodes.csv"), **columns) for kind in (Path, str))
    assert of_texts == of_paths
    import_graph(folder / "edges.csv", folder / "data", inputs=of_texts)
    inputs = SourceOptions(features=str(folder / "nowhere.npy"), splits=["a.npy", "b.npy", "c.npy"])
    with pytest.raises(CohortError, match="nowhere.npy: expected the file that --features names, found no such file"):
        append(folder / "data", inputs=inputs)
