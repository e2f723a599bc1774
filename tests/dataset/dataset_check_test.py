"""Every kind of damage is found, named with its file and place, and makes the exit code 1."""

from __future__ import annotations

import json

import numpy as np
import pytest

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset import check, generate
from cohort_gnn.dataset import open as open_dataset

NODES, EDGES, DIM, CLASSES = 60, 500, 5, 3


def load(folder, name):
    return np.load(folder / f"{name}.npy")


def save(folder, name, array):
    np.save(folder / f"{name}.npy", array)


def change(name, edit):
    """A damage: `edit` changes the array in place or returns another one."""

    def damage(folder):
        array = load(folder, name)
        changed = edit(array)
        save(folder, name, array if changed is None else changed)

    return damage


def poke(name, index, value):
    return change(name, lambda array: array.__setitem__(index, value))


def unlink(name):
    return lambda folder: (folder / name).unlink()


def cut(name, size):
    def damage(folder):
        data = (folder / name).read_bytes()
        (folder / name).write_bytes(data[:size])

    return damage


def meta(**changes):
    def damage(folder):
        path = folder / "meta.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return damage


def repeat_train_id(folder):
    save(folder, "test_ids", np.append(load(folder, "test_ids"), load(folder, "train_ids")[:1]))


def repeat_own_id(folder):
    ids = load(folder, "val_ids")
    save(folder, "val_ids", np.append(ids, ids[0]))


def unlabel_train_node(folder):
    labels = load(folder, "labels")
    labels[load(folder, "train_ids")[2]] = -1
    save(folder, "labels", labels)


# name: (damage, file and place, expected, found, seen by opening as well)
DAMAGES = {
    "meta_missing": (unlink("meta.json"), "meta.json", "the description of a data set", "no such file", True),
    "meta_empty": (cut("meta.json", 0), "meta.json", "JSON", "parse error", True),
    "meta_truncated": (cut("meta.json", 50), "meta.json", "JSON", "parse error", True),
    "meta_format": (meta(format="other"), "meta.json", "format cohort-dataset version 1", "format other", True),
    "meta_dtype": (meta(feature_dtype="float64"), "meta.json", "bfloat16 or float32", "float64", True),
    "meta_huge": (meta(num_nodes=2**45), "indptr.npy", f"shape [{2**45 + 1}]", "shape [61]", True),
    "meta_beyond": (meta(num_nodes=2**63 - 1), "meta.json", "2^48]", str(2**63 - 1), True),
    "meta_files": (meta(files=3), "meta.json", 'the key "indptr"', "none", True),
    "meta_edges": (meta(num_edges=499), "indptr.npy[60]", "499 (num_edges)", "500", True),
    **{
        f"{name}_missing": (unlink(f"{name}.npy"), f"{name}.npy", "a .npy array", "no such file", True)
        for name in ("indptr", "indices", "features", "labels", "train_ids", "val_ids", "test_ids")
    },
    "indptr_empty": (cut("indptr.npy", 0), "indptr.npy", "a .npy array", "an empty file", True),
    "indices_truncated": (cut("indices.npy", 1000), "indices.npy", "2128 bytes", "a truncated file of 1000", True),
    "features_truncated": (cut("features.npy", 127), "features.npy", "a header of", "a truncated file of 127", True),
    "labels_not_npy": (cut("labels.npy", 5), "labels.npy", "a .npy array", "5 bytes without the .npy magic", True),
    "indptr_int32": (change("indptr", lambda a: a.astype(np.int32)), "indptr.npy", "dtype int64", "dtype int32", True),
    "indices_float": (
        change("indices", lambda a: a.astype(np.float32)),
        "indices.npy",
        "dtype int32 or int64",
        "dtype float32",
        True,
    ),
    "features_float64": (change("features", lambda a: a.astype(np.float64)), "features.npy", "dtype", "'<f8'", True),
    "features_float16": (
        change("features", lambda a: a.astype(np.float16)),
        "features.npy",
        "dtype float32",
        "dtype float16",
        True,
    ),
    "labels_uint64": (change("labels", lambda a: a.astype(np.uint64)), "labels.npy", "dtype", "'<u8'", True),
    "indptr_short": (change("indptr", lambda a: a[:-1]), "indptr.npy", "shape [61]", "shape [60]", True),
    "indices_2d": (change("indices", lambda a: a.reshape(-1, 2)), "indices.npy", "shape [500]", "[250, 2]", True),
    "features_flat": (change("features", np.ravel), "features.npy", "shape [60, 5]", "shape [300]", True),
    "labels_long": (change("labels", lambda a: np.append(a, 0)), "labels.npy", "shape [60]", "shape [61]", True),
    "ids_2d": (change("val_ids", lambda a: a[None]), "val_ids.npy", "shape [any]", "shape [1, 12]", True),
    "indices_big_endian": (
        change("indices", lambda a: a.astype(">i4")),
        "indices.npy",
        "little-endian",
        "big-endian dtype '>i4'",
        True,
    ),
    "features_fortran": (change("features", np.asfortranarray), "features.npy", "C order", "Fortran order", True),
    "indptr_start": (poke("indptr", 0, 2), "indptr.npy[0]", "0", "2", True),
    "indptr_end": (poke("indptr", -1, 501), "indptr.npy[60]", "500 (num_edges)", "501", True),
    "indptr_down": (poke("indptr", 30, 501), "indptr.npy[31]", "at least 501, the value before", "", False),
    "indptr_negative": (poke("indptr", 1, -4), "indptr.npy[1]", "at least 0", "-4", False),
    "indices_high": (poke("indices", 123, NODES), "indices.npy[123]", "a node in [0, 60)", "60", False),
    "indices_negative": (poke("indices", 0, -1), "indices.npy[0]", "a node in [0, 60)", "-1", False),
    "indices_int64": (
        change("indices", lambda a: np.where(np.arange(EDGES) == 9, 2**40, a.astype(np.int64))),
        "indices.npy[9]",
        "a node in [0, 60)",
        "1099511627776",
        False,
    ),
    "labels_high": (poke("labels", 59, CLASSES), "labels.npy[59]", "a class in [0, 3) or -1", "3", False),
    "labels_low": (poke("labels", 4, -2), "labels.npy[4]", "a class in [0, 3) or -1", "-2", False),
    "train_ids_high": (poke("train_ids", 3, NODES), "train_ids.npy[3]", "a node in [0, 60)", "60", False),
    "test_ids_negative": (poke("test_ids", 0, -1), "test_ids.npy[0]", "a node in [0, 60)", "-1", False),
    "ids_twice": (repeat_own_id, "val_ids.npy[12]", "a node that occurs once", "which val_ids already has", False),
    "ids_overlap": (
        repeat_train_id,
        "test_ids.npy[12]",
        "a node that occurs once",
        "which train_ids already has",
        False,
    ),
    "ids_unlabelled": (unlabel_train_node, "train_ids.npy[2]", "a node with a label", "label is -1", False),
    "features_nan": (poke("features", (7, 3), np.nan), "features.npy[7, 3]", "a finite number", "NaN", False),
    "features_inf": (poke("features", (59, 4), -np.inf), "features.npy[59, 4]", "a finite number", "Inf", False),
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


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_named(folder, name, capsys, run):
    damage, place, expected, found, seen_by_opening = DAMAGES[name]
    damage(folder)
    problems = [p for p in check(folder) if p.place == str(folder / place)]
    assert len(problems) == 1, check(folder)
    assert expected in problems[0].expected
    assert found in problems[0].found
    assert problems[0].hint
    assert run("check", folder) == 1
    assert str(problems[0]) in capsys.readouterr().err
    if seen_by_opening:
        with pytest.raises(CohortError) as error:
            open_dataset(folder)
        assert str(error.value) == str(problems[0])
    else:
        assert open_dataset(folder).num_nodes == NODES


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(("value", "found"), [(np.nan, "NaN"), (np.inf, "Inf")])
def test_not_finite_in_16_bits(tmp_path, dtype, value, found):
    generate(tmp_path / "g", kind="sbm", nodes=9, edges=20, dim=4, dtype=dtype)
    x = load(tmp_path / "g", "features")
    x[5, 2] = value if dtype == "float16" else np.float32(value).view(np.uint32) >> 16
    save(tmp_path / "g", "features", x)
    (problem,) = check(tmp_path / "g")
    assert problem.place.endswith("features.npy[5, 2]")
    assert problem.found == found


def test_a_folder_that_is_not_there(tmp_path):
    (problem,) = check(tmp_path / "none")
    assert problem.found == "no such folder"
    (tmp_path / "file").write_text("")
    (problem,) = check(tmp_path / "file")
    assert problem.found == "a file"


@pytest.mark.parametrize("command", ["info", "check"])
def test_a_folder_that_is_not_there_is_not_to_be_imported_again(run, tmp_path, command, capsys):
    assert run(command, tmp_path / "nope") == 1
    said = capsys.readouterr().err
    assert "nope: expected the folder of a data set, found no such folder" in said
    assert "hint: make one with: cohort dataset import | generate" in said and "data set again" not in said
