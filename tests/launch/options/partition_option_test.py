"""--partition: cliques of GPUs that train on the seeds of parts of their own, and plan for them."""

import json

import numpy as np
import pytest
from processes import here, ran, refused

from cohort_gnn.cache.planner import Counts, PlanLinks, PlanLists, PlanRows, load_counts, plan
from cohort_gnn.dataset import from_tensors
from cohort_gnn.dataset.partitioning.partition import parts_file
from cohort_gnn.launch.main import main
from cohort_gnn.launch.options.partition import cliques_of_ranks, describe_gain
from cohort_gnn.trainer.loop.seed_parts import seeds_by_rank

NUM_NODES, NUM_COMMUNITIES, DIM = 8000, 8, 64
SHAPE = ["--fanout", "6,4", "--batch-size", 100]
PLAN = [*SHAPE, "--cache-ratio", 0.2, "--no-reuse", "--topology", "gpu"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Communities in which 19 of 20 edges stay; divided into 2 parts, by hand: what METIS finds is tested elsewhere."""
    random = np.random.default_rng(1)
    community = random.integers(NUM_COMMUNITIES, size=NUM_NODES)
    members = [np.flatnonzero(community == i) for i in range(NUM_COMMUNITIES)]
    dst = random.integers(NUM_NODES, size=10 * NUM_NODES)
    src = np.array([random.choice(members[i]) for i in community[dst]])
    strays = random.random(len(dst)) < 0.05
    src[strays] = random.integers(NUM_NODES, size=strays.sum())
    ids = random.permutation(NUM_NODES)
    splits = [np.sort(ids[:2000]), np.sort(ids[2000:2400]), np.sort(ids[2400:2800])]
    x = random.random((NUM_NODES, DIM), dtype=np.float32)
    x[np.arange(NUM_NODES), community] += 1
    out = tmp_path_factory.mktemp("parts") / "data"
    ids = dict(zip(("train_ids", "val_ids", "test_ids"), splits, strict=True))
    from_tensors(out, x=x, y=community, edge_index=np.stack([src, dst]), **ids)
    np.save(parts_file(out, 2), (community >= NUM_COMMUNITIES // 2).astype(np.int32))
    return out


def planned(capsys, data, *arguments) -> dict:
    assert main(["plan", *map(str, [data, *PLAN, *arguments]), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def hits(result: dict) -> float:
    """The mean share of row reads that a GPU of the clique serves."""
    return float(np.mean([1 - gpu["features"]["hit_rate"]["host"] for gpu in result["gpus"]]))


@pytest.mark.parametrize(("gpus", "cliques"), [(2, "none"), (4, "2x2")])
def test_the_hit_rate_of_two_cliques_rises(data, capsys, gpus, cliques):
    without = planned(capsys, data, "--num-gpus", gpus, "--cliques", cliques)
    result = planned(capsys, data, "--num-gpus", gpus, "--cliques", cliques, "--partition")
    assert hits(result) > 1.3 * hits(without) > 0
    gain = result["partition"]
    assert np.mean(gain["with_parts"]) == pytest.approx(hits(result))
    assert np.mean(gain["without"]) == pytest.approx(hits(without))
    files = [each["file"] for each in result["counts"]["cliques"]]
    assert len(set(files)) == 2 and without["counts"]["file"] not in files


def test_the_gain_is_printed(data, capsys):
    arguments = [data, *PLAN, "--num-gpus", 2, "--cliques", "none", "--partition"]
    assert main(["plan", *map(str, arguments)]) == 0
    said = capsys.readouterr().out
    result = planned(capsys, data, "--num-gpus", 2, "--cliques", "none", "--partition")
    assert describe_gain(**result["partition"]) in said and "counts of clique 1" in said
    assert describe_gain([0.5, 0.7], [0.4, 0.4]).endswith(
        "60.0 % of the rows read are in GPU memory, 40.0 % without (+20.0)"
    )


def test_each_clique_counts_the_batches_of_its_seeds(data, capsys):
    result = planned(capsys, data, "--num-gpus", 2, "--cliques", "none", "--partition")
    train, parts = np.load(data / "train_ids.npy"), np.load(parts_file(data, 2))
    for part, source in enumerate(result["counts"]["cliques"]):
        expansions = load_counts(source["file"]).expansions
        assert (expansions[train[parts[train] == part]] >= 2).all()  # in both counted epochs
        assert source["batches"] == 2 * -(-np.count_nonzero(parts[train] == part) // 100)


def test_counts_of_cliques_come_with_promises_of_their_own():
    reads = np.array([4, 1, 0, 0], np.uint32)
    counts = Counts(10, reads, 0 * reads, (0 * reads).astype(np.uint64))
    lucky = Counts(10, reads, 0 * reads, (0 * reads).astype(np.uint64), promised=([1, 1, 1, 1, 1], ()))
    common = {"cliques": [[0], [1]], "budget_bytes": [24 + 72, 24 + 72], "links": PlanLinks((1500e9, 360e9, 51e9))}
    items = [PlanRows(4, 64)], [PlanLists(np.arange(5), 4)]
    placed = plan(*items, [counts, lucky], **common)
    of_one = [plan(*items, each, **common) for each in (counts, lucky)]
    assert [placed.gpu(i).seconds for i in (0, 1)] == [of_one[i].gpu(i).seconds for i in (0, 1)]
    assert 0 < placed.gpu(0).seconds < 0.5 * placed.gpu(1).seconds  # the row it holds promises no more than others


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--num-gpus", "2", "--cliques", "all"], "at least two cliques of GPUs, found one"),
        (["--num-gpus", "3", "--cliques", "none"], "cohort dataset partition"),
        (["--num-gpus", "2", "--cliques", "none", "--cache-policy", "degree"], "--cache-policy plan"),
    ],
)
def test_what_cannot_be_planned_says_why(data, arguments, text):
    refused(here("plan", data, *PLAN, "--partition", *arguments), 1, text)


def test_a_part_without_seeds_is_refused(data):
    np.save(parts_file(data, 4), np.zeros(NUM_NODES, np.int32))
    arguments = ["--num-gpus", "4", "--cliques", "none", "--partition"]
    refused(here("plan", data, *PLAN, *arguments), 1, "found none in part 1")


def test_ranks_get_the_seeds_of_their_cliques_part_each_once(data):
    train, parts = np.load(data / "train_ids.npy"), np.load(parts_file(data, 2))
    cliques = [[0, 2], [1, 3, 4]]
    seeds, sizes = seeds_by_rank(train, str(parts_file(data, 2)), cliques)
    assert sorted(seeds) == sorted(train) and sum(sizes) == len(train)
    own = np.split(seeds, np.cumsum(sizes)[:-1])
    for part, ranks in enumerate(cliques):
        num_seeds = np.count_nonzero(parts[train] == part)
        for rank in ranks:
            assert (parts[own[rank]] == part).all()
            assert 0.8 < sizes[rank] * len(ranks) / num_seeds < 1.2


def test_cliques_of_ranks():
    machine = {"cliques": [[0, 1, 4], [2, 3]]}
    assert cliques_of_ranks("auto", [3, 4, 0], True, machine) == [[0], [1, 2]]
    assert cliques_of_ranks("auto", [0, 1, 2], False) == [[0], [1], [2]]
    assert cliques_of_ranks("1+2", [5, 6, 7], True, machine) == [[0], [1, 2]]
    all_of_16 = {"cliques": [list(range(16))]}
    assert cliques_of_ranks("auto", list(range(16)), True, all_of_16) == [list(range(8)), list(range(8, 16))]
    assert cliques_of_ranks("auto", list(range(5, 14)), True, all_of_16) == [list(range(8)), [8]]


@pytest.mark.usefixtures("shm")
def test_training_on_parts_sees_every_seed_once_and_caches_for_each_clique(data, tmp_path):
    out = tmp_path / "run"
    options = ["--device", "cpu", "--ranks", 3, "--cliques", "1+2", "--partition", "--cache-ratio", 0.2, "--seed", 3]
    shape = [*SHAPE, "--hidden", 32, "--epochs", 4, "--lr", 0.02, "--dropout", 0]
    ran("train", data, *options, *shape, "--out", out)
    run, summary = (json.loads((out / name).read_text()) for name in ("run.json", "summary.json"))
    assert run["trainer"]["parts"] == {"parts": str(parts_file(data, 2)), "cliques": [[0], [1, 2]]}
    first, second, third = run["sampler"]["rank_hotness"]
    assert first != second == third and "hotness" not in run["sampler"]
    _, sizes = seeds_by_rank(np.load(data / "train_ids.npy"), **run["trainer"]["parts"])
    for epoch in summary["epochs"]:
        assert epoch["num_seeds"] == sum(sizes) == 2000
        assert [rank["num_batches"] for rank in epoch["ranks"]] == [-(-size // 100) for size in sizes]
    assert summary["epochs"][-1]["loss"] < 0.9 * summary["epochs"][0]["loss"]
    predicted = [each["hit_rate"]["local"] + each["hit_rate"]["peer"] for each in summary["cache"]["predicted"]]
    assert min(predicted) > 0.1
