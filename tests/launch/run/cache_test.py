"""A cache in `cohort train` and `cohort digest`: counted, planned, told of; on the CPU all is read from the host."""

import json
import shutil

import pytest
from processes import cohort, ran

pytestmark = pytest.mark.usefixtures("shm")

RUN = ["--device", "cpu", "--fanout", "4,3", "--batch-size", 100]
TRAIN = [*RUN, "--hidden", 8, "--epochs", 2]
TIERS = ["local", "peer", "host", "recent", "disk", "remote"]


@pytest.fixture
def data(cora, tmp_path):
    """Cora in a folder of its own, without counts."""
    folder = tmp_path / "cora"
    shutil.copytree(cora, folder, ignore=shutil.ignore_patterns("hotness-*"))
    return folder


def train(data, out, *arguments):
    """(finished process, run.json, summary.json)"""
    result = ran("train", data, *TRAIN, *arguments, "--overwrite", "--out", out)
    return result, json.loads((out / "run.json").read_text()), json.loads((out / "summary.json").read_text())


def test_a_run_counts_once_and_says_what_it_expects(data, tmp_path):
    out = tmp_path / "run"
    result, run, summary = train(data, out, "--cache-ratio", 0.1)
    (counts,) = data.glob("hotness-*")
    assert [line for line in result.stderr.splitlines() if "counted" in line] == [
        f"cohort: counted what 34 batches of the sampler read, for the cache: {counts}"
    ]
    sampler = run["sampler"]
    assert sampler["cache_bytes"] == [int(0.1 * 2708 * 1433 * 4)] and sampler["hotness"] == str(counts)
    assert sampler["bytes_per_second"] == [1500e9, 360e9, 51e9] and sampler["order"] == "address"
    plan = json.loads((out / "plan.json").read_text())
    (rank,), (predicted,), (measured,) = plan["ranks"], summary["cache"]["predicted"], summary["cache"]["measured"]
    assert rank["features"]["rows"] > 0 and rank["used_bytes"] <= rank["budget_bytes"] == sampler["cache_bytes"][0]
    assert sum(predicted["hit_rate"].values()) == pytest.approx(1) and predicted["hit_rate"]["local"] > 0.1
    assert list(measured["hit_rate"]) == TIERS and measured["hit_rate"]["host"] == 1
    later = summary["epochs"][1:]
    rows = sum(epoch["num_nodes"] for epoch in later) / sum(epoch["num_batches"] for epoch in later)
    others = dict.fromkeys(("local", "peer", "recent", "disk", "remote"), 0)
    assert measured["bytes"] == others | {"host": pytest.approx(rows * 1433 * 4)}
    reads = sum(rank["features"]["expected"][tier]["reads"] for tier in TIERS)
    assert reads == pytest.approx(rows, rel=0.05), "rows a batch, counted with another seed"
    assert "Feature rows of a batch" in result.stdout and "rows % planned" in result.stdout
    again, _, same = train(data, out, "--cache-ratio", 0.1)
    assert "counted" not in again.stderr
    assert same["cache"]["predicted"] == summary["cache"]["predicted"]


def test_every_rank_has_a_budget_and_a_report(data, tmp_path):
    arguments = ["--ranks", 2, "--cache-bytes", "300KB,900KB", "--cliques", "all", "--bandwidth", "1000,300,50"]
    result, run, summary = train(data, tmp_path / "run", *arguments)
    assert run["sampler"]["cache_bytes"] == [300_000, 900_000] and run["sampler"]["cliques"] == "all"
    first, second = summary["cache"]["predicted"]
    assert first["hit_rate"]["peer"] > second["hit_rate"]["peer"] > 0
    assert [rank["hit_rate"]["host"] for rank in summary["cache"]["measured"]] == [1, 1]
    later = summary["epochs"][1:]
    total = sum(epoch["host_bytes"] for epoch in later)
    batches = [sum(epoch["ranks"][rank]["num_batches"] for epoch in later) for rank in range(2)]
    found = [rank["bytes"]["host"] for rank in summary["cache"]["measured"]]
    assert sum(bytes * count for bytes, count in zip(found, batches, strict=True)) == pytest.approx(total)
    assert ["r1", "peer"] in [line.split()[:2] for line in result.stdout.splitlines()]


def test_without_a_cache_nothing_is_counted_or_planned(data, tmp_path):
    (tmp_path / "run").mkdir()
    for name in ("run.json", "plan.json"):
        (tmp_path / "run" / name).write_text("of an earlier run")
    result, run, summary = train(data, tmp_path / "run")
    assert "cache_bytes" not in run["sampler"] and summary["cache"] is None
    assert not (tmp_path / "run/plan.json").exists() and not list(data.glob("hotness-*"))
    assert "planned" not in result.stdout
    _, run, summary = train(data, tmp_path / "run", "--cache-ratio", 0.1, "--cache-policy", "none")
    assert run["sampler"]["cache_policy"] == "none" and summary["cache"] is None


def test_stand_ins_expect_nothing(data, tmp_path):
    result, _, summary = train(data, tmp_path / "run", "--cache-ratio", 0.1, "--cache-policy", "degree")
    assert summary["cache"]["predicted"] == [dict.fromkeys(("hit_rate", "bytes", "list_hit_rate", "list_bytes"))]
    assert json.loads((tmp_path / "run/plan.json").read_text())["ranks"][0]["used_bytes"] > 0
    assert "planned" not in result.stdout and not list(data.glob("hotness-*"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--cache-ratio", "0.1", "--cache-bytes", "1GB"], "one of the two"),
        (["--cache-ratio", "auto", "--cache-bytes", "1GB"], "one of the two"),
        (["--cache-ratio", "0.1,0.2"], "--cache-ratio: expected one value, or 1"),
        (["--cache-ratio", "auto"], "the memory of the GPU and the peak of the trainer"),
        (["--cache-ratio", "0.1", "--cliques", "3+5"], "expected 1 GPUs in all"),
        (["--cache-ratio", "0.1", "--bandwidth", "10,20,30"], "local at least peer at least host"),
    ],
    ids=" ".join,
)
def test_a_cache_that_makes_no_sense_is_refused(data, tmp_path, arguments, words):
    result = cohort("train", data, *TRAIN, *arguments, "--out", tmp_path / "run")
    assert result.returncode == 1 and "Traceback" not in result.stderr
    assert words in result.stderr


def test_auto_is_what_slots_and_trainer_leave(data, tmp_path):
    arguments = ["--cache-ratio", "auto", "--gpu-memory", "50MB", "--trainer-bytes", "20MB"]
    _, run, _ = train(data, tmp_path / "run", *arguments, "--quiet")
    planned = cohort("plan", data, "--fanout", "4,3", "--batch-size", 100, "--gpus", 1, *arguments, "--json")
    (budget,) = run["sampler"]["cache_bytes"]
    assert json.loads(planned.stdout)["gpus"][0]["budget_bytes"] == budget
    assert 0 < budget < 40_000_000
