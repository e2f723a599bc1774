"""Columns of a table of features or labels: which are taken, which are refused, and how others are chosen."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from edge_list_test import write_parquet
from import_helpers import imported, refusal

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset import open as open_dataset
from cohort_gnn.dataset.arrays import NUMBERS_HINT
from cohort_gnn.dataset.tables.table import choose_columns, spans

X = np.arange(12.0).reshape(4, 3)
Y = np.array([2, 0, 1, 0])


@pytest.fixture
def source(tmp_path) -> Path:
    np.save(tmp_path / "e.npy", np.array([[0, 1, 2, 3], [1, 2, 3, 0]]))
    return tmp_path / "e.npy"


def write_nodes(folder: Path, kind: str, header: bool = True, ids=range(4)) -> Path:
    """A table of id, f0, f1, f2 and label."""
    path = folder / f"nodes.{kind}"
    if kind == "parquet":
        write_parquet(path, id=np.array(ids), **{f"f{i}": X[:, i] for i in range(3)}, label=Y)
        return path
    lines = [f"{i},{','.join(map(str, row))},{y}" for i, row, y in zip(ids, X, Y, strict=True)]
    path.write_text("\n".join(["id,f0,f1,f2,label"] * header + lines) + "\n")
    return path


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_ids_and_labels_are_no_features(tmp_path, source, kind):
    error = refusal(source, features=write_nodes(tmp_path, kind))
    assert error.found == "id and label among them" and "--feature-columns f0:f2;" in error.hint


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_columns_of_one_table_become_features_and_labels(tmp_path, source, kind, run, capsys):
    nodes = write_nodes(tmp_path, kind)
    options = ["--features", nodes, "--feature-columns", "f0:f2", "--labels", nodes, "--label-columns", "label"]
    assert run("import", source, tmp_path / "out", *options) == 0
    data = open_dataset(tmp_path / "out")
    np.testing.assert_array_equal(data.x, X)
    np.testing.assert_array_equal(data.y, Y)
    said = capsys.readouterr().err
    assert f"nodes.{kind}: 3 of 5 columns taken as features: f0, f1, f2\n" in said
    assert "splits: train 2, val 1, test 1 (random, seed 0)\nedges: directed (0 % " in said
    assert said.splitlines()[-1].startswith(f"{tmp_path / 'out'}: 4 nodes, 4 edges, 3 x float32, 3 classes, written in")


@pytest.mark.parametrize("title", ['he said ""hi"", twice', "name"])
def test_fields_in_quotes_may_hold_separators(tmp_path, source, title):
    lines = [f'"a, ""b"", {y}",{",".join(map(str, row))},"{y}"' for row, y in zip(X, Y, strict=True)]
    nodes = tmp_path / "nodes.csv"
    nodes.write_text("\n".join([f'"{title}",f0,f1,f2,label', *lines]) + "\n")
    inputs = {"features": nodes, "feature_columns": ["f0:f2"], "labels": nodes, "label_columns": ["label"]}
    data = imported(source, **inputs)
    np.testing.assert_array_equal(data.x, X)
    np.testing.assert_array_equal(data.y, Y)
    nodes.write_text(nodes.read_text().replace('"1"', '"one"'))
    assert refusal(source, **inputs).place.endswith("nodes.csv: line 4")


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_texts_as_features_are_refused_without_a_word_on_ids(tmp_path, source, kind):
    (tmp_path / "nodes.csv").write_text("f0,f1\n" + "1,red\n" * 4)
    write_parquet(tmp_path / "nodes.parquet", f0=[1] * 4, f1=["red"] * 4)
    error = refusal(source, features=tmp_path / f"nodes.{kind}")
    assert error.hint.startswith(NUMBERS_HINT) and "id-column" not in error.hint


def test_all_columns_are_taken_aloud(tmp_path, source):
    notes = []
    names = ",".join(f"f{i}" for i in range(9))
    np.savetxt(tmp_path / "x.csv", np.ones((4, 9)), delimiter=",", header=names, comments="")
    imported(source, features=tmp_path / "x.csv", note=notes.append)
    assert notes[0] == "x.csv: 9 columns taken as features: f0, f1, ..., f8"


@pytest.mark.parametrize("wanted", [["1", "3"], ["1:1", "3"]])
def test_columns_may_be_numbers_and_others_text(tmp_path, source, wanted):
    (tmp_path / "x.csv").write_text("".join(f"user{i},{i},friend,{2 * i}\n" for i in range(4)))
    data = imported(source, features=tmp_path / "x.csv", feature_columns=wanted, header="no")
    np.testing.assert_array_equal(data.x, np.arange(4)[:, None] * [1, 2])


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_table_of_labels_with_ids_asks_for_its_column(tmp_path, source, kind):
    if kind == "csv":
        (tmp_path / "y.csv").write_text("id,label\n" + "".join(f"{i},{y}\n" for i, y in enumerate(Y)))
    else:
        write_parquet(tmp_path / "y.parquet", id=np.arange(4), label=Y)
    for task in ("classification", "multilabel"):
        error = refusal(source, features=Path("ones"), labels=tmp_path / f"y.{kind}", task=task)
        assert error.found == "id, label" and "--label-columns label takes" in error.hint
        assert "multilabel" not in error.hint


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("part", ["features", "labels"])
def test_rows_in_another_order_than_their_ids_are_refused(tmp_path, source, kind, part):
    nodes = write_nodes(tmp_path, kind)
    inputs = {part: nodes, f"{part.removesuffix('s')}_columns": ["f0"]}
    if part == "labels":
        np.save(tmp_path / "x.npy", X)
        inputs["features"] = tmp_path / "x.npy"
    imported(source, **inputs)
    write_nodes(tmp_path, kind, ids=[0, 2, 1, 3])
    with pytest.raises(CohortError, match="row i to be node i: id 1 in row 1, found id 2") as error:
        imported(source, **inputs)
    assert "sort the table by id" in error.value.hint


def test_labels_that_are_ids_are_refused(tmp_path, source):
    np.save(tmp_path / "y.npy", Y + 2**40)
    np.save(tmp_path / "x.npy", X)
    with pytest.raises(CohortError, match="labels: expected at most 1000000 classes") as error:
        imported(source, features=tmp_path / "x.npy", labels=tmp_path / "y.npy")
    assert "are these ids?" in error.value.hint


def test_several_labels_need_no_choice(tmp_path, source):
    (tmp_path / "y.csv").write_text("a,b\n" + "0,1\n" * 4)
    inputs = {"features": "ones", "labels": tmp_path / "y.csv"}
    assert imported(source, **inputs, task="multilabel").y.tolist() == [[0, 1]] * 4
    error = refusal(source, **inputs)
    assert "--label-columns b takes" in error.hint and "--label-type multilabel takes all" in error.hint
    (tmp_path / "y.csv").write_text("id,a,b\n0,0,1\n1,0,1\n2,0,1\n3,0,1\n")
    assert imported(source, **inputs, label_columns=["a:b"], task="multilabel").y.tolist() == [[0, 1]] * 4


def test_columns_are_of_tables_alone(tmp_path, source):
    np.save(tmp_path / "x.npy", X)
    for field in ("feature", "label"):
        inputs = {"features": tmp_path / "x.npy", f"{field}_columns": ["0"]}
        assert refusal(source, **inputs).place == f"--{field}-columns"


NAMES = ["id", "f0", "f1", "a:b", "y"]


@pytest.mark.parametrize(
    ("wanted", "places"),
    [
        (["f0:f1"], [1, 2]),
        (["a:b", "id"], [3, 0]),
        (["1:3"], [1, 2, 3]),
        (["f1", "f0"], [2, 1]),
        (["f0:4"], [1, 2, 3, 4]),
    ],
)
def test_columns_have_names_numbers_and_ranges(wanted, places):
    assert choose_columns("x", NAMES, wanted) == places


@pytest.mark.parametrize("wanted", [["f2"], ["5"], ["f1:f0"], ["f0", "f0"], ["f0:f1", "f1"], ["f0:"], [":"]])
def test_columns_that_there_are_not_are_refused(wanted):
    with pytest.raises(CohortError, match="x: expected (a column|each column once)"):
        choose_columns("x", NAMES, wanted)


def test_a_name_of_several_columns_is_refused():
    names = ["src", "src", "dst"]
    assert choose_columns("x", names, ["1", "dst"]) == [1, 2]
    with pytest.raises(CohortError, match="x: expected one column src, found columns 0 and 1 of this name"):
        choose_columns("x", names, ["src", "dst"])


def test_spans_are_what_choosing_takes():
    assert spans(["id", "a", "b", "y", "c"], ["id", "y"]) == "a:b,c"
    assert spans(["id"], ["id"]) == ""


def test_bad_columns_on_the_command_line_are_refused(tmp_path, source, run, capsys):
    with pytest.raises(SystemExit):
        run("import", source, tmp_path / "out", "--feature-columns", "f0,,f1")
    assert "expected columns such as f0,f1" in capsys.readouterr().err
