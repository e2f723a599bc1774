"""`cohort plan`, and what it is made of: budgets, counts from the sampler, the table."""

import json
import shutil

import numpy as np
import pytest

from cohort_gnn import NeighborLoader, from_tensors
from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.units import parse_bytes
from cohort_gnn.cache.budget import MemoryNeeds, beside_topology, budgets, misfits
from cohort_gnn.cache.options import memory_needs
from cohort_gnn.cache.planner import (
    Counts,
    PlanEdges,
    PlanLinks,
    PlanLists,
    PlanRows,
    cliques_named,
    load_counts,
    plan,
)
from cohort_gnn.dataset import open as open_dataset
from cohort_gnn.launch.main import main
from cohort_gnn.launch.plan import planning
from cohort_gnn.launch.plan.table import hit_rates
from cohort_gnn.spec.meta import read_meta
from cohort_gnn.spec.run import SamplerSpec

SMALL = ["--fanout", "4,3", "--batch-size", "100", "--cliques", "all"]
MEASURED = PlanLinks((1500e9, 360e9, 51e9))


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch):
    """Plans of a machine without a GPU, wherever this runs: with one, its memory and its links are planned with."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


@pytest.fixture
def data(cora, tmp_path):
    """Cora in a folder of its own, without counts."""
    folder = tmp_path / "cora"
    shutil.copytree(cora, folder, ignore=shutil.ignore_patterns("hotness-*"))
    return folder


@pytest.fixture
def short_rows(cora, tmp_path):
    """Cora with rows of 8 bytes, as many as a place takes in a GPU's slot, which has no rows."""
    data = open_dataset(cora)
    edges = data.to_pyg().edge_index
    return from_tensors(tmp_path / "short", x=np.zeros((2708, 2), np.float32), y=np.array(data.y), edge_index=edges)


def planned(capsys, *arguments) -> dict:
    assert main(["plan", *map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_counts_are_made_once_and_kept_beside_the_data(data, capsys):
    first = planned(capsys, data, *SMALL, "--num-gpus", 1, "--cache-ratio", 0.1)
    assert first["counts"]["reused"] is False and first["counts"]["batches"] == 34  # twice 1625 seeds
    assert [str(path) for path in data.glob("hotness-*")] == [first["counts"]["file"]]
    again = planned(capsys, data, *SMALL, "--num-gpus", 1, "--cache-ratio", 0.1)
    assert again["counts"]["reused"] is True
    assert again["gpus"] == first["gpus"]
    other = planned(capsys, data, *SMALL, "--num-gpus", 1, "--cache-ratio", 0.1, "--batch-size", 50)
    assert other["counts"]["reused"] is False and other["counts"]["file"] != first["counts"]["file"]
    fresh = planned(capsys, data, *SMALL, "--num-gpus", 1, "--cache-ratio", 0.1, "--refresh", "--presample-batches", 3)
    assert fresh["counts"]["batches"] == 2


@pytest.mark.parametrize("cliques", ["none", "1x8", "2x4", "4x2", "3+5"])
def test_simulated_cliques(data, capsys, cliques):
    shape = ["--num-gpus", 8, "--cliques", cliques, "--no-reuse"]  # a pool would have all rows
    result = planned(capsys, data, *SMALL, *shape, "--cache-ratio", 0.05)
    sizes = {"none": [1] * 8, "1x8": [8], "2x4": [4, 4], "4x2": [2] * 4, "3+5": [3, 5]}[cliques]
    assert [len(clique) for clique in result["cliques"]] == sizes
    for gpu in result["gpus"]:
        assert gpu["used_bytes"] <= gpu["budget_bytes"] == int(0.05 * 2708 * 1433 * 4)
        for kind in ("features", "topology"):
            assert sum(gpu[kind]["hit_rate"].values()) == pytest.approx(1)
        assert (gpu["features"]["hit_rate"]["peer"] > 0) == (cliques != "none")


def test_the_table(data, capsys):
    assert main(["plan", str(data), *SMALL, "--num-gpus", "2", "--cache-ratio", "0.1,0.2"]) == 0
    text = capsys.readouterr().out
    assert "1.55 MB" in text and "3.10 MB" in text and "cliques {0,1}" in text and "34 batches of the sampler" in text
    assert max(map(len, text.splitlines()[:14])) <= 80
    assert main(["plan", str(data), *SMALL, "--num-gpus", "1", "--cache-ratio", "1", "--cache-policy", "degree"]) == 0
    assert "out-degrees, a stand-in for counts" in capsys.readouterr().out and len(list(data.glob("hotness-*"))) == 1


def test_host_memory_is_what_is_pinned_and_what_filling_the_cache_takes(data, capsys):
    num_nodes, row_bytes = np.load(data / "features.npy", mmap_mode="r").shape[0], 1433 * 4
    topology = np.load(data / "indptr.npy").nbytes + np.load(data / "indices.npy").nbytes
    pinned = num_nodes * row_bytes + topology
    none = planned(capsys, data, *SMALL, "--num-gpus", 1, "--cache-ratio", 0, "--topology", "host")
    assert (none["host_needed_bytes"], none["host_filling_bytes"]) == (pinned, 0)
    some = planned(capsys, data, *SMALL, "--num-gpus", 1, "--cache-ratio", 0.3, "--topology", "host")
    held = [some["gpus"][0][kind] for kind in ("features", "topology")]
    rows, known = sum(kind["rows"] for kind in held), max(kind["known_rows"] for kind in held)
    assert rows > 500
    assert some["host_filling_bytes"] == 18 * rows + 8 * (num_nodes + known)
    assert some["host_needed_bytes"] == pinned + some["host_filling_bytes"]


def test_policies_differ_in_what_they_hold_and_none_holds_nothing(data, capsys):
    common = [data, *SMALL, "--num-gpus", 2, "--cache-ratio", 0.1]
    held = {name: planned(capsys, *common, "--cache-policy", name) for name in ("plan", "degree", "random", "none")}
    assert {name: result["counts"]["policy"] for name, result in held.items()} == {name: name for name in held}
    gpus = [held[name]["gpus"][0] for name in ("plan", "degree", "random")]
    held_items = [(gpu["features"]["rows"], gpu["topology"]["rows"]) for gpu in gpus]
    assert min(rows for rows, _ in held_items) > 0 and len(set(held_items)) == 3
    for gpu in held["none"]["gpus"]:
        assert gpu["budget_bytes"] == gpu["used_bytes"] == 0
        hit_rate = gpu["features"]["hit_rate"]
        assert hit_rate["recent"] + hit_rate["host"] == pytest.approx(1) and hit_rate["recent"] > 0
        assert gpu["host_bytes"] > held["plan"]["gpus"][0]["host_bytes"], "what a batch reads without a cache"


def test_the_topology_goes_into_gpus_that_then_still_hold_all_rows(data, capsys):
    arguments = [data, *SMALL, "--num-gpus", 2, "--cache-ratio", "auto", "--trainer-bytes", "20MB"]
    topology_bytes = sum(np.load(data / f"{name}.npy").nbytes for name in ("indptr", "indices"))
    large, small = (planned(capsys, *arguments, "--gpu-memory", size) for size in ("800MB", "45MB"))
    left = 800_000_000 - 20_000_000 - large["slots_bytes"] - large["graph_bytes"]
    assert [gpu["budget_bytes"] for gpu in large["gpus"]] == [left] * 2, "graph_bytes has the topology"
    assert large["graph_bytes"] - small["graph_bytes"] == topology_bytes
    assert small["gpus"][0]["topology"]["rows"] > 0, "the cache decides"
    all_rows = 2708 * (1433 * 4 + 12 + 8) + (2708 + 31) // 32 * 8
    assert beside_topology([all_rows + topology_bytes], topology_bytes, [(2708, 1433 * 4)]) == [all_rows]
    assert beside_topology([all_rows + topology_bytes, all_rows], topology_bytes, [(2708, 1433 * 4)]) is None


def test_a_gpu_that_is_there_holds_the_lists_if_its_memory_does(data, capsys, monkeypatch):
    """Its memory is read from it: no lists are planned into the cache, nor into host memory."""
    arguments = [data, *SMALL, "--num-gpus", 1, "--cache-ratio", 0.05, "--no-reuse", "--bandwidth", "1500,360,51"]
    without = planned(capsys, *arguments)
    gpu = {"ordinal": 0, "name": "a GPU", "uuid": "GPU-0", "bytes": 80 * 10**9, "reads_registered": True}
    machine = {"cuda_build": True, "gpus": [gpu], "cliques": [[0]], "versions": [1, 1]}
    monkeypatch.setattr(planning, "devices", lambda: machine)
    there = planned(capsys, *arguments)
    lists = sum(np.load(data / f"{name}.npy").nbytes for name in ("indptr", "indices"))
    assert there["graph_bytes"] - without["graph_bytes"] == lists
    assert there["gpus"][0]["topology"]["rows"] == 0 < without["gpus"][0]["topology"]["rows"]
    assert there["gpus"][0]["features"]["rows"] > without["gpus"][0]["features"]["rows"]
    gpu["bytes"] = 100_000
    assert main(["plan", *map(str, arguments)]) == 1
    assert "GPU 0: a cache of" in capsys.readouterr().err


def test_stand_ins_are_those_of_the_graph(data):
    indptr, indices = np.load(data / "indptr.npy"), np.load(data / "indices.npy")
    for dtype in (np.int32, np.int64):
        counts = Counts.stand_in("degree", [PlanEdges(indptr, indices.astype(dtype))], 2708, 3)
        out_degrees = np.bincount(indices, minlength=2708)
        np.testing.assert_array_equal(counts.edges_read, out_degrees * np.minimum(np.diff(indptr), 3))
    with pytest.raises(CohortError, match="degree or random"):
        Counts.stand_in("lru", [PlanEdges(indptr, indices)], 2708, 3)
    with pytest.raises(CohortError, match="indices: expected 10556, found 10555"):
        Counts.stand_in("degree", [PlanEdges(indptr, indices[:-1])], 2708, 3)


def test_rows_that_take_other_bytes_in_host_memory_and_lists_read_elsewhere(data):
    indptr, indices = np.load(data / "indptr.npy"), np.load(data / "indices.npy")
    counts = Counts.stand_in("degree", [PlanEdges(indptr, indices)], 2708, 3)
    common = {"cliques": [[0]], "budget_bytes": [100_000], "links": MEASURED}
    placed = plan([PlanRows(2708, 64, 256)], [], counts, **common).gpu(0)
    local, _, host, *_ = placed.feature_use
    assert local.bytes == 64 * local.reads and host.bytes == 256 * host.reads > 0
    assert len(placed.topology.nodes) == 0 and all(use.reads == 0 for use in placed.topology_use)
    each = np.full(2708, 256, np.uint32)
    assert plan([PlanRows(2708, 64, each)], [PlanLists(indptr, 4)], counts, **common).gpu(0).feature_use[2].bytes > 0


def test_what_does_not_fit_exits_with_1_and_says_what_to_change(data, capsys, monkeypatch):
    common = ["plan", str(data), *SMALL, "--num-gpus", "2"]
    assert main([*common, "--cache-bytes", "900MB", "--gpu-memory", "800MB"]) == 1
    error = capsys.readouterr().err
    assert "GPU 0: a cache of 900.00 MB" in error and "GPU 1" in error and "use --cache-bytes of at most" in error
    assert main([*common, "--cache-bytes", "100B"]) == 1
    assert "cannot even hold its index" in capsys.readouterr().err
    monkeypatch.setenv("COHORT_HOST_MEMORY_BYTES", "1000000")
    assert main([*common, "--cache-bytes", "0"]) == 1
    assert "host: 15.59 MB" in capsys.readouterr().err


def test_auto_is_what_slots_and_trainer_leave(data, capsys):
    memory = ["--num-gpus", 1, "--gpu-memory", "40MB", "--trainer-bytes", "20MB", "--slots", 2]
    result = planned(capsys, data, *SMALL, *memory)
    assert result["gpus"][0]["budget_bytes"] == 20_000_000 - result["slots_bytes"] > 0
    assert result["graph_bytes"] == 0, "labels and ids of nodes are in the trainer's peak; lists are the cache's"
    assert main(["plan", str(data), *SMALL, "--num-gpus", "1", "--gpu-memory", "50MB", "--cache-ratio", "auto"]) == 1
    assert "--trainer-bytes" in capsys.readouterr().err


def test_sizes_are_compared_where_the_rest_of_memory_is_not_known(data, capsys):
    arguments = ["plan", str(data), *SMALL, "--num-gpus", "1", "--gpu-memory", "20MB"]
    assert main(arguments) == 0
    said = capsys.readouterr().out
    assert [line.split()[-1] for line in said.splitlines() if line.split()[:1] in (["0"], ["1"])] == ["yes", "no"]
    result = planned(capsys, *arguments[1:], "--cache-ratios", "0.2,0.05")
    assert [each["ratio"] for each in result["ratios"]] == [0.0, 0.05, 0.2]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--cache-ratio", "0,0.05,0.2"], "--cache-ratios R,R,... prints a table of sizes"),
        (["--cache-ratios", "0,0.05", "--cache-bytes", "1GB"], "--cache-ratios: expected no --cache-ratio"),
        (["--cache-ratio", "auto", "--gpu-memory", "1GB"], "the trainer's peak is unknown"),
        (["--cache-ratio", "0.1", "--compress", "host"], "expected a data set with encoded rows"),
        (["--machines", "2"], "--machines: expected the size of the caches"),
    ],
)
def test_what_fits_no_plan_is_refused_before_anything_is_counted(data, capsys, monkeypatch, arguments, words):
    monkeypatch.setattr(planning, "presample", lambda *_: pytest.fail("it counted first"))
    assert main(["plan", str(data), *SMALL, "--num-gpus", "1", *arguments]) == 1
    assert words in capsys.readouterr().err


def test_a_graph_that_is_too_small_to_need_a_cache_is_named(data, capsys):
    for size in ([], ["--cache-ratio", "0.5"]):
        full = ["--fanout=-1,-1,-1", "--batch-size", "2000", "--num-gpus", "1", "--topology", "gpu", "--slots", "64"]
        assert main(["plan", str(data), *full, *size]) == 0
        assert "without a cache nothing is read from host memory either" in capsys.readouterr().out.replace("\n", " ")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--cache-ratio", "0.1,0.2,0.3"], "--cache-ratio: expected one value, or 2"),
        (["--cache-ratio", "0.1", "--cache-bytes", "1GB"], "one of the two"),
        (["--cache-ratio", "0.1", "--cliques", "2x2"], "expected 2 GPUs in all"),
        (["--cache-ratio", "0.1", "--cliques", "pairs"], "none, all, or sizes"),
        (["--cache-ratio", "0.1", "--bandwidth", "10,20,30"], "local at least peer at least host"),
        (["--cache-ratio", "0.1", "--bandwidth", "10,0,0"], "bandwidth: expected above 0"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_input_that_contradicts_itself(data, capsys, arguments, words):
    assert main(["plan", str(data), "--fanout", "4,3", "--cliques", "all", "--num-gpus", "2", *arguments]) == 1
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--cache-ratio", "-1"], ["--cache-bytes", "many"], ["--bandwidth", "1,2"]])
def test_bad_arguments_exit_with_2(data, arguments):
    with pytest.raises(SystemExit) as end:
        main(["plan", str(data), *arguments])
    assert end.value.code == 2


def test_parse_bytes():
    texts = {"20GB": 20_000_000_000, "1.5 MB": 1_500_000, "4096": 4096, "3k": 3000, "1e9": 10**9, "0": 0, "7B": 7}
    assert {text: parse_bytes(text) for text in texts} == texts
    for bad in ("", "GB", "-1", "1GiB", "1 2"):
        with pytest.raises(ValueError, match="expected bytes"):
            parse_bytes(bad)


def test_budgets_in_each_form():
    needs = MemoryNeeds(gpu_bytes=100, slots_bytes=30, trainer_bytes=50)
    assert budgets(3, 1000, [0.5], None, needs) == [500] * 3
    assert budgets(2, 1000, [0.5, 2], None, needs) == [500, 2000]
    assert budgets(2, 1000, None, [7, 8], needs) == [7, 8]
    assert budgets(2, 1000, None, None, needs) == [20, 20]
    assert budgets(1, 1000, None, None, MemoryNeeds(60, 30, 50)) == [0]
    with pytest.raises(CohortError, match="the GPU's memory is unknown"):
        budgets(1, 1000, None, None, MemoryNeeds(None, 30, 50))
    assert misfits([20, 21], needs, 5, 5) and len(misfits([20, 21], needs, 6, 5)) == 2
    assert misfits([20, 20], needs, 5, 5) == [] and misfits([10**9], MemoryNeeds(None, 1, None), 5, 5) == []


@pytest.mark.parametrize(
    ("fanout", "arrays", "draws"),
    [
        ([4, 3], {}, {}),
        ([2, 2, 2], {"edge_ids": True}, {}),
        ([50, 50], {}, {}),
        ([-1], {}, {}),
        ([-1, 2], {"edge_ids": True}, {}),
        ([4, 3], {}, {"sampling": "labor", "importance_sampling": True}),
    ],
    ids=str,
)
def test_needs_are_what_a_sampler_allocates(short_rows, fanout, arrays, draws):
    """Needs know no layout: slots of the worst case to the byte, of the largest batch as if all nodes were targets."""
    seeds = np.arange(100)
    how = {"batch_size": 100, "device": "cpu", "num_slots": 2, **arrays, **draws}
    with NeighborLoader(short_rows, fanout, seeds, **how) as loader:
        (sizes,) = [(len(batch.n_id), batch.num_edges) for batch in loader]
        (slot,) = loader._sampler.run_folder.glob("slot-*")
        allocated = slot.stat().st_size
    meta = read_meta(short_rows)
    seen = [dict(zip(("max_batch_nodes", "max_batch_edges"), sizes, strict=True))]
    needs = memory_needs(SamplerSpec(fanout=fanout, batch_size=100, slots=2, **draws), meta, seen, **arrays)
    assert needs.graph_bytes == meta["num_nodes"] * (8 + 12)
    pool_rows = min(2 * min(sizes[0] * 5 // 4, meta["num_nodes"]), meta["num_nodes"])
    slots_bytes = needs.slots_bytes - pool_rows * (8 + 10)  # what is known of a place takes 10 bytes
    if -1 in fanout or draws:
        assert allocated <= slots_bytes // 2 <= allocated + 10 * (sizes[0] + 1)
    else:
        assert slots_bytes == 2 * allocated


def test_rows_of_different_length():
    reads = np.array([9, 30, 0, 0], np.uint32)
    zeros = np.zeros_like(reads)
    placed = plan(
        [PlanRows(4, np.array([64, 128, 64, 128], np.uint32))],
        [],
        Counts(10, reads, zeros, zeros.astype(np.uint64)),
        cliques=cliques_named("all", 2),
        budget_bytes=[16 + 8 + 2 * 8 + 64, 16 + 8 + 2 * 8 + 128],  # scratch, bitmap, entries, a row
        links=MEASURED,
        entry_bytes=8,
        scratch_bytes=16,
    )
    assert placed.gpu(0).features.nodes.tolist() == [0] and placed.gpu(1).features.nodes.tolist() == [1]
    assert placed.clique(0).features.nodes.tolist() == [1, 0] and placed.clique(0).features.owners.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("train_share", "batch_size", "flattery"),
    [
        pytest.param(0.6, 512, 1.1, id="batches that differ"),
        pytest.param(0.02, 128, 1.0, id="few seeds come again"),
    ],
)
def test_predicted_hits_come_true_in_other_batches(tmp_path, capsys, train_share, batch_size, flattery):
    """Hit rates of rows chosen by few batches, against other batches of the same seeds: deterministic, so no luck."""
    data = tmp_path / "data"
    shape = ["--kind", "powerlaw", "--nodes", "60000", "--edges", "900000", "--dim", "16"]
    assert main(["dataset", "generate", str(data), *shape, "--split-ratio", f"{train_share},0.1,0.1"]) == 0
    common = [data, "--fanout", "8,4", "--cliques", "all", "--num-gpus", 1, "--cache-ratio", 0.3]
    common += ["--bandwidth", "1500,360,51", "--batch-size", batch_size, "--presample-batches", 20]
    few = planned(capsys, *common, "--no-reuse")
    chosen_by = load_counts(few["counts"]["file"])
    reads, batches = np.zeros(60000), []
    train = np.load(data / "train_ids.npy")
    with NeighborLoader(data, [8, 4], train, batch_size=batch_size, shuffle=True, device="cpu", seed=1) as loader:
        for batch in loader:
            reads[batch.n_id.numpy()] += 1
            batches.append(batch.n_id.numpy().copy())
    common = {"cliques": [[0]], "links": MEASURED, "budget_bytes": [few["gpus"][0]["budget_bytes"]]}
    items = [PlanRows(60000, 64)], [PlanLists(np.load(data / "indptr.npy"), 4)]
    placed = plan(*items, chosen_by, **common)
    rows = placed.gpu(0).features.nodes
    assert len(rows) == few["gpus"][0]["features"]["rows"]
    predicted, achieved = few["gpus"][0]["features"]["hit_rate"]["local"], reads[rows].sum() / reads.sum()
    as_counted = chosen_by.node_reads[rows].sum() / chosen_by.node_reads.sum()
    assert predicted == pytest.approx(achieved, rel=0.04)
    assert as_counted > flattery * achieved, "the counts as they are would promise too much"
    beside_pool = plan(*items, chosen_by, **common, pool_slots=3).gpu(0)
    # Batches are taken for independent: a seed that comes once an epoch brings its rows once.
    assert hit_rates(beside_pool.feature_use)[3] == pytest.approx(found_share(batches, 3), abs=0.035)


def found_share(batches: list[np.ndarray], slots: int) -> float:
    """Of the rows that batches read, those that a pool for so many slots has once it is full; two are in use."""
    num_places = int(slots * 1.25 * np.mean([len(batch) for batch in batches]))
    place_of, node_of = np.full(60000, -1), np.full(num_places, -1)
    used_by, hand = np.full(num_places, -9), 0
    found, total = 0, 0
    for number, batch in enumerate(batches):
        places = place_of[batch]
        used_by[places[places >= 0]] = number
        missing = batch[places < 0]
        turn = (hand + np.arange(num_places)) % num_places
        given = turn[used_by[turn] < number - 1][: len(missing)]
        hand = (given[-1] + 1) % num_places if len(given) else hand
        left = node_of[given]
        place_of[left[left >= 0]] = -1
        node_of[given], place_of[missing], used_by[given] = missing, given, number
        if number > 2 * slots:
            found, total = found + len(batch) - len(missing), total + len(batch)
    return found / total
