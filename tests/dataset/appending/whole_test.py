"""An append is whole or was not: kills, readers that have the data set open or open it, and a second writer."""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from processes import ALL_TESTS, here, refused
from random_graphs import files_of

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset import append, changes_since, check, import_graph, state_of, write_links
from cohort_gnn.dataset import open as open_dataset
from cohort_gnn.dataset.importing.beside import SourceOptions

KILLS = 50 if ALL_TESTS else 4
NODES, DIM, MORE = 2_000, 4, 100
PROGRAM = """
import sys
from pathlib import Path
from cohort_gnn.dataset import append
from cohort_gnn.dataset.importing.beside import SourceOptions
print("at work", flush=True)
append(sys.argv[1], edges=sys.argv[2], inputs=SourceOptions(features=Path(sys.argv[3])), memory=16_000_000)
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    """old and new: data sets before and after; edges.npy and x.npy: what is appended."""
    root, generator = tmp_path_factory.mktemp("whole"), np.random.default_rng(0)
    np.save(root / "graph.npy", generator.integers(NODES, size=(2, 60_000)))
    np.save(root / "edges.npy", generator.integers(NODES + MORE, size=(2, 6_000)))
    np.save(root / "rows.npy", generator.normal(size=(NODES, DIM)).astype(np.float32))
    np.save(root / "x.npy", generator.normal(size=(MORE, DIM)).astype(np.float32))
    import_graph(root / "graph.npy", root / "old", inputs=SourceOptions(features=root / "rows.npy"), undirected=True)
    shutil.copytree(root / "old", root / "new")
    append_to(root, root / "new")
    return root


def append_to(root: Path, data: Path) -> None:
    append(data, edges=root / "edges.npy", inputs=SourceOptions(features=root / "x.npy"))


def test_a_kill_at_any_moment_leaves_the_old_data_set_or_the_new_one(root, tmp_path):
    data, seen = tmp_path / "data", set()
    old, new = ({**files_of(root / name)} for name in ("old", "new"))
    generator, span = random.Random(0), 0.2
    for kill in range(KILLS):
        shutil.rmtree(data, ignore_errors=True)
        shutil.copytree(root / "old", data)
        command = [sys.executable, "-c", PROGRAM, data, root / "edges.npy", root / "x.npy"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        process.stdout.readline()
        begin = time.monotonic()
        if kill:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(span * generator.random())
            process.send_signal(signal.SIGKILL)
        process.wait()
        span = span if kill else time.monotonic() - begin
        process.stdout.close()
        files = files_of(data)
        assert files in (old, new) and check(data) == []
        seen.add(files == new)
    append_to(root, data)
    assert [path.name for path in tmp_path.iterdir()] == ["data"], "what killed processes left is removed"
    assert True in seen


def test_readers_keep_what_they_opened_and_open_one_of_the_two(root, tmp_path):
    data = tmp_path / "data"
    shutil.copytree(root / "old", data)
    before = open_dataset(data)
    arrays = [np.array(array) for array in (before.indptr, before.indices, before.x)]
    counts, failures, ended = set(), [], threading.Event()

    def read() -> None:
        while not ended.is_set():
            try:
                graph = open_dataset(data)
                shapes = graph.num_nodes, graph.num_edges
                assert (len(graph.x), int(graph.indptr[-1])) == shapes and len(graph.indices) == graph.num_edges
                counts.add(shapes)
            except Exception as error:  # noqa: BLE001 (told below)
                failures.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        while not counts and not failures:
            time.sleep(0.001)
        append_to(root, data)
        shapes = [(graph.num_nodes, graph.num_edges) for graph in (before, open_dataset(data))]
        while counts != set(shapes) and not failures:
            time.sleep(0.001)
    finally:
        ended.set()
        reader.join()
    assert failures == []
    for kept, array in zip(arrays, (before.indptr, before.indices, before.x), strict=True):
        assert np.array_equal(kept, array)


def test_a_second_writer_is_refused(root, tmp_path):
    data = tmp_path / "data"
    shutil.copytree(root / "old", data)
    descriptor = os.open(data, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    with pytest.raises(CohortError, match="expected one append at a time, found another that is at it"):
        append_to(root, data)
    os.close(descriptor)
    append_to(root, data)
    assert files_of(data) == files_of(root / "new")


@pytest.mark.parametrize(
    "words, within",
    [
        (["partition", "DATA", "--parts", 2], "dataset.partitioning.partition._measured"),
        (["split-links", "DATA", "OUT"], "dataset.link_split._write_rest"),
        (["prepare", "DATA", "--codec", "raw"], "launch.data.prepare.encode_rows"),
        (["prepare", "DATA", "--codec", "raw", "--reorder", "degree"], "launch.data.prepare.renumber"),
        (["prepare", "DATA", "--codec", "raw", "--drop-raw"], "launch.data.prepare._drop_raw"),
        (["shard", "DATA", "--parts", 2], "launch.data.shard.RowsToEncode"),
        (["derive", "TYPED", "author", "--mean-of", "paper", "--over", "writes"], "launch.data.derive._means"),
    ],
)
def test_a_command_notices_that_another_has_replaced_its_data_set(root, tmp_path, monkeypatch, words, within):
    """As an append does; here with equal files, so that nothing but the folder itself shows it."""
    data, module = tmp_path / "data", importlib.import_module("cohort_gnn." + within.rpartition(".")[0])
    if "TYPED" in words:
        sizes = ["--nodes", 300, "--edges", 2000, "--dim", DIM, "--classes", 2]
        assert here("dataset", "generate", data, "--kind", "typed", *sizes).returncode == 0
    else:
        shutil.copytree(root / "old", data)
    if "shard" in words:
        assert here("dataset", "prepare", data, "--codec", "exponent").returncode == 0
    name = within.rpartition(".")[2]
    inner = getattr(module, name)

    def replace_and_go_on(*arguments, **named):
        shutil.copytree(data, tmp_path / "new", copy_function=os.link)
        data.rename(tmp_path / "before")
        (tmp_path / "new").rename(data)
        return inner(*arguments, **named)

    monkeypatch.setattr(module, name, replace_and_go_on)
    places = {"DATA": data, "TYPED": data, "OUT": tmp_path / "out"}
    done = here("dataset", *(places.get(word, word) for word in words))
    refused(done, 1, f"{data}: expected a data set that stays as it is, found one that another command has replaced")
    new = {file for file in files_of(data) if file not in files_of(tmp_path / "before")}
    assert not (tmp_path / "out").exists() and not new and check(data) == []
    assert "TYPED" in words or (data / "features.npy").exists()


def test_derived_files_come_along_where_they_fit(root, tmp_path):
    data = tmp_path / "data"
    shutil.copytree(root / "old", data)
    old = open_dataset(data)
    source = np.setdiff1d(np.arange(NODES), old.indices[old.indptr[1] : old.indptr[2]])[0]
    np.save(tmp_path / "pair.npy", np.array([[source], [1]]))
    write_links(data, val=([[source, 1]], [[5]]), test=([[source, 2]], [[5]]))
    for command in (["prepare", data], ["partition", data, "--parts", 2, "--method", "random"]):
        assert here("dataset", *command).returncode == 0
    encoded = (data / "prepared" / "features.ibp").read_bytes()
    done = here("dataset", "append", data, "--edges", tmp_path / "pair.npy")
    assert "1 of 1 val links are edges of the graph" in done.stderr and "test links" not in done.stderr
    assert "left out" not in done.stderr and open_dataset(data).encoded_rows.read_bytes() == encoded
    assert len(np.load(data / "partition-2.npy")) == NODES
    more = ["--edges", root / "edges.npy", "--features", root / "x.npy"]
    done = here("dataset", "append", data, *more)
    for name, again in (("prepared", f"prepare {data}"), ("partition-2.npy", f"partition {data} --parts 2")):
        assert f"{name} is left out, which does not fit any more; cohort dataset {again} makes it again" in done.stderr
        assert not (data / name).exists()
    assert here("dataset", "check", data).returncode == 0
    assert here("dataset", "prepare", data, "--codec", "raw", "--drop-raw").returncode == 0
    refused(here("dataset", "append", data, *more), 1, "found only encoded ones", "cohort ibp decode")
    (data / "appended" / "1.npy").write_bytes((data / "labels.npy").read_bytes())
    refused(here("dataset", "check", data), 1, f"expected ascending nodes in [0, {NODES + MORE})")


def test_states_are_told_apart_and_steps_add_up(root, tmp_path):
    data = tmp_path / "data"
    shutil.copytree(root / "old", data)
    states, edges = [state_of(data)], [np.array([[0, 1], [5, 7]]), np.array([[2], [5]])]
    for number, pairs in enumerate(edges):
        np.save(tmp_path / f"{number}.npy", pairs)
        append(data, edges=tmp_path / f"{number}.npy", memory=16_000_000)
        states.append(state_of(data))
    assert len(set(states)) == 3
    since = [changes_since(data, state).changed_lists for state in states]
    last = set(np.concatenate([*since[1].values()]).tolist())
    assert last <= {2, 5} and since[2] == {}
    assert last <= set(np.concatenate([*since[0].values()]).tolist()) <= {0, 1, 2, 5, 7}
    with pytest.raises(CohortError, match="expected a state that the data set once had, found another"):
        changes_since(data, "0" * 32)
