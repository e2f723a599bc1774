"""fetch: ids of every integer type and shape, of numpy and torch, for rows in every place."""

import copy
import os
import pickle

import numpy as np
import pytest

from cohort_gnn import ibp
from cohort_gnn.base.errors import CohortError

torch = pytest.importorskip("torch")

INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
SHAPES = [(), (0,), (7,), (3, 4), (2, 0, 3), (2, 3, 4)]


@pytest.fixture(scope="module")
def rows():
    return torch.randn(200, 24, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def encoded(rows):
    return ibp.encode(rows, ibp.fit(rows))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", INTEGERS)
def test_ids_of_any_integer_type_and_shape(rows, encoded, dtype, shape):
    ids = np.random.default_rng(1).integers(0, 128, shape).astype(dtype)
    found = ibp.fetch(encoded, ids)
    assert isinstance(found, np.ndarray) and found.dtype == np.float32
    assert (found == rows.numpy()[ids]).all() and found.shape == (*shape, 24)
    as_torch = torch.from_numpy(np.asarray(ids))
    assert torch.equal(ibp.fetch(encoded, as_torch), rows[as_torch.long()])


def test_rows_are_of_the_library_of_the_ids(rows, encoded):
    of_numpy = ibp.encode(rows.numpy(), encoded.profile)
    for table, of_list in ((encoded, torch.Tensor), (of_numpy, np.ndarray)):
        assert isinstance(ibp.fetch(table, torch.tensor([1, 2])), torch.Tensor)
        assert isinstance(ibp.fetch(table, np.array([1, 2])), np.ndarray)
        assert isinstance(ibp.fetch(table, [[1], [2]]), of_list) and ibp.fetch(table, [[1], [2]]).shape == (2, 1, 24)
    halves = rows.to(torch.bfloat16)  # numpy has no such type
    found = ibp.fetch(ibp.encode(halves, ibp.fit(halves)), np.array([5]))
    assert torch.equal(found, halves[5:6])


def test_rows_by_brackets(rows, encoded):
    assert torch.equal(encoded[3], rows[3])
    assert torch.equal(encoded[5:50:7], rows[5:50:7]) and torch.equal(encoded[150:10:-9], rows[15:151:9].flip(0))
    assert encoded[200:].shape == (0, 24) and torch.equal(torch.stack(list(encoded)), rows)
    assert torch.equal(encoded[torch.tensor([[1, 2], [3, 4]])], rows[torch.tensor([[1, 2], [3, 4]])])


def test_copies_share_the_rows(rows, encoded):
    assert torch.equal(copy.deepcopy(encoded)[:], rows)
    with pytest.raises(CohortError, match=r"(?s)pickle of EncodedRows: .*save\(\)"):
        pickle.dumps(encoded)


OUTS = [  # for two rows of 24 columns
    (np.empty((24, 2), np.float32), r"found float32 \[24, 2\]"),
    (torch.empty(48), r"found torch.float32 \[48\]"),
    (torch.empty(2, 1, 24), r"found torch.float32 \[2, 1, 24\]"),
    (torch.empty(2, 12, dtype=torch.float64), r"found torch.float64 \[2, 12\]"),
    (np.empty((2, 24), np.float16), r"found float16 \[2, 24\]"),
    (torch.empty(2, 24, dtype=torch.bfloat16), "found torch.bfloat16"),
    (np.empty((24, 2), np.float32).T, r"found float32 \[2, 24\], not contiguous"),
    (torch.empty(2, 48)[:, ::2], r"found torch.float32 \[2, 24\], not contiguous"),
    (np.frombuffer(bytes(192), np.float32).reshape(2, 24), "found float32 .*, read-only"),
    (np.empty((2, 24), ">f4"), "found >f4"),
    (torch.empty(2, 24, device="meta"), "found torch.float32 .*, on meta"),
    (np.empty((2, 24), np.int32), r"found int32 \[2, 24\]"),
    (torch.empty(2, 24, dtype=torch.int32), r"found torch.int32 \[2, 24\]"),
    (np.empty((2, 24), "V4"), r"found \|V4"),
    (torch._neg_view(torch.empty(2, 24)), "found torch.float32 .*, not contiguous"),
    (torch.empty(2, 24, requires_grad=True), "found torch.float32 .*, with gradients"),
]


@pytest.mark.parametrize(("out", "text"), OUTS)
def test_an_out_that_does_not_fit(encoded, out, text):
    with pytest.raises(CohortError, match=r"^fetch: out: expected contiguous float32 \[2, 24\], " + text):
        ibp.fetch(encoded, [3, 4], out)
    with pytest.raises(CohortError, match=r"^decode: out: expected contiguous float32 \[2, 24\], " + text):
        ibp.decode(ibp.encode(encoded[[3, 4]], encoded.profile), out)


def test_an_out_of_another_kind(rows, encoded):
    with pytest.raises(CohortError, match=r"fetch: out: expected a torch tensor or numpy array, float32 .* found list"):
        ibp.fetch(encoded, [3], [0.0] * 24)
    assert torch.equal(ibp.fetch(encoded, 3, torch.empty(24)), rows[3])
    assert ibp.fetch(encoded, [], np.empty((0, 24), np.float32)).shape == (0, 24)
    with pytest.raises(CohortError, match=r"expected contiguous bfloat16 \[1, 24\], found uint16"):
        ibp.Table(rows.bfloat16()).fetch([3], np.empty((1, 24), np.uint16))


def test_an_out_of_rows_that_are_no_floats(tmp_path):
    doubles = np.random.default_rng(1).standard_normal((20, 4))
    table = ibp.Table(doubles)
    assert (table.fetch([3, 4], torch.empty(2, 4, dtype=torch.float64)).numpy() == doubles[3:5]).all()
    for other in (np.empty((2, 4), np.int64), torch.empty(2, 4, dtype=torch.complex64)):
        with pytest.raises(CohortError, match=r"out: expected contiguous float64 \[2, 4\], found .*(int|complex)64"):
            table.fetch([3, 4], other)
    table.save(tmp_path / "x.ibp")
    of_file = ibp.Table.load(tmp_path / "x.ibp")  # of which the width alone is known
    assert (of_file.fetch([3, 4], np.empty((2, 4))) == doubles[3:5]).all()
    with pytest.raises(CohortError, match="expected contiguous bits64 .*, found datetime64"):
        of_file.fetch([3, 4], np.empty((2, 4), "M8[s]"))


def test_autograd_knows_that_out_has_changed(encoded):
    out = ibp.fetch(encoded, [3, 4], torch.empty(2, 24))
    loss = (out * torch.ones(24, requires_grad=True)).sum()
    ibp.fetch(encoded, [5, 6], out)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    with torch.inference_mode():
        ibp.fetch(encoded, [5, 6], torch.empty(2, 24))


@pytest.mark.parametrize(
    ("ids", "text"),
    [
        (np.array([True, False]), "expected integers, found bool"),
        (torch.tensor([1.0]), "expected integers, found float32"),
        (torch.tensor([1.0], dtype=torch.bfloat16, requires_grad=True), r"expected integers, found bfloat16 \[1\]"),
        (
            torch.tensor([1]).to_sparse(),
            "expected a dense tensor in host memory, found a tensor of layout torch.sparse_coo",
        ),
        (torch.tensor([1], device="meta"), "expected a dense tensor in host memory, found a tensor on the device meta"),
        (np.array([3, 2**63], np.uint64), f"expected integers up to {2**63 - 1}, found {2**63}"),
        ([[1, 2], [3]], "expected integers, found lists of different lengths"),
        (np.array([[1, 2], [-1, 3]]), r"index\[2\]: expected 0 to 199, found -1"),
        (np.int8(-3), "found -3"),
    ],
)
def test_what_is_no_id(encoded, ids, text):
    with pytest.raises(CohortError, match=text):
        ibp.fetch(encoded, ids)


def test_bad_calls_step_by_step(rows, encoded):
    table = ibp.Table(encoded)
    for call, text in [
        (lambda: ibp.encode(rows.half(), encoded.profile), "found float16 x 24"),
        (lambda: ibp.fit(rows, "planes", mantissa_bits=2.5), "fit: mantissa_bits: expected an integer, found 2.5"),
        (lambda: ibp.fit(torch.eye(9).to_sparse()), r"(?s)a dense tensor, found .* torch.sparse_coo.*to_dense"),
        (lambda: ibp.fit(rows, "zip"), "codec: expected auto, raw, .*sparse, dictionary or planes, found zip"),
        (lambda: ibp.fit(rows, threshold="0.9"), "fit: threshold: expected a number, found '0.9'"),
        (
            lambda: ibp.encode(rows, ibp.fit(rows), in_place="no"),
            "encode: in_place: expected true or false, found 'no'",
        ),
        (
            lambda: ibp.encode(rows, ibp.fit(rows), batch_rows=0),
            "encode: batch_rows: expected a multiple of 64 above 0",
        ),
        (lambda: ibp.Profile.load(__file__), "IBPPROF1"),
        (lambda: ibp.fit(rows, None), "codec: expected auto, .*, found None"),
        (lambda: ibp.fit(rows, seed=-1), f"fit: seed: expected an integer, 0 to {2**64 - 1}, found -1"),
        (lambda: ibp.fit(rows, min_sample=1.5), "fit: min_sample: expected an integer, found 1.5"),
        (lambda: ibp.fit(rows).mean_row_bytes([[1.0]]), r"mean_row_bytes: rows: expected an array \[rows, columns\]"),
        (lambda: ibp.encode(rows, None), r"(?s)encode: profile: expected a Profile, found NoneType.*fit\(rows\)"),
        (lambda: ibp.encode(rows, ibp.fit(rows), layout=None), "encode: layout: expected .*, found None"),
        (lambda: ibp.encode(rows, ibp.fit(rows), slot_bytes=-16), "slot_bytes: expected an integer, .* found -16"),
        (lambda: ibp.encode(np.frombuffer(bytes(64), "f4").reshape(4, 4), ibp.fit(rows), in_place=True), "a read-only"),
        (lambda: ibp.fetch(table, [1]), r"(?s)fetch: encoded: expected EncodedRows, found Table.*table.fetch\(ids\)"),
        (lambda: ibp.decode(rows), r"decode: encoded: expected EncodedRows, found Tensor"),
        (lambda: ibp.take(table, [1]), "take: encoded: expected EncodedRows, found Table"),
    ]:
        with pytest.raises(CohortError, match=text):
            call()


def test_files_have_the_names_of_paths_alone(tmp_path):
    table = ibp.Table(np.ones((3, 4), np.float32))
    for nothing in (None, 3):
        with pytest.raises(TypeError, match="expected str, bytes or os.PathLike object"):
            table.save(nothing)
    table.save(os.fsencode(tmp_path / "x.ibp"))
    assert [each.name for each in tmp_path.iterdir()] == ["x.ibp"]


class OfAnotherLibrary:
    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__()

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


@pytest.mark.parametrize("dtype", [np.float64, np.int8, np.int64, np.float32], ids=str)
def test_rows_of_another_library_keep_their_dtype(dtype):
    array = -np.arange(24).reshape(3, 8).astype(dtype)
    found = ibp.Table(OfAnotherLibrary(array))[[2, 0]]
    assert found.dtype == dtype and np.array_equal(found, array[[2, 0]])


def test_places_that_are_not_there(encoded):
    places = [("moon", None), ("cuda:x", None), ("pinned:1", None), ("", None)]
    for place, device in places:
        with pytest.raises(CohortError, match="expected cpu, pinned or cuda"):
            encoded.to(place, device)
    if not torch.cuda.is_available():
        with pytest.raises(CohortError, match="a GPU that torch can use|a build with CUDA"):
            encoded.to("pinned")
    with pytest.raises(CohortError, match="expected rows with place pinned or cuda, found cpu"):
        encoded.reserve(10)
    assert (encoded.to("cpu").place, encoded.device) == ("cpu", "cpu")


@pytest.mark.gpu
@pytest.mark.parametrize("place", ["pinned", "cuda"])
def test_ids_for_rows_that_a_gpu_reads(rows, encoded, place):
    table = encoded.to(place)
    assert (table.place, table.device) == (place, f"cuda:{torch.cuda.current_device()}")
    for shape in SHAPES:
        for dtype in ("uint8", "int32", "int64"):
            ids = torch.randint(200, shape).to(getattr(torch, dtype))
            found = ibp.fetch(table, ids.cuda())
            assert found.is_cuda and torch.equal(found.cpu(), rows[ids.long()]), (shape, dtype)
            assert torch.equal(ibp.fetch(table, ids), rows[ids.long()])  # by the CPU
            assert (ibp.fetch(table, ids.numpy()) == rows[ids.long()].numpy()).all()
            out = torch.empty(*shape, 24, device="cuda")
            assert ibp.fetch(table, ids, out) is out and torch.equal(out.cpu(), rows[ids.long()])
    every_second = torch.arange(100, device="cuda", dtype=torch.int32)[::2]
    assert torch.equal(table[every_second].cpu(), rows[:100:2])
    for stream in (torch.cuda.Stream(), torch.cuda.Stream().cuda_stream):
        ids = torch.randint(200, (50_000,), dtype=torch.int32, device="cuda")
        torch.cuda.synchronize()
        found = ibp.fetch(table, ids, stream=stream)
        torch.cuda.synchronize()
        assert torch.equal(found.cpu(), rows[ids.long().cpu()])


@pytest.mark.gpu
def test_the_default_stream_by_its_handle(rows, encoded):
    table, ids = encoded.to("cuda"), torch.zeros(1000, dtype=torch.int32, device="cuda")
    torch.cuda.synchronize()
    torch.cuda._sleep(50_000_000)
    ids.fill_(7)
    found = ibp.fetch(table, ids, stream=torch.cuda.default_stream().cuda_stream)
    assert torch.equal(found.cpu(), rows[[7] * 1000])


@pytest.mark.gpu
def test_a_larger_fetch_names_the_wrong_id_of_the_one_before(encoded):
    table = encoded.to("cuda")
    torch.cuda._sleep(50_000_000)
    ibp.fetch(table, torch.tensor([200], device="cuda"))
    with pytest.raises(CohortError, match=r"fetch: index\[0\]: expected the number of a row of the table"):
        ibp.fetch(table, torch.zeros(1000, dtype=torch.int64, device="cuda"))


@pytest.mark.gpu
def test_what_is_no_id_on_a_gpu(encoded):
    table = encoded.to("pinned")
    with pytest.raises(CohortError, match="expected integers, found torch.float32"):
        ibp.fetch(table, torch.zeros(3, device="cuda"))
    with pytest.raises(CohortError, match=r'host memory, found a CUDA tensor\n.*to\("pinned"\)'):
        ibp.fetch(encoded, torch.zeros(3, dtype=torch.int32, device="cuda"))
    with pytest.raises(CohortError, match="fetch: out: expected contiguous CUDA float32"):
        ibp.fetch(table, torch.zeros(3, dtype=torch.int32, device="cuda"), torch.empty(3, 24))
    with pytest.raises(CohortError, match="one of cuda:0 to cuda:"):
        encoded.to("cuda:99")
    with pytest.raises(CohortError, match="expected a GPU, found cpu"):
        encoded.to("pinned", device="cpu")
    assert torch.equal(ibp.fetch(table, [3]), ibp.fetch(encoded, [3]))


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
@pytest.mark.parametrize("place", ["pinned", "cuda"])
def test_rows_for_a_gpu_that_is_not_the_current_one(rows, encoded, place):
    ids = torch.randint(200, (500,))
    tables = [
        encoded.to(place, device=1),
        encoded.to(place, device="cuda:1"),
        encoded.to(place, torch.device("cuda:1")),
    ]
    for table in tables + ([encoded.to("cuda:1")] if place == "cuda" else []):
        assert table.device == "cuda:1"
        found = ibp.fetch(table, ids.to("cuda:1"))
        assert found.device == torch.device("cuda:1") and torch.equal(found.cpu(), rows[ids])
        with pytest.raises(CohortError, match="expected a tensor on cuda:1, found one on cuda:0"):
            ibp.fetch(table, ids.to("cuda:0"))
    assert torch.cuda.current_device() == 0
