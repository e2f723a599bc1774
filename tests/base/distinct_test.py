"""base/distinct.py against numpy's own functions."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from cohort_gnn.base.distinct import distinct, has_repeats, is_among

NUMBERS = npst.arrays(
    np.int64,
    npst.array_shapes(min_dims=1, max_dims=2, min_side=0, max_side=20),
    elements=st.one_of(st.integers(-4, 4), st.integers(-(2**63), 2**63 - 1)),
)


@given(NUMBERS, NUMBERS)
def test_they_are_what_numpy_gives(numbers, others):
    before = numbers.copy()
    assert np.array_equal(found := distinct(numbers), np.unique(numbers)) and found.dtype == np.int64
    assert np.array_equal(distinct(numbers, others), np.union1d(numbers, others))
    assert has_repeats(numbers) == (len(np.unique(numbers)) < numbers.size)
    among = is_among(numbers, np.unique(others))
    assert among.shape == numbers.shape and np.array_equal(among, np.isin(numbers, others))
    assert np.array_equal(numbers, before)
