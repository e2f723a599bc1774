"""NeighborLoader in scripts that run once a rank, under torchrun and under `cohort run`."""

import inspect
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from processes import ALL_TESTS, SECONDS_TO_END, free_port, processes_of, two_ranks, wait_until
from torch_geometric.sampler import NegativeSampling

from cohort_gnn import CohortError, LinkNeighborLoader, NeighborLoader
from cohort_gnn.dataset import from_tensors
from cohort_gnn.dataset import open as open_dataset
from cohort_gnn.spec.graph import EDGE_TYPE
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
def events(cora, tmp_path_factory) -> Path:
    """Cora with times of edges."""
    graph = open_dataset(cora)
    edges = {"edge_index": graph.edge_types[EDGE_TYPE].edge_index(), "edge_time": np.arange(graph.num_edges) % 23}
    return from_tensors(tmp_path_factory.mktemp("events") / "data", x=graph.x, y=graph.y, **edges)


def loaders_of(data, events, device):
    """(name, loader) of nodes and of pairs, one after the other."""
    how = {"num_neighbors": [4, 4], "batch_size": 400, "shuffle": True, "device": device, "seed": 1}
    pairs = {"edge_label_index": torch.arange(2400).view(2, 1200), "reject_edges": True}
    by_weight = NegativeSampling("binary", 2, dst_weight=torch.arange(2708.0))
    for name, make, graph, options in (
        ("all", NeighborLoader, data, {}),
        ("full", NeighborLoader, data, {"drop_last": True}),
        ("temporal", NeighborLoader, events, {"time_attr": "time", "input_time": np.arange(2708) % 20}),
        ("by weight", LinkNeighborLoader, data, pairs | {"neg_sampling": by_weight}),
        ("in batch", LinkNeighborLoader, data, pairs | {"neg_sampling": {"mode": "in_batch", "amount": 3}}),
    ):
        with make(graph, **how, **options) as loader:
            yield name, loader


@pytest.fixture(scope="module")
def of_one_rank(cora, events):
    """By the name of a loader, [size, digest] of each batch of two epochs: of nodes 7 batches each, the last of 308."""
    found = {}
    for name, loader in loaders_of(cora, events, "cpu"):
        found[name] = [[[len(batch.input_id), digest(batch)] for batch in loader] for _ in range(2)]
    return found


TAKE_TURNS = f"""
import json, sys
import numpy as np
import torch
import torch.distributed as dist
from torch_geometric.sampler import NegativeSampling
from cohort_gnn import LinkNeighborLoader, NeighborLoader
from cohort_gnn.trainer.bench.digest import digest

{inspect.getsource(loaders_of)}
def describe(batch):
    if len(batch.input_id) == 0:
        assert (batch.x.shape, batch.edge_index.shape, batch.num_sampled_nodes) == ((0, 1433), (2, 0), [0, 0, 0])
        assert batch.indptr.tolist() == [0]
    return len(batch.input_id), digest(batch)

*data, out, device = sys.argv[1:]
dist.init_process_group("gloo")
got = {{"rank": dist.get_rank()}}
for name, loader in loaders_of(*data, device):
    assert loader.device == torch.device(device, dist.get_rank() if device == "cuda" else None)
    got[name] = [[describe(batch) for batch in loader] for _ in range(2)]
    assert [len(epoch) for epoch in got[name]] == [len(loader)] * 2
    got["owns the sampler"] = loader._sampler.process is not None
got["rest"] = []
for count in (1, None):  # the second loader goes on where the first one was left
    _, loader = next(loaders := loaders_of(*data, device))
    if got["rest"]:
        loader.load_state_dict(state)
    for batch in loader:
        got["rest"].append(describe(batch))
        state = loader.state_dict()
        if len(got["rest"]) == count:
            break
    del batch
    loaders.close()
got["state"] = [state[name] for name in ("epoch", "step", "num_ranks")]
with open(f"{{out}}/{{dist.get_rank()}}.json", "w") as file:
    json.dump(got, file)
dist.destroy_process_group()
"""


def demand_turns(folder: Path, num_ranks: int, of_one_rank: dict) -> list[dict]:
    """What each rank got, after a look at it: the batches of one rank in turn, and empty ones where none is left."""
    ranks = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(num_ranks)]
    for name, epochs in of_one_rank.items():
        for epoch, batches in enumerate(epochs):
            steps = len(batches) // num_ranks if name == "full" else -(-len(batches) // num_ranks)
            for rank, got in enumerate(ranks):
                own, found = batches[rank::num_ranks][:steps], got[name][epoch]
                assert found[: len(own)] == own and [size for size, _ in found[len(own) :]] == [0] * (steps - len(own))
    for got in ranks:
        assert got["rest"] == got["all"][0] and got["state"] == [0, len(got["rest"]), num_ranks]
    return ranks


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_ranks_share_a_sampler_and_take_turns(cora, events, shm, tmp_path, of_one_rank, launcher, device):
    two_ranks(device)  # skips the test where there are fewer
    result = run_on_two_ranks(launcher, tmp_path, TAKE_TURNS, cora, events, tmp_path, device, device=device)
    assert result.returncode == 0, result.stderr
    ranks = demand_turns(tmp_path, 2, of_one_rank)
    assert [rank["owns the sampler"] for rank in ranks] == [True, False]
    assert shm.runs() == [] and not list(shm.root.glob("cohort-*/meet-*"))


def test_two_torchruns_of_two_ranks_are_two_machines(cora, events, shm, tmp_path, of_one_rank, monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    (tmp_path / "script.py").write_text(TAKE_TURNS)
    meeting = ["--rdzv-id", "job", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{free_port()}"]
    agents = []
    for address in ("127.0.0.1", "127.0.0.2"):  # torchrun numbers agents by address
        command = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "2", *meeting]
        command += ["--local-addr", address, *map(str, (tmp_path / "script.py", cora, events, tmp_path, "cpu"))]
        agents.append(subprocess.Popen(command, stderr=subprocess.PIPE, text=True))
    said = [agent.communicate(timeout=120)[1] for agent in agents]
    assert [agent.returncode for agent in agents] == [0, 0], "\n".join(said)
    ranks = demand_turns(tmp_path, 4, of_one_rank)
    assert [rank["owns the sampler"] for rank in ranks] == [True, False, True, False]
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
import torch
from torch_geometric.sampler import NegativeSampling
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
pairs, weights = torch.arange(200).view(2, 100), NegativeSampling("binary", 2, dst_weight=torch.arange(2708.0) + rank)
demand("pairs", lambda: cohort.LinkNeighborLoader(sys.argv[1], [2], pairs, neg_sampling=weights, device="cpu"))
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
    place = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
    for name, value in place.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(CohortError, match="LOCAL_RANK: expected a sampler that local rank 0 starts"):
        NeighborLoader(cora, [4], device="cpu", limit_seconds=0.1)
    monkeypatch.setenv("RANK", "one")
    with pytest.raises(CohortError, match="expected integers, as torchrun sets them"):
        NeighborLoader(cora, [4], device="cpu")
