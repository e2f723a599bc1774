"""Learnable rows: their optimizers are torch's sparse ones, wherever the rows are, and other rows stay as they are."""

import copy

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing

from cohort_gnn import CohortError
from cohort_gnn.nn import NodeEmbedding, RowAdagrad, RowAdam

ROWS, DIM = 60, 12
HOT = torch.tensor([0, 3, 4, 31, 32, 33, 59, 3])
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
PLACES = [{}, {"place": "host"}, {"place": "host", "hot": HOT}, {"place": "host", "hot": HOT[:0]}]
OPTIMIZERS = {
    "adagrad": (lambda rows, **more: RowAdagrad(rows, lr=0.1, **more), lambda p: torch.optim.Adagrad(p, lr=0.1)),
    "adam": (lambda rows, **more: RowAdam(rows, lr=0.1, **more), lambda p: torch.optim.SparseAdam(p, lr=0.1)),
}


def batch(step: int, device: str, num_rows: int = ROWS - 10) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids, some of them twice, and what their rows are multiplied by."""
    generator = torch.Generator().manual_seed(step)
    ids = torch.randint(num_rows, (40,), generator=generator)
    return ids.to(device), torch.randn(40, DIM, generator=generator).to(device)


def learn(rows, optimizer, device: str, steps=range(1)) -> None:
    for step in steps:
        ids, weights = batch(step, device)
        optimizer.zero_grad()
        (rows(ids).tanh() * weights).sum().backward()
        optimizer.step()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("place", PLACES, ids=["device", "host", "hot", "no hot ids"])
@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("more", [{}, {"states_on_device": True}], ids=["states with rows", "states on device"])
def test_fifty_steps_are_those_of_torch(name, place, device, more):
    of_rows, of_torch = OPTIMIZERS[name]
    rows = NodeEmbedding(ROWS, DIM, **place, device=device, seed=1)
    before = rows.weight.clone()
    table = torch.nn.Embedding(ROWS, DIM, sparse=True, _weight=before.to(device, copy=True))
    own, reference = of_rows(rows, **more), of_torch(table.parameters())
    learn(rows, own, device, range(20))
    state, weights = own.state_dict(), rows.state_dict()  # another one goes on
    state, weights = copy.deepcopy(state), copy.deepcopy(weights)
    rows = NodeEmbedding(ROWS, DIM, **place, device=device, seed=2)
    own = of_rows(rows, **more)
    rows.load_state_dict(weights)
    own.load_state_dict(state)
    learn(rows, own, device, range(20, 50))
    learn(table, reference, device, range(50))
    torch.testing.assert_close(rows.weight.to(device), table.weight.detach(), rtol=0, atol=1e-6)
    assert torch.equal(rows.weight[ROWS - 10 :], before[ROWS - 10 :]), "no batch has read them"
    assert (rows.weight - before)[: ROWS - 10].abs().max() > 0.5
    assert own.state_dict()["steps"] == [50]


@pytest.mark.parametrize("place", PLACES[1:3], ids=["host", "hot"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_rows_that_are_written_later_have_the_same_bits(name, place):
    found = []
    for later in (False, True):
        rows = NodeEmbedding(ROWS, DIM, **place, device="cpu", seed=1)
        rows.table.puts_later = later  # as where a GPU trains them
        optimizer = OPTIMIZERS[name][0](rows)
        optimizer.gather = torch.Tensor.clone  # as of one rank
        seen = []
        for step in range(8):
            if step == 4:
                rows.weight.mul_(1.5)  # what is changed between steps counts
                rows.table.refresh()
            ids, weights = batch(step, "cpu")
            (rows(ids).tanh() * weights).sum().backward()
            if step == 6:
                optimizer.exchange(1)
            optimizer.step()
            seen.append(rows.eval()(torch.arange(ROWS)).clone())
            rows.train()
        found.append([*seen, rows.weight.clone()])
    assert all(map(torch.equal, *found))


@pytest.mark.gpu
@pytest.mark.parametrize("place", PLACES, ids=["device", "host", "hot", "no hot ids"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_gpu_gives_the_bits_of_the_cpu(name, place):
    found = []
    for device in ("cpu", "cuda", "cuda"):
        rows = NodeEmbedding(ROWS, DIM, **place, device=device, seed=1)
        rows.load_state_dict({"weight": torch.randn(ROWS, DIM, generator=torch.Generator().manual_seed(3))})
        optimizer = OPTIMIZERS[name][0](rows)
        for step in range(5):
            ids, weights = batch(step, device)
            optimizer.zero_grad()
            (rows(ids) * weights).sum().backward()
            optimizer.step()
        found.append(rows.weight.cpu())
    assert torch.equal(found[0], found[1]) and torch.equal(found[1], found[2])


@pytest.mark.parametrize("device", DEVICES)
def test_rows_come_by_id_in_any_shape(device):
    for place in PLACES:
        rows = NodeEmbedding(ROWS, DIM, **place, device=device)
        ids = torch.randint(ROWS, (4, 5), dtype=torch.int32)
        for given in (ids, ids.to(device), ids.long()[::2, ::2], ids[:0]):
            found = rows(given)
            assert found.device.type == device and torch.equal(found.cpu(), rows.weight.cpu()[given.cpu().long()])
            assert not found.requires_grad, "there is no optimizer"


def test_rows_have_gradients_in_training_alone():
    rows = NodeEmbedding(ROWS, DIM)
    optimizer = RowAdam(rows)
    ids = torch.arange(3)
    assert rows(ids).requires_grad and not rows.eval()(ids).requires_grad
    with torch.no_grad():
        assert not rows.train()(ids).requires_grad
    assert len(rows.reads) == 1
    optimizer.zero_grad()
    assert rows.reads == []
    before = rows.weight.clone()
    optimizer.step()  # of nothing
    assert torch.equal(rows.weight, before) and optimizer.steps == [0]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_several_passes_and_tables_in_a_step(name):
    of_rows, of_torch = OPTIMIZERS[name]
    tables = [NodeEmbedding(ROWS, DIM, seed=seed) for seed in (1, 2)]
    references = [torch.nn.Embedding(ROWS, DIM, sparse=True, _weight=each.weight.clone()) for each in tables]
    own, reference = of_rows(tables), of_torch([each.weight for each in references])
    for step in range(0, 15, 3):
        for rows, optimizer in ((tables, own), (references, reference)):
            optimizer.zero_grad()
            for number, which in enumerate((0, 0, 1)):
                ids, weights = batch(step + number, "cpu")
                (rows[which](ids).tanh() * weights).sum().backward()
            optimizer.step()
    for each, wanted in zip(tables, references, strict=True):
        torch.testing.assert_close(each.weight, wanted.weight.detach(), rtol=0, atol=1e-6)


def test_weight_decay_is_that_of_adam():
    rows = NodeEmbedding(6, 4, seed=2)
    table = torch.nn.Parameter(rows.weight.clone())
    dense = torch.optim.Adam([table], lr=0.1, weight_decay=0.5)
    own = RowAdam(rows, lr=0.1, weight_decay=0.5)
    for _ in range(3):
        own.zero_grad()
        dense.zero_grad()
        (rows(torch.arange(6)).tanh().sum() + table.tanh().sum()).backward()
        own.step()
        dense.step()
    torch.testing.assert_close(rows.weight, table.detach(), rtol=1e-5, atol=1e-6)


def test_the_rate_may_be_scheduled_and_closures_are_called():
    rows = NodeEmbedding(ROWS, DIM, seed=1)
    optimizer = RowAdagrad(rows, lr=1.0)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.0)

    def closure():
        loss = rows(torch.arange(4)).sum()
        loss.backward()
        return loss

    before = rows.weight.clone()
    assert optimizer.step(closure) == before[:4].sum()
    schedule.step()
    after = rows.weight.clone()
    torch.testing.assert_close(after[:4], before[:4] - 1)
    optimizer.step(closure)
    assert torch.equal(rows.weight, after)


def test_a_module_saves_and_moves_its_rows():
    model = torch.nn.ModuleDict({"rows": NodeEmbedding(ROWS, DIM, place="host", hot=HOT, device="cpu")})
    assert list(model.parameters()) == [] and list(model.state_dict()) == ["rows.weight"]
    model.double()  # as .to(): the rows are float32
    assert model["rows"].weight.dtype == torch.float32
    other = torch.nn.Embedding(ROWS, DIM)
    other.load_state_dict(model["rows"].state_dict())
    again = copy.deepcopy(model)
    again["rows"].load_state_dict(torch.nn.Embedding(ROWS, DIM).state_dict())
    assert torch.equal(other.weight, model["rows"].weight) and not torch.equal(other.weight, again["rows"].weight)
    with pytest.raises(RuntimeError, match=r"size mismatch for weight.*\[60, 11\]"):
        again["rows"].load_state_dict({"weight": torch.zeros(ROWS, DIM - 1)})
    with pytest.raises(RuntimeError, match='Missing key.*"weight"'):
        again["rows"].load_state_dict({})
    with pytest.raises(RuntimeError, match='Unexpected key.*"bias"'):
        again["rows"].load_state_dict({"weight": other.weight, "bias": other.weight})


@pytest.mark.gpu
def test_rows_move_to_a_gpu_with_their_module():
    model = torch.nn.Sequential(NodeEmbedding(ROWS, DIM)).to("cuda")
    again = copy.deepcopy(model)
    for each in (model, again):
        optimizer = RowAdam(each[0], lr=0.1)
        learn(each[0], optimizer, "cuda")
    assert model[0].weight.is_cuda and torch.equal(model[0].weight, again[0].weight)


@pytest.mark.parametrize("device", ["meta", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_states_follow_the_rows_to_another_device(device):
    rows = NodeEmbedding(ROWS, DIM)
    optimizer = RowAdam(rows)
    learn(rows, optimizer, "cpu")
    rows.to(device)
    if device != "meta":  # which has no kernels
        learn(rows, optimizer, device)
    assert {table.device for table in optimizer._states_of(0)} == {rows.table.device}


@pytest.mark.gpu
@pytest.mark.parametrize("place", PLACES[:3], ids=["device", "host", "hot"])
def test_a_gpu_tells_of_a_wrong_id_later(place):
    rows = NodeEmbedding(ROWS, DIM, **place, device="cuda")
    found = rows(torch.tensor([1, ROWS], device="cuda"))
    torch.cuda.synchronize()
    assert found[1].abs().max() == 0 and found[0].abs().max() > 0
    with pytest.raises(CohortError, match="ids: expected 0 to 59, found 60"):
        rows(torch.tensor([1], device="cuda"))
    rows(torch.tensor([1, -3], device="cuda"))
    torch.cuda.synchronize()
    with pytest.raises(CohortError, match="ids: expected 0 to 59, found -3"):
        _ = rows.weight
    assert torch.equal(rows(torch.tensor([1])), found[:1]), "after the error, rows can be read again"


@pytest.mark.parametrize("place", PLACES[:3], ids=["device", "host", "hot"])
def test_a_wrong_id_is_an_error(place):
    rows = NodeEmbedding(ROWS, DIM, **place, device="cpu")
    for wrong in (-1, ROWS):
        with pytest.raises(CohortError, match=f"NodeEmbedding: ids: expected 0 to 59, found {wrong}"):
            rows(torch.tensor([0, wrong, 5]))
    with pytest.raises(CohortError, match="NodeEmbedding: ids: expected a tensor, int32 or int64, found torch.float32"):
        rows(torch.zeros(3))
    with pytest.raises(CohortError, match="ids: expected a tensor, int32 or int64, found list"):
        rows([3])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"num_nodes": 0}, "num_nodes and dim of at least 1, found 0 and 12"),
        ({"dim": 0}, "num_nodes and dim of at least 1, found 60 and 0"),
        ({"dim": 1.5}, "num_nodes and dim of at least 1, found 60 and 1.5"),
        ({"place": "gpu"}, "place: expected device or host, found 'gpu'"),
        ({"hot": HOT}, 'hot: expected none with place="device", found 8 ids'),
        ({"place": "host", "hot": HOT - 1}, "hot: expected ids of 0 to 59, found -1 to 58"),
        ({"place": "host", "hot": HOT > 3}, r"hot: expected int32 or int64 \[any\], found torch.bool \[8\]"),
    ],
    ids=["rows", "columns", "half a column", "place", "hot on device", "hot ids", "hot dtype"],
)
def test_wrong_arguments_are_named(arguments, said):
    with pytest.raises(CohortError, match=f"NodeEmbedding.*{said}"):
        NodeEmbedding(**{"num_nodes": ROWS, "dim": DIM} | arguments)


@pytest.mark.parametrize("optimizer", [RowAdagrad, RowAdam])
def test_wrong_arguments_of_an_optimizer_are_named(optimizer):
    rows = NodeEmbedding(ROWS, DIM)
    for option in ("lr", "eps", "weight_decay"):
        for number in (-0.1, float("nan")):
            with pytest.raises(CohortError, match=f"{option}: expected a number of at least 0, found {number}"):
                optimizer(rows, **{option: number})
    with pytest.raises(CohortError, match=r"betas: expected .* less than 1, found \(1.0, 0.9\)"):
        RowAdam(rows, betas=(1.0, 0.9))
    for given, found in (
        (torch.nn.Embedding(3, 3), "Embedding"),
        (torch.nn.Linear(3, 3).parameters(), "Parameter"),
        ([], "none"),
    ):
        with pytest.raises(CohortError, match=f"embeddings: expected a cohort.nn.*, or several, found {found}"):
            optimizer(given)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_state_before_the_first_step_takes_an_optimizer_back(name):
    rows = NodeEmbedding(ROWS, DIM, seed=1)
    before = rows.weight.clone()
    optimizer = OPTIMIZERS[name][0](rows)
    state = copy.deepcopy(optimizer.state_dict())
    learn(rows, optimizer, "cpu", range(3))
    expected = rows.weight.clone()
    rows.load_state_dict({"weight": before})
    optimizer.load_state_dict(state)
    learn(rows, optimizer, "cpu", range(3))
    assert torch.equal(rows.weight, expected)


@pytest.mark.parametrize(
    ("sizes", "optimizer"),
    [([ROWS, ROWS], RowAdam), ([ROWS + 1], RowAdam), ([ROWS], RowAdagrad)],
    ids=["two", "more rows", "Adagrad"],
)
def test_the_state_of_another_optimizer_is_refused(sizes, optimizer):
    rows, others = NodeEmbedding(ROWS, DIM), [NodeEmbedding(size, DIM) for size in sizes]
    own, other = RowAdam(rows, lr=0.1), optimizer(others, lr=0.5)
    for each, with_optimizer in [(rows, own), *((each, other) for each in others)]:
        each(torch.arange(3)).sum().backward()
        with_optimizer.step()
    before = copy.deepcopy(own.state_dict())
    with pytest.raises(CohortError, match=r"RowAdam.load_state_dict: states: .*\[\[\(60, 12\), \(60, 12\)\]\]"):
        own.load_state_dict(other.state_dict())
    after = own.state_dict()
    assert after["steps"] == before["steps"] and after["param_groups"] == before["param_groups"]


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("place", PLACES[:3], ids=["device", "host", "hot"])
def test_the_defaults_of_torch_change_nothing(place, dtype):
    expected = NodeEmbedding(ROWS, DIM, **place, device="cpu", seed=1)
    step_on_two_reads(expected)
    torch.set_default_dtype(dtype)
    torch.set_default_device("meta")
    try:
        rows = NodeEmbedding(ROWS, DIM, **place, device="cpu", seed=1)
        step_on_two_reads(rows)
    finally:
        torch.set_default_device(None)
        torch.set_default_dtype(torch.float32)
    assert torch.equal(rows.weight, expected.weight)


def step_on_two_reads(rows) -> None:
    optimizer = RowAdam(rows, lr=0.1)
    ids = torch.arange(40, device="cpu")
    (rows(ids).square().sum() + rows(ids[5:9]).sum()).backward()
    optimizer.step()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_gradients_may_be_forgotten_between_the_passes(name, device):
    trained = []
    for is_between in (False, True):
        rows = NodeEmbedding(ROWS, DIM, device=device, seed=1)
        optimizer = OPTIMIZERS[name][0](rows)
        for step in range(3):
            ids, weights = batch(step, device)
            if not is_between:
                optimizer.zero_grad()
            loss = (rows(ids).tanh() * weights).sum()
            if is_between:
                optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        trained.append(rows.weight.clone())
    assert torch.equal(*trained)


def after_a_step(losses, optimizer):
    losses[0].backward()
    optimizer.step()
    optimizer.zero_grad()
    losses[1].backward()


def after_two_that_forget(losses, optimizer):
    for loss in losses:
        optimizer.zero_grad()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def twice(losses, optimizer):
    for _ in range(2):
        optimizer.zero_grad()
        losses[0].backward(retain_graph=True)
    losses[1].backward()


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("order", [after_a_step, after_two_that_forget, twice])
def test_a_backward_pass_counts_whenever_it_comes(name, order):
    """The ids of both passes overlap, so a late one must not bring back rows from before the step."""
    of_rows, of_torch = OPTIMIZERS[name]
    rows = NodeEmbedding(ROWS, DIM, seed=1)
    reference = torch.nn.Embedding(ROWS, DIM, sparse=True, _weight=rows.weight.clone())
    for table, optimizer in ((rows, of_rows([rows, rows])), (reference, of_torch(reference.parameters()))):
        for ids in (torch.arange(9), torch.arange(20)):
            losses = [(table(ids + shift) * torch.arange(1, 1 + DIM)).sum() for shift in (0, 4)]
            order(losses, optimizer)
            optimizer.step()
            optimizer.zero_grad()
    torch.testing.assert_close(rows.weight, reference.weight.detach(), rtol=0, atol=1e-6)


def test_what_has_no_gradient_does_not_count():
    rows = NodeEmbedding(ROWS, DIM, seed=1)
    optimizer = RowAdam(rows, lr=0.1)
    learn(rows, optimizer, "cpu")
    before = rows.weight.clone()
    rows(torch.arange(9))
    optimizer.step()
    assert torch.equal(rows.weight, before) and optimizer.steps == [1] and rows.reads == []


def learn_as_rank(rank: int, size: int, folder: str, name: str) -> None:
    """A rank of a group: reads a part of each batch, of other sizes on each rank, none on the last."""
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=size)
    rows = NodeEmbedding(ROWS, DIM, seed=1)
    optimizer = OPTIMIZERS[name][0](rows, group=dist.group.WORLD)
    for step in range(10):
        ids, weights = batch(step, "cpu")
        part = [slice(0, 25), slice(25, 40), slice(0, 0)][rank]
        optimizer.zero_grad()
        if rank < 2 or step % 2:
            (rows(ids[part]).tanh() * weights[part]).sum().backward()
        optimizer.step()
    torch.save(rows.weight, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_ranks_average_their_gradients(tmp_path, name):
    torch.multiprocessing.spawn(learn_as_rank, (3, str(tmp_path), name), nprocs=3)
    found = [torch.load(tmp_path / f"{rank}.pt") for rank in range(3)]
    assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])
    alone = NodeEmbedding(ROWS, DIM, seed=1)
    optimizer = OPTIMIZERS[name][0](alone)
    for step in range(10):
        ids, weights = batch(step, "cpu")
        optimizer.zero_grad()
        ((alone(ids).tanh() * weights).sum() / 3).backward()
        optimizer.step()
    torch.testing.assert_close(found[0], alone.weight, rtol=1e-5, atol=1e-5)
