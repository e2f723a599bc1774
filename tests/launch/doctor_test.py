"""`cohort doctor`: every look has a verdict, and a cure where something is wrong."""

import json
import os
import subprocess
from types import SimpleNamespace

import pytest
from processes import cohort

from cohort.base.errors import CohortError
from cohort.launch import doctor
from cohort.launch.doctor import BROKEN, WELL, WORSE

TWO_GPUS = {
    "cuda_build": True,
    "gpus": [{"ordinal": gpu, "name": "H200", "uuid": f"GPU-{gpu}", "bytes": 150e9} for gpu in range(2)],
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


def _torch(place, value):
    return lambda machine: machine.torch.__setitem__(place, value)


@pytest.mark.parametrize(
    ("change", "name", "verdict", "words"),
    [
        (_device(gpus=[]), "GPUs", WORSE, "none is visible"),
        (_device(gpus=[], cuda_build=False), "GPUs", WORSE, "CPU backend only"),
        (_device(versions=[12080, 13000]), "driver", BROKEN, "CUDA 12.8; this build uses 13.0"),
        (_device(versions=[12040, 12040]), "driver", WORSE, "CUDA 12.4"),
        (_device(cliques=[[0], [1]]), "peers", WORSE, "no GPU can read"),
        (_set("torch", []), "PyTorch", BROKEN, "no torch"),
        (_torch(2, False), "PyTorch", BROKEN, "sees 2 of 2"),
        (_torch(3, 1), "PyTorch", BROKEN, "sees 1 of 2"),
        (_torch(4, False), "PyTorch", BROKEN, "without NCCL"),
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
    assert [found[name].verdict for name in ("cores", "disk", "shared memory")] == [WORSE, WORSE, BROKEN]
    monkeypatch.setenv("COHORT_SHM", str(tmp_path / "none" / "here"))
    assert "cannot be written" in examine(tmp_path)["shared memory"].found


def test_the_disk_is_read(tmp_path):
    assert doctor.read_rate(tmp_path, 3 << 20) > 0
    assert list(tmp_path.iterdir()) == []


def test_the_command(tmp_path):
    hidden = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    result = cohort("doctor", tmp_path, "--json", env=hidden)
    assert result.returncode == 0, result.stderr
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
