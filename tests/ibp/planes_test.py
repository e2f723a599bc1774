"""Codec planes: both planes are the rows bit for bit, plane A alone is within its bound; the slow decoder agrees."""

import hashlib
from pathlib import Path

import numpy as np
import pytest
import slow_decoder
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from property_test import golden_rows

from cohort_gnn import CohortError, ibp

GOLDEN = Path(__file__).parent / "golden"
SPECIAL = [0x7FC00001, 0xFFC12345, 0x7F800001, 0x7F800000, 0xFF800000, 0x80000000, 1, 0x807FFFFF, 0, 0x7F7FFFFF]


@st.composite
def tables(draw) -> np.ndarray:
    """float32 [rows, columns]: any bits, bell-shaped, ReLU's or special values, mixed by row."""
    rows, columns = draw(st.integers(1, 40)), draw(st.sampled_from([1, 2, 7, 31, 64, 127, 128, 300]))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    bell = random.standard_normal((rows, columns)).astype(np.float32)
    kinds = {
        "noise": random.integers(0, 2**32, (rows, columns), dtype=np.uint32, endpoint=False).view(np.float32),
        "bell": bell,
        "relu": np.maximum(bell, 0),
        "special": np.where(random.random((rows, columns)) < 0.05, random.choice(SPECIAL, (rows, columns)), 0)
        .astype(np.uint32)
        .view(np.float32),
    }
    chosen = draw(st.lists(st.sampled_from(sorted(kinds)), min_size=1, max_size=3))
    return np.ascontiguousarray(np.stack([kinds[chosen[i % len(chosen)]][i] for i in range(rows)]))


def demand_within_bound(coarse: np.ndarray, rows: np.ndarray, bound: float) -> None:
    exponent = rows.view(np.uint32) >> 23 & 0xFF
    exact = (exponent == 0) | (exponent == 0xFF)  # zeros, subnormals, infinities, NaNs
    np.testing.assert_array_equal(coarse.view(np.uint32)[exact], rows.view(np.uint32)[exact])
    wide, found = rows[~exact].astype(np.float64), coarse[~exact].astype(np.float64)
    assert (np.abs(found - wide) <= bound * np.abs(wide)).all()


@settings(max_examples=80, deadline=None)
@given(tables(), st.integers(0, 22), st.data())
def test_both_planes_are_the_rows_and_a_is_within_its_bound(rows, mantissa_bits, data):
    profile = ibp.fit(rows, "planes", mantissa_bits=mantissa_bits)
    assert (profile.mantissa_bits, profile.error_bound) == (mantissa_bits, 2.0 ** -(mantissa_bits + 1))
    encoded = ibp.encode(rows, profile)
    index = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=60))
    assert ibp.fetch(encoded, index).tobytes() == rows[index].tobytes()
    assert ibp.decode(encoded).tobytes() == rows.tobytes()
    demand_within_bound(ibp.fetch(encoded, index, planes="A"), rows[index], profile.error_bound)
    assert encoded.stored_bytes <= ibp.bound(profile, len(rows))
    stored = ibp.decode_stored(profile, *ibp.take(encoded, index))
    assert stored.tobytes() == rows[index].tobytes()


@settings(max_examples=40, deadline=None)
@given(rows=tables(), mantissa_bits=st.integers(0, 22))
def test_the_slow_decoder_agrees(tmp_path_factory, rows, mantissa_bits):
    path = tmp_path_factory.mktemp("slow") / "rows.ibp"
    ibp.encode(rows, ibp.fit(rows, "planes", mantissa_bits=mantissa_bits), out=path, batch_rows=64)
    assert slow_decoder.decode_file(path.read_bytes())[1] == [row.tobytes() for row in rows]
    coarse = ibp.fetch(ibp.load(path), np.arange(len(rows)), planes="A")
    assert slow_decoder.decode_file(path.read_bytes(), True)[1] == [row.tobytes() for row in coarse]


def test_golden_file(tmp_path):
    """A file of version 2 stays readable, and is still what is written."""
    rows, golden = golden_rows(), GOLDEN / "planes_slots.ibp"
    stored = ibp.load(golden)
    assert ibp.decode(stored).tobytes() == rows.tobytes()
    demand_within_bound(ibp.fetch(stored, np.arange(len(rows)), planes="A"), rows, stored.profile.error_bound)
    coarse = hashlib.sha256(ibp.fetch(stored, np.arange(len(rows)), planes="A").tobytes()).hexdigest()
    assert coarse == "b22d6dabe0e8583c6c254472a326778f40800a18a493d257847673ac484a7727"
    ibp.encode(rows, stored.profile, out=tmp_path / "new.ibp")
    assert (tmp_path / "new.ibp").read_bytes() == golden.read_bytes()


def test_rows_of_128_columns_have_a_plane_a_of_one_line():
    rows = np.random.default_rng(0).standard_normal((5000, 128)).astype(np.float32)
    profile = ibp.fit(rows, "planes", mantissa_bits=3)
    assert profile.slot_bytes == 128
    exponent = ibp.encode(rows, ibp.fit(rows, "exponent")).stored_bytes
    assert ibp.encode(rows, profile).stored_bytes <= 1.04 * exponent


def rounded(coarse: np.ndarray) -> np.ndarray:
    """uint16: float32 as bfloat16, by integers of Python's size."""
    bits = coarse.view(np.uint32).astype(np.uint64)
    size = bits & 0x7FFFFFFF
    nearest = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    nearest |= ((nearest & 0x7FFF) == 0) & (size != 0)
    return np.where(size > 0x7F800000, 0x7FFF, nearest).astype(np.uint16)


@settings(max_examples=60, deadline=None)
@given(tables(), st.integers(0, 22))
def test_plane_a_is_fetched_as_bfloat16(rows, mantissa_bits):
    encoded = ibp.encode(rows, ibp.fit(rows, "planes", mantissa_bits=mantissa_bits))
    index = np.arange(len(rows))[::-1]
    out = torch.empty(rows.shape, dtype=torch.bfloat16)
    assert ibp.fetch(encoded, index, out, planes="A") is out
    np.testing.assert_array_equal(
        out.view(torch.int16).numpy().view(np.uint16), rounded(ibp.fetch(encoded, index, planes="A"))
    )


def test_bfloat16_is_for_plane_a_alone():
    rows = torch.randn(50, 12)
    planes, exponent = (ibp.encode(rows, ibp.fit(rows, codec)) for codec in ("planes", "exponent"))
    out = torch.empty(2, 12, dtype=torch.bfloat16)
    for call, text in [
        (lambda: ibp.fetch(planes, [0, 1], out), r"expected contiguous float32 \[2, 12\], found torch.bfloat16"),
        (lambda: ibp.fetch(planes, [0, 1, 2], out, planes="A"), r"contiguous bfloat16 \[3, 12\], found .* \[2, 12\]"),
        (lambda: ibp.fetch(planes, [0, 50], out, planes="A"), r"index\[1\]: expected 0 to 49, found 50"),
        (lambda: ibp.fetch(exponent, [0, 1], out, planes="A"), "expected rows of codec planes, found codec exponent"),
    ]:
        with pytest.raises(CohortError, match=text):
            call()


def test_a_table_fetches_plane_a():
    rows = torch.randn(300, 20, generator=torch.Generator().manual_seed(0))
    table = ibp.Table(ibp.encode(rows, ibp.fit(rows, "planes", mantissa_bits=2)))
    coarse = table.fetch([5, 5, 7], planes="A")
    assert torch.equal(table[[5, 5, 7]], rows[[5, 5, 7]]) and not torch.equal(coarse, rows[[5, 5, 7]])
    demand_within_bound(coarse.numpy(), rows[[5, 5, 7]].numpy(), 1 / 8)


def test_bad_calls_say_what_is_wrong(tmp_path):
    rows = np.random.default_rng(0).standard_normal((50, 12)).astype(np.float32)
    planes, exponent = (ibp.encode(rows, ibp.fit(rows, codec)) for codec in ("planes", "exponent"))
    for call, text in [
        (lambda: ibp.fetch(exponent, [0], planes="A"), "expected rows of codec planes, found codec exponent"),
        (lambda: ibp.fetch(planes, [0], planes="B"), "expected A or AB, found B"),
        (lambda: ibp.fit(rows, "planes", mantissa_bits=23), "expected 0 to 22, found 23"),
        (lambda: ibp.fit(rows, "planes", mantissa_bits=-1), "expected 0 to 22, found -1"),
        (lambda: ibp.fit(rows.astype(np.float16), "planes"), "expected float32 rows, found float16"),
        (lambda: ibp.encode(rows, planes.profile, layout="packed"), "layout of codec planes"),
        (lambda: ibp.encode(rows.copy(), planes.profile, in_place=True), "encode_in_place: codec"),
        (
            lambda: ibp.Table(planes).put([0], rows[:1]),
            "expected a codec that stores each row in one piece, found codec planes",
        ),
    ]:
        with pytest.raises(CohortError, match=text):
            call()


@pytest.mark.gpu
@pytest.mark.parametrize("place", ["pinned", "cuda"])
def test_the_gpu_gives_the_same_bits(place):
    rows = torch.randn(5000, 128, generator=torch.Generator().manual_seed(0))
    rows[7, 3], rows[8, 0] = float("nan"), 0
    host = ibp.encode(rows.cuda(), ibp.fit(rows, "planes"))
    encoded, index = host.to(place), torch.randint(0, 5000, (700,))
    for planes in ("A", "AB"):
        found = ibp.fetch(encoded, index.cuda(), planes=planes, check=True).cpu()
        assert torch.equal(found.view(torch.int32), ibp.fetch(host, index, planes=planes).view(torch.int32))
    halves = [torch.empty(700, 128, dtype=torch.bfloat16, device=device) for device in ("cpu", "cuda")]
    ibp.fetch(host, index, halves[0], planes="A")
    ibp.fetch(encoded, index.cuda(), halves[1], planes="A", check=True)
    assert torch.equal(halves[0].view(torch.int16), halves[1].cpu().view(torch.int16))
    with pytest.raises(CohortError, match="fetch: out"):
        ibp.fetch(encoded, index.cuda(), halves[1])
    plain = ibp.encode(rows, ibp.fit(rows, "exponent")).to(place)
    with pytest.raises(CohortError, match="expected rows of codec planes, found codec exponent"):
        ibp.fetch(plain, index.cuda(), planes="A")
