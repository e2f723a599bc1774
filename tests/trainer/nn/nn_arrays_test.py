"""Kernels on whole arrays: sums of many, and rows by index."""

import pytest
import torch
from blocks import DEVICES

from cohort_gnn.nn import kernels

DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(0, 8), (1, 1), (50, 64), (33, 7)])
@pytest.mark.parametrize("count", [1, 2, 8, 20])
def test_parts_are_added_in_their_order_and_rounded_once(device, dtype, shape, count):
    torch.manual_seed(0)
    parts = [torch.randn(shape).to(device, dtype) for _ in range(count)]
    bias = torch.randn(shape[1]).to(device, dtype)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    for added in (None, bias):
        expected, rest = parts[0], parts[1:]
        for first in range(0, max(1, len(rest)), 7):
            total = expected.to(wide)
            for part in rest[first : first + 7]:
                total = total + part.to(wide)
            if first + 7 >= len(rest) and added is not None:
                total = total + added.to(wide)
            expected = total.to(dtype)
        assert torch.equal(kernels.totals(parts, added), expected)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("out_dtype", DTYPES)
@pytest.mark.parametrize("columns", [1, 7, 64])
def test_rows_by_index_are_zeros_where_it_is_negative(device, dtype, out_dtype, columns):
    torch.manual_seed(0)
    x = torch.randn(40, columns + 1, dtype=torch.float64).to(device, dtype)[:, :columns]  # of a larger stride
    x[0] = torch.nan
    row_index = torch.tensor([3, -1, 39, 3, 1, -1], device=device)
    expected = x[row_index.clamp(min=1)].to(out_dtype).where((row_index >= 0).unsqueeze(1), 0)
    assert torch.equal(kernels.gather_rows(x, row_index, out_dtype), expected)
    assert kernels.gather_rows(x, row_index[:0], out_dtype).shape == (0, columns)
