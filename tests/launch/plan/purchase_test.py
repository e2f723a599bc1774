"""`cohort plan` without a data set: against measured epochs, and against what the sampler reads of real graphs."""

import json
import re
import subprocess
from pathlib import Path
from statistics import mean

import numpy as np
import pytest
from processes import here, refused

import cohort_gnn.dataset as datasets
from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.programs import python
from cohort_gnn.cache.gpu_rates import GPU_RATES, rates_named, save_rates
from cohort_gnn.launch import doctor
from cohort_gnn.launch.main import main

PAGE = (Path(__file__).resolve().parents[3] / "docs/performance.md").read_text()
PRODUCTS = ["--nodes", "2449029", "--edges", "123718280", "--dim", "100", "--classes", "47", "--train-ratio", "0.08"]
PRODUCTS += ["--row-bytes", "352", "--batch-size", "8192", "--cache-ratios", "0.01"]
PAPERS = ["--nodes", "111059956", "--edges", "1.6G", "--dim", "128", "--classes", "172", "--train-ratio", "0.0108"]
LARGE = ["--nodes", "80M", "--edges", "1150M", "--dim", "128", "--classes", "172", "--train-ratio", "0.015"]
PAPERS, LARGE = ([*graph, "--row-bytes", "448", "--batch-size", "8000"] for graph in (PAPERS, LARGE))
IN_PLACE = [*PAPERS, "--cache-ratios", "1.1"]
TABLES = ("the graph of ogbn-products' size", "rows in place", "rows in host memory")
MEASURED = [  # a heading, the first cell of a row, the column of its epoch, and options
    (TABLES[0], "SAGE", 1, PRODUCTS),
    (TABLES[0], "GCN", 1, [*PRODUCTS, "--model", "gcn"]),
    (TABLES[0], "GAT, 4 heads, 64 hidden features", 1, [*PRODUCTS, "--model", "gat", "--hidden", "64"]),
    (TABLES[0], "SAGE, `--no-reuse`", 1, [*PRODUCTS, "--no-reuse"]),
    (TABLES[1], "1", 1, IN_PLACE),
    (TABLES[1], "2", 1, [*IN_PLACE, "--gpus", "2"]),
    (TABLES[2], "0.335", 0, [*PAPERS, "--cache-ratios", "0.1", "--gpus", "2"]),
    (TABLES[2], "one of two H200, 16 cores", 1, [*LARGE, "--cache-ratios", "0.01"]),
    (TABLES[2], "one of two H200, 16 cores", 2, [*LARGE, "--cache-ratios", "0.3"]),
]


def planned(capsys, *options) -> dict:
    """What the command says of this graph."""
    defaults = ["--degrees", "powerlaw", "--gpu", "h200", "--fanout", "25,10", "--hidden", "256"]
    assert main(["plan", *defaults, *map(str, options), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def rows_under(heading: str) -> dict[str, list[str]]:
    """The rows of the tables under a heading of docs/performance.md, by their first cell."""
    section = PAGE.partition(f"## Epochs: {heading}\n")[2].partition("\n## ")[0]
    rows = ([cell.strip() for cell in line.strip("|").split(" | ")] for line in re.findall(r"^\|.*", section, re.M))
    return {cells[0]: cells for cells in rows}


def test_every_measured_epoch_of_the_page_is_predicted(capsys):
    rows = [(heading, cell) for heading in TABLES for cell in rows_under(heading)]
    names = [
        row for row in rows if "---" not in row[1] and row[1] not in ("model, options", "GPUs", "epoch, s", "device")
    ]
    assert set(names) == {case[:2] for case in MEASURED}, "a row that nobody predicts"
    wrong = {}
    for heading, cell, column, options in MEASURED:
        measured = mean(map(float, re.findall(r"\d+\.\d+", rows_under(heading)[cell][column])))
        (epoch,) = planned(capsys, *options)["epochs"]
        assert epoch["is_measured"] and 0 < epoch["floor_seconds"] < epoch["seconds"]
        if abs(epoch["seconds"] / measured - 1) > 0.1:
            wrong[heading, cell, column] = epoch["seconds"], measured
    assert not wrong


def test_bytes_are_those_that_the_plan_of_the_graph_itself_predicts(tmp_path, capsys):
    num_nodes, num_edges, num_seeds, batch_size = 60_000, 1_200_000, 6000, 512
    path, file = tmp_path / "data", tmp_path / "degrees.npy"
    datasets.generate(path, kind="powerlaw", nodes=num_nodes, edges=num_edges, dim=16, split=(0.1, 0.05, 0.05))
    batches = ["--fanout", "10,5", "--batch-size", str(batch_size), "--cache-ratios", "0.02,0.1,0.4"]
    batches += ["--topology", "gpu", "--no-reuse"]
    assert main(["plan", str(path), *batches, "--json"]) == 0
    exact = json.loads(capsys.readouterr().out)["ratios"][1:]  # after none
    data = datasets.open(path)
    np.save(file, np.stack([np.diff(data.indptr), np.bincount(data.indices, minlength=num_nodes)], axis=1))
    for degrees in ("powerlaw", file):
        graph = ["--nodes", num_nodes, "--edges", num_edges, "--dim", 16, "--train-ratio", "0.1", "--degrees", degrees]
        said = planned(capsys, *graph, *batches)
        for plan, epoch in zip(exact, said["epochs"], strict=True):
            host_bytes = plan["gpus"][0]["host_bytes"] * -(-num_seeds // batch_size)  # mean batches: the last is small
            assert epoch["ratio"] == plan["ratio"] and epoch["tier_bytes"]["host"] == pytest.approx(
                host_bytes, rel=0.03
            )


def test_more_machines_and_gpus_are_computed(capsys):
    said = planned(capsys, *PAPERS, "--cache-ratios", "0.1", "--num-gpus", "8", "--machines", "2")
    one, two = said["epochs"]
    assert (one["machines"], two["machines"]) == (1, 2) and not (one["is_measured"] or two["is_measured"])
    assert two["seconds"] < one["seconds"] and one["limit"] == "host memory"
    (alone,) = planned(capsys, *PAPERS, "--cache-ratios", "0.1", "--cliques", "none", "--gpus", "1")["epochs"]
    assert alone["tier_bytes"]["peer"] == 0 < one["tier_bytes"]["peer"]
    (step,) = planned(capsys, *IN_PLACE, "--step-ms", "2")["epochs"]
    assert step["floor_seconds"] == pytest.approx(0.3) and step["limit"] == "the trainer's steps"


@pytest.mark.parametrize(("nodes", "edges"), [("1", "1"), ("1M", "10"), ("100", "1G")])
def test_graphs_of_hardly_any_edges_and_of_very_many(capsys, nodes, edges):
    graph = ["--nodes", nodes, "--edges", edges, "--dim", "4", "--train-ratio", "1", "--fanout", "-1,3"]
    assert sum(planned(capsys, *graph)["batch"]["nodes"]) >= (100 if edges == "1G" else 1)


def test_a_cache_that_does_not_fit_is_told(capsys):
    assert main(["plan", *PAPERS, "--degrees", "powerlaw", "--gpu", "h100", "--cache-ratios", "2"]) == 1
    assert "will not fit: GPU 0: a cache of 113.7" in capsys.readouterr().out


@pytest.mark.fresh
def test_torch_is_not_loaded():
    words = ["plan", *PAPERS, "--degrees", "powerlaw", "--gpu", "h100"]
    text = f"import sys; from cohort_gnn.launch.main import main; main({words}); sys.exit('torch' in sys.modules)"
    said = subprocess.run(python("-c", text), capture_output=True, text=True)
    assert said.returncode == 0 and "Epochs, predicted" in said.stdout


def test_what_is_left_open_is_refused(tmp_path, cora):
    sizes = ["--nodes", "1M", "--edges", "10M", "--dim", "64"]
    needs = [*sizes, "--gpu", "h200", "--degrees"]
    np.save(tmp_path / "degrees.npy", np.full(10, 7))
    np.save(tmp_path / "wrong.npy", np.zeros((3, 3)))
    for options, *texts in [
        ([], "cohort plan: expected DIR", "--nodes N --edges E"),
        ([cora, "--nodes", "5"], "--nodes: expected a plan without a data set"),
        (sizes, "--nodes: expected what else", "no --degrees, --gpu", "--degrees powerlaw"),
        ([*sizes, "--degrees", "powerlaw", "--gpu", "0"], "--gpu: expected h200, h100, or a file", "--gpus N"),
        ([*needs, "powerlaw", "--cache-ratio", "auto"], "--cache-ratio: expected one number"),
        ([*needs, "powerlaw", "--sampling", "labor"], "--sampling: expected a data set", "cohort dataset generate"),
        ([*needs, "powerlaw", "--refresh"], "--refresh: expected a data set", "cohort dataset generate"),
        ([*needs, "powerlaw", "--gpus", "0,1"], "--gpus: expected without a data set, a number", "--num-gpus N"),
        ([*needs, "powerlaw", "--model", "rgat"], "--model: expected sage, gcn, gat or graphconv"),
        ([*needs, "powerlaw", "--train-nodes", "2M"], "expected 1 to 1,000,000 nodes that train"),
        ([*needs, tmp_path / "none.npy"], "none.npy: expected a .npy file of degrees", "No such file"),
        ([*needs, tmp_path / "wrong.npy"], "wrong.npy: expected a .npy file of degrees", "float64 [3, 3]"),
        ([*needs, tmp_path / "degrees.npy"], "--edges: expected 7,000,000, as", "leave it out"),
    ]:
        refused(here("plan", *options), 1, *texts)


def test_rates_of_ones_own_are_saved_and_read(tmp_path, capsys, monkeypatch):
    gpu = {"ordinal": 0, "name": "NVIDIA H100 80GB HBM3", "uuid": "GPU-0", "bytes": 85e9}
    monkeypatch.setattr(doctor, "machine_bandwidth", lambda machine: (1400.0, 300.0, 25.0))
    save_rates(tmp_path / "own.json", doctor.measured_rates({"gpus": [gpu]}))
    rates = rates_named(str(tmp_path / "own.json"))
    assert (rates.host.value, rates.host.source) == (25e9, f"measured: cohort doctor, {gpu['name']}")
    assert rates.row_sums == GPU_RATES["h100"].row_sums and rates.step_source == ""
    slow = planned(capsys, *PAPERS, "--cache-ratios", "0.1", "--gpu", tmp_path / "own.json")["epochs"][0]
    fast = planned(capsys, *PAPERS, "--cache-ratios", "0.1", "--gpu", "h100")["epochs"][0]
    assert slow["floor_seconds"] == pytest.approx(fast["floor_seconds"] * 50.5 / 25, rel=1e-6)
    save_rates(tmp_path / "other.json", doctor.measured_rates({"gpus": [gpu | {"name": "NVIDIA A10"}]}))
    other = ["plan", *PAPERS, "--degrees", "powerlaw", "--gpu", tmp_path / "other.json"]
    refused(here(*other), 1, "NVIDIA A10, whose steps are not known", "--step-ms M")
    assert here(*other, "--step-ms", "3").returncode == 0
    with pytest.raises(CohortError, match="--save: expected a GPU"):
        doctor.measured_rates({"gpus": []})
    (tmp_path / "other.json").write_text("{}")
    refused(here(*other), 1, "other.json: expected rates as cohort doctor --save writes them")
