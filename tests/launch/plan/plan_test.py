"""`cohort plan`: what it says where nobody says how large caches are, of GPUs by number, and of what a cache saves."""

import json
import re

import pytest
from processes import here, refused

from cohort_gnn.launch.main import main
from cohort_gnn.launch.plan import planning as plans

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
        assert main(["plan", str(cora), *SMALL, "--num-gpus", "1", "--no-reuse", *options]) == 0
        line = capsys.readouterr().out.splitlines()[-1]
        return re.fullmatch(
            r"a batch reads (\S+ \S+) from host memory, (\S+ \S+) without a cache \((\S+) %\)", line
        ).groups()

    some, without, change = last("--cache-ratio", "0.1")
    assert some != without and -100 < float(change) < -10
    assert last("--cache-ratio", "0") == (without, without, "+0.0")
    read, same, change = last("--cache-ratio", "0.1", "--cache-policy", "none")
    assert read == same and change == "+0.0"
    assert main(["plan", str(cora), *SMALL, "--cache-ratio", "0.1", "--cache-policy", "degree"]) == 0
    assert "without a cache" not in capsys.readouterr().out, "a stand-in knows of no batch"
