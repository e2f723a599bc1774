"""Files that appear whole or not at all, and that are written beside other work."""

import os
import random
import resource
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from cohort_gnn.base import files
from cohort_gnn.base.files import (
    FileWriter,
    begun_file,
    copy_bytes,
    demand_room,
    remove_temporaries,
    replacing,
    temporary_folder,
    write_whole,
)

LIMIT_SECONDS = 20.0


OLD, NEW = b"the old one", b"n" * 100_000
KILLED = """
import os, sys
from pathlib import Path
from cohort_gnn.base.files import write_whole
calls = int(sys.argv[2])

def counted(call):
    def step(*args, **kwargs):
        global calls
        if calls == 0:
            os.kill(os.getpid(), 9)
        calls -= 1
        return call(*args, **kwargs)
    return step

for name in ("open", "fsync", "replace", "close"):
    setattr(os, name, counted(getattr(os, name)))
write_whole(Path(sys.argv[1]), b"n" * 100_000)
"""


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_writer_killed_at_any_step_leaves_the_old_file_or_the_new_one(tmp_path):
    path, seen = tmp_path / "file", set()
    path.write_bytes(OLD)
    for calls in range(20):
        process = subprocess.run([sys.executable, "-c", KILLED, path, str(calls)], check=False)
        seen.add(path.read_bytes())
        if process.returncode == 0:
            break
        assert process.returncode == -signal.SIGKILL
    assert calls > 4 and seen == {OLD, NEW}
    write_whole(path, OLD)
    assert names_in(tmp_path) == ["file"], "what killed processes left is removed"


def test_a_file_is_on_disk_before_it_has_its_name_and_its_folder_afterwards(tmp_path, monkeypatch):
    steps = []
    for name in ("fsync", "replace"):
        call = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *args, call=call, name=name: (steps.append(name), call(*args))[1])
    write_whole(tmp_path / "file", NEW)
    assert steps == ["fsync", "replace", "fsync"]
    write_whole(tmp_path / "file", "text", synced=False)
    assert steps[3:] == ["replace"] and (tmp_path / "file").read_text() == "text"


def test_two_writers_of_one_file_do_not_meet(tmp_path):
    path = tmp_path / "file"
    with replacing(path) as first:
        first.write_bytes(OLD)
        with replacing(path) as second:
            second.write_bytes(NEW)
        assert path.read_bytes() == NEW
    assert path.read_bytes() == OLD and names_in(tmp_path) == ["file"]


def test_files_of_others_stay(tmp_path):
    others = ["[f].tmp", "[f].1.tmp", "[f].x-01234567.tmp", "[f].1-0123456.tmp", "f.1-01234567.tmp", "other"]
    for name in [*others, "[f].1-01234567.tmp"]:
        (tmp_path / name).touch()
    write_whole(tmp_path / "[f]", NEW)
    assert names_in(tmp_path) == sorted([*others, "[f]"])


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_the_file_before_stays_when_a_new_one_cannot_be_written(tmp_path, monkeypatch, call):
    path = tmp_path / "file"
    write_whole(path, OLD)

    def refuse(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, call, refuse)
    with pytest.raises(OSError, match="No space"):
        write_whole(path, NEW)
    assert path.read_bytes() == OLD and names_in(tmp_path) == ["file"]


def test_a_full_disk_is_told(tmp_path):
    (tmp_path / "file").write_bytes(OLD)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            write_whole(tmp_path / "file", NEW)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (tmp_path / "file").read_bytes() == OLD and names_in(tmp_path) == ["file"]


def test_a_link_is_replaced_and_not_its_target(tmp_path):
    (tmp_path / "target").write_bytes(OLD)
    (tmp_path / "file").symlink_to("target")
    write_whole(tmp_path / "file", NEW)
    assert not (tmp_path / "file").is_symlink()
    assert (tmp_path / "file").read_bytes() == NEW and (tmp_path / "target").read_bytes() == OLD


def test_a_temporary_folder_goes_with_all_in_it(tmp_path):
    with pytest.raises(KeyError), temporary_folder(tmp_path / "file") as folder:
        (folder / "inner").mkdir()
        (folder / "inner/file").touch()
        remove_temporaries(tmp_path / "file")
        assert (folder / "inner/file").exists(), "its owner lives"
        raise KeyError
    assert names_in(tmp_path) == []


def test_a_folder_that_another_process_removes_before_it_is_locked_is_made_again(tmp_path, monkeypatch):
    opened, begun = os.open, []

    def open_late(path, *arguments, **named):
        if not begun:
            begun.append(path)
            remove_temporaries(tmp_path / "file")
        return opened(path, *arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(files.os, "open", open_late)
        with temporary_folder(tmp_path / "file") as folder:
            assert folder.is_dir() and begun and folder != begun[0]
    with pytest.raises(FileNotFoundError), temporary_folder(tmp_path / "missing/file"):
        pass


def test_files_are_written_in_order_and_all_of_them_in_the_end():
    written, may_go_on = [], threading.Event()
    with FileWriter() as writer:
        writer.write(lambda: (may_go_on.wait(LIMIT_SECONDS), written.append("first")))
        writer.write(lambda: written.append("second"))
        assert written == [], "the caller waited for the first"
        may_go_on.set()
        writer.write(lambda: written.append("third"))
        assert written[:1] == ["first"], "more than two wait"
    assert written == ["first", "second", "third"]


def refuse():
    raise ValueError("no")


def test_what_a_write_raises_is_heard_of():
    written = []
    with pytest.raises(ValueError, match="no"), FileWriter() as writer:
        writer.write(refuse)
    writer = FileWriter()
    writer.write(refuse)
    with pytest.raises(ValueError, match="no"):
        for _ in range(3):
            writer.write(lambda: written.append(1))
    with writer:
        pass
    assert written, "one that was given before it was heard of is written"


def test_a_failure_of_its_owner_does_not_lose_files():
    written = []
    with pytest.raises(KeyError), FileWriter() as writer:
        writer.write(lambda: written.append(1))
        raise KeyError
    assert written == [1]


def test_an_error_is_not_hidden_by_what_tidies_up(tmp_path, monkeypatch):
    def refuse_to_write(*_):
        raise OSError(30, "Read-only file system: written")

    def refuse_to_remove(*_, **__):
        raise OSError(30, "Read-only file system: removed")

    monkeypatch.setattr(Path, "write_bytes", refuse_to_write)
    monkeypatch.setattr(Path, "unlink", refuse_to_remove)
    with pytest.raises(OSError, match="written"):
        write_whole(tmp_path / "file", "text")


@pytest.mark.parametrize("shares", [True, False])
def test_bytes_are_copied_and_whole_blocks_shared_where_they_lie_alike(tmp_path, monkeypatch, shares):
    """Whatever the offsets: blocks are shared only where both files have them at multiples of their size."""
    block, generator = os.statvfs(tmp_path).f_bsize, random.Random(3)
    whole = generator.randbytes(5 * block)
    (tmp_path / "old").write_bytes(whole)
    seen: list[int] = []
    times = 0

    def share(source: int, target: int, offset: int, position: int, count: int) -> bool:
        assert offset % block == position % block == count % block == 0 < count
        seen.append(count)
        return shares and os.pwrite(target, os.pread(source, count, offset), position) == count

    monkeypatch.setattr(files, "_share", share)
    offsets = [0, 1, 128, block - 1, block, 2 * block + 5]
    for _ in range(200):
        offset, position = generator.choice(offsets), generator.choice(offsets)
        count = generator.choice([0, 1, block, 2 * block, len(whole) - offset])
        with (tmp_path / "old").open("rb") as old, (tmp_path / "new").open("w+b") as new:
            new.write(b"x" * position)
            new.flush()
            seen.clear()
            assert copy_bytes(old.fileno(), new.fileno(), offset, count) == (shares and bool(seen))
            times += len(seen)
            assert os.lseek(new.fileno(), 0, os.SEEK_CUR) == position + count
        assert (tmp_path / "new").read_bytes() == b"x" * position + whole[offset : offset + count]
    assert times > 10


def test_a_copy_stops_between_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "COPIED_AT_ONCE", 1000)
    monkeypatch.setattr(files, "_share", lambda *_: False)
    (tmp_path / "old").write_bytes(whole := random.Random(3).randbytes(10_000))
    answers = iter([False, False, False, True])
    with (tmp_path / "old").open("rb") as old, (tmp_path / "new").open("w+b") as new:
        copy_bytes(old.fileno(), new.fileno(), 1, len(whole) - 1, lambda: next(answers))
    assert (tmp_path / "new").read_bytes() == whole[1:3001]


def test_a_file_that_was_begun_is_removed_or_takes_its_place(tmp_path):
    (tmp_path / "file").write_text("old")
    for finishes in (False, True):
        with begun_file(tmp_path / "file") as begun:
            begun.path.write_text("new")
            assert (tmp_path / "file").read_text() == "old"
            if finishes:
                with replacing(tmp_path / "file", begun=begun) as temporary:
                    assert temporary == begun.path
        assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [
            ("file", "new" if finishes else "old")
        ]


def test_room_is_demanded_and_given_back(tmp_path):
    demand_room(tmp_path, 0)
    demand_room(tmp_path, 1 << 20)
    with pytest.raises(OSError):
        demand_room(tmp_path, 1 << 60)
    assert list(tmp_path.iterdir()) == []
