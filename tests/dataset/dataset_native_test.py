"""The C++ extension against slow twins in NumPy."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from cohort_gnn.dataset import _native, from_tensors
from cohort_gnn.dataset import open as open_dataset


@st.composite
def graphs(draw):
    num_nodes = draw(st.integers(1, 40))
    num_edges = draw(st.integers(0, 300))
    ends = draw(npst.arrays(np.int64, (2, num_edges), elements=st.integers(0, num_nodes - 1)))
    return num_nodes, ends


@settings(deadline=None)
@given(graphs())
def test_edges_are_sorted_by_destination_then_source(graph):
    num_nodes, (src, dst) = graph
    with tempfile.TemporaryDirectory() as folder:
        out = from_tensors(Path(folder) / "g", x=np.ones((num_nodes, 1)), edge_index=np.stack([src, dst]))
        data = open_dataset(out)
        order = np.lexsort((src, dst))
        assert data.indptr.dtype == np.int64 and data.indices.dtype == np.int32
        np.testing.assert_array_equal(data.indices, src[order])
        np.testing.assert_array_equal(data.indptr, np.searchsorted(dst[order], np.arange(num_nodes + 1)))


FEATURES = st.sampled_from([np.uint8, np.float16, np.float32]).flatmap(
    lambda dtype: npst.arrays(
        dtype,
        npst.array_shapes(min_dims=2, max_dims=2, max_side=30),
        elements=None if dtype == np.uint8 else {"allow_nan": False, "allow_infinity": False},
    )
)


@settings(deadline=None)  # files, on a machine that may be busy
@given(FEATURES)
def test_features_come_back_through_npy(x):
    with tempfile.TemporaryDirectory() as folder:
        edges = np.zeros((2, 0), np.int64)
        out = from_tensors(Path(folder) / "g", x=x, y=np.zeros(len(x), np.int64), edge_index=edges)
        data = open_dataset(out)
        assert data.x.dtype == x.dtype
        assert data.x.tobytes() == x.tobytes()
        assert data.feature_dim == x.shape[1]


def test_no_python_runs_where_a_path_is_taken(tmp_path):
    """The handler of a signal may raise in Python code; what it raises is lost where arguments are converted."""

    class Folder:
        def __fspath__(self):
            raise KeyboardInterrupt

    for call in (_native.check, _native.demand_in_range, lambda folder: _native.IdSorter(folder, 1 << 20)):
        with pytest.raises(TypeError, match="str"):
            call(Folder())
    for stub in sorted((Path(__file__).parents[2]).glob("**/_native.pyi")):
        assert "PathLike" not in stub.read_text(), stub


def test_a_path_may_have_any_bytes(tmp_path):
    """Linux has no encoding of names; Python's str has these bytes as surrogates."""
    name = os.fsdecode(b"g\xff\xe9")
    out = from_tensors(tmp_path / name, x=np.ones((3, 1)), edge_index=np.array([[0, 1], [1, 2]]))
    assert _native.check(os.fspath(out)) == [] and os.listdir(os.fsencode(tmp_path)) == [b"g\xff\xe9"]
