"""take() and decode_stored(): rows that travel as they are stored."""

import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from processes import ALL_TESTS

from cohort_gnn import CohortError, ibp

FLOATS = [torch.float32, torch.float16, torch.bfloat16]
CASES = [(dtype, "exponent") for dtype in FLOATS]
CASES += [
    (dtype, codec)
    for dtype in [*FLOATS, torch.uint8, torch.int32, torch.int64]
    for codec in ("auto", "invariant", "sparse", "raw")
]


def table(dtype: torch.dtype, num_rows: int = 300, dim: int = 21) -> torch.Tensor:
    values = torch.randn(num_rows, dim, generator=torch.Generator().manual_seed(1))
    values[values < -0.5] = 0
    return (values.abs() * 9).to(dtype) if not dtype.is_floating_point else values.to(dtype)


@pytest.mark.parametrize("layout", ["packed", "slots"])
@pytest.mark.parametrize(("dtype", "codec"), CASES, ids=str)
def test_rows_of_every_codec_and_layout_come_back(dtype, codec, layout):
    rows = table(dtype)
    encoded = ibp.encode(rows, ibp.fit(rows, codec), layout=layout)
    ids = np.random.default_rng(2).integers(0, len(rows), 500)
    entries, data = ibp.take(encoded, ids)
    assert entries.dtype == np.uint64 and data.dtype == np.uint8 and len(entries) == 500
    out = torch.empty(500, rows.shape[1], dtype=dtype)
    assert ibp.decode_stored(pickle.loads(pickle.dumps(encoded.profile)), entries, data, out) is out
    assert torch.equal(out.view(torch.uint8), rows[ids].view(torch.uint8))
    assert len(ibp.take(encoded, [])[0]) == 0


def test_encoded_rows_take_fewer_bytes_than_decoded():
    rows = torch.randn(4000, 128)
    encoded = ibp.encode(rows, ibp.fit(rows))
    entries, data = ibp.take(encoded, np.arange(4000))
    assert entries.nbytes + len(data) < 0.9 * rows.numel() * 4


def test_refuses_ids_and_outputs_that_do_not_fit():
    rows = table(torch.float32)
    encoded = ibp.encode(rows, ibp.fit(rows))
    for ids in ([300], [0, -1]):
        with pytest.raises(CohortError, match=rf"take: index\[{len(ids) - 1}\]: expected 0 to 299, found {ids[-1]}"):
            ibp.take(encoded, ids)
    entries, data = ibp.take(encoded, [1, 2])
    with pytest.raises(CohortError, match="out: expected 168 bytes of float32, found 252 bytes"):
        ibp.decode_stored(encoded.profile, entries, data, np.empty((3, 21), np.float32))


@pytest.mark.parametrize("codec", ["exponent", "invariant", "sparse"])
@settings(max_examples=150 if ALL_TESTS else 50, deadline=None)
@given(data=st.data())
def test_any_bytes_are_safe(codec, data):
    """Damaged messages give rows or an error, and nothing else."""
    rows = table(torch.float32, 64)
    encoded = ibp.encode(rows, ibp.fit(rows, codec))
    entries, stored = ibp.take(encoded, np.arange(20))
    if data.draw(st.booleans()):
        entries = entries.copy()
        entries[data.draw(st.integers(0, 19))] = data.draw(st.integers(0, 2**64 - 1))
    if data.draw(st.booleans()):
        stored = stored.copy()
        for _ in range(5):
            stored[data.draw(st.integers(0, len(stored) - 1))] = data.draw(st.integers(0, 255))
    stored = stored[: data.draw(st.integers(0, len(stored)))]
    try:
        assert len(ibp.decode_stored(encoded.profile, entries, stored)) == 20
    except CohortError as error:
        assert "expected a valid encoding" in str(error)
