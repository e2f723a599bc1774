"""Models of several node types whose first layer reads rows where they lie among others."""

import itertools

import pytest
import torch
from processes import ALL_TESTS
from torch import Tensor

from cohort_gnn.nn import attention_products, gat
from cohort_gnn.nn.inputs import IndexedRows
from cohort_gnn.nn.row_optimizers import RowAdam
from cohort_gnn.spec.graph import GraphTypes
from cohort_gnn.trainer.models.typed import TypedGNN

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
KINDS = ["rsage", "rgcn", "rgat"]
COUNTS = {"author": 60, "field": 8, "paper": 90}
EDGE_TYPES = [
    ("author", "writes", "paper"),
    ("field", "topic_of", "paper"),
    ("paper", "rev_writes", "author"),
    ("paper", "rev_topic_of", "field"),
    ("paper", "cites", "paper"),
]
DTYPES = [(torch.float32, False), (torch.float32, True), (torch.float16, True), (torch.bfloat16, True)]


def indexed_rows(count: int, dim: int, dtype: torch.dtype, device: str) -> IndexedRows:
    """Random rows among NaNs; nodes 1 and 3 have no row_index."""
    generator = torch.Generator().manual_seed(dim)
    rows = torch.full((2 * count + 3, dim), torch.nan)
    row_index = torch.randperm(len(rows), generator=generator)[:count]
    rows[row_index] = torch.randn(count, dim, generator=generator)
    row_index[[1, 3]] = -1
    return IndexedRows(rows.to(device, dtype), row_index.to(device))


def edges_on(device: str) -> dict:
    """Random ones, none of which begins at a node without a row_index."""
    generator, edges = torch.Generator().manual_seed(5), {}
    for name in EDGE_TYPES:
        source, target = (torch.randint(COUNTS[end], (400,), generator=generator) for end in (name[0], name[2]))
        source[(source == 1) | (source == 3)] = 4
        edges[name] = torch.stack([source, target]).to(device)
    return edges


def trained(model: TypedGNN, x: dict, edges: dict, amp: bool) -> list[Tensor]:
    """The loss, the scores and the gradients of all parameters; those of rows that are looked up among them."""
    model.zero_grad(set_to_none=True)
    with torch.autocast(next(iter(x.values())).device.type, torch.bfloat16, enabled=amp):
        scores = model(x, edges)
    target = torch.arange(len(scores), device=scores.device) % scores.shape[1]
    loss = torch.nn.functional.cross_entropy(scores.float(), target)
    loss.backward()
    grads = [each.grad for each in model.parameters() if each.grad is not None]
    if model.embeddings is not None:
        grads += [read.rows.grad for table in model.embeddings.values() for read in table.reads]
        for table in model.embeddings.values():
            table.reads.clear()
    assert all(each.isfinite().all() for each in grads)
    return [loss.detach(), scores.detach(), *grads]


def model_on(device: str, kind: str, dims: dict[str, int], hidden: int = 16, **options) -> TypedGNN:
    torch.manual_seed(1)
    types = GraphTypes(COUNTS, {name: dims.get(name, 0) for name in COUNTS}, EDGE_TYPES, "paper")
    return TypedGNN(kind, types, hidden, 4, num_layers=2, dropout=0.0, **options).to(device)


def compare(model: TypedGNN, x: dict, edges: dict, amp: bool, exact: bool) -> None:
    gathered = {name: rows.gathered() if isinstance(rows, IndexedRows) else rows for name, rows in x.items()}
    expected, found = trained(model, gathered, edges, amp), trained(model, x, edges, amp)
    assert len(found) == len(expected) > 6
    for one, other in zip(found, expected, strict=True):
        if exact:
            assert torch.equal(one, other)
        else:
            largest = other.float().abs().max().item()
            torch.testing.assert_close(one, other, rtol=0, atol=(1e-2 if amp else 1e-4) * largest + 1e-7)


WIDTHS, HEADS, WITHOUT = [(4, 3, 6), (32, 32, 64)], [1, 4], [[], ["author"]]
# By day each two of the values are together; by night all three are.
CASES = [
    (WIDTHS[a], HEADS[b], WITHOUT[c])
    for a, b, c in itertools.product(range(2), repeat=3)
    if ALL_TESTS or c == (a + b) % 2
]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("dtype", "amp"), DTYPES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("widths", "heads", "without"), CASES, ids=str)
def test_losses_and_gradients_are_those_of_gathered_rows(device, dtype, amp, heads, kind, without, widths):
    dims = {name: dim for name, dim in zip(COUNTS, widths, strict=True) if name not in without}
    # So wide that the first layer sums rows before it multiplies them.
    model, edges = model_on(device, kind, dims, hidden=4 * max(widths), heads=heads), edges_on(device)
    assert model.takes_indexed_rows
    x: dict = {name: indexed_rows(COUNTS[name], dim, dtype, device) for name, dim in dims.items()}
    x |= {name: torch.arange(COUNTS[name], device=device) for name in without}
    compare(model, x, edges, amp, exact=device == "cpu")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("dtype", "amp"), DTYPES, ids=str)
def test_sums_of_rows_by_index_that_are_made_piece_by_piece(device, dtype, amp, monkeypatch):
    model, edges = model_on(device, "rgat", {"paper": 32}, hidden=128), edges_on(device)
    x: dict = {name: torch.arange(count, device=device) for name, count in COUNTS.items()}
    x["paper"] = indexed_rows(COUNTS["paper"], 32, dtype, device)
    monkeypatch.setattr(attention_products, "KEPT_BYTES", 0)
    monkeypatch.setattr(attention_products, "KEPT_SHARE", 0)
    monkeypatch.setattr(attention_products, "PIECE_BYTES", 7 * 4 * 32 * 4)
    compare(model, x, edges, amp, exact=device == "cpu")


@pytest.mark.parametrize(("dtype", "amp"), DTYPES, ids=str)
def test_attention_sums_rows_where_they_are(dtype, amp, monkeypatch):
    model, edges, tables = model_on("cpu", "rgat", {"paper": 32}, hidden=128), edges_on("cpu"), []
    x: dict = {name: torch.arange(count) for name, count in COUNTS.items()}
    x["paper"] = indexed_rows(COUNTS["paper"], 32, dtype, "cpu")

    def spy(rows, *others):
        tables.append(rows.data_ptr())
        return attention_products.attend(rows, *others)

    monkeypatch.setattr(gat, "attend", spy)
    trained(model, x, edges, amp)
    of_papers = [name for name in EDGE_TYPES if name[0] == "paper"]
    assert tables.count(x["paper"].rows.data_ptr()) == len(of_papers)


def test_a_model_says_whose_rows_it_reads_in_place():
    takes = {kind: model_on("cpu", kind, {"paper": 32}).reads_in_place(torch.zeros(2, 32)) for kind in (*KINDS, "hgt")}
    assert takes == {"rsage": True, "rgcn": True, "rgat": True, "hgt": False}
    assert not model_on("cpu", "rgat", {"paper": 32}, layers="pyg").reads_in_place(torch.zeros(2, 32))


@pytest.mark.gpu
def test_on_a_gpu_attention_takes_rows_that_its_kernels_read():
    model = model_on("cuda", "rgat", {"paper": 32})
    for columns, dtype, expected in (
        (32, torch.float16, True), (1024, torch.bfloat16, True), (32, torch.float32, False), (40, torch.float16, False)
    ):  # fmt: skip
        assert model.reads_in_place(torch.zeros(2, columns, dtype=dtype, device="cuda")) == expected


@pytest.mark.parametrize("device", DEVICES)
def test_a_type_whose_rows_are_multiplied_first_is_gathered_once(device, monkeypatch):
    """So many columns that the first layer multiplies the rows of papers by its weights before it sums them."""
    dims = {"author": 3, "paper": 400}
    model, edges, times = model_on(device, "rgat", dims), edges_on(device), []
    x: dict = {name: indexed_rows(COUNTS[name], dim, torch.float32, device) for name, dim in dims.items()}
    x["field"] = torch.arange(COUNTS["field"], device=device)
    compare(model, x, edges, False, exact=device == "cpu")
    gathered = IndexedRows.gathered
    monkeypatch.setattr(
        IndexedRows, "gathered", lambda rows, *dtype: times.append(rows.shape) or gathered(rows, *dtype)
    )
    trained(model, x, edges, False)
    assert times.count((COUNTS["paper"], 400)) == 1


@pytest.mark.parametrize("device", DEVICES)
def test_learned_rows_beside_placed_ones_get_their_gradients(device):
    model, edges = model_on(device, "rgat", {"paper": 6}, featureless="embed"), edges_on(device)
    RowAdam(model.embeddings.values())  # asks for the gradients of the rows that are read
    x: dict = {name: torch.arange(count, device=device) for name, count in COUNTS.items()}
    x["paper"] = indexed_rows(COUNTS["paper"], 6, torch.float32, device)
    compare(model, x, edges, False, exact=device == "cpu")
