"""Folders that runs and tunings have for themselves."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

from cohort_gnn.base.errors import CohortError
from cohort_gnn.launch import main
from cohort_gnn.launch.run import folder as run_folder


def test_names_that_are_not_given_are_not_shared(tmp_path):
    folders = [run_folder.new_run_folder(tmp_path / "runs" / "cora-1200") for _ in range(3)]
    assert [folder.name for folder in folders] == ["cora-1200", "cora-1200-2", "cora-1200-3"]
    (tmp_path / "file").touch()
    with pytest.raises(CohortError, match="file/run: expected a folder that can be written"):
        run_folder.new_run_folder(tmp_path / "file" / "run")
    (tmp_path / "disk").symlink_to(tmp_path / "not-mounted")
    with pytest.raises(CohortError, match="disk/run: expected a folder that can be written"):
        run_folder.new_run_folder(tmp_path / "disk" / "run")


def test_a_folder_that_a_tuning_works_in_is_left_alone(cora, tmp_path, monkeypatch, capfd):
    never_waits(monkeypatch)
    with run_folder.sole_use(tmp_path):
        assert main.main(["tune", str(cora), "--device", "cpu", "--fanout", "4,3", "--out", str(tmp_path)]) == 1
    said = capfd.readouterr().err
    assert f"{tmp_path}: expected a folder that no other run uses, found one that a run uses (process " in said
    assert list(tmp_path.iterdir()) == []


def never_waits(monkeypatch):
    slept = [0.0]

    def sleep(seconds: float) -> None:
        slept[0] += seconds
        assert slept[0] < 2, "it waits for a run at work"

    monkeypatch.setattr(run_folder, "time", SimpleNamespace(monotonic=lambda: slept[0], sleep=sleep))


HOLDS = """
import fcntl, os, subprocess, sys
folder = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECTORY)
fcntl.flock(folder, fcntl.LOCK_EX)
subprocess.Popen(["sleep", sys.argv[2]], pass_fds=(folder,), stdout=subprocess.DEVNULL)
print("held", flush=True)
sys.stdin.read()
"""


def test_a_run_at_work_is_not_waited_for_but_the_rest_of_a_killed_one_is(tmp_path, monkeypatch):
    command = [sys.executable, "-c", HOLDS, str(tmp_path), "2"]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdout.readline() == "held\n"
    with monkeypatch.context() as patch, pytest.raises(CohortError, match=f"one that a run uses .process {holder.pid}"):
        never_waits(patch)
        with run_folder.sole_use(tmp_path):
            pass
    holder.kill()  # nobody has taken its exit code yet; what it started holds the folder for two seconds
    with run_folder.sole_use(tmp_path):
        assert holder.wait() != 0
