"""What rows beyond host memory cost: reads of the drive that has them, at the rate that it was measured to give."""

import json
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, TypedDict

import msgspec
import numpy as np

from cohort_gnn.base.files import remembered, user_cache
from cohort_gnn.base.programs import ask_sampler
from cohort_gnn.cache.interconnect import Rate

LOG = logging.getLogger(__name__)
LARGE_COUNT, MANY_ROWS = 8, 100  # see expected_reads
SECONDS = 1.0  # of each kind of reads, in a measurement that plans use


class DiskRates(TypedDict):
    """What ``cohort-sampler --probe-disk`` says of a file of encoded rows.

    ``blocks_per_second`` are random reads of one block of 4096 bytes each, ``row_reads_per_second`` those of random
    rows, of which a few share one.
    """

    is_direct: bool
    blocks_per_second: Rate
    row_reads_per_second: Rate
    rows_per_second: Rate


class DiskReads(NamedTuple):
    """What a batch of one GPU is expected to read from the disk, at most: a read for each row."""

    rows_on_disk: int
    bytes_on_disk: int
    reads_of_batch: float


def measured_rates(file: Path, seconds: float = SECONDS) -> DiskRates:
    """The rates of a file of encoded rows, measured now.

    Raises:
        CohortError: it is no such file, or cannot be read.
    """
    return msgspec.convert(ask_sampler("--probe-disk", str(file), str(seconds)), DiskRates)


def remembered_rates(file: Path) -> DiskRates:
    """`measured_rates`, unless a file in the user's cache folder has the rates of this file's drive.

    Raises:
        CohortError: as `measured_rates`.
    """
    path = user_cache() / f"disk-{os.stat(file).st_dev:x}.json"

    def measured() -> str:
        LOG.info(f"measuring random reads of the disk, once: {path}")
        return json.dumps(measured_rates(file), indent=2) + "\n"

    return remembered(path, lambda text: msgspec.json.decode(text, type=DiskRates), measured)


def expected_reads(reads: np.ndarray, has_row: np.ndarray) -> np.ndarray:
    """How many of as many other batches are expected to read each row, float64 [rows].

    Memory gets the rows that were counted most, so counts say too little of the others: a row that was never counted is
    read now and then, too. Of n(r) rows that were counted r times, one is expected (r + 1) n(r + 1) / n(r) times
    (Good, The population frequencies of species and the estimation of population parameters, Biometrika 40, 1953).
    Counts of 8 and more, and those that fewer than 100 rows have, stay as they are.

    Args:
        reads: int64 [rows], how many batches were counted that read each row.
        has_row: bool [rows]; other rows are expected to be read as often as they were.
    """
    expected = reads.astype(np.float64)
    sizes = np.bincount(np.minimum(reads[has_row], LARGE_COUNT + 1), minlength=LARGE_COUNT + 2)
    for count in range(LARGE_COUNT):
        if sizes[count] >= MANY_ROWS:
            expected[has_row & (reads == count)] = (count + 1) * sizes[count + 1] / sizes[count]
    return expected


def disk_reads(
    reads: np.ndarray, num_batches: int, row_bytes: np.ndarray, cached: Sequence[np.ndarray], room_bytes: int
) -> DiskReads:
    """What stays on the disk, chosen as the sampler does (cache/host_share.h), and is read from there.

    Args:
        reads: int64 [rows], batches that read each row of all node types, of `num_batches` that were counted.
        row_bytes: int64 [rows], of each in host memory, what finds it included; 0: of a type without features.
        cached: rows that each clique holds, int64 [any] a clique; the reads are those of the first clique.
        room_bytes: of host memory for rows.
    """
    in_all = np.ones(len(reads), bool)
    for rows in cached:
        held = np.zeros(len(reads), bool)
        held[rows] = True
        in_all &= held
    wanted = np.flatnonzero((row_bytes > 0) & ~in_all)
    order = wanted[np.argsort(-reads[wanted], kind="stable")]
    in_memory = order[: int(np.searchsorted(np.cumsum(row_bytes[order]), room_bytes, side="right"))]
    on_disk = row_bytes > 0
    on_disk[in_memory] = False
    on_disk[np.concatenate(cached[:1]) if len(cached) else []] = False
    rows_per_batch = float(expected_reads(reads, row_bytes > 0)[on_disk].sum()) / max(1, num_batches)
    return DiskReads(int(on_disk.sum()), int(row_bytes[on_disk].sum()), rows_per_batch)
