"""``cohort bench sample`` and ``bench fetch`` on the CPU: what they count is what the batches have."""

import json

import numpy as np
import pytest
from processes import cohort, ran

from cohort_gnn.dataset import generate
from cohort_gnn.dataset import open as open_dataset
from cohort_gnn.launch.data.prepare import encoded_rows_writer
from cohort_gnn.launch.main import main

pytestmark = pytest.mark.usefixtures("shm")
KINDS = ["nothing", "next"]


def bench(*arguments) -> tuple[list[dict], list[list[str]]]:
    """(lines of --out, words of what was printed, by line)"""
    done = ran("bench", *arguments, "--device", "cpu")
    out = arguments[arguments.index("--out") + 1]
    return [json.loads(line) for line in out.read_text().splitlines()], [
        row.split() for row in done.stdout.splitlines()
    ]


def one_hop(data, seeds) -> tuple[int, int]:
    """(nodes, edges) of a batch of these seeds and all their in-neighbours."""
    sources = np.concatenate([data.indices[data.indptr[seed] : data.indptr[seed + 1]] for seed in seeds])
    return len(np.union1d(seeds, sources)), len(sources)


@pytest.mark.parametrize("ranks", [1, 2])
def test_samples_of_whole_neighbourhoods(cora, tmp_path, ranks):
    train_ids = np.load(cora / "train_ids.npy")
    sizes = ["--batch-size", len(train_ids), "--fanout", "-1", "--batches", 4]
    lines, rows = bench("sample", cora, *sizes, "--ranks", ranks, "--out", tmp_path / "bench.jsonl")
    assert [line["beside"] for line in lines] == KINDS
    nodes, edges = one_hop(open_dataset(cora), train_ids)
    for line in lines:
        # Two ranks share each step's seeds: all are in the batch of the first, none are left for the other.
        assert (line["batches"], line["seeds"], line["nodes"], line["edges"]) == (4, len(train_ids), nodes, edges)
        assert line["lists"]["host"]["reads"] == len(train_ids), "no node of Cora is alone"
        assert 0 < line["least_sample_ms"] <= line["sample_ms"]
        (row,) = [row for row in rows if row[:2] == ["all", line["beside"]]]
        assert row[2] == f"{line['sample_ms']:.3f}" and row[4:6] == [f"{nodes:,}", f"{edges:,}"]
        assert float(row[6]) == pytest.approx(edges / line["sample_ms"] / 1e3, abs=0.06)


def test_batches_are_different_ones_of_the_size(cora, tmp_path):
    lines, _ = bench("sample", cora, "--batch-size", 60, "--batches", 30, "--out", tmp_path / "bench.jsonl")
    for line in lines:
        assert line["seeds"] == 60 and line["batches"] == 30, "the last of an epoch would have fewer"
        assert line["nodes"] != round(line["nodes"]), "a mean of different ones"


@pytest.fixture(scope="module")
def fetched(tmp_path_factory, shm):
    """(lines, table, data) of fetches in each form, without a cache and with one, on a graph of 1225 nodes."""
    folder = tmp_path_factory.mktemp("fetch")
    generate(
        folder / "data", kind="powerlaw", nodes=1225, edges=60000, dim=100, write_rows=encoded_rows_writer("auto", 0)
    )
    tried = ["--compress", "none,both", "--cache-ratio", "0,0.1", "--batches", 5]
    return *bench("fetch", folder / "data", "--batch-size", 4, *tried, "--out", folder / "bench.jsonl"), folder / "data"


def test_fetches_of_all_that_is_to_be_tried(fetched):
    lines, _, folder = fetched
    tried = [(compress, ratio, kind) for compress in ("none", "both") for ratio in (0, 0.1) for kind in KINDS]
    assert [(line["compress"], line["cache_ratio"], line["beside"]) for line in lines] == tried
    data = open_dataset(folder)
    assert data.feature_dim == 100
    for line in lines:
        host = line["rows"]["host"]
        assert line["batches"] == 5 and line["seeds"] == 4 and host["reads"] == line["nodes"] > 100
        raw_bytes = 400 * line["nodes"]
        is_raw = line["compress"] == "none"
        assert host["bytes"] == pytest.approx(raw_bytes) if is_raw else host["bytes"] < 0.95 * raw_bytes
        assert 0 < line["least_fetch_ms"] <= line["fetch_ms"] and host["ms"] > 0
        assert all(line["rows"][tier]["reads"] == 0 for tier in ("local", "peer", "recent", "disk", "remote")), (
            "the CPU has no cache"
        )


def test_the_table_has_whole_fetches_and_their_tiers(fetched):
    lines, rows, _ = fetched
    wholes = [row for row in rows if row[5:6] == ["all"]]
    assert [row[:5] for row in wholes[:3]] == [
        ["none", "0", "all", "-", "nothing"],
        ["none", "0", "all", "-", "next"],
        ["none", "0.1", "all", "-", "nothing"],
    ]
    tiers = [row for row in rows if row[:1] == ["host"]]
    assert len(wholes) == len(tiers) == len(lines)
    for line, whole, tier in zip(lines, wholes, tiers, strict=True):
        host = line["rows"]["host"]
        assert whole[-2] == f"{line['fetch_ms']:.3f}" and tier[-2] == f"{host['ms']:.3f}"
        assert whole[6] == tier[1] == "100.00"
        assert tier[-1] == f"{host['bytes'] / host['ms'] / 1e6:.2f}"


def test_lines_are_appended(fetched, tmp_path):
    (tmp_path / "bench.jsonl").write_text('{"bench": "other"}\n')
    lines, _ = bench("fetch", fetched[2], "--batch-size", 4, "--batches", 1, "--out", tmp_path / "bench.jsonl")
    assert [line["bench"] for line in lines] == ["other", "fetch", "fetch"]
    assert lines[1]["compress"] == "auto" and lines[1]["reuse"] is False


def test_the_cpu_has_no_sms_to_divide(cora, capsys):
    assert main(["bench", "sample", str(cora), "--device", "cpu", "--sampler-sms", "0,8"]) == 1
    assert "--sampler-sms: expected a GPU" in capsys.readouterr().err


UNFIT = [["--compress", "none,all"], ["--cache-ratio", "auto"], ["--fetch-sms", "8,0"], ["--sampler-sms", "8,auto"]]


@pytest.mark.parametrize("option", UNFIT)
def test_values_that_cannot_be_tried(cora, option, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["bench", "fetch", str(cora), *option])
    assert stop.value.code == 2 and option[0] in capsys.readouterr().err


def test_a_data_set_without_training_nodes(tmp_path, capsys):
    data = tmp_path / "data"
    generate(data, kind="sbm", nodes=20, edges=40, dim=2, split=(0, 0.5, 0.5))
    assert main(["bench", "sample", str(data), "--device", "cpu", "--out", str(tmp_path / "bench.jsonl")]) == 1
    assert "train_ids.npy: expected at least one node to train on" in capsys.readouterr().err


def test_a_run_that_fails_ends_with_its_code(cora, tmp_path):
    out = tmp_path / "bench.jsonl"
    done = cohort("bench", "fetch", cora, "--device", "cpu", "--batches", 2, "--compress", "none,both", "--out", out)
    assert done.returncode == 1 and "prepare" in done.stderr
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line["compress"] for line in lines] == ["none", "none"], "what was found before is kept"
