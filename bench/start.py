"""How much longer than reading and pinning does a run take to its first batch?

    python bench/start.py DIR|--shape papers100m [options of cohort train]

Reads the files that a run reads with all cores: from the disk, after the kernel was told to forget them, and again from
the page cache. Then two runs of `cohort train`, of an epoch each, start likewise. Beside each stands what reading took,
and pinning as much host memory as the run has pinned. Where the kernel keeps the files, the first run is not made.

A line a run is appended to OUT/start.jsonl.
"""

import errno
import json
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from trials import Trials, trial_parser

from cohort_gnn import dataset
from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.tables import TextTable, print_tables
from cohort_gnn.base.units import format_bytes

PIECE_BYTES = 8 << 20
PIECES_LOOKED_AT = 200
PIN_LIMIT_SECONDS = 600.0
COPYING = "copying to host memory"  # that part of a start, as sampler/cuda_backend.cc names it

# Prints the seconds in which all cores write some bytes of memory that grows by it, and that the driver manages, keeps
# on the host and maps for the GPU, as base/host_table.cc has it.
_PIN = """
import ctypes, os, sys, time
from concurrent.futures import ThreadPoolExecutor
import numpy, torch

class Location(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]

major = torch.version.cuda.split(".")[0]
GPU, HOST = (0, -1) if major == "12" else (Location(1, 0), Location(2, 0))
PREFERRED_LOCATION, ACCESSED_BY, ATTACH_GLOBAL = 3, 5, 1
torch.zeros(1, device="cuda")
runtime = ctypes.CDLL("libcudart.so." + major)
num_bytes, data = ctypes.c_size_t(int(sys.argv[1])), ctypes.c_void_p()

def check(status):
    if status:
        sys.exit(f"CUDA error {status}")

begin = time.monotonic()
check(runtime.cudaMallocManaged(ctypes.byref(data), num_bytes, ATTACH_GLOBAL))
check(runtime.cudaMemAdvise(data, num_bytes, PREFERRED_LOCATION, HOST))
memory = numpy.ctypeslib.as_array(ctypes.cast(data, ctypes.POINTER(ctypes.c_uint8)), (num_bytes.value,))
with ThreadPoolExecutor() as threads:
    list(threads.map(lambda part: part.fill(0), numpy.array_split(memory, 4 * os.cpu_count())))
check(runtime.cudaMemAdvise(data, num_bytes, ACCESSED_BY, GPU))
print(time.monotonic() - begin)
"""


@dataclass(frozen=True)
class Files:
    """What a run reads of a data set."""

    paths: list[Path]

    @classmethod
    def of(cls, folder: Path, compress: str, edge_weights: bool) -> "Files":
        """Graph, labels, splits, and the rows: the encoded ones where runs with that --compress read them."""
        data = dataset.open(folder)
        names = json.loads((folder / "meta.json").read_text())["files"]
        rows = data.encoded_rows if data.x is None or compress != "none" else None
        left_out = {"features"} | (set() if edge_weights else {"edge_weights"})
        paths = [folder / name for kind, name in names.items() if kind not in left_out]
        return cls([*paths, rows or folder / names["features"]])

    @property
    def pieces(self) -> list[tuple[Path, int]]:
        """Every file, PIECE_BYTES at a time."""
        return [(path, first) for path in self.paths for first in range(0, path.stat().st_size, PIECE_BYTES)]

    @property
    def num_bytes(self) -> int:
        return sum(path.stat().st_size for path in self.paths)

    def read(self) -> float:
        """Reads them all, with all cores: seconds."""
        pieces = self.pieces
        begin = time.monotonic()
        with ThreadPoolExecutor(os.cpu_count(), initializer=_make_room) as threads:
            list(threads.map(_read_piece, pieces))
        return time.monotonic() - begin

    def forget(self) -> None:
        """Asks the kernel to drop them from the page cache."""
        for path in self.paths:
            file = os.open(path, os.O_RDONLY)
            try:
                os.fsync(file)
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(file)

    def cached_share(self) -> float:
        """Of some pieces spread over all files, the share whose first page is in the page cache."""
        pieces = self.pieces
        some = pieces[:: max(1, len(pieces) // PIECES_LOOKED_AT)]
        return sum(map(_is_cached, some)) / len(some)


_room = threading.local()  # of a thread that reads


def _make_room() -> None:
    _room.piece = bytearray(PIECE_BYTES)


def _read_piece(piece: tuple[Path, int]) -> None:
    path, first = piece
    file = os.open(path, os.O_RDONLY)
    try:
        os.preadv(file, [_room.piece], first)
    finally:
        os.close(file)


def _is_cached(piece: tuple[Path, int]) -> bool:
    path, first = piece
    file = os.open(path, os.O_RDONLY)
    try:
        return os.preadv(file, [bytearray(1)], first, os.RWF_NOWAIT) >= 0
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise
        return True  # for all that this file system tells
    finally:
        os.close(file)


def pinning_seconds(num_bytes: int) -> float:
    """What growing by so much memory, and pinning it, takes.

    Raises:
        CohortError: the driver did not pin it, or not in PIN_LIMIT_SECONDS.
    """
    if num_bytes == 0:
        return 0.0
    wanted, command = f"{format_bytes(num_bytes)} of host memory", [sys.executable, "-c", _PIN, str(num_bytes)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PIN_LIMIT_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise CohortError("pinning", wanted, str(error)) from error
    if done.returncode:
        raise CohortError("pinning", wanted, (done.stdout + done.stderr).strip())
    return float(done.stdout)


def start_of(trials: Trials, files_are: str) -> dict:
    """The line of a run of one epoch: seconds to its first batch and of the parts before it."""
    line = trials.run({"files": files_are}, trials.base)
    if "failure" in line:
        raise CohortError(f"run with files {files_are}", "one that ends", line["failure"])
    folder = trials.out / f"run-{len(trials.lines):02}"
    return json.loads((folder / "summary.json").read_text())["start"]


def measure(trials: Trials) -> list[dict]:
    """A line for each state of the files: from the disk, and from the page cache.

    Raises:
        CohortError: a run failed, or memory was not pinned.
    """
    reads_weights = trials.spec.use_edge_weights or trials.spec.weight_attr is not None
    files = Files.of(trials.dataset, trials.spec.compress, reads_weights)
    files.forget()
    kept = files.cached_share()
    reading = {"on disk": files.read(), "in the page cache": files.read()}
    if kept > 0.01:
        print(f"start: the kernel keeps {100 * kept:.0f} % of the files: no run reads the disk", file=sys.stderr)
        del reading["on disk"]
    lines = []
    for state, seconds in reading.items():
        if state == "on disk":
            files.forget()
        else:
            files.read()
        start = start_of(trials, state)
        pinned = sum(part["bytes"] for part in start["parts"] if part["part"] == COPYING)
        told = {"files": state, "bytes": files.num_bytes, "read_seconds": seconds, "pinned_bytes": pinned}
        lines.append(told | start)
    for line in lines:
        line["pin_seconds"] = pinning_seconds(line["pinned_bytes"])
        trials.add(line)
    return lines


def table_of(lines: list[dict]) -> TextTable:
    """A row a run."""
    columns = ["files", "bytes", "read s", "GB/s", "pinned", "pin s", "packages s", "first batch s", "of both"]
    rows = [
        [
            line["files"],
            format_bytes(line["bytes"]),
            f"{line['read_seconds']:.2f}",
            f"{line['bytes'] / line['read_seconds'] / 1e9:.2f}",
            format_bytes(line["pinned_bytes"]),
            f"{line['pin_seconds']:.2f}",
            f"{line['packages_seconds']:.2f}",
            f"{line['seconds']:.2f}",
            f"{line['seconds'] / (line['read_seconds'] + line['pin_seconds']):.2f}",
        ]
        for line in lines
    ]
    note = "first batch: since the command began; packages: until the trainer had loaded torch"
    return TextTable("to the first batch", columns, rows, note)


def main(argv: list[str] | None = None) -> int:
    """0 when every run ended."""
    try:
        args = trial_parser(__doc__, "start", epochs=1).parse_args(argv)
        print_tables(table_of(measure(Trials(args))))
    except CohortError as error:
        print(f"start: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
