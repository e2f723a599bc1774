"""Arguments that no program could take are refused as arguments, before anything is removed or counted."""

import logging
import subprocess

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from processes import here, refused

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset.reader import is_dataset
from cohort_gnn.launch import main
from cohort_gnn.launch.options.parser import given_in
from cohort_gnn.launch.run import mps
from cohort_gnn.launch.run import programs as runs
from cohort_gnn.launch.run import script as run_script
from cohort_gnn.launch.run.stopping import Stopped
from cohort_gnn.launch.tune import output as tune_output
from cohort_gnn.launch.tune.trial import _cause_in
from cohort_gnn.spec.run import RunSpec


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--batch-size 1000000000000", "expected at most 2,147,483,647"),
        ("--fanout 5,99999999999", "expected one integer a hop, each -1 (all) or at least 0"),
        ("--epochs 3000000000", "expected at most 2,147,483,647"),
        ("--cache-bytes 9223372036854775808", "expected less than 2^63 bytes"),
        ("--cache-bytes 1e40", "expected less than 2^63 bytes"),
        ("--seed 9223372036854775808", "expected at most 9,223,372,036,854,775,807"),
        ("--lr 1e300", "expected at most 1,000,000,000"),
        ("--weight-decay 1e300", "expected at most 1,000,000,000"),
    ],
)
def test_numbers_that_are_too_large(capsys, arguments, words):
    with pytest.raises(SystemExit) as stop:
        main.main(["train", "data", *arguments.split()])
    assert stop.value.code == 2 and words in capsys.readouterr().err


@pytest.mark.parametrize("command", ["tune data --minutes 1e307", "inspect run --watch 1e308"])
def test_times_that_are_too_long(capsys, command):
    with pytest.raises(SystemExit):
        main.main(command.split())
    assert "expected at most 1,000,000,000" in capsys.readouterr().err


def test_what_a_model_cannot_have_is_said_before_results_go(cora, tmp_path):
    out = tmp_path / "run"
    out.mkdir()
    (out / "summary.json").touch()
    overwriting = ["train", cora, "--device", "cpu", "--overwrite", "--out", out]
    for shape, words in (
        ("--model gat --hidden 30", "--hidden: expected a multiple of 4, the --heads of gat, found 30"),
        ("--residual", "--residual: expected at least three hops in --fanout, one per layer, found 2"),
        ("--model package.module:Net --norm layer", "--norm: expected a built-in model"),
    ):
        refused(here(*overwriting, *shape.split()), 1, words)
    assert (out / "summary.json").exists()


def test_a_data_set_is_no_folder_for_results(cora, tmp_path):
    before = sorted(path.name for path in cora.iterdir())
    result = here("train", cora, "--device", "cpu", "--out", f"{cora}/.")
    refused(result, 1, "--out: expected another folder than the data set's")
    assert sorted(path.name for path in cora.iterdir()) == before


def test_a_folder_of_tables_becomes_a_data_set_with_consent(tmp_path):
    folder, task = tmp_path / "users", tmp_path / "users/tasks/old"
    (folder / "db").mkdir(parents=True)
    task.mkdir(parents=True)
    (folder / "manifest.yaml").write_text("tables: {users: {pkey: id, fkeys: {friend: users}}}")
    manifest = "{task_type: binary_classification, entity_table: users, entity_col: id, target_col: old}"
    (task / "manifest.yaml").write_text(manifest)
    pq.write_table(pa.table({"id": [1, 2], "friend": [2, 1], "age": [7.0, 9.0]}), folder / "db/users.parquet")
    pq.write_table(pa.table({"id": [1, 2], "old": [0, 1]}), task / "train.parquet")
    refused(here("train", folder, "--task", "olds"), 1, "expected graph.yaml", "--as-proposed takes it")
    proposed = ["--as-proposed", "--import-to", tmp_path / "data"]
    for said in ("was imported", "was imported before"):
        result = here("train", folder, *proposed, "--task", "olds")
        refused(result, 1, said, "expected one of old, found olds")
    assert is_dataset(tmp_path / "data") and not is_dataset(folder)
    refused(here("train", tmp_path / "data", *proposed), 1, "--import-to: expected a folder of RelBench, or")
    refused(here("train", folder / "db", "--as-proposed"), 1, "--as-proposed: expected a folder of RelBench, or")
    refused(here("train", "--resume", tmp_path, "--as-proposed"), 1, "--resume, --as-proposed: expected one of the two")


@pytest.mark.parametrize("line", ["out = true", "out = 5"])
def test_paths_of_a_config_file_are_texts(tmp_path, line):
    file = tmp_path / "run.toml"
    file.write_text(line)
    args = main.build_parser().parse_args(["train", "data", "--config", str(file)])
    with pytest.raises(CohortError, match="expected a path, found (True|5)"):
        given_in(args, RunSpec)


@pytest.mark.parametrize("command", [["plan", "--gpu-memory", "1GB"], ["train", "--device", "cpu"], ["doctor"]])
@pytest.mark.parametrize("value", ["abc", "", "-5", "1e9"])
def test_memory_that_is_no_number(cora, monkeypatch, capsys, command, value):
    monkeypatch.setenv("COHORT_HOST_MEMORY_BYTES", value)
    assert main.main([command[0], str(cora), *command[1:]]) == 1
    said = capsys.readouterr().err
    assert said.startswith("cohort: COHORT_HOST_MEMORY_BYTES: expected a number of bytes") and repr(value) in said


def test_a_gpu_without_memory_has_no_room(cora):
    refused(here("plan", cora, "--gpu-memory", "0", "--cache-ratio", "0.1"), 1, "will not fit: GPU 0")


def test_a_folder_that_does_not_stay_is_not_named(monkeypatch, caplog, tmp_path):
    def stopped(*_):
        raise Stopped(15)

    caplog.set_level(logging.INFO, "cohort_gnn")
    monkeypatch.setattr(runs, "stop_on_signals", lambda: None)
    monkeypatch.setattr(runs, "_start", stopped)
    assert runs.run_programs(tmp_path, {}, show_output=False, is_kept=False) == 128 + 15
    assert caplog.messages == ["stopped by signal 15"]
    assert runs.run_programs(tmp_path, {}, show_output=False) == 128 + 15
    assert f"what is finished is in {tmp_path}" in caplog.text


def test_a_script_that_is_stopped_before_it_begins(monkeypatch, tmp_path):
    def stopped(*_):
        raise Stopped(15)

    (tmp_path / "script.py").touch()
    monkeypatch.setattr(run_script, "stop_on_signals", lambda: None)
    monkeypatch.setattr(run_script, "resolve_device", stopped)
    args = main.build_parser().parse_args(["run", str(tmp_path / "script.py")])
    assert run_script.run_script(args) == 128 + 15


def test_a_folder_that_another_launcher_has_swept(monkeypatch):
    ended = subprocess.Popen(["true"])
    ended.wait()
    gone = mps.Path(f"/tmp/{mps.PREFIX}{ended.pid}-x")
    monkeypatch.setattr(mps.Path, "glob", lambda *_: iter([gone]))
    mps._sweep()


def test_the_cause_of_a_failure_is_found_in_what_a_run_said():
    ended = "cohort: the trainer (process 7) ended with exit code 1"
    log = "  end of its log (trainer.log):\n    Traceback ...\n    last line"
    assert _cause_in(f"cohort: counted\n{ended}\n  it said: no memory\n{log}") == "no memory"
    assert _cause_in(f"{ended}\n{log}") == "the trainer (process 7) ended with exit code 1"
    assert _cause_in("cohort: --x: expected a, found b\n  hint: c") == "--x: expected a, found b"
    assert _cause_in("") == ""


def test_paths_are_as_a_shell_takes_them(tmp_path):
    assert tune_output._quoted(tmp_path / "a b") == f"'{tmp_path}/a b'"


def test_errors_of_data_sets_say_whose_they_are(tmp_path):
    for command in (["info", tmp_path], ["partition", tmp_path, "--parts", 2]):
        refused(here("dataset", *command), 1, f"cohort: {tmp_path}")
