"""Several trainers, one a rank: the same training as one trainer that takes their batches together."""

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from processes import SECONDS_TO_END, SECONDS_TO_START, beginning_with, ran, two_ranks

import cohort_gnn as cohort
from cohort_gnn import NeighborLoader
from cohort_gnn.base.programs import program
from cohort_gnn.channel.run_folder import rank_folders
from cohort_gnn.trainer.loader.source import BatchSource, wait_for_channel
from cohort_gnn.trainer.loop.ranks import StepSums
from cohort_gnn.trainer.models.sampled import SampledGNN

pytestmark = pytest.mark.usefixtures("shm")

NUM_NODES, NUM_CLASSES, DIM = 900, 5, 12
NUM_SEEDS = 620  # of training: 7 batches of 100, the last of 20
EPOCHS = 3
FANOUT = [6, 4]
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    """A graph whose labels can be learned."""
    generator = torch.Generator().manual_seed(3)
    labels = torch.randint(NUM_CLASSES, (NUM_NODES,), generator=generator)
    x = torch.rand(NUM_NODES, DIM, generator=generator) + F.one_hot(labels, DIM) * 0.5
    ids = torch.randperm(NUM_NODES, generator=generator)
    return cohort.from_tensors(
        tmp_path_factory.mktemp("ranks") / "data",
        x=x,
        y=labels,
        edge_index=torch.randint(NUM_NODES, (2, 6000), generator=generator),
        train_ids=ids[:NUM_SEEDS],
        val_ids=ids[NUM_SEEDS:760],
        test_ids=ids[760:],
    )


def train(data: Path, out: Path, *arguments, cwd: Path | None = None) -> dict:
    """The summary of a run."""
    options = ["--fanout", "6,4", "--batch-size", 100, "--hidden", 16, "--epochs", EPOCHS, "--lr", 0.01, "--seed", 4]
    ran("train", data, *options, *arguments, "--out", out, cwd=cwd)
    return json.loads((out / "summary.json").read_text())


def losses_of_one_trainer(data: Path, train_ids, num_ranks: int, device: str = "cpu") -> list[float]:
    """Each epoch's mean loss of a plain loop that takes `num_ranks` batches a step."""
    losses = []
    torch.manual_seed(4)
    model = SampledGNN("sage", DIM, 16, NUM_CLASSES, len(FANOUT), dropout=0.0).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    with NeighborLoader(data, FANOUT, train_ids, batch_size=100, shuffle=True, device=device, seed=4) as loader:
        for _ in range(EPOCHS):
            batches = [batch.clone() for batch in loader]
            loss_sum = 0
            for first in range(0, len(batches), num_ranks):
                optimizer.zero_grad()
                taken = batches[first : first + num_ranks]
                scores = torch.cat([model(batch.x, batch.edge_index)[: batch.batch_size] for batch in taken])
                y = torch.cat([batch.y[: batch.batch_size] for batch in taken])
                loss = F.cross_entropy(scores, y)
                loss.backward()
                optimizer.step()
                loss_sum += loss.item() * len(y)
            losses.append(loss_sum / len(train_ids))
    return losses


def test_ranks_train_as_one_that_takes_their_batches(data, tmp_path):
    train_ids = np.array(cohort.dataset.open(data).train_ids)
    for num_ranks in (2, 3):  # 4 steps, the last with 1 empty batch; 3 steps, the last with 2
        summary = train(data, tmp_path / str(num_ranks), "--device", "cpu", "--ranks", num_ranks, "--dropout", 0)
        wanted = losses_of_one_trainer(data, train_ids, num_ranks)
        assert [epoch["loss"] for epoch in summary["epochs"]] == pytest.approx(wanted, rel=1e-5)
        assert all((epoch["num_seeds"], epoch["num_batches"]) == (NUM_SEEDS, 7) for epoch in summary["epochs"])
    one = losses_of_one_trainer(data, train_ids, 1)
    assert one != pytest.approx(wanted, rel=1e-3)  # the number of ranks is the size of the global batch


class Pair:
    """Two ranks in one process, each with the parameters [3] and [2, 2], that take a step together."""

    def __init__(self, device: str):
        made = [[torch.ones(3, device=device), torch.ones(2, 2, device=device)] for _ in range(2)]
        self.parameters = [[torch.nn.Parameter(values) for values in own] for own in made]
        self.flat = []
        self.sums = [StepSums(own, self.flat.append) for own in self.parameters]

    def step(self, *used: list[int]) -> list:
        """Gradients of both ranks, with the numbers of the parameters that each uses; they have 1 and 3 labels."""
        for rank, (own, sums) in enumerate(zip(self.parameters, self.sums, strict=True)):
            for values in own:
                values.grad = None
            for number in used[rank]:
                ((1 + 2 * rank) * own[number]).sum().backward()
            sums.take(torch.tensor(1 + 2 * rank, device=own[0].device))
            sums.add_up()
        total = self.flat[0] + self.flat[1]
        for flat, sums in zip(self.flat, self.sums, strict=True):
            flat.copy_(total)
            sums.give()
        self.flat.clear()
        return [[None if values.grad is None else values.grad.tolist() for values in own] for own in self.parameters]


@pytest.mark.parametrize("device", DEVICES)
def test_parameters_that_no_rank_uses_have_no_gradients(device):
    pair, whole = Pair(device), [1.0] * 3
    assert pair.step([0], [0]) == [[whole, None]] * 2
    assert pair.step([0], [0, 1]) == [[whole, [[0.75] * 2] * 2]] * 2
    assert pair.step([0, 1], [0]) == [[whole, [[0.25] * 2] * 2]] * 2
    assert pair.step([], [1]) == [[None, [[0.75] * 2] * 2]] * 2
    assert pair.step([], []) == [[None, None]] * 2
    assert pair.step([0, 1], [0, 1]) == [[whole, [[1.0] * 2] * 2]] * 2
    for sums in pair.sums:
        sums.zeros_for_unused = True
    assert pair.step([0], [0]) == [[whole, [[0.0] * 2] * 2]] * 2


NET = """
import torch
from torch_geometric.nn import GraphSAGE

class Net(torch.nn.Module):
    def __init__(self, in_channels, hidden_channels, num_layers, out_channels, **options):
        super().__init__()
        self.layers = GraphSAGE(in_channels, hidden_channels, num_layers, out_channels)
        self.spare = torch.nn.Parameter(torch.ones(3))
        self.late = torch.nn.Parameter(torch.ones(out_channels))
        self.steps = 0

    def forward(self, x, edge_index):
        self.steps += self.training
        scores = self.layers(x, edge_index)
        return scores + self.late if self.training and self.steps == 2 else scores
"""


def test_weight_decay_leaves_parameters_that_no_rank_uses(data, tmp_path):
    (tmp_path / "own.py").write_text(NET)
    options = ["--fanout", "6,4", "--batch-size", 100, "--hidden", 16, "--epochs", 1, "--device", "cpu", "--lr", 0.01]
    options += ["--model", "own:Net", "--weight-decay", 0.5]
    late = []
    for num_ranks in (1, 2):
        out = tmp_path / str(num_ranks)
        ran("train", data, *options, "--ranks", num_ranks, "--out", out, cwd=tmp_path)
        weights = torch.load(out / "model.pt", weights_only=True)
        assert weights["spare"].tolist() == [1, 1, 1]
        late.append(weights["late"])
    assert (late[0] != 1).all() and torch.allclose(*late, atol=1e-3), "one step of Adam moves each by about lr"


STATE_NET = """
import torch
from torch_geometric.nn import GraphSAGE

class Net(torch.nn.Module):
    def __init__(self, in_channels, hidden_channels, num_layers, out_channels, **options):
        super().__init__()
        self.layers = GraphSAGE(in_channels, hidden_channels, num_layers, out_channels)
        self.rank = torch.distributed.get_rank()
        own = torch.arange(24.0).view(4, 6) + 100 * self.rank
        self.weight = torch.nn.Parameter(own.t())
        self.register_buffer("columns", own.clone()[:, :2])
        self.register_buffer("sparse", own.to_sparse())
        self.register_buffer("numbers", own[0].to(torch.complex64))
        self.register_buffer("none", own[:0])
        self.extra = self.rank
        self.begun = False

    def get_extra_state(self):
        return torch.tensor(self.extra)

    def set_extra_state(self, state):
        self.extra = int(state)

    def forward(self, x, edge_index):
        if not self.begun:
            values = self.weight.detach(), self.columns, self.sparse.to_dense(), self.numbers.real
            torch.save([*(value.clone() for value in values), self.extra], f"{self.rank}.pt")
            self.begun = True
        return self.layers(x, edge_index)
"""


@pytest.mark.parametrize("device", DEVICES)
def test_ranks_begin_with_the_state_of_rank_0_whatever_it_is(data, tmp_path, device):
    (tmp_path / "own.py").write_text(STATE_NET)
    train(data, tmp_path / "out", *two_ranks(device), "--device", device, "--model", "own:Net", cwd=tmp_path)
    first = torch.arange(24.0).view(4, 6)
    for rank in range(2):
        *values, extra = torch.load(tmp_path / f"{rank}.pt", map_location="cpu")
        for value, expected in zip(values, (first.t(), first[:, :2], first, first[0]), strict=True):
            assert torch.equal(value, expected)
        assert extra == 0


@pytest.mark.gpu
def test_two_gpus_train_as_one_that_takes_their_batches(data, tmp_path):
    summary = train(data, tmp_path, "--device", "cuda", *two_ranks("cuda"), "--dropout", 0)
    wanted = losses_of_one_trainer(data, np.array(cohort.dataset.open(data).train_ids), 2, "cuda")
    assert [epoch["loss"] for epoch in summary["epochs"]] == pytest.approx(wanted, rel=1e-4)


@pytest.fixture(scope="module", params=DEVICES)
def two_runs(request, data, tmp_path_factory):
    """Summaries of the same run on two ranks, twice, and the folder of both."""
    arguments = ["--device", request.param, *two_ranks(request.param)]
    out = tmp_path_factory.mktemp("two") / "run"
    return [train(data, out, *arguments, "--overwrite") for _ in range(2)], out


def test_what_ends_one_pipeline_is_told_to_every_rank(data, shm, tmp_path):
    folder = shm.root / "direct"
    folder.mkdir()
    sampler = {"dataset": str(data), "channel": str(folder), "num_ranks": 2, "owner_pid": os.getpid()}
    (tmp_path / "run.json").write_text(json.dumps({"sampler": sampler}))
    process = subprocess.Popen([program("cohort-sampler"), str(tmp_path / "run.json")], stderr=subprocess.DEVNULL)
    sources = []
    for rank, rank_folder in enumerate(rank_folders(folder, 2)):
        wait_for_channel(rank_folder, lambda: None, SECONDS_TO_START)
        sources.append(BatchSource(rank_folder, rank=rank, num_ranks=2))
    seeds, twice = sources[0].add_seeds(np.arange(100)), sources[1].add_seeds(np.array([4, 4]))
    uneven = sources[0].add_seeds(np.arange(10), [7, 3])
    assert [sources[0].steps_of(*each) for each in ((seeds, 30), (seeds, 100), (uneven, 2))] == [2, 1, 4]
    sources[1].request(twice, [2], 10)
    with pytest.raises(cohort.CohortError, match="the sampler .*every node once"):
        while True:
            for _ in sources[0].slots(sources[0].request(seeds, [2], 10)):
                pass
    assert process.wait(timeout=SECONDS_TO_END) == 1


def results(summary: dict) -> list:
    """What does not depend on time, as the rows of earlier batches do that a GPU still has."""
    kinds = ("loss", "val_accuracy", "num_edges", "num_nodes")
    epochs = [[epoch[kind] for kind in kinds] for epoch in summary["epochs"]]
    return [summary["test_accuracy"], summary["val_accuracy"], summary["best_epoch"], epochs]


def test_what_the_ranks_read_adds_up(two_runs):
    summary = two_runs[0][0]
    for epoch in summary["epochs"]:
        assert sum(rank["num_batches"] for rank in epoch["ranks"]) == epoch["num_batches"] == 7
        rows = sum(tier["rows"] for tier in epoch["row_tiers"].values())
        if summary["last_hop_global"]:  # rows of that hop count as often as edges bring them
            assert epoch["num_nodes"] < rows <= epoch["num_nodes"] + epoch["num_edges"]
        else:
            assert rows == epoch["num_nodes"]
        for kind in ("row_tiers", "list_tiers"):
            for tier, numbers in epoch[kind].items():
                for name, number in numbers.items():
                    assert number == pytest.approx(sum(rank[kind][tier][name] for rank in epoch["ranks"]))


def test_the_same_seed_gives_the_same_results(two_runs):
    (first, second), _ = two_runs
    assert results(first) == results(second)
    assert first["num_ranks"] == 2 and first["epochs"][-1]["loss"] < first["epochs"][0]["loss"]
    assert 0.3 < first["test_accuracy"] <= 1


def test_every_rank_reports_its_times_and_they_make_up_its_epoch(two_runs):
    (_, summary), out = two_runs
    for epoch in summary["epochs"]:
        assert len(epoch["ranks"]) == 2
        for times in epoch["ranks"]:
            parts = [times["wait_seconds"], times["train_seconds"], times["all_reduce_seconds"]]
            assert min(parts) >= 0 and parts[2] > 0
            assert sum(parts) == pytest.approx(times["seconds"], rel=0.05, abs=0.02)
        assert epoch["wait_seconds"] == epoch["ranks"][0]["wait_seconds"]
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert len(lines) == EPOCHS  # one rank writes them
    assert (out / "trainer.log").exists() and (out / "trainer-1.log").exists()


def test_a_trainer_that_is_done_skips_the_last_steps_of_its_interpreter(data, tmp_path):
    # There a thread of gloo that still has a tensor makes C++ abort: seen once in some hundred ends on a busy machine.
    text = (
        "import atexit, os, sys\n"
        "if 'cohort_gnn.trainer' in sys.orig_argv:\n"
        "    open(os.path.join(os.path.dirname(__file__), f'trainer-{os.getpid()}'), 'w')\n"
        "    atexit.register(os.abort)\n"
    )
    arguments = ["--device", "cpu", "--ranks", "2", "--epochs", 1, "--fanout", "6,4", "--out", tmp_path / "run"]
    ran("train", data, *arguments, env=beginning_with(text, tmp_path))
    assert len(list(tmp_path.glob("trainer-*"))) == 2
