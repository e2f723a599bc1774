"""--feature-placement: machines keep parts of the rows; batches and losses are the same, and every end is clear."""

import functools
import json
import os
import shutil
import signal
import socket
import time
from itertools import pairwise
from pathlib import Path

import pytest
from processes import ALL_TESTS, cohort, ran, refused, two_ranks, wait_until
from resumable import OPTIONS, Launch, learned, record_batches, recorded, small_graph
from several_machines import SECONDS_OF_SILENCE, SECONDS_TO_HEAR, Machines

from cohort_gnn.launch.run.row_owners import row_listener, row_owners

PARTITIONED = ["--feature-placement", "partitioned"]


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    """The last bits of a product depend on how many threads share it, and one machine divides its cores."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def prepared(folder: Path, codec: str) -> Path:
    ran("dataset", "prepare", folder, "--codec", codec)
    return folder


@pytest.fixture(scope="module")
def graph(tmp_path_factory) -> Path:
    return prepared(small_graph(tmp_path_factory.mktemp("partitioned") / "graph"), "exponent")


@pytest.fixture(scope="module")
def alone(graph, tmp_path_factory):
    """alone(ranks): what so many ranks have learned on one machine, and the batches of each, computed once."""

    @functools.cache
    def learned_by(ranks: int) -> tuple:
        folder = tmp_path_factory.mktemp("alone")
        options = ["--epochs", 2, *record_batches(folder), "--ranks", ranks, "--out", folder / "run"]
        run = Launch(folder / "run", graph, *OPTIONS, *options, folder=folder)
        assert run.wait() == 0, run.errors.read_text()
        return learned(folder / "run"), [recorded(folder, rank) for rank in range(ranks)]

    return learned_by


def reads(out: Path) -> dict[str, int]:
    """Rows that machine 0 and the others have read in the first epoch, by tier."""
    tiers = json.loads((out / "summary.json").read_text())["epochs"][0]["row_tiers"]
    return {tier: use["rows"] for tier, use in tiers.items()}


@pytest.mark.parametrize("ranks", [(2, 1), *[(1, 1), (2, 2), (1, 1, 1, 1)] * ALL_TESTS], ids=str)
def test_the_same_batches_and_losses_as_on_one_machine(graph, alone, tmp_path, monkeypatch, ranks):
    expected, batches = alone(sum(ranks))
    monkeypatch.chdir(tmp_path)
    options = ["--epochs", 2, *record_batches(tmp_path), *PARTITIONED]
    several = Machines(monkeypatch, tmp_path / "run", [graph] * len(ranks), *options, ranks=ranks)
    assert several.wait() == [0] * len(ranks), several.said(0) + several.said(1)
    assert learned(several.out) == expected
    assert [recorded(tmp_path, rank) for rank in range(sum(ranks))] == batches
    found = reads(several.out)
    assert found["disk"] == 0 and 0.25 < found["remote"] / (found["remote"] + found["host"]) < 0.85
    summary = json.loads((several.out / "summary.json").read_text())
    (network,) = [part for part in summary["start"]["parts"] if part["part"] == "measuring the network"]
    for floor, epoch in zip(summary["floor"]["epochs"], summary["epochs"], strict=True):
        received = sum(rank["row_tiers"]["remote"]["bytes"] for rank in epoch["ranks"][: ranks[0]])  # by machine 0
        assert 0 < received * network["seconds"] / network["bytes"] <= 1.001 * floor["network"]
    start = summary["start"]["parts"]
    assert [part["bytes"] > 0 for part in start if part["part"] == "leaving rows to other machines"] == [True]
    report = ran("report", several.out)
    assert "remote" in report.stdout, report.stderr
    several.demand_nothing_left()


@pytest.fixture(scope="module")
def large(tmp_path_factory) -> Path:
    """20000 nodes with 64 floats each: 4.5 MB encoded."""
    folder = tmp_path_factory.mktemp("partitioned") / "large"
    sizes = ["--nodes", "20000", "--edges", "200000", "--dim", "64", "--classes", "7", "--seed", "1"]
    ran("dataset", "generate", folder, "--kind", "powerlaw", "--split-ratio", "0.05,0.01,0.01", *sizes)
    return prepared(folder, "exponent")


def test_host_bytes_hold_own_rows_and_then_the_hottest_of_others(large, tmp_path, monkeypatch):
    """What memory does not hold stays on the disk or with the other machine, and all learn the same."""
    found, results = [], []
    for host_bytes in ["1.5MB", "2MB", "3.2MB", *["3.6MB"] * ALL_TESTS, "1GB"]:
        options = ["--epochs", 1, "--host-bytes", host_bytes, *PARTITIONED]
        several = Machines(monkeypatch, tmp_path / host_bytes, [large] * 2, *options)
        assert several.wait() == [0, 0], several.said(0)
        results.append(learned(several.out))
        found.append(reads(several.out))
    assert all(result == results[0] for result in results)
    disk, remote = ([each[tier] for each in found] for tier in ("disk", "remote"))
    assert disk[0] > disk[1] > disk[2] == 0 == disk[-1]
    assert remote[0] == remote[1] > 0 == remote[-1] and all(more > less for more, less in pairwise(remote[2:]))


@pytest.fixture(scope="module")
def wide(tmp_path_factory) -> Path:
    """100000 nodes with 45 MB of rows, encoded."""
    folder = tmp_path_factory.mktemp("partitioned") / "wide"
    sizes = ["--nodes", "100K", "--edges", "1M", "--dim", "128", "--classes", "7", "--split-ratio", "0.02,0.01,0.01"]
    ran("dataset", "generate", folder, "--kind", "powerlaw", *sizes)
    return prepared(folder, "exponent")


@pytest.mark.parametrize("host_bytes", [["--host-bytes", "26MB"], *[[]] * ALL_TESTS], ids=str)
def test_the_plan_knows_what_machines_read_from_each_other(wide, tmp_path, monkeypatch, host_bytes):
    """On the CPU, where nothing stays from batch to batch; the plan leaves out about 1 MB of buffers."""
    several = Machines(monkeypatch, tmp_path / "run", [wide] * 2, "--epochs", 1, *host_bytes, *PARTITIONED)
    assert several.wait() == [0, 0], several.said(0)
    options = ["--fanout", "5,3", "--batch-size", 32, "--cache-policy", "none", "--no-reuse", "--num-gpus", 1]
    planned = ran("plan", wide, *options, "--machines", 2, "--json", *PARTITIONED, *host_bytes)
    tiers = json.loads((several.out / "summary.json").read_text())["epochs"][0]["row_tiers"]
    expected = json.loads(planned.stdout)["epochs"][1]["remote_bytes"]  # of one machine
    assert tiers["remote"]["bytes"] / 2 == pytest.approx(expected, rel=0.15)
    assert (tiers["remote"]["rows"] < tiers["host"]["rows"] / 2) == bool(host_bytes)


def test_a_machine_that_is_killed_under_reads_of_its_disk(large, tmp_path, monkeypatch):
    options = ["--epochs", 10000, "--host-bytes", "1.5MB", *PARTITIONED]
    several = Machines(monkeypatch, tmp_path / "run", [large, large], *options)
    victim_of(several, signal.SIGKILL)
    began = time.monotonic()
    assert several.wait() == [1, 1]
    assert time.monotonic() - began < SECONDS_TO_HEAR
    assert f"machine 1 ({socket.gethostname()})" in several.said(0), several.said(0)
    several.demand_nothing_left()


@pytest.mark.parametrize(("features", "tier"), [("auto", "remote"), ("replicated", "disk")])
def test_one_machine_has_too_little_memory_for_all_rows(large, tmp_path, monkeypatch, features, tier):
    own = {0: ["--host-bytes", "1GB"], 1: ["--host-bytes", "3.5MB"]}
    options = ["--epochs", 1, "--feature-placement", features]
    several = Machines(monkeypatch, tmp_path / "run", [large, large], *options, own=own)
    assert several.wait() == [0, 0], several.said(0) + several.said(1)
    assert reads(several.out)[tier] > 0


def test_rows_that_memory_holds_are_replicated(graph, tmp_path, monkeypatch):
    several = Machines(monkeypatch, tmp_path / "run", [graph, graph], "--epochs", 1)
    assert several.wait() == [0, 0], several.said(0) + several.said(1)
    assert "row_owners" not in json.loads((several.out / "run.json").read_text())["sampler"]
    assert reads(several.out)["remote"] == 0


def victim_of(several: Machines, number: signal.Signals) -> int:
    several.await_epochs(2)
    (sampler,) = several.launches[1].pids()["sampler"]
    os.kill(sampler, number)
    return sampler


def test_a_sampler_that_is_killed_ends_all_machines(graph, tmp_path, monkeypatch):
    several = Machines(monkeypatch, tmp_path / "run", [graph] * 3, "--epochs", 10000, *PARTITIONED, ranks=(1, 1, 1))
    victim_of(several, signal.SIGKILL)
    began = time.monotonic()
    assert several.wait() == [1, 1, 1]
    assert time.monotonic() - began < SECONDS_TO_HEAR
    assert "was ended by SIGKILL" in several.said(1)
    for rank in (0, 2):
        said = several.said(rank)
        assert f"machine 1 ({socket.gethostname()})" in said and "SIGKILL" in said, said
    several.demand_nothing_left()


def test_a_sampler_that_stops_ends_all_machines(graph, tmp_path, monkeypatch):
    several = Machines(monkeypatch, tmp_path / "run", [graph, graph], "--epochs", 10000, *PARTITIONED)
    victim = victim_of(several, signal.SIGSTOP)
    began = time.monotonic()
    try:
        assert several.wait() == [1, 1]
    finally:
        wait_until(lambda: not Path(f"/proc/{victim}").exists(), 5, "the end of the stopped sampler")
    assert time.monotonic() - began < SECONDS_TO_HEAR
    said = several.said(0)
    assert f"machine 1 ({socket.gethostname()})" in said, said
    no_rows = (
        f"an answer within {SECONDS_OF_SILENCE} s, found none"  # heard by the sampler, unless the launcher is first
    )
    assert no_rows in said or f"(process {victim}) has been stopped (SIGSTOP)" in said, said
    several.demand_nothing_left()


def test_a_sampler_that_is_told_to_end_waits_for_no_other_machine(graph, tmp_path, monkeypatch):
    options = ["--epochs", 10000, *PARTITIONED]
    own = {rank: ["--machine-seconds", 60] for rank in range(2)}
    several = Machines(monkeypatch, tmp_path / "run", [graph, graph], *options, own=own)
    several.await_epochs(2)
    first, second = (launch.pids() for launch in several.launches)
    stopped = [*first["launcher"], *(pid for pids in second.values() for pid in pids)]
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    try:
        os.kill(*first["sampler"], signal.SIGTERM)
        wait_until(lambda: not several.launches[0].pids()["sampler"], 20, "the end of the sampler")
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
    assert several.wait() == [1, 1]
    several.demand_nothing_left()


def test_a_stopped_run_goes_on_where_it_was(graph, tmp_path, monkeypatch):
    whole = Machines(monkeypatch, tmp_path / "whole", [graph, graph], "--epochs", 6, *PARTITIONED)
    assert whole.wait() == [0, 0], whole.said(0)
    several = Machines(
        monkeypatch, tmp_path / "run", [graph, graph], "--epochs", 6, "--checkpoint-every", 1, *PARTITIONED
    )
    several.await_epochs(2)
    several.launches[1].launcher.send_signal(signal.SIGTERM)
    assert several.wait() == [1, 128 + signal.SIGTERM]
    resume = {rank: ["--resume", several.out] for rank in range(2)}
    again = Machines(monkeypatch, tmp_path / "run", [graph, graph], own=resume)
    assert again.wait() == [0, 0], again.said(0) + again.said(1)
    assert learned(again.out) == learned(whole.out)
    assert "row_owners" in json.loads((again.out / "run.json").read_text())["sampler"]


TYPED = ["--model", "rsage", "--fanout", "4,3", "--epochs", 2]


def test_several_node_types(tmp_path, monkeypatch):
    sizes = ["--nodes", "4K", "--edges", "20K", "--dim", 16, "--classes", 3, "--all-features", "--seed", 5]
    ran("dataset", "generate", tmp_path / "typed", "--kind", "typed", *sizes)
    graph = prepared(tmp_path / "typed", "exponent")
    one = Launch(tmp_path / "one", graph, *OPTIONS, *TYPED, "--ranks", 2, "--out", tmp_path / "one")
    assert one.wait() == 0, one.errors.read_text()
    several = Machines(monkeypatch, tmp_path / "run", [graph, graph], *TYPED, *PARTITIONED)
    assert several.wait() == [0, 0], several.said(0) + several.said(1)
    assert learned(several.out) == learned(tmp_path / "one")
    assert reads(several.out)["remote"] > 0


@pytest.fixture
def of_a_gpu() -> dict:
    """How each of two machines has a GPU for itself."""
    two_ranks("cuda")  # skips the test where there are not two GPUs
    return {"ranks": (None, None), "own": {rank: ["--device", "cuda", "--gpus", rank] for rank in range(2)}}


@pytest.mark.gpu
def test_a_gpu_gets_rows_of_other_machines(graph, alone, tmp_path, monkeypatch, of_a_gpu):
    batches = alone(2)[1]  # before the environment says that there are several machines
    options = ["--epochs", 2, *record_batches(tmp_path), *PARTITIONED]
    monkeypatch.chdir(tmp_path)
    several = Machines(monkeypatch, tmp_path / "run", [graph, graph], *options, **of_a_gpu)
    assert several.wait() == [0, 0], several.said(0) + several.said(1)
    assert [recorded(tmp_path, rank) for rank in range(2)] == batches
    assert reads(several.out)["remote"] > 0


@pytest.mark.gpu
def test_a_gpu_gets_rows_of_other_machines_and_of_the_disk(large, tmp_path, monkeypatch, of_a_gpu):
    batches, tiers = [], []
    for name, host_bytes in (("memory", "1GB"), ("disk", "2MB")):
        folder = tmp_path / name
        folder.mkdir()
        options = ["--epochs", 1, *record_batches(folder), *PARTITIONED, "--host-bytes", host_bytes]
        monkeypatch.chdir(folder)
        several = Machines(monkeypatch, folder / "run", [large, large], *options, **of_a_gpu)
        assert several.wait() == [0, 0], several.said(0) + several.said(1)
        batches.append([recorded(folder, rank) for rank in range(2)])
        tiers.append(reads(several.out))
    assert batches[0] == batches[1]
    assert tiers[0]["disk"] == 0 < tiers[1]["disk"] and tiers[1]["remote"] > 0


def test_options_that_do_not_fit_are_refused(graph, tmp_path, monkeypatch):
    result = cohort("train", graph, *OPTIONS, *PARTITIONED, "--out", tmp_path / "one")
    refused(result, 1, "--feature-placement partitioned: expected several machines", "--host-bytes")
    little = Machines(
        monkeypatch, tmp_path / "few", [graph, graph], "--epochs", 1, "--host-bytes", "50KB", *PARTITIONED
    )
    assert little.wait() == [1, 1]
    assert "--host-bytes: expected at least" in little.said(0) + little.said(1)


def test_rows_that_are_not_encoded_are_refused(tmp_path, monkeypatch):
    graph = small_graph(tmp_path / "raw")
    several = Machines(monkeypatch, tmp_path / "run", [graph, graph], "--epochs", 1, *PARTITIONED)
    assert several.wait() == [1, 1]
    assert f"cohort dataset prepare {graph}" in several.said(0)


def test_rows_that_are_encoded_in_another_way_are_refused(graph, tmp_path, monkeypatch):
    other = prepared(shutil.copytree(graph, tmp_path / "other"), "sparse")
    several = Machines(monkeypatch, tmp_path / "run", [graph, other], "--epochs", 1, *PARTITIONED)
    assert several.wait() == [1, 1]
    said = several.said(0) + several.said(1)
    assert "the same encoded rows as on this machine, found rows with another checksum" in said, said
    assert 'folder "prepared"' in said, said
    several.demand_nothing_left()


def test_where_samplers_are_asked_for_rows():
    facts = [
        {"host": "a", "address": "127.0.0.1", "row_port": 1},
        {"host": "b", "address": "10.0.0.2", "row_port": 2},
        {"host": "c", "address": "", "row_port": 3},
    ]
    with row_listener() as listener:
        owners = row_owners(facts, 1, listener, "k" * 32, 5.0, "store")
        assert owners == {
            "names": ["machine 0 (a)", "machine 1 (b)", "machine 2 (c)"],
            "hosts": ["store", "10.0.0.2", "c"],
            "ports": [1, 2, 3],
            "own": 1,
            "listener": listener.fileno(),
            "key": "k" * 32,
            "seconds": 5.0,
        }
        with socket.create_connection(("127.0.0.1", listener.getsockname()[1])):
            pass
