"""`cohort dataset import | append | describe | generate | partition | split-links | check | info`."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np
from rich.markup import escape

from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.renamed import rename
from cohort_gnn.base.tables import print_tables
from cohort_gnn.base.units import format_bytes
from cohort_gnn.dataset.appending import cli as append_cli
from cohort_gnn.dataset.changes import problems_of_record
from cohort_gnn.dataset.check import check
from cohort_gnn.dataset.cli_parts import (
    add_common,
    aims,
    lines_on_stderr,
    number,
    parts,
    rows_to_draw,
    span_of,
    summary,
    tables_of_types,
)
from cohort_gnn.dataset.generating.shapes import SHAPES, generate_shape
from cohort_gnn.dataset.generating.typed import generate_typed
from cohort_gnn.dataset.importing import cli as import_cli
from cohort_gnn.dataset.importing.describe import describe
from cohort_gnn.dataset.link_split import split_links
from cohort_gnn.dataset.links import HeldOut, LinkEdges, held_out_of, with_held_out
from cohort_gnn.dataset.partitioning import cli as partition_cli
from cohort_gnn.dataset.reader import Dataset
from cohort_gnn.dataset.reader import open as open_dataset
from cohort_gnn.dataset.stored_graph import StoredGraph
from cohort_gnn.dataset.tasks import open_task, tasks_of
from cohort_gnn.dataset.writer import generate
from cohort_gnn.spec.options import flag_of

EPILOG_NUMBERS = "Accepted forms of numbers: 2400000, 2.4M, 124M or 1e6 (K, M, G)."

SIZES = ("nodes", "edges")
DEFAULTS = {"dim": 64, "dtype": "float32", "classes": 10}  # but for the shapes of published graphs
GENERATED = (*SIZES, *DEFAULTS, "seed", "split", "overwrite")  # arguments of all generators
UNTYPED = ("sbm", "powerlaw", "rmat")
ONE_TYPE = ", ".join(UNTYPED)  # as the help says it
KINDS_OF = {  # the kinds of graph that an option applies to, if not all
    **dict.fromkeys(SIZES, (*UNTYPED, "typed")),
    "scale": tuple(SHAPES),
    **dict.fromkeys(("rows", "undirected", "random_edge_weights", "edge_dim"), UNTYPED),
    "prepared": (*UNTYPED, *SHAPES),
    "all_features": ("typed",),
}
OF_ONE_TYPE = ("kind", "undirected", "edge_dim")  # more arguments of generate()


def register(parser: argparse.ArgumentParser) -> argparse._SubParsersAction:
    """Adds the commands of `dataset`; each sets func(args) -> exit code. Returns where more may be added."""
    commands = parser.add_subparsers(dest="dataset_command", required=True, metavar="COMMAND")
    import_cli.register(commands)
    append_cli.register(commands)
    _register_describe(commands)
    _register_generate(commands)
    partition_cli.register(commands)
    _register_split_links(commands)
    for name, func, text in (
        ("check", _check, "check every element of a data set; exit code 1 if a problem is found"),
        ("info", _info, "describe the contents of a data set"),
    ):
        command = commands.add_parser(name, help=text, description=text)
        command.add_argument("path", metavar="DIR", type=Path, help="folder of a data set")
        command.set_defaults(func=func, problems_of_rows=lambda data: [])
    return commands


def _register_describe(commands: argparse._SubParsersAction) -> None:
    text = "propose a graph.yaml for the tables of a database, which cohort dataset import reads"
    command = commands.add_parser("describe", help=text, description=text)
    command.add_argument(
        "source",
        metavar="SOURCE",
        type=Path,
        help="folder of .parquet or .arrow files, folder of RelBench, or .duckdb file",
    )
    command.set_defaults(func=_describe)


def _describe(args: argparse.Namespace) -> int:
    print(describe(args.source), end="")
    return 0


def _register_generate(commands: argparse._SubParsersAction) -> None:
    text = "write a random data set"
    command = commands.add_parser("generate", help=text, description=text, epilog=EPILOG_NUMBERS)
    command.add_argument("out", metavar="OUT", type=Path, help="folder to write")
    command.add_argument(
        "--kind",
        choices=(*UNTYPED, "typed", *SHAPES),
        default="sbm",
        help=f"{ONE_TYPE}: random model of a graph of one node type; typed: papers with authors and fields;"
        " mag, mag240m, igbh: random graph with the node types, relations and sizes of ogbn-mag, MAG240M or IGBH;"
        " default: %(default)s",
    )
    command.add_argument(
        "--scale", type=float, help="mag, mag240m, igbh: fraction of the nodes and edges to generate; default: 1"
    )
    command.add_argument("--nodes", type=number, help=f"{ONE_TYPE}, typed: number of nodes (required)")
    command.add_argument("--edges", type=number, help=f"{ONE_TYPE}, typed: number of edges to draw (required)")
    command.add_argument("--undirected", action="store_true", help=f"{ONE_TYPE}: store each edge in both directions")
    command.add_argument(
        "--random-edge-weights",
        action="store_true",
        help=f"{ONE_TYPE}: give each edge a weight in (0, 1]",
    )
    rename(command, "--edge-weights", "--random-edge-weights")
    command.add_argument(
        "--edge-dim",
        type=number,
        default=0,
        metavar="N",
        help=f"{ONE_TYPE}: give each edge N features, which tell whether both ends have the same class; default: none",
    )
    command.add_argument("--dim", type=number, help="features per node; default: 64, or the published graph's")
    command.add_argument(
        "--rows",
        type=Path,
        metavar="FILE.npy|DIR",
        help=f"{ONE_TYPE}: draw the features of each node from the rows of this array or data set, instead of --dim and"
        " --dtype",
    )
    command.add_argument(
        "--dtype",
        choices=("float32", "float16", "bfloat16", "uint8"),
        help="type of the features; default: float32, or the published graph's",
    )
    command.add_argument("--all-features", action="store_true", help="typed: authors and fields have features, too")
    command.add_argument("--classes", type=number, help="number of classes; default: 10, or the published graph's")
    add_common(command)
    command.set_defaults(func=_generate, rows_writer=lambda args: None)


def _generate(args: argparse.Namespace) -> int:
    _demand_of_kind(args)
    write_rows = args.rows_writer(args)
    if args.kind in SHAPES:
        options = {name: getattr(args, name) for name in GENERATED if name not in SIZES}
        scale = 1.0 if args.scale is None else args.scale
        return _write(
            args.out,
            f"generating {args.kind}, {scale:g} of its size",
            lambda: generate_shape(args.out, kind=args.kind, scale=scale, write_rows=write_rows, **options),
        )
    options = {name: getattr(args, name) for name in GENERATED}
    for name, value in DEFAULTS.items():
        options[name] = value if options[name] is None else options[name]
    what = f"generating {args.kind} of {args.nodes:,} nodes and {args.edges:,} edges"
    if args.kind == "typed":
        return _write(args.out, what, lambda: generate_typed(args.out, all_features=args.all_features, **options))
    rows = None
    if args.rows:
        for flag in (flag_of(name) for name in ("dim", "dtype") if getattr(args, name) is not None):
            raise CohortError(flag, "one of --rows and it", "both", f"leave {flag} out: the rows have their own")
        rows, options["dtype"] = rows_to_draw(args.rows)
        options["dim"] = rows.shape[1]
    options |= {name: getattr(args, name) for name in OF_ONE_TYPE} | {"edge_weights": args.random_edge_weights}
    return _write(args.out, what, lambda: generate(args.out, rows=rows, write_rows=write_rows, **options))


def _demand_of_kind(args: argparse.Namespace) -> None:
    """Raises CohortError for an option that does not apply to the kind of graph, or for a missing one that it needs."""
    for option, kinds in KINDS_OF.items():
        name = flag_of(option)
        value = getattr(args, option, None)
        if value or (value == 0 and option in (*SIZES, "scale")):
            if args.kind not in kinds:
                supported = f"{', '.join(kinds[:-1])} or {kinds[-1]}" if len(kinds) > 1 else kinds[0]
                raise CohortError(name, f"--kind {supported}", f"--kind {args.kind}", f"leave {name} out")
        elif option in SIZES and args.kind in kinds:
            raise CohortError(name, f"a number for --kind {args.kind}", "none", f"pass {name} N")


def _register_split_links(commands: argparse._SubParsersAction) -> None:
    text = "copy a data set without a random share of its links, and hold these links out for validation and test"
    command = commands.add_parser("split-links", help=text, description=text)
    command.add_argument("path", metavar="DIR", type=Path, help="folder of a data set")
    command.add_argument("out", metavar="OUT", type=Path, help="folder to write")
    command.add_argument(
        "--relation",
        metavar="NAME",
        help="several node types: the relation whose edges are the links, as its name or source:name:target; default:"
        " the only relation that is not the reverse of another",
    )
    command.add_argument(
        "--shares",
        type=parts,
        default=(0.05, 0.1),
        metavar="0.05,0.1",
        help="shares of the links to hold out for validation and for test; default: 0.05,0.1",
    )
    command.add_argument(
        "--by-time", action="store_true", help="hold out the latest links, by the times of their edges, not random ones"
    )
    command.add_argument(
        "--negatives",
        type=number,
        default=100,
        metavar="K",
        help="number of random targets that each held-out link competes with; default: %(default)s",
    )
    command.add_argument("--seed", type=number, default=0, help="seed of all random numbers; default: %(default)s")
    command.add_argument("--overwrite", action="store_true", help="replace OUT if it is a data set")
    command.set_defaults(func=_split_links)


def _split_links(args: argparse.Namespace) -> int:
    def work() -> None:
        options = {
            name: getattr(args, name) for name in ("relation", "shares", "negatives", "by_time", "seed", "overwrite")
        }
        split_links(args.path, args.out, **options)

    return _write(args.out, f"splitting the links of {args.path}", work)


def _write(out: Path, what: str, work) -> int:
    """Runs `work` behind a spinner, then says what was written."""
    console = lines_on_stderr()
    start = time.monotonic()
    with console.status(escape(what)):
        work()
    console.print(escape(f"{out}: {summary(open_dataset(out))}, written in {time.monotonic() - start:.1f} s"))
    return 0


def _check(args: argparse.Namespace) -> int:
    console = lines_on_stderr()
    with console.status(escape(f"checking {args.path}")):
        problems = check(args.path)
        errors = [problem.error() for problem in problems]
        if not errors:
            data = open_dataset(args.path)
            errors = problems_of_record(data) + args.problems_of_rows(data)
    for error in errors:
        print(error, file=sys.stderr)
    if errors:
        return 1
    _held_out_links(open_dataset(args.path))
    for task in tasks_of(args.path):
        open_task(args.path, task)
    console.print(escape(f"{args.path}: {summary(open_dataset(args.path))}: no problem found"))
    return 0


def _info(args: argparse.Namespace) -> int:
    data = open_dataset(args.path)
    tables = [] if isinstance(data, Dataset) else tables_of_types(data)
    rows = {"name": data.name, "nodes": f"{data.num_nodes:,}", "edges": f"{data.num_edges:,}"}
    rows |= {"target": data.target} if tables else _rows_of_types(data)
    num_bytes = sum(file.stat().st_size for file in data.path.rglob("*") if file.is_file())
    rows |= {**_target_rows(data), "size": format_bytes(num_bytes), **_link_rows(data), **_task_rows(args.path)}
    for key, value in rows.items():
        print(f"{key:18}{value}")
    print_tables(*tables)
    return 0


def _rows_of_types(data: StoredGraph) -> dict[str, str]:
    """The rows about a graph of one node type and one edge type."""
    (nodes,), (edges,) = data.node_types.values(), data.edge_types.values()
    degrees, times, table = np.diff(edges.indptr), edges.edge_times, edges.edge_table
    rows = {
        "edges": f"{edges.num_edges:,} ({edges.indices.dtype})",
        "edge weights": "none" if edges.edge_weights is None else "float32",
    }
    if times is not None:
        rows["edge times"] = span_of(times)
    if table is not None:
        encoded = f", encoded in {table.encoded_rows}" if table.encoded_rows else ""
        rows["edge features"] = f"{table.feature_dim} x {table.feature_dtype}{encoded}"
    rows["in-degree"] = f"mean {edges.num_edges / nodes.num_nodes:.1f}, largest {int(degrees.max()):,}"
    rows["features"] = f"{nodes.feature_dim} x {nodes.feature_dtype}"
    if nodes.node_times is not None:
        rows["node times"] = span_of(nodes.node_times)
    if nodes.encoded_rows:
        rows["encoded rows"] = f"{format_bytes(nodes.encoded_rows.stat().st_size)} in {nodes.encoded_rows}"
    return rows


def _held_out_links(data: StoredGraph) -> dict[str, dict[str, HeldOut]]:
    """The held-out links, by relation as results call it."""
    return {":".join(data.key_of(relation)): held_out_of(LinkEdges(data, relation)) for relation in with_held_out(data)}


def _link_rows(data: StoredGraph) -> dict[str, str]:
    """The row about held-out links, if there are some."""
    descriptions = []
    for name, held in _held_out_links(data).items():
        counts = ", ".join(f"{len(links.pairs):,}" for links in held.values())
        shared = all(links.shared for links in held.values())
        counted = (len(links.negatives) if links.shared else links.negatives.shape[1] for links in held.values())
        negatives = ", ".join(f"{count:,}" for count in counted)
        suffix = f", of {name}" if name else ""
        descriptions.append(f"{counts}, with {negatives} {'negative pairs' if shared else 'negatives each'}{suffix}")
    return {"val, test links": "; ".join(descriptions)} if descriptions else {}


def _task_rows(path: Path) -> dict[str, str]:
    """The row about tasks, if there are some."""
    described = []
    for task in (open_task(path, name) for name in tasks_of(path)):
        is_link = task.kind == "link"
        what = f"{task.node_type} to {task.target_type}" if is_link else f"{task.targets} of {task.node_type}"
        counts = ", ".join(f"{rows.num_rows:,}" for rows in task.splits.values())
        described.append(f"{task.name} ({what}: {counts})")
    return {"tasks": "; ".join(described)} if described else {}


def _target_rows(data: StoredGraph) -> dict[str, str]:
    """The rows about the task and the splits."""
    classes = data.task == "classification"
    return {
        "classes" if classes else "targets": f"{data.num_classes}" if classes else f"{aims(data)} ({data.y.dtype})",
        "train, val, test": f"{len(data.train_ids):,}, {len(data.val_ids):,}, {len(data.test_ids):,}",
    }
