"""What an import says: where splits are from, what became of edges and columns, what is not used, and cures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from edge_list_test import write_parquet
from import_helpers import edge_pairs, imported, refusal, write_npz
from torch_geometric.data import Data

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset import StoredGraph, from_tensors

NUM_NODES = 20
SRC = np.arange(NUM_NODES)
DST = (SRC + 1) % NUM_NODES
X = np.arange(2.0 * NUM_NODES, dtype=np.float32).reshape(-1, 2)
Y = np.arange(NUM_NODES) % 3
SPLITS = {"train": [0, 4], "val": [1], "test": [2, 8, 9]}


def mask(part: str) -> np.ndarray:
    return np.isin(np.arange(NUM_NODES), SPLITS[part])


def outcome(source: Path, **options) -> tuple[str, StoredGraph]:
    """What an import says, and its data set."""
    lines = []
    data = imported(source, note=lines.append, **options)
    return "\n".join(lines), data


def said_by(source: Path, **options) -> str:
    return outcome(source, **options)[0]


def splits_of(data: StoredGraph) -> list[list[int]]:
    return [data.train_ids.tolist(), data.val_ids.tolist(), data.test_ids.tolist()]


def edge_list(folder: Path) -> Path:
    np.save(folder / "e.npy", np.stack([SRC, DST]))
    return folder / "e.npy"


# --- splits -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parts", [["train", "test"], ["train"], ["val", "test"], ["train", "val", "test"]])
@pytest.mark.parametrize("kind", ["pt", "npz ids", "npz masks", "pyg npz"])
def test_splits_that_are_there_are_kept_and_the_others_empty(tmp_path, kind, parts):
    ends, source = np.stack([SRC, DST]), tmp_path / ("g.pt" if kind == "pt" else "g.npz")
    names = {part: f"{part}_ids" if kind == "npz ids" else f"{part}_mask" for part in SPLITS}
    masks = {names[part]: mask(part) for part in parts}
    if kind == "pt":
        tensors = dict(x=X, edge_index=ends, y=Y) | masks
        torch.save(Data(**{key: torch.from_numpy(array) for key, array in tensors.items()}), source)
    elif kind == "pyg npz":
        np.savez(source, x=X, edge_index=ends, y=Y, **masks)
    else:
        ids = {names[part]: np.array(SPLITS[part]) for part in parts}
        np.savez(source, x=X, src=SRC, dst=DST, labels=Y, **(ids if kind == "npz ids" else masks))
    said, data = outcome(source)
    wanted = [SPLITS[part] if part in parts else [] for part in SPLITS]
    assert splits_of(data) == wanted
    missing = [names[part] for part in SPLITS if part not in parts]
    sizes = f"train {len(wanted[0])}, val {len(wanted[1])}, test {len(wanted[2])}"
    origin = source.name + (f", which has no {' and no '.join(missing)}" if missing else "")
    assert f"splits: {sizes} (from {origin})" in said


def test_the_origin_of_splits_is_said(tmp_path):
    source = edge_list(tmp_path)
    np.save(tmp_path / "y.npy", Y)
    assert "train 0, val 0, test 0 (no labels)" in said_by(source, features="ones")
    labelled = {"features": "ones", "labels": tmp_path / "y.npy"}
    assert "train 12, val 4, test 4 (random, seed 5)" in said_by(source, **labelled, seed=5)
    for part, ids in SPLITS.items():
        np.save(tmp_path / f"{part}.npy", ids)
    paths = [tmp_path / f"{part}.npy" for part in SPLITS]
    assert "train 2, val 1, test 3 (from --splits)" in said_by(source, **labelled, splits=paths)


@pytest.mark.parametrize("dtype", [np.uint8, np.int64])
@pytest.mark.parametrize("names", ["src", "edge_index"])
def test_masks_of_an_npz_are_masks_whatever_their_type(tmp_path, names, dtype):
    masks = {f"{part}_mask": mask(part).astype(dtype) for part in SPLITS}
    ends = dict(src=SRC, dst=DST, labels=Y) if names == "src" else dict(edge_index=np.stack([SRC, DST]), y=Y)
    np.savez(tmp_path / "g.npz", x=X, **ends, **masks)
    data = imported(tmp_path / "g.npz")
    assert splits_of(data) == list(SPLITS.values())
    np.savez(tmp_path / "g.npz", x=X, **ends, train_mask=np.array(SPLITS["test"], dtype))
    error = refusal(tmp_path / "g.npz")
    assert error.place.endswith("train_mask") and error.hint == "ids have the name train_ids"


@pytest.mark.parametrize("kind", ["npy", "csv", "npz", "tensors"])
def test_a_mask_of_integers_is_not_taken_for_ids(tmp_path, kind):
    source, integers = edge_list(tmp_path), {part: mask(part).astype(np.int64) for part in SPLITS}
    for part, array in integers.items():
        np.save(tmp_path / f"{part}.npy", array)
        np.savetxt(tmp_path / f"{part}.csv", array, fmt="%d")
    inputs = {"features": "ones", "splits": [tmp_path / f"{part}.{kind}" for part in SPLITS], "header": "no"}
    if kind == "npz":
        source, inputs = tmp_path / "g.npz", {}
        np.savez(source, x=X, src=SRC, dst=DST, labels=Y, train_ids=integers["train"])
    if kind == "tensors":
        with pytest.raises(CohortError, match="a mask must be bool"):
            from_tensors(tmp_path / "out", x=X, y=Y, edge_index=np.stack([SRC, DST]), train_ids=integers["train"])
        return
    error = refusal(source, **inputs)
    place = "train_ids" if kind == "npz" else "--splits: train_ids"
    assert (error.place, error.found) == (place, "20 integers of 0 and 1")
    assert error.hint == "a mask must be bool: array.astype(bool)"


def test_two_nodes_may_be_all_there_are(tmp_path):
    np.save(tmp_path / "e.npy", [[0, 1], [1, 0]])
    for name, ids in {"train": [0, 1], "val": [], "test": []}.items():
        np.save(tmp_path / f"{name}.npy", np.array(ids, np.int64))
    np.save(tmp_path / "y.npy", [0, 1])
    paths = [tmp_path / f"{part}.npy" for part in SPLITS]
    data = imported(tmp_path / "e.npy", features="ones", labels=tmp_path / "y.npy", splits=paths)
    assert splits_of(data) == [[0, 1], [], []]


@pytest.mark.parametrize("split", [[0.8], [0.8, 0.2]])
def test_fewer_than_three_shares_are_explained(tmp_path, split):
    error = refusal(edge_list(tmp_path), features="ones", split=split)
    assert (error.place, error.expected) == ("--split-ratio", "three parts") and "less than 1" in error.hint


# --- edges ------------------------------------------------------------------------------------------------------------


def test_the_direction_of_edges_is_said(tmp_path):
    np.save(tmp_path / "e.npy", np.array([[0, 1, 2, 3, 3], [1, 0, 3, 0, 3]]))
    said, data = outcome(tmp_path / "e.npy", features="ones")
    assert "edges: directed (50 % have their reverse; --undirected adds it to the others)" in said
    assert data.reversed_share() == 0.5 and 0 <= data.reversed_share(at_most=2) <= 1
    said, data = outcome(tmp_path / "e.npy", features="ones", undirected=True)
    assert "edges: undirected" in said and data.reversed_share() == 1


FROM_ONE = "node 0 has no edges: do ids start at 1? --node-ids takes a file of ids, one per row"
LISTS = {  # src, dst, and whether ids look as if they started at 1
    "ids from 1": ([1, 2, 3], [2, 3, 4], True),
    "node 0 sends": ([1, 2, 3, 0], [2, 3, 4, 1], False),
    "node 0 receives": ([1, 2, 3, 4], [2, 3, 4, 0], False),
    "a loop alone at node 0": ([0, 1, 2], [0, 2, 3], True),
    "loops alone": ([0, 1, 2, 3, 4], [0, 1, 2, 3, 4], False),
}


@pytest.mark.parametrize("options", [{}, {"undirected": True}, {"self_loops": "add"}], ids=str)
@pytest.mark.parametrize("name", LISTS)
def test_ids_that_seem_to_start_at_1_are_asked_about(tmp_path, name, options, monkeypatch):
    monkeypatch.setattr("cohort_gnn.dataset.importing.outcome.EDGES_AT_ONCE", 2)
    src, dst, asked = LISTS[name]
    np.save(tmp_path / "e.npy", [src, dst])
    np.save(tmp_path / "x.npy", X[:5])
    np.savez(tmp_path / "e.npz", src=src, dst=dst, x=X[:5], labels=Y[:5])
    assert (FROM_ONE in said_by(tmp_path / "e.npy", features=tmp_path / "x.npy", **options)) == asked
    assert (FROM_ONE in said_by(tmp_path / "e.npz", **options)) == asked


def test_ids_that_are_given_are_not_asked_about(tmp_path):
    (tmp_path / "e.csv").write_text("src,dst\n1,2\n2,3\n")
    np.save(tmp_path / "ids.npy", np.arange(1, 5))
    np.save(tmp_path / "x.npy", X[:4])
    said, data = outcome(tmp_path / "e.csv", features=tmp_path / "x.npy", node_ids=tmp_path / "ids.npy")
    assert FROM_ONE not in said and edge_pairs(data) == [(0, 1), (1, 2)]


COLUMNS = {
    "named": ("src,dst,weight,ts\n0,1,2,3\n", {}, "src -> dst (weight, ts not used); "),
    "weighted": ("dst,src,w,ts\n1,0,2,3\n", {"weight_column": "w"}, "src -> dst, weights w (ts not used); "),
    "bare": (
        "0 1 5\n",
        {"separator": "space", "header": "no", "columns": ["0", "1"]},
        "column 0 -> column 1 (column 2 not used); ",
    ),
    "two": ("a,b\n0,1\n", {}, "a -> b; "),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_of_edges_are_said(tmp_path, name):
    text, options, expected = COLUMNS[name]
    (tmp_path / "e.csv").write_text(text)
    assert f"edges: {expected}" in said_by(tmp_path / "e.csv", features="ones", **options)


def test_columns_of_parquet_edges_are_said(tmp_path):
    write_parquet(tmp_path / "e.parquet", ts=SRC, source=SRC, target=DST, w=SRC / 2)
    said = said_by(tmp_path / "e.parquet", features="ones", weight_column="w")
    assert "edges: source -> target, weights w (ts not used); " in said


def test_attributes_that_are_not_read_are_named(tmp_path):
    data = Data(x=torch.from_numpy(X), y=torch.from_numpy(Y), edge_index=torch.from_numpy(np.stack([SRC, DST])))
    data.edge_attr, data.year, data.num_nodes = torch.ones(NUM_NODES, 3), torch.arange(NUM_NODES), NUM_NODES
    torch.save(data, tmp_path / "g.pt")
    said = said_by(tmp_path / "g.pt")
    assert "g.pt: not used: year" in said and "edge_attr: the edges' features" in said
    data.edge_attr = torch.ones(NUM_NODES)
    torch.save(data, tmp_path / "g.pt")
    assert "g.pt: not used: year" in said_by(tmp_path / "g.pt")


@pytest.mark.parametrize("kind", ["features", "pt"])
def test_rows_the_wrong_way_round_are_shown(tmp_path, kind):
    source, inputs = edge_list(tmp_path), {"features": tmp_path / "xT.npy"}
    np.save(tmp_path / "xT.npy", np.ascontiguousarray(X.T))
    if kind == "pt":
        source, inputs = tmp_path / "g.pt", {}
        tensors = dict(x=np.ascontiguousarray(X.T), edge_index=np.stack([SRC, DST]))
        torch.save({key: torch.from_numpy(array) for key, array in tensors.items()}, source)
    error = refusal(source, **inputs)
    assert error.expected == "a node in [0, 2)"
    place = tmp_path / "xT.npy" if kind == "features" else f"{source}: x"
    assert error.hint.endswith(f"; {place} has 2 rows of 20 columns: one row per node")


def test_rows_are_not_blamed_for_what_they_have_no_part_in(tmp_path):
    np.save(tmp_path / "e.npy", [[0, -1], [1, 0]])
    np.save(tmp_path / "x.npy", X)
    assert "one row per node" not in refusal(tmp_path / "e.npy", features=tmp_path / "x.npy").hint


# --- names of PyG in an .npz ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_an_npz_may_have_the_names_of_pyg(tmp_path, kind):
    arrays = dict(x=X, edge_index=np.stack([SRC, DST]), y=Y, edge_weight=SRC / 4)
    data = imported(write_npz(tmp_path / "g.npz", kind, arrays))
    assert data.name == "g" and sorted(edge_pairs(data)) == sorted(zip(SRC, DST, strict=True))
    np.testing.assert_array_equal(data.x, X)
    np.testing.assert_array_equal(data.y, Y)
    np.testing.assert_array_equal(data.edge_weights, ((np.arange(NUM_NODES) - 1) % NUM_NODES) / 4)


def test_an_npz_without_labels_has_none(tmp_path):
    np.savez(tmp_path / "g.npz", x=X, edge_index=np.stack([SRC, DST]))
    assert (imported(tmp_path / "g.npz").y == -1).all()


@pytest.mark.parametrize(
    ("arrays", "expected"),
    [
        ({"x": X, "edges": SRC}, "an array src"),
        ({"x": X, "edge_index": np.zeros((3, 4), int)}, "shape [2, any]"),
        ({"x": X, "edge_index": np.full((2, 4), NUM_NODES)}, "a node in [0, 20)"),
        ({"edge_index": np.zeros((2, 4), int)}, "an array x"),
    ],
)
def test_arrays_of_other_names_are_refused(tmp_path, arrays, expected):
    np.savez(tmp_path / "g.npz", **arrays)
    error = refusal(tmp_path / "g.npz")
    assert expected in error.expected
    if expected.startswith("an array"):
        assert "src, dst, x, labels" in error.hint and "x, edge_index, y" in error.hint and "train_mask" in error.hint


def test_tensors_of_other_names_are_told_theirs(tmp_path):
    torch.save({"feat": torch.ones(3, 2), "edges": torch.zeros(2, 3).long()}, tmp_path / "g.pt")
    error = refusal(tmp_path / "g.pt")
    assert (error.expected, error.found) == ("tensors x and edge_index", "feat, edges")
    assert "x, edge_index, y, edge_weight, train_mask" in error.hint


# --- classes, names, files --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "told"),
    [
        (Y * 1000, "y.npy: 2,001 classes, 3 of them used; renumber with numpy.unique(y, return_inverse=True)"),
        (Y + 1, "y.npy: 4 classes, 3 of them used; "),
        (np.where(Y == 0, -1, Y), "y.npy: 3 classes, 2 of them used; renumber with numpy.unique(y[y >= 0], "),
        (Y, ""),
        (Y - 1, ""),
    ],
)
def test_classes_that_no_node_has_are_counted(tmp_path, labels, told):
    np.save(tmp_path / "y.npy", labels)
    said = said_by(edge_list(tmp_path), features="ones", labels=tmp_path / "y.npy")
    assert told in said if told else "classes" not in said


NAMES = "numpy.unique(column, return_inverse=True)"
NO_IDS = {  # a text of edges, what the cure says and what was found
    "edges": ("user17,item3\nuser18,item4\n", NAMES, ""),
    "edges_with_names": ("src,dst\nuser17,3\nuser18,4\n", NAMES, ""),
    "one_column": ("src,dst\n17,item3\n", NAMES, ""),
    "a_word_among_numbers": ("a,b\n0,1\n1,three\n", "--separator", ""),
    "fractions": ("src,dst\n1.0,2.0\n2.0,0.0\n", "without a fraction", '"1.0" in src, and the like in dst'),
    "fraction": ("src,dst\n0,2.0\n", "3, not 3.0", ""),
    "large": (f"src,dst\n0,{'9' * 20}\n", "from -2^63 to 2^63 - 1", ""),
}


@pytest.mark.parametrize(
    ("name", "rename"), [*((name, False) for name in NO_IDS), ("edges", True), ("one_column", True)]
)
def test_what_is_no_id_gets_a_cure(tmp_path, name, rename):
    text, cure, found = NO_IDS[name]
    (tmp_path / "e.csv").write_text(text)
    error = refusal(tmp_path / "e.csv", features="ones", rename=rename)
    assert cure in error.hint and error.expected == "an integer" and found in error.found


def test_arrays_of_text_get_a_cure(tmp_path):
    names = np.array([f"user{i}" for i in range(NUM_NODES)])
    np.save(tmp_path / "names.npy", names)
    source = edge_list(tmp_path)
    for field in ("labels", "node_ids"):
        assert "numpy.unique" in refusal(source, **{"features": "ones", field: tmp_path / "names.npy"}).hint
    np.savez(tmp_path / "g.npz", x=X, src=SRC, dst=DST, labels=names)
    assert "numpy.unique" in refusal(tmp_path / "g.npz").hint


@pytest.mark.parametrize("field", ["features", "labels", "splits", "node_ids", "edge_weights", "destinations"])
def test_a_file_that_is_not_there_is_said_to_be_missing(tmp_path, field):
    missing = tmp_path / "none"
    inputs = {"features": "ones", field: [missing] * 3 if field == "splits" else missing}
    error = refusal(edge_list(tmp_path), **inputs)
    assert (error.place, error.found) == (str(missing), "no such file") and field.replace("_", "-") in error.expected


def test_a_published_data_set_is_not_downloaded(tmp_path):
    assert "downloads nothing" in refusal(tmp_path / "Cora").hint
    assert refusal(tmp_path / "edges.csv").hint == ""


@pytest.mark.parametrize("format", ["auto", "npz"])
def test_a_data_set_is_not_imported_again(tmp_path, format):
    data = imported(edge_list(tmp_path), features="ones")
    error = refusal(data.path, format=format)
    assert error.found == "a data set of Cohort already" and error.hint == "use it as it is; copy it with cp -a"


def test_another_meta_json_makes_no_data_set(tmp_path):
    folder = write_npz(tmp_path / "g", "folder", dict(src=SRC, dst=DST, x=X, labels=Y))
    (folder / "meta.json").write_text('{"format": "another"}')
    assert imported(folder).num_nodes == NUM_NODES


@pytest.mark.parametrize(
    ("names", "are_told"),
    [
        ("userId,movieId", True), ("user_id,item_id", True), ("customer_id,product_id", True), ("src_id,dst_id", False),
        ("id_1,id_2", False), ("node_1,node_2", False), ("FromNodeId,ToNodeId", False), ("payer,payee", False),
        ("source_id,target_id", False), ("userId1,userId2", False),
    ],
)  # fmt: skip
def test_ids_of_two_types_may_be_meant(tmp_path, names, are_told):
    (tmp_path / "e.csv").write_text(f"{names}\n1,1\n1,2\n2,0\n")
    notes = []
    imported(tmp_path / "e.csv", features="ones", note=notes.append)
    assert any("equal ids are one node" in note for note in notes) == are_told


def test_nodes_without_a_label_are_counted(tmp_path):
    """-1 is no class: whoever has classes -1, 0 and 1 reads it."""
    for name, labels, some in (("some", Y - 1, "y.npy: 7 of 20 nodes have no label (-1)\n"), ("all", Y, "")):
        (tmp_path / name).mkdir()
        np.save(tmp_path / name / "y.npy", labels)
        said = said_by(edge_list(tmp_path / name), features="ones", labels=tmp_path / name / "y.npy")
        assert said.startswith(f"{some}splits: ")
    assert "no label (" not in said_by(edge_list(tmp_path), features="ones")
