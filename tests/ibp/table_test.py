"""ibp.Table: bit for bit the array that it was made from, and the changes that put() made."""

import itertools
import multiprocessing
import os
import pickle
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cohort_gnn import ibp
from cohort_gnn.base.errors import CohortError

torch = pytest.importorskip("torch")

DTYPES = ["uint8", "int8", "bool", "float16", "bfloat16", "float32", "int32", "float64", "int64", "complex64"]
OF_NUMPY = [dtype for dtype in DTYPES if dtype != "bfloat16"] + ["uint32", "uint64"]


def bell(dtype: str, rows: int = 300, columns: int = 50, seed: int = 0):
    """Bell-shaped rows, a third of them sparse."""
    values = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed)) * 3
    values[::3] *= torch.arange(columns) % 9 == 0
    return values.to(getattr(torch, dtype))


def bits(array) -> bytes:
    return np.asarray(array.contiguous().view(torch.uint8) if isinstance(array, torch.Tensor) else array).tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_table_is_the_tensor_bit_for_bit(dtype, tmp_path):
    rows = bell(dtype)
    table = ibp.Table(rows)
    assert (table.dtype, table.shape, len(table)) == (rows.dtype, (300, 50), 300)
    assert table.nbytes == rows.nbytes and (table.place, table.device) == ("cpu", "cpu")
    ids = torch.randint(300, (7, 9), dtype=torch.int32)
    assert table[ids].dtype == rows.dtype and bits(table[ids]) == bits(rows[ids.long()])
    assert bits(table[:]) == bits(rows) and bits(table[299]) == bits(rows[299])
    table.save(tmp_path / "rows.ibp")
    again = ibp.Table.load(tmp_path / "rows.ibp", dtype=rows.dtype)
    assert again.dtype == rows.dtype and bits(again[ids]) == bits(rows[ids.long()])
    assert bits(ibp.Table.load(tmp_path / "rows.ibp", verify=False)[ids]) == bits(rows[ids.long()])


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_rows_that_numpy_lacks_are_always_tensors(dtype):
    rows = torch.randint(256, (300, 50), dtype=torch.uint8).view(getattr(torch, dtype))
    table = ibp.Table(rows)
    for ids in (np.array([3, 5]), torch.tensor([3, 5]), [3, 5]):
        assert table[ids].dtype == rows.dtype and bits(table[ids]) == bits(rows[[3, 5]])


@pytest.mark.parametrize("dtype", OF_NUMPY)
def test_a_table_is_the_array_bit_for_bit(dtype, tmp_path):
    rows = bell("float64").numpy().astype(dtype) if dtype != "bool" else bell("bool").numpy()
    rows.flags.writeable = False
    table = ibp.Table(rows)
    ids = np.random.default_rng(0).integers(0, 300, (4, 5), dtype=np.uint16)
    assert table.dtype == rows.dtype == table[ids].dtype and bits(table[ids]) == bits(rows[ids])
    as_torch = table[torch.from_numpy(ids.astype(np.int64))]
    assert isinstance(as_torch, torch.Tensor) and bits(as_torch) == bits(rows[ids])
    table.save(tmp_path / "rows.ibp")
    again = ibp.Table.load(tmp_path / "rows.ibp", dtype=dtype)
    assert again.dtype == rows.dtype and bits(again[2:9]) == bits(rows[2:9])


def test_conjugates_that_torch_has_not_computed_yet():
    rows = torch.randn(40, 6, dtype=torch.complex64, generator=torch.Generator().manual_seed(1)).conj()
    table = ibp.Table(rows)
    assert torch.equal(table[torch.arange(40)], rows)
    table.put(torch.arange(2), rows[2:4])
    assert torch.equal(table[torch.arange(2)], rows[2:4])
    signs = torch._neg_view(torch.randn(40, 6))
    for each in (rows, signs):
        profile = ibp.fit(each)
        assert torch.equal(ibp.encode(each, profile)[:], each)
        assert profile.mean_row_bytes(each) == profile.mean_row_bytes(each.clone())
        with pytest.raises(CohortError, match="encode: rows: expected with in_place=True, .* that torch has put off"):
            ibp.encode(each, profile, in_place=True)
    table = ibp.Table(signs)
    table.put(torch.arange(2), signs[2:4])
    assert torch.equal(table[torch.arange(40)], torch.cat([signs[2:4], signs[2:]]))


def test_a_table_of_encoded_rows_and_of_a_parameter():
    rows = bell("float32")
    encoded = ibp.encode(rows, ibp.fit(rows, "invariant"), layout="packed")
    table = ibp.Table(encoded)
    assert table.profile.codec == "invariant" and bits(table[:]) == bits(rows)
    assert ibp.Table(torch.nn.Embedding.from_pretrained(rows, freeze=False).weight)[3].requires_grad is False
    assert [bits(row) for row in table] == [bits(row) for row in rows]
    assert repr(table) == "Table([300, 50], torch.float32, invariant, cpu)"


def test_a_table_of_a_file_can_be_pickled(tmp_path, monkeypatch):
    rows = bell("int32")
    table = ibp.Table(rows)
    with pytest.raises(CohortError, match=r"pickle of a Table: expected rows of a file, found rows in memory\n.*save"):
        pickle.dumps(table)
    table.save(tmp_path / "rows.ibp")
    monkeypatch.chdir(tmp_path)
    loaded = ibp.Table.load("rows.ibp", dtype=torch.int32)
    told = pickle.dumps(loaded)
    monkeypatch.chdir("/")  # another process may be anywhere
    assert torch.equal(pickle.loads(told)[torch.arange(300)], rows)
    ibp.Table(rows.flip(0)).save(tmp_path / "rows.ibp")
    assert torch.equal(loaded[torch.arange(300)], rows)
    with pytest.raises(CohortError, match="expected the file of the table that was pickled, found one with other rows"):
        pickle.loads(told)
    loaded.put([3], rows[4:5])
    with pytest.raises(CohortError, match="found rows that were changed"):
        pickle.dumps(loaded)


def test_the_package_lists_also_what_is_loaded_on_first_use():
    assert {"EmbeddingBag", "History", "Table", "pyg_store", "stream_module", "top_k"} <= set(dir(ibp))


@pytest.mark.fresh
def test_what_is_alive_at_the_end_of_a_script_is_not_told():
    kept = "import ctypes, torch; from cohort_gnn import ibp; rows = torch.ones(5, 4)\n"
    kept += "ctypes.pythonapi.Py_IncRef(ctypes.py_object(ibp.encode(rows, ibp.fit(rows))))"
    script = subprocess.run([sys.executable, "-c", kept], capture_output=True, text=True, timeout=120)
    assert (script.returncode, script.stderr) == (0, "")


def test_stats_count_what_was_asked():
    rows = bell("float32", columns=128)
    table = ibp.Table(rows)
    table[torch.zeros(3, 4, dtype=torch.int64)]
    table.fetch([5, 6])
    table.put([1], rows[:1])
    with pytest.raises(CohortError):
        table[[300]]
    stats = table.stats()
    assert (stats.rows_fetched, stats.bytes_fetched, stats.rows_put) == (14, 14 * 512, 1)
    assert stats.saved == 1 - table.stored_bytes / table.nbytes and 0.05 < stats.saved < 0.7
    empty = ibp.Table(ibp.encode(rows[:0], table.profile))
    empty.put([], rows[:0])
    assert (len(empty), empty[[]].shape, empty.stats().saved) == (0, (0, 128), 0)


# --- rows that change -----------------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_put_is_assignment(tmp_path_factory, data):
    dtype = data.draw(st.sampled_from(DTYPES))
    columns = data.draw(st.sampled_from([1, 3, 16, 50]))
    rows = bell(dtype, 80, columns)
    layout, expected = data.draw(st.sampled_from(["auto", "packed", "slots", "in place"])), rows.clone()
    if layout == "in place" and columns * rows.element_size() % 4 == 0:
        table = ibp.Table(ibp.encode(rows, ibp.fit(rows), in_place=True))
    else:
        table = ibp.Table(rows, layout="auto" if layout == "in place" else layout)
    for seed in range(data.draw(st.integers(1, 5))):
        ids = torch.randperm(80, generator=torch.Generator().manual_seed(seed))[: data.draw(st.integers(0, 80))]
        ids = ids[: len(ids) // 2 * 2].view(-1, 2)
        fresh = bell(dtype, ids.numel(), columns, seed + 1).view(*ids.shape, columns)
        if data.draw(st.booleans()):
            noise = torch.randint(256, (*ids.shape, columns * rows.element_size()), dtype=torch.uint8)
            fresh = fresh if dtype == "bool" else noise.view(rows.dtype)
        table.put(ids.to(data.draw(st.sampled_from([torch.int64, torch.int32]))), fresh)
        expected[ids] = fresh
        assert bits(table[:]) == bits(expected)
    path = tmp_path_factory.mktemp("put") / "rows.ibp"
    table.save(path)
    assert bits(ibp.Table.load(path)[:]) == bits(expected) == bits(table.to("cpu")[:])


def test_put_changes_neither_the_file_nor_other_tables(tmp_path):
    rows = bell("float32")
    encoded = ibp.encode(rows, ibp.fit(rows))
    encoded.save(tmp_path / "rows.ibp")
    before = (tmp_path / "rows.ibp").read_bytes()
    for table in (ibp.Table.load(tmp_path / "rows.ibp"), ibp.Table(encoded)):
        table.put([3, 4], np.ones((2, 50), np.float32))
        copy = table.to("cpu")
        table.put(5, np.full(50, 7, np.float32))
        assert (table[3] == 1).all() and (table[5] == 7).all() and bits(copy[5]) == bits(rows[5])
    assert bits(ibp.decode(encoded)) == bits(rows) and (tmp_path / "rows.ibp").read_bytes() == before


def test_other_threads_see_whole_rows():
    table = ibp.Table(np.zeros((64, 4096), np.float32), layout="slots")
    noise = np.random.default_rng(0).integers(0, 2**32, 4096, dtype=np.uint32).view(np.float32)
    table.put(0, np.zeros(4096, np.float32))
    ids = np.arange(64)

    def change(_):
        for value in (np.zeros(4096, np.float32), noise) * 20:
            table.put(ids, np.broadcast_to(value, (64, 4096)))

    def read(_):
        for _ in range(40):
            found = table[ids].view(np.uint32)
            assert not found.any() or (found == noise.view(np.uint32)).all()

    with ThreadPoolExecutor(4) as threads:
        jobs = [threads.submit(job, None) for job in (change, read, change, read)]
        assert [job.result() for job in jobs] == [None] * 4


def test_forked_processes_fetch():
    """As the workers of a DataLoader do; rows enough for several threads."""
    rows = bell("float32", 5000, 128)
    table = ibp.Table(rows)
    assert bits(table[:]) == bits(rows)
    fork = multiprocessing.get_context("fork")
    queue = fork.SimpleQueue()
    child = fork.Process(target=lambda: queue.put(bits(table[:]) == bits(rows)))
    child.start()
    child.join(60)
    child.kill()
    assert child.exitcode == 0 and queue.get()
    loader = torch.utils.data.DataLoader(
        table, batch_size=None, sampler=[[1, 2], [3, 4]], num_workers=1, multiprocessing_context="fork"
    )
    assert [bits(batch) for batch in loader] == [bits(rows[1:3]), bits(rows[3:5])]


def test_processes_forked_beside_puts_fetch_whole_rows():
    """No lock of a thread that a forked process lacks is held there, and no put() is half done."""
    rows, ids = np.zeros((3000, 64), np.float32), np.arange(3000)
    table, end, fork = ibp.Table(rows), threading.Event(), multiprocessing.get_context("fork")

    def change():
        for number in itertools.count():
            table.put(ids, np.full_like(rows, number))
            if end.is_set():
                return

    def fetch_all():
        found = table[ids]
        os._exit(0 if (found == found[0, 0]).all() else 1)

    with ThreadPoolExecutor(1) as threads:
        changing = threads.submit(change)
        children = [fork.Process(target=fetch_all) for _ in range(10)]
        for child in children:
            child.start()
        for child in children:
            child.join(60)
            child.kill()
        end.set()
        changing.result()
    assert [child.exitcode for child in children] == [0] * 10


# --- errors ---------------------------------------------------------------------------------------------------------


def test_bad_calls_say_what_is_wrong_and_change_nothing(tmp_path):
    rows = bell("float32")
    table = ibp.Table(rows)
    table.save(tmp_path / "rows.ibp")
    four = torch.zeros(4, 50)
    for call, text in [
        (lambda: ibp.Table(tmp_path / "rows.ibp"), r"(?s)found \w*Path.*Table.load\(path\) reads a file"),
        (lambda: ibp.Table([[1.0, 2.0]]), "expected an array .* found list"),
        (lambda: ibp.Table(rows[0]), "1 dimensions"),
        (lambda: ibp.Table(rows[:0]), "at least one row"),
        (lambda: ibp.Table(rows.short()), "found 16 bits"),
        (lambda: ibp.Table(rows.numpy().astype(">f4")), "numbers in the byte order of this machine, found >f4"),
        (lambda: ibp.Table(np.array([["a"]])), "found <U1"),
        (lambda: ibp.Table(np.ones((3, 4), np.longdouble)), "expected numbers .*, found float128"),
        (lambda: ibp.Table(rows.T), "C-contiguous"),
        (lambda: ibp.Table(rows, "zip"), "found zip"),
        (lambda: ibp.Table(rows, spare=2), "spare: expected a share, 0 to 1, found 2"),
        (lambda: ibp.Table(rows, place="moon"), "expected cpu, pinned or cuda, found moon"),
        (lambda: ibp.Table.load(__file__), "IBPROWS1"),
        (lambda: ibp.Table.load(tmp_path / "none.ibp"), "(?s)found No such file or directory.*hint: check the path$"),
        (lambda: ibp.Table.load(tmp_path / "rows.ibp", dtype=torch.int32), "rows that are float32, found torch.int32"),
        (lambda: ibp.Table.load(tmp_path / "rows.ibp", dtype="float64"), "rows that are float32, found float64"),
        (lambda: table[[0, 300]], r"index\[1\]: expected 0 to 299, found 300"),
        (lambda: table[-1], "expected 0 to 299, found -1"),
        (lambda: table[rows[0] > 0], r"(?s)expected integers, found bool.*torch.where\(mask\)\[0\]"),
        (lambda: table[torch.zeros(0, dtype=torch.bool)], "expected integers, found bool"),
        (lambda: table[3, 5], r"(?s)expected integers or a slice, found \(3, 5\).*rows\[\[3, 5\]\]"),
        (lambda: ibp.encode(rows, ibp.fit(rows))[:, 0], r"expected integers or a slice, found \(slice"),
        (lambda: table["x"], "expected integers"),
        (lambda: table.fetch([1], torch.empty(1, 49)), r"expected contiguous float32 \[1, 50\]"),
        (lambda: table.put([0, 1, 2, 300], four), r"put: ids\[3\]: expected 0 to 299, found 300"),
        (lambda: table.put([0, 1, 2, 1], four), r"(?s)each row once, found row 1 twice.*the last of its rows"),
        (lambda: table.put([0.5], four[:1]), "Table.put: ids: expected integers"),
        (lambda: table.put([0, 1, 2], four), r"float32 \[3, 50\], found torch.float32 \[4, 50\]"),
        (lambda: table.put([[0, 1], [2, 3]], four), r"\[2, 2, 50\]"),
        (lambda: table.put([0, 1, 2, 3], four.double()), "found torch.float64"),
        (lambda: table.put([0, 1, 2, 3], four.int().numpy()), "found int32"),
        (lambda: table.put([0], [[1.0] * 50]), "a torch or numpy array in host memory, found list"),
        (lambda: table.save(tmp_path / "none" / "rows.ibp"), "No such file"),
        (lambda: ibp.Table.load(tmp_path / "rows.ibp", dtype=">f4"), "rows that are float32, found >f4"),
        (lambda: ibp.Table.load(tmp_path / "rows.ibp", dtype="U1"), "rows that are float32, found U1"),
        (lambda: ibp.Table.load(tmp_path / "rows.ibp", dtype="foo"), "expected the name of a dtype, found foo"),
        (lambda: table.fetch([1], torch.empty(1, 25, dtype=torch.complex64).conj()), "not contiguous"),
        (lambda: ibp.fit(rows, threshold=0.5), "fit: threshold: expected a share, 0.51 to 1, found 0.5"),
        (lambda: ibp.fit(rows, threshold=float("nan")), "threshold: expected a share, 0.51 to 1, found nan"),
        (lambda: ibp.Table(rows.to("meta")), "rows: expected a dense tensor, found a tensor on the device meta"),
        (lambda: table.put([0], rows[:1].to_sparse()), "put: rows: expected a dense tensor, found a tensor of layout"),
        (lambda: ibp.fit([[1.0]]), r"fit: rows: expected an array \[rows, columns\], found list"),
        (lambda: ibp.fit(np.zeros((5, 5), ">f4")), "(?s)byte order of this machine, found >f4.*astype"),
        (lambda: ibp.encode(rows, ibp.fit(rows), out=tmp_path / "rows.ibp", batch_rows=-64), "multiple of 64 above 0"),
        (lambda: ibp.encode(rows, ibp.fit(rows), out=tmp_path / "rows.ibp", in_place=True), "found both"),
        (lambda: ibp.bound(ibp.fit(rows), 2**60), "bound: num_rows: expected 0 to"),
    ]:
        with pytest.raises(CohortError, match=text):
            call()
        assert bits(table[:]) == bits(rows), text


# --- GPUs -----------------------------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("place", ["pinned", "cuda"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_table_that_a_gpu_reads(dtype, place, tmp_path):
    rows = bell(dtype)
    table = ibp.Table(rows, place=place)
    ids = torch.randint(300, (7, 9), dtype=torch.int32)
    found = table[ids.cuda()]
    assert found.is_cuda and found.dtype == rows.dtype and bits(found.cpu()) == bits(rows[ids.long()])
    assert bits(table[ids]) == bits(rows[ids.long()]) and bits(table[:]) == bits(rows)
    out = torch.empty(7, 9, 50, dtype=rows.dtype, device="cuda")
    assert table.fetch(ids, out, torch.cuda.current_stream()) is out and bits(out.cpu()) == bits(rows[ids.long()])
    table.save(tmp_path / "rows.ibp")
    assert bits(ibp.Table.load(tmp_path / "rows.ibp", place, dtype=rows.dtype)[ids.cuda()].cpu()) == bits(out.cpu())
    assert bits(ibp.Table(rows.cuda(), place=place)[ids.cuda()].cpu()) == bits(out.cpu())


@pytest.mark.gpu
def test_a_written_table_moves_to_a_gpu():
    rows = bell("float32", 5000, 100)
    table = ibp.Table(rows)
    noise = torch.randint(2**31, (500, 100), dtype=torch.int32).view(torch.float32)
    ids = torch.randperm(5000)[:500]
    table.put(ids, noise)
    rows[ids] = noise
    for place in ("pinned", "cuda"):
        moved = table.to(place)
        assert bits(moved[torch.arange(5000, device="cuda")].cpu()) == bits(rows) == bits(moved[:])
        moved[torch.tensor([5000], device="cuda")]
        torch.cuda.synchronize()
        with pytest.raises(CohortError, match="a row of the table"):
            moved.check()


@pytest.mark.gpu
@pytest.mark.parametrize("place", ["pinned", "cuda"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_gpu_puts_as_the_host_does(dtype, place, tmp_path):
    rows = bell(dtype, 400)
    expected = rows.clone()
    host, table = ibp.Table(rows), ibp.Table(rows, place=place, spare=1)
    everything = torch.arange(400, device="cuda")
    for seed in range(4):
        ids = torch.randperm(400, generator=torch.Generator().manual_seed(seed))[:120].view(-1, 2).int()
        fresh = bell(dtype, 120, seed=seed + 1).view(60, 2, 50)
        if seed == 2 and dtype != "bool":
            noise = torch.randint(256, (60, 2, 50 * rows.element_size()), dtype=torch.uint8)
            fresh = noise.view(rows.dtype)
        host.put(ids, fresh)
        on_host = seed % 2 == 0  # both ways to give ids and rows
        table.put(ids if on_host else ids.cuda(), fresh if on_host else fresh.cuda())
        expected[ids.long()] = fresh
        assert bits(table[everything].cpu()) == bits(expected) == bits(host[:])
        assert bits(table[:]) == bits(expected), "ids in host memory"
        assert bits(table.to("cpu")[:]) == bits(expected)
    out = torch.empty(2, 50, dtype=rows.dtype)
    assert table.fetch([7, 8], out) is out and bits(out) == bits(expected[[7, 8]])
    if dtype != "bfloat16":
        assert bits(table[np.array([7, 8])]) == bits(expected[[7, 8]])
    table.save(tmp_path / "rows.ibp")
    again = ibp.Table.load(tmp_path / "rows.ibp", place, dtype=rows.dtype, spare=1)
    again.put(np.arange(5), rows[:5].numpy() if dtype != "bfloat16" else rows[:5])
    expected[:5] = rows[:5]
    assert bits(again[everything].cpu()) == bits(expected)
    assert table.stats().rows_put == 480 and 0 < table.stats().room_left <= 400


@pytest.mark.gpu
def test_a_gpu_puts_on_any_stream_and_in_a_graph():
    rows = bell("float32", 400)
    table = ibp.Table(rows, "exponent", place="cuda", spare=1)
    ids, fresh = torch.arange(100, device="cuda"), rows[100:200].cuda()
    table.put(ids, fresh)  # allocates
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream())
    table.put(ids, fresh * 2, stream=stream)
    stream.synchronize()
    assert torch.equal(table[ids], fresh * 2)
    with torch.cuda.graph(graph):
        table.put(ids, fresh)
    fresh.mul_(3)
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(table[ids], fresh)


@pytest.mark.gpu
def test_bad_puts_on_a_gpu_are_named_later_and_change_nothing():
    rows = bell("float32", 300, 64)
    rows[::3] = rows[1::3]  # dense
    noise = torch.randint(2**31, (4, 64), dtype=torch.int32).view(torch.float32)
    table = ibp.Table(rows, "exponent", place="cuda", layout="slots", spare=0)
    everything = torch.arange(300, device="cuda")
    for ids, text in [
        ([0, 300, 1, 2], r"put: ids\[1\]: expected the number of a row of the table"),
        ([0, 1, 2, 0], "each row once, found a row twice"),
        ([0, 1, 2, 3], "room for rows that encoding does not make shorter"),
    ]:
        table.put(ids, noise)
        torch.cuda.synchronize()
        with pytest.raises(CohortError, match=text):
            table.check()
        table.check()
        assert bits(table[everything].cpu()) == bits(rows), text
    for call, text in [
        (lambda: table.put([0.5], noise[:1]), "Table.put: ids: expected integers"),
        (lambda: table.put([0], noise[:1].double()), "found torch.float64"),
        (lambda: table.put([0], noise), r"float32 \[1, 64\]"),
        (lambda: ibp.Table(rows).put([0], noise[:1].cuda()), r"(?s)in host memory, found a CUDA tensor.*place=.cuda"),
        (lambda: table.fetch([0], torch.empty(1, 63)), r"float32 \[1, 64\], found torch.float32 \[1, 63\]"),
    ]:
        with pytest.raises(CohortError, match=text):
            call()


@pytest.mark.gpu
def test_a_profile_of_rows_on_a_gpu_is_that_of_the_rows():
    rows = bell("float32", 20_000, 40)
    for arguments in ({}, {"codec": "invariant", "sample": 0.3}, {"min_sample": 100, "seed": 5}):
        on_host, on_gpu = ibp.fit(rows, **arguments), ibp.fit(rows.cuda(), **arguments)
        assert on_gpu == on_host and (on_gpu.why, on_gpu.sample_rows) == (on_host.why, on_host.sample_rows)
    with pytest.raises(CohortError, match=r"a share in \(0, 1\]"):
        ibp.fit(rows.cuda(), sample=2)
