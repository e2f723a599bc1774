"""`cohort plan --host-bytes` and `cohort bench disk`: what stays on the disk, and what its reads take."""

import json

import numpy as np
import pytest
from processes import here, refused

from cohort_gnn.base.errors import CohortError
from cohort_gnn.cache import disk
from cohort_gnn.launch.main import main
from cohort_gnn.launch.plan import far, planning
from cohort_gnn.launch.plan.far import DiskPlan

SMALL = ["--fanout", "4,3", "--batch-size", "100", "--num-gpus", "2", "--cliques", "none"]
RATES = {"is_direct": True, "blocks_per_second": 1000.0, "row_reads_per_second": 500.0, "rows_per_second": 600.0}


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    folder = tmp_path_factory.mktemp("disk") / "graph"
    sizes = ["--nodes", "5000", "--edges", "60000", "--dim", "64", "--classes", "7", "--split-ratio", "0.5,0.1,0.1"]
    assert main(["dataset", "generate", str(folder), *sizes]) == 0
    assert main(["dataset", "prepare", str(folder), "--codec", "exponent"]) == 0
    return folder


@pytest.fixture
def rates(monkeypatch):
    monkeypatch.setattr("cohort_gnn.launch.plan.far.remembered_rates", lambda file: RATES)


def planned(capsys, *arguments) -> dict:
    assert main(["plan", *map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_plan_tells_reads_and_seconds_of_an_epoch(graph, capsys, rates):
    found = planned(capsys, graph, *SMALL, "--cache-ratio", 0.1, "--host-bytes", "300KB")
    told = found["disk"]
    assert found["host_needed_bytes"] < 2_000_000
    assert told["num_batches"] == 25 and 0 < told["rows"] < 5000 and told["bytes"] > 100_000
    assert told["seconds"] == pytest.approx(25 * told["reads_of_batch"] / 500)
    more = planned(capsys, graph, *SMALL, "--cache-ratio", 0.1, "--host-bytes", "600KB")["disk"]
    assert more["rows"] < told["rows"] and more["reads_of_batch"] < told["reads_of_batch"]
    assert "disk" not in planned(capsys, graph, *SMALL, "--cache-ratio", 0.1, "--host-bytes", "1GB")
    capsys.readouterr()
    assert main(["plan", str(graph), *SMALL, "--cache-ratio", "0.1", "--host-bytes", "300KB"]) == 0
    assert "reads a second (measured)" in capsys.readouterr().out


def test_only_encoded_rows_can_stay_on_the_disk(graph, capsys):
    for sizes in (["--cache-ratio", "0.1"], []):
        capsys.readouterr()
        assert main(["plan", str(graph), *SMALL, *sizes, "--host-bytes", "300KB", "--compress", "none"]) == 1
        expected = "--host-bytes 300.00 KB: expected encoded feature rows in host memory, found raw rows\n"
        assert f"{expected}  hint: encode them with: cohort dataset prepare {graph}" in capsys.readouterr().err
        assert main(["plan", str(graph), *SMALL, *sizes, "--host-bytes", "5MB", "--compress", "none"]) == 0


def test_rows_are_chosen_as_the_sampler_chooses_them():
    reads = np.array([5, 9, 9, 0, 7, 2])
    row_bytes = np.array([10, 10, 10, 10, 0, 10])
    cached = [np.array([1]), np.array([1, 2])]
    found = disk.disk_reads(reads, 4, row_bytes, cached, 25)
    assert found == disk.DiskReads(rows_on_disk=2, bytes_on_disk=20, reads_of_batch=2 / 4)  # 2 and 0 are in memory
    assert disk.disk_reads(reads, 4, row_bytes, cached, 0).rows_on_disk == 4  # but 1, which the first clique holds


@pytest.mark.parametrize("num_batches", [10, 40])
def test_rows_that_were_counted_seldom_are_read_in_other_batches(num_batches):
    """Rows are chosen by counts, so the counts of the others are too low for what is read later."""
    random = np.random.default_rng(5)
    rates = np.minimum(0.5, 0.01 * random.pareto(1.2, 200_000))
    counted, later = (random.binomial(num_batches, rates) for _ in range(2))
    has_row = np.arange(len(rates)) % 10 != 0
    cold = np.argsort(-counted, kind="stable")[20_000:]
    expected = disk.expected_reads(counted, has_row)
    assert np.array_equal(expected[~has_row], counted[~has_row])
    cold = cold[has_row[cold]]
    assert expected[cold].sum() == pytest.approx(later[cold].sum(), rel=0.06)
    assert counted[cold].sum() < 0.8 * later[cold].sum()
    few = disk.expected_reads(counted[:50], np.ones(50, bool))
    assert np.array_equal(few, counted[:50]), "too few rows to tell"


def test_a_line_says_when_reads_go_through_the_page_cache():
    plan = DiskPlan(rows=10, bytes=1000, reads_of_batch=3, num_batches=4, reads_per_second=6.0, is_direct=False)
    assert plan.seconds == 2
    assert "12 an epoch of 4 batches: 2 s at 6 reads a second (measured, through the page cache)" in plan.line()


def test_the_rate_of_a_drive_is_measured_once(graph, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (file,) = (graph / "prepared").glob("*.ibp")
    calls = []
    monkeypatch.setattr(disk, "ask_sampler", lambda *words: calls.append(words) or RATES)
    assert disk.remembered_rates(file) == disk.remembered_rates(file) == RATES
    assert calls == [("--probe-disk", str(file), "1.0")]


def test_rates_are_those_of_the_file(graph, capsys):
    (file,) = (graph / "prepared").glob("*.ibp")
    rates = disk.measured_rates(file, 0.05)
    assert min(rates["blocks_per_second"], rates["row_reads_per_second"]) > 0
    assert rates["rows_per_second"] >= rates["row_reads_per_second"]
    with pytest.raises(CohortError, match="IBPROWS1"):
        disk.measured_rates(graph / "labels.npy", 0.05)
    assert main(["bench", "disk", str(graph), "--seconds", "0.05"]) == 0
    assert file.name in capsys.readouterr().out


def test_bench_disk_wants_encoded_rows(cora):
    refused(here("bench", "disk", cora), 1, f"cohort dataset prepare {cora}")


@pytest.mark.parametrize(("features", "code"), [("auto", 0), ("partitioned", 0), ("replicated", 1)])
def test_machines_that_divide_the_rows_need_memory_for_parts(graph, monkeypatch, capsys, features, code):
    """1.1 MB of encoded rows."""
    for module in (planning.budget, far):
        monkeypatch.setattr(module, "available_host_bytes", lambda: 1_000_000)
    machines = ["--cache-policy", "none", "--machines", "2", "--topology", "gpu", "--feature-placement", features]
    assert main(["plan", str(graph), *SMALL, *machines]) == code
    assert ("will not fit" in capsys.readouterr().err) == bool(code)
