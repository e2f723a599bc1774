"""`cohort doctor`: every look has a verdict, and a cure where something is wrong."""

import json
import os
import re
import resource
import socket
import subprocess
import sys
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from processes import cohort, free_port, ran

from cohort_gnn.base.errors import CohortError
from cohort_gnn.launch import doctor
from cohort_gnn.launch.doctor import BROKEN, WELL, WORSE
from cohort_gnn.launch.main import main
from cohort_gnn.launch.run.machines import Machine, Meeting

TWO_GPUS = {
    "cuda_build": True,
    "gpus": [
        {"ordinal": gpu, "name": "H200", "uuid": f"GPU-{gpu}", "bytes": 150e9, "reads_registered": True}
        for gpu in range(2)
    ],
    "cliques": [[0, 1]],
    "versions": [13000, 13000],
}


@pytest.fixture
def machine(monkeypatch):
    """A machine that is told what it has; change it, then examine()."""
    said = SimpleNamespace(
        devices=json.loads(json.dumps(TWO_GPUS)),
        torch=["2.11", "13.0", True, 2, True],
        lanes=(63.0, "PCIe 5 x16"),
        host=51.0,
        mps="",
        stopped=0,
    )

    def run(command, **options):
        text = json.dumps(said.torch) if said.torch else ""
        return subprocess.CompletedProcess(command, 0 if text else 1, text, "ModuleNotFoundError: no torch")

    def devices():
        if isinstance(said.devices, CohortError):
            raise said.devices
        return said.devices

    class Mps:
        def __init__(self):
            self.problem, self.active, self.process = said.mps, not said.mps, None

        def stop(self):
            said.stopped += 1

    monkeypatch.setattr(doctor, "devices", devices)
    monkeypatch.setattr(doctor, "subprocess", SimpleNamespace(run=run))
    monkeypatch.setattr(doctor, "Mps", Mps)
    monkeypatch.setattr(doctor, "_lanes", lambda: said.lanes)
    monkeypatch.setattr(doctor, "machine_bandwidth", lambda machine: (1500.0, 360.0, said.host))
    monkeypatch.setattr(doctor, "read_rate", lambda folder, num_bytes: 2e9)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    return said


def examine(folder) -> dict[str, doctor.Finding]:
    findings = list(doctor.examine(folder))
    names = [finding.name for finding in findings]
    assert len(names) == len(set(names))
    return dict(zip(names, findings, strict=True))


def test_a_machine_that_is_well(machine, tmp_path):
    found = examine(tmp_path)
    assert {finding.verdict for finding in found.values()} == {WELL}
    assert {"GPU 0", "GPU 1", "driver", "PyTorch", "MPS", "peers", "PCIe", "host memory", "disk"} <= set(found)
    assert "{0, 1}" in found["peers"].found and "51.0 GB/s" in found["PCIe"].found
    assert machine.stopped == 1, "the daemon that was tried is still there"


def _set(name, value):
    return lambda machine: setattr(machine, name, value)


def _device(**members):
    return lambda machine: machine.devices.update(members)


def _gpu(ordinal, **members):
    return lambda machine: machine.devices["gpus"][ordinal].update(members)


def _torch(place, value):
    return lambda machine: machine.torch.__setitem__(place, value)


@pytest.mark.parametrize(
    ("change", "name", "verdict", "words"),
    [
        (_device(gpus=[]), "GPUs", WORSE, "none is visible"),
        (_device(gpus=[], cuda_build=False), "GPUs", WORSE, "CPU backend only"),
        (_gpu(1, reads_registered=False), "GPU 1", BROKEN, "cannot read registered host memory"),
        (_device(versions=[12080, 13000]), "driver", BROKEN, "CUDA 12.8; this build uses 13.0"),
        (_device(versions=[12040, 12040]), "driver", WORSE, "CUDA 12.4"),
        (_device(cliques=[[0], [1]]), "peers", WORSE, "no GPU can read"),
        (_set("torch", []), "PyTorch", BROKEN, "no torch"),
        (_torch(2, False), "PyTorch", BROKEN, "sees 2 of 2"),
        (_torch(3, 1), "PyTorch", BROKEN, "sees 1 of 2"),
        (_torch(4, False), "PyTorch", BROKEN, "without NCCL"),
        (_torch(0, "2.9.1+cu128"), "PyTorch", BROKEN, "the minimum is 2.10"),
        (_set("mps", "not installed"), "MPS", WORSE, "not installed"),
        (_set("host", 12.0), "PCIe", WORSE, "12.0 GB/s"),
    ],
)
def test_what_is_wrong_has_a_cure(machine, tmp_path, change, name, verdict, words):
    change(machine)
    found = examine(tmp_path)[name]
    assert found.verdict == verdict and words in found.found and found.cure, found


def test_what_nobody_says_is_no_fault(machine, tmp_path):
    machine.lanes = None
    assert examine(tmp_path)["PCIe"].verdict == WELL
    machine.devices = CohortError("driver", "one", "none", "install it")
    findings = list(doctor.examine(tmp_path))
    assert (findings[0].verdict, findings[0].cure) == (BROKEN, "install it") and "found none" in findings[0].found


def test_the_surroundings(machine, tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(doctor.os, "sched_getaffinity", lambda pid: range(8))
    monkeypatch.setattr(doctor, "read_rate", lambda folder, num_bytes: 90e6)
    monkeypatch.setattr(doctor, "SHM_BYTES", 1 << 60)
    found = examine(tmp_path)
    assert [found[name].verdict for name in ("cores", "disk", "shared memory")] == [WELL, WORSE, BROKEN]
    assert f"Python {sys.version.split()[0]}, torch_geometric " in found["versions"].found
    assert "control groups" not in found["host memory"].found
    monkeypatch.setattr(doctor.budget, "available_host_bytes", lambda: 1 << 20)
    assert "1.05 MB available by the control groups" in examine(tmp_path)["host memory"].found
    assert "8; OMP_NUM_THREADS is 1: " in found["cores"].found and not found["cores"].cure
    monkeypatch.setenv("COHORT_SHM", str(tmp_path / "none" / "here"))
    assert "cannot be written" in examine(tmp_path)["shared memory"].found


def test_limits_of_the_shell(machine, tmp_path, monkeypatch):
    monkeypatch.setattr(doctor.resource, "getrlimit", lambda what: (resource.RLIM_INFINITY,) * 2)
    assert not {"address space", "open files"} & examine(tmp_path).keys()
    monkeypatch.setattr(doctor.resource, "getrlimit", lambda what: (200, 200))
    machine.torch = []
    found = examine(tmp_path)
    assert [found[name].verdict for name in ("address space", "open files")] == [WORSE, WORSE]
    assert "at most 200 B by the limit" in found["address space"].found
    assert "ulimit -n 256" in found["open files"].cure and "ulimit -v unlimited" in found["PyTorch"].cure


def test_a_machine_without_room_for_temporary_files(machine, tmp_path, monkeypatch, capsys):
    assert "temporary files" not in examine(tmp_path)
    nowhere = FileNotFoundError(2, "No usable temporary directory found in ['/tmp']")
    monkeypatch.setattr(doctor.tempfile, "gettempdir", Mock(side_effect=nowhere))
    found = examine(tmp_path)["temporary files"]
    assert found.verdict == BROKEN and "No usable" in found.found and "TMPDIR" in found.cure
    monkeypatch.setattr("cohort_gnn.launch.run.digest.open_to_train", Mock(side_effect=nowhere))
    assert main(["digest", str(tmp_path)]) == 1
    said = (
        "cohort: TMPDIR: expected a folder that can be written, found No usable temporary directory found in ['/tmp']"
    )
    assert capsys.readouterr().err == f"{said}\n  hint: set it to one\n"


def test_the_disk_is_read(tmp_path):
    assert doctor.read_rate(tmp_path, 3 << 20) > 0
    assert list(tmp_path.iterdir()) == []


def test_the_command(tmp_path):
    hidden = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    result = ran("doctor", tmp_path, "--json", env=hidden)
    assert {"GPUs", "PyTorch", "disk"} <= {finding["name"] for finding in json.loads(result.stdout)}
    table = cohort("doctor", tmp_path / "none", env=hidden)
    assert table.returncode == 1 and "1 broken" in table.stdout


@pytest.mark.gpu
def test_on_a_gpu(tmp_path):
    result = cohort("doctor", tmp_path, "--json")
    findings = {finding["name"]: finding for finding in json.loads(result.stdout)}
    assert result.returncode == 0, findings
    assert {"GPU 0", "driver", "MPS", "PCIe"} <= set(findings)


def test_names_in_brackets_are_no_markup(capsys):
    doctor._print([doctor.Finding("disk", BROKEN, "x[/b]: no such folder", "name [another]")])
    said = capsys.readouterr().out
    assert "x[/b]: no such folder" in said and "name [another]" in said


def machine_of(rank: int, port: int) -> dict[str, str]:
    """The environment of one of two machines."""
    place = {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return os.environ | place | {"CUDA_VISIBLE_DEVICES": ""}


def start(rank: int, port: int, seconds: int) -> subprocess.Popen:
    command = [sys.executable, "-m", "cohort_gnn", "doctor", "--machines", "--machine-seconds", str(seconds), "--json"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, env=machine_of(rank, port), text=True)


def test_two_machines_measure_what_joins_them():
    port = free_port()
    both = [start(rank, port, 60) for rank in range(2)]
    said = [json.loads(each.communicate(timeout=120)[0]) for each in both]
    assert [each.returncode for each in both] == [0, 0] and said[0] == said[1]
    found = {finding["name"]: finding for finding in said[0]}
    assert list(found) == ["machines", "gloo, 0 and 1", "gloo, all"]
    host = socket.gethostname()
    assert found["machines"]["found"] == f"2: {host} (127.0.0.1), {host} (127.0.0.1); here over interface lo"
    pair = re.fullmatch(
        rf"{host} to {host} ([\d.]+) [KMG]B/s, back ([\d.]+) [KMG]B/s; (\d+) us for a small message",
        found["gloo, 0 and 1"]["found"],
    )
    assert pair and all(float(number) > 0 for number in pair.groups())
    advice = r".* us; for cohort plan --machines 2 --network [\d.]+ --network-us \d+"
    assert re.fullmatch(advice, found["gloo, all"]["found"])


def test_a_machine_that_does_not_come_is_named():
    port = free_port()
    alone = start(0, port, 2)
    found = json.loads(alone.communicate(timeout=60)[0])
    assert alone.returncode == 1 and [finding["verdict"] for finding in found] == [BROKEN]
    assert f"machine 1 did not come to 127.0.0.1:{port} within 2 s" in found[0]["found"]


def test_a_machine_that_goes_is_named():
    port = free_port()
    first = start(0, port, 4)
    other = Meeting(Machine(1, 2, "127.0.0.1", port, False, ""), 60, 60)
    other.exchange({"address": "127.0.0.1", "num_gpus": 0})
    other.close()
    found = json.loads(first.communicate(timeout=60)[0])
    assert first.returncode == 1 and found[0]["verdict"] == BROKEN
    assert f"machine 1 ({socket.gethostname()}): silent for 4 s" in found[0]["found"]


def test_one_machine_is_no_network(monkeypatch, capsys):
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    assert main(["doctor", "--machines"]) == 1
    said = capsys.readouterr().err
    assert "--machines: expected several machines, found one" in said and "torchrun --nnodes N" in said


def test_a_slow_network_is_told(monkeypatch):
    rates = {"pairs": [{"rank": 1, "latency_seconds": 3e-5, "to": 12e9, "from": 0.9e9}]}
    rates |= {"sum_seconds": 8e-5, "large_sum_seconds": 1e-3}
    fast = rates | {"pairs": [rates["pairs"][0] | {"from": 11e9}]}
    found = {"hosts": ["a", "b"], "addresses": ["10.0.0.1", ""], "interface": "", "gloo": rates, "nccl": fast}
    monkeypatch.setattr(doctor, "rates_between", lambda machine, seconds: found)
    findings = {finding.name: finding for finding in doctor.examine_network(None, 1)}
    assert "a (10.0.0.1), b (no IPv4); here over the interface that gloo chooses" in findings["machines"].found
    slow, well = findings["gloo, 0 and 1"], findings["nccl, 0 and 1"]
    assert slow.found == "a to b 12.00 GB/s, back 900.00 MB/s; 30 us for a small message"
    assert (slow.verdict, well.verdict) == (WORSE, WELL) and "GLOO_SOCKET_IFNAME" in slow.cure
    assert "--network 0.9 --network-us 80" in findings["gloo, all"].found
