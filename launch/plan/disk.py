"""What a plan with --host-bytes leaves on the disk, and the seconds that its reads take."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.units import format_bytes
from cohort_gnn.cache import Counts, Rows
from cohort_gnn.cache.plan.disk import disk_reads, remembered_rates
from cohort_gnn.dataset import Dataset
from cohort_gnn.dataset.hetero import NodeTable
from cohort_gnn.launch.plan.table import gpus_of


@dataclass(frozen=True)
class DiskPlan:
    """Of an epoch on all GPUs together.

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
        """Of an epoch's reads, if nothing else takes longer."""
        return self.num_batches * self.reads_of_batch / self.reads_per_second

    def as_json(self) -> dict:
        """As ``cohort plan --json`` has it."""
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


def demand_encoded(option: str, tables: Sequence[Dataset | NodeTable], are_encoded: bool, folder: Path) -> None:
    """Raises CohortError, as the sampler of a run, if raw rows are in host memory: only encoded rows can be elsewhere.

    Args:
        option: that leaves rows elsewhere.
        are_encoded: whether --compress asks for encoded rows in host memory.
    """
    if not are_encoded or any(table.encoded_rows is None for table in tables if table.feature_dtype):
        hint = f"encode them with: cohort dataset prepare {folder}; and use --compress auto"
        raise CohortError(option, "encoded feature rows in host memory", "raw rows", hint)


def plan_disk(
    tables: Sequence[Rows], counts: Sequence[Counts], placed, files: Sequence[Path], host_bytes: int, num_batches: int
) -> DiskPlan | None:
    """What stays on the disk where rows take more than ``host_bytes``; None: all rows are in host memory.

    Args:
        tables: the rows of each node type, with what each takes in host memory.
        counts: of all GPUs, or of each clique.
        placed: the plan of the caches.
        files: of encoded rows; the drive of the largest is measured.
        num_batches: of an epoch.

    Raises:
        CohortError: the disk cannot be measured.
    """
    stored = [np.broadcast_to(rows.host_row_bytes, rows.num_rows) for rows in tables]
    row_bytes = np.concatenate(stored).astype(np.int64)
    if not files or row_bytes.sum() <= host_bytes:
        return None
    reads = np.sum([each.node_reads.astype(np.int64) for each in counts], axis=0)
    cliques = [placed.clique(number).gpus for number in range(placed.num_cliques)]
    held = [np.asarray(gpu.features.nodes, np.int64) for gpu in gpus_of(placed)]
    cached = [np.unique(np.concatenate([held[gpu] for gpu in gpus])) for gpus in cliques]
    counted = sum(each.num_batches for each in counts)
    found = disk_reads(reads, counted, row_bytes, cached, host_bytes)
    rates = remembered_rates(max(files, key=lambda file: file.stat().st_size))
    return DiskPlan(
        found.rows_on_disk,
        found.bytes_on_disk,
        found.reads_of_batch,
        num_batches,
        rates["row_reads_per_second"],
        rates["is_direct"],
    )
