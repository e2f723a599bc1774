"""Commands that are told to stop, or meet a disk that they cannot use, before they run any programs of their own."""

import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import duckdb
import pytest
from processes import ALL_TESTS, SECONDS_TO_START, cohort, hear_hangups, processes_of, refused, wait_until

SLOW_SAMPLER = """
import sys
if "-m" in sys.orig_argv and "cohort_gnn" in sys.orig_argv:
    import cohort_gnn.base.programs as programs
    programs.program = lambda name: {program!r}
"""

SCRIPT = "from cohort_gnn.__main__ import program; program()"  # as pip writes it

STOPPED_IMPORT = """
import os, signal, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
"""


@pytest.fixture
def slow_sampler(tmp_path) -> dict[str, str]:
    """The environment of a cohort whose sampler never ends its counting."""
    program = tmp_path / "slow-sampler"
    program.write_text("#!/bin/sh\nexec sleep 60.125\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    (tmp_path / "sitecustomize.py").write_text(SLOW_SAMPLER.format(program=str(program)))
    (tmp_path / "tmp").mkdir()
    path = f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"
    return os.environ | {"PYTHONPATH": path, "TMPDIR": str(tmp_path / "tmp")}


@pytest.mark.fresh  # in one that is forked, the names of modules hold `program` already
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL, *[signal.SIGTERM, signal.SIGHUP] * ALL_TESTS])
def test_who_counts_for_a_stopped_command_ends_too(cora, tmp_path, slow_sampler, number):
    def children() -> list[int]:
        return [pid for pid in processes_of("60.125") if parent_of(pid) == launcher.pid]

    command = [sys.executable, "-m", "cohort_gnn", "train", cora, "--device", "cpu", "--cache-ratio", "0.1"]
    command += ["--out", tmp_path / "run"]
    command = [*map(str, command)]
    told = {"stderr": subprocess.PIPE, "text": True, "preexec_fn": hear_hangups}
    with subprocess.Popen(command, env=slow_sampler, **told) as launcher:
        [counter] = wait_until(children, SECONDS_TO_START, "counting")
        launcher.send_signal(number)
        _, said = launcher.communicate(timeout=30)
    assert launcher.returncode == (-number if number == signal.SIGKILL else 128 + number)
    assert "Traceback" not in said
    wait_until(lambda: counter not in processes_of("60.125"), 10, "the sampler's end")
    if number != signal.SIGKILL:
        assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.fresh  # one that is forked has imported everything
@pytest.mark.parametrize(
    ("start", "module"),
    [("-m", "cohort_gnn.launch.main"), ("-m", "cohort_gnn.launch.plan.command"), ("-c", "cohort_gnn.launch.main")],
)
def test_ctrl_c_while_a_command_is_loaded_ends_it_without_a_traceback(tmp_path, start, module):
    (tmp_path / "sitecustomize.py").write_text(STOPPED_IMPORT.format(module=module))
    path = f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"
    command = [sys.executable, start, "cohort_gnn" if start == "-m" else SCRIPT, "plan", "--help"]
    ended = subprocess.run(command, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (-signal.SIGINT, "", "")


def parent_of(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except FileNotFoundError:
        return 0


def test_a_run_under_nohup_outlives_its_terminal(cora, tmp_path):
    out = tmp_path / "run"
    command = ["nohup", sys.executable, "-m", "cohort_gnn", "train", cora, "--device", "cpu", "--epochs", "3"]
    command += ["--out", out, "--batch-size", "64", "--hidden", "16", "--fanout", "4,3"]
    with subprocess.Popen([*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as run:
        wait_until((out / "metrics.jsonl").exists, SECONDS_TO_START, "the first epoch")
        run.send_signal(signal.SIGHUP)
        said, _ = run.communicate(timeout=60)
    assert run.returncode == 0 and (out / "summary.json").exists(), said


def test_a_data_set_that_is_not_finished_goes_when_it_is_stopped(tmp_path):
    out = tmp_path / "data"
    command = [sys.executable, "-m", "cohort_gnn", "dataset", "generate", out, "--nodes", "3M", "--edges", "60M"]
    with subprocess.Popen([*map(str, command)], stderr=subprocess.PIPE, text=True) as process:
        wait_until(lambda: list(tmp_path.iterdir()), SECONDS_TO_START, "a folder")
        process.terminate()
        _, said = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM and "Traceback" not in said
    assert list(tmp_path.iterdir()) == []


OTHER_EXCEPTION = """
import argparse, os, signal, sys, time
from cohort_gnn.launch import main

def convert(args):
    try:
        {stop}
    except BaseException:
        pass
    raise RuntimeError("Query interrupted")

def build_parser(only):
    parser = argparse.ArgumentParser()
    parser.set_defaults(func=convert)
    return parser

signal.signal(signal.SIGINT, signal.SIG_DFL)
main.build_parser = build_parser
sys.exit(main.main([]))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, None])
def test_an_exception_that_a_library_raises_for_a_signal_is_no_error(number):
    stop = "pass" if number is None else f"os.kill(os.getpid(), {int(number)}); time.sleep(5)"
    command = [sys.executable, "-c", OTHER_EXCEPTION.format(stop=stop)]
    done = subprocess.run(command, capture_output=True, text=True, preexec_fn=hear_hangups)
    assert done.returncode == (1 if number is None else 128 + number)
    assert ("RuntimeError: Query interrupted" in done.stderr) == ("Traceback" in done.stderr) == (number is None)


SLOW = """
create view links as
    select range % 5 as source, 0 as target from range(100000000000) where hash(range) % 100000000 = 0;
create table people as select range as id, random() as f from range(5)
"""
DESCRIBED = """
nodes:
  person: {file: "slow.duckdb:people", id: id, features: [f]}
edges:
  - {type: [person, knows, person], file: "slow.duckdb:links", source: source, target: target}
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_query_that_is_stopped_is_no_error_of_its_own(tmp_path, number):
    """DuckDB notices it late, and raises "RuntimeError: Query interrupted" in place of the handler's exception."""
    with duckdb.connect(str(tmp_path / "slow.duckdb")) as connection:
        connection.execute(SLOW)
    (tmp_path / "graph.yaml").write_text(DESCRIBED)
    command = [sys.executable, "-m", "cohort_gnn", "dataset", "import", tmp_path / "graph.yaml", tmp_path / "out"]
    with subprocess.Popen([*map(str, command)], stderr=subprocess.PIPE, text=True) as process:
        maps = Path(f"/proc/{process.pid}/maps")
        wait_until(lambda: "duckdb" in maps.read_text(), SECONDS_TO_START, "DuckDB")
        time.sleep(1)  # its query takes minutes
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 128 + number and "Traceback" not in said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["graph.yaml", "slow.duckdb"]


@pytest.mark.fresh  # one that is forked knows its temporary folder already
def test_what_the_system_refuses_is_told_with_a_cure(cora, tmp_path):
    env = os.environ | {"TMPDIR": "/dev/null/nowhere"}
    hide_folders = "import tempfile\ntempfile._candidate_tempdir_list = lambda: ['/dev/null/nowhere']\n"
    (tmp_path / "sitecustomize.py").write_text(hide_folders)
    env["PYTHONPATH"] = f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"
    result = cohort("digest", cora, "--device", "cpu", env=env)
    refused(result, 1, "cohort: TMPDIR: expected", "No usable temporary directory found", "hint: set it to one")
    assert result.stderr.count("\n") == 2


def test_a_run_whose_summary_cannot_be_written_tells_its_result_and_fails(cora, tmp_path, shm):
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "if 'cohort_gnn.trainer' in sys.orig_argv:\n"
        "    from cohort_gnn.spec.results import RunReport\n"
        "    def full(*_):\n"
        "        raise OSError(28, 'No space left on device')\n"
        "    RunReport.write = full\n"
    )
    env = os.environ | {"PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}
    options = ["--device", "cpu", "--epochs", 1, "--hidden", 8, "--fanout", "4,3", "--out", tmp_path / "run"]
    done = cohort("train", cora, *options, env=env)
    assert done.returncode == 1
    assert "summary.json was not written, and the run continues" in done.stdout and "test accuracy" in done.stdout
    assert "summary.json: expected a result of the finished run, written, found No space left on device" in done.stderr
