"""The folder of a data set that gets another content: one writer, and files that stay as they are."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import cast

import numpy as np

from cohort_gnn.base.errors import CohortError, why
from cohort_gnn.base.files import copy_bytes
from cohort_gnn.dataset.array_file import map_array
from cohort_gnn.dataset.writer import output_folder, write_header

TEMPORARY = re.compile(r".*\.\d+-[0-9a-f]{8}\.(tmp|old)")  # what writers of its files are at, or have left


@contextlib.contextmanager
def replaced_folder(folder: Path) -> Iterator[Path]:
    """A new folder that takes the place of a data set when all went well; programs that have the old one open keep it.

    Raises:
        CohortError: another process is at it, or the folder cannot be written.
    """
    with _locked(folder), output_folder(folder, overwrite=True, keeps_others=True) as new:
        yield Path(new.path)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Inside, no other process of this kind writes the data set."""
    while True:
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise CohortError(str(folder), "a data set", why(error), "check the path") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            hint = "wait until it has ended"
            raise CohortError(str(folder), "one append at a time", "another that is at it", hint) from None
        except OSError as error:
            os.close(descriptor)
            hint = "append on a machine that has the disk, or copy the data set to a local one first"
            raise CohortError(str(folder), "a file system with locks (flock)", why(error), hint) from error
        with contextlib.suppress(FileNotFoundError):  # replaced between the two calls
            if os.path.samestat(os.stat(folder), os.fstat(descriptor)):
                break
        os.close(descriptor)
    try:
        yield
    finally:
        os.close(descriptor)


def join_arrays(out: Path, files: Sequence[Path]) -> None:
    """Writes the rows of several .npy files of one type, one behind the other, into one; the kernel copies them."""
    arrays = [cast(np.memmap, map_array(file)) for file in files]
    with out.open("wb") as written:
        write_header(written, arrays[0].dtype, [sum(map(len, arrays)), *arrays[0].shape[1:]])
        written.flush()
        for file, array in zip(files, arrays, strict=True):
            with file.open("rb") as read:
                copy_bytes(read.fileno(), written.fileno(), array.offset, array.nbytes)


def link_files(old: Path, new: Path, is_left_out: Callable[[str], bool] = lambda name: False) -> None:
    """Gives files of a folder the same names in another, where these are free, as hard links: they need no space, and
    keep their times.

    Args:
        is_left_out: whether a file or folder of this name does not come along.
    """
    for entry in sorted(os.scandir(old), key=lambda entry: entry.name):
        there = new / entry.name
        if TEMPORARY.fullmatch(entry.name) or is_left_out(entry.name):
            continue
        if entry.is_dir(follow_symlinks=False):
            there.mkdir(exist_ok=True)
            link_files(Path(entry.path), there)
        elif not os.path.lexists(there):
            try:
                os.link(entry.path, there, follow_symlinks=False)
            except OSError:  # a file system without hard links
                shutil.copy2(entry.path, there, follow_symlinks=False)
