"""The end of a script ends its sampler, also where a GPU does not come to an end, and removes nothing but the run's."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from processes import SECONDS_TO_END, SECONDS_TO_START, processes_of, wait_until

from cohort_gnn.base.programs import program
from cohort_gnn.channel.run_folder import RunFolder

pytestmark = pytest.mark.usefixtures("shm")

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
FOR_EVER_US = 10**10  # of each fetch, at random up to so many

SCRIPT = """
import os, sys
from cohort_gnn import NeighborLoader
loader = NeighborLoader(sys.argv[1], [5, 5], batch_size=16, device="cpu", seed=int(sys.argv[2]))
print(loader._sampler.process.pid, flush=True)
while True:
    for batch in loader:
        pass
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
def test_the_end_of_a_script_ends_its_sampler_and_leaves_nothing(cora, shm, tmp_path, tmp_path_factory, number):
    command = [sys.executable, "-c", SCRIPT, str(cora), "0"]
    of_torch = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path_factory.mktemp("torch"))}  # else in TMPDIR, by an import of PyG
    environment = os.environ | of_torch | {"TMPDIR": str(tmp_path)}
    script = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    sampler = int(script.stdout.readline())
    folder = wait_until(shm.runs, SECONDS_TO_START, "starting")[0]
    time.sleep(0.2)  # well inside the loop
    begin = time.monotonic()
    script.send_signal(number)
    _, errors = script.communicate(timeout=SECONDS_TO_END)
    if number == signal.SIGINT:  # some Pythons then end by the signal, some with exit code 1
        assert script.returncode in (-number, 1) and "KeyboardInterrupt" in errors, errors
    else:
        assert script.returncode == -number, errors
    wait_until(lambda: sampler not in processes_of(folder), SECONDS_TO_END, "ending the sampler")
    wait_until(lambda: not shm.runs(), SECONDS_TO_END, "removing the folder")
    assert time.monotonic() - begin < SECONDS_TO_END
    assert not list(tmp_path.iterdir())


STUCK = """
import sys
from cohort_gnn import NeighborLoader
debug = {"slow_fetch_us": int(sys.argv[3])}
loader = NeighborLoader(sys.argv[1], [5, 5], batch_size=16, device=sys.argv[2], _debug=debug)
print(loader._sampler.process.pid, flush=True)
next(iter(loader))
"""
# Both slots are given back behind work that lasts for most of a minute, and the sampler waits for it on the GPU.
KILLED_IN_A_STEP = """
import os, signal, sys, time, torch
from cohort_gnn import NeighborLoader
loader = NeighborLoader(sys.argv[1], [5, 5], batch_size=16, device="cuda", num_slots=2)
batches = iter(loader)
batch = next(batches)
torch.cuda._sleep(10**11)
del batch
batch = next(batches)
del batch
print(loader._sampler.process.pid, flush=True)
time.sleep(1)
os.kill(os.getpid(), signal.SIGKILL)
"""


def start_script(text: str, *arguments) -> tuple[subprocess.Popen, int]:
    """The script's process, and the pid of its sampler, which it prints."""
    command = [sys.executable, "-W", "ignore", "-c", text, *map(str, arguments)]
    script = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    return script, int(script.stdout.readline())


def demand_end_of(sampler: int, folder: Path, shm) -> None:
    wait_until(lambda: sampler not in processes_of(folder), SECONDS_TO_END, "ending the sampler")
    wait_until(lambda: not shm.runs(), SECONDS_TO_END, "removing the folder")


@pytest.mark.parametrize("device", DEVICES)
def test_a_sampler_in_work_that_does_not_end_ends_with_its_script(cora, shm, device):
    script, sampler = start_script(STUCK, cora, device, FOR_EVER_US)
    (folder,) = shm.runs()
    time.sleep(0.5)  # well inside the fetch
    script.kill()
    script.communicate()
    demand_end_of(sampler, folder, shm)


@pytest.mark.gpu
def test_a_sampler_that_waits_for_a_killed_step_ends(cora, shm):
    script, sampler = start_script(KILLED_IN_A_STEP, cora)
    (folder,) = shm.runs()
    script.wait(timeout=SECONDS_TO_START)
    script.stdout.close()
    demand_end_of(sampler, folder, shm)
    assert torch.ones(8, device="cuda").sum().item() == 8  # the GPU is free again


@pytest.fixture
def owner():
    """A process that starts a run, and whose end is near."""
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


def start_sampler(run_json: Path, **members) -> subprocess.Popen:
    run_json.write_text(json.dumps({"sampler": members}))
    return subprocess.Popen([program("cohort-sampler"), str(run_json)], stderr=subprocess.DEVNULL)


def kill(owner: subprocess.Popen) -> None:
    owner.kill()
    owner.wait()


def test_a_sampler_whose_owner_died_before_the_first_request_ends(cora, shm, tmp_path, owner):
    folder = RunFolder()
    members = {"dataset": str(cora), "channel": str(folder.path), "owner_pid": owner.pid}
    process = start_sampler(tmp_path / "run.json", **members)
    wait_until((folder.path / "channel").exists, SECONDS_TO_START, "loading")
    kill(owner)
    assert process.wait(timeout=SECONDS_TO_END) == 0
    assert not folder.path.exists()


@pytest.mark.parametrize("mode", [0o755, 0o700], ids=oct)
@pytest.mark.parametrize("fails", [True, False])
def test_a_folder_that_is_no_runs_is_left_alone(cora, tmp_path, owner, mode, fails):
    """Somebody tries a sampler by hand, with the run.json of a run that is over and a folder of their own."""
    folder = tmp_path / "mine"
    (folder / "rank-1").mkdir(parents=True)
    kept = [folder / "thesis.tex", folder / "lock", folder / "rank-1" / "table.csv"]
    for file in kept:
        file.write_text("years of work")
    folder.chmod(mode)
    members = {"dataset": str(cora), "channel": str(folder), "owner_pid": owner.pid}
    if fails:
        kill(owner)
        assert start_sampler(tmp_path / "run.json", **members, end_with_parent=True).wait(timeout=SECONDS_TO_END) == 1
    else:
        process = start_sampler(tmp_path / "run.json", **members)
        wait_until((folder / "channel").exists, SECONDS_TO_START, "loading")
        kill(owner)
        assert process.wait(timeout=SECONDS_TO_END) == 0
    assert [file.read_text() for file in kept] == ["years of work"] * 3
