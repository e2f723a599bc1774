"""The C++ extension against slow twins in NumPy."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from cohort.base.errors import CohortError
from cohort.dataset import from_tensors
from cohort.dataset import open as open_dataset
from cohort.dataset.writer import coo_to_csc


@st.composite
def graphs(draw):
    num_nodes = draw(st.integers(1, 40))
    num_edges = draw(st.integers(0, 300))
    ends = draw(npst.arrays(np.int64, (2, num_edges), elements=st.integers(0, num_nodes - 1)))
    return num_nodes, ends


@given(graphs())
def test_coo_to_csc_is_a_stable_sort_by_destination_then_source(graph):
    num_nodes, (src, dst) = graph
    indptr, indices = coo_to_csc(src, dst, num_nodes)
    order = np.lexsort((src, dst))
    assert indptr.dtype == np.int64 and indices.dtype == np.int32
    np.testing.assert_array_equal(indices, src[order])
    np.testing.assert_array_equal(indptr, np.searchsorted(dst[order], np.arange(num_nodes + 1)))


@pytest.mark.parametrize(("src", "dst", "place"), [([0, 5], [1, 1], "src[1]"), ([0, 1], [-1, 1], "dst[0]")])
def test_coo_to_csc_refuses_ids_out_of_range(src, dst, place):
    with pytest.raises(CohortError) as error:
        coo_to_csc(np.array(src), np.array(dst), 5)
    assert error.value.place == place
    assert error.value.expected == "a node in [0, 5)"


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
