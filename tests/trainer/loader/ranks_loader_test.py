"""NeighborLoader in scripts that run once a rank, under torchrun and under `cohort run`."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from processes import ALL_TESTS, SECONDS_TO_END, free_port, processes_of, two_ranks, wait_until

from cohort_gnn import NeighborLoader
from cohort_gnn.trainer.bench.digest import digest

pytestmark = pytest.mark.usefixtures("shm")

LAUNCHERS = {
    "torchrun": ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"],
    "cohort": ["-m", "cohort_gnn", "run"],
}
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def run_on_two_ranks(launcher: str, folder: Path, script: str, *arguments, device: str = "cpu"):
    """The finished process of a launcher that ran the script on two ranks."""
    (folder / "script.py").write_text(script)
    options = ["--device", device, *two_ranks(device)] if launcher == "cohort" else []
    command = [sys.executable, *LAUNCHERS[launcher], *options, str(folder / "script.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="module")
def of_one_rank(cora):
    """[batch_size, digest] of each batch of two epochs: 7 batches each, the last of 308 seeds."""
    with NeighborLoader(cora, [4, 4], batch_size=400, shuffle=True, device="cpu", seed=1) as loader:
        return [[[batch.batch_size, digest(batch)] for batch in loader] for _ in range(2)]


TAKE_TURNS = """
import json, sys
import torch
import torch.distributed as dist
from cohort_gnn import NeighborLoader
from cohort_gnn.trainer.bench.digest import digest

def describe(batch):
    if batch.batch_size == 0:
        assert (batch.x.shape, batch.edge_index.shape, batch.num_sampled_nodes) == ((0, 1433), (2, 0), [0, 0, 0])
        assert batch.indptr.tolist() == [0]
    return batch.batch_size, digest(batch)

data, out, device = sys.argv[1:]
dist.init_process_group("gloo")
got = {"rank": dist.get_rank()}
for name, options in {"all": {}, "full": {"drop_last": True}}.items():
    with NeighborLoader(data, [4, 4], batch_size=400, shuffle=True, device=device, seed=1, **options) as loader:
        assert loader.device == torch.device(device, dist.get_rank() if device == "cuda" else None)
        got[name] = [[describe(batch) for batch in loader] for _ in range(2)]
        assert [len(epoch) for epoch in got[name]] == [len(loader)] * 2
        got["owns the sampler"] = loader._sampler.process is not None
with open(f"{out}/{dist.get_rank()}.json", "w") as file:
    json.dump(got, file)
dist.destroy_process_group()
"""


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_ranks_share_a_sampler_and_take_turns(cora, shm, tmp_path, of_one_rank, launcher, device):
    two_ranks(device)  # skips the test where there are fewer
    result = run_on_two_ranks(launcher, tmp_path, TAKE_TURNS, cora, tmp_path, device, device=device)
    assert result.returncode == 0, result.stderr
    ranks = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    assert [rank["owns the sampler"] for rank in ranks] == [True, False]
    for epoch, batches in enumerate(of_one_rank):
        first, second = (rank["all"][epoch] for rank in ranks)
        assert first == batches[0::2] and second[:3] == batches[1::2]
        assert [size for size, _ in second[3:]] == [0]  # as many as the other, the last of no seeds
        assert [rank["full"][epoch] for rank in ranks] == [batches[0:6:2], batches[1:6:2]]
    assert shm.runs() == [] and not list(shm.root.glob("cohort-*/meet-*"))


def test_two_torchruns_of_two_ranks_are_two_machines(cora, shm, tmp_path, of_one_rank, monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    (tmp_path / "script.py").write_text(TAKE_TURNS)
    meeting = ["--rdzv-id", "job", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{free_port()}"]
    agents = []
    for address in ("127.0.0.1", "127.0.0.2"):  # torchrun numbers agents by address
        command = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "2", *meeting]
        command += ["--local-addr", address, str(tmp_path / "script.py"), str(cora), str(tmp_path), "cpu"]
        agents.append(subprocess.Popen(command, stderr=subprocess.PIPE, text=True))
    said = [agent.communicate(timeout=120)[1] for agent in agents]
    assert [agent.returncode for agent in agents] == [0, 0], "\n".join(said)
    ranks = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(4)]
    assert [rank["owns the sampler"] for rank in ranks] == [True, False, True, False]
    for epoch, batches in enumerate(of_one_rank):
        for rank, got in enumerate(ranks):
            own = batches[rank::4]
            assert got["all"][epoch][: len(own)] == own and len(got["all"][epoch]) == 2
            assert got["full"][epoch] == own[:1]
        assert ranks[3]["all"][epoch][1][0] == 0  # no batch is left for it
    assert shm.runs() == [] and not list(shm.root.glob("cohort-*/meet-*"))


CLOSE_EARLY = """
import os, sys, time
from pathlib import Path
from cohort_gnn import NeighborLoader
data, out = sys.argv[1], Path(sys.argv[2])
loader = NeighborLoader(data, [4], batch_size=100, device="cpu")
if os.environ["RANK"] == "0":
    loader.close()
    (out / "closed").touch()
    sys.exit()
iterator = iter(loader)
next(iterator)
while not (out / "closed").exists():
    time.sleep(0.01)
time.sleep(0.5)
(out / "got").write_text(str(1 + sum(1 for _ in iterator)))
"""


def test_a_rank_that_is_done_first_leaves_the_sampler_to_the_others(cora, shm, tmp_path):
    result = run_on_two_ranks("cohort", tmp_path, CLOSE_EARLY, cora, tmp_path)
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "got").read_text() == "14"  # of 28 batches
    wait_until(lambda: not shm.runs(), SECONDS_TO_END, "removing the folder")


FAIL = """
import os, sys, time
from cohort_gnn import NeighborLoader
loader = NeighborLoader(sys.argv[1], [4], batch_size=100, device="cpu")
next(iter(loader))
if os.environ["RANK"] == "1":
    sys.exit(7)
time.sleep(600)
"""


def test_a_rank_that_fails_ends_the_others(cora, shm, tmp_path):
    result = run_on_two_ranks("cohort", tmp_path, FAIL, cora)
    assert result.returncode == 7, result.stderr
    wait_until(lambda: not processes_of(tmp_path), SECONDS_TO_END, "ending the other rank")
    wait_until(lambda: not shm.runs(), SECONDS_TO_END, "removing the folder")


LOSE_THE_SAMPLER = """
import os, sys
from cohort_gnn import CohortError, NeighborLoader
loader = NeighborLoader(sys.argv[1], [4], batch_size=4, device="cpu", num_slots=2)
iterator = iter(loader)
try:
    next(iterator)
    if os.environ["RANK"] == "0":
        loader._sampler.process.kill()
    for _ in iterator:
        pass
except CohortError as error:
    assert "the sampler (process " in str(error) and "it has ended" in str(error), error
    sys.exit()
sys.exit("all batches came")
"""


def test_every_rank_is_told_that_the_sampler_was_killed(cora, shm, tmp_path):
    result = run_on_two_ranks("cohort", tmp_path, LOSE_THE_SAMPLER, cora)
    assert result.returncode == 0, result.stderr
    assert shm.runs() == []


DIFFER = """
import os, sys
import numpy as np
import cohort_gnn as cohort
rank = int(os.environ["RANK"])
options = {"input_nodes": np.arange(600), "batch_size": 64}
def demand(words, make):
    try:
        make()
    except cohort.CohortError as error:
        assert words in str(error), error
        return
    sys.exit(f"rank {rank} was given a loader")

def other(name, value):
    return options | ({name: value} if rank == 1 else {})

halves = np.array_split(np.arange(600), 2)
words = "input_nodes: expected the same on every rank, found other ones on rank 1\\n  hint: pass all of them on every"
demand(words, lambda: cohort.NeighborLoader(sys.argv[1], [4], device="cpu", **options | {"input_nodes": halves[rank]}))
words = "batch_size: expected the same on every rank, found 64 on rank 0, 65 on rank 1"
demand(words, lambda: cohort.NeighborLoader(sys.argv[1], [4], device="cpu", **other("batch_size", 65)))
with cohort.NeighborLoader(sys.argv[1], [4], device="cpu", **options) as loader:
    demand("input_nodes: ", lambda: loader.with_nodes(halves[rank]))
    demand("num_neighbors: ", lambda: loader.with_nodes(halves[0], num_neighbors=[3 + rank]))
    same = loader.with_nodes(halves[0])
    assert sum(batch.batch_size for batch in loader) == (320, 280)[rank]
    assert sum(batch.batch_size for batch in same) == (172, 128)[rank]
    del same
    for number in range(6):
        assert sum(batch.batch_size for batch in loader.with_nodes(np.arange(number, 100))) == (64, 36 - number)[rank]
    folder = loader._sampler.source.folder
    assert len([*folder.glob("*.npy")]) <= 3 and len([*folder.glob("loader-*.json")]) <= 2, sorted(os.listdir(folder))
"""


def test_every_rank_is_told_when_their_loaders_differ(cora, shm, tmp_path):
    result = run_on_two_ranks("cohort", tmp_path, DIFFER, cora)
    assert result.returncode == 0, result.stderr
    wait_until(lambda: not shm.runs(), SECONDS_TO_END, "removing the folder")


ALONE = """
import os, sys, time, warnings
from pathlib import Path
from cohort_gnn import CohortError, NeighborLoader
from cohort_gnn.trainer.loader import machine
rank, warned = int(os.environ["RANK"]), Path(sys.argv[2])
machine.PATIENCE_SECONDS = 0.2
if rank != int(sys.argv[3]):
    while not warned.exists():
        time.sleep(0.01)
    sys.exit()

def keep(message, *_):
    with open(warned, "a") as file:
        print(message, file=file)

warnings.showwarning = keep
try:
    NeighborLoader(sys.argv[1], [4], device="cpu")
except CohortError as error:
    words = f"rank {1 - rank}: expected the same loader as on this rank, found its process has ended"
    assert words in str(error), error
    sys.exit()
sys.exit("there is a loader")
"""


@pytest.mark.parametrize(("launcher", "alone"), [("cohort", 0), ("cohort", 1), *[("torchrun", 0)] * ALL_TESTS])
def test_a_rank_that_makes_a_loader_alone_says_so_and_is_told(cora, shm, tmp_path, launcher, alone):
    warned = tmp_path / "warned"
    result = run_on_two_ranks(launcher, tmp_path, ALONE, cora, warned, alone)
    assert result.returncode == 0, result.stderr
    assert warned.read_text() == f"waiting for rank {1 - alone} to make the same loader\n"
    wait_until(lambda: not shm.runs(), SECONDS_TO_END, "removing the folder")


def test_a_missing_first_rank_is_named(cora, monkeypatch):
    from cohort_gnn import CohortError

    place = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
    for name, value in place.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(CohortError, match="LOCAL_RANK: expected a sampler that local rank 0 starts"):
        NeighborLoader(cora, [4], device="cpu", limit_seconds=0.1)
    monkeypatch.setenv("RANK", "one")
    with pytest.raises(CohortError, match="expected integers, as torchrun sets them"):
        NeighborLoader(cora, [4], device="cpu")
