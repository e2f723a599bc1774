"""`row_tiles`: what is made of a row is the same bytes whichever rows stand beside it."""

import pytest
import torch

from cohort_gnn.nn import GATConv, SAGEConv
from cohort_gnn.nn.block import Block
from cohort_gnn.nn.linear import linear
from cohort_gnn.nn.row_tiles import row_tiles

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
# (columns of rows, columns of products): of few and many columns, of no whole packs, deeper than Cohort's products take
WIDTHS = [(12, 16), (100, 47), (128, 256), (602, 41), (7, 300), (1024, 128), (256, 1)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("depth", "width"), WIDTHS)
@pytest.mark.parametrize("tile_rows", [16, 128])
def test_products(device, depth, width, tile_rows):
    generator = torch.Generator().manual_seed(depth)
    x = torch.randn(5000, depth, generator=generator).to(device)
    weight, bias = torch.randn(width, depth, generator=generator), torch.randn(width, generator=generator)
    whole = _linear(x, weight, bias, tile_rows)
    torch.testing.assert_close(whole.cpu(), x.cpu() @ weight.t() + bias, rtol=1e-4, atol=1e-3)
    order = torch.randperm(len(x), generator=generator).to(device)
    for some in (order[:1], order[:3], order[:700], order):
        assert torch.equal(_linear(x[some], weight, bias, tile_rows), whole[some])
    for first, last in ((0, 1), (1, 2), (4000, 4003), (13, 4999)):
        assert torch.equal(_linear(x[first:last], weight, bias, tile_rows), whole[first:last])


@torch.no_grad()
def _linear(rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, tile_rows: int) -> torch.Tensor:
    with row_tiles(tile_rows):
        return linear(rows, weight.to(rows.device), bias.to(rows.device))


def a_block(lists: list[torch.Tensor], num_sources: int, device: str) -> Block:
    indptr = torch.tensor([0, *map(len, lists)]).cumsum(0)
    return Block(indptr.to(device), torch.cat(lists).to(device), num_sources, len(lists))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("width", [12, 256])
@pytest.mark.parametrize(("kind", "options"), [(SAGEConv, {}), (GATConv, {"heads": 4, "add_self_loops": False})])
@torch.no_grad()
def test_lists_of_any_length_in_any_order(device, width, kind, options):
    """Lists around each multiple of a piece, and a hub's: their rows are the same bytes wherever the lists begin."""
    torch.manual_seed(width)
    lengths = [0, 1, 127, 128, 129, 200, 255, 256, 257, 383, 384, 385, 5000, *range(2, 40)]
    lists = [torch.randint(2000, (length,)) for length in lengths]
    x = torch.randn(2000, width, device=device)
    layer = kind(width, 64, **options).to(device)
    with row_tiles():
        whole = layer((x, x[: len(lists)]), a_block(lists, len(x), device))
        for seed in range(3):
            order = torch.randperm(len(lists), generator=torch.Generator().manual_seed(seed))[: len(lists) - 7 * seed]
            others = a_block([lists[i] for i in order.tolist()], len(x), device)
            assert torch.equal(layer((x, x[order.to(device)]), others), whole[order.to(device)])
