"""Runs whose folder was moved or copied, or whose data set has changed, go on there or say why not."""

import contextlib
import json
import os
import shutil

import numpy as np
import pytest
from processes import beginning_with, cohort, here, ran, refused
from resumable import OPTIONS

from cohort_gnn.dataset import digests as file_digests
from cohort_gnn.launch.run.resume import ASIDE, bring_back, set_aside

pytestmark = pytest.mark.usefixtures("shm")


@pytest.fixture(scope="module")
def run(graph, tmp_path_factory, shm):
    """A run of two epochs with a cache."""
    out = tmp_path_factory.mktemp("moved") / "run"
    options = ["--epochs", 2, "--cache-ratio", 0.2, "--profile", "--quiet", "--out", out]
    ran("train", graph, *OPTIONS, *options)
    return out


def test_a_copy_writes_into_its_own_folder(run, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    before = {path.name: path.stat().st_mtime_ns for path in run.iterdir()}
    ran("train", "--resume", copy, "--epochs", 3, "--quiet")
    assert before == {path.name: path.stat().st_mtime_ns for path in run.iterdir()}
    assert json.loads((copy / "run.json").read_text())["sampler"]["plan_file"] == str(copy / "plan.json")


def test_a_moved_run_goes_on(run, tmp_path):
    shutil.copytree(run, tmp_path / "old")
    run_json = json.loads((run / "run.json").read_text())
    run_json["sampler"]["plan_file"] = str(tmp_path / "nowhere" / "plan.json")
    (tmp_path / "old" / "run.json").write_text(json.dumps(run_json))
    (tmp_path / "old").rename(tmp_path / "new")
    ran("train", "--resume", tmp_path / "new", "--quiet")


def test_counts_that_are_gone_are_made_again(run, graph, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    for file in graph.glob("hotness-*"):
        file.rename(tmp_path / file.name)
    again = ran("train", "--resume", copy, "--quiet")
    assert f"for the cache: {graph}/hotness-" in again.stderr


@pytest.mark.parametrize("what", ["splits", "labels", "edges", "features"])
def test_a_data_set_that_has_changed_is_refused_and_the_run_still_goes_on(run, graph, tmp_path, what):
    copy, data = tmp_path / "copy", tmp_path / "data"
    shutil.copytree(run, copy)
    shutil.copytree(graph, data, ignore=shutil.ignore_patterns("hotness-*"))  # counts are missing, too
    file = data / {"splits": "val_ids.npy", "edges": "indices.npy"}.get(what, f"{what}.npy")
    np.save(file, np.load(file)[::-1])
    again = here("train", "--resume", copy, data, "--quiet")
    words = f"{data}: expected the data set that the run was started on, found one with other {what}"
    refused(again, 1, words, "hint: name the folder of that data set; if its files were replaced, start a new run")
    assert "to continue" not in again.stderr
    ran("train", "--resume", copy, "--epochs", 3, "--quiet")


def test_a_data_set_that_was_encoded_meanwhile_is_the_same(run, graph, tmp_path):
    copy, data = tmp_path / "copy", tmp_path / "data"
    shutil.copytree(run, copy)
    shutil.copytree(graph, data)
    ran("dataset", "prepare", data, "--codec", "raw", "--drop-raw")
    ran("train", "--resume", copy, data, "--epochs", 3, "--quiet")


def test_parts_and_orders_that_were_not_copied_are_missed(graph, tmp_path):
    out, data = tmp_path / "run", tmp_path / "data"
    order, other = tmp_path / "order.npy", tmp_path / "other.npy"
    shutil.copy(graph / "labels.npy", order)
    np.save(other, np.load(order)[::-1])
    options = ["--ranks", 2, "--partition", "--cliques", "none", "--seed-order", order]
    ran("train", graph, *OPTIONS, *options, "--epochs", 1, "--quiet", "--out", out)
    moved = order.rename(tmp_path / "moved.npy")
    go_on = "train", "--resume", out, "--epochs", 2, "--quiet"
    refused(here(*go_on), 1, f"--seed-order: expected a file with the community of each node, found no file {order}")
    refused(
        here(*go_on, "--seed-order", other),
        1,
        f"the communities that the run was started with, found others in {other}",
    )
    ran(*go_on, "--seed-order", os.path.relpath(moved))
    shutil.copytree(graph, data, ignore=shutil.ignore_patterns("partition*"))
    again = here(*go_on[:3], data, "--quiet")
    refused(again, 1, "partition-2.npy: expected the parts that the run was started with, found no such file")


def test_weights_of_classes_may_move_and_not_change(graph, tmp_path):
    out, weights, moved = tmp_path / "run", tmp_path / "weights.npy", tmp_path / "moved.npy"
    np.save(weights, np.arange(1.0, 6.0))
    ran("train", graph, *OPTIONS, "--class-weights", weights, "--epochs", 1, "--quiet", "--out", out)
    before = (out / "run.json").read_text()
    go_on = "train", "--resume", out, "--epochs", 2, "--quiet"
    weights.rename(moved)
    refused(here(*go_on), 1, f"--class-weights {weights}: expected 5 numbers", "found no such file")
    np.save(weights, np.ones(5))
    for more in ([], ["--class-weights", os.path.relpath(weights)]):
        words = "--class-weights: expected the weights that the run was started with, found others in /"
        refused(here(*go_on, *more), 1, words)
    assert (out / "run.json").read_text() == before
    ran(*go_on, "--class-weights", os.path.relpath(moved))


def test_pieces_of_large_files_are_compared(tmp_path, monkeypatch):
    monkeypatch.setattr(file_digests, "WHOLE_BYTES", 1000)
    monkeypatch.setattr(file_digests, "PIECE_BYTES", 20)
    file, digests = tmp_path / "file", []
    for change in ([], [0], [9999], [100]):
        content = bytearray(10_000)
        for place in change:
            content[place] = 1
        file.write_bytes(content)
        digests.append(file_digests.digest_of_files([file]))
    assert len(set(digests)) == 3 and digests[3] == digests[0], "the third change is between two pieces"


def test_options_of_another_version_are_named(run, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    run_json = json.loads((run / "run.json").read_text())
    run_json["trainer"]["colour"] = "red"
    (copy / "run.json").write_text(json.dumps(run_json))
    again = here("train", "--resume", copy, "--quiet")
    refused(again, 1, "run.json: expected options that this version knows, found colour")


def test_nothing_of_an_earlier_run_is_left(tmp_path):
    (tmp_path / "tensorboard").mkdir()
    for name in ("run.json", "summary.json", "trainer-1.log", "tensorboard/events.out.tfevents.1", "report-hits.png"):
        (tmp_path / name).touch()
    for name in ("tensorboard/mine", "notes.txt"):
        (tmp_path / name).touch()
    with set_aside(tmp_path, is_said=False):
        left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
        assert left == {"tensorboard/mine", "notes.txt", f"{ASIDE}/run.json", f"{ASIDE}/summary.json"}
        for name in ("run.json", "metrics.jsonl"):
            (tmp_path / name).touch()
    assert not (tmp_path / ASIDE).exists() and not (tmp_path / "summary.json").exists()


@pytest.mark.parametrize("moved", [ASIDE, ""])
def test_results_that_a_killed_start_has_set_aside_come_back(tmp_path, moved):
    """Whether it had written anything, or had not moved all."""
    (tmp_path / ASIDE).mkdir()
    (tmp_path / ASIDE / "run.json").write_text("old")
    (tmp_path / moved / "metrics.jsonl").write_text("old")
    if moved:
        (tmp_path / "run.json").write_text("new")
    bring_back(tmp_path)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"run.json": "old", "metrics.jsonl": "old"}


@pytest.mark.parametrize("moves", range(5))
def test_results_that_come_back_are_not_lost_over_a_kill(tmp_path, monkeypatch, moves):
    old = {name: "old" for name in ("run.json", "metrics.jsonl", "checkpoint.pt", "model.pt")}
    (tmp_path / "run.json").write_text("new")
    (tmp_path / ASIDE).mkdir()
    for name in old:
        (tmp_path / ASIDE / name).write_text("old")
    replace, left = os.replace, iter(range(moves))

    def replace_till_killed(*paths):
        if next(left, None) is None:
            raise KeyboardInterrupt
        replace(*paths)

    with monkeypatch.context() as killed, contextlib.suppress(KeyboardInterrupt):
        killed.setattr(os, "replace", replace_till_killed)
        bring_back(tmp_path)
    bring_back(tmp_path)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == old


def test_a_killed_start_over_a_run_leaves_it_to_be_resumed(run, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    (copy / ASIDE).mkdir()
    for name in ("run.json", "summary.json", "metrics.jsonl", "checkpoint.pt", "model.pt"):
        (copy / name).rename(copy / ASIDE / name)
    ran("train", "--resume", copy, "--epochs", 3, "--quiet")
    assert len((copy / "metrics.jsonl").read_text().splitlines()) == 3


def test_a_world_that_has_no_size(graph, tmp_path):
    env = os.environ | {"WORLD_SIZE": ""}
    options = [*OPTIONS, "--epochs", 1, "--quiet", "--out", tmp_path / "run"]
    ran("train", graph, *options, env=env)


REPLACING = """
import os, sys, time
if "cohort_gnn.trainer" in sys.orig_argv:
    while not os.path.exists({run_json!r}):
        time.sleep(0.005)
    os.symlink({new!r}, {data!r} + ".new")
    os.replace({data!r} + ".new", {data!r})
"""


def test_a_data_set_that_is_replaced_as_a_run_starts_is_noticed(graph, tmp_path):
    """By an equal one, of which nothing but the folder itself differs."""
    data, out = tmp_path / "data", tmp_path / "out"
    shutil.copytree(graph, tmp_path / "new")
    data.symlink_to(graph)
    text = REPLACING.format(run_json=str(out / "run.json"), new=str(tmp_path / "new"), data=str(data))
    done = cohort("train", data, *OPTIONS, "--epochs", 1, "--out", out, env=beginning_with(text, tmp_path))
    refused(done, 1, f"{data}: expected a data set that stays as it is, found one that another command has replaced")
