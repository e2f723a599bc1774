"""Data sets whose labels are numbers, or several labels a node: written, read, checked, imported, renumbered."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from import_helpers import imported, refusal
from layout_writers import sample, write_igb, write_ogb

import cohort_gnn as cohort
from cohort_gnn import CohortError
from cohort_gnn.cache.options import label_bytes_of
from cohort_gnn.dataset import open as open_dataset
from cohort_gnn.dataset.check import check
from cohort_gnn.dataset.importing.renumber import renumber
from cohort_gnn.spec.meta import read_meta

NUM_NODES, NUM_LABELS = 60, 5


def numbers() -> np.ndarray:
    """float32 [V]; every sixth node has none."""
    y = np.random.default_rng(2).normal(size=NUM_NODES).astype(np.float32)
    y[::6] = np.nan
    return y


def several(kind: str) -> np.ndarray:
    """[V, L] of 0 and 1, some unknown; of every sixth node all are."""
    rng = np.random.default_rng(3)
    y = rng.integers(0, 2, (NUM_NODES, NUM_LABELS))
    unknown = rng.random(y.shape) < 0.1
    unknown[::6] = True
    return np.where(unknown, np.nan, y) if kind == "float" else np.where(unknown, -1, y)


def write(out: Path, y, task: str, **options) -> Path:
    graph = sample(NUM_NODES)
    return cohort.from_tensors(out, x=graph.x, y=y, edge_index=graph.edge_index, task=task, **options)


def as_stored(y: np.ndarray) -> np.ndarray:
    if y.dtype.kind == "f":
        return y.astype(np.float32)
    return np.where(y == -1, 255, y).astype(np.uint8)


def meta_of(folder: Path) -> dict:
    return json.loads((folder / "meta.json").read_text())


def test_numbers_are_kept(tmp_path):
    y = numbers()
    folder = write(tmp_path / "out", torch.from_numpy(y)[:, None], "regression", split=(0.5, 0.5, 0.0))
    data = open_dataset(folder)
    assert (data.task, data.num_classes, data.y.dtype) == ("regression", 1, np.float32)
    np.testing.assert_array_equal(data.y, y)
    assert sorted([*data.train_ids, *data.val_ids]) == np.flatnonzero(~np.isnan(y)).tolist()
    meta = meta_of(folder)
    assert (meta["version"], meta["task"], meta["label_dtype"]) == (2, "regression", "float32")
    assert label_bytes_of(read_meta(folder)) == 4
    assert data.to_pyg().y.dtype == torch.float32 and check(folder) == []


@pytest.mark.parametrize("kind", ["integer", "float", "bool"])
def test_several_labels_are_kept(tmp_path, kind):
    y = several("integer") == 1 if kind == "bool" else several(kind)
    folder = write(tmp_path / "out", y, "multilabel", split=(1.0, 0.0, 0.0))
    data = open_dataset(folder)
    assert (data.task, data.num_classes) == ("multilabel", NUM_LABELS)
    assert data.y.dtype == (np.float32 if kind == "float" else np.uint8)
    np.testing.assert_array_equal(data.y, as_stored(y))
    known = np.ones(NUM_NODES, bool) if kind == "bool" else np.arange(NUM_NODES) % 6 != 0
    np.testing.assert_array_equal(data.train_ids, np.flatnonzero(known))
    assert label_bytes_of(read_meta(folder)) == NUM_LABELS * data.y.itemsize
    assert check(folder) == []


def test_classes_are_written_as_version_1(tmp_path):
    folder = write(tmp_path / "out", sample(NUM_NODES).y, "classification")
    meta = meta_of(folder)
    assert meta["version"] == 1 and "task" not in meta and "label_dtype" not in meta
    assert open_dataset(folder).task == "classification" and label_bytes_of(read_meta(folder)) == 8


@pytest.mark.parametrize("task", ["regression", "multilabel"])
def test_nodes_without_a_label_are_left_out_of_masks_and_found_in_splits(tmp_path, task):
    y = numbers() if task == "regression" else several("integer")
    folder = write(tmp_path / "mask", y, task, train_ids=np.ones(NUM_NODES, bool))
    np.testing.assert_array_equal(open_dataset(folder).train_ids, np.flatnonzero(np.arange(NUM_NODES) % 6))
    with pytest.raises(CohortError, match=r"a node with a label, found node 0, whose label is (NaN|255)"):
        write(tmp_path / "ids", y, task, train_ids=np.array([1, 0]))


@pytest.mark.parametrize("task", ["regression", "multilabel"])
def test_renumbering_takes_labels_along(tmp_path, task):
    y = numbers() if task == "regression" else several("integer")
    folder = write(tmp_path / "out", y, task)
    (tmp_path / "new").mkdir()
    renumber(folder, tmp_path / "new")
    old_of_new = np.load(tmp_path / "new/old_of_new.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "new/labels.npy"), open_dataset(folder).y[old_of_new])
    assert meta_of(tmp_path / "new")["task"] == task


BAD = {
    "infinite": ("regression", np.r_[np.inf, np.zeros(NUM_NODES - 1)], "a finite number, or NaN", "inf"),
    "vast": ("regression", np.r_[1e300, np.zeros(NUM_NODES - 1)], "a finite number, or NaN", "1e+300"),
    "long": ("regression", np.zeros(NUM_NODES + 1), f"shape [{NUM_NODES}]", f"[{NUM_NODES + 1}]"),
    "matrix": ("regression", np.zeros((NUM_NODES, 2)), f"shape [{NUM_NODES}]", f"[{NUM_NODES}, 2]"),
    "one": ("multilabel", np.zeros(NUM_NODES), f"shape [{NUM_NODES}, any]", f"[{NUM_NODES}]"),
    "none": ("multilabel", np.zeros((NUM_NODES, 0)), "at least one label", f"[{NUM_NODES}, 0]"),
    "two": ("multilabel", np.full((NUM_NODES, 2), 2), "0, 1, or -1 for unknown", "2"),
    "half": ("multilabel", np.full((NUM_NODES, 2), 0.5), "0, 1, or NaN for unknown", "0.5"),
    "task": ("ranking", np.zeros(NUM_NODES), "classification or regression or multilabel", "'ranking'"),
    "class": ("classification", np.zeros(NUM_NODES), "integers", "float64"),
}


@pytest.mark.parametrize("name", BAD)
def test_labels_that_do_not_fit_are_refused(tmp_path, name):
    task, y, expected, found = BAD[name]
    with pytest.raises(CohortError) as error:
        write(tmp_path / "out", y, task)
    assert expected in error.value.expected and found in error.value.found
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("kind", "value", "place", "expected"),
    [
        ("float", 0.5, "labels.npy[7, 2]", "0, 1, or NaN"),
        ("float", np.inf, "labels.npy[7, 2]", "0, 1, or NaN"),
        ("integer", 2, "labels.npy[7, 2]", "0, 1, or 255"),
        ("numbers", -np.inf, "labels.npy[7]", "a finite number"),
    ],
)
def test_check_finds_what_no_label_is(tmp_path, kind, value, place, expected):
    y = numbers() if kind == "numbers" else several(kind)
    folder = write(tmp_path / "out", y, "regression" if kind == "numbers" else "multilabel")
    labels = np.load(folder / "labels.npy")
    labels[7 if kind == "numbers" else (7, 2)] = value
    np.save(folder / "labels.npy", labels)
    (problem,) = check(folder)
    assert problem.place.endswith(place) and expected in problem.expected


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"task": "ranking"}, '"task": classification, regression or multilabel, found ranking'),
        ({"label_dtype": "int64"}, "found int64 for multilabel"),
        ({"label_dtype": "complex64"}, "found complex64 for multilabel"),
        ({"num_classes": 0}, '"num_classes" of at least 1'),
        ({"num_classes": 4}, r"labels.npy.*shape \[60, 4\]"),
        ({"version": 4}, "version 1 to 3, found format cohort-dataset version 4"),
        ({"version": 1}, "labels.npy.*int64"),
    ],
)
def test_a_damaged_description_is_refused(tmp_path, change, words):
    folder = write(tmp_path / "out", several("integer"), "multilabel")
    (folder / "meta.json").write_text(json.dumps(meta_of(folder) | change))
    with pytest.raises(CohortError, match=words):
        open_dataset(folder)


def edge_list(folder: Path) -> Path:
    np.save(folder / "edges.npy", sample(NUM_NODES).edge_index)
    return folder / "edges.npy"


def test_import_takes_numbers_from_a_file(tmp_path, run):
    np.savetxt(tmp_path / "y.csv", numbers(), fmt="%.9g", header="y", comments="")
    arguments = ["--features", "ones", "--labels", tmp_path / "y.csv", "--label-type", "regression"]
    arguments += ["--nodes", NUM_NODES]
    assert run("import", edge_list(tmp_path), tmp_path / "out", *arguments) == 0
    np.testing.assert_array_equal(open_dataset(tmp_path / "out").y, numbers())


def test_import_of_ogb_takes_several_labels(tmp_path):
    graph = sample(NUM_NODES)
    graph.y = np.zeros(NUM_NODES, np.int64)
    source = write_ogb(tmp_path, graph, binary=True)
    np.savez(source / "raw/node-label.npz", node_label=several("float"))
    splits = [np.array([1, 2]), np.array([3]), np.array([4])]
    for name, ids in zip(("train", "valid", "test"), splits, strict=True):
        (folder,) = (source / "split").iterdir()
        np.savetxt(folder / f"{name}.csv.gz", ids, fmt="%d")
    np.testing.assert_array_equal(imported(source, task="multilabel").y, as_stored(several("float")))
    error = refusal(source)
    assert (error.expected, error.found) == ("one class per node", "5 targets per node") and "multilabel" in error.hint


def test_import_of_a_pyg_file_takes_numbers(tmp_path):
    graph = sample(NUM_NODES)
    y = torch.from_numpy(numbers())
    tensors = {"x": torch.from_numpy(graph.x), "edge_index": torch.from_numpy(graph.edge_index), "y": y}
    torch.save(tensors, tmp_path / "data.pt")
    np.testing.assert_array_equal(imported(tmp_path / "data.pt", task="regression").y, numbers())


def test_import_says_which_sources_are_for_which_task(tmp_path):
    igb = write_igb(tmp_path, sample())
    error = refusal(igb, task="regression")
    assert "classification: the labels of format igb" in error.expected and "--labels FILE" in error.hint
    error = refusal(edge_list(tmp_path), features="ones", task="multilabel")
    assert error.place == "--label-type multilabel" and error.found == "none in the source"
    error = refusal(edge_list(tmp_path), features="ones", task="ranking")
    assert error.place == "--label-type"
    np.save(tmp_path / "y.npy", numbers())
    error = refusal(edge_list(tmp_path), features="ones", labels=tmp_path / "y.npy")
    assert "the number of a class" in error.expected and "--label-type regression" in error.hint


def test_info_says_what_there_is_to_learn(tmp_path, run, capsys):
    assert run("info", write(tmp_path / "numbers", numbers(), "regression")) == 0
    assert "one number per node (float32)" in capsys.readouterr().out
    assert run("info", write(tmp_path / "several", several("integer"), "multilabel")) == 0
    assert "5 labels (uint8)" in capsys.readouterr().out
