"""`cohort dataset import`."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.progress_lines import ProgressLines
from cohort_gnn.base.renamed import rename
from cohort_gnn.dataset.arrays import TASKS
from cohort_gnn.dataset.cli_parts import add_common, lines_on_stderr, number, summary
from cohort_gnn.dataset.importing.beside import TABLE_NAMES, SourceOptions
from cohort_gnn.dataset.importing.importer import FORMATS, import_graph
from cohort_gnn.dataset.importing.options import SELF_LOOPS, ConvertOptions
from cohort_gnn.dataset.layouts.graph import relation_of
from cohort_gnn.dataset.layouts.tables import RAW_DTYPES, RawLayout
from cohort_gnn.dataset.reader import open as open_dataset
from cohort_gnn.dataset.reverses import NO_REVERSE
from cohort_gnn.dataset.tables.text_options import SEPARATORS
from cohort_gnn.dataset.tables.timestamps import UNITS
from cohort_gnn.spec.graph import EdgeType
from cohort_gnn.spec.types import Bytes, kind

EPILOG = "dataset/FORMAT.md describes the content that is read from each format."
TENSORS_HELP = "In the place of a .npy file: a tensor, FILE.safetensors:NAME or FILE.pt:NAME."


def register(commands: argparse._SubParsersAction) -> None:
    text = "convert a graph from another format to a data set, in bounded memory"
    command = commands.add_parser("import", help=text, description=text, epilog=EPILOG)
    command.add_argument("source", metavar="SOURCE", type=Path, help="file, folder, or pattern of files in quotes")
    command.add_argument("out", metavar="OUT", type=Path, help="folder to write; temporary files are on the same disk")
    command.add_argument(
        "--format", choices=FORMATS, default="auto", help="format of SOURCE; default: guessed from the file names"
    )
    command.add_argument(
        "--as-proposed",
        action="store_true",
        help="a folder of tables or of RelBench, or a .duckdb file, without graph.yaml: import it as cohort dataset"
        " describe proposes; OUT/graph.yaml keeps the proposal",
    )
    command.add_argument(
        "--memory",
        type=kind(Bytes),
        default=4_000_000_000,
        metavar="4GB",
        help="memory for sorting and reading; default: 4GB",
    )
    _add_edge_options(command.add_argument_group("edges"))
    group = command.add_argument_group("input that SOURCE lacks, or that replaces input from SOURCE", TENSORS_HELP)
    add_source_options(group)
    group.add_argument(
        "--label-type",
        dest="task",
        choices=TASKS,
        default="classification",
        help="type of the labels: classes (default), numbers [V], or 0 and 1 for each of several labels [V, L]",
    )
    rename(command, "--task", "--label-type")
    features = command.add_argument_group("features")
    features.add_argument("--pca", type=number, metavar="K", help="use K principal components as float32 features")
    features.add_argument("--row-normalize", action="store_true", help="scale each feature row to the sum 1")
    features.add_argument(
        "--columns-from",
        type=Path,
        metavar="DATASET",
        help="encode declared columns of a graph.yaml with the means, categories and classes of this data set, and make"
        " its components (--pca)",
    )
    add_common(command)
    command.set_defaults(func=_import)


def _add_edge_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--undirected", action="store_true", help="store every edge in both directions, once")
    group.add_argument(
        "--reverse-edges",
        dest="reverse",
        action=argparse.BooleanOptionalAction,
        help="add the reverse of each edge; default: as the original library does when it loads the format",
    )
    group.add_argument(
        "--reverse-of",
        type=reverse_of,
        action="append",
        metavar="REVERSE=RELATION",
        help="several node types: a relation that is the reverse of another, each as source:name:target, or"
        f" source:name:target={NO_REVERSE} for one that is no reverse; may be repeated; default: relations that have"
        " exactly the edges of another in the other direction",
    )
    group.add_argument(
        "--dedupe",
        action=argparse.BooleanOptionalAction,
        help="keep equal edges once; default: as the original library does",
    )
    group.add_argument("--transpose", action="store_true", help="reverse the direction of the edges")
    group.add_argument(
        "--self-loops",
        choices=SELF_LOOPS,
        help="add: every node gets exactly one self loop; default: as the original library does",
    )
    group.add_argument(
        "--rename",
        action="store_true",
        help="accept arbitrary integer ids: nodes are numbered in the order of ids, and id_of_node.npy keeps the ids",
    )
    group.add_argument(
        "--node-ids", type=Path, metavar="FILE", help="id of each feature row, for arbitrary integer ids"
    )
    group.add_argument(
        "--ids",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="--no-ids: the data set has no file with the ids that nodes have in SOURCE",
    )
    group.add_argument(
        "--nodes", type=number, metavar="V", help="number of nodes; default: number of rows, or the largest id + 1"
    )


def add_source_options(group: argparse._ArgumentGroup) -> None:
    """Adds the options of SourceOptions, but for those about edges and ids of nodes."""
    group.add_argument(
        "--destinations",
        type=Path,
        metavar="FILE",
        help="destinations of the edges; SOURCE then contains only the sources",
    )
    group.add_argument(
        "--columns", type=names, metavar="SRC,DST", help="columns of an edge list: names, or numbers from 0"
    )
    group.add_argument(
        "--edge-weights", type=Path, metavar="FILE", help="one weight per edge: .npy [E], .csv or .parquet"
    )
    group.add_argument("--weight-column", metavar="NAME", help="column of the weights in an edge list: name or number")
    group.add_argument(
        "--edge-times", type=Path, metavar="FILE", help="one time per edge, an integer: .npy [E], .csv or .parquet"
    )
    group.add_argument("--time-column", metavar="NAME", help="column of the times in an edge list: name or number")
    group.add_argument(
        "--time-unit", choices=UNITS, help="times are timestamps or dates, kept as integers since 1970 in this unit"
    )
    group.add_argument("--time-zone", metavar="ZONE", help="of timestamps without a zone, such as UTC or Europe/Berlin")
    group.add_argument(
        "--edge-features", type=Path, metavar="FILE", help="feature rows of the edges: .npy [E, D], .csv or .parquet"
    )
    group.add_argument(
        "--edge-feature-columns", type=columns, metavar="A,B|A:Z", help="columns of the edges' features in an edge list"
    )
    tables_help = "; TABLE=... for one: " + ", ".join(TABLE_NAMES)
    for name, value, text in (
        ("--separator", separator, f"of text: column separator: a character, or {', '.join(SEPARATORS)}"),
        ("--header", yes_or_no, "of text: yes or no: whether the first line contains column names"),
        (
            "--comment",
            str,
            "of text: characters, such as '#': lines that begin so are left out; none: no line is",
        ),
        ("--null", str, "a text that stands for a missing value, beside empty ones; none: there is none"),
        ("--id-column", str, "column of the ids of nodes in a table of features or labels; none: row i is node i"),
    ):
        metavar = {"--separator": "C", "--header": "yes|no", "--null": "NA", "--id-column": "NAME"}.get(name, "C")
        reader = table_option(value)
        group.add_argument(name, type=reader, action="append", metavar=f"[TABLE=]{metavar}", help=text + tables_help)
    group.add_argument(
        "--features", type=Path, metavar="FILE|ones", help="feature rows: .npy, .csv, .parquet, or raw binary numbers"
    )
    group.add_argument("--feature-dim", type=number, metavar="D", help="number of columns of raw binary numbers")
    group.add_argument(
        "--feature-dtype",
        choices=RAW_DTYPES,
        help="type of raw binary numbers (default: float32); bfloat16 or float32: what a .npy file of uint16 has",
    )
    group.add_argument(
        "--feature-columns", type=columns, metavar="A,B|A:Z", help="columns of a table of features; default: all"
    )
    group.add_argument("--labels", type=Path, metavar="FILE", help="label of each node: .npy, .csv or .parquet")
    group.add_argument(
        "--label-columns", type=columns, metavar="A", help="columns of a table of labels; default: the only column"
    )
    group.add_argument("--splits", type=Path, nargs=3, metavar=("TRAIN", "VAL", "TEST"), help="files of ids or masks")
    group.add_argument(
        "--target", metavar="TYPE", help="node type of the labels and splits; default: the only one that has labels"
    )


def reverse_of(text: str) -> tuple[EdgeType, EdgeType | None]:
    """A relation, and the one that it is the reverse of."""
    name, _, other = text.partition("=")
    try:
        relations = [None if part == NO_REVERSE else relation_of("--reverse-of", part, ":") for part in (name, other)]
    except CohortError as error:
        raise argparse.ArgumentTypeError(f"expected {error.expected}, found {error.found}") from error
    if relations[0] is None:
        raise argparse.ArgumentTypeError(f"expected a relation source:name:target, found {name}")
    return relations[0], relations[1]


def separator(text: str) -> str:
    """A character, or its name."""
    character = SEPARATORS.get(text, text)
    if len(character) != 1:
        names = ", ".join(SEPARATORS)
        raise argparse.ArgumentTypeError(f"expected one character, or {names}, found {text!r}")
    return character


def yes_or_no(text: str) -> str:
    if text not in ("yes", "no", "auto"):
        raise argparse.ArgumentTypeError(f"expected yes or no, found {text!r}")
    return text


def table_option(value: Callable[[str], str]) -> Callable[[str], dict[str, str]]:
    """A parser of "no", or of "edges=no,features=yes": {table: value}, with "" for all other tables."""

    def read(text: str) -> dict[str, str]:
        parts = text.split(",") if "=" in text and text.split("=")[0] in TABLE_NAMES else [text]
        values = {}
        for part in parts:
            table, equals, rest = part.partition("=")
            named = equals and table in TABLE_NAMES
            values[table if named else ""] = value(rest if named else part)
        return values

    return read


def names(text: str) -> list[str]:
    """ "src,dst" as two names."""
    parts = text.split(",")
    if len(parts) != 2 or not all(parts):
        raise argparse.ArgumentTypeError(f"expected two columns such as src,dst or 0,1, found {text!r}")
    return parts


def columns(text: str) -> list[str]:
    """ "id,f0:f9" as a list."""
    parts = text.split(",")
    if not all(parts):
        raise argparse.ArgumentTypeError(f"expected columns such as f0,f1 or f0:f9 or 1:20, found {text!r}")
    return parts


def _field_arguments(args: argparse.Namespace, options: type, without: tuple[str, ...]) -> dict[str, Any]:
    """The arguments that are fields of a dataclass of options."""
    names = (field.name for field in dataclasses.fields(options))
    return {name: getattr(args, name) for name in names if name not in without}


def source_options(args: argparse.Namespace) -> SourceOptions:
    """What the arguments of add_source_options say."""
    raw = RawLayout(args.feature_dim, args.feature_dtype)
    by_table: dict[str, Any] = {
        name: {table: value for option in getattr(args, name) or () for table, value in option.items()} or None
        for name in ("separator", "header", "comment", "null", "id_column")
    }
    return SourceOptions(**_field_arguments(args, SourceOptions, ("raw", *by_table)), **by_table, raw=raw)


def _import(args: argparse.Namespace) -> int:
    inputs = source_options(args)
    options = _field_arguments(args, ConvertOptions, ("node_ids",)) | {"reverse_of": dict(args.reverse_of or ())}
    console = lines_on_stderr()

    def note(text: str) -> None:
        console.print(escape(text))

    start = time.monotonic()
    with stages(console) as progress:
        how: dict[str, Any] = {"format": args.format, "as_proposed": args.as_proposed, "inputs": inputs}
        import_graph(args.source, args.out, **how, progress=progress, note=note, **options)
    note(f"{args.out}: {summary(open_dataset(args.out))}, written in {time.monotonic() - start:.1f} s")
    return 0


@contextlib.contextmanager
def stages(console: Console) -> Iterator:
    """A bar for each stage of the work; the one before is whole when the next begins. Without a terminal: lines."""
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        tasks: dict[str, int] = {}
        lines = ProgressLines(console.print)

        def progress(what: str, fraction: float) -> None:
            if what not in tasks:
                for task in tasks.values():
                    bars.update(task, completed=1)
                tasks[what] = bars.add_task(what, total=1)
            bars.update(tasks[what], completed=fraction)
            if not console.is_terminal:
                lines.at(what, fraction)

        yield progress
