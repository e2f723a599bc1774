"""GATConv of cohort.nn whose sums are made piece by piece: the results are those of sums that are made at once."""

import pytest
import torch
from blocks import DEVICES, assert_same, by_target, pair_of, random_edges, run_layer, with_loops

from cohort_gnn.nn import Block, GATConv, attention_products, relations

SOURCES, TARGETS, EDGES, COLUMNS, HEADS = 90, 40, 700, 6, 4  # so few columns that rows are summed before products
OPTIONS = [{}, {"add_self_loops": False}, {"concat": False}, {"dropout": 0.4}, {"edge_dim": 3}]


def make_pieces(monkeypatch, rows: int, itemsize: int) -> None:
    """From here on, the sums of so many targets are made at once, of elements of ``itemsize`` bytes."""
    monkeypatch.setattr(attention_products, "KEPT_BYTES", 0)
    monkeypatch.setattr(attention_products, "KEPT_SHARE", 0)
    monkeypatch.setattr(attention_products, "PIECE_BYTES", rows * HEADS * COLUMNS * itemsize + 1)


def results(layer, x, edge_index, edge_rows) -> dict[str, torch.Tensor]:
    """Of a layer on a pair of rows with gradients, after a fixed seed."""
    torch.manual_seed(5)
    others = (edge_index,) if edge_rows is None else (edge_index, edge_rows)
    return {name: value.clone() for name, value in run_layer(layer, x, others).items() if value is not None}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("rows", [1, 7, TARGETS - 1, TARGETS])
@pytest.mark.parametrize("options", OPTIONS)
def test_results_are_those_of_one_piece(monkeypatch, device, rows, options):
    torch.manual_seed(1)
    layer = GATConv(COLUMNS, 40, heads=HEADS, **options).double().to(device)
    x = torch.randn(SOURCES, COLUMNS, dtype=torch.float64, device=device).requires_grad_()
    edge_index = with_loops(random_edges(SOURCES, TARGETS, EDGES, hub=300)).to(device)
    edge_rows = None
    if "edge_dim" in options:
        edge_rows = torch.randn(edge_index.shape[1], 3, dtype=torch.float64, device=device)
    expected = results(layer, (x, x[:TARGETS]), edge_index, edge_rows)
    make_pieces(monkeypatch, rows, 8)
    found = results(layer, (x, x[:TARGETS]), edge_index, edge_rows)
    assert found.keys() == expected.keys() and "lin.weight" in found and "x0" in found
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-12, atol=1e-12)


def test_blocks_with_more_targets_than_offsets(monkeypatch):
    theirs, ours = pair_of(GATConv, (COLUMNS, COLUMNS), 40, heads=HEADS, add_self_loops=False)
    edge_index, indptr = by_target(random_edges(SOURCES, TARGETS, EDGES), TARGETS)
    x = torch.randn(SOURCES, COLUMNS).requires_grad_()
    target = torch.randn(TARGETS + 30, COLUMNS).requires_grad_()  # the last ones have no edges, and no offsets
    expected = run_layer(theirs, (x, target), (edge_index,))
    make_pieces(monkeypatch, 16, 4)
    found = run_layer(ours, (x, target), (Block(indptr, edge_index[0], SOURCES, TARGETS + 30),))
    torch.testing.assert_close(found["out"], expected["out"])
    torch.testing.assert_close(found["x0"], expected["x0"])


def test_halves_and_pygs_layer(monkeypatch):
    make_pieces(monkeypatch, 7, 4)
    x, edge_index = torch.randn(SOURCES, COLUMNS).requires_grad_(), random_edges(SOURCES, TARGETS, EDGES)
    assert_same(*pair_of(GATConv, COLUMNS, 40, heads=HEADS), (x, x[:TARGETS]), edge_index)
    make_pieces(monkeypatch, 7, 2)
    theirs, ours = pair_of(GATConv, COLUMNS, 40, heads=HEADS)
    expected = run_layer(theirs, (x, x[:TARGETS]), (edge_index,))
    with torch.autocast("cpu", torch.bfloat16):
        found = run_layer(ours, (x.detach().half(), x.detach().half()[:TARGETS]), (edge_index,))
    for name in ("out", "lin.weight"):
        torch.testing.assert_close(
            found[name].float(), expected[name], rtol=0.05, atol=0.05 * expected[name].abs().max().item()
        )


def test_sums_are_kept_only_where_all_are_made_at_once(monkeypatch):
    layer = GATConv(COLUMNS, 41, heads=HEADS)
    x, edge_index = torch.randn(SOURCES, COLUMNS), random_edges(SOURCES, TARGETS, EDGES)

    def keeps_sums() -> bool:
        shapes = []
        with torch.autograd.graph.saved_tensors_hooks(
            lambda each: shapes.append(each.shape) or each, lambda each: each
        ):
            layer((x, x[:TARGETS]), edge_index)
        return (HEADS, TARGETS, COLUMNS) in shapes

    assert keeps_sums()
    make_pieces(monkeypatch, 7, 4)
    assert not keeps_sums()


def test_a_layer_keeps_sums_of_relations_as_long_as_there_is_room(monkeypatch):
    torch.manual_seed(2)
    names = [("a", to, "b") for to in ("one", "two", "three")]
    convs = {name: GATConv(COLUMNS, 40, heads=HEADS, add_self_loops=False) for name in names}
    blocks = {}
    for name, num_targets in zip(names, (TARGETS, TARGETS, 10), strict=True):
        edge_index, indptr = by_target(random_edges(SOURCES, num_targets, EDGES), num_targets)
        blocks[name] = Block(indptr, edge_index[0], SOURCES, num_targets)
    x = {"a": torch.randn(SOURCES, COLUMNS)}
    kept = {}
    for name, conv in convs.items():

        def from_scores(*others, name=name, real=conv.from_scores):
            kept[name[1]] = others[-1]
            rows = real(*others)
            return torch.nn.functional.pad(rows, (0, 0, 0, TARGETS - len(rows)))

        conv.from_scores = from_scores
    expected = relations.sum_attentions(convs, x, blocks, {})
    assert kept == {"one": True, "two": True, "three": True}
    assert [conv.sum_bytes(x["a"], blocks[name]) for name, conv in convs.items()] == [
        count * HEADS * COLUMNS * 4 for count in (TARGETS, TARGETS, 10)
    ]
    monkeypatch.setattr(attention_products, "KEPT_BYTES", (2 * TARGETS - 1) * HEADS * COLUMNS * 4)
    found = relations.sum_attentions(convs, x, blocks, {})
    assert kept == {"one": True, "two": False, "three": True}
    torch.testing.assert_close(found, expected)
