"""What CUDA leaves in shared memory goes with the processes of a run, and nothing else does."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cohort_gnn import NeighborLoader
from cohort_gnn.base import cuda_files
from cohort_gnn.base.cuda_files import remove_cuda_files
from cohort_gnn.launch.run.mps import Mps
from cohort_gnn.launch.run.supervise import Supervisor

LONG_AGO = 0.0


@pytest.fixture
def root(tmp_path, monkeypatch) -> Path:
    """Shared memory of a test's own."""
    folder = tmp_path / "shm"
    folder.mkdir()
    monkeypatch.setattr(cuda_files, "ROOT", folder)
    return folder


@pytest.fixture
def ended() -> int:
    """The pid of a process that has ended."""
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def plant(root: Path, name: str) -> Path:
    path = root / name
    path.write_bytes(b"\0" * 8)
    return path


def left_by(root: Path, pid: int, number: int = 1) -> Path:
    """A file as CUDA names it."""
    return plant(root, f"cuda.shm.{os.getuid():x}.{pid:x}.{number:x}")


def test_files_of_an_ended_process_go(root, ended):
    files = [left_by(root, ended, number) for number in (1, 10, 255)]
    remove_cuda_files([ended], LONG_AGO)
    assert not any(file.exists() for file in files)


def test_files_of_other_processes_stay(root, ended):
    """Of one that runs, of one that is not the run's, and of one that ended before the run: its pid has come again."""
    files = [left_by(root, os.getpid()), left_by(root, ended)]
    remove_cuda_files([os.getpid(), ended + 1], LONG_AGO)
    remove_cuda_files([], LONG_AGO)
    remove_cuda_files([ended], time.time() + 60)
    assert all(file.exists() for file in files)


def test_numbers_are_hexadecimal(root, monkeypatch):
    """As a decimal number, the name is that of a process that runs."""
    monkeypatch.setattr(cuda_files, "runs", lambda pid: pid == os.getpid())
    pid = int(str(os.getpid()), 16)
    file = left_by(root, pid)
    assert file.name.split(".")[3] == str(os.getpid())
    remove_cuda_files([pid], LONG_AGO)
    assert not file.exists()


def test_what_has_another_name_or_is_no_file_stays(root, ended):
    pid = f"{ended:x}"
    names = [f"{pid}.1", f"0.{pid}.1.bak", f"0.-{pid}.1", f"0.{pid}.", f"0..{pid}", f"user.{pid}.1", ""]
    paths = [plant(root, f"cuda.shm.{name}") for name in names] + [plant(root, f"my.shm.0.{pid}.1")]
    paths.append(root / f"cuda.shm.0.{ended:x}.5")
    paths[-1].mkdir()
    paths.append(root / f"cuda.shm.0.{ended:x}.6")
    paths[-1].symlink_to(paths[0])
    remove_cuda_files([ended], LONG_AGO)
    assert all(os.path.lexists(path) for path in paths)


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, who can give files away")
def test_files_of_other_users_stay(root, ended):
    file = left_by(root, ended)
    os.chown(file, 12345, 12345)
    remove_cuda_files([ended], LONG_AGO)
    assert file.exists()


def test_a_run_removes_those_of_its_processes(root, tmp_path):
    supervisor = Supervisor([tmp_path], None)
    supervisor.start("sampler", [sys.executable, "-c", "import time; time.sleep(60)"], tmp_path / "sampler.log", {})
    supervisor.start("trainer", ["true"], tmp_path / "trainer.log", {})
    files = [left_by(root, child.process.pid) for child in supervisor.children]
    supervisor.stop()
    assert not any(file.exists() for file in files)


def test_a_closed_loader_removes_those_of_its_sampler(root, cora, shm):
    with NeighborLoader(cora, [2], batch_size=64, device="cpu") as loader:
        next(iter(loader))
        file = left_by(root, loader._sampler.process.pid)
    assert not file.exists()


# Answers as nvidia-cuda-mps-control does. Its daemon has a server, which does not end by itself.
DAEMON = """#!/bin/bash
folder=$CUDA_MPS_PIPE_DIRECTORY
if [[ ${1:-} == -f ]]; then
  sleep 60 &
  echo $! >"$folder/server"
  echo $$ >"$folder/daemon"
  wait
  exit
fi
read -r command
[[ -n $folder && -s $folder/daemon ]] || { echo "Cannot find MPS control daemon process"; exit 1; }
case $command in
get_server_list) cat "$folder/server" ;;
quit*) kill "$(cat "$folder/daemon")" ;;
esac
"""


def test_mps_removes_those_of_its_server(root, tmp_path, monkeypatch):
    program = tmp_path / "nvidia-cuda-mps-control"
    program.write_text(DAEMON)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.delenv("CUDA_MPS_PIPE_DIRECTORY", raising=False)
    mps = Mps()
    try:
        assert mps.active, mps.problem
        mps.remember_server()
        files = [left_by(root, pid) for pid in (mps.process.pid, mps._server_pid)]
    finally:
        mps.stop()
    assert not any(file.exists() for file in files)


@pytest.mark.gpu
@pytest.mark.alone
def test_a_run_on_a_gpu_leaves_none(cora, shm, tmp_path):
    """Names and numbers of the files are the driver's: this shows that they are read as it writes them."""
    from processes import ran

    before = set(Path("/dev/shm").glob("cuda.shm.*"))
    options = ["--fanout", "3,2", "--batch-size", 64, "--hidden", 8, "--epochs", 1, "--quiet"]
    ran("train", cora, "--device", "cuda", *options, "--out", tmp_path / "run")
    with NeighborLoader(cora, [2], batch_size=64, device="cuda") as loader:
        next(iter(loader))
    after = {path.name for path in set(Path("/dev/shm").glob("cuda.shm.*")) - before}
    # This process still runs.
    assert sorted(name for name in after if not cuda_files.runs(int(name.split(".")[3], 16))) == []
