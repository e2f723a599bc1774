"""`cohort dataset partition` on graphs whose communities are known."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from processes import hear_hangups

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset import _native, from_tensors, generate
from cohort_gnn.dataset.partitioning.partition import load_parts, partition, parts_file

metis = pytest.mark.skipif(not _native.has_metis(), reason="this build has no METIS (libmetis-dev)")
NUM_NODES = 12_000


def planted(out, num_communities: int, undirected: bool, seed: int = 0) -> None:
    """A graph in which 19 of 20 edges stay in a community; a node's label is its community."""
    random = np.random.default_rng(seed)
    community = random.integers(num_communities, size=NUM_NODES)
    dst = random.integers(NUM_NODES, size=8 * NUM_NODES)
    src = np.empty_like(dst)
    for i in range(num_communities):
        inside = community[dst] == i
        src[inside] = random.choice(np.flatnonzero(community == i), size=inside.sum())
    strays = random.random(len(dst)) < 0.05
    src[strays] = random.integers(NUM_NODES, size=strays.sum())
    if undirected:
        src, dst = np.concatenate([src, dst]), np.concatenate([dst, src])
    train = np.sort(random.permutation(NUM_NODES)[: NUM_NODES // 10])
    x = np.zeros((NUM_NODES, 1), np.uint8)
    from_tensors(out, x=x, y=community, edge_index=np.stack([src, dst]), train_ids=train)


@pytest.fixture(scope="module", params=["undirected", "directed"])
def graph(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("planted") / request.param
    planted(folder, 16, request.param == "undirected")
    return folder


@metis
@pytest.mark.parametrize("num_parts", [2, 4, 8])
def test_metis_cuts_planted_communities_5_times_better_than_random_and_streaming_as_well(graph, num_parts):
    cut = {method: partition(graph, num_parts, method).cut_edges for method in ("random", "streaming", "metis")}
    assert 0 < 5 * cut["metis"] <= cut["random"]
    assert cut["streaming"] <= 1.5 * cut["metis"]


@pytest.mark.parametrize("seed", range(5))
def test_streaming_finds_what_was_planted(tmp_path, seed):
    planted(tmp_path / "graph", 8, True, seed)
    found = partition(tmp_path / "graph", 2, "streaming")
    assert found.cut_edges <= 1.5 * 0.05 * 0.5 * found.num_edges  # a stray has even chances to stay
    assert max(found.nodes) <= 1.05 * NUM_NODES / 2 + 1
    assert max(found.train_nodes) <= 1.05 * NUM_NODES / 20 + 1


def test_the_command_prints_cut_and_balance_and_keeps_the_parts(graph, run, capsys):
    assert run("partition", graph, "--parts", 4, "--method", "streaming") == 0
    said = capsys.readouterr().out
    parts = load_parts(graph, 4)
    assert parts.dtype == np.int32 and set(np.unique(parts)) == {0, 1, 2, 3}
    indptr, indices = (np.load(graph / f"{name}.npy") for name in ("indptr", "indices"))
    cut = parts[indices] != np.repeat(parts, np.diff(indptr))
    assert f"edge cut     {100 * cut.mean():.2f} % of {len(indices):,} stored edges (random parts: 7" in said
    nodes = np.bincount(parts)
    assert f"{nodes.min():,} to {nodes.max():,} per part" in said
    train = np.bincount(parts[np.load(graph / "train_ids.npy")])
    assert re.search(rf"train nodes +{train.min():,} to {train.max():,} per part", said)
    assert str(parts_file(graph, 4)) in said


def test_the_same_seed_gives_the_same_file_and_another_seed_another(graph):
    def bytes_of(seed: int) -> bytes:
        partition(graph, 3, "random", seed)
        return parts_file(graph, 3).read_bytes()

    assert bytes_of(5) == bytes_of(5) != bytes_of(6)


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["--parts", "1"], "--parts: expected an integer in [2, 4096], found 1"),
        (["--parts", "-3"], "--parts: expected an integer in [2, 4096], found -3"),
        (["--parts", "5000"], "--parts: expected an integer in [2, 4096], found 5000"),
        (["--parts", "2", "--seed", "-1"], "--seed: expected an integer in [0, 2^64), found -1"),
        (["--parts", "2", "--memory", "1MB"], "--method streaming"),  # with METIS it is too little, else it is missing
    ],
)
def test_bad_input_says_what_to_do_and_writes_nothing(tmp_path, run, capsys, argv, text):
    planted(tmp_path / "graph", 4, True)
    before = sorted(tmp_path.rglob("*"))
    assert run("partition", tmp_path / "graph", *argv) == 1
    assert text in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*")) == before


def test_one_node_is_not_divided(tmp_path, run, capsys):
    generate(tmp_path / "graph", kind="sbm", nodes=1, edges=1, dim=2, classes=1)
    assert run("partition", tmp_path / "graph", "--parts", 2) == 1
    assert "expected at least 2 nodes to divide, found 1" in capsys.readouterr().err


def test_a_data_set_that_is_none(tmp_path, run, capsys):
    assert run("partition", tmp_path / "nowhere", "--parts", "2") == 1
    assert "nowhere" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        (None, "no such file"),
        (np.zeros(7, np.int32), f"expected int32 [{NUM_NODES}], found int32 [7]"),
        (np.zeros(NUM_NODES, np.int64), "found int64"),
        (np.full(NUM_NODES, 2, np.int32), "expected parts in [0, 2), found 2 .. 2"),
        (np.full(NUM_NODES, None), "found another file"),
    ],
)
def test_parts_of_another_data_set_are_refused(tmp_path, parts, text):
    planted(tmp_path / "graph", 4, True)
    if parts is not None:
        np.save(parts_file(tmp_path / "graph", 2), parts)
    with pytest.raises(CohortError, match=re.escape(text)) as error:
        load_parts(tmp_path / "graph", 2)
    assert "cohort dataset partition" in error.value.hint


def test_a_folder_that_cannot_be_written_is_reported(graph, monkeypatch):
    def refuse(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("cohort_gnn.base.files.os.replace", refuse)
    with pytest.raises(CohortError, match="No space left on device"):
        partition(graph, 6, "random")
    assert not list(graph.glob("partition-6*"))


def children(pid: int) -> list[int]:
    """Those of a process that runs."""
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for task in tasks for child in task.read_text().split()]


@pytest.fixture(scope="module")
def dense(tmp_path_factory):
    """METIS takes seconds for it."""
    out = tmp_path_factory.mktemp("dense") / "graph"
    generate(out, kind="powerlaw", nodes=100_000, edges=1_500_000, dim=1, classes=2)
    return out


@metis
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_metis(dense, number):
    """METIS catches SIGTERM with a longjmp, which crashed the command."""
    command = [sys.executable, "-m", "cohort_gnn", "dataset", "partition", dense, "--parts", "64"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, preexec_fn=hear_hangups)
    while process.poll() is None and not (own := children(process.pid)):
        time.sleep(0.01)
    process.send_signal(number)
    said = process.communicate()[1]
    assert process.returncode == 128 + number and said == ""
    assert not any(Path(f"/proc/{child}").exists() for child in own) and not parts_file(dense, 64).exists()


@metis
def test_the_end_of_the_process_of_metis_is_reported(dense):
    others = set(children(os.getpid()))

    def end() -> None:
        while not (own := set(children(os.getpid())) - others):
            time.sleep(0.01)
        for child in own:
            os.kill(child, signal.SIGKILL)

    killer = threading.Thread(target=end)
    killer.start()
    with pytest.raises(
        CohortError, match=r"expected a partition, found the end of its process(.|\n)*--method streaming"
    ):
        partition(dense, 32, "metis")
    killer.join()
    assert not parts_file(dense, 32).exists()
