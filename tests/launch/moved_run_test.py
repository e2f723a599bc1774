"""Runs whose folder was moved or copied, or whose data set has changed, go on there or say why not."""

import json
import shutil

import pytest
from processes import cohort, refused
from resumable import OPTIONS

from cohort.launch.resume import ASIDE, bring_back, set_aside

pytestmark = pytest.mark.usefixtures("shm")


@pytest.fixture(scope="module")
def run(graph, tmp_path_factory, shm):
    """A run of two epochs with a cache."""
    out = tmp_path_factory.mktemp("moved") / "run"
    options = ["--epochs", 2, "--cache-ratio", 0.2, "--profile", "--quiet", "--out", out]
    done = cohort("train", graph, *OPTIONS, *options)
    assert done.returncode == 0, done.stderr
    return out


def test_a_copy_writes_into_its_own_folder(run, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    before = {path.name: path.stat().st_mtime_ns for path in run.iterdir()}
    again = cohort("train", "--resume", copy, "--epochs", 3, "--quiet")
    assert again.returncode == 0, again.stderr
    assert "--profile: a run that goes on makes no trace" in again.stderr
    assert before == {path.name: path.stat().st_mtime_ns for path in run.iterdir()}
    assert json.loads((copy / "run.json").read_text())["sampler"]["plan_file"] == str(copy / "plan.json")


def test_a_moved_run_goes_on(run, tmp_path):
    shutil.copytree(run, tmp_path / "old")
    run_json = json.loads((run / "run.json").read_text())
    run_json["sampler"]["plan_file"] = str(tmp_path / "nowhere" / "plan.json")
    (tmp_path / "old" / "run.json").write_text(json.dumps(run_json))
    (tmp_path / "old").rename(tmp_path / "new")
    again = cohort("train", "--resume", tmp_path / "new", "--quiet")
    assert again.returncode == 0, again.stderr


def test_counts_that_are_gone_can_be_made_again(run, graph, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    for file in graph.glob("hotness-*"):
        file.rename(tmp_path / file.name)
    again = cohort("train", "--resume", copy, "--quiet")
    refused(again, 1, "expected the counts that the cache is planned by, found none", "hint: make them again: ")
    command = again.stderr.partition("make them again: cohort ")[2].split()
    planned = cohort(*command, "--cache-ratio", 0.2)
    assert planned.returncode == 0, planned.stderr
    assert cohort("train", "--resume", copy, "--quiet").returncode == 0


def test_options_of_another_version_are_named(run, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    run_json = json.loads((run / "run.json").read_text())
    run_json["trainer"]["colour"] = "red"
    (copy / "run.json").write_text(json.dumps(run_json))
    again = cohort("train", "--resume", copy, "--quiet")
    refused(again, 1, "run.json: expected the options that this version knows", "'colour'")


def test_nothing_of_an_earlier_run_is_left(tmp_path):
    (tmp_path / "tensorboard").mkdir()
    for name in ("summary.json", "trainer-1.log", "tensorboard/events.out.tfevents.1", "report-hits.png"):
        (tmp_path / name).touch()
    for name in ("tensorboard/mine", "notes.txt"):
        (tmp_path / name).touch()
    with set_aside(tmp_path, is_said=False):
        left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
        assert left == {"tensorboard/mine", "notes.txt", f"{ASIDE}/summary.json"}
        (tmp_path / "metrics.jsonl").touch()
    assert not (tmp_path / ASIDE).exists() and not (tmp_path / "summary.json").exists()


def test_results_that_a_killed_start_has_set_aside_come_back(tmp_path):
    (tmp_path / "run.json").write_text("new")
    (tmp_path / ASIDE).mkdir()
    for name in ("run.json", "metrics.jsonl"):
        (tmp_path / ASIDE / name).write_text("old")
    bring_back(tmp_path)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"run.json": "old", "metrics.jsonl": "old"}


def test_a_world_that_has_no_size(graph, tmp_path):
    import os

    env = os.environ | {"WORLD_SIZE": ""}
    options = [*OPTIONS, "--epochs", 1, "--quiet", "--out", tmp_path / "run"]
    done = cohort("train", graph, *options, env=env)
    assert done.returncode == 0, done.stderr
