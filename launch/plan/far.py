"""Rows that are not in a machine's memory: what its GPUs read from its disk and from other machines, computed."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cohort_gnn.base.distinct import distinct
from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.units import format_bytes
from cohort_gnn.cache.budget import available_host_bytes
from cohort_gnn.cache.disk import DiskRates, disk_reads, expected_reads, remembered_rates
from cohort_gnn.cache.planner import Counts, PlanRows
from cohort_gnn.dataset.stored_graph import FeatureTable
from cohort_gnn.launch.plan.table import gpu_plans


def bytes_in_host(rows: PlanRows) -> np.ndarray:
    """[num_rows], of each row in host memory."""
    stored = rows.row_bytes if rows.host_row_bytes is None else rows.host_row_bytes
    return np.broadcast_to(stored, rows.num_rows)


class Reads:
    """What a plan reads of the rows of all node types.

    Args:
        tables: the rows of each node type, with what each takes in host memory.
        counts: of all GPUs, or of each clique.
        placed: the plan of the caches.
        files: of encoded rows; empty: there are none, and all rows are in memory.

    Attributes:
        row_bytes: int64 [rows], of each in host memory; 0: of a type without features.
        reads: int64 [rows], batches that read each row, of `num_batches` that were counted.
        held: the rows that each clique holds, int64 [any] a clique.
    """

    def __init__(self, tables: Sequence[PlanRows], counts: Sequence[Counts], placed, files: Sequence[Path]):
        self.row_bytes = np.concatenate(list(map(bytes_in_host, tables))).astype(np.int64)
        self.reads = np.sum([count.node_reads.astype(np.int64) for count in counts], axis=0)
        self.num_batches = sum(count.num_batches for count in counts)
        gpu_nodes = [np.asarray(gpu.features.nodes, np.int64) for gpu in gpu_plans(placed)]
        cliques = [placed.clique(number).gpus for number in range(placed.num_cliques)]
        self.held = [distinct(*(gpu_nodes[gpu] for gpu in gpus)) for gpus in cliques]
        self.files = files

    def drive(self) -> DiskRates:
        """The measured rates of the drive with the largest file.

        Raises:
            CohortError: it cannot be measured.
        """
        return remembered_rates(max(self.files, key=lambda file: file.stat().st_size))


@dataclass(frozen=True)
class DiskPlan:
    """The reads from the disk in an epoch, of all GPUs together.

    Attributes:
        rows, bytes: that stay on the disk.
        reads_of_batch: at most, a read for each row that no earlier batch has left.
        reads_per_second: of random rows, measured on the drive.
    """

    rows: int
    bytes: int
    reads_of_batch: float
    num_batches: int
    reads_per_second: float
    is_direct: bool

    @property
    def seconds(self) -> float:
        """Seconds of an epoch's reads, if nothing else takes longer."""
        return self.num_batches * self.reads_of_batch / self.reads_per_second

    def as_json(self) -> dict:
        """The members of ``cohort plan --json``."""
        return {"disk": asdict(self) | {"seconds": self.seconds}}

    def line(self) -> str:
        """One line for people."""
        reads = self.num_batches * self.reads_of_batch
        how = "" if self.is_direct else ", through the page cache"
        return (
            f"disk: {self.rows:,} rows ({format_bytes(self.bytes)}) stay there; at most {self.reads_of_batch:,.0f}"
            f" reads a batch, {reads:,.0f} an epoch of {self.num_batches:,} batches: {self.seconds:.3g} s at"
            f" {self.reads_per_second:,.0f} reads a second (measured{how})"
        )


def demand_encoded_tables(option: str, tables: Sequence[FeatureTable], are_encoded: bool, folder: Path) -> None:
    """Raises CohortError, as the sampler of a run, if raw rows are in host memory: only encoded rows can be elsewhere.

    Args:
        option: that leaves rows elsewhere.
        tables: of node types with features.
        are_encoded: whether --compress asks for encoded rows in host memory.
    """
    if not are_encoded or any(table.encoded_rows is None for table in tables):
        hint = f"encode them with: cohort dataset prepare {folder}; and use --compress auto"
        raise CohortError(option, "encoded feature rows in host memory", "raw rows", hint)


def plan_disk(reads: Reads, host_bytes: int, num_batches: int) -> DiskPlan | None:
    """What stays on the disk where rows take more than ``host_bytes``; None: all rows are in host memory.

    Args:
        num_batches: of an epoch.

    Raises:
        CohortError: the disk cannot be measured.
    """
    if not reads.files or reads.row_bytes.sum() <= host_bytes:
        return None
    on_disk = disk_reads(reads.reads, reads.num_batches, reads.row_bytes, reads.held, host_bytes)
    rates = reads.drive()
    return DiskPlan(*on_disk, num_batches, rates["row_reads_per_second"], rates["is_direct"])


class FarRows(NamedTuple):
    """What decides where the rows of a run on several machines are.

    Attributes:
        are_divided: each machine keeps a part (``--feature-placement partitioned``); False: all, on its disk what is
            beyond host_bytes.
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

    def shares(self, machines: int) -> tuple[float, float]:
        """What a batch of one GPU reads if so many machines each own the same share of hot and of cold rows.

        Returns:
            The share of the bytes of rows outside GPU memory that come from other machines; and the rows that are not
            in the memory of the machine whose part they are. Its drive reads them, and as many for this machine as this
            one's for others. At most: earlier batches may have left some in GPU memory.
        """
        parts = machines if self.are_divided else 1
        order = np.argsort(-self.reads, kind="stable")
        order = order[self.row_bytes[order] > 0]
        own = self.row_bytes[order].sum() / parts
        asked = expected_reads(self.reads, self.row_bytes > 0) * ~self.held
        other_share = 1 - 1 / parts
        room = own if self.host_bytes is None else self.host_bytes
        if room < own:  # own rows alone, those that are read most often; others ask for those that GPUs here hold, too
            kept = order if self.are_divided else order[~self.held[order]]
            cold = kept[int(np.searchsorted(np.cumsum(self.row_bytes[kept]) / parts, room, side="right")) :]
            return other_share, float(asked[cold].sum()) / max(1, self.num_batches)
        rest = order[~self.held[order]]
        size = self.row_bytes[rest]
        cold = rest[int(np.searchsorted(np.cumsum(size) * other_share, room - own, side="right")) :]
        everything = float((asked * self.row_bytes).sum())
        from_others = float((asked[cold] * self.row_bytes[cold]).sum())
        return other_share * from_others / everything if everything else 0.0, 0.0


def are_divided(features: str, row_bytes: int, host_bytes: int | None, files: Sequence[Path]) -> bool:
    """Whether each machine keeps a part of the rows, which take so many bytes encoded in ``files``."""
    limit = available_host_bytes() if host_bytes is None else host_bytes
    return bool(files) and (features == "partitioned" or (features == "auto" and row_bytes > limit))


def far_rows(reads: Reads, features: str, host_bytes: int | None, machines: Sequence[int]) -> FarRows | None:
    """The rows of a run on several machines; None: each machine has them all in memory.

    Args:
        features: of ``cohort train``.
        machines: numbers of them; the drive is measured if rows stay there for one of these.

    Raises:
        CohortError: the drive cannot be measured.
    """
    total = int(reads.row_bytes.sum())
    divides = are_divided(features, total, host_bytes, reads.files)
    if not reads.files or not (divides or (host_bytes is not None and total > host_bytes)):
        return None
    held = np.zeros(len(reads.row_bytes), bool)
    held[reads.held[0]] = True
    parts = machines if divides else [1]
    needs_drive = host_bytes is not None and any(host_bytes < total / num_parts for num_parts in parts)
    drive = reads.drive()["row_reads_per_second"] if needs_drive else 0.0
    return FarRows(divides, reads.reads, reads.num_batches, reads.row_bytes, held, host_bytes, drive)
