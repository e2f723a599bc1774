"""One set of rules for all tables: what a text leaves open, an option or a name says; else it is refused."""

from __future__ import annotations

from pathlib import Path

import import_helpers
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from import_helpers import edge_pairs
from pyarrow import csv

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset import import_graph
from cohort_gnn.dataset import open as open_dataset
from cohort_gnn.dataset.array_file import open_npy
from cohort_gnn.dataset.columns import read_columns
from cohort_gnn.dataset.layouts import tables
from cohort_gnn.dataset.layouts.streams import Rows

RING = np.array([[0, 1, 2], [1, 2, 0]])


@pytest.fixture
def edges(tmp_path) -> Path:
    np.save(tmp_path / "e.npy", RING)
    return tmp_path / "e.npy"


def with_files(source: Path, files: dict[str, str] | None, options: dict) -> dict:
    """Options of an import, and tables beside its source, which have these texts, by the options that name them."""
    paths = {name: source.parent / f"{name}.csv" for name in files or {}}
    for name, path in paths.items():
        path.write_text(files[name])
    return {"features": "ones"} | options | paths


def imported(source: Path, files: dict[str, str] | None = None, **options):
    """The data set of a source with tables beside it, which have these texts."""
    return import_helpers.imported(source, **with_files(source, files, options))


def refused(source: Path, files: dict[str, str] | None = None, **options):
    return import_helpers.refusal(source, **with_files(source, files, options))


def categories_of(folder: Path, text: str) -> set[str]:
    """The categories in the column t of a table of nodes."""
    (folder / "nodes.csv").write_text(text)
    (folder / "e.csv").write_text("src,dst\n0,1\n")
    nodes = "nodes: {u: {file: nodes.csv, features: [{column: t, kind: category}]}}"
    (folder / "graph.yaml").write_text(f"{nodes}\nedges: [{{type: [u, e, u], file: e.csv}}]")
    import_graph(folder / "graph.yaml", folder / "out")
    (column,) = read_columns(folder / "out").nodes["node"]
    return set(column.vocabulary or [])


# --- the first line ---------------------------------------------------------------------------------------------------


def test_a_first_line_of_numbers_may_be_names(tmp_path, edges):
    texts = {"features": "0,1\n10,11\n20,21\n30,30\n", "labels": "0\n1\n0\n1\n"}
    error = refused(edges, texts)
    assert error.found == '"0", which may be either' and "--header labels=yes" in error.hint
    error = refused(edges, {"features": texts["features"]})
    assert error.place.endswith("features.csv: line 1") and "--header features=no" in error.hint
    data = imported(edges, texts, header={"": "yes"}, id_column="none")
    assert data.x.tolist() == [[10, 11], [20, 21], [30, 30]] and data.y.tolist() == [1, 0, 1]
    texts["labels"] = "0\n1\n0\n"
    data = imported(edges, texts | {"features": "0,1\n10,11\n20,21\n"}, header="no", id_column="none")
    assert data.x.tolist() == [[0, 1], [10, 11], [20, 21]] and data.y.tolist() == [0, 1, 0]


@pytest.mark.parametrize("first", ["0,1", ",0", "NA,1", "0.5,0.25"])
def test_no_row_is_lost_to_a_guess(edges, first):
    assert "which may be either" in refused(edges, {"features": f"{first}\n1,1\n1,1\n"}).found


def test_edges_keep_their_first_line(tmp_path):
    (tmp_path / "e.csv").write_text("0,1\n1,2\n2,1\n")
    assert "--header edges=no" in refused(tmp_path / "e.csv").hint
    (tmp_path / "e.edgelist").write_text("0 1\n1 2\n")  # the name says it
    (tmp_path / "f.txt").write_text("# a comment says it, too\n0 1\n1 2\n")
    for name in ("e.edgelist", "f.txt"):
        assert edge_pairs(imported(tmp_path / name)) == [(0, 1), (1, 2)]


def test_a_number_may_be_a_name_or_a_place(tmp_path, edges):
    text = "key,0,1,2\nx,10,1,1\ny,20,1,1\nz,20,1,2\n"
    error = refused(edges, {"features": text}, feature_columns=["0:1"])
    assert error.found == "column 1 of this name, and column 0 of this number"
    data = imported(edges, {"features": text}, feature_columns=["3"], header="yes")
    assert data.x[:, 0].tolist() == [1, 1, 2]


def test_columns_come_in_the_order_in_which_they_are_named(tmp_path, edges):
    text = "f0,f2,f1\n1,2,3\n1,2,3\n1,2,3\n"
    data = imported(edges, {"features": text}, feature_columns=["f0", "f1", "f2"])
    assert data.x[0].tolist() == [1, 3, 2]


def test_options_on_the_command_line_are_for_one_table_or_all(tmp_path, edges, run):
    (tmp_path / "x.csv").write_text("7\n8\n9\n")
    (tmp_path / "y.csv").write_text("0\n1\n0\n1\n")
    out = tmp_path / "out"
    files = ["--features", tmp_path / "x.csv", "--labels", tmp_path / "y.csv"]
    assert run("import", edges, out, *files) == 1
    assert run("import", edges, out, *files, "--header", "features=no", "--header", "labels=yes") == 0
    assert open_dataset(out).x.tolist() == [[7], [8], [9]] and open_dataset(out).y.tolist() == [1, 0, 1]
    (tmp_path / "y.csv").write_text("0\n1\n0\n")
    assert run("import", edges, out, *files, "--header", "features=no,labels=no", "--overwrite") == 0
    assert run("import", edges, out, *files, "--header", "no", "--overwrite") == 0


# --- separators, comments, empty lines --------------------------------------------------------------------------------


def test_a_decimal_comma_is_no_separator(edges):
    assert "point" in refused(edges, {"features": "f\n0,5\n1,25\n2,5\n"}).hint
    assert "point" in refused(edges, {"features": "f;g\n0,5;1,5\n1,25;2\n2;2\n"}).hint
    assert "--null features=NA" in refused(edges, {"features": "f\n0.5\nNA\n2\n"}).hint
    assert "rounded to inf" in refused(edges, {"features": f"f\n0.5\n{10**40}\n2\n"}).found
    assert "one column" in refused(edges, {"edge_weights": "0,5\n1,25\n2,5\n"}, header="no").expected
    assert "one column" in refused(edges, {"labels": "0,5\n1,25\n2,5\n"}, task="regression", header="no").expected
    assert refused(edges, {"features": "0,5;1,5\n"}).found == "comma and semicolon"


def test_a_csv_of_one_column_may_have_blanks(tmp_path, edges):
    data = imported(edges, {"features": "the value\n1\n2\n2\n"})
    assert data.x.tolist() == [[1], [2], [2]]


def test_rows_that_begin_like_comments_are_rows(tmp_path, edges):
    text = "t,f\n#a,1\nb,2\n%c,2\n"
    assert imported(edges, {"features": text}, feature_columns=["f"]).x.tolist() == [[1], [2], [2]]
    fewer = imported(edges, {"features": text + "d,3\n"}, feature_columns=["f"], comment="#")
    assert fewer.x.tolist() == [[2], [2], [3]]
    error = refused(edges, {"features": "#t,f\na,1\nb,2\nc,2\n"}, feature_columns=["f"])
    assert "a row, or a comment" in error.expected and "--comment features=none" in error.hint
    quoted = 't,f\n"#a\n#b",1\n#c,5\nb,2\n"c",2\n'
    data = imported(edges, {"features": quoted}, feature_columns=["f"], comment="#")
    assert data.x.tolist() == [[1], [2], [2]]


def test_a_comment_between_edges_is_said_by_an_option(tmp_path):
    (tmp_path / "e.csv").write_text("# top\nsrc,dst\n# more\n0,1\n# here\n1,2\n")
    error = refused(tmp_path / "e.csv")
    assert error.place.endswith("line 5") and "--comment 'edges=#'" in error.hint
    assert edge_pairs(imported(tmp_path / "e.csv", comment="#")) == [(0, 1), (1, 2)]


@pytest.mark.parametrize(("mark", "option"), [("#", "'edges=#'"), ("%", "edges=%")])
def test_a_first_row_that_begins_like_a_comment_is_not_left_out(tmp_path, mark, option):
    (tmp_path / "e.csv").write_text(f"note,src,dst\n{mark} of all,0,1\nx,1,2\n")
    error = refused(tmp_path / "e.csv")
    assert error.place.endswith("line 2") and f"--comment {option}" in error.hint
    assert edge_pairs(imported(tmp_path / "e.csv", comment="none")) == [(0, 1), (1, 2)]
    assert edge_pairs(imported(tmp_path / "e.csv", comment=mark, nodes=3)) == [(1, 2)]


def test_tabs_at_the_ends_of_lines_are_between_fields(edges):
    error = refused(edges, {"features": "\tf0\n0\t\n1\t\n2\t\n"}, feature_columns=["f0"])  # of an index
    assert error.expected == "a value in each row" and error.found == "3 nulls in f0"
    assert refused(edges, {"features": "f\tg\n\t\n1\t2\n\t3\n"}).found == "2 nulls in f, 1 null in g"
    error = refused(edges, {"features": "0 1\t\n1 2\t\n3 3\t\n"})
    assert "--separator features=space" in error.hint and "--separator features=tab" in error.hint
    error = refused(edges, {"features": "f\tg\n\t1\n\t2\n\t2\n"}, separator=",")
    assert error.found == "a tab" and error.hint == "--separator features=tab"


def test_an_empty_line_of_one_column_is_a_null(tmp_path, edges):
    error = refused(edges, {"features": "f\n1.0\n\n3.0\n4.0\n"})
    assert error.found == "1 null in f"
    data = imported(edges, {"labels": "y\n\n1\n\n"}, task="regression")
    np.testing.assert_array_equal(data.y, np.array([np.nan, 1, np.nan], np.float32))
    data = imported(edges, {"features": "f,g\n1,1\n\n1,2\n2,2\n"})
    assert len(data.x) == 3


@pytest.mark.parametrize("memory", [16_000_000, 4_000_000_000])
def test_fields_in_quotes_may_have_line_breaks(tmp_path, edges, memory):
    rows = [f'"a\n\n""{"x" * 400}"" b, {i}",{i % 7}\n' for i in range(5000)]
    (tmp_path / "x.csv").write_text('"the\ntext",f\n' + "".join(rows))
    data = imported(edges, features=tmp_path / "x.csv", feature_columns=["f"], memory=memory)
    np.testing.assert_array_equal(data.x[:, 0], np.arange(5000) % 7)


def test_a_quote_that_is_not_closed_takes_no_rows(edges):
    text = 'f,t\n1,"open\n2,x\n2,y\n'
    assert refused(edges, {"features": text}, feature_columns=["f"]).expected == "quotes that are closed"


def test_a_quote_within_a_field_is_a_sign_like_others(tmp_path, edges):
    text = 'f,t\n1,5" pipe\n2,x\n2,"y"\n'
    data = imported(edges, {"features": text}, feature_columns=["f"])
    assert data.x[:, 0].tolist() == [1, 2, 2]


@pytest.mark.parametrize(("text", "category"), [('"C:\\"', "C:\\"), ('"a\\""b"', 'a\\"b'), ('a\\"b', 'a\\"b')])
def test_a_backslash_before_a_quote_is_a_sign_like_others(tmp_path, text, category):
    assert categories_of(tmp_path, f't,u\n{text},"x\\"y"\n"b",c\n') == {category, "b"}


def test_quotes_after_backslashes_are_refused(tmp_path):
    """Spark writes them so. A text ended there, and what came behind it was put to it."""
    with pytest.raises(CohortError, match=r"line 5: expected quotes in quotes that are doubled.*\n.*'escape'"):
        categories_of(tmp_path, 't,u\n"a\nb",c\n\n"say \\"hi\\"",c\n')


def test_a_line_of_blanks_is_named(tmp_path):
    with pytest.raises(CohortError, match=r"line 3: expected 2 fields, found blanks alone\n.*grep -v"):
        categories_of(tmp_path, "t,u\na,b\n \t\nc,d\n")


# --- values -----------------------------------------------------------------------------------------------------------


def test_nulls_of_all_columns_are_counted_over_the_whole_table(tmp_path, edges):
    numbers = np.arange(200_000.0)
    columns = {
        "a": pa.array(numbers, mask=numbers % 2 == 0),
        "b": pa.array(numbers % 3),
        "c": pa.array(numbers, mask=numbers > 199_989),
    }
    pq.write_table(pa.table(columns), tmp_path / "x.parquet", row_group_size=1000)
    csv.write_csv(pa.table(columns), tmp_path / "x.csv")
    for kind in ("parquet", "csv"):
        error = refused(edges, features=tmp_path / f"x.{kind}", id_column="none")
        assert error.found == "100,000 nulls in a, 10 nulls in c"


def test_all_columns_of_texts_are_named(edges):
    error = refused(edges, {"features": "a,b,c\n1,x,y\n2,x,y\n2,x,y\n"})
    assert error.found == '"x" in b, and the like in c'


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("of", ["edge_features", "edge_weights", "features"])
def test_integers_that_float32_rounds_are_refused(tmp_path, edges, kind, of):
    table = pa.table({"t": [1700000001, 1700000001, 1700000003], "u": [1, 2, 2]})
    table = table.select(["t"]) if of == "edge_weights" else table
    path = tmp_path / f"t.{kind}"
    csv.write_csv(table, path) if kind == "csv" else pq.write_table(table, path)
    error = refused(edges, **{of: path})
    assert error.expected == "an integer that float32 holds" and "1700000001, rounded to 1700000000" in error.found
    if kind == "parquet":
        with_nulls = table.set_column(0, "t", table["t"].cast(pa.float64()))  # as pandas makes it for nulls
        pq.write_table(with_nulls, path)
        assert refused(edges, **{of: path}).expected == "an integer that float32 holds"
        pq.write_table(table.set_column(0, "t", table["t"].cast(pa.float32(), safe=False)), path)
        imported(edges, **{of: path})


@pytest.mark.parametrize("block_bytes", [1000, 1_000_000])
@pytest.mark.parametrize("kind", ["csv", "parquet", "npy"])
def test_what_is_rounded_does_not_depend_on_the_blocks_that_are_read(tmp_path, kind, block_bytes):
    """A float64 column whose one fraction is far from the integer that float32 rounds."""
    numbers = np.array([2**24 + 1.0, *([1.0] * 4000), 0.5])
    path, table = tmp_path / f"x.{kind}", pa.table({"x": numbers})
    if kind == "npy":
        np.save(path, numbers[:, None])
        rows = Rows.from_file(open_npy(path))
    else:
        csv.write_csv(table, path) if kind == "csv" else pq.write_table(table, path, row_group_size=100)
        rows = Rows.from_table(tables.open_table(path))
    with pytest.raises(CohortError, match="found 16777217, rounded to 16777216"):
        for _ in rows.chunks(block_bytes):
            pass


def test_weights_and_labels_of_an_array_are_not_rounded(tmp_path, edges):
    np.save(tmp_path / "big.npy", np.array([1, 2, 2**24 + 1]))
    for given, task in (("edge_weights", "classification"), ("labels", "regression")):
        error = refused(edges, task=task, **{given: tmp_path / "big.npy"})
        assert error.expected == "an integer that float32 holds"


def test_uint16_may_be_bfloat16(tmp_path, edges, run):
    np.save(tmp_path / "x.npy", np.full((3, 2), 0x3F80, np.uint16))
    assert "--feature-dtype bfloat16" in refused(edges, features=tmp_path / "x.npy").hint
    for dtype, value in (("bfloat16", 1), ("float32", 0x3F80)):
        command = ["--features", tmp_path / "x.npy", "--feature-dtype", dtype, "--overwrite"]
        assert run("import", edges, tmp_path / "out", *command) == 0
        assert open_dataset(tmp_path / "out").x_float32()[0, 0] == value


@pytest.mark.parametrize(("dtype", "value"), [("bfloat16", 1), ("float32", 0x3F80)])
def test_uint16_of_edges_may_be_bfloat16(tmp_path, edges, run, dtype, value):
    np.save(tmp_path / "rows.npy", np.full((RING.shape[1], 2), 0x3F80, np.uint16))
    assert "--feature-dtype bfloat16" in refused(edges, features="ones", edge_features=tmp_path / "rows.npy").hint
    command = ["--features", "ones", "--edge-features", tmp_path / "rows.npy", "--feature-dtype", dtype]
    assert run("import", edges, tmp_path / "out", *command) == 0
    assert open_dataset(tmp_path / "out").edge_table.x_float32()[0, 0] == value


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("number", [2**24 + 1, 2**53 + 1])
def test_labels_of_a_table_are_not_rounded(tmp_path, edges, kind, number):
    path = tmp_path / f"y.{kind}"
    table = pa.table({"y": [None, number, 3]})
    csv.write_csv(table, path) if kind == "csv" else pq.write_table(table, path)
    assert refused(edges, task="regression", labels=path).expected == "an integer that float32 holds"


# --- other files ------------------------------------------------------------------------------------------------------

OTHERS = {
    "tensors": (b"\x10\0\0\0\0\0\0\0" + b'{"x":{}}' + b" " * 64, "ends in .safetensors"),
    "h5": (b"\x89HDF\r\n\x1a\n" + bytes(64), "h5py"),
    "xz": (b"\xfd7zXZ\x00" + bytes(66), "unxz"),
    "feather1": (b"FEA1" + bytes(68), "read_feather"),
    "data": (b"0.5,1.25\n" * 8, ".csv"),
    "market": (b"%%MatrixMarket matrix\n2 2 1\n1 2\n" + b" " * 39, "mmread"),
}


@pytest.mark.parametrize("suffix", OTHERS)
def test_bare_numbers_are_no_other_file(edges, suffix, run, capsys):
    content, cure = OTHERS[suffix]
    path = edges.parent / f"x.{suffix}"
    path.write_bytes(content)
    for more in ([], ["--feature-dim", "2"]):
        assert run("import", edges, edges.parent / "out", "--features", path, *more) == 1
        assert cure in capsys.readouterr().err
    assert run("import", path, edges.parent / "out", "--features", "ones") == 1
    assert cure in capsys.readouterr().err


def test_texts_in_utf_16_are_refused(edges):
    (edges.parent / "x.csv").write_text("f\n1\n", encoding="utf-16")
    assert "iconv -f UTF-16" in refused(edges, features=edges.parent / "x.csv").hint


def test_the_format_overrides_the_name(tmp_path, run):
    (tmp_path / "e.dat").write_text("src,dst\n0,1\n")
    assert run("import", tmp_path / "e.dat", tmp_path / "out", "--format", "csv", "--features", "ones") == 0
    pq.write_table(pa.table({"src": [0], "dst": [1]}), tmp_path / "e.csv")
    command = ["--format", "parquet", "--features", "ones", "--overwrite"]
    assert run("import", tmp_path / "e.csv", tmp_path / "out", *command) == 0


def test_a_file_without_columns_is_refused(tmp_path, edges):
    pq.write_table(pa.table({}), tmp_path / "x.parquet")
    assert refused(edges, features=tmp_path / "x.parquet").expected == "at least one column"
