"""``cohort dataset prepare`` and ``generate --prepared``: feature rows encoded once, for runs that then map them."""

import argparse
import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from cohort_gnn import ibp
from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.progress_lines import ProgressLines
from cohort_gnn.base.units import format_bytes
from cohort_gnn.dataset import StoredGraph, open_one_type
from cohort_gnn.dataset import open as open_dataset
from cohort_gnn.dataset.importing.renumber import renumber
from cohort_gnn.dataset.prepared import (
    PREPARED_FOLDER,
    Owner,
    RawRows,
    encoded_file,
    is_prepared,
    write_prepared,
)
from cohort_gnn.dataset.stored_graph import FeatureTable
from cohort_gnn.dataset.writer import GeneratedRows, output_folder, unreplaced
from cohort_gnn.ibp.profile import CODECS, MANTISSA_BITS
from cohort_gnn.launch.data.stored_rows import StoredRows, bytes_of
from cohort_gnn.launch.options.parser import kind
from cohort_gnn.spec.types import Seed

SHARDS_FOLDER = "shards"  # of the parts that `cohort dataset shard` writes
BATCH_BYTES = 128 << 20  # of rows in memory at a time
SAMPLE_BYTES = 64 << 20  # of rows looked at to choose a codec, at most
LARGER_BYTES = 16 << 10  # encoded rows that exceed the raw rows by no more than this are written without --codec
LARGER_TEXT = f"over {LARGER_BYTES >> 10} KiB more"


def register(dataset_commands) -> None:
    """Adds `prepare` beside the other commands on data sets, and --prepared to `generate`."""
    generate = dataset_commands.choices["generate"]
    text = "encode the feature rows once, into DIR/prepared; later runs map them"
    parser = dataset_commands.add_parser("prepare", help=text, description=text)
    parser.add_argument("path", metavar="DIR", type=Path, help="folder of a data set")
    parser.add_argument(
        "--drop-raw",
        action="store_true",
        help=f"remove the raw features after comparing all rows; refused if encoded rows need {LARGER_TEXT}",
    )
    parser.add_argument(
        "--reorder",
        choices=("none", "degree"),
        default="none",
        help="degree: make DIR/prepared a separate data set with nodes numbered by in-degree, largest first",
    )
    parser.add_argument("--seed", type=kind(Seed), default=0, help="seed of the sample of rows for choosing a codec")
    parser.set_defaults(func=prepare)
    parser.add_argument(
        "--codec",
        choices=CODECS,
        default="auto",
        help=f"auto (default): the codec with the fewest bytes to fetch; if encoded rows need {LARGER_TEXT} than raw"
        " rows, nothing is written; with a named codec, encoded rows are written in any case",
    )
    generate.add_argument("--prepared", action="store_true", help="write only encoded feature rows (see prepare)")
    generate.add_argument("--codec", choices=CODECS, help="codec of --prepared (default auto)")
    for command in (parser, generate):
        command.add_argument(
            "--mantissa-bits",
            type=int,
            metavar="T",
            help=f"codec planes: mantissa bits in plane A, 0 to 22 (default {MANTISSA_BITS}); plane A alone has a"
            " relative error of at most 2^-(T+1)",
        )
    generate.set_defaults(rows_writer=rows_writer)


def prepare(args: argparse.Namespace) -> int:
    """Runs the command; 0 when DIR/prepared is in place."""
    if is_prepared(args.path):
        raise CohortError(str(args.path), "a data set to prepare", "one that was prepared", "name the one it came from")
    with unreplaced(args.path) as demand_unreplaced:
        _prepare(args, demand_unreplaced)
    if any((args.path / SHARDS_FOLDER).glob("*.ibp")):
        note = f"holds parts of rows that were encoded before; repeat: cohort dataset shard {args.path} --parts K"
        print(f"{args.path / SHARDS_FOLDER}: {note}", file=sys.stderr)
    return 0


def _prepare(args: argparse.Namespace, demand_unreplaced: Callable[[], None]) -> None:
    with_edges = args.reorder == "none"  # rows of edges stay raw where nodes are renumbered
    data = open_dataset(args.path, prefer_raw=True) if with_edges else _to_renumber(args)
    tables = {name: StoredRows(table) for name, table in _tables_of(data, with_edges).items()}
    out = args.path / PREPARED_FOLDER
    raw = {name: RawRows.from_file(rows.file) for name, rows in tables.items()}
    profiles = _profiles(args, tables, out)
    if not profiles:
        return
    num_bytes = sum(tables[name].num_rows * tables[name].row_bytes for name in profiles)
    with output_folder(out, overwrite=True) as new, bytes_bar("encoding", num_bytes) as advance:
        folder = Path(new.path)
        order = renumber(args.path, folder) if args.reorder == "degree" else None
        for name, profile in profiles.items():
            line = encode_rows(RowsToEncode(tables[name], order, advance), folder, profile, encoded_file(name))
            print(f"{out / encoded_file(name)}: {line}", file=sys.stderr)
            if RawRows.from_file(tables[name].file) != raw[name]:
                hint = "prepare the data set again when it is complete"
                raise CohortError(str(tables[name].file), "features that do not change", "a file that changes", hint)
        demand_unreplaced()
        write_prepared(folder, {name: raw[name] for name in profiles}, list(map(data.key_of, data.edge_types)))
    for name in profiles:
        if args.drop_raw and tables[name].file.exists():
            _drop_raw(tables[name], order, out / encoded_file(name), demand_unreplaced)


def _to_renumber(args: argparse.Namespace) -> StoredGraph:
    """The data set. Raises CohortError where --reorder cannot renumber its nodes."""
    data = open_one_type(args.path, prefer_raw=True)
    if data.x is None and not args.drop_raw:
        hint = "pass --drop-raw as well: the rows move into the renumbered data set"
        raise CohortError(str(args.path), "raw features to keep", "encoded rows only, which this would replace", hint)
    return data


def _tables_of(data: StoredGraph, with_edges: bool) -> dict[Owner, FeatureTable]:
    """What has feature rows, of nodes or of edges, too."""
    tables: dict[Owner, FeatureTable] = {
        data.key_of(name): table for name, table in data.node_types.items() if table.feature_dim
    }
    for name, edges in data.edge_types.items() if with_edges else ():
        if edges.edge_table is not None and edges.edge_table.num_rows:
            tables[data.key_of(name)] = edges.edge_table
    return tables


def _profiles(args: argparse.Namespace, tables: dict[Owner, StoredRows], out: Path) -> dict:
    """How to encode the rows of each table; tables whose rows stay raw are left out, with a message.

    Raises:
        CohortError: the only rows are to be dropped, and are larger encoded.
    """
    profiles, mantissa_bits = {}, _mantissa_bits(args)
    for name, rows in tables.items():
        profile = choose_profile(RowsToEncode(rows), args.codec, args.seed, mantissa_bits)
        stays_raw = rows.file.exists() and args.codec == "auto" and args.reorder == "none"
        if not (larger := _larger(profile, rows) if stays_raw else ""):
            profiles[name] = profile
            continue
        if args.drop_raw and name == "":
            hint = f"keep the raw rows, which runs can read, too; --codec {profile.codec} encodes them in any case"
            raise CohortError(f"--drop-raw: {args.path}", "rows that are smaller encoded", larger, hint)
        file = out if name == "" else out / encoded_file(name)
        now = f"{out} is unchanged" if len(tables) == 1 and out.exists() else "runs read the raw rows"
        forced = f"--codec {profile.codec} writes it in any case"
        print(f"{file}: not written, because it would be {larger}; {now}; {forced}", file=sys.stderr)
    return profiles


def rows_writer(args: argparse.Namespace):
    """What `generate` writes rows with; None: as it does without --prepared."""
    if not args.prepared:
        if args.codec:
            raise CohortError("--codec", "--prepared beside it", "--codec alone", "raw rows have no codec")
        _mantissa_bits(args)
        return None
    return encoded_rows_writer(args.codec or "auto", args.seed, _mantissa_bits(args))


def _mantissa_bits(args: argparse.Namespace) -> int | None:
    """Of plane A; None: not asked for. Raises CohortError when they are, with a codec that has no planes."""
    if args.mantissa_bits is not None and args.codec != "planes":
        raise CohortError("--mantissa-bits", "--codec planes beside it", f"--codec {args.codec or 'auto'}")
    return args.mantissa_bits


def encoded_rows_writer(codec: str, sample_seed: int, mantissa_bits: int | None = None):
    """`write_rows` of cohort.dataset.generate: a function (folder, rows by node type) that writes them encoded, never
    raw."""

    def write(folder: Path, tables: dict[str | None, GeneratedRows]) -> None:
        out = folder / PREPARED_FOLDER
        out.mkdir()
        raw: dict[Owner, RawRows] = {}
        for name, rows in tables.items():
            profile = choose_profile(RowsToEncode(rows), codec, sample_seed, mantissa_bits)
            print(encode_rows(RowsToEncode(rows), out, profile, encoded_file(name or "")), file=sys.stderr)
            file = "features.npy" if name is None else f"{name}.features.npy"
            raw[name or ""] = RawRows.from_file(folder / file)
        write_prepared(out, raw)

    return write


def choose_profile(table: "RowsToEncode", codec: str, sample_seed: int, mantissa_bits: int | None) -> ibp.Profile:
    """Chooses from a sample of the rows how to encode them, and prints why."""
    # One row from each of so many equal parts: 1 % of the rows, 4096 at least, SAMPLE_BYTES at most.
    num_rows, most = len(table), SAMPLE_BYTES // table.rows.row_bytes
    bounds = np.linspace(0, num_rows, min(num_rows, max(4096, min(num_rows // 100, most))) + 1).astype(np.int64)
    ids = np.random.default_rng(sample_seed).integers(bounds[:-1], bounds[1:])
    profile = ibp.fit(table.typed(table.rows.take(ids)), codec, sample=1, mantissa_bits=mantissa_bits)
    print(profile.why, file=sys.stderr)
    return profile


def _larger(profile: ibp.Profile, rows) -> str:
    """How much larger encoded rows would be than raw ones, in words; "" if they are not larger, or hardly."""
    raw = rows.num_rows * rows.row_bytes
    chosen = next(candidate for candidate in profile.candidates if candidate["codec"] == profile.codec)
    directory = rows.num_rows // 4 if profile.slot_bytes else 8 * rows.num_rows  # ibp/FORMAT.md, 2
    encoded = round(chosen["stored_per_row"] * rows.num_rows) + directory
    if encoded <= raw + LARGER_BYTES:
        return ""
    return f"{_saved(encoded, raw)} ({format_bytes(encoded)} for {format_bytes(raw)})"


def _saved(encoded: int, raw: int) -> str:
    """ "12.5 % saved", or "30.4 % larger than raw" """
    percent = 100 * (1 - encoded / raw)
    return f"{percent:.1f} % saved" if percent >= 0 else f"{-percent:.1f} % larger than raw"


def encode_rows(table: "RowsToEncode", folder: Path, profile: ibp.Profile, file: str) -> str:
    """Writes a file of encoded rows into a folder; returns a summary of the result."""
    begin = time.monotonic()
    step = max(BATCH_BYTES // table.rows.row_bytes // 64, 1) * 64
    written = ibp.encode(table, profile, out=folder / file, batch_rows=step)
    seconds = time.monotonic() - begin
    raw = len(table) * table.rows.row_bytes
    rate = f"{seconds:.1f} s, {raw / 1e9 / seconds:.2f} GB/s"
    return f"{format_bytes(raw)} of rows in {format_bytes(written)}, {_saved(written, raw)}; {rate}"


class RowsToEncode:
    """The rows that ibp reads, some at a time: all of them, or those of an order, in a type that ibp knows."""

    def __init__(self, rows, order=None, advance=None):
        self.rows, self._order, self._advance = rows, order, advance or (lambda _: None)

    def __len__(self) -> int:
        return self.rows.num_rows if self._order is None else len(self._order)

    def __getitem__(self, part: slice):
        batch = self.bytes(part.start, min(part.stop, len(self)))
        self._advance(batch.nbytes)
        return self.typed(batch)

    def bytes(self, first: int, last: int) -> np.ndarray:
        """uint8 [n, row_bytes]"""
        if self._order is None:
            return self.rows.slice(first, last)
        return self.rows.take(self._order[first:last])

    def typed(self, rows: np.ndarray):
        """uint8 [n, row_bytes] as [n, D] of the features' type."""
        if self.rows.dtype != "bfloat16":
            return rows.view(self.rows.dtype)
        import torch

        return torch.from_numpy(rows.view(np.int16)).view(torch.bfloat16)


def _drop_raw(rows: StoredRows, order, file: Path, demand_unreplaced: Callable[[], None]) -> None:
    """Removes the raw features when every row that the new file holds is one of them, bit for bit."""
    encoded = ibp.load(file)
    step = max(BATCH_BYTES // rows.row_bytes, 1)
    with bytes_bar("comparing", rows.num_rows * rows.row_bytes) as advance:
        table = RowsToEncode(rows, order)
        for first in range(0, rows.num_rows, step):
            last = min(first + step, rows.num_rows)
            if not np.array_equal(bytes_of(ibp.fetch(encoded, np.arange(first, last))), table.bytes(first, last)):
                place = f"{file}: rows {first} to {last - 1}"
                raise CohortError(place, f"the rows of {rows.file}", "rows that differ", "the raw features are kept")
            advance((last - first) * rows.row_bytes)
    demand_unreplaced()
    rows.file.unlink()
    print(f"{rows.file}: removed after comparing all rows", file=sys.stderr)


@contextlib.contextmanager
def bytes_bar(what: str, num_bytes: int) -> Iterator[Callable[[int], None]]:
    """A progress bar over bytes, on standard error, or lines where it is no terminal; yields what advances it."""
    columns = (TextColumn(what), BarColumn(bar_width=None), TaskProgressColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task, lines = bar.add_task(what, total=num_bytes), ProgressLines(console.print)

        def advance(num_done: int) -> None:
            bar.advance(task, num_done)
            if not console.is_terminal:
                lines.at(what, bar.tasks[task].completed / max(1, num_bytes))

        yield advance
