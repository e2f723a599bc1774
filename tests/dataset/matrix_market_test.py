"""Files of MatrixMarket: the edges are the entries that SciPy reads; what is no adjacency matrix is refused."""

from __future__ import annotations

import gzip
import shutil

import numpy as np
import pytest
import scipy.io
import scipy.sparse
from import_helpers import edge_pairs, imported, refusal
from layout_writers import sample

from cohort_gnn.dataset import open as open_dataset
from cohort_gnn.dataset.layouts.matrix_market import MatrixFile

V = 60
BANNER = "%%MatrixMarket matrix coordinate"


def coo(numbers, symmetry: str = "general", dtype=np.float64) -> scipy.sparse.coo_array:
    """[V, V], with entries that are equal, and zeros."""
    rows, columns = sample().edge_index
    if symmetry != "general":
        rows, columns = np.unique(np.sort([rows, columns], axis=0), axis=1)
    values = np.asarray(numbers(len(rows))).astype(dtype)
    if symmetry == "skew-symmetric":
        keep = rows != columns
        rows, columns, values = rows[keep], columns[keep], values[keep]
    upper = rows != columns
    if symmetry != "general":
        sign = -1 if symmetry == "skew-symmetric" else 1
        rows, columns = np.concatenate([rows, columns[upper]]), np.concatenate([columns, rows[upper]])
        values = np.concatenate([values, sign * values[upper]])
    return scipy.sparse.coo_array((values, (rows, columns)), (V, V))


def random(count):
    return np.random.default_rng(3).integers(-9, 10, count) / 8


def whole(count):
    return np.random.default_rng(3).integers(0, 10, count)


def edges_of(folder, weighted: bool) -> list[tuple]:
    data = open_dataset(folder)
    assert data.num_nodes == V and (data.edge_weights is not None) == weighted
    pairs = edge_pairs(folder)
    return sorted(zip(pairs, data.edge_weights.tolist(), strict=True)) if weighted else sorted(pairs)


def read_by_scipy(path, weighted: bool) -> list[tuple]:
    matrix = scipy.io.mmread(path)
    pairs = list(zip(matrix.row.tolist(), matrix.col.tolist(), strict=True))
    return sorted(zip(pairs, matrix.data.astype(np.float32).tolist(), strict=True)) if weighted else sorted(pairs)


WRITTEN = {  # what mmwrite is given, and the field and symmetry that it writes
    "float64": (coo(random), {}, "real general"),
    "float32": (coo(random, dtype=np.float32), {}, "real general"),
    "int64": (coo(whole, dtype=np.int64), {}, "integer general"),
    "uint64": (coo(whole, dtype=np.uint64), {}, "unsigned-integer general"),
    "bool": (coo(whole, dtype=bool), {}, "integer general"),
    "pattern": (coo(random), {"field": "pattern"}, "pattern general"),
    "symmetric": (coo(random, "symmetric"), {}, "real symmetric"),
    "symmetric pattern": (coo(random, "symmetric"), {"field": "pattern"}, "pattern symmetric"),
    "skew": (coo(random, "skew-symmetric"), {}, "real skew-symmetric"),
    "skew int64": (coo(whole, "skew-symmetric", np.int64), {}, "integer skew-symmetric"),
    "general": (coo(random, "symmetric"), {"symmetry": "general"}, "real general"),
    "comment": (coo(random), {"comment": "of a graph\n 1 2 3\n"}, "real general"),
}


@pytest.mark.parametrize("suffix", [".mtx", ".mtx.gz"])
@pytest.mark.parametrize("name", WRITTEN)
def test_what_scipy_writes_comes_back(tmp_path, name, suffix):
    matrix, options, kind = WRITTEN[name]
    scipy.io.mmwrite(tmp_path / "small.mtx", matrix, **options)
    assert (tmp_path / "small.mtx").read_text().startswith(f"{BANNER} {kind}\n")
    weighted = "pattern" not in kind
    expected = read_by_scipy(tmp_path / "small.mtx", weighted)
    if suffix == ".mtx.gz":
        with open(tmp_path / "small.mtx", "rb") as file, gzip.open(tmp_path / "small.mtx.gz", "wb") as packed:
            shutil.copyfileobj(file, packed)
    notes = []
    data = imported(tmp_path / f"small{suffix}", features="ones", note=notes.append)
    assert edges_of(data.path, weighted) == expected
    assert data.name == "small"
    assert ("their values are edge weights" in notes[0]) == weighted and kind.split()[1] in notes[0]


BY_HAND = {  # valid files that SciPy does not write
    "upper triangle": f"{BANNER} real symmetric\n60 60 3\n1 2 5\n3 3 1\n2 60 -7\n",
    "blanks": f"{BANNER} real general\r\n% c\r\n\r\n60 60 2\r\n\r\n  1\t2   5e-1 \r\n\r\n2 1 7\r\n",
    "capitals": "%%MatrixMarket MATRIX Coordinate Double General\n60 60 1\n1 2 5\n",
    "no end of line": f"{BANNER} pattern general\n60 60 1\n1 2",
    "no entries": f"{BANNER} real general\n60 60 0\n",
    "long comment": f"{BANNER} integer general\n" + ("%" + "1 2 3 " * 20 + "\n") * 4000 + "60 60 1\n60 1 4\n",
}


@pytest.mark.parametrize("name", BY_HAND)
def test_other_valid_files_are_read_as_scipy_reads_them(tmp_path, name):
    source = tmp_path / "small.mtx"
    source.write_bytes(BY_HAND[name].encode())
    weighted = "pattern" not in BY_HAND[name]
    readable = BY_HAND[name].replace("MATRIX Coordinate Double General", "matrix coordinate double general")
    (tmp_path / "scipy.mtx").write_bytes(readable.encode())
    data = imported(source, features="ones")
    assert edges_of(data.path, weighted) == read_by_scipy(tmp_path / "scipy.mtx", weighted)


@pytest.mark.parametrize("name", ["float64", "symmetric", "skew"])
def test_pieces_of_any_size_are_the_same_edges(tmp_path, name):
    scipy.io.mmwrite(tmp_path / "small.mtx", WRITTEN[name][0])
    file, found = MatrixFile(tmp_path / "small.mtx"), []
    for block_bytes in (32, 1 << 20):
        chunks = [np.stack([src, dst]) for src, dst, _ in file.edges(block_bytes)]
        assert len(chunks) == 1 or block_bytes == 32
        found.append((np.concatenate(chunks, axis=1), np.concatenate(list(file.weights(block_bytes)))))
    assert np.array_equal(found[0][0], found[1][0]) and np.array_equal(found[0][1], found[1][1])


def test_features_labels_and_weights_come_from_files_beside(tmp_path):
    graph = sample()
    scipy.io.mmwrite(tmp_path / "small.mtx", coo(random), field="pattern")
    np.save(tmp_path / "x.npy", graph.x)
    np.save(tmp_path / "y.npy", graph.y)
    np.save(tmp_path / "w.npy", np.ones(400, np.float32))
    beside = {"features": tmp_path / "x.npy", "labels": tmp_path / "y.npy", "edge_weights": tmp_path / "w.npy"}
    data = imported(tmp_path / "small.mtx", **beside)
    assert np.array_equal(data.x_float32(), graph.x) and (data.edge_weights == 1).all()
    assert refusal(tmp_path / "small.mtx").expected == "feature rows"


G = f"{BANNER} real general\n"
BAD = {
    "empty": ("", "line 1", "coordinate FIELD SYMMETRY", ""),
    "edge list": ("1 2\n2 3\n", "line 1", "coordinate FIELD SYMMETRY", "'1 2"),
    "one percent": ("%MatrixMarket matrix coordinate real general\n3 3 1\n1 2 5\n", "line 1", "%%MatrixMarket", "'%M"),
    "npy": ("\x93NUMPY", "line 1", "coordinate", ""),
    "vector": ("%%MatrixMarket vector coordinate real general\n3 1\n2 5\n", "line 1", "matrix coordinate", "vector"),
    "array": ("%%MatrixMarket matrix array real general\n2 2\n1\n2\n3\n4\n", "line 1", "coordinate:", "array"),
    "complex": (f"{BANNER} complex hermitian\n3 3 1\n2 1 5 1\n", "line 1", "a field", "complex"),
    "field": (f"{BANNER} text general\n3 3 1\n2 1 5\n", "line 1", "a field pattern, integer", "text"),
    "hermitian": (f"{BANNER} real hermitian\n3 3 1\n2 1 5\n", "line 1", "a symmetry of real: general", "hermitian"),
    "skew pattern": (f"{BANNER} pattern skew-symmetric\n3 3 1\n2 1\n", "line 1", "general, symmetric", "skew"),
    "no size": (f"{G}% only comments\n", "small.mtx", "ROWS COLUMNS ENTRIES", "% only"),
    "size": (f"{G}3 3\n1 2 5\n", "small.mtx", "ROWS COLUMNS ENTRIES", "3 3"),
    "negative": (f"{G}-3 -3 1\n1 2 5\n", "small.mtx", "ROWS COLUMNS ENTRIES", "-3"),
    "oblong": (f"{G}3 4 1\n1 2 5\n", "small.mtx", "a row and a column for each node", "3 rows, 4 columns"),
    "no rows": (f"{G}0 0 0\n", "small.mtx", "nodes for 0 entries", "0 rows"),
    "many rows": (f"{G}9999999 9999999 1\n1 2 5\n", "small.mtx", "nodes for 1 entries", "9999999 rows"),
    "few": (f"{G}3 3 3\n1 2 5\n2 1 7\n", "small.mtx", "3 entries", "2, then the end"),
    "none": (f"{G}3 3 3\n", "small.mtx", "3 entries", "0, then the end"),
    "many": (f"{G}3 3 1\n1 2 5\n2 1 7\n", "small.mtx", "1 entries", "2"),
    "zero": (f"{G}3 3 2\n1 2 5\n0 1 7\n", "entry 2", "a row in [1, 3]", "0"),
    "beyond": (f"{G}3 3 2\n1 4 5\n3 1 7\n", "entry 1", "a column in [1, 3]", "4"),
    "no value": (f"{G}3 3 1\n1 2\n", "line 3", "3 fields, as the field is real", "2"),
    "value of a pattern": (f"{BANNER} pattern general\n3 3 1\n1 2 5\n", "line 3", "2 fields", "3"),
    "one field": (f"{G}3 3 1\n1\n", "line 3", "3 fields", "1"),
    "short line": (f"{G}3 3 2\n1 2 5\n1 3\n", "line 4", "3 fields", "2"),
    "comment": (f"{G}3 3 2\n1 2 5\n% c 5\n1 3 4\n", "line 4", "an integer", '"%"'),
    "text": (f"{G}3 3 1\n1 b 5\n", "line 3", "an integer", '"b"'),
    "Fortran": (f"{G}3 3 1\n1 2 2.0D+02\n", "line 3", "a number", '"2.0D+02"'),
    "NaN": (f"{G}3 3 1\n1 2 nan\n", "small.mtx", "a value in each row", "1 NaN or infinity"),
    "fraction": (f"{BANNER} integer general\n3 3 1\n1 2 2.5\n", "line 3", "an integer", '"2.5"'),
    "rounded": (f"{BANNER} integer general\n3 3 1\n1 2 16777217\n", "small.mtx: values", "float32", "16777217"),
    "both triangles": (f"{BANNER} real symmetric\n3 3 2\n2 1 5\n1 3 5\n", "entry 2", "one triangle", "of the other"),
    "diagonal": (f"{BANNER} real skew-symmetric\n3 3 2\n2 1 5\n3 3 5\n", "entry 2", "no diagonal", "node 3"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files_are_refused(tmp_path, name):
    text, place, expected, found = BAD[name]
    (tmp_path / "small.mtx").write_bytes(text.encode("latin1"))
    error = refusal(tmp_path / "small.mtx", features="ones")
    assert place in error.place and expected in error.expected and found in error.found, error
    assert "--columns" not in error.hint and "--comment" not in error.hint, error


@pytest.mark.parametrize(
    ("matrix", "cure"),
    [(np.arange(4.0).reshape(2, 2), "scipy.io.mmwrite('coor"), (coo(random) * (1 + 1j), "scipy.io.mmwrite('real")],
    ids=["array", "complex"],
)
def test_the_cures_work(tmp_path, monkeypatch, matrix, cure):
    scipy.io.mmwrite(tmp_path / "small.mtx", matrix)
    error = refusal(tmp_path / "small.mtx", features="ones")
    monkeypatch.chdir(tmp_path)
    exec(error.hint[error.hint.index(cure) :], {"scipy": scipy})
    (cured,) = {path.name for path in tmp_path.glob("*.mtx")} - {"small.mtx"}
    assert imported(tmp_path / cured, features="ones").num_nodes == matrix.shape[0]


def test_options_of_edge_lists_are_refused(tmp_path):
    scipy.io.mmwrite(tmp_path / "small.mtx", coo(random))
    error = refusal(tmp_path / "small.mtx", features="ones", weight_column="2")
    assert error.place == "--weight-column" and "mtx" in error.found
