"""Edge lists in .npy, CSV and Parquet, the tables beside them, and what the options make of the edges."""

from __future__ import annotations

import gzip

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest
from import_helpers import edge_pairs, imported, refusal, write_tables
from layout_writers import assert_holds, sample, write_csv_gz

from cohort_gnn.dataset.arrays import TIMES_HINT
from cohort_gnn.dataset.layouts.tables import RawLayout

# --- arrays -----------------------------------------------------------------------------------------------------------

NPY_FORMS = {
    "rows": lambda edges: edges,
    "rows_fortran": np.asfortranarray,
    "columns": lambda edges: np.ascontiguousarray(edges.T),
    "columns_fortran": lambda edges: np.asfortranarray(edges.T),
    "int32": lambda edges: edges.astype(np.int32),
    "uint8": lambda edges: edges.astype(np.uint8),
    "big_endian": lambda edges: edges.astype(">i8"),
}


@pytest.mark.parametrize("form", NPY_FORMS)
def test_npy_edges_come_back(tmp_path, form):
    graph = sample()
    np.save(tmp_path / "e.npy", NPY_FORMS[form](graph.edge_index))
    data = imported(tmp_path / "e.npy", **write_tables(tmp_path, graph))
    assert_holds(data, graph)
    assert data.name == "e"


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize(("shape", "src", "dst"), [((2, 1), [3], [4]), ((1, 2), [3], [4]), ((2, 2), [3, 4], [5, 6])])
def test_short_npy_edges_are_not_mistaken(tmp_path, order, shape, src, dst):
    np.save(tmp_path / "e.npy", np.asarray(np.array([*src, *dst]).reshape(shape), order=order))
    assert edge_pairs(imported(tmp_path / "e.npy", features="ones")) == list(zip(src, dst, strict=True))


def test_two_npy_files_are_sources_and_destinations(tmp_path):
    graph = sample()
    np.save(tmp_path / "src.npy", graph.edge_index[0].astype(np.int32))
    np.save(tmp_path / "dst.npy", graph.edge_index[1])
    tables = write_tables(tmp_path, graph)
    assert_holds(imported(tmp_path / "src.npy", destinations=tmp_path / "dst.npy", **tables), graph)


NPY_BAD = {
    "shape": (np.zeros((3, 3), int), "shape [2, E] or [E, 2]", "[3, 3]"),
    "flat": (np.zeros(8, int), "shape [2, E] or [E, 2]", "[8]"),
    "float": (np.zeros((2, 3)), "integers", "float64"),
    "text": (np.array([["a", "b"]]), "an array of numbers", "<U1"),
    "negative": (np.array([[1, -7], [0, 1]]), "a node in [0, 4294967296)", "-7"),
    "large": (np.array([[1], [2**32]]), "a node in [0, 4294967296)", "4294967296"),
    "gaps": (np.array([[1], [2**31]]), "without large gaps", "2147483648"),
    "empty": (np.zeros((2, 0), int), "at least one node", "no edges"),
}


@pytest.mark.parametrize("name", NPY_BAD)
def test_bad_npy_edges_are_refused(tmp_path, name):
    array, expected, found = NPY_BAD[name]
    np.save(tmp_path / "e.npy", array)
    error = refusal(tmp_path / "e.npy", features="ones")
    assert expected in error.expected and found in error.found


@pytest.mark.parametrize("times", [["2020-01-01", "2020-01-02"], [0.5, 1.5], np.array([1, 2], "datetime64[s]")])
def test_what_is_no_time_is_refused_with_what_makes_times_of_it(tmp_path, times):
    write_parquet(tmp_path / "e.parquet", src=[0, 1], dst=[1, 0], time=times)
    csv.write_csv(pq.read_table(tmp_path / "e.parquet"), tmp_path / "e.csv")
    for source in ("e.csv", "e.parquet"):
        assert refusal(tmp_path / source, features="ones", time_column="time").hint == TIMES_HINT
    np.save(tmp_path / "e.npy", np.array([[0, 1], [1, 0]]))
    np.save(tmp_path / "t.npy", np.array(times) if times[0] == 0.5 else np.array(times, "datetime64[s]"))
    assert refusal(tmp_path / "e.npy", features="ones", edge_times=tmp_path / "t.npy").hint == TIMES_HINT


def test_damaged_npy_files_are_refused(tmp_path):
    np.save(tmp_path / "e.npy", np.zeros((2, 99), int))
    whole = (tmp_path / "e.npy").read_bytes()
    header, other = (whole[:40], "a damaged header"), (b"0,1\n", "a file that begins otherwise")
    for content, found in ((whole[:-8], "ends before"), header, (b"", "an empty file"), other):
        (tmp_path / "e.npy").write_bytes(content)
        assert found in refusal(tmp_path / "e.npy", features="ones").found


def test_two_files_of_different_length_are_refused(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros(3, int))
    np.save(tmp_path / "b.npy", np.zeros(4, int))
    error = refusal(tmp_path / "a.npy", destinations=tmp_path / "b.npy", features="ones")
    assert "as many destinations" in error.expected


# --- text -------------------------------------------------------------------------------------------------------------

TEXTS = {
    "plain": ("0,1\n2,3\n", {"header": "no"}),
    "header": ("src,dst\n0,1\n2,3\n", {}),
    "swapped": ("time,dst,src\n9,1,0\n9,3,2\n", {}),
    "upper": ("Weight,SRC_ID,DST_ID\n9,0,1\n9,2,3\n", {}),
    "two": ("a,b\n0,1\n2,3\n", {}),
    "named": ("a,b,c\n9,1,0\n9,3,2\n", {"columns": ["c", "b"]}),
    "numbered": ("9;1;0\n9;3;2\n", {"columns": ["2", "1"], "header": "no"}),
    "tabs": ("# SNAP\n# FromNodeId\tToNodeId\n0\t1\n2\t3\n", {}),
    "konect": ("% sym\n0 1 5.5\n2  3 6.5\n", {"separator": "space", "columns": ["0", "1"]}),
    "bars": ("0|1\n2|3", {"header": "no"}),
    "strange": ("0:1\n2:3\n", {"separator": ":", "header": "no"}),
    "windows": ("src,dst\r\n0,1\r\n\r\n2,3\r\n", {}),
    "quoted": ('"src","dst"\n"0","1"\n"2","3"\n', {}),
    "texts_beside": ("0,1,friend\n2,3,foe\n", {"header": "no", "columns": ["0", "1"]}),
    "texts_before": ("friend,0,1\nfoe,2,3\n", {"columns": ["1", "2"], "header": "no"}),
    "bom": ("\ufeff0,1\n2,3\n", {"header": "no"}),
    "bom_and_names": ("\ufeffdst,src\n1,0\n3,2\n", {}),
    "numbers_on_top": ("7,7\n0,1\n2,3\n", {"header": "yes"}),
}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", TEXTS)
def test_texts_of_edges_are_understood(tmp_path, name, packed):
    text, options = TEXTS[name]
    path = tmp_path / ("e.csv.gz" if packed else "e.csv")
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    assert edge_pairs(imported(path, **options, features="ones")) == [(0, 1), (2, 3)]


TEXT_BAD = {
    "word": ("0,1\n2,x\n", {"header": "no"}, "line 2", "an integer", '"x"'),
    "float": ("0,1\n2.5,1\n", {"header": "no"}, "line 2", "an integer", '"2.5"'),
    "short": ("src,dst\n0,1\n\n2\n", {}, "line 4", "at least 2 fields", "1"),
    "names": ("alice,bob\nbob,carol\n", {}, "line 2", "an integer", '"bob"'),
    "no_header": ("a,b\n0,1\n", {"header": "no"}, "line 1", "an integer", '"a"'),
    "one": ("0\n1\n", {"header": "no"}, "e.csv", "at least two fields", "1"),
    "empty": ("# nothing\n", {}, "e.csv", "at least two fields", "0"),
    "twice": ("a,b\n0,1\n", {"columns": ["a", "0"]}, "e.csv", "each column once", "a,0"),
    "range": ("a,b,c\n0,1,2\n", {"columns": ["a:b", "c"]}, "--columns", "two columns", "a:b,c"),
    "ragged": ("0,1\n# 2\n2,3,4\n", {"header": "no", "comment": "#"}, "line 3", "2 fields, as in the first line", "3"),
    "plus": ("0,1\n2,++3\n", {"header": "no"}, "line 2", "an integer", '"++3"'),
    "int64": ("0,1\n2,9223372036854775808\n", {"header": "no"}, "line 2", "an integer", '"9223372036854775808"'),
    "missing": ("0,1\n2,\n", {"header": "no"}, "e.csv", "a value in each row", "1 null in column 1"),
    "guess": ("id,a,b\n7,0,1\n", {}, "e.csv", "columns named src and dst or alike", "id, a, b"),
    "matrix": ("%%MatrixMarket matrix\n2 2 1\n1 2\n", {}, "e.csv", "rows of text", "a MatrixMarket file"),
    "column": ("a,b\n0,1\n", {"columns": ["a", "c"]}, "e.csv", "a column c", "a, b"),
    "high": ("0,1\n0,-1\n", {"header": "no"}, "destination of edge 1", "a node in [0, 4294967296)", "-1"),
}


@pytest.mark.parametrize("name", TEXT_BAD)
def test_bad_texts_are_refused(tmp_path, name):
    text, options, place, expected, found = TEXT_BAD[name]
    (tmp_path / "e.csv").write_text(text)
    error = refusal(tmp_path / "e.csv", **options, features="ones")
    assert place in str(error) and expected in str(error) and found in str(error)


# --- Parquet ----------------------------------------------------------------------------------------------------------


def write_parquet(path, **columns):
    pq.write_table(pa.table(columns), path, row_group_size=64)


@pytest.mark.parametrize("form", ["columns", "lists"])
def test_parquet_tables_come_back(tmp_path, form):
    graph = sample()
    write_parquet(tmp_path / "e.parquet", weight=np.ones(400), dst=graph.edge_index[1], src=graph.edge_index[0])
    if form == "lists":
        flat = pa.array(graph.x.reshape(-1))
        write_parquet(tmp_path / "x.parquet", x=pa.FixedSizeListArray.from_arrays(flat, graph.x.shape[1]))
    else:
        write_parquet(tmp_path / "x.parquet", **{f"x{i}": column for i, column in enumerate(graph.x.T)})
    write_parquet(tmp_path / "y.parquet", y=graph.y)
    files = {"features": tmp_path / "x.parquet", "labels": tmp_path / "y.parquet"}
    tables = write_tables(tmp_path, graph) | files
    assert_holds(imported(tmp_path / "e.parquet", **tables, memory=16_000_000), graph)


@pytest.mark.parametrize("form", ["csv", "parquet"])
@pytest.mark.parametrize(
    ("task", "columns", "read"),
    [
        ("classification", {"y": [2, None, 0]}, [2, -1, 0]),
        ("regression", {"y": [0.5, None, 2.0]}, [0.5, np.nan, 2]),
        ("multilabel", {"a": [1, None, 0], "b": [0, 1, 1]}, [[1, 0], [np.nan, 1], [0, 1]]),
    ],
)
def test_a_label_that_is_missing_is_none(tmp_path, form, task, columns, read):
    np.save(tmp_path / "e.npy", [[0, 1], [1, 2]])
    write_parquet(tmp_path / "y.parquet", id=[0, 1, 2], **columns)
    csv.write_csv(pq.read_table(tmp_path / "y.parquet"), tmp_path / "y.csv")
    labels = {"labels": tmp_path / f"y.{form}", "label_columns": list(columns), "task": task}
    found = imported(tmp_path / "e.npy", features="ones", **labels, split=(1, 0, 0))
    np.testing.assert_array_equal(found.y, read)
    assert len(found.train_ids) == (3 if task == "multilabel" else 2)


@pytest.mark.filterwarnings("error")
def test_classes_of_half_floats_need_no_warning(tmp_path):
    np.save(tmp_path / "e.npy", [[0, 1], [1, 2]])
    np.save(tmp_path / "y.npy", np.array([1, np.nan, 2], np.float16))
    assert imported(tmp_path / "e.npy", features="ones", labels=tmp_path / "y.npy").y.tolist() == [1, -1, 2]


def test_a_missing_list_of_labels_is_refused(tmp_path):
    np.save(tmp_path / "e.npy", [[0, 1], [1, 2]])
    write_parquet(tmp_path / "y.parquet", y=pa.array([[1, 0], None, None, [0, 1]], pa.list_(pa.int8(), 2)))
    error = refusal(tmp_path / "e.npy", features="ones", labels=tmp_path / "y.parquet", task="multilabel")
    assert error.found == "2 nulls in y"


def test_parquet_files_hold_ids_and_masks_and_labels_as_they_are(tmp_path):
    write_parquet(tmp_path / "e.parquet", src=[10**17 + 1, 7], dst=[7, 9])
    write_parquet(tmp_path / "ids.parquet", id=[9, 10**17 + 1, 7])
    write_parquet(tmp_path / "y.parquet", a=[1, 0, 1], b=[-1, 0, 0])
    write_parquet(tmp_path / "train.parquet", node=[10**17 + 1])
    write_parquet(tmp_path / "val.parquet", mask=[True, False, False])
    np.save(tmp_path / "test.npy", np.array([7]))
    splits = [tmp_path / name for name in ("train.parquet", "val.parquet", "test.npy")]
    files = {"labels": tmp_path / "y.parquet", "node_ids": tmp_path / "ids.parquet", "splits": splits}
    found = imported(tmp_path / "e.parquet", features="ones", **files, task="multilabel")
    assert found.y.dtype == np.uint8 and found.y.tolist() == [[1, 255], [0, 0], [1, 0]]
    assert [ids.tolist() for ids in (found.train_ids, found.val_ids, found.test_ids)] == [[1], [0], [2]]
    assert edge_pairs(found) == [(2, 0), (1, 2)]


@pytest.mark.parametrize("form", ["npy", "parquet"])
def test_integers_that_int64_does_not_hold_are_refused(tmp_path, form):
    edges = np.array([[0, 1], [1, 2**63]], np.uint64)
    np.save(tmp_path / "e.npy", edges)
    write_parquet(tmp_path / "e.parquet", src=edges[0], dst=edges[1])
    error = refusal(tmp_path / f"e.{form}", features="ones", rename=True)
    assert str(2**63) in error.found and "-2^63 to 2^63 - 1" in error.hint


def test_bad_parquet_tables_are_refused(tmp_path):
    write_parquet(tmp_path / "e.parquet", a=[0, 1], b=["x", "y"], c=[1, None], d=[0.5, 1.5])
    for columns, expected, found in (
        (["a", "b"], "integers", "string"),
        (["a", "c"], "a value in each row", "1 null in c"),
        (["a", "d"], "integers", "double"),
        (["a", "z"], "a column z", "a, b, c, d"),
    ):
        error = refusal(tmp_path / "e.parquet", columns=columns, features="ones")
        assert expected in error.expected and found in error.found
        assert {"1 null in c": "fill them in", "string": "graph.yaml"}.get(found, "") in error.hint
    (tmp_path / "e.parquet").write_bytes(b"PAR1")
    assert "a Parquet file" in refusal(tmp_path / "e.parquet", features="ones").expected


def test_columns_of_one_name_are_refused(tmp_path):
    ends = [pa.array([0, 1]), pa.array([1, 2]), pa.array([2, 0])]
    pq.write_table(pa.Table.from_arrays(ends, names=["src", "src", "dst"]), tmp_path / "e.parquet")
    error = refusal(tmp_path / "e.parquet", features="ones")
    assert (error.expected, error.found) == ("columns of different names", "several of the name src")
    (tmp_path / "e.csv").write_text("src,src,dst\n0,1,2\n")
    error = refusal(tmp_path / "e.csv", features="ones")
    assert (error.expected, error.found) == ("one column src", "columns 0 and 1 of this name")


# --- rows, labels, splits ---------------------------------------------------------------------------------------------


def import_with(tmp_path, graph, **changes):
    np.save(tmp_path / "e.npy", graph.edge_index)
    return imported(tmp_path / "e.npy", **write_tables(tmp_path, graph) | changes)


def test_rows_of_text_come_back(tmp_path):
    graph = sample()
    header = ",".join(f"x{i}" for i in range(graph.x.shape[1]))
    np.savetxt(tmp_path / "x.csv", graph.x, fmt="%.9g", delimiter=",", header=header, comments="")
    assert_holds(import_with(tmp_path, graph, features=tmp_path / "x.csv"), graph)


@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8", "bfloat16"])
def test_rows_of_bare_numbers_come_back(tmp_path, dtype):
    graph = sample()
    rows = graph.x.view(np.uint32) >> 16 if dtype == "bfloat16" else graph.x.astype(dtype)
    rows.astype(np.uint16 if dtype == "bfloat16" else dtype).tofile(tmp_path / "x.bin")
    data = import_with(tmp_path, graph, features=tmp_path / "x.bin", raw=RawLayout(5, dtype))
    assert data.feature_dtype == dtype
    np.testing.assert_array_equal(data.x, rows)


def test_labels_and_splits_of_text_come_back(tmp_path):
    graph = sample()
    (tmp_path / "y.csv").write_text("class\n" + "".join("nan\n" if y < 0 else f"{y}\n" for y in graph.y))
    splits = [tmp_path / f"{name}.csv.gz" for name in ("train", "val", "test")]
    for path, ids in zip(splits, graph.splits, strict=True):
        write_csv_gz(path, ids)
    assert_holds(import_with(tmp_path, graph, labels=tmp_path / "y.csv", splits=splits, header={"splits": "no"}), graph)


def test_masks_lose_their_nodes_without_a_label(tmp_path):
    graph = sample()
    masks = [tmp_path / f"mask{i}.npy" for i in range(3)]
    for path, ids in zip(masks, graph.splits, strict=True):
        mask = np.isin(np.arange(graph.num_nodes), ids)
        np.save(path, mask | (graph.y < 0) if path == masks[0] else mask)
    assert_holds(import_with(tmp_path, graph, splits=masks), graph)


LABELLED = sample().splits[0][:1]
TABLES_BAD = {
    "rows": (dict(x=np.ones((59, 2))), "shape [59]", "[60]"),
    "rows_1d": (dict(x=np.ones(60)), "shape [any, any]", "[60]"),
    "rows_fortran": (dict(x=np.asfortranarray(np.ones((60, 2)))), "in C order", "Fortran"),
    "rows_nan": (dict(x=np.full((60, 2), np.nan)), "a finite number", "NaN (120"),
    "rows_none": (dict(x=np.ones((60, 0))), "at least one column", "[60, 0]"),
    "labels": (dict(y=np.zeros(61, int)), "shape [60]", "[61]"),
    "labels_float": (dict(y=np.full(60, 1.25)), "the number of a class", "1.25"),
    "labels_multi": (dict(y=np.ones((60, 2), int)), "one class per node", "2 targets"),
    "labels_negative": (dict(y=np.full(60, -2)), "a class from 0, or -1", "-2"),
    "split": (dict(train=np.array([60])), "a node in [0, 60)", "60"),
    "split_mask": (dict(train=np.ones(59, bool)), "shape [60]", "[59]"),
    "split_float": (dict(train=np.ones(5)), "integers", "float64"),
    "split_again": (dict(train=LABELLED, val=LABELLED), "that occurs once", "which train_ids already has"),
    "split_unlabelled": (dict(train=np.flatnonzero(sample().y < 0)[:1]), "a node with a label", "whose label is -1"),
}


def refusal_with(tmp_path, **arrays):
    """Of a good graph where some tables are these arrays."""
    graph = sample()
    inputs = write_tables(tmp_path, graph)
    np.save(tmp_path / "e.npy", graph.edge_index)
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
    return refusal(tmp_path / "e.npy", **inputs)


@pytest.mark.parametrize("name", TABLES_BAD)
def test_bad_tables_are_refused(tmp_path, name):
    changes, expected, found = TABLES_BAD[name]
    error = refusal_with(tmp_path, **changes)
    assert expected in error.expected and found in error.found


def test_a_split_that_does_not_fit_is_named_as_the_option_has_it(tmp_path):
    error = refusal_with(tmp_path, val=np.array([0, 60]))
    assert error.place == "--splits: val_ids[1]" and "numbered from 0" in error.hint


def test_files_of_no_known_kind_are_refused(tmp_path):
    np.save(tmp_path / "e.npy", sample().edge_index)
    (tmp_path / "x.bin").write_bytes(bytes(60))
    source = tmp_path / "e.npy"
    assert "--feature-dim" in refusal(source, features=tmp_path / "x.bin").hint
    assert "rows of 7 x float32 (28 bytes)" in refusal(source, features=tmp_path / "x.bin", raw=RawLayout(7)).expected
    assert (
        "a .npy, .pt, .safetensors, .csv or .parquet file"
        in refusal(source, features="ones", labels=tmp_path / "x.bin").expected
    )
    np.save(tmp_path / "flat.npy", np.ones(60))
    assert refusal(source, features=tmp_path / "flat.npy").hint == "for one column: array[:, None]"
    assert "no such file" in refusal(source, features=tmp_path / "none.npy").found
