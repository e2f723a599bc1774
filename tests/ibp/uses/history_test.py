"""ibp.History: what was pushed last, bit for bit, in less memory."""

import copy
import pickle
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cohort_gnn import CohortError, ibp

torch = pytest.importorskip("torch")

ROWS, DIM = 300, 24
DTYPES = [torch.float32, torch.float16, torch.bfloat16]


def bits(rows: torch.Tensor) -> torch.Tensor:
    return rows.contiguous().view(torch.uint8)


def drawn(count: int, dtype, seed: int, zeros: float = 0.0, dim: int = DIM) -> torch.Tensor:
    """Rows of normal numbers, of which a share is zero."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(count, dim, generator=generator)
    rows[torch.rand(count, dim, generator=generator) < zeros] = 0
    return rows.to(dtype)


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_it_holds_what_was_pushed_last(data):
    dtype = data.draw(st.sampled_from(DTYPES))
    history = ibp.History(ROWS, DIM, dtype, codec=data.draw(st.sampled_from(["auto", "exponent", "sparse", "raw"])))
    expected = torch.zeros(ROWS, DIM, dtype=dtype)
    for step in range(data.draw(st.integers(1, 5))):
        seed = data.draw(st.integers(0, 99))
        ids = torch.randperm(ROWS, generator=torch.Generator().manual_seed(seed))[: data.draw(st.integers(0, ROWS))]
        rows = drawn(len(ids), dtype, seed, data.draw(st.sampled_from([0.0, 0.7, 1.0])))
        if data.draw(st.booleans()):  # any bits
            generator = torch.Generator().manual_seed(seed)
            some = torch.randint(256, (len(ids), DIM * dtype.itemsize), dtype=torch.uint8, generator=generator)
            rows = some.view(dtype)
        history.push(ids.to(data.draw(st.sampled_from([torch.int32, torch.int64]))), rows)
        expected[ids] = rows
        asked = torch.randint(ROWS, (7, 11), generator=torch.Generator().manual_seed(step))
        assert torch.equal(bits(history.pull(asked)), bits(expected[asked]))
        out = torch.ones(7, 11, DIM, dtype=dtype)
        assert history.pull(asked, out) is out and torch.equal(bits(out), bits(expected[asked]))


@pytest.mark.parametrize(("zeros", "codec", "least"), [(0.0, "exponent", 0.1), (0.8, "sparse", 0.6)])
def test_rows_like_the_first_take_less_memory(zeros, codec, least):
    history = ibp.History(20_000, 128, codec=codec)
    for first in range(0, 20_000, 5000):
        history.push(torch.arange(first, first + 5000), drawn(5000, torch.float32, first, zeros, 128))
    assert history.stats().saved > least, (history.profile, history.stats())
    assert history.stats().rows_put == 20_000


def test_a_profile_may_be_given_and_fitted_again():
    profile = ibp.fit(drawn(500, torch.float32, 1, 0.8))
    history = ibp.History(ROWS, DIM, profile=profile)
    assert history.profile == profile and history.pull(torch.tensor([3])).abs().max() == 0
    history.push(torch.arange(50), drawn(50, torch.float32, 2))
    assert history.profile == profile
    fitted = ibp.History(ROWS, DIM)
    fitted.push(torch.arange(200), drawn(200, torch.float32, 2, 0.8))
    before = fitted.profile
    fitted.refit()
    assert fitted.profile is None and fitted.stats().rows_put == 0
    assert fitted.pull(torch.arange(ROWS)).abs().max() == 0, "rows are forgotten"
    fitted.push(torch.arange(200), drawn(200, torch.float32, 3))
    assert fitted.profile != before


def test_a_copy_of_one_with_rows_is_refused():
    history, rows = ibp.History(ROWS, DIM), drawn(2, torch.float32, 1)
    copied = pickle.loads(pickle.dumps(copy.deepcopy(history)))
    history.push([3, 4], rows)
    for each in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(
            CohortError, match="(?s)copy or pickle of a History: .* found a History with rows.*pull the rows"
        ):
            each(history)
    copied.push([3], rows[1:])
    assert torch.equal(history.pull([3]), rows[:1]) and torch.equal(copied.pull([3]), rows[1:])


def test_ids_may_be_lists_and_arrays():
    history, rows = ibp.History(ROWS, DIM), drawn(2, torch.float32, 1)
    history.push([], rows[:0])
    assert history.pull([]).shape == (0, DIM)
    history.push([3, 4], rows)
    assert torch.equal(history.pull([[4, 3]]), rows[[1, 0]][None])
    history.push(np.array([4]), rows[:1])
    assert torch.equal(history.pull(np.array([3, 4])), rows[[0, 0]])


def test_more_rows_than_entries_can_tell_apart_are_refused():
    with pytest.raises(CohortError, match="rows: expected 0 to 2\\^40 - 1, found 4611686018427387904"):
        ibp.History(2**62, DIM).push([3], drawn(1, torch.float32, 1))


def test_wrong_rows_and_ids_change_nothing():
    history = ibp.History(ROWS, DIM)
    rows = drawn(2, torch.float32, 1)
    with pytest.raises(CohortError, match="row 3 twice"):
        history.push(torch.tensor([3, 3]), rows)
    assert history.profile is None, "nothing was pushed"
    history.push(torch.tensor([3, 4]), rows)
    with pytest.raises(CohortError, match=r"ids\[1\]: expected 0 to 299, found 300"):
        history.push(torch.tensor([3, ROWS]), rows + 1)
    with pytest.raises(CohortError, match=r"rows: expected torch.float32 \[2, 24\], found torch.float64 \[2, 24\]"):
        history.push(torch.tensor([3, 5]), rows.double())
    with pytest.raises(CohortError, match=r"rows: expected torch.float32 \[1, 24\], found torch.float32 \[2, 24\]"):
        history.push(torch.tensor([3]), rows)
    with pytest.raises(CohortError, match=r"out: expected contiguous float32 \[1, 24\], found torch.float16 \[1, 24\]"):
        history.pull(torch.tensor([3]), torch.empty(1, DIM, dtype=torch.float16))
    with pytest.raises(CohortError, match=r"out: expected a tensor, torch.float32 \[1, 24\], found ndarray"):
        history.pull([3], np.empty((1, DIM), np.float32))
    with pytest.raises(CohortError, match=r"push: ids: expected integers, found float64 \[1\]"):
        history.push([3.0], rows[:1])
    assert torch.equal(history.pull(torch.tensor([3, 4])), rows)
    for empty in (history, ibp.History(ROWS, DIM)):
        with pytest.raises(CohortError, match="found -1"):
            empty.pull(torch.tensor([0, -1]))
        with pytest.raises(CohortError, match=r"pull: out: .*found torch.float32 \[2, 24\], not contiguous"):
            empty.pull([0, 1], torch.empty(2, 2 * DIM)[:, ::2])
        with pytest.raises(CohortError, match="push: rows: expected a dense tensor, found a tensor on the device meta"):
            empty.push([0], rows[:1].to("meta"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"num_rows": 0}, "expected integers num_rows and dim of at least 1, found 0 and 24"),
        ({"num_rows": 10.5}, "num_rows: expected an integer, found 10.5"),
        ({"dtype": torch.int32}, "dtype: expected torch.float32, float16 or bfloat16, found torch.int32"),
        ({"dtype": torch.float16}, "profile: expected float16 x 24, found float32 x 24"),
        ({"spare": -1}, "spare: expected a share, 0 to 1, found -1"),
        ({"dim": 23}, "profile: expected float32 x 23, found float32 x 24"),
        ({"profile": "auto"}, r"profile: expected a Profile, of fit\(\), found str"),
        ({"codec": "planes"}, "codec: expected a codec whose rows are one plane, found planes"),
        ({"codec": "zip"}, "codec: expected one of auto, .*, found zip"),
    ],
    ids=[
        "rows",
        "half a row",
        "dtype",
        "dtype of profile",
        "spare",
        "columns of profile",
        "no profile",
        "planes",
        "no codec",
    ],
)
def test_wrong_arguments_are_named(arguments, said):
    profile = ibp.fit(drawn(100, torch.float32, 1))
    with pytest.raises(CohortError, match=f"History:? ?{said}"):
        ibp.History(**{"num_rows": ROWS, "dim": DIM, "profile": profile} | arguments)


@pytest.mark.gpu
def test_rows_of_a_gpu():
    history = ibp.History(ROWS, DIM, torch.bfloat16)
    ids, rows = torch.arange(100, device="cuda"), drawn(100, torch.bfloat16, 1).cuda()
    assert history.pull(ids).is_cuda
    history.push(ids, rows)
    assert torch.equal(history.pull(ids), rows) and torch.equal(history.pull(ids.cpu()), rows.cpu())
    out = torch.empty_like(rows)
    assert history.pull(ids, out) is out and torch.equal(out, rows)


def test_two_threads_push_first(monkeypatch):
    history, rows, fitted = ibp.History(ROWS, DIM), drawn(ROWS, torch.float32, 1), ibp.History._fitted
    other = threading.Thread(target=lambda: history.push(torch.arange(100, ROWS), rows[100:]))

    def while_another_pushes(self, values):
        if other.ident is None:
            other.start()
            other.join(0.5)  # it waits for this push, or else would be done
        return fitted(self, values)

    monkeypatch.setattr(ibp.History, "_fitted", while_another_pushes)
    history.push(torch.arange(100), rows[:100])
    other.join()
    assert torch.equal(history.pull(torch.arange(ROWS)), rows)


@pytest.mark.gpu
@pytest.mark.parametrize("place", ["pinned", "cuda"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_gpu_holds_what_was_pushed_last(dtype, place):
    history = ibp.History(ROWS, DIM, dtype, place=place, spare=1)
    ids = torch.arange(ROWS, device="cuda")
    assert history.pull(ids).abs().max() == 0
    expected = torch.zeros(ROWS, DIM, dtype=dtype)
    for step in range(6):
        some = torch.randperm(ROWS, generator=torch.Generator().manual_seed(step))[:100]
        rows = drawn(100, dtype, step, [0.0, 0.9, 1.0][step % 3])
        if step == 4:
            rows = torch.randint(256, (100, DIM * dtype.itemsize), dtype=torch.uint8).view(dtype)
        history.push(some.cuda() if step % 2 else some, rows.cuda())
        expected[some] = rows
        assert torch.equal(bits(history.pull(ids).cpu()), bits(expected))
    out = torch.empty(3, DIM, dtype=dtype)
    assert history.pull(ids[:3], out) is out and torch.equal(bits(out), bits(expected[:3]))
    assert torch.equal(bits(history.pull(torch.tensor([5]))), bits(expected[[5]]))
    history.push(torch.tensor([ROWS]), rows[:1])
    torch.cuda.synchronize()
    with pytest.raises(CohortError, match="a row of the table"):
        history.check()
    with pytest.raises(CohortError, match="a row of the table"):
        history.pull(torch.tensor([ROWS]))
    assert history.stats().room_left is not None
    history.refit()
    assert history.pull(ids).abs().max() == 0
