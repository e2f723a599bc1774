"""``cohort bench disk``: random reads of a prepared data set's rows, beside what the drive gives at all.

Blocks of 4096 bytes and feature rows take turns, read by as many threads as in a run with ``--host-bytes``, and nothing
else is done with them. The larger the share of the drive's own rate, the less the reading of rows adds.
"""

import argparse
from pathlib import Path

from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.tables import TextTable, print_tables
from cohort_gnn.base.units import format_bytes
from cohort_gnn.cache.disk import measured_rates
from cohort_gnn.launch.options.parser import add_dataset, kind
from cohort_gnn.launch.run.job import open_to_train
from cohort_gnn.spec.types import AboveZero


def register(benches) -> None:
    """Adds the command to those of ``cohort bench``."""
    parser = benches.add_parser("disk", help="time random reads of feature rows from the disk", description=__doc__)
    add_dataset(parser)
    text = "seconds for each kind of reads (default 2)"
    parser.add_argument("--seconds", type=kind(AboveZero), default=2.0, help=text, metavar="S")
    parser.set_defaults(func=bench)


def bench(args: argparse.Namespace) -> int:
    """Prints a row for each file of encoded rows."""
    data = open_to_train(args.dataset)
    files = [Path(table.encoded_rows) for table in data.node_types.values() if table.encoded_rows is not None]
    if not files:
        hint = f"encode them with: cohort dataset prepare {args.dataset}"
        raise CohortError(str(args.dataset), "a data set with encoded rows", "none", hint)
    shown = TextTable("Random reads", ["file", "size", "blocks/s", "row reads/s", "share %", "rows/s"])
    for file in files:
        rates = measured_rates(file, args.seconds)
        blocks, reads = rates["blocks_per_second"], rates["row_reads_per_second"]
        numbers = [f"{blocks:,.0f}", f"{reads:,.0f}", f"{100 * reads / blocks:.1f}", f"{rates['rows_per_second']:,.0f}"]
        shown.rows.append([file.name, format_bytes(file.stat().st_size), *numbers])
        if not rates["is_direct"]:
            shown.note = "read through the page cache, because the file system refuses O_DIRECT"
    print_tables(shown)
    return 0
