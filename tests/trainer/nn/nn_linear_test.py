"""F.linear for many rows."""

import pytest
import torch
import torch.nn.functional as F
from blocks import DEVICES, assert_as_close
from processes import ALL_TESTS

import cohort_gnn.nn.linear as layer
from cohort_gnn.nn import kernels
from cohort_gnn.nn.inputs import IndexedRows
from cohort_gnn.nn.linear import MANY_ROWS, PARTS, column_sums, head_linear, linear


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("rows", [0, 1, PARTS, 2 * PARTS - 1, 2 * PARTS, 5 * PARTS + 77])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_column_sums(device, rows, dtype):
    x = torch.randn(rows, 9, device=device).to(dtype)
    assert_as_close(column_sums(x), x.double().sum(dim=0).to(dtype), 1e-2 if dtype == torch.bfloat16 else 1e-5)
    assert torch.equal(column_sums(x), column_sums(x))


def assert_same_gradients(out, wanted, ours: list[torch.Tensor], theirs: list[torch.Tensor]) -> None:
    assert_as_close(out, wanted)
    weight = torch.randn_like(wanted)
    out.backward(weight)
    wanted.backward(weight)
    for one, other in zip(ours, theirs, strict=True):
        assert_as_close(one.grad, other.grad)


SHAPES = [((1500, 7, 5), True), ((1500, 7, 5), False), ((40000, 100, 128), True), ((33000, 300, 64), False)]
SHAPES += [((40000, 100, 128), False), ((33000, 300, 64), True)] * ALL_TESTS


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("shape", "bias"), SHAPES)
def test_product_and_gradients_are_those_of_f_linear(device, bias, shape):
    torch.manual_seed(2)
    rows, depth, width = shape
    sizes = [(rows, depth), (width, depth), (width,)][: 2 + bias]
    ours = [torch.randn(size, device=device, requires_grad=True) for size in sizes]
    theirs = [each.detach().clone().requires_grad_() for each in ours]
    out = linear(*ours, *[None] * (not bias))
    wanted = F.linear(*theirs)
    assert_same_gradients(out, wanted, ours, theirs)


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["highest", "high"])
def test_products_of_our_own_are_for_many_rows_and_full_precision(monkeypatch, precision):
    if not kernels.takes_products(torch.zeros(1, 64, device="cuda"), 64):
        pytest.skip("a GPU of compute capability 9.0")
    calls = []
    for name in ("product", "product_grad"):
        own = getattr(layer, f"_{name}")
        monkeypatch.setattr(layer, f"_{name}", lambda *args, own=own, name=name: calls.append(name) or own(*args))
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: precision)
    weight = torch.randn(64, 64, device="cuda", requires_grad=True)
    for rows in (MANY_ROWS - 1, MANY_ROWS):
        linear(torch.randn(rows, 64, device="cuda"), weight, None).sum().backward()
        head_linear(torch.randn(2, rows, 64, device="cuda"), weight.expand(2, 64, 64)).sum().backward()
    assert calls == (["product", *["product_grad"] * 3] if precision == "highest" else [])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", [(4, 1500, 7, 5), (2, 40000, 100, 64), (3, 33000, 64, 20)])
def test_products_of_heads_and_their_gradients_are_those_of_bmm(device, shape):
    torch.manual_seed(3)
    heads, rows, depth, width = shape
    ours = [
        torch.randn(size, device=device, requires_grad=True) for size in ((heads, rows, depth), (heads, width, depth))
    ]
    theirs = [each.detach().clone().requires_grad_() for each in ours]
    out, wanted = head_linear(*ours), torch.bmm(theirs[0], theirs[1].transpose(1, 2)).transpose(0, 1)
    assert_same_gradients(out, wanted, ours, theirs)


def test_gradients_are_those_of_differences():
    rows = torch.randn(2 * PARTS + 3, 2, dtype=torch.float64)
    weight, bias = (torch.randn(size, dtype=torch.float64, requires_grad=True) for size in ((1, 2), (1,)))
    assert torch.autograd.gradcheck(lambda weight, bias: linear(rows, weight, bias), (weight, bias))
    heads = [torch.randn(size, dtype=torch.float64, requires_grad=True) for size in ((2, 5, 3), (2, 4, 3))]
    assert torch.autograd.gradcheck(head_linear, heads) and torch.autograd.gradgradcheck(head_linear, heads)


def test_rows_say_in_what_the_product_is_under_autocast():
    weight, bias = torch.randn(3, 4, requires_grad=True), torch.randn(3, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        out = linear(torch.randn(10, 4).bfloat16(), weight, bias)
    assert out.dtype == torch.bfloat16
    out.sum().backward()
    assert weight.grad.dtype == bias.grad.dtype == torch.float32


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("count", [1, 4, 8, 20])
def test_scores_of_halves_and_their_gradients(device, dtype, count):
    torch.manual_seed(2)
    rows = torch.randn(700, 48, dtype=dtype, device=device).requires_grad_()
    vectors = torch.randn(count, 48, device=device).requires_grad_()
    grad = 1e-9 * torch.randn(700, count, device=device)  # float16 has no such numbers
    scores = layer.end_scores(rows, vectors)
    of_rows, of_vectors = torch.autograd.grad(scores, (rows, vectors), grad)
    rounded = vectors.to(dtype).double()
    assert scores.dtype == of_vectors.dtype == torch.float32 and of_rows.dtype == dtype
    torch.testing.assert_close(scores.double(), rows.double() @ rounded.t(), rtol=1e-2, atol=1e-3)
    expected = grad.double().t() @ rows.double()
    assert (of_vectors - expected).abs().max() < 1e-2 * expected.abs().max()
    if dtype == torch.bfloat16:
        expected = grad.double() @ rounded
        assert (of_rows - expected).abs().max() < 2e-2 * expected.abs().max()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("columns", [6, 32, 288])
@pytest.mark.parametrize("count", [1, 8, 20, 64, 90])
@pytest.mark.parametrize("num_rows", [0, 1, 700])
def test_scores_of_rows_by_index(device, dtype, columns, count, num_rows):
    """The last indices are -1: such a row is zeros."""
    torch.manual_seed(3)
    table = torch.randn(1000, columns, device=device).to(dtype)
    row_index = torch.randperm(1000, device=device)[:num_rows]
    table[torch.ones(1000, dtype=torch.bool, device=device).index_fill(0, row_index, False)] = torch.nan
    row_index[num_rows * 9 // 10 :] = -1
    rows, vectors = IndexedRows(table, row_index), torch.randn(count, columns, device=device).requires_grad_()
    grad, found = 1e-9 * torch.randn(num_rows, count, device=device), []
    for each in (rows, rows.gathered()):
        scores = layer.end_scores(each, vectors)
        found.append((scores, torch.autograd.grad(scores, vectors, grad.to(scores.dtype))[0]))
    for one, other in zip(*found, strict=True):
        assert one.shape == other.shape and one.dtype == other.dtype
        largest = other.abs().max().item() if other.numel() else 0.0
        torch.testing.assert_close(one, other, rtol=0, atol=1e-5 * largest)


@pytest.mark.parametrize("count", [0, 5])
def test_scores_of_halves_whose_gradients_are_zeros(count):
    rows, vectors = torch.randn(count, 16, dtype=torch.bfloat16), torch.randn(3, 16).requires_grad_()
    layer.end_scores(rows, vectors).sum().mul(0).backward()
    assert torch.equal(vectors.grad, torch.zeros(3, 16))
