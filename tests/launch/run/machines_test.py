"""Runs of several machines: a launcher for each, here all on one, with a folder each."""

import functools
import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from processes import ALL_TESTS, SECONDS_TO_START, free_port, processes_of, ran, wait_until
from resumable import OPTIONS, Launch, learned, small_graph
from several_machines import SECONDS_OF_SILENCE, SECONDS_TO_HEAR, Machines, meetings_of

from cohort_gnn.base.errors import CohortError
from cohort_gnn.launch.run import machines
from cohort_gnn.launch.run.machines import Machine, this_machine
from cohort_gnn.launch.run.meeting import BEAT_SECONDS, LOOK_SECONDS

REPEATS = 20 if ALL_TESTS else 1


@pytest.fixture(scope="module")
def graph(tmp_path_factory) -> Path:
    return small_graph(tmp_path_factory.mktemp("machines") / "graph")


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    """The last bits of a product depend on how many threads share it, and one machine divides its cores."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


CACHED = ["--epochs", 2, "--cache-ratio", 0.2, "--sampling", "labor", "--batch-dependency", 4]


@pytest.fixture(scope="module")
def alone(graph, tmp_path_factory):
    """alone(ranks): what so many ranks have learned on one machine, computed once."""

    @functools.cache
    def learned_by(ranks: int) -> tuple:
        out = tmp_path_factory.mktemp("alone") / "run"
        run = Launch(out, graph, *OPTIONS, *CACHED, "--ranks", ranks, "--out", out)
        assert run.wait() == 0, run.errors.read_text()
        return learned(out)

    return learned_by


@pytest.mark.parametrize("ranks", [(1, 2), *[(1, 1), (1, 3), (1, 1, 1, 1), (2, 2)] * ALL_TESTS], ids=str)
def test_the_same_batches_and_losses_as_on_one_machine(graph, alone, tmp_path, monkeypatch, ranks):
    expected = alone(sum(ranks))
    several = Machines(monkeypatch, tmp_path / "two", [graph] * len(ranks), *CACHED, ranks=ranks)
    assert several.wait() == [0] * len(ranks), several.said(0) + several.said(1)
    assert learned(several.out) == expected
    assert not (several.out / "machine-1" / "summary.json").exists()
    several.demand_nothing_left()
    report = ran("report", several.out)
    places = [f"m{rank} r{number}" for rank, count in enumerate(ranks) for number in range(count)]
    for table in ("Time of each epoch", "Feature rows of a batch"):
        rows = report.stdout[report.stdout.index(table) :].partition("\n\n")[0]
        assert all(place in rows for place in places), rows


# A launcher notices the end of its sampler and that of its trainer in one place.
VICTIMS = [("sampler", 1), ("trainer", 0), ("launcher", 0), ("meeting", 1)]
VICTIMS += [("sampler", 0), ("trainer", 1), ("launcher", 1), ("meeting", 0)] * ALL_TESTS


@pytest.mark.parametrize("repeat", range(REPEATS))
@pytest.mark.parametrize(("role", "rank"), VICTIMS)
def test_one_process_that_is_killed_ends_all_machines(graph, tmp_path, monkeypatch, role, rank, repeat):
    several = Machines(monkeypatch, tmp_path / "run", [graph, graph], "--epochs", 10000)
    several.await_epochs()
    victim = several.launches[rank]
    pids = meetings_of(victim.launcher.pid) if role == "meeting" else victim.pids()[role]
    os.kill(pids[0], signal.SIGKILL)
    began = time.monotonic()
    codes = several.wait()
    assert time.monotonic() - began < SECONDS_TO_HEAR
    other = 1 - rank
    assert codes[other] == 1
    assert codes[rank] == (-signal.SIGKILL if role == "launcher" else 1)
    said = several.said(other)
    keeps_store = rank == 0 and role in ("launcher", "meeting")
    assert f"machine {rank} (" in said or (keeps_store and "the rendezvous at" in said), said
    wait_until(lambda: processes_of(several.out) == {}, 5, "the end of all processes")


FAILS = """
from cohort_gnn import Callback

class Fails(Callback):
    def step_ended(self, trainer, batch):
        if trainer.ranks.rank == 1 and trainer.task == "train" and trainer.running.epoch == 2:
            raise ValueError("a fault of this trainer's own")
"""


LONG_WAIT = """
import sys
if "-m" in sys.orig_argv and "cohort_gnn" in sys.orig_argv:
    import cohort_gnn.launch.run.supervise as supervise
    supervise.OTHERS_SECONDS = 3600
"""


def test_a_fault_of_one_trainer_is_told_by_all_machines_at_once(graph, tmp_path, monkeypatch):
    """Nobody waits for what others say, where this takes an hour."""
    (tmp_path / "fails.py").write_text(FAILS)
    (tmp_path / "sitecustomize.py").write_text(LONG_WAIT)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.chdir(tmp_path)
    several = Machines(monkeypatch, tmp_path / "run", [graph] * 2, "--epochs", 9, "--callbacks", "fails:Fails")
    assert several.wait() == [1, 1]
    said = several.said(0)
    assert f"machine 1 ({socket.gethostname()}): the trainer" in said and "a fault of this trainer's own" in said, said
    assert "a fault of this trainer's own" in several.said(1)
    several.demand_nothing_left()


def test_a_machine_that_is_stopped_ends_all_machines(graph, tmp_path, monkeypatch):
    several = Machines(monkeypatch, tmp_path / "run", [graph, graph], "--epochs", 10000)
    several.await_epochs()
    time.sleep(2 * (LOOK_SECONDS + BEAT_SECONDS))  # its words are known
    launcher = several.launches[1].launcher.pid
    stopped = [launcher, *meetings_of(launcher), *processes_of(several.launches[1].out)]
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    try:
        began = time.monotonic()
        assert several.launches[0].wait() == 1
        assert SECONDS_OF_SILENCE / 2 < time.monotonic() - began < SECONDS_TO_HEAR
        said = several.said(0)
        assert f"machine 1 ({socket.gethostname()}): silent for {SECONDS_OF_SILENCE} s" in said
        assert "sampler" in said and "batch" in said
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
    assert several.launches[1].wait() == 1
    several.demand_nothing_left()


@pytest.mark.parametrize("role", ["trainer", *["sampler", "launcher"] * ALL_TESTS])
def test_one_process_that_is_stopped_ends_all_machines(graph, tmp_path, monkeypatch, role):
    several = Machines(monkeypatch, tmp_path / "run", [graph, graph], "--epochs", 10000)
    several.await_epochs()
    victim = several.launches[1]
    pid = victim.pids()[role][0]
    os.kill(pid, signal.SIGSTOP)
    assert several.launches[0].wait() == 1
    reason = f"machine 1 ({socket.gethostname()}): the {role} (process {pid}) has been stopped (SIGSTOP) for"
    assert f"{reason} {SECONDS_OF_SILENCE} s" in several.said(0)
    if role == "launcher":  # it can end nothing as long as it is
        os.kill(pid, signal.SIGCONT)
    assert victim.wait() == 1
    assert role == "launcher" or (reason in several.said(1) and f"kill -CONT {pid}" in several.said(1))
    several.demand_nothing_left()


@pytest.fixture
def two_networks() -> Iterator[list[str]]:
    """Namespaces at either end of a cable, which is `cable` there."""
    if os.getuid() != 0 or not shutil.which("ip"):
        pytest.skip("needs root and ip, to make network namespaces")
    names = [f"cohort-{os.getpid()}-{end}" for end in range(2)]

    def ip(*words) -> None:
        subprocess.run(["ip", *words], check=True)

    for name in names:
        ip("netns", "add", name)
    try:
        ip("link", "add", "cable", "netns", names[0], "type", "veth", "peer", "name", "cable", "netns", names[1])
        for end, name in enumerate(names):
            ip("-n", name, "addr", "add", f"10.213.7.{1 + end}/24", "dev", "cable")
            for link in ("cable", "lo"):
                ip("-n", name, "link", "set", link, "up")
        yield names
    finally:
        for name in names:
            ip("netns", "del", name)


def test_a_cable_that_is_cut_ends_all_machines(graph, tmp_path, monkeypatch, two_networks):
    several = Machines(monkeypatch, tmp_path / "run", [graph, graph], "--epochs", 10000, networks=two_networks)
    several.await_epochs()
    assert json.loads((several.out / "run.json").read_text())["machines"]["interface"] == "cable"
    began = time.monotonic()
    subprocess.run(["ip", "-n", two_networks[0], "link", "set", "cable", "down"], check=True)
    assert several.wait() == [1, 1]
    assert time.monotonic() - began < SECONDS_TO_HEAR
    assert f"machine 1 ({socket.gethostname()}): silent for {SECONDS_OF_SILENCE} s" in several.said(0)
    assert "the rendezvous at 10.213.7.1:" in several.said(1)
    several.demand_nothing_left()


def test_another_data_set_is_named(graph, tmp_path, monkeypatch):
    other = shutil.copytree(graph, tmp_path / "other")
    labels = np.load(other / "labels.npy")
    labels[0] = (labels[0] + 1) % 2
    np.save(other / "labels.npy", labels)
    several = Machines(monkeypatch, tmp_path / "run", [graph, other], "--epochs", 1)
    assert several.wait() == [1, 1]
    for rank in (0, 1):
        host = socket.gethostname()
        expected = (
            f"expected the data set of machine 0 ({host}), found one with other labels\n  hint: give every machine"
        )
        assert f"machine 1 ({host}): the data set: {expected}" in several.said(rank)
        assert "Traceback" not in several.said(rank)
    several.demand_nothing_left()


def test_other_options_are_named(graph, tmp_path, monkeypatch):
    several = Machines(
        monkeypatch, tmp_path / "run", [graph] * 3, "--epochs", 1, ranks=(1, 1, 1), own={2: ["--batch-size", "16"]}
    )
    assert several.wait() == [1, 1, 1]
    for rank in range(3):
        assert f"machine 2 ({socket.gethostname()}): --batch-size: expected 32" in several.said(rank)


def test_a_machine_that_refuses_is_named(graph, tmp_path, monkeypatch):
    several = Machines(monkeypatch, tmp_path / "run", [graph, tmp_path / "none"], "--epochs", 1)
    assert several.wait() == [1, 1]
    assert f"machine 1 ({socket.gethostname()})" in several.said(0) and str(tmp_path / "none") in several.said(0)


def test_a_machine_that_refuses_says_so_before_the_others_come(graph, tmp_path, monkeypatch):
    several = Machines(monkeypatch, tmp_path / "run", [tmp_path / "none"], "--epochs", 1, size=2)
    wait_until(lambda: str(tmp_path / "none") in several.said(0), SECONDS_TO_START, "the reason")
    assert several.launches[0].launcher.poll() is None, "the other machine may come yet"
    several.launches[0].launcher.send_signal(signal.SIGINT)
    assert several.wait() == [128 + signal.SIGINT] and "Traceback" not in several.said(0)


def test_the_reason_of_another_machine_is_one_line(graph, tmp_path, monkeypatch):
    graph = shutil.copytree(graph, tmp_path / "graph")
    ran("dataset", "prepare", graph, "--codec", "exponent")
    bad = {1: ["--host-bytes", "1"]}
    several = Machines(monkeypatch, tmp_path / "run", [graph] * 2, "--feature-placement", "partitioned", own=bad)
    assert several.wait() == [1, 1]
    said = several.said(0)
    assert "; hint: raise --host-bytes" in said and ";  " not in said


def test_a_machine_that_waits_says_so(monkeypatch, caplog):
    monkeypatch.setattr(machines, "NOTICE_SECONDS", 0.1)
    port = free_port()
    with caplog.at_level("INFO"), pytest.raises(CohortError, match="machine 1 did not come") as error:
        with machines.meeting_of(Machine(0, 2, "127.0.0.1", port, True, ""), 1.0, start_seconds=2.0) as meeting:
            meeting.exchange({})
    assert f"machine 0 of 2 waits for the others at 127.0.0.1:{port} for up to 2 s" in caplog.text
    assert "start the same command on every machine" in caplog.text and "MASTER_ADDR" in str(error.value)


@pytest.mark.fresh  # in one that is forked, torch has chosen already what it logs
@pytest.mark.parametrize(
    ("host", "keeps_store", "reason"),
    [
        ("127.0.0.1", False, "machine 0 has not answered there for 2 s"),
        ("nowhere.invalid", True, "nowhere.invalid has had no address for 2 s"),
        *[("nowhere.invalid", False, "nowhere.invalid has had no address for 2 s")] * ALL_TESTS,
    ],
)
def test_a_store_that_is_not_there_is_named_in_time(capfd, host, keeps_store, reason):
    port = free_port()
    with pytest.raises(CohortError) as error:
        machine = Machine(int(not keeps_store), 2, host, port, keeps_store, "")
        with machines.meeting_of(machine, 1.0, start_seconds=2.0) as meeting:
            meeting.exchange({})
    assert error.value.found.startswith(f"no meeting at {host}:{port}: {reason}")
    assert "c10d" not in capfd.readouterr().err  # torch's own account, with its stack


def test_places():
    env = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "there", "MASTER_PORT": "29500"}
    assert this_machine(env) == Machine(1, 2, "there", 29500, False, "")
    assert this_machine(env | {"RANK": "0"}).keeps_store
    assert not this_machine(env | {"RANK": "0", "TORCHELASTIC_USE_AGENT_STORE": "True"}).keeps_store
    slurm = {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2", "MASTER_ADDR": "there", "MASTER_PORT": "29500"}
    assert this_machine(slurm) == this_machine(env)
    job = {"PYTHONUNBUFFERED": "1", "PET_NODE_RANK": "1", "PET_NNODES": "2", "PET_NPROC_PER_NODE": "auto"}
    assert this_machine(env | job) == this_machine(env), "PyTorchJob"
    mpi = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "MASTER_ADDR": "there", "MASTER_PORT": "29500"}
    assert this_machine(mpi) == this_machine(env)
    for alone in ({}, {"WORLD_SIZE": "1"}, slurm | {"WORLD_SIZE": "1"}, {"SLURM_STEP_NUM_TASKS": "1"}):
        assert this_machine(alone) is None
    with pytest.raises(CohortError):
        this_machine({"RANK": "1"})
    for bad in ({"RANK": "2"}, {"RANK": "x"}, {"MASTER_PORT": ""}, {"MASTER_ADDR": ""}):
        with pytest.raises(CohortError) as error:
            this_machine(env | bad)
        assert error.value.place == "RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT"
    for name in ("LOCAL_WORLD_SIZE", "SLURM_NTASKS_PER_NODE", "PET_NPROC_PER_NODE"):
        with pytest.raises(CohortError) as error:
            this_machine(env | {name: "4"})
        assert (error.value.place, error.value.found) == ("LOCAL_WORLD_SIZE", "4")
    assert this_machine(env | {"LOCAL_WORLD_SIZE": "1", "PET_NPROC_PER_NODE": "4"}) == this_machine(env)


def test_the_interface_is_that_of_the_address():
    assert machines.interface_of(["127.0.0.1", "127.0.0.1"], 0) == "lo"
    assert machines.interface_of(["127.0.0.1", "10.0.0.2"], 0) == "", "nobody else reaches its loopback"
    assert machines.interface_of(["", ""], 0) == ""
