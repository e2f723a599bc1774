"""Every codec, dtype, width and special value, drawn by hypothesis; the slow decoder as second opinion."""

import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import slow_decoder
from hypothesis import given, settings
from hypothesis import strategies as st

from cohort_gnn import ibp
from cohort_gnn.base.errors import CohortError

torch = pytest.importorskip("torch")

GOLDEN = Path(__file__).parent / "golden"
DTYPES = {"float32": np.uint32, "float16": np.uint16, "bfloat16": np.uint16, "uint8": np.uint8}
DTYPES |= {"int32": np.uint32, "int64": np.uint64}
FLOATS = ("float32", "float16", "bfloat16")


def tensor_of(bits: np.ndarray, dtype: str):
    signed = torch.from_numpy(bits.view(f"i{bits.itemsize}") if bits.itemsize > 1 else bits)
    return signed.view(getattr(torch, dtype))


def bits_of(tensor, dtype: str) -> np.ndarray:
    size = np.dtype(DTYPES[dtype]).itemsize
    plain = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[size]
    return tensor.view(plain).numpy().view(DTYPES[dtype])


@st.composite
def tables(draw):
    """(dtype, bits [rows, columns]): noise, bell-shaped, sparse, row-constant or special values, mixed by row."""
    dtype = draw(st.sampled_from(sorted(DTYPES)))
    rows, columns = (
        draw(st.integers(1, 40)),
        draw(st.one_of(st.integers(1, 70), st.sampled_from([127, 128, 300, 1000]))),
    )
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    kinds = draw(st.lists(st.sampled_from(["noise", "bell", "sparse", "constant", "special"]), min_size=1, max_size=3))
    word = DTYPES[dtype]
    noise = random.integers(0, 2 ** (8 * np.dtype(word).itemsize), (rows, columns), dtype=word, endpoint=False)
    floats = torch.from_numpy(random.standard_normal((rows, columns)))
    bell = bits_of(
        floats.to(getattr(torch, dtype)) if dtype in FLOATS else (floats * 9).to(getattr(torch, dtype)), dtype
    )
    special = random.choice(SPECIAL[dtype], (rows, columns)) if dtype in SPECIAL else noise
    few = random.random((rows, columns)) < 0.03
    made = {"noise": noise, "bell": bell, "special": special, "sparse": np.where(few, bell, 0).astype(word)}
    made["constant"] = np.where(few, np.broadcast_to(noise[:, :1], noise.shape), 0).astype(word)
    choice = [made[kinds[i % len(kinds)]][i] for i in range(rows)]
    return dtype, np.ascontiguousarray(np.stack(choice))


SPECIAL = {
    "float32": np.array(
        [0x7FC00001, 0xFFC12345, 0x7F800001, 0x7F800000, 0xFF800000, 0x80000000, 1, 0x807FFFFF, 0], np.uint32
    ),
    "float16": np.array([0x7E01, 0xFD23, 0x7C01, 0x7C00, 0xFC00, 0x8000, 1, 0x83FF, 0], np.uint16),
    "bfloat16": np.array([0x7FC1, 0xFFC2, 0x7F81, 0x7F80, 0xFF80, 0x8000, 1, 0x807F, 0], np.uint16),
}


def codecs_for(dtype, bits):
    of_halves = ["layers"] if dtype in ("float16", "bfloat16") else []
    of_few = ["dictionary"] if len(np.unique(bits)) <= 256 else []
    return ["auto", "invariant", "sparse", "raw"] + (["exponent"] if dtype in FLOATS else []) + of_halves + of_few


@settings(max_examples=60, deadline=None)
@given(tables(), st.data())
def test_rows_come_back_bit_for_bit(table, data):
    dtype, bits = table
    rows = tensor_of(bits, dtype)
    codec = data.draw(st.sampled_from(codecs_for(dtype, bits)))
    profile = ibp.fit(rows, codec, chunk_bytes=data.draw(st.sampled_from([4, 8])))
    layout = data.draw(st.sampled_from(["auto", "packed", "slots"]))
    encoded = ibp.encode(rows, profile, layout=layout)
    index = data.draw(st.lists(st.integers(0, len(bits) - 1), max_size=60))
    found = ibp.fetch(encoded, index)
    assert found.dtype == rows.dtype and (bits_of(found, dtype) == bits[index]).all()
    assert (bits_of(ibp.decode(encoded), dtype) == bits).all()
    assert encoded.stored_bytes <= ibp.bound(profile, len(bits), layout=layout)


@settings(max_examples=40, deadline=None)
@given(tables(), st.data())
def test_the_slow_decoder_agrees(tmp_path_factory, table, data):
    dtype, bits = table
    rows = tensor_of(bits, dtype)
    profile = ibp.fit(
        rows, data.draw(st.sampled_from(codecs_for(dtype, bits))), chunk_bytes=data.draw(st.sampled_from([4, 8]))
    )
    path = tmp_path_factory.mktemp("slow") / "rows.ibp"
    in_place = data.draw(st.booleans()) and profile.row_bytes % 4 == 0
    if in_place:
        ibp.encode(rows.clone(), profile, in_place=True).save(path)
    else:
        ibp.encode(rows, profile, layout=data.draw(st.sampled_from(["packed", "slots"])), out=path)
    read, decoded = slow_decoder.decode_file(path.read_bytes())
    assert decoded == [row.tobytes() for row in bits]
    assert (bits_of(torch.as_tensor(ibp.decode(ibp.load(path))), dtype) == bits).all()
    assert (read.codec, read.num_columns) == (
        ["raw", "invariant", "exponent", "sparse", "planes", "layers", "dictionary"].index(profile.codec),
        bits.shape[1],
    )


def golden_rows() -> np.ndarray:
    """float32 [70, 24]: dense rows, sparse rows, special values; the same on every machine."""
    state, rows = 1, np.zeros((70, 24), np.uint32)
    for i in range(70):
        for j in range(24):
            state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
            draw = state >> 33
            if i % 3 == 0:
                rows[i, j] = 0x3F000000 + (draw & 0x1FFFFFF)
            elif i % 3 == 1:
                rows[i, j] = 0x3F800000 if draw % 8 == 0 else 0
            else:
                rows[i, j] = SPECIAL["float32"][draw % 9]
    return rows.view(np.float32)


@pytest.mark.parametrize("codec", ["invariant", "exponent", "sparse", "raw", "layers", "dictionary"])
@pytest.mark.parametrize("layout", ["packed", "slots"])
def test_golden_files(codec, layout, tmp_path):
    """Files written once stay readable, and the same bytes are still what is written."""
    rows = golden_rows().view(np.float16 if codec == "layers" else np.float32)
    golden = GOLDEN / f"{codec}_{layout}.ibp"
    stored = ibp.load(golden)
    assert ibp.decode(stored).tobytes() == rows.tobytes()
    ibp.encode(rows, stored.profile, layout=layout, out=tmp_path / "new.ibp")
    assert hashlib.sha256((tmp_path / "new.ibp").read_bytes()).digest() == hashlib.sha256(golden.read_bytes()).digest()


def test_profiles_and_rows_are_kept(tmp_path):
    rows = np.random.default_rng(0).standard_normal((500, 20)).astype(np.float32)
    profile = ibp.fit(rows)
    assert profile.why.startswith(profile.codec)
    profile.save(tmp_path / "profile")
    assert ibp.Profile.load(tmp_path / "profile") == profile
    assert ibp.encode(rows, profile, out=tmp_path / "rows", batch_rows=64) == (tmp_path / "rows").stat().st_size
    again = ibp.load(tmp_path / "rows")
    assert again.profile == profile and (ibp.decode(again) == rows).all()
    out = np.empty((2, 20), np.float32)
    assert ibp.fetch(again, np.array([3, 4]), out) is out and (out == rows[3:5]).all()


@pytest.mark.gpu
@pytest.mark.parametrize("place", ["pinned", "cuda"])
def test_fetch_on_the_gpu(place):
    rows = torch.randn(5000, 100)
    encoded = ibp.encode(rows, ibp.fit(rows)).to(place)
    index = torch.randint(0, 5000, (700,), device="cuda")
    assert torch.equal(ibp.fetch(encoded, index).cpu(), rows[index.cpu()])
    out = torch.empty(700, 100, device="cuda")
    stream = torch.cuda.Stream()
    encoded.reserve(700, stream)
    stream.wait_stream(torch.cuda.current_stream())
    before = torch.cuda.memory_allocated()
    ibp.fetch(encoded, index, out, stream=stream, max_sms=4)
    assert torch.cuda.memory_allocated() == before
    stream.synchronize()
    assert torch.equal(out.cpu(), rows[index.cpu()])
    with pytest.raises(CohortError, match="expected the number of a row of the table"):
        ibp.fetch(encoded, torch.tensor([1, 5000], device="cuda"), check=True)


@pytest.mark.gpu
def test_fetches_on_two_streams_of_two_threads_do_not_disturb_each_other():
    rows = torch.randn(200_000, 64)
    encoded = ibp.encode(rows, ibp.fit(rows)).to("pinned")
    rows = rows.cuda()

    def wrong_rows(seed: int) -> int:
        generator, wrong = torch.Generator("cuda").manual_seed(seed), torch.zeros((), dtype=torch.int64, device="cuda")
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(50):
                index = torch.randint(0, len(rows), (30_000,), device="cuda", generator=generator)
                wrong += (ibp.fetch(encoded, index) != rows[index]).any(dim=1).sum()
            return int(wrong)

    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(wrong_rows, (1, 2))) == [0, 0]
