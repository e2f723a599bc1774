"""Layers read feature rows where they lie: runs train the same, and say whether they did."""

import json

import pytest
import torch
from processes import ALL_TESTS, ran

pytestmark = pytest.mark.usefixtures("shm")

ROOM = ["--cache-ratio", "1.2", "--topology", "gpu", "--compress", "none"]  # for all rows as they are


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    """3000 nodes whose rows of 31 floats are no multiple of 16 bytes."""
    folder = tmp_path_factory.mktemp("in-place") / "graph"
    sizes = ["--nodes", "3000", "--edges", "30000", "--dim", "31", "--classes", "5", "--seed", 2]
    ran("dataset", "generate", folder, *sizes)
    return folder


@pytest.fixture
def run(graph, tmp_path):
    """run(name, *options): the summary of a run of three epochs."""

    def train(name, *options):
        common = ["--fanout", "6,4", "--batch-size", 256, "--hidden", 16, "--epochs", 3, "--seed", 4, "--quiet"]
        ran("train", graph, *common, "--out", tmp_path / name, *options)
        return json.loads((tmp_path / name / "summary.json").read_text())

    return train


def told(summary: dict) -> list[float]:
    """What training came to."""
    return [value for epoch in summary["epochs"] for value in (epoch["loss"], epoch["val_accuracy"])]


@pytest.mark.parametrize("model", ["sage", "gcn", *["graphconv"] * ALL_TESTS])
def test_training_is_the_same(run, model):
    options = ["--device", "cpu", "--model", model]
    fetched = run("fetched", *options, "--cache-ratio", "0.5")  # which is planned, as for a GPU
    there = run("there", *options)
    assert (there["rows_in_place"], fetched["rows_in_place"]) == (True, False)
    assert there["last_hop_global"] == (model != "gcn") and not fetched["last_hop_global"]
    assert told(there) == (told(fetched) if model != "gcn" else pytest.approx(told(fetched), rel=1e-4))


@pytest.mark.gpu
@pytest.mark.parametrize("model", ["sage", "gcn", "graphconv"])
@pytest.mark.parametrize("more", [[], ["--amp"], ["--no-cuda-graphs"]], ids=" ".join)
def test_training_on_a_gpu_is_the_same(run, model, more):
    options = ["--device", "cuda", "--model", model, *more]
    there, fetched = run("there", *options, *ROOM), run("fetched", *options)
    assert (there["rows_in_place"], fetched["rows_in_place"]) == (True, False)
    assert told(there) == pytest.approx(told(fetched), rel=2e-2 if more == ["--amp"] else 1e-3)


@pytest.mark.gpu
@pytest.mark.alone
def test_a_cache_of_all_that_is_left_takes_all_rows(run):
    summary = run("run", "--device", "cuda", "--cache-ratio", "auto")
    assert summary["rows_in_place"] and summary["bytes"]["host"] == 0


@pytest.mark.gpu
@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--model", "gcn", "--slots", "2"],
        ["--model", "gat", "--no-cuda-graphs"],
        ["--model", "gat", "--amp"],
        ["--layers", "pyg"],
        ["--amp", "--cache-ratio", "0.3"],
        ["--no-reuse", "--batch-size", "100"],
        ["--batch-size", "40", "--fanout", "2,1", "--slots", "3"],
        ["--debug-slow-fetch-us", "3000", "--fanout", "2,2"],
        ["--eval-fanout", "-1,-1", "--batch-size", "40", "--fanout", "2,1"],
    ],
    ids=" ".join,
)
def test_training_with_a_pool_is_the_same(run, options):
    """As with a pool in which each batch has new places. Rows of the pool are poisoned before they are written: whoever
    reads them too early or too late gets NaN."""
    options = ["--device", "cuda", "--debug-poison-slots", *options]
    pooled, fetched = run("pooled", *options), run("fetched", *options, "--slots", 8, "--no-reuse")
    assert told(pooled) == pytest.approx(told(fetched), rel=2e-2 if "--amp" in options else 1e-3)
    assert pooled["bytes"]["recent"] == 0, "rows that are found again are not read"
    for epoch in pooled["epochs"]:
        found = epoch["row_tiers"]["recent"]["rows"]
        assert found == 0 if "--no-reuse" in options else found > 0
        assert sum(tier["rows"] for tier in epoch["row_tiers"].values()) == epoch["num_nodes"]


@pytest.mark.gpu
@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--model", "rgcn", "--slots", "2", "--batch-size", "40", "--fanout", "2,1"],
        ["--model", "rgat", "--no-cuda-graphs"],
        ["--model", "hgt", "--cache-ratio", "0.3"],
        ["--model", "rsage", "--featureless", "embed"],
        ["--layers", "pyg", "--debug-slow-fetch-us", "3000"],
        ["--no-reuse", "--batch-size", "100"],
    ],
    ids=" ".join,
)
def test_training_with_a_pool_for_each_type_is_the_same(tmp_path, options):
    folder = tmp_path / "graph"
    ran("dataset", "generate", folder, "--kind", "typed", "--nodes", 3000, "--edges", 30000, "--dim", 12)
    common = ["--model", "rsage", "--device", "cuda", "--fanout", "6,4", "--batch-size", 256, "--hidden", 16]
    common += ["--epochs", 3, "--seed", 4]
    found = []
    for name, more in (("pooled", ["--debug-poison-slots"]), ("fetched", ["--slots", 8, "--no-reuse"])):
        ran("train", folder, *common, "--quiet", *options, *more, "--out", tmp_path / name)
        found.append(json.loads((tmp_path / name / "summary.json").read_text()))
    assert told(found[0]) == pytest.approx(told(found[1]), rel=1e-3)
    for epoch in found[0]["epochs"]:
        recent = epoch["row_tiers"]["recent"]["rows"]
        assert recent == 0 if "--no-reuse" in options else recent > 0


@pytest.mark.gpu
@pytest.mark.parametrize(
    "options", [["--cache-ratio", "0.5"], ["--topology", "host"], ["--compress", "cache"]], ids=" ".join
)
def test_rows_are_fetched_where_a_gpu_has_no_room_for_all(run, options):
    assert not run("run", "--device", "cuda", *ROOM, *options)["rows_in_place"]


@pytest.mark.parametrize("options", [["--model", "gat"], ["--layers", "pyg"]], ids=" ".join)
def test_layers_that_want_rows_get_them(run, options):
    assert not run("run", "--device", "cpu", *options)["rows_in_place"]


@pytest.mark.gpu
def test_two_gpus_have_a_table_each(run):
    if torch.cuda.device_count() < 2:
        pytest.skip("needs 2 GPUs")
    options = ["--device", "cuda", "--gpus", "0,1"]
    there, fetched = run("there", *options, *ROOM), run("fetched", *options)
    assert there["rows_in_place"] and told(there) == pytest.approx(told(fetched), rel=1e-3)
    assert there["bytes"]["host"] == there["bytes"]["peer"] == 0 < there["bytes"]["local"]
