"""Rows beyond --host-bytes stay on the disk: batches and losses are the same, memory is bounded, failures are clear."""

import itertools
import json
import os
import re
import shutil
from pathlib import Path

import pytest
from processes import cohort, ran, refused

import cohort_gnn as package

pytestmark = pytest.mark.usefixtures("shm")

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
MODES = [
    ["--host-bytes", "1MB"],
    ["--host-bytes", "3MB"],
    ["--host-bytes", "400KB", "--slots", "2"],
    ["--host-bytes", "1MB", "--ahead", "1"],
    ["--host-bytes", "1MB", "--slots", "10"],
    ["--host-bytes", "1MB", "--cache-ratio", "0.1"],
    ["--host-bytes", "1MB", "--cache-ratio", "0.1", "--cache-policy", "degree"],
    ["--host-bytes", "1MB", "--cache-policy", "none"],
    ["--host-bytes", "1GB"],
]
ON_GPUS = [
    *MODES,
    ["--host-bytes", "1MB", "--no-reuse"],
    ["--host-bytes", "1MB", "--cache-ratio", "0.1", "--topology", "host"],
    ["--host-bytes", "1MB", "--cache-ratio", "3", "--topology", "host"],
    ["--host-bytes", "1MB", "--order", "asis"],
]


def generated(folder: Path, *prepare) -> Path:
    """20000 nodes with 64 floats each: 5.1 MB raw, 4 MB and more encoded."""
    sizes = ["--nodes", "20000", "--edges", "200000", "--dim", "64", "--classes", "7", "--seed", "1"]
    ran("dataset", "generate", folder, "--kind", "powerlaw", "--split-ratio", "0.2,0.02,0.02", *sizes)
    ran("dataset", "prepare", folder, *prepare)
    return folder


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    return generated(tmp_path_factory.mktemp("disk") / "graph", "--codec", "exponent", "--drop-raw")


@pytest.fixture(scope="module")
def planes(tmp_path_factory):
    return generated(tmp_path_factory.mktemp("disk") / "planes", "--codec", "planes")


def digest(graph, *arguments):
    """The lines of `cohort digest`, one a batch."""
    result = ran("digest", graph, "--fanout", "5,4", "--batch-size", 300, "--batches", 8, "--seed", 3, *arguments)
    return result.stdout.splitlines()


@pytest.fixture(scope="module")
def expected(graph):
    return digest(graph, "--device", "cpu")


def on_devices(on_cpu: list, on_gpus: list) -> list:
    """Pairs of a device and a mode."""
    return [
        *(("cpu", mode) for mode in on_cpu),
        *(pytest.param("cuda", mode, marks=pytest.mark.gpu) for mode in on_gpus),
    ]


@pytest.mark.parametrize(
    ("device", "mode"), on_devices([*MODES, ["--host-bytes", "1MB", "--ranks", "2"]], ON_GPUS), ids=str
)
def test_batches_are_the_same(graph, expected, device, mode):
    assert digest(graph, "--device", device, *mode) == expected


@pytest.mark.parametrize("device", DEVICES)
def test_both_planes_of_rows_come_from_the_disk(planes, device):
    assert digest(planes, "--device", device, "--host-bytes", "1MB") == digest(planes, "--device", "cpu")


def trained(graph, out, *options):
    """The summary of a run of two epochs."""
    common = ["--fanout", "6,4", "--batch-size", 256, "--hidden", 16, "--epochs", 2, "--seed", 4, "--quiet"]
    ran("train", graph, *common, "--out", out, *options)
    return json.loads((out / "summary.json").read_text())


def told(summary: dict) -> list[float]:
    """What training came to."""
    return [value for epoch in summary["epochs"] for value in (epoch["loss"], epoch["val_accuracy"])]


@pytest.mark.parametrize("device", DEVICES)
def test_training_is_the_same(graph, tmp_path, device):
    device = ["--device", device]
    there, some = trained(graph, tmp_path / "there", *device), trained(graph, tmp_path / "some", *device, *MODES[0])
    assert told(some) == told(there)
    assert there["bytes"]["disk"] == 0 < some["bytes"]["disk"]
    for epoch, whole in zip(some["epochs"], there["epochs"], strict=True):
        tiers, all_rows = epoch["row_tiers"], whole["row_tiers"]
        assert tiers["disk"]["rows"] > 0 and tiers["host"]["rows"] > 0
        rows = [sum(tier["rows"] for tier in of.values()) for of in (tiers, all_rows)]
        assert rows[0] == rows[1] and tiers["disk"]["seconds"] > 0
    assert json.loads((tmp_path / "some/run.json").read_text())["sampler"]["host_bytes"] == 1_000_000
    assert [part["bytes"] > 2_000_000 for part in some["start"]["parts"] if part["part"].startswith("leaving rows")]
    report = ran("report", tmp_path / "some")
    assert re.search(r"\bdisk\b", report.stdout)


def test_coarse_epochs_read_plane_a_from_the_disk(planes, tmp_path):
    coarse = ["--coarse-epochs", 1, "--device", "cpu"]
    there, some = trained(planes, tmp_path / "a", *coarse), trained(planes, tmp_path / "b", *coarse, *MODES[0])
    assert told(some) == told(there)
    first, second = (epoch["row_tiers"]["disk"] for epoch in some["epochs"])
    assert 0 < first["bytes"] / first["rows"] < 0.8 * second["bytes"] / second["rows"]


@pytest.fixture(scope="module")
def typed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("disk") / "typed"
    sizes = ["--nodes", "20K", "--edges", "120K", "--dim", 64, "--classes", 3, "--all-features", "--seed", 5]
    ran("dataset", "generate", folder, "--kind", "typed", *sizes)
    ran("dataset", "prepare", folder, "--codec", "exponent")
    return folder


TYPED = [["--host-bytes", "900KB"], ["--host-bytes", "2MB", "--cache-ratio", "0.1", "--topology", "host"]]


@pytest.mark.parametrize(("device", "mode"), on_devices(TYPED, TYPED), ids=str)
def test_batches_of_several_node_types_are_the_same(typed, device, mode):
    assert digest(typed, "--device", device, *mode) == digest(typed, "--device", "cpu")


def memory_of(pid: int, file: str) -> tuple[int, int]:
    """Bytes of a process: of its own, and of the pages of a file."""
    own = re.search(r"RssAnon:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    maps = re.split(r"\n(?=[0-9a-f]+-[0-9a-f]+ )", Path(f"/proc/{pid}/smaps").read_text())
    of_file = [re.search(r"\nRss:\s+(\d+) kB", each) for each in maps if each.split("\n")[0].endswith(file)]
    return 1024 * int(own[1]), 1024 * sum(int(found[1]) for found in of_file)


def test_memory_is_bounded(tmp_path):
    sizes = ["--nodes", "100000", "--edges", "300000", "--dim", "128", "--classes", "7", "--seed", "1"]
    ran("dataset", "generate", tmp_path / "graph", "--split-ratio", "0.3,0.1,0.1", *sizes)
    ran("dataset", "prepare", tmp_path / "graph", "--codec", "exponent", "--drop-raw")
    (file,) = (tmp_path / "graph/prepared").glob("*.ibp")
    assert file.stat().st_size > 35e6
    own = {}
    for host_bytes in (8_000_000, 24_000_000):
        loader = package.NeighborLoader(
            tmp_path / "graph", [4, 3], batch_size=2000, device="cpu", seed=2, host_bytes=host_bytes
        )
        with loader:
            for _ in itertools.islice(loader, 12):
                pass
            assert loader.stats().rows["disk"] > 0
            own[host_bytes], of_file = memory_of(loader._sampler.process.pid, file.name)
            assert of_file < 0.05 * host_bytes + 100_000 / 4 + 2**20
    large_page, of_threads = 2**21, 2**20  # which the larger of the two has more of
    assert own[24_000_000] - own[8_000_000] < 1.05 * 16_000_000 + large_page + of_threads


def test_a_file_that_is_cut_short_ends_the_run(graph, tmp_path):
    graph = shutil.copytree(graph, tmp_path / "graph")
    (file,) = (graph / "prepared").glob("*.ibp")
    with package.NeighborLoader(graph, [5, 4], batch_size=100, device="cpu", host_bytes=400_000) as loader:
        batches = iter(loader)
        next(batches)
        os.truncate(file, file.stat().st_size // 2)
        with pytest.raises(
            package.CohortError, match=rf"{file.name}(.|\n)*(with which the run began|the end of the file)"
        ):
            for _ in batches:
                pass


def test_a_damaged_file_is_refused(graph, tmp_path):
    graph = shutil.copytree(graph, tmp_path / "graph")
    (file,) = (graph / "prepared").glob("*.ibp")
    status = file.stat()
    with file.open("r+b") as rows:
        rows.seek(status.st_size // 2)
        byte = rows.read(1)[0]
        rows.seek(status.st_size // 2)
        rows.write(bytes([byte ^ 1]))
    result = cohort("digest", graph, "--device", "cpu", "--host-bytes", "1MB")
    refused(result, 1, file.name, "correct checksums")


def test_rows_that_are_not_encoded_are_refused(cora):
    result = cohort("digest", cora, "--device", "cpu", "--host-bytes", "1MB")
    refused(result, 1, "--host-bytes", f"cohort dataset prepare {cora}")


def test_too_little_memory_is_refused(graph):
    result = cohort("digest", graph, "--device", "cpu", "--host-bytes", "10KB")
    refused(result, 1, "--host-bytes: expected at least", "raise --host-bytes")
