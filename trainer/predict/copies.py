"""Copies of files of rows, made beside other work."""

import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

import numpy as np

from cohort_gnn.base.files import COPIED_AT_ONCE, copy_bytes, is_in_memory
from cohort_gnn.dataset.writer import write_header

MOST_AT_ONCE = 4  # files
MOST_THREADS = 8  # of a file in memory; fewer than 3 are slower than the kernel


class Copies:
    """A thread for each file: several that write to one wait for each other.

    As a context: leaving it stops the copies that `end` was not called for, whose files are of no use then.
    """

    def __init__(self):
        self._threads = ThreadPoolExecutor(MOST_AT_ONCE, "copy")
        self._begun: dict[Path, tuple[tuple[Path, int], Future[bool]]] = {}
        self._is_stopped = threading.Event()

    def __enter__(self) -> "Copies":
        return self

    def __exit__(self, *_) -> None:
        self.stop()

    def stop(self) -> None:
        """Returns when no file is written any more: each copy ends with the piece that it is at."""
        self._is_stopped.set()
        self._threads.shutdown(cancel_futures=True)

    def begin(self, rows: np.memmap, file: Path, count: int) -> None:
        """Begins a .npy file of so many rows with those of another, which are mapped; nothing if it has begun."""
        if file not in self._begun:
            copy = self._threads.submit(self._copy, rows, file, count)
            self._begun[file] = (Path(str(rows.filename)), count), copy

    def end(self, rows: np.memmap, file: Path, count: int) -> bool:
        """Waits for the file, which is begun now if it was not, or from other rows; returns whether it shares blocks.

        Raises:
            OSError: the disk has no room for all rows.
        """
        made_of, copy = self._begun.pop(file, (None, None))
        if copy is not None and made_of == (Path(str(rows.filename)), count):
            return copy.result()
        wait([copy] if copy is not None else [])
        return self._copy(rows, file, count)

    def _copy(self, rows: np.memmap, file: Path, count: int) -> bool:
        there = rows[:count]
        try:
            with file.open("w+b") as written, Path(str(rows.filename)).open("rb") as read:
                header_bytes = write_header(written, there.dtype, [count, there.shape[1]])
                written.flush()
                file_bytes, threads = header_bytes + count * rows.shape[1] * rows.itemsize, _threads_for(file, there)
                if threads > 0:
                    os.posix_fallocate(written.fileno(), 0, file_bytes)
                    self._copy_mapped(there, np.memmap(written, rows.dtype, "r+", header_bytes, there.shape), threads)
                    return False
                copied = read.fileno(), written.fileno(), rows.offset, there.nbytes
                are_shared = copy_bytes(*copied, self._is_stopped.is_set)
                if not self._is_stopped.is_set():
                    os.posix_fallocate(written.fileno(), 0, file_bytes)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(file)) from None
        return are_shared

    def _copy_mapped(self, rows: np.ndarray, into: np.ndarray, threads: int) -> None:
        """The same by several threads, which write pages that are there: of one file the kernel lets one write only."""

        def copy_some(first: int, end: int) -> None:
            if not self._is_stopped.is_set():
                np.copyto(into[first:end], rows[first:end])

        firsts = range(0, len(rows), max(1, COPIED_AT_ONCE // (rows.shape[1] * rows.itemsize)))
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(copy_some, firsts, [*firsts[1:], len(rows)]))


def _threads_for(file: Path, rows: np.ndarray) -> int:
    """How many threads copy rows into a file; 0: the kernel does it."""
    threads = min(MOST_THREADS, len(os.sched_getaffinity(0)) // 2)
    return threads if threads > 2 and rows.nbytes > COPIED_AT_ONCE and is_in_memory(file) else 0
