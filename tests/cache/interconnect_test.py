"""The links of this machine's GPUs: measured once, remembered, and put in the planner's order."""

import json
import logging
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.programs import ask_sampler, program
from cohort_gnn.cache import interconnect
from cohort_gnn.cache.interconnect import MEASURED_BANDWIDTH, links_file, machine_bandwidth, slowest
from cohort_gnn.cache.options import cache_members
from cohort_gnn.launch.main import main
from cohort_gnn.spec.run import SamplerSpec


class Machine:
    """Stands for cohort-sampler on a machine with two GPUs, and for the user who is told."""

    def __init__(self, logged):
        self.gpus = [
            {"uuid": "GPU-b", "local": 340e9, "peer": 300e9, "host": 50e9},
            {"uuid": "GPU-a", "local": 350e9, "peer": 310e9, "host": 48e9},
        ]
        self.versions = [13000, 13000]
        self.num_probes = 0
        self.failure: CohortError | None = None
        self.logged = logged
        logged.set_level(logging.INFO, "cohort_gnn")

    def ask(self, what: str, *ordinals: str) -> dict:
        if what == "--devices":
            gpus = [{"ordinal": ordinal, "uuid": gpu["uuid"]} for ordinal, gpu in enumerate(self.gpus)]
            return {"gpus": gpus, "versions": self.versions}
        assert what == "--probe"
        self.num_probes += 1
        if self.failure:
            raise self.failure
        return {"gpus": [self.gpus[int(ordinal)] for ordinal in ordinals]}

    def bandwidth(self, gpus: list[int] | None = None) -> tuple[float, float, float]:
        """What a new process finds; `said` is what it logs."""
        self.logged.clear()
        return machine_bandwidth(gpus=gpus)

    @property
    def said(self) -> list[str]:
        return self.logged.messages


@pytest.fixture
def machine(monkeypatch, tmp_path, caplog):
    """The machine, and an empty cache folder of the user."""
    machine = Machine(caplog)
    monkeypatch.setattr(interconnect, "ask_sampler", machine.ask)
    monkeypatch.setattr(interconnect, "devices", lambda: machine.ask("--devices"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    return machine


def saved(tmp_path) -> list[Path]:
    return sorted((tmp_path / "home").rglob("*"))


def test_the_links_are_measured_once_a_machine(machine, tmp_path):
    assert machine.bandwidth() == (340, 300, 48) and machine.num_probes == 1
    (line,) = machine.said
    folder, file = saved(tmp_path)
    assert folder.name == "cohort" and file.name.startswith("links-") and str(file) in line
    assert json.loads(file.read_text()) == {"gpus": machine.gpus}
    assert machine.bandwidth() == (340, 300, 48) and machine.num_probes == 1 and machine.said == []
    machine.gpus.reverse()
    assert machine.bandwidth() == (340, 300, 48) and machine.num_probes == 1, "the order does not matter"


def test_other_gpus_and_another_driver_are_measured_again(machine, tmp_path):
    machine.bandwidth()
    machine.versions = [13010, 13000]
    machine.bandwidth()
    machine.gpus = machine.gpus[:1]
    assert machine.bandwidth() == (340, 300, 50)
    assert machine.num_probes == 3 and len(saved(tmp_path)) == 4


def test_gpus_that_are_not_used_are_left_alone(machine, tmp_path):
    machine.gpus[0]["host"] = 1e9  # busy with the work of others
    assert machine.bandwidth([1]) == (350, 310, 48) and machine.num_probes == 1
    assert machine.bandwidth() == (340, 300, 1) and machine.num_probes == 2
    assert machine.bandwidth([1]) == (350, 310, 48) and machine.num_probes == 2 and len(saved(tmp_path)) == 3


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: "",
        lambda text: text[:-20],
        lambda text: "[]",
        lambda text: '{"gpus": []}',
        lambda text: text.replace("GPU-a", "GPU-c"),
        lambda text: text.replace("340000000000.0", "-1"),
        lambda text: text.replace("340000000000.0", "NaN"),
        lambda text: text.replace("340000000000.0", "true"),
        lambda text: text.replace("340000000000.0", "null"),
        lambda text: text.replace("340000000000.0", '"fast"'),
        lambda text: text.replace('"host"', '"hosts"'),
    ],
)
def test_a_damaged_file_is_said_and_measured_again(machine, tmp_path, damage):
    machine.bandwidth()
    file = saved(tmp_path)[1]
    good = file.read_text()
    file.write_text(damage(good))
    assert file.read_text() != good
    assert machine.bandwidth() == (340, 300, 48) and machine.num_probes == 2
    assert str(file) in machine.said[0] and "damaged" in machine.said[0] and len(machine.said) == 2
    assert file.read_text() == good and len(saved(tmp_path)) == 2


def test_a_folder_that_cannot_be_written_is_a_warning(machine, tmp_path):
    (tmp_path / "home").write_text("no folder")
    assert machine.bandwidth() == (340, 300, 48)
    assert len(machine.said) == 2 and machine.said[1].startswith("the result is not kept for later runs")
    assert str(tmp_path / "home") in machine.said[1]
    machine.bandwidth()
    assert machine.num_probes == 2


def test_a_measurement_that_fails_is_said_and_not_remembered(machine, tmp_path):
    machine.failure = CohortError("host memory", "1.88 GB", "1.00 MB available")
    assert machine.bandwidth() == MEASURED_BANDWIDTH
    assert "1.00 MB available" in machine.said[1] and "1500,360,51" in machine.said[1]
    assert saved(tmp_path) == []
    machine.failure = None
    assert machine.bandwidth() == (340, 300, 48)


def test_without_a_gpu_nothing_is_measured(machine, tmp_path):
    machine.gpus = []
    assert machine.bandwidth() == MEASURED_BANDWIDTH
    assert machine.num_probes == 0 and machine.said == [] and saved(tmp_path) == []


@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        ([(350, 300, 50)], (350, 300, 50)),
        ([(350, 300, 50), (340, 310, 40)], (340, 300, 40)),
        ([(350, 360, 50)], (350, 350, 50)),  # a peer seems faster than local memory
        ([(350, 20, 50)], (350, 50, 50)),  # or slower than host memory
        ([(350, 20, 400)], (350, 350, 350)),
        ([(350, None, 50)], (350, 350, 50)),  # what a peer would give nobody has measured
        ([(900, None, 50)], (900, 360, 50)),
        ([(350, None, 50), (350, 200, 50)], (350, 200, 50)),
    ],
)
def test_the_slowest_gpu_in_the_order_of_the_planner(rates, expected):
    gpus = [{"local": 1e9 * local, "peer": peer and 1e9 * peer, "host": 1e9 * host} for local, peer, host in rates]
    assert slowest(gpus) == expected


def test_where_links_are_remembered(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert links_file(["a"], [1, 2]).parent == tmp_path / "cohort"
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    for unusable in ("", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", unusable)
        assert links_file(["a"], [1, 2]).parent == tmp_path / "me/.cache/cohort"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert links_file(["a"], [1, 2]).parent == tmp_path / "me/.cache/cohort"
    names = {links_file(uuids, versions).name for uuids in (["a"], ["b"], ["a", "b"]) for versions in ([1, 2], [1, 3])}
    assert len(names) == 6


def test_plan_measures_unless_it_is_told(machine, cora, capsys, monkeypatch):
    monkeypatch.setattr("cohort_gnn.launch.plan.planning.devices", lambda: machine.ask("--devices"))
    common = ["plan", str(cora), "--fanout", "4,3", "--batch-size", "100", "--num-gpus", "2", "--gpu-memory", "1GB"]
    common += ["--cache-ratio", "0.1", "--cliques", "none", "--no-reuse", "--json"]
    assert main([*common, "--bandwidth", "340,300,48"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert machine.num_probes == 0
    assert main(common) == 0
    found = capsys.readouterr()
    assert machine.num_probes == 1 and found.err.count("cohort: measuring the bandwidth") == 1
    assert json.loads(found.out)["seconds"] == pytest.approx(told["seconds"], rel=1e-12)
    assert main([*common, "--bandwidth", "1500,360,51"]) == 0
    assert json.loads(capsys.readouterr().out)["seconds"] != pytest.approx(told["seconds"], rel=1e-3)


def test_a_run_measures_on_a_gpu_alone(machine, cora):
    spec = SamplerSpec(cache_ratio=[0.1], cache_policy="degree")

    def rates(spec: SamplerSpec, on_gpu: bool) -> list[float]:
        return cache_members(spec, cora, 1, on_gpu)["bytes_per_second"]

    assert rates(spec, on_gpu=False) == [1e9 * rate for rate in MEASURED_BANDWIDTH] and machine.num_probes == 0
    assert rates(spec, on_gpu=True) == pytest.approx([340e9, 300e9, 48e9]) and machine.num_probes == 1
    members = cache_members(spec, cora, 1, True, gpus=[1])
    assert members["bytes_per_second"] == pytest.approx([350e9, 310e9, 48e9])
    assert rates(replace(spec, bandwidth=(3.0, 2.0, 1.0)), on_gpu=True) == [3e9, 2e9, 1e9]
    assert cache_members(SamplerSpec(), cora, 1, True) == {}


def test_a_program_that_fails_says_why():
    with pytest.raises(CohortError, match="nowhere.json: expected a readable file"):
        ask_sampler("--presample", "nowhere.json")
    result = subprocess.run([program("cohort-sampler")], capture_output=True, text=True)
    assert result.returncode == 2 and "--probe" in result.stderr


def test_the_program_finds_no_gpu():
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    answer = subprocess.run([program("cohort-sampler"), "--probe"], env=environment, capture_output=True, check=True)
    assert json.loads(answer.stdout) == {"gpus": []}
    with pytest.raises(CohortError, match="--probe: expected ordinals of GPUs, found 0x"):
        ask_sampler("--probe", "0", "0x")


@pytest.mark.gpu
@pytest.mark.alone  # other tests use the links, too
def test_the_links_of_this_machine(monkeypatch, tmp_path, caplog):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    caplog.set_level(logging.INFO, "cohort_gnn")
    local, peer, host = machine_bandwidth()
    assert local >= peer >= host > 0 and len(caplog.messages) == 1, caplog.messages
    (file,) = (tmp_path / "cohort").iterdir()
    uuids = [gpu["uuid"] for gpu in json.loads(file.read_text())["gpus"]]
    assert uuids == [gpu["uuid"] for gpu in ask_sampler("--devices")["gpus"]]
    assert machine_bandwidth() == (local, peer, host) and len(caplog.messages) == 1
