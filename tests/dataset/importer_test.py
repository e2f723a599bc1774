"""Importing .npz files, plain arrays, tensors and PyG data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
import torch
from import_helpers import refusal, write_npz
from torch_geometric.data import Data

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset import append, check, from_pyg, from_tensors, import_graph, import_npz
from cohort_gnn.dataset import open as open_dataset
from cohort_gnn.dataset.importing.beside import SourceOptions
from cohort_gnn.dataset.importing.row_options import principal_components
from cohort_gnn.dataset.writer import output_folder

CORA = Path(__file__).parent.parent / "data" / "cora.npz"
PLAIN = {
    "src": np.array([3, 0, 0, 2, 2, 1]),
    "dst": np.array([0, 1, 1, 2, 0, 3], np.int32),
    "x": np.arange(8, dtype=np.float32).reshape(4, 2),
    "labels": np.array([0, 1, -1, 1]),
}


def csr(inputs, name):
    parts = [inputs[f"{name}_{part}"] for part in ("data", "indices", "indptr")]
    return scipy.sparse.csr_matrix(tuple(parts), shape=tuple(inputs[f"{name}_shape"]))


def files_of(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_cora_keeps_its_edges_rows_and_labels(tmp_path):
    import_npz(CORA, tmp_path / "cora")
    data, inputs = open_dataset(tmp_path / "cora"), np.load(CORA)
    transposed = csr(inputs, "adj").T.tocsr()  # row v: sources of the edges into v
    transposed.sort_indices()
    np.testing.assert_array_equal(data.indptr, transposed.indptr)
    np.testing.assert_array_equal(data.indices, transposed.indices)
    np.testing.assert_array_equal(data.x, csr(inputs, "attr").toarray())
    np.testing.assert_array_equal(data.y, inputs["labels"])
    assert (data.name, data.num_nodes, data.num_classes, data.feature_dtype) == ("cora", 2708, 7, "float32")
    assert [len(data.train_ids), len(data.val_ids), len(data.test_ids)] == [1625, 541, 542]


def test_the_format_page_shows_the_meta_of_cora(tmp_path):
    import_npz(CORA, tmp_path / "cora")
    page = (Path(__file__).parents[2] / "dataset" / "FORMAT.md").read_text()
    shown = page.split("```json\n")[1].split("```")[0]
    assert (tmp_path / "cora" / "meta.json").read_text() == shown


@pytest.mark.parametrize("options", [{}, {"pca": 16}, {"row_normalize": True, "undirected": True, "seed": 4}])
def test_a_second_import_gives_the_same_bytes(tmp_path, options):
    import_npz(CORA, tmp_path / "a" / "cora", **options)
    import_npz(CORA, tmp_path / "b" / "cora", **options)
    assert files_of(tmp_path / "a" / "cora") == files_of(tmp_path / "b" / "cora")


def test_the_seed_moves_the_splits(tmp_path):
    import_npz(CORA, tmp_path / "a", seed=0)
    import_npz(CORA, tmp_path / "b", seed=1)
    a, b = open_dataset(tmp_path / "a"), open_dataset(tmp_path / "b")
    assert set(a.train_ids) != set(b.train_ids)
    assert np.array_equal(a.x, b.x)


def test_a_column_of_ones_stays_as_it_is(tmp_path):
    """It stands for no features, of which there is nothing to normalize."""
    import_npz(CORA, tmp_path / "cora", inputs=SourceOptions(features=Path("ones")), row_normalize=True, pca=3)
    x = open_dataset(tmp_path / "cora").x
    assert x.dtype == np.uint8 and x.shape[1] == 1 and (x == 1).all()


@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_matrix])
def test_pca_agrees_with_a_full_decomposition(form):
    rng = np.random.default_rng(0)
    x = rng.poisson(0.5, (200, 30)) @ np.diag(np.linspace(3, 0.1, 30))
    found, components = principal_components(form(x), 5)
    centred = x - x.mean(axis=0)
    _, _, directions = np.linalg.svd(centred, full_matrices=False)
    for k in range(5):
        sign = np.sign(directions[k][np.abs(directions[k]).argmax()])
        np.testing.assert_allclose(found[:, k], sign * (centred @ directions[k]), atol=1e-4)
    assert found.dtype == np.float32
    np.testing.assert_allclose(components.coordinates(form(x), "x"), found, atol=1e-5)


def test_more_rows_get_the_components_of_the_first(tmp_path):
    """An append, and an import of other rows with --columns-from: not components of their own."""
    generator = np.random.default_rng(0)
    rows = generator.poisson(1, (60, 12)) @ np.diag(np.linspace(3, 0.5, 12)) + 1
    rows[50:] *= np.linspace(0.2, 4, 12)  # whose own components are others
    np.save(tmp_path / "e.npy", np.array([[0, 1, 2], [1, 2, 3]]))
    for name, some in (("first", rows[:50]), ("more", rows[50:])):
        np.save(tmp_path / f"{name}.npy", some)
    inputs = {name: SourceOptions(features=tmp_path / f"{name}.npy") for name in ("first", "more")}
    options = {"pca": 4, "row_normalize": True}
    import_graph(tmp_path / "e.npy", tmp_path / "data", inputs=inputs["first"], **options)
    first = np.array(open_dataset(tmp_path / "data").x)
    shares = rows / rows.sum(axis=1, keepdims=True)
    centred = shares[:50] - shares[:50].mean(axis=0)
    directions = np.linalg.svd(centred, full_matrices=False)[2][:4]
    directions *= np.sign(np.take_along_axis(directions, np.abs(directions).argmax(axis=1)[:, None], 1))
    expected = (shares - shares[:50].mean(axis=0)) @ directions.T
    np.testing.assert_allclose(first, expected[:50], atol=1e-6)
    import_graph(
        tmp_path / "e.npy", tmp_path / "next", inputs=inputs["more"], columns_from=tmp_path / "data", **options
    )
    np.testing.assert_allclose(open_dataset(tmp_path / "next").x, expected[50:], atol=1e-6)
    for pca, expected_count in ((3, "4 components"), (None, "4 components")):
        error = refusal(
            tmp_path / "e.npy", tmp_path / "other", features=tmp_path / "more.npy", pca=pca,
            columns_from=tmp_path / "data"
        )  # fmt: skip
        assert error.place == "--pca" and error.expected.startswith(expected_count) and error.hint == "--pca 4"
    append(tmp_path / "data", inputs=inputs["more"])
    x = open_dataset(tmp_path / "data").x
    assert np.array_equal(x[:50], first) and np.array_equal(x[50:], open_dataset(tmp_path / "next").x)
    narrow = SourceOptions(features=tmp_path / "narrow.npy")
    np.save(tmp_path / "narrow.npy", rows[:2, :4])
    with pytest.raises(CohortError, match="expected 12 columns, of which 4 components were made, found 4"):
        append(tmp_path / "data", inputs=narrow)


@pytest.mark.parametrize("components", [0, -1, 31])
def test_pca_refuses_more_components_than_there_are(components):
    with pytest.raises(CohortError, match="--pca: expected between 1 and 30"):
        principal_components(np.ones((50, 30)), components)


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_plain_arrays_point_from_src_to_dst(tmp_path, kind, run):
    source = write_npz(tmp_path / "in.npz", kind, PLAIN)
    assert run("import", source, tmp_path / "out", "--split-ratio", "1,0,0") == 0
    data = open_dataset(tmp_path / "out")
    np.testing.assert_array_equal(data.indptr, [0, 2, 4, 5, 6])
    np.testing.assert_array_equal(data.indices, [2, 3, 0, 0, 2, 1])
    np.testing.assert_array_equal(data.x, PLAIN["x"])
    np.testing.assert_array_equal(data.y, PLAIN["labels"])
    np.testing.assert_array_equal(data.train_ids, [0, 1, 3])  # node 2 has no label


def with_nan():
    x = PLAIN["x"].copy()
    x[2, 1] = np.nan
    return x


BAD = {
    "two_labels": ({"y": np.zeros(4, int)}, "labels or y", "both"),
    "no_src": ({"src": None}, "an array src", "dst, labels, x"),
    "src_high": ({"src": np.array([3, 0, 0, 2, 4, 1])}, "a node in [0, 4)", "4"),
    "dst_negative": ({"dst": np.array([0, 1, 1, -2, 0, 3])}, "a node in [0, 4)", "-2"),
    "dst_short": ({"dst": np.array([0, 1])}, "as many destinations", "(6,), (2,)"),
    "src_float": ({"src": np.ones(6)}, "integers", "float64"),
    "x_1d": ({"x": np.ones(4)}, "shape [any, any]", "[4]"),
    "x_text": ({"x": np.array([["a"], ["b"]])}, "numbers", "<U1"),
    "x_object": ({"x": np.array([[{}]] * 4)}, "an array of numbers", "dtype object"),
    "x_nan": ({"x": with_nan()}, "a finite number", "NaN"),
    "labels_long": ({"labels": np.zeros(5, np.int64)}, "shape [4]", "[5]"),
    "labels_negative": ({"labels": np.array([0, 1, -3, 0])}, "a class from 0, or -1", "-3"),
    "labels_one_hot": ({"labels": np.eye(4, dtype=np.int64)}, "one class per node", "4 targets per node"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_and_leaves_nothing(tmp_path, name):
    changes, expected, found = BAD[name]
    np.savez(tmp_path / "in.npz", **{key: value for key, value in (PLAIN | changes).items() if value is not None})
    with pytest.raises(CohortError) as error:
        import_npz(tmp_path / "in.npz", tmp_path / "out")
    assert expected in error.value.expected
    assert found in error.value.found
    assert [path.name for path in tmp_path.iterdir()] == ["in.npz"]


CSR_BAD = {
    "adj_shape": (np.array([2708, 2709]), "[2708, 2708]"),
    "adj_indptr": (np.zeros(2709, np.int64), "values that ascend from 0 to 5429"),
    "adj_indices": (np.full(5429, 2708), "a node in [0, 2708)"),
    "attr_data": (np.ones(3), "shape [49216]"),
    "attr_shape": (np.array([2708]), "shape [2]"),
}


@pytest.mark.parametrize("key", CSR_BAD)
def test_damaged_csr_arrays_are_named(tmp_path, key):
    array, expected = CSR_BAD[key]
    np.savez(tmp_path / "in.npz", **{**np.load(CORA), key: array})
    with pytest.raises(CohortError) as error:
        import_npz(tmp_path / "in.npz", tmp_path / "out")
    assert error.value.place.startswith(f"{tmp_path / 'in.npz'}: {key}")
    assert expected in error.value.expected


@pytest.mark.parametrize("damage", ["missing", "empty", "truncated", "flipped", "text", "single"])
def test_files_that_are_no_npz_are_refused(tmp_path, damage, capsys, run):
    path, good = tmp_path / "in.npz", CORA.read_bytes()
    middle = len(good) // 2
    contents = {
        "empty": b"",
        "truncated": good[:middle],
        "flipped": good[:middle] + bytes(255 - byte for byte in good[middle : middle + 64]) + good[middle + 64 :],
        "text": b"src,dst\n0,1\n",
    }
    if damage == "single":
        with path.open("wb") as file:
            np.save(file, np.zeros(3))
    elif damage in contents:
        path.write_bytes(contents[damage])
    assert run("import", path, tmp_path / "out") == 1
    assert str(path) in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_wrong_splits_are_refused(tmp_path):
    for split in ((0.6, 0.2), (0.9, 0.2, 0.2), (-0.1, 0.5, 0.5), (float("nan"), 0, 0)):
        with pytest.raises(CohortError, match="--split-ratio: expected three parts"):
            import_npz(CORA, tmp_path / "out", split=split)


def pyg_data():
    torch.manual_seed(0)
    data = Data(x=torch.randn(9, 4), edge_index=torch.randint(0, 9, (2, 30)), y=torch.randint(0, 3, (9,)))
    for part, ids in (("train", [0, 4]), ("val", [1]), ("test", [2, 8])):
        data[f"{part}_mask"] = torch.zeros(9, dtype=torch.bool).index_fill(0, torch.tensor(ids), True)
    return data


def test_pyg_data_comes_back(tmp_path):
    data = pyg_data()
    out = from_pyg(data, tmp_path / "g")
    back = open_dataset(out).to_pyg()
    assert torch.equal(back.x, data.x) and torch.equal(back.y, data.y)
    assert sorted(back.edge_index.T.tolist()) == sorted(data.edge_index.T.tolist())
    for mask in ("train_mask", "val_mask", "test_mask"):
        assert torch.equal(back[mask], data[mask])


def test_bfloat16_tensors_keep_their_bits(tmp_path):
    x = torch.randn(5, 3).to(torch.bfloat16)
    ids = dict(train_ids=[0], val_ids=torch.tensor([1]), test_ids=np.array([2]))
    out = from_tensors(tmp_path / "g", x=x, y=torch.zeros(5, dtype=torch.long), edge_index=[[0, 1], [1, 2]], **ids)
    data = open_dataset(out)
    assert data.feature_dtype == "bfloat16" and check(out) == []
    assert np.array_equal(data.x_float32(), x.float().numpy())
    assert list(data.val_ids) == [1]


def test_indptr_and_indices_are_in_neighbours(tmp_path):
    out = from_tensors(tmp_path / "g", x=np.ones((3, 1)), y=np.zeros(3, int), indptr=[0, 2, 2, 3], indices=[2, 1, 0])
    assert open_dataset(out).to_pyg().edge_index.tolist() == [[1, 2, 0], [0, 0, 2]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "edge_index, or indptr and indices"),
        ({"edge_index": [[0, 1, 2]]}, r"edge_index: expected shape \[2, any\]"),
        ({"edge_index": [[0, 3], [1, 1]]}, r"edge_index: src\[1\]: expected a node in \[0, 3\)"),
        ({"indptr": [0, 2, 1, 3], "indices": [0, 1, 2]}, "indptr: expected values that ascend"),
        (
            {"edge_index": [[0], [1]], "train_ids": [0], "val_ids": [0]},
            r"val_ids.npy\[0\]: expected a node that occurs once",
        ),
        ({"edge_index": [[0], [1]], "train_ids": np.ones(2, bool)}, r"train_ids: expected shape \[3\]"),
    ],
)
def test_tensors_that_do_not_fit_are_refused(tmp_path, options, message):
    with pytest.raises(CohortError, match=message):
        from_tensors(tmp_path / "g", x=np.ones((3, 2)), y=np.zeros(3, int), **options)
    assert list(tmp_path.iterdir()) == []


def test_info_says_what_is_there(tmp_path, capsys, run):
    assert run("import", CORA, tmp_path / "cora") == 0
    assert run("info", tmp_path / "cora") == 0
    out = capsys.readouterr().out
    for text in ("2,708", "5,429 (int32)", "1433 x float32", "1,625, 541, 542"):
        assert text in out
    assert run("info", tmp_path / "none") == 1


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(28, "No space left on device"), "out: expected disk space for the data set, found No space left on"),
        (OSError("512 requested and 0 written"), "out: expected disk space for the data set, found No space left on"),
        (PermissionError(13, "Permission denied", "edges.npy"), "edges.npy: expected files that can be read and writ"),
    ],
)
def test_what_stops_the_writing_of_a_data_set_is_named_and_leaves_nothing(tmp_path, error, said):
    with pytest.raises(CohortError, match=said), output_folder(tmp_path / "out", overwrite=False):
        raise error
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("place", ["run", "runs/first"])
def test_a_data_set_with_a_run_in_it_is_not_overwritten(tmp_path, place):
    out, run = tmp_path / "cora", tmp_path / "cora" / place
    import_npz(CORA, out)
    run.mkdir(parents=True)
    (run / "run.json").write_text("{}")
    before = files_of(run)
    with pytest.raises(CohortError, match=f"without runs in it to overwrite, found the run {run}\n  hint: move it"):
        import_npz(CORA, out, overwrite=True)
    assert files_of(run) == before
    np.save(tmp_path / "new.npy", [[0], [1]])
    append(out, edges=tmp_path / "new.npy")
    assert files_of(run) == before
    (run / "run.json").unlink()
    import_npz(CORA, out, overwrite=True)
    assert not run.exists()
