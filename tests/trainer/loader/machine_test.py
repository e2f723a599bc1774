"""Which rank a process is, however its ranks were started: a loader's batches are those of torchrun's ranks, or it is
refused; never does every rank take all."""

import multiprocessing
import os
import time

import pytest
import torch
import torch.distributed as dist
from processes import SECONDS_TO_END, wait_until

from cohort_gnn import CohortError, NeighborLoader
from cohort_gnn.base.machine import STARTERS
from cohort_gnn.trainer.bench.digest import digest
from cohort_gnn.trainer.loader import _native, machine
from cohort_gnn.trainer.loader.arguments import device_of_rank
from cohort_gnn.trainer.loader.machine import ProcessRank

pytestmark = pytest.mark.usefixtures("shm")

TELLING = (*machine.NAMES, *(size for _, size in STARTERS[1:]))  # variables
TORCHRUN = {"RANK": "2", "WORLD_SIZE": "4", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}
SRUN = {"SLURM_STEP_NUM_TASKS": "2", "SLURM_NTASKS": "2", "SLURM_PROCID": "1", "SLURM_LOCALID": "1"}
STARTED_BY = {  # what a process of two has in its environment, by rank
    "mp.spawn": lambda rank: {},
    "srun": lambda rank: (
        SRUN | {"SLURM_PROCID": f"{rank}", "RANK": f"{rank}", "LOCAL_RANK": f"{rank}", "WORLD_SIZE": "2"}
    ),
    "PyTorchJob": lambda rank: {"RANK": f"{rank}", "WORLD_SIZE": "2"},
    "Lightning": lambda rank: {"LOCAL_RANK": f"{rank}", "NODE_RANK": "0", "WORLD_SIZE": "2"},
}
IN_SECONDS = 60


@pytest.fixture
def alone(monkeypatch):
    """An environment of no rank; what a test sets in it goes."""
    for name in TELLING:
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


@pytest.fixture(scope="module")
def of_one_rank(cora):
    """[batch_size, digest] of each of the 7 batches of an epoch."""
    with NeighborLoader(cora, [4, 4], batch_size=400, shuffle=True, device="cpu", seed=1) as loader:
        return [[batch.batch_size, digest(batch)] for batch in loader]


def _rank(work, answers, rank: int, size: int, environment: dict, store, arguments) -> None:
    """A process of its own: does the work as this rank, and answers [rank, what it returned or the error's fields]."""
    for name in TELLING:
        os.environ.pop(name, None)
    os.environ.update(environment, GLOO_SOCKET_IFNAME="lo", COHORT_SHM=str(store.parent))
    machine.PATIENCE_SECONDS = 0.2
    try:
        answer = work(rank, size, store, *arguments)
    except CohortError as error:
        answer = {"place": error.place, "expected": error.expected, "found": error.found, "hint": error.hint}
    answers.put([rank, answer])


def join(rank: int, size: int, store) -> None:
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size)


def on_ranks(tmp_path, work, size: int, *arguments, environment=STARTED_BY["mp.spawn"], answering=None) -> list:
    """What `work(rank, size, store, *arguments)` returned on each rank; `answering`: on so many of them."""
    context = multiprocessing.get_context("forkserver")  # it imports once
    context.set_forkserver_preload(["cohort_gnn.trainer.loader.neighbor", "torch_geometric.nn"])
    answers = context.Queue()
    told = [(work, answers, rank, size, environment(rank), tmp_path / "store", arguments) for rank in range(size)]
    processes = [context.Process(target=_rank, args=each) for each in told]
    for process in processes:
        process.start()
    found = dict(answers.get(timeout=IN_SECONDS) for _ in range(answering or size))
    for process in processes:
        process.join(IN_SECONDS)
    assert not list(tmp_path.glob("cohort-*/meet-*"))
    wait_until(lambda: not list(tmp_path.glob("cohort-*/run-*")), SECONDS_TO_END, "removing the folder")
    return [found.get(rank) for rank in range(size)]


def batches_of(rank, size, store, data, machine_of=None) -> dict:
    """The batches of an epoch, and the rank that the loader has."""
    if machine_of:
        machine.machine_identity = lambda: machine_of[rank]
    join(rank, size, store)
    found = []
    for _ in range(2):  # a second sampler is another
        with NeighborLoader(data, [4, 4], batch_size=400, shuffle=True, device="cpu", seed=1) as loader:
            found.append([[batch.batch_size, digest(batch)] for batch in loader])
    dist.barrier()
    dist.destroy_process_group()
    assert found[0] == found[1]
    return {"batches": found[0], "rank": loader._sampler.process_rank, "owns": loader._sampler.process is not None}


@pytest.mark.parametrize("environment", STARTED_BY.values(), ids=STARTED_BY)
def test_an_initialised_group_knows_the_ranks(cora, tmp_path, of_one_rank, environment):
    first, second = on_ranks(tmp_path, batches_of, 2, cora, environment=environment)
    assert first["batches"] == of_one_rank[0::2] and second["batches"][:3] == of_one_rank[1::2]
    assert (first["rank"], second["rank"]) == (ProcessRank(0, 2, 0, 2), ProcessRank(1, 2, 1, 2))
    assert (first["owns"], second["owns"]) == (True, False)


@pytest.mark.parametrize("machine_of", ["aabb", "abab", "aaab"])
def test_each_machine_has_a_sampler_for_its_ranks(cora, tmp_path, of_one_rank, machine_of):
    found = on_ranks(tmp_path, batches_of, 4, cora, machine_of)
    for rank, answer in enumerate(found):
        batches = of_one_rank[rank::4]
        assert answer["batches"][: len(batches)] == batches and len(answer["batches"]) == 2
        local_rank, local_size = machine_of[:rank].count(machine_of[rank]), machine_of.count(machine_of[rank])
        assert answer["rank"] == ProcessRank(rank, 4, local_rank, local_size)
        assert answer["owns"] == (local_rank == 0)


def first_rank_starts_the_second(rank, size, store, data) -> dict:
    """As Lightning does: rank 0 is the parent of the others."""
    if rank > 0:
        return {}
    child = os.fork()
    answer = batches_of(int(child == 0), size, store, data)
    if child == 0:
        os._exit(0 if [size for size, _ in answer["batches"]] == [400, 400, 400, 0] else 1)
    assert os.waitpid(child, 0)[1] == 0
    return answer


def test_a_rank_may_be_the_parent_of_the_others(cora, tmp_path, of_one_rank):
    first, _ = on_ranks(tmp_path, first_rank_starts_the_second, 2, cora)
    assert first["batches"] == of_one_rank[0::2]


def make_it_before_the_group(rank, size, store, data) -> None:
    with NeighborLoader(data, [4], batch_size=400, device="cpu") as loader:
        join(rank, size, store)
        next(iter(loader))


def test_a_loader_of_before_the_group_is_refused(cora, tmp_path):
    for rank, told in enumerate(on_ranks(tmp_path, make_it_before_the_group, 2, cora)):
        assert told["place"] == "the loader" and "init_process_group() before" in told["hint"]
        assert f"rank {rank} of 2" in told["expected"] and "rank 0 of 1" in told["found"]


def make_it_on_one_rank(rank, size, store, data, ended: bool) -> None:
    join(rank, size, store)
    if rank == 1:
        if not ended:
            return
        machine.ranks_here(60)
        os._exit(0)
    NeighborLoader(data, [4], batch_size=400, device="cpu", limit_seconds=60 if ended else 0.5)


@pytest.mark.parametrize("ended", [False, True])
def test_a_rank_that_makes_a_loader_alone_is_told(cora, tmp_path, ended):
    begin = time.monotonic()
    told, _ = on_ranks(tmp_path, make_it_on_one_rank, 2, cora, ended, answering=1 if ended else 2)
    assert told["place"] == "rank 1" and time.monotonic() < begin + IN_SECONDS
    assert told["found"] == ("its process has ended" if ended else "none")
    assert "the same loaders" in told["hint"]


@pytest.mark.parametrize(
    "environment",
    [
        *(pytest.param(of_rank(1), id=name) for name, of_rank in STARTED_BY.items() if name != "mp.spawn"),
        pytest.param(SRUN, id="srun alone"),
        pytest.param({"OMPI_COMM_WORLD_SIZE": "2"}, id="mpirun"),
        pytest.param({"RANK": "0"}, id="a rank of nobody knows how many"),
        pytest.param({"WORLD_SIZE": "2"}, id="a size alone"),
    ],
)
def test_a_part_of_a_place_is_refused_at_once(cora, alone, environment):
    for name, value in environment.items():
        alone.setenv(name, value)
    with pytest.raises(CohortError) as error:
        NeighborLoader(cora, [4], device="cpu")
    assert error.value.place == "RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE"
    shown = [name for name in environment if name in TELLING]
    assert sorted(each.split("=")[0] for each in error.value.found.split(", ")) == sorted(shown)
    assert "init_process_group()" in error.value.hint and "WORLD_SIZE=1" in error.value.hint


@pytest.mark.parametrize("environment", [{}, SRUN | {"WORLD_SIZE": "1"}, {"SLURM_STEP_NUM_TASKS": "1"}])
def test_a_process_that_is_alone(alone, environment):
    for name, value in environment.items():
        alone.setenv(name, value)
    assert machine.ranks_here(1).process_rank == ProcessRank()


def test_several_machines_under_torchrun(alone):
    for name, value in TORCHRUN.items():
        alone.setenv(name, value)
    found = machine.ranks_here(1)
    assert (found.process_rank, found.ranks) == (ProcessRank(2, 4, 0, 2), (2, 3))
    assert machine.ranks_here(1).name != found.name
    alone.setenv("LOCAL_WORLD_SIZE", "1")
    assert machine.ranks_here(1).ranks == (2,)


def test_a_rank_that_has_not_started_has_not_ended(monkeypatch):
    there = iter([{0}, {0, 1}, {0}, set(), {0}])
    monkeypatch.setattr(machine, "_local_ranks", lambda: next(there))
    siblings = machine.Siblings()
    assert [siblings.has_ended(1, 0) for _ in range(4)] == [False, False, True, False]
    monkeypatch.setattr(machine, "LATE_SECONDS", 0.0)
    assert machine.Siblings().has_ended(1, 0), "it should have started long ago"


@pytest.mark.parametrize("wrong", [{"RANK": "4"}, {"LOCAL_RANK": "2"}, {"LOCAL_WORLD_SIZE": "5"}, {"RANK": "two"}])
def test_a_place_that_cannot_be_is_refused(alone, wrong):
    for name, value in (TORCHRUN | wrong).items():
        alone.setenv(name, value)
    with pytest.raises(CohortError) as error:
        machine.ranks_here(1)
    assert error.value.place == "RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE"
    assert "as torchrun sets them" in error.value.expected


@pytest.mark.parametrize("device", ["auto", "cuda"])
def test_a_rank_that_sees_its_own_gpu_alone_is_told(monkeypatch, device):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(_native, "with_cuda", lambda: True)
    with pytest.raises(CohortError) as error:
        device_of_rank(device, ProcessRank(1, 2, 1, 2))
    assert (error.value.place, error.value.found) == ("CUDA_VISIBLE_DEVICES", "1")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert device_of_rank(device, ProcessRank(1, 2, 1, 2)) == ("cuda", 1)
