"""``cohort dataset shard``: the encoded rows of a data set in parts, a file for each rank of ``cohort.ShardedRows``."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from cohort_gnn import ibp
from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.files import demand_writable, temporary_folder
from cohort_gnn.base.units import format_bytes
from cohort_gnn.dataset import open as open_dataset
from cohort_gnn.dataset.writer import unreplaced
from cohort_gnn.launch.data.prepare import BATCH_BYTES, SHARDS_FOLDER, RowsToEncode, bytes_bar
from cohort_gnn.launch.data.stored_rows import StoredRows


def register(dataset_commands) -> None:
    """Adds the command."""
    text = "divide the encoded feature rows into K files, DIR/shards/RANK-of-K.ibp, for the ranks of cohort.ShardedRows"
    parser = dataset_commands.add_parser("shard", help=text, description=text)
    parser.add_argument("path", metavar="DIR", type=Path, help="folder of a data set that was prepared")
    parser.add_argument("--parts", type=int, required=True, metavar="K", help="number of parts: the number of ranks")
    parser.add_argument("--type", metavar="TYPE", help="of several node types, the one whose rows are divided")
    parser.set_defaults(func=shard)


def shard(args: argparse.Namespace) -> int:
    """Runs the command; 0 when the parts are in place, rank 0 having the first rows."""
    with unreplaced(args.path) as demand_unreplaced:
        print(_divide(args, demand_unreplaced), file=sys.stderr)
    return 0


def _divide(args: argparse.Namespace, demand_unreplaced: Callable[[], None]) -> str:
    """Writes the parts; returns what there is now."""
    key, stored, encoded = _encoded_rows(args)
    if not 1 <= args.parts <= len(encoded):
        raise CohortError("--parts", f"an integer in [1, {len(encoded)}]", str(args.parts), "give each part a row")
    cuts = np.linspace(0, len(encoded), args.parts + 1).astype(np.int64)
    out, kind = args.path / SHARDS_FOLDER, f"{key}." if key else ""
    step, written = max(BATCH_BYTES // stored.row_bytes // 64, 1) * 64, 0
    with (
        bytes_bar("dividing", len(encoded) * stored.row_bytes) as advance,
        demand_writable(out, hint="is DIR writable, and its disk not full?"),
    ):
        out.mkdir(exist_ok=True)
        with temporary_folder(out / "parts") as folder:
            for rank, (first, last) in enumerate(zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True)):
                part = RowsToEncode(stored, np.arange(first, last), advance)
                file = folder / f"{kind}{rank}-of-{args.parts}.ibp"
                written += ibp.encode(part, encoded.profile, layout=encoded.layout, out=file, batch_rows=step)
            demand_unreplaced()
            for file in folder.iterdir():
                file.replace(out / file.name)
    rows = f"{len(encoded):,} rows in {args.parts} parts, {format_bytes(written)}"
    return f"{out}: {rows}; rank R holds cohort.ibp.load('{out}/{kind}R-of-{args.parts}.ibp')"


def _encoded_rows(args: argparse.Namespace) -> tuple[str, StoredRows, ibp.EncodedRows]:
    """(the node type's name in file names, its rows, its encoded rows), of the rows to be divided.

    Raises:
        CohortError: there are none, or --type names none of several node types.
    """
    data = open_dataset(args.path)
    name = next(iter(data.node_types)) if args.type is None and len(data.node_types) == 1 else args.type
    if name not in data.node_types:
        raise CohortError("--type", f"one of the node types {', '.join(data.node_types)}", name or "none")
    table = data.node_types[name]
    if not table.feature_dim:
        raise CohortError("--type", "a node type with features", name, "only feature rows are divided")
    if table.encoded_rows is None:
        hint = f"encode them with: cohort dataset prepare {args.path}"
        raise CohortError(str(args.path), "encoded feature rows", "none", hint)
    encoded = ibp.load(table.encoded_rows)
    return data.key_of(name), StoredRows(table, encoded), encoded
