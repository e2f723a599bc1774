"""take() and decode_stored(): rows that travel as they are stored."""

import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from processes import ALL_TESTS

from cohort_gnn import CohortError, ibp
from cohort_gnn.ibp.stored import demand_inside

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
    entries, data = (torch.from_numpy(each) for each in (entries, data))
    ibp.decode_stored(encoded.profile, entries, data, out.zero_())
    assert torch.equal(out.view(torch.uint8), rows[ids].view(torch.uint8))
    assert len(ibp.take(encoded, [])[0]) == 0


def test_refuses_ids_and_outputs_that_do_not_fit():
    rows = table(torch.float32)
    encoded = ibp.encode(rows, ibp.fit(rows))
    for ids in ([300], [0, -1]):
        with pytest.raises(CohortError, match=rf"take: index\[{len(ids) - 1}\]: expected 0 to 299, found {ids[-1]}"):
            ibp.take(encoded, ids)
    entries, data = ibp.take(encoded, [1, 2])
    for out in (np.empty((3, 21), np.float32), np.empty((2, 21), np.int32)):
        with pytest.raises(CohortError, match=r"decode_stored: out: expected contiguous float32 \[2, 21\], found "):
            ibp.decode_stored(encoded.profile, entries, data, out)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("codec", ["exponent", "invariant", "sparse", "raw"])
@settings(max_examples=150 if ALL_TESTS else 50, deadline=None)
@given(data=st.data())
def test_any_bytes_are_safe(codec, device, data):
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
    if device == "cuda":
        entries, stored = torch.from_numpy(entries.view(np.int64)).cuda(), torch.from_numpy(stored).cuda()
    try:
        assert len(ibp.decode_stored(encoded.profile, entries, stored)) == 20
    except CohortError as error:
        assert "expected a valid encoding" in str(error)


@pytest.mark.parametrize("entry", [1 << 56, 1, 1 << 40, -1], ids=["region", "begin", "length", "all"])
def test_rows_beyond_the_data_are_refused(entry):
    demand_inside(torch.tensor([25 << 40, 3 | 22 << 40]), 100)
    with pytest.raises(CohortError, match="stored row 1: expected a valid encoding"):
        demand_inside(torch.tensor([25 << 40, entry + (25 << 40)]), 100)


@pytest.mark.gpu
@pytest.mark.parametrize("place", ["pinned", "cuda"])
@pytest.mark.parametrize("layout", ["packed", "slots"])
@pytest.mark.parametrize(("dtype", "codec"), CASES, ids=str)
def test_a_gpu_takes_and_decodes_them_too(dtype, codec, layout, place):
    rows = table(dtype)
    encoded = ibp.encode(rows, ibp.fit(rows, codec), layout=layout).to(place)
    ids = torch.from_numpy(np.random.default_rng(2).integers(0, len(rows), 500)).cuda()
    entries, data = ibp.take(encoded, ids)
    assert entries.is_cuda and data.is_cuda and len(entries) == 500 and data.dtype == torch.uint8
    out = torch.empty(500, rows.shape[1], dtype=dtype, device="cuda")
    assert ibp.decode_stored(encoded.profile, entries, data, out) is out
    assert torch.equal(out.cpu().view(torch.uint8), rows[ids.cpu()].view(torch.uint8))
    assert [len(each) for each in ibp.take(encoded, ids[:0])] == [0, 0]


@pytest.mark.gpu
def test_a_gpu_refuses_what_the_host_refuses():
    rows = table(torch.float32)
    encoded = ibp.encode(rows, ibp.fit(rows, "exponent"))
    with pytest.raises(CohortError, match="take: rows: expected rows that cuda:0 reads, found rows for cpu"):
        ibp.take(encoded, torch.zeros(2, dtype=torch.int64, device="cuda"))
    encoded = encoded.to("cuda")
    for ids in ([300], [0, -1]):
        with pytest.raises(CohortError, match=rf"take: index\[{len(ids) - 1}\]: expected 0 to 299, found {ids[-1]}"):
            ibp.take(encoded, torch.tensor(ids, device="cuda"))
    entries, data = ibp.take(encoded, torch.tensor([1, 2], device="cuda"))
    with pytest.raises(CohortError, match="stored row 1: expected a valid encoding"):
        ibp.decode_stored(encoded.profile, entries, data[: len(data) // 2])
    for arguments, text in [
        ((entries, data, torch.empty(3, 21, device="cuda")), r"out: expected contiguous CUDA float32 \[2, 21\], found"),
        ((entries, data, torch.empty(2, 21).int().cuda()), r"out: expected contiguous CUDA float32 .* torch.int32"),
        ((entries, data, torch.empty(2, 21)), r"out: expected float32 on cuda:0, found torch.float32 .* on cpu"),
        ((entries.int(), data), r"entries: expected torch.int64 on cuda:0, found torch.int32 \[2\] on cuda:0"),
        ((entries, data.cpu()), "data: expected torch.uint8 on cuda:0, found torch.uint8 .* on cpu"),
        ((entries, data.view(torch.int32)), "data: expected torch.uint8 on cuda:0, found torch.int32"),
    ]:
        with pytest.raises(CohortError, match="decode_stored: " + text):
            ibp.decode_stored(encoded.profile, *arguments)
    spread = entries.repeat_interleave(2)[::2]
    assert torch.equal(ibp.decode_stored(encoded.profile, spread, data).cpu(), rows[[1, 2]])
