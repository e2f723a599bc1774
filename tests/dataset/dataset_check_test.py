"""Every kind of damage is found, named with its file and place, and makes the exit code 1."""

from __future__ import annotations

import resource

import numpy as np
import pytest
from damages import change, cut, members, remove

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset import check, generate
from cohort_gnn.dataset import open as open_dataset

NODES, EDGES, DIM, CLASSES = 60, 500, 5, 3


def array(name, edit):
    return change(f"{name}.npy", edit)


def as_type(name, dtype):
    return array(name, lambda array: array.astype(dtype))


def poke(name, index, value):
    return array(name, lambda array: array.__setitem__(index, value))


def meta(**changes):
    return members("meta.json", **changes)


def repeat_train_id(folder):
    train_ids = np.load(folder / "train_ids.npy")
    array("test_ids", lambda ids: np.append(ids, train_ids[:1]))(folder)


def unlabel_train_node(folder):
    poke("labels", np.load(folder / "train_ids.npy")[2], -1)(folder)


# name: (damage, file and place, expected, found). Opening sees these as well ...
DAMAGES = {
    "meta_missing": (remove("meta.json"), "meta.json", "the description of a data set", "no such file"),
    "meta_empty": (cut("meta.json", 0), "meta.json", "JSON", "parse error"),
    "meta_truncated": (cut("meta.json", 50), "meta.json", "JSON", "parse error"),
    "meta_format": (meta(format="other"), "meta.json", "format cohort-dataset version 1", "format other"),
    "meta_dtype": (meta(feature_dtype="float64"), "meta.json", "bfloat16 or float32", "float64"),
    "meta_huge": (meta(num_nodes=2**45), "indptr.npy", f"shape [{2**45 + 1}]", "shape [61]"),
    "meta_beyond": (meta(num_nodes=2**63 - 1), "meta.json", "2^48]", str(2**63 - 1)),
    "meta_files": (meta(files=3), "meta.json", 'the key "indptr"', "none"),
    "meta_edges": (meta(num_edges=499), "indptr.npy[60]", "499 (num_edges)", "500"),
    **{
        f"{name}_missing": (remove(f"{name}.npy"), f"{name}.npy", "a .npy array", "no such file")
        for name in ("indptr", "indices", "features", "labels", "train_ids", "val_ids", "test_ids")
    },
    "indptr_empty": (cut("indptr.npy", 0), "indptr.npy", "a .npy array", "an empty file"),
    "indices_truncated": (cut("indices.npy", 1000), "indices.npy", "2128 bytes", "a truncated file of 1000"),
    "features_truncated": (cut("features.npy", 127), "features.npy", "a header of", "a truncated file of 127"),
    "labels_not_npy": (cut("labels.npy", 5), "labels.npy", "a .npy array", "5 bytes without the .npy magic"),
    "indptr_int32": (as_type("indptr", np.int32), "indptr.npy", "dtype int64", "dtype int32"),
    "indices_float": (as_type("indices", np.float32), "indices.npy", "dtype int32 or int64", "dtype float32"),
    "features_float64": (as_type("features", np.float64), "features.npy", "dtype", "'<f8'"),
    "features_float16": (as_type("features", np.float16), "features.npy", "dtype float32", "dtype float16"),
    "labels_uint64": (as_type("labels", np.uint64), "labels.npy", "dtype", "'<u8'"),
    "indptr_short": (array("indptr", lambda a: a[:-1]), "indptr.npy", "shape [61]", "shape [60]"),
    "indices_2d": (array("indices", lambda a: a.reshape(-1, 2)), "indices.npy", "shape [500]", "[250, 2]"),
    "features_flat": (array("features", np.ravel), "features.npy", "shape [60, 5]", "shape [300]"),
    "labels_long": (array("labels", lambda a: np.append(a, 0)), "labels.npy", "shape [60]", "shape [61]"),
    "ids_2d": (array("val_ids", lambda a: a[None]), "val_ids.npy", "shape [any]", "shape [1, 12]"),
    "indices_big_endian": (as_type("indices", ">i4"), "indices.npy", "little-endian", "big-endian dtype '>i4'"),
    "features_fortran": (array("features", np.asfortranarray), "features.npy", "C order", "Fortran order"),
    "indptr_start": (poke("indptr", 0, 2), "indptr.npy[0]", "0", "2"),
    "indptr_end": (poke("indptr", -1, 501), "indptr.npy[60]", "500 (num_edges)", "501"),
}
# ... and these not.
BY_CHECK_ALONE = {
    "indptr_down": (poke("indptr", 30, 501), "indptr.npy[31]", "at least 501, the value before", ""),
    "indptr_negative": (poke("indptr", 1, -4), "indptr.npy[1]", "at least 0", "-4"),
    "indices_high": (poke("indices", 123, NODES), "indices.npy[123]", "a node in [0, 60)", "60"),
    "indices_negative": (poke("indices", 0, -1), "indices.npy[0]", "a node in [0, 60)", "-1"),
    "indices_int64": (
        array("indices", lambda a: np.where(np.arange(EDGES) == 9, 2**40, a.astype(np.int64))),
        "indices.npy[9]",
        "a node in [0, 60)",
        "1099511627776",
    ),
    "labels_high": (poke("labels", 59, CLASSES), "labels.npy[59]", "a class in [0, 3) or -1", "3"),
    "labels_low": (poke("labels", 4, -2), "labels.npy[4]", "a class in [0, 3) or -1", "-2"),
    "train_ids_high": (poke("train_ids", 3, NODES), "train_ids.npy[3]", "a node in [0, 60)", "60"),
    "test_ids_negative": (poke("test_ids", 0, -1), "test_ids.npy[0]", "a node in [0, 60)", "-1"),
    "ids_twice": (
        array("val_ids", lambda ids: np.append(ids, ids[0])),
        "val_ids.npy[12]",
        "a node that occurs once",
        "which val_ids already has",
    ),
    "ids_overlap": (repeat_train_id, "test_ids.npy[12]", "a node that occurs once", "which train_ids already has"),
    "ids_unlabelled": (unlabel_train_node, "train_ids.npy[2]", "a node with a label", "label is -1"),
    "features_nan": (poke("features", (7, 3), np.nan), "features.npy[7, 3]", "a finite number", "NaN"),
    "features_inf": (poke("features", (59, 4), -np.inf), "features.npy[59, 4]", "a finite number", "Inf"),
}


@pytest.fixture
def folder(tmp_path):
    out = tmp_path / "graph"
    generate(out, kind="sbm", nodes=NODES, edges=EDGES, dim=DIM, classes=CLASSES, seed=3)
    return out


def test_a_good_folder_has_no_problem(folder, capsys, run):
    assert check(folder) == []
    assert run("check", folder) == 0
    assert "no problem found" in capsys.readouterr().err


@pytest.mark.parametrize("name", DAMAGES | BY_CHECK_ALONE)
def test_damage_is_named(folder, name, capsys, run):
    damage, place, expected, found = (DAMAGES | BY_CHECK_ALONE)[name]
    damage(folder)
    problems = [p for p in check(folder) if p.place == str(folder / place)]
    assert len(problems) == 1, check(folder)
    assert expected in problems[0].expected
    assert found in problems[0].found
    assert problems[0].hint
    assert run("check", folder) == 1
    assert str(problems[0]) in capsys.readouterr().err
    if name in DAMAGES:
        with pytest.raises(CohortError) as error:
            open_dataset(folder)
        assert str(error.value) == str(problems[0])
    else:
        assert open_dataset(folder).num_nodes == NODES


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(("value", "found"), [(np.nan, "NaN"), (np.inf, "Inf")])
def test_not_finite_in_16_bits(tmp_path, dtype, value, found):
    generate(tmp_path / "g", kind="sbm", nodes=9, edges=20, dim=4, dtype=dtype)
    bits = value if dtype == "float16" else np.float32(value).view(np.uint32) >> 16
    poke("features", (5, 2), bits)(tmp_path / "g")
    (problem,) = check(tmp_path / "g")
    assert problem.place.endswith("features.npy[5, 2]")
    assert problem.found == found


def test_a_folder_that_is_not_there(tmp_path):
    (problem,) = check(tmp_path / "none")
    assert problem.found == "no such folder"
    (tmp_path / "file").write_text("")
    (problem,) = check(tmp_path / "file")
    assert problem.found == "a file"


def test_bytes_that_are_no_text_are_a_problem(tmp_path):
    generate(tmp_path / "g", kind="sbm", nodes=9, edges=20, dim=4)
    meta = tmp_path / "g" / "meta.json"
    meta.write_bytes(meta.read_bytes().replace(b"cohort-dataset", b"cohort-\xffdataset"))
    (problem,) = check(tmp_path / "g")
    assert problem.place.endswith("meta.json") and "\ufffd" in problem.found


@pytest.mark.parametrize("command", ["info", "check"])
def test_a_folder_that_is_not_there_is_not_to_be_imported_again(run, tmp_path, command, capsys):
    assert run(command, tmp_path / "nope") == 1
    said = capsys.readouterr().err
    assert "nope: expected the folder of a data set, found no such folder" in said
    assert "hint: make one with: cohort dataset import | generate" in said and "data set again" not in said


def test_a_low_limit_of_open_files_is_not_blamed_on_an_array(folder):
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    handles = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, before[1]))
        with pytest.raises(CohortError) as error:
            while len(handles) < 64:
                handles.append(open_dataset(folder))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert error.value.found == "Too many open files" and "ulimit -n" in error.value.hint
