"""Sparse matrices of scipy.sparse.save_npz: the edges are the entries that SciPy loads; others are refused."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from import_helpers import edge_pairs, imported, refusal
from layout_writers import sample

from cohort_gnn.dataset import open as open_dataset

V = 60


def coo(dtype=np.float64) -> scipy.sparse.coo_array:
    """[V, V], with entries that are equal, and zeros."""
    ends = tuple(sample().edge_index)
    values = np.random.default_rng(3).integers(0, 5, len(ends[0]))
    return scipy.sparse.coo_array((values.astype(dtype), ends), (V, V))


def edges_of(folder) -> list[tuple]:
    data = open_dataset(folder)
    weights = np.ones(data.num_edges) if data.edge_weights is None else data.edge_weights
    assert data.num_nodes == V
    return sorted(zip(edge_pairs(folder), weights.tolist(), strict=True))


@pytest.mark.parametrize("dtype", [np.float64, np.uint8, bool])
@pytest.mark.parametrize("form", ["csr_array", "csc_array", "coo_array", "csr_matrix"])
def test_what_scipy_saves_comes_back(tmp_path, form, dtype):
    matrix = getattr(scipy.sparse, form)(coo(dtype))
    scipy.sparse.save_npz(tmp_path / "small.npz", matrix, compressed=dtype is np.float64)
    notes = []
    data = imported(tmp_path / "small.npz", features="ones", note=notes.append)
    loaded = scipy.sparse.load_npz(tmp_path / "small.npz").tocoo()
    values = np.ones(loaded.nnz) if dtype is bool else loaded.data.astype(np.float32)
    pairs = zip(loaded.row.tolist(), loaded.col.tolist(), strict=True)
    assert edges_of(data.path) == sorted(zip(pairs, values.tolist(), strict=True))
    assert (data.edge_weights is None) == (dtype is bool)
    weights = "" if dtype is bool else "; their values are edge weights"
    assert notes[0] == f"small.npz: {loaded.nnz} entries{weights}"


def saved(path, **changes) -> None:
    """The parts of a CSR, some of which are others; None: left out."""
    csr = coo().tocsr()
    parts = {"format": np.array(b"csr"), "shape": np.array(csr.shape)} | {
        name: getattr(csr, name) for name in ("data", "indices", "indptr")
    }
    np.savez(path, **{name: part for name, part in (parts | changes).items() if part is not None})


CSR = coo().tocsr()
BAD = {
    "form": ({"format": np.array("bsr")}, "format", "csr, csc or coo", "'bsr'"),
    "number": ({"format": np.array(7)}, "format", "a short text", "int64 of shape []"),
    "texts": ({"format": np.array(["csr"])}, "format", "a short text", "of shape [1]"),
    "long": ({"format": np.array("c" * 999)}, "format", "a short text", "bytes"),
    "oblong": ({"shape": np.array([V, V + 1])}, "shape", "a row and a column for each node", "[60, 61]"),
    "no rows": ({"shape": np.array([0, 0])}, "small.npz", "nodes for", "0 rows"),
    "many rows": ({"format": np.array("coo"), "shape": np.array([10**9] * 2)}, "small.npz", "nodes for", "1000000000"),
    "offsets": ({"indptr": CSR.indptr[:-1]}, "indptr", "shape [61]", "[60]"),
    "order": ({"indptr": CSR.indptr[::-1].copy()}, "small.npz", "values that ascend", ".. 0"),
    "beyond": ({"indices": CSR.indices + V}, "small.npz", "a node in [0, 60)", "71"),
    "negative": ({"indices": CSR.indices - 1}, "small.npz", "a node in [0, 60)", "-1"),
    "floats": ({"indices": CSR.indices / 2}, "indices", "integers", "float64"),
    "few values": ({"data": CSR.data[:-1]}, "data", "one weight for each edge", "only"),
    "many values": ({"data": np.append(CSR.data, 1)}, "data", "one per edge", "more"),
    "complex": ({"data": CSR.data * 1j}, "data", "an array of numbers", "complex128"),
    "no indices": ({"indices": None}, "small.npz", "an array indices", "data, format, indptr, shape"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files_are_refused(tmp_path, name):
    changes, place, expected, found = BAD[name]
    saved(tmp_path / "small.npz", **changes)
    error = refusal(tmp_path / "small.npz", features="ones")
    assert place in error.place and expected in error.expected and found in error.found, error


@pytest.mark.parametrize("form", ["bsr", "dia"])
def test_the_cure_of_other_forms_works(tmp_path, monkeypatch, form):
    scipy.sparse.save_npz(tmp_path / "small.npz", coo().asformat(form))
    error = refusal(tmp_path / "small.npz", features="ones")
    monkeypatch.chdir(tmp_path)
    exec(error.hint, {"scipy": scipy})
    assert imported(tmp_path / "csr.npz", features="ones").num_nodes == V
