"""Rows that are not in a machine's memory: what its GPUs read from other machines and from disks, computed."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cohort_gnn.cache import Counts, Rows
from cohort_gnn.cache.plan.budget import available_host_bytes
from cohort_gnn.cache.plan.disk import expected_reads, remembered_rates
from cohort_gnn.launch.plan.table import gpus_of


class Shares(NamedTuple):
    """Of a batch of one GPU.

    Attributes:
        remote: share of the bytes of rows outside GPU memory that come from other machines.
        disk_reads: rows that are not in the memory of the machine whose part they are; its drive reads them, and as
            many for this machine as this one's for others. At most: earlier batches may have left some in GPU memory.
    """

    remote: float
    disk_reads: float


class FarRows(NamedTuple):
    """What decides where the rows of a run on several machines are.

    Attributes:
        are_divided: each machine keeps a part (``--features partitioned``); False: all, on its disk what is beyond
            host_bytes.
        reads: int64 [rows], batches that read each row of all node types, of `num_batches` that were counted.
        row_bytes: int64 [rows], of each in host memory; 0: of a type without features.
        held: bool [rows], that a GPU does not read from elsewhere.
        host_bytes: for rows, of each machine; None: enough for its own part, and no other rows.
        drive: random reads a second of the drive that has the rows; 0: not needed.
    """

    are_divided: bool
    reads: np.ndarray
    num_batches: int
    row_bytes: np.ndarray
    held: np.ndarray
    host_bytes: int | None
    drive: float

    def prefers_others(self, machines: int) -> bool:
        """Whether caches have rows of other machines before the machine's own: no other memory here has them."""
        return self.are_divided and machines > 1 and self.host_bytes is None

    def shares(self, machines: int) -> Shares:
        """What so many machines read, each of which owns the same share of hot and of cold rows."""
        parts = machines if self.are_divided else 1
        order = np.argsort(-self.reads, kind="stable")
        order = order[self.row_bytes[order] > 0]
        own = self.row_bytes[order].sum() / parts
        asked = expected_reads(self.reads, self.row_bytes > 0) * ~self.held
        of_others = 1 - 1 / parts
        room = own if self.host_bytes is None else self.host_bytes
        if room < own:  # own rows alone, those that are read most often; others ask for those that GPUs here hold, too
            kept = order if self.are_divided else order[~self.held[order]]
            cold = kept[int(np.searchsorted(np.cumsum(self.row_bytes[kept]) / parts, room, side="right")) :]
            return Shares(of_others, float(asked[cold].sum()) / max(1, self.num_batches))
        rest = order[~self.held[order]]
        size = self.row_bytes[rest]
        cold = rest[int(np.searchsorted(np.cumsum(size) * of_others, room - own, side="right")) :]
        everything = float((asked * self.row_bytes).sum())
        from_others = float((asked[cold] * self.row_bytes[cold]).sum())
        return Shares(of_others * from_others / everything if everything else 0.0, 0.0)


def are_divided(features: str, row_bytes: int, host_bytes: int | None, files: Sequence[Path]) -> bool:
    """Whether each machine keeps a part of the rows (``--features``), which take so many bytes encoded in ``files``."""
    limit = available_host_bytes() if host_bytes is None else host_bytes
    return bool(files) and (features == "partitioned" or (features == "auto" and row_bytes > limit))


def far_rows(
    features: str,
    tables: Sequence[Rows],
    counts: Sequence[Counts],
    placed,
    files: Sequence[Path],
    host_bytes: int | None,
    machines: Sequence[int],
) -> FarRows | None:
    """The rows of a run on several machines; None: each machine has them all in memory.

    Args:
        features: of ``cohort train``.
        tables: the rows of each node type, with what each takes in host memory.
        counts: of all GPUs.
        placed: the plan of the caches.
        files: of encoded rows; empty: there are none, and all rows are in memory.
        machines: numbers of them; the drive is measured if rows stay there for one of these.

    Raises:
        CohortError: the drive cannot be measured.
    """
    stored = [np.broadcast_to(rows.host_row_bytes, rows.num_rows) for rows in tables]
    row_bytes = np.concatenate(stored).astype(np.int64)
    total = int(row_bytes.sum())
    divides = are_divided(features, total, host_bytes, files)
    if not files or not (divides or (host_bytes is not None and total > host_bytes)):
        return None
    held = np.zeros(len(row_bytes), bool)
    gpus = gpus_of(placed)
    for gpu in placed.clique(0).gpus:
        held[np.asarray(gpus[gpu].features.nodes, np.int64)] = True
    parts = machines if divides else [1]
    needs_drive = host_bytes is not None and any(host_bytes < total / each for each in parts)
    largest = max(files, key=lambda file: file.stat().st_size)
    drive = remembered_rates(largest)["row_reads_per_second"] if needs_drive else 0.0
    reads = np.sum([each.node_reads.astype(np.int64) for each in counts], axis=0)
    num_batches = sum(each.num_batches for each in counts)
    return FarRows(divides, reads, num_batches, row_bytes, held, host_bytes, drive)
