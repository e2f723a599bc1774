"""Damage that fuzzing found to end in something else than a CohortError; see tests/fuzz."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import zipfile

import numpy as np
import pytest
import scipy.sparse
import torch
from import_helpers import Harmful, imported, refusal
from layout_writers import planetoid_sample, sample, write_planetoid

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset import open as open_dataset
from cohort_gnn.dataset.array_file import NamedArrays
from cohort_gnn.dataset.layouts.inert_pickle import load_inert_pickle


def npy(header: str, data: bytes = b"") -> bytes:
    text = header.encode("latin1")
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data


def test_a_quotation_that_is_no_utf8_is_shown(tmp_path):
    (tmp_path / "edges.csv").write_bytes(b"src,dst\n2,\xff\xfe\n")
    error = refusal(tmp_path / "edges.csv", features="ones")
    assert "line 2" in error.place and error.found == '"\ufffd\ufffd"'


@pytest.mark.parametrize("header", ["{'descr': '<i8', 'shape': (2,", "{'descr': [1], 'fortran_order': 0}", "(" * 5000])
def test_headers_that_numpy_cannot_parse_are_refused(tmp_path, header):
    (tmp_path / "edges.npy").write_bytes(npy(header, bytes(32)))
    error = refusal(tmp_path / "edges.npy", features="ones")
    assert "NumPy's .npy format" in error.expected
    np.savez(tmp_path / "good.npz", x=np.ones((2, 2)))
    with zipfile.ZipFile(tmp_path / "graph.npz", "w") as archive:
        for name in ("x", "src", "dst", "labels"):
            archive.writestr(f"{name}.npy", npy(header, bytes(32)))
    refusal(tmp_path / "graph.npz")


@pytest.mark.parametrize("shape", ["(2, 4000000000000)", "(2, -1)", "(1152921504606846976, 2)"])
def test_arrays_that_their_files_cannot_hold_are_refused(tmp_path, shape):
    (tmp_path / "edges.npy").write_bytes(
        npy(f"{{'descr': '<i8', 'fortran_order': False, 'shape': {shape}}}", bytes(64))
    )
    error = refusal(tmp_path / "edges.npy", features="ones")
    assert f"shape [{shape[1:-1]}]" in error.expected and error.hint == "copy it again"


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2])
def test_a_member_that_claims_more_than_its_bytes_can_be_gets_no_memory(tmp_path, monkeypatch, method):
    graph, claimed = sample(), 1 << 40
    np.savez(path := tmp_path / "graph.npz", x=graph.x, src=graph.edge_index[0], dst=graph.edge_index[1])
    header = f"{{'descr': '<i8', 'fortran_order': False, 'shape': ({claimed // 8 - 16},)}}".ljust(117) + "\n"
    with zipfile.ZipFile(path, "a", method) as archive:
        archive.writestr("labels.npy", npy(header, bytes(80)))
        archive.infolist()[-1].file_size = claimed
    monkeypatch.setattr(np, "empty", lambda *_, **__: pytest.fail("memory for an array that is not there"))
    error = refusal(path)
    assert error.place == f"{path}: labels"
    bzip2 = method == zipfile.ZIP_BZIP2
    assert ("compression method 12" if bzip2 else f"bytes that claim to be {claimed}") in error.found


def test_arrays_that_compress_as_far_as_deflate_can_are_read(tmp_path):
    np.savez_compressed(tmp_path / "zeros.npz", x=np.zeros((4000, 4000)))
    assert (tmp_path / "zeros.npz").stat().st_size < 130_000
    assert NamedArrays(tmp_path / "zeros.npz", "")["x"].read().sum() == 0


def test_a_member_that_is_no_array_is_refused(tmp_path):
    graph = sample()
    np.savez(tmp_path / "graph.npz", x=graph.x, src=graph.edge_index[0], dst=graph.edge_index[1])
    with zipfile.ZipFile(tmp_path / "graph.npz", "a") as archive:
        archive.writestr("labels.npy", b"no array")
    assert "NumPy's .npy format" in refusal(tmp_path / "graph.npz").expected


def test_a_matrix_wider_than_memory_is_refused(tmp_path):
    parts = {"data": np.ones(1, np.float32), "indices": np.zeros(1, np.int64), "indptr": np.array([0, 1, 1])}
    adjacency = {f"adj_{name}": part for name, part in parts.items()} | {"adj_shape": np.array([2, 2])}
    attributes = {f"attr_{name}": part for name, part in parts.items()} | {"attr_shape": np.array([2, 2**61])}
    np.savez(tmp_path / "graph.npz", labels=np.zeros(2, np.int64), **adjacency, **attributes)
    assert "memory holds" in refusal(tmp_path / "graph.npz").expected


def test_a_pickle_that_numbers_many_objects_costs_no_memory(tmp_path):
    """LONG_BINPUT with a large number: the unpickler in C makes an array of that length."""
    (tmp_path / "p").write_bytes(b"\x80\x02]r" + (2**31 - 1).to_bytes(4, "little") + b".")
    assert load_inert_pickle(tmp_path / "p") == []


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4])
def test_pickles_are_read_as_ever(tmp_path, protocol):
    graph = planetoid_sample()
    write_planetoid(tmp_path / "raw", graph, protocol)
    matrix = load_inert_pickle(tmp_path / "raw/ind.small.allx")
    np.testing.assert_array_equal(matrix.toarray(), graph.x[:40])
    assert isinstance(matrix, scipy.sparse.csr_matrix)


@pytest.mark.parametrize("cut", [3, 40, 200, 700])
def test_tensors_that_end_early_are_refused(tmp_path, cut):
    buffer = io.BytesIO()
    torch.save({"x": torch.ones(3, 2), "edge_index": torch.zeros(2, 4, dtype=torch.int64)}, buffer)
    (tmp_path / "data.pt").write_bytes(buffer.getvalue()[:cut])
    refusal(tmp_path / "data.pt")


def test_a_pickle_is_named_without_advice_to_load_it(tmp_path):
    (tmp_path / "data.pt").write_bytes(pickle.dumps(Harmful(), protocol=2))
    assert refusal(tmp_path / "data.pt").found == "a pickle that names exec"


def test_a_gzip_of_nothing_that_counts_is_refused(tmp_path):
    (tmp_path / "edges.csv.gz").write_bytes(gzip.compress(b"# nothing\n", mtime=0)[:-4])
    refusal(tmp_path / "edges.csv.gz", features="ones")


def test_a_header_that_only_the_cpp_reader_takes_is_refused(tmp_path):
    """(060,) is no tuple in Python."""
    graph = sample()
    splits = dict(zip(("train_ids", "val_ids", "test_ids"), graph.splits, strict=True))
    ends = {"src": graph.edge_index[0], "dst": graph.edge_index[1]}
    np.savez(tmp_path / "graph.npz", x=graph.x, labels=graph.y, **ends, **splits)

    data = imported(tmp_path / "graph.npz")
    text = "{'descr': '<i8', 'fortran_order': False, 'shape': (060,)}"
    (data.path / "labels.npy").write_bytes(npy(text.ljust(118), graph.y.tobytes()))
    with pytest.raises(CohortError, match="labels.npy"):
        open_dataset(data.path)


@pytest.mark.parametrize("name", ["x.npz", "x.pt", "x.npy", "x.csv", "x.parquet", "graph.yaml", "bolt/metadata.yaml"])
def test_pipes_are_not_waited_for(tmp_path, name):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    os.mkfifo(tmp_path / name)
    source = tmp_path / name if "/" not in name else (tmp_path / name).parent
    with pytest.raises(CohortError, match="a pipe or a device"):
        imported(source)
    (tmp_path / "data").mkdir()
    os.mkfifo(tmp_path / "data/meta.json")
    with pytest.raises(CohortError, match="a pipe or a device"):
        open_dataset(tmp_path / "data")
