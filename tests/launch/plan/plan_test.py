"""`cohort plan`: what it says where nobody says how large caches are, of GPUs by number, and of what a cache saves."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from processes import here, refused

import cohort_gnn as cohort
import cohort_gnn.dataset as datasets
from cohort_gnn.launch.main import main
from cohort_gnn.launch.plan import planning as plans
from cohort_gnn.launch.plan.options import PlanSpec

SMALL = ["--fanout", "4,3", "--batch-size", "100"]


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr(plans, "devices", lambda: {"cuda_build": False, "gpus": [], "cliques": [], "versions": [0, 0]})


def test_without_a_size_there_is_a_table_of_sizes(cora, capsys, no_gpu):
    assert main(["plan", str(cora), *SMALL]) == 0
    said = capsys.readouterr().out
    rows = [line.split() for line in said.splitlines() if re.match(r" +[\d.]+ ", line)]
    assert [row[0] for row in rows] == ["0", "0.05", "0.1", "0.5", "1"]
    assert rows[0][-2] == "+0.0" and [float(row[-2]) for row in rows] == sorted(
        (float(r[-2]) for r in rows), reverse=True
    )
    assert "host memory: " in said and "--cache-ratio R" in said.splitlines()[-1]
    assert main(["plan", str(cora), *SMALL, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["ratios"]
    assert [each["ratio"] for each in found] == [0, 0.05, 0.1, 0.5, 1]
    host = [each["gpus"][0]["host_bytes"] for each in found]
    assert host == sorted(host, reverse=True) and host[0] > 2 * host[-1]
    one = ["plan", str(cora), *SMALL, "--cache-ratio", "0.1", "--json"]
    assert main(one) == 0 and json.loads(capsys.readouterr().out)["gpus"] == found[2]["gpus"]


def test_host_memory_that_is_too_small_is_told_there_too(cora, no_gpu, monkeypatch):
    monkeypatch.setenv("COHORT_HOST_MEMORY_BYTES", "1000000")
    refused(here("plan", cora, *SMALL), 1, "will not fit: host: ")


def test_auto_needs_to_know_the_gpu(cora, capsys, no_gpu):
    assert main(["plan", str(cora), *SMALL, "--cache-ratio", "auto"]) == 1
    assert "--cache-ratio auto: expected the memory of the GPU" in capsys.readouterr().err


@pytest.mark.parametrize("option", [["--num-gpus", "2"], ["--gpus", "0,1"]])
def test_gpus_are_counted_or_named_as_train_has_them(cora, capsys, option):
    assert main(["plan", str(cora), *SMALL, *option, "--cliques", "all", "--cache-ratio", "0.1", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["gpus"]) == 2
    refused(here("plan", cora, "--num-gpus", "3", "--gpus", "0,1"), 1, "--gpus, --num-gpus: expected one of the two")


def test_gpus_that_all_read_each_other_are_divided_where_entries_cannot_name_them(cora, capsys, monkeypatch):
    machine = {"cuda_build": False, "gpus": [], "cliques": [list(range(10))], "versions": [0, 0]}
    monkeypatch.setattr(plans, "devices", lambda: machine)
    ten = ["plan", str(cora), *SMALL, "--num-gpus", "10", "--cache-ratio", "0.1", "--json"]
    assert main(ten) == 0 and json.loads(capsys.readouterr().out)["cliques"] == [list(range(8)), [8, 9]]
    refused(here(*ten, "--cliques", "all"), 1, "cliques: expected at most 8 GPUs in each, found 10")


def test_the_last_line_says_what_the_cache_saves(cora, capsys):
    def last(*options: str) -> tuple[str, str, str]:
        assert main(["plan", str(cora), *SMALL, "--num-gpus", "1", *options]) == 0
        line = capsys.readouterr().out.splitlines()[-1]
        return re.fullmatch(
            r"a batch reads (\S+ \S+) from host memory, (\S+ \S+) without a cache \((\S+) %\)", line
        ).groups()

    some, without, change = last("--cache-ratio", "0.1", "--no-reuse")
    assert some != without and -100 < float(change) < -10
    for reuse in ("--no-reuse", "--reuse"):
        alone = last("--cache-ratio", "0", reuse)
        assert alone == (alone[0], alone[0], "+0.0") and (alone[0] == without) == (reuse == "--no-reuse")
        assert last("--cache-ratio", "0.1", "--cache-policy", "none", reuse) == alone, "no cache, but the pool"
    assert main(["plan", str(cora), *SMALL, "--cache-ratio", "0.1", "--cache-policy", "degree"]) == 0
    assert "without a cache" not in capsys.readouterr().out, "a stand-in knows of no batch"


def test_host_bytes_of_layer_sampling_are_those_of_another_epoch(tmp_path):
    """With a cache and without, for rows and for lists, which layer sampling reads whole; seeds are ordered, too."""
    path, fanout, size = tmp_path / "data", [10, 5], 128
    datasets.generate(path, kind="sbm", nodes=20_000, edges=600_000, dim=32, classes=40, split=(0.2, 0.1, 0.1))
    data, options = datasets.open(path), {"fanout": fanout, "batch_size": size}
    options |= {"sampling": "labor", "layer_dependency": True, "seed_order": f"{path}/labels.npy", "seed_mix": 0.2}
    seeds, degrees = torch.as_tensor(np.array(data.train_ids)), np.diff(data.indptr)
    how = {"num_neighbors" if name == "fanout" else name: value for name, value in options.items()}
    loader = cohort.NeighborLoader(path, input_nodes=seeds, shuffle=True, device="cpu", **how)
    batches = [(batch.n_id.numpy(), sum(batch.num_sampled_nodes[:-1])) for batch in loader]
    for ratio in (0.0, 0.2):
        spec = PlanSpec(dataset=path, refresh=False, json=True, cache_ratio=[ratio], topology="host", **options)
        planning = plans.Planning(replace(spec, reuse=False))
        gpu = planning.place(planning.budgets()).placed.gpu(0)
        row_bytes, list_bytes = np.full(data.num_nodes, 4 * 32), np.where(degrees > 0, 16 + 4 * degrees, 0)
        row_bytes[gpu.features.nodes] = list_bytes[gpu.topology.nodes] = 0
        read = sum(row_bytes[nodes].sum() + list_bytes[nodes[:drawn]].sum() for nodes, drawn in batches)
        predicted = gpu.feature_use[2].bytes + gpu.topology_use[2].bytes
        assert predicted == pytest.approx(read / len(batches), rel=0.03)
