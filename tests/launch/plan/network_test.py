"""Epochs on several machines: the numbers of `cohort plan --machines`, computed by hand."""

import json
import os
import re
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from processes import cohort, here, refused

from cohort_gnn.base.errors import CohortError
from cohort_gnn.launch.main import main
from cohort_gnn.launch.plan import planning
from cohort_gnn.launch.plan.far import FarRows
from cohort_gnn.launch.plan.network import Epoch, Network, Step, count_parameters, epoch_on
from cohort_gnn.spec.run import RunSpec
from cohort_gnn.trainer.models.sampled import SampledGNN

ROOT = Path(__file__).resolve().parents[3]
SMALL = ["--fanout", "4,3", "--batch-size", "100", "--cache-ratio", "0.1", "--num-gpus", "2", "--cliques", "all"]
OF_CORA = 4 * (2 * 1433 * 256 + 256 + 2 * 256 * 7 + 7 + 2)  # bytes that the trainers of a SAGE add up


@pytest.mark.parametrize("norm", ["none", "layer"])
@pytest.mark.parametrize("fanout", [[3], [3, 2], [3, 2, 2]])
@pytest.mark.parametrize(("kind", "heads"), [("sage", 4), ("gcn", 4), ("gat", 4), ("gat", 1), ("graphconv", 4)])
def test_parameters_are_counted_as_the_model_has_them(kind, heads, fanout, norm):
    spec = RunSpec(model=kind, hidden=16, heads=heads, norm=norm, fanout=fanout)
    model = SampledGNN(kind, 10, 16, 3, len(fanout), 0.5, norm=norm, heads=heads)
    assert count_parameters(spec, 10, 3) == sum(values.numel() for values in model.parameters())


def test_an_epoch_by_hand():
    network = Network(bytes_per_second=1e9, seconds=1e-4)
    reads_more = Step(host_bytes=5e6, host_seconds=3e-3, train_seconds=1e-3, sum_bytes=1_000_000)
    # 10 batches on 2 x 2 trainers: 3 steps; each sends 2 * 3/4 * 1 MB, in 1.5 ms, and waits 0.1 ms
    expected = Epoch(2, 3, 30e6, 4.5e6, 9e-3, 3e-3, 4.8e-3, 9e-3)
    assert asdict(epoch_on(2, 2, 10, reads_more, network)) == pytest.approx(asdict(expected))
    trains_more = reads_more._replace(host_seconds=1e-3)
    assert epoch_on(2, 2, 10, trains_more, network).seconds == pytest.approx(3 * 2.6e-3)
    alone = epoch_on(1, 2, 10, trains_more, network)
    assert (alone.steps, alone.network_bytes, alone.network_seconds) == (5, 0, 0)
    assert alone.seconds == pytest.approx(5e-3)


def test_rows_of_others_and_of_the_disk_by_hand():
    network = Network(bytes_per_second=1e9, seconds=1e-4)
    step = Step(5e6, 3e-3, 1e-3, 1_000_000, remote_bytes=4e6, disk_seconds=9e-3)
    epoch = epoch_on(2, 2, 10, step, network)  # rows and gradients of a step: 9.5 ms
    assert (epoch.remote_bytes, epoch.remote_seconds) == pytest.approx((24e6, 24e-3))
    assert (epoch.disk_seconds, epoch.seconds) == pytest.approx((27e-3, 28.5e-3))
    assert epoch_on(2, 2, 10, step._replace(disk_seconds=0.02), network).seconds == pytest.approx(0.06)


@pytest.mark.parametrize(
    ("are_divided", "host_bytes", "machines", "expected"),
    [
        (True, None, 1, (0, 0)),
        (True, None, 2, (1 / 2, 0)),
        (True, None, 4, (3 / 4, 0)),
        (True, 300, 4, (3 / 4 * 5 / 35, 0)),  # its own 100 bytes, and of others 2 rows of 75 bytes
        (True, 400, 4, (0, 0)),
        (True, 100, 2, (1 / 2, 7.5)),  # halves of the two rows that are read most are in memory
        (False, 100, 4, (0, 7.5)),  # the row that GPUs hold needs no memory
        (False, 400, 4, (0, 0)),
    ],
)
def test_where_rows_are(are_divided, host_bytes, machines, expected):
    reads, row_bytes = np.array([10, 0, 20, 40, 5]), np.array([100, 0, 100, 100, 100])
    held = np.array([False, False, False, True, False])
    rows = FarRows(are_divided, reads, 2, row_bytes, held, host_bytes, 1.0)
    remote, disk = rows.shares(machines)
    assert (remote, disk) == pytest.approx(expected)


def test_the_command(cora, capsys):
    several = ["--machines", "4,2", "--network", "10", "--network-us", "100", "--step-ms", "20"]
    assert main(["plan", str(cora), *SMALL, *several, "--no-reuse", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    gpus = told["gpus"]
    host_bytes = sum(gpu["host_bytes"] for gpu in gpus) / 2
    host_seconds = max(gpu["features"]["host"]["seconds"] + gpu["topology"]["host"]["seconds"] for gpu in gpus)
    assert told["network"] == pytest.approx({"bytes_per_second": 1e10, "seconds": 1e-4})
    assert 0 < host_seconds < 0.02
    for epoch, machines, steps, share in zip(
        told["epochs"], (1, 2, 4), (9, 5, 3), (0, 3 / 4, 7 / 8), strict=True
    ):  # 17 batches
        sent = 2 * share * OF_CORA
        summing = sent / 1e10 + 1e-4 if share else 0
        assert (epoch["machines"], epoch["steps"]) == (machines, steps)
        assert epoch["network_bytes"] == pytest.approx(steps * sent)
        assert epoch["host_bytes"] == pytest.approx(2 * steps * host_bytes)
        assert epoch["seconds"] == pytest.approx(steps * (0.02 + summing))
    assert main(["plan", str(cora), *SMALL, "--machines", "2", "--model", "gcn", "--hidden", "8"]) == 0
    said = capsys.readouterr().out
    sent = 5 * 2 * 3 / 4 * 4 * (1433 * 8 + 8 + 8 * 7 + 7 + 2)
    assert f"{sent / 1e3:.2f} KB" in said and "network: 12.5 GB/s and 50 us" in said and "--step-ms" in said
    assert "Epochs on several machines, computed" in said
    assert main(["plan", str(cora), *SMALL, "--machines", "2", "--parameters", "98", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["epochs"][1]["network_bytes"] == pytest.approx(5 * 1.5 * 400)


def test_caches_have_rows_of_other_machines_first(tmp_path, capsys):
    """In place of half of what a cache leaves, less travels; more comes from host memory, as rows of others do, too."""
    graph = tmp_path / "graph"
    made = ["--kind", "powerlaw", "--nodes", "20K", "--edges", "200K", "--dim", "64", "--classes", "4", "--prepared"]
    assert main(["dataset", "generate", str(graph), *made]) == 0
    capsys.readouterr()
    options = ["--fanout", "10,5", "--batch-size", "200", "--cache-ratio", "0.3", "--num-gpus", "1", "--machines", "2"]
    options += ["--parameters", "1", "--no-reuse", "--topology", "gpu", "--feature-placement"]
    alone, replicated, divided = {}, {}, {}
    for features, into in (("replicated", replicated), ("partitioned", divided)):
        assert main(["plan", str(graph), *options, features, "--json"]) == 0
        alone, into["two"] = json.loads(capsys.readouterr().out)["epochs"]
    assert replicated["two"]["remote_bytes"] == 0
    rows = replicated["two"]["host_bytes"]
    assert alone["host_bytes"] == pytest.approx(2 * rows, rel=0.1)
    assert 0 < divided["two"]["remote_bytes"] < 0.35 * rows
    assert rows < divided["two"]["host_bytes"] < 1.5 * rows


def test_a_class_of_the_users_has_a_number_of_its_own():
    with pytest.raises(CohortError) as error:
        count_parameters(RunSpec(model="own:Model"), 10, 3)
    assert "--parameters N" in error.value.hint


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--network", "1", "--hidden", "8"], "--network, --hidden: expected --machines N"),
        (["--machines", "2", "--partition"], "--machines: expected one machine with --partition"),
        (["--machines", "2", "--cache-policy", "degree"], "--machines: expected --cache-policy plan or none"),
        (["--machines", "2", "--model", "a.b:C"], "--parameters N"),
        (["--feature-placement", "partitioned"], "--feature-placement: expected --machines N"),
        (
            ["--machines", "2", "--feature-placement", "partitioned"],
            "--feature-placement partitioned: expected encoded feature rows",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(cora, options, words):
    refused(here("plan", cora, *SMALL, *options), 1, words)


def test_what_nobody_can_count_is_refused_before_the_sampler_runs(cora, monkeypatch):
    monkeypatch.setattr(planning, "presample", None)
    refused(here("plan", cora, *SMALL, "--machines", "2", "--model", "a.b:C"), 1, "--parameters N")


def test_several_machines_need_the_size_of_a_cache(cora):
    result = cohort("plan", cora, "--fanout", "4,3", "--machines", "2", env=os.environ | {"CUDA_VISIBLE_DEVICES": ""})
    assert result.returncode == 1 and "--machines: expected the size of the caches" in result.stderr


def test_the_table_of_the_documents():
    """docs/performance/machines.md says what the command would say: 128 features, 172 classes, 150 batches."""
    page = (ROOT / "docs/performance/machines.md").read_text()
    text = page.partition("## Several machines, computed\n")[2].partition("\n#")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if re.match(r"\| \d", line)]
    sum_bytes = 4 * (count_parameters(RunSpec(fanout=[25, 10]), 128, 172) + 2)
    steps = {
        "in place": Step(0, 0, 0.155 / 150, sum_bytes),
        "in host memory": Step(58.2e9 / 150, 1.140 / 150, 0.185 / 150, sum_bytes),
    }
    assert len(rows) == 12
    for machines, gpus, where, count, sent, network, seconds in rows:
        epoch = epoch_on(int(machines), int(gpus), 150, steps[where], Network(12.5e9, 50e-6))
        said = [f"{epoch.steps}", f"{epoch.network_bytes / 1e6:.1f} MB", f"{epoch.network_seconds:.4f}"]
        assert [count, sent, network, seconds] == [*said, f"{epoch.seconds:.4f}"]
