"""What runs keep in shared memory belongs to their user alone."""

import os
import stat
import time
from pathlib import Path

import pytest
from processes import cohort

from cohort_gnn.base.errors import CohortError
from cohort_gnn.channel.run_folder import RunFolder, meeting_point, shared_memory_root

SMALL = "--device cpu --ranks 2 --fanout 3,2 --batch-size 50 --hidden 8 --epochs 1 --quiet".split()


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def no_umask():
    """Nothing but Cohort itself takes rights away."""
    before = os.umask(0)
    yield
    os.umask(before)


def test_the_folder_of_a_run_is_its_users_alone(shm, no_umask):
    folder = RunFolder()
    try:
        assert mode_of(folder.path) == mode_of(shared_memory_root()) == 0o700
    finally:
        folder.remove()


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o701])
def test_a_root_that_others_can_enter_is_refused(tmp_path, monkeypatch, mode):
    monkeypatch.setenv("COHORT_SHM", str(tmp_path))
    shared_memory_root().mkdir()
    shared_memory_root().chmod(mode)
    with pytest.raises(CohortError, match="may enter .drwx------."):
        RunFolder()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a folder of another user")
def test_a_root_that_another_user_has_made_is_refused_with_a_way_around_it(tmp_path, monkeypatch):
    """In /dev/shm only that user can remove it. A rank that follows another's link looks, too."""
    monkeypatch.setenv("COHORT_SHM", str(tmp_path))
    root = shared_memory_root()
    root.mkdir(mode=0o700)
    os.chown(root, 12345, -1)
    for use in (RunFolder, lambda: meeting_point("name")):
        with pytest.raises(CohortError, match="of user 12345") as error:
            use()
        assert "user 12345 or root can remove it" in error.value.hint and error.value.place == str(root)
    own = Path(error.value.hint.rpartition("COHORT_SHM=")[2])
    assert f"mkdir -m 700 {own}," in error.value.hint
    own.mkdir(mode=0o700)
    monkeypatch.setenv("COHORT_SHM", str(own))
    RunFolder().remove()


def test_a_root_that_is_a_link_is_refused(tmp_path, monkeypatch):
    """Others can make one before the first run of a user."""
    monkeypatch.setenv("COHORT_SHM", str(tmp_path))
    (tmp_path / "theirs").mkdir(mode=0o700)
    shared_memory_root().symlink_to(tmp_path / "theirs")
    with pytest.raises(CohortError, match="found l"):
        RunFolder()


def test_files_of_a_running_run_are_its_users_alone(cora, shm, no_umask, tmp_path):
    """Folders and channels of both ranks, and slots: looked at again and again until the run has ended."""
    from concurrent.futures import ThreadPoolExecutor

    modes: dict[str, set[int]] = {}
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(cohort, "train", cora, *SMALL, "--out", tmp_path / "run")
        while not run.done():
            for path in [inner for folder in shm.runs() for inner in (folder, *folder.rglob("*"))]:
                try:
                    kind = "folder" if path.is_dir() else path.name.partition("-")[0]
                    modes.setdefault(kind, set()).add(mode_of(path))
                except FileNotFoundError:  # it has just been removed
                    continue
            time.sleep(0.01)
    assert run.result().returncode == 0, run.result().stderr
    assert modes["folder"] == {0o700}
    assert modes["channel"] == modes["slot"] == {0o600}


def test_a_root_without_room_is_said(shm, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.mkdtemp", full)
    with pytest.raises(CohortError, match="with room in it, found .*No space left"):
        RunFolder()


def test_the_root_may_be_named_from_the_working_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COHORT_SHM", "here")
    assert shared_memory_root().parent == tmp_path / "here"
