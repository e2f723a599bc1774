"""ibp.EmbeddingBag against torch.nn.functional.embedding_bag over the same rows, raw."""

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cohort_gnn import ibp
from cohort_gnn.base.errors import CohortError

torch = pytest.importorskip("torch")

ROWS = 500


@pytest.fixture(scope="module")
def weights():
    return torch.randn(ROWS, 24, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def table(weights):
    return ibp.Table(weights)


def close(found, expected, mode: str):
    assert found.dtype == expected.dtype and found.shape == expected.shape
    if mode == "max":
        assert torch.equal(found, expected)
    else:
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-5)  # sums of up to 60 terms in another order


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_it_is_the_function_of_torch(weights, table, data):
    mode = data.draw(st.sampled_from(["sum", "mean", "max"]))
    dtype = data.draw(st.sampled_from([torch.int32, torch.int64]))
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 1000)))
    most = data.draw(st.sampled_from([3, ROWS]))  # few different rows, or many
    padding = data.draw(st.sampled_from([None, 0, 2, ROWS - 1, -1, -ROWS]))
    options = {"padding_idx": padding, "include_last_offset": False}
    offsets = weighted = None
    if data.draw(st.booleans()):
        shape = (data.draw(st.integers(1, 9)), data.draw(st.integers(1, 9)))
    else:
        shape = (data.draw(st.integers(0, 60)),)
        cuts = torch.randint(shape[0] + 1, (data.draw(st.integers(0, 9)),), generator=generator).sort().values
        offsets = torch.cat([torch.zeros(1, dtype=torch.int64), cuts])  # empty bags among them
        if options.update(include_last_offset=data.draw(st.booleans())) or options["include_last_offset"]:
            offsets = torch.cat([offsets, torch.tensor([shape[0]])])
        offsets = offsets.to(dtype)
    input = torch.randint(most, shape, generator=generator).to(dtype)
    if mode == "sum" and data.draw(st.booleans()):
        weighted = torch.randn(shape, generator=generator)
    bag = ibp.EmbeddingBag(table, mode, **options)
    expected = torch.nn.functional.embedding_bag(
        input, weights, offsets, mode=mode, per_sample_weights=weighted, **options
    )
    close(bag(input, offsets, weighted), expected, mode)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_floats(weights, dtype):
    weights = weights.to(dtype)
    table = ibp.Table(weights)
    input = torch.randint(ROWS, (20, 6))
    for mode in ("sum", "mean", "max"):
        expected = torch.nn.functional.embedding_bag(input, weights, mode=mode)
        assert torch.equal(ibp.EmbeddingBag(table, mode)(input), expected), mode


def test_sizes_have_torchs_names(weights, table):
    bag, theirs = ibp.EmbeddingBag(table), torch.nn.EmbeddingBag.from_pretrained(weights)
    assert (bag.num_embeddings, bag.embedding_dim) == (theirs.num_embeddings, theirs.embedding_dim)


def test_it_replaces_a_frozen_module(weights, table):
    module = torch.nn.EmbeddingBag.from_pretrained(weights, mode="sum", padding_idx=7, include_last_offset=True)
    ours = ibp.EmbeddingBag(table, "sum", padding_idx=7, include_last_offset=True)
    input, offsets = torch.tensor([7, 1, 2, 7, 7, 3]), torch.tensor([0, 1, 4, 6])
    close(ours(input, offsets), module(input, offsets), "sum")
    assert list(ours.parameters()) == [] and ours.state_dict() == {}
    assert "Table([500, 24], torch.float32" in repr(ours) and "mode='sum'" in repr(ours)
    table.put(3, torch.ones(24))
    assert torch.equal(ours(input, offsets)[2], torch.ones(24))
    table.put(3, weights[3])


def test_a_copy_of_a_model_shares_the_rows(weights):
    bag = ibp.EmbeddingBag(ibp.Table(weights), "max")
    copied = copy.deepcopy(bag)
    bag.table.put(3, torch.ones(24))
    again = copy.deepcopy(bag)
    bag.table.put(3, torch.zeros(24))
    ids = torch.tensor([[3]])
    assert [each(ids)[0].tolist() for each in (copied, again, bag)] == [weights[3].tolist(), [1.0] * 24, [0.0] * 24]
    again.table.put(4, torch.ones(24))
    assert torch.equal(copied(ids + 1), weights[4:5]) and torch.equal(bag(ids + 1), weights[4:5])


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_weights_of_samples_have_gradients(weights, table, device):
    input = torch.randint(ROWS, (5, 4), device=device)
    grads = []
    there = table if device == "cpu" else table.to("pinned")
    of_torch = torch.nn.EmbeddingBag.from_pretrained(weights.to(device), mode="sum")
    for function in (ibp.EmbeddingBag(there, "sum"), of_torch):
        per_sample = torch.ones(5, 4, device=device, requires_grad=True)
        function(input, per_sample_weights=per_sample).square().sum().backward()
        grads.append(per_sample.grad)
    torch.testing.assert_close(*grads)


def test_rows_that_occur_often_are_decoded_once(weights):
    table = ibp.Table(weights)
    ibp.EmbeddingBag(table, "max")(torch.tensor([[1, 2, 1, 1], [2, 2, 2, 3]]))
    assert table.stats().rows_fetched == 3


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_without_bags_there_are_no_rows(table, mode, device):
    there = table if device == "cpu" else table.to("cuda")
    for ids in ([], [1, 2, 2]):  # torch itself crashes where mode is max and there are ids
        input = torch.tensor(ids, dtype=torch.int64, device=device)
        for offsets, last in (([], False), ([0], True)):
            starts = torch.tensor(offsets, dtype=torch.int64, device=device)
            bag = ibp.EmbeddingBag(there, mode, include_last_offset=last)
            assert bag(input, starts).shape == (0, 24)
        with pytest.raises(
            CohortError, match="offsets: expected at least one offset, since include_last_offset=True, found no offset"
        ):
            bag(input, starts[:0])
    weighted = torch.ones(3, device=device, requires_grad=True)
    ibp.EmbeddingBag(there, "sum")(input, input[:0], weighted).sum().backward()
    assert weighted.grad.tolist() == [0, 0, 0]
    assert ibp.EmbeddingBag(there, mode)(input[:0].view(0, 3)).shape == (0, 24)


def test_bad_calls_say_what_is_wrong(table):
    bag = ibp.EmbeddingBag(table, "sum")
    for call, text in [
        (lambda: ibp.EmbeddingBag(table, "min"), "expected sum, mean or max, found min"),
        (lambda: ibp.EmbeddingBag(torch.ones(3, 4)), "expected an ibp.Table, found Tensor"),
        (lambda: ibp.EmbeddingBag(table, padding_idx=ROWS), "expected -500 to 499, found 500"),
        (lambda: ibp.EmbeddingBag(table, padding_idx=1.5), "padding_idx: expected an integer, found 1.5"),
        (lambda: ibp.EmbeddingBag(ibp.Table(torch.ones(3, 4).int())), "rows of floats, found torch.int32"),
        (lambda: bag(torch.tensor([[1, ROWS]])), "EmbeddingBag: input: expected 0 to 499, found 500"),
        (lambda: bag(torch.tensor([[-1, 2]])), "expected 0 to 499, found -1"),
        (lambda: bag(torch.tensor([[1, 2**32 + 3]])), "expected 0 to 499, found 4294967299"),
        (lambda: bag(torch.tensor([[1.0]])), "input: expected a tensor, int32 or int64, found torch.float32"),
        (lambda: bag([[1]]), "input: expected a tensor, int32 or int64, found list"),
        (lambda: bag(torch.tensor([1]), [0]), "offsets: expected a tensor, int32 or int64, found list"),
        (lambda: bag(torch.tensor([1]), torch.tensor([0.5])), "offsets: expected a tensor, .*, found torch.float32"),
        (
            lambda: bag(torch.empty(3, 0, dtype=torch.int64)),
            r"expected \[bags, n\] with n of at least 1, found \[3, 0\]",
        ),
        (lambda: bag(torch.tensor([1, 2]), torch.tensor([0, 2, 1])), "ascending numbers, found 2 before 1"),
        (lambda: bag(torch.tensor([1, 2]), torch.tensor([0, -(10**12)])), "found 0 before -1000000000000"),
        (lambda: bag(torch.tensor([1]).to_sparse()), "input: expected a dense tensor, found torch.sparse_coo on cpu"),
        (lambda: bag(torch.tensor([[1]], device="meta")), "a dense tensor, found torch.strided on meta"),
        (
            lambda: bag(torch.nested.nested_tensor([torch.tensor([1])], layout=torch.jagged)),
            "(?s)input: expected a dense tensor, found a nested one.*and offsets",
        ),
    ]:
        with pytest.raises(CohortError, match=text):
            call()
    for call in (
        lambda: bag(torch.tensor([1, 2])),
        lambda: bag(torch.tensor([[1, 2]]), torch.tensor([0])),
        lambda: bag(torch.tensor([1, 2]), torch.tensor([1])),
        lambda: bag(torch.tensor([1, 2]), torch.tensor(0)),
        lambda: ibp.EmbeddingBag(table, "max")(torch.tensor([[1]]), per_sample_weights=torch.ones(1, 1)),
    ):
        with pytest.raises((ValueError, RuntimeError, NotImplementedError)):  # torch's own
            call()


@pytest.mark.gpu
@pytest.mark.parametrize("place", ["pinned", "cuda"])
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_on_a_gpu(weights, table, mode, place):
    bag = ibp.EmbeddingBag(table.to(place), mode, padding_idx=1)
    raw = weights.cuda()
    for dtype in (torch.int32, torch.int64):
        input = torch.randint(ROWS, (1000,), device="cuda", dtype=dtype)
        offsets = torch.arange(0, 1000, 7, device="cuda", dtype=dtype)
        expected = torch.nn.functional.embedding_bag(input, raw, offsets, mode=mode, padding_idx=1)
        close(bag(input, offsets), expected, mode)
    with pytest.raises(CohortError, match="expected 0 to 499, found 4294967299"):
        bag(torch.tensor([[3, 500, 2**32 + 3]], device="cuda"))
    close(bag(input, offsets), expected, mode)  # the error was that call's alone
    assert bag(input[:0], offsets[:1]).tolist() == [[0.0] * 24]
    with pytest.raises(CohortError, match=r'to\("pinned"\)'):
        ibp.EmbeddingBag(table, mode)(input, offsets)
    for wrong in ((input, None), (input.view(10, 100), offsets), (input, offsets.view(1, -1))):
        with pytest.raises((ValueError, RuntimeError)):  # torch's own
            bag(*wrong)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("columns", [1, 33, 64])
def test_on_a_gpu_it_is_the_function_of_torch(dtype, columns):
    generator = torch.Generator().manual_seed(columns)
    weights = torch.randint(-8, 9, (ROWS, columns), generator=generator).to(dtype)  # sums of a bag are exact
    pinned, raw = ibp.Table(weights, place="pinned"), weights.cuda()
    for shape, offsets in [
        ((7, 9), None),
        ((300, 1), None),
        ((60,), [0]),
        ((60,), [0, 0, 1, 20, 20, 59, 60]),  # empty bags among them
    ]:
        input = torch.randint(ROWS, shape, generator=generator).cuda()
        for mode, padding in (("sum", None), ("mean", int(input.view(-1)[3])), ("max", -1), ("max", None)):
            for last_is_end in (False, True)[: 1 if offsets is None or offsets[-1] != 60 else 2]:
                options = {"include_last_offset": last_is_end, "padding_idx": padding}
                starts = None if offsets is None else torch.tensor(offsets, device="cuda")
                expected = torch.nn.functional.embedding_bag(input, raw, starts, mode=mode, **options)
                found = ibp.EmbeddingBag(pinned, mode, **options)(input, starts)
                assert found.dtype == dtype
                torch.testing.assert_close(found, expected, rtol=1e-2 if mode == "mean" else 0, atol=0)
