"""`cohort dataset append`."""

from __future__ import annotations

import argparse
import dataclasses
import time
from pathlib import Path

from rich.markup import escape

from cohort_gnn.dataset.appending.append import EdgeTreatment, append
from cohort_gnn.dataset.cli_parts import lines_on_stderr, number, parts, summary
from cohort_gnn.dataset.importing.cli import TENSORS_HELP, add_source_options, source_options, stages
from cohort_gnn.dataset.importing.importer import EDGE_LISTS
from cohort_gnn.dataset.reader import open as open_dataset
from cohort_gnn.spec.types import Bytes, kind

EPILOG = "The result is that of importing all data again, with the statistics, categories and classes that DIR has."


def register(commands: argparse._SubParsersAction) -> None:
    """Adds the command."""
    text = "put new nodes and edges into a data set, or take edges out, without importing all again"
    command = commands.add_parser("append", help=text, description=text, epilog=EPILOG)
    command.add_argument("path", metavar="DIR", type=Path, help="folder of a data set, which is replaced in one step")
    command.add_argument(
        "--edges", type=Path, metavar="SOURCE", help="new edges: an edge list; or a graph.yaml of new nodes and edges"
    )
    command.add_argument(
        "--remove-edges", type=Path, metavar="SOURCE", help="edges that go, likewise: all edges with the same two ends"
    )
    command.add_argument(
        "--format", choices=("auto", *EDGE_LISTS, "yaml"), default="auto", help="format of SOURCE; default: by its name"
    )
    command.add_argument(
        "--memory",
        type=kind(Bytes),
        default=4_000_000_000,
        metavar="4GB",
        help="memory for sorting and reading; default: 4GB",
    )
    _add_node_options(command.add_argument_group("new nodes, which get the next numbers"))
    add_source_options(command.add_argument_group("rows of new nodes, and what new edges have beside", TENSORS_HELP))
    _add_treatment(command.add_argument_group("a data set without import.json: what was done to its edges"))
    command.set_defaults(func=_append)


def _add_node_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--nodes", type=number, metavar="V", help="number of nodes of the result; default: one more for each new row"
    )
    group.add_argument("--node-ids", type=Path, metavar="FILE", help="id of each new row, where nodes have integer ids")
    group.add_argument(
        "--rename", action="store_true", help="ids of edges that no node has are new nodes, in ascending order"
    )
    group.add_argument(
        "--no-ids",
        dest="ids",
        action="store_false",
        help="edges have numbers of nodes: of a data set that was imported with --no-ids",
    )
    group.add_argument(
        "--split-ratio",
        dest="split",
        type=parts,
        metavar="0.6,0.2,0.2",
        help="shares of the new nodes with labels for training, validation and test, at random",
    )
    group.add_argument("--seed", type=number, default=0, help="seed of --split-ratio; default: %(default)s")


def _add_treatment(group: argparse._ArgumentGroup) -> None:
    boolean = argparse.BooleanOptionalAction
    group.add_argument("--undirected", action="store_true", help="every edge is there in both directions, once")
    group.add_argument("--reverse-edges", dest="reverse", action=boolean, help="the reverse of each edge was added")
    group.add_argument("--dedupe", action=boolean, help="equal edges are kept once")
    group.add_argument("--self-loops", choices=("keep", "remove", "add"), help="as of cohort dataset import")


def _append(args: argparse.Namespace) -> int:
    console, start = lines_on_stderr(), time.monotonic()
    with stages(console) as progress:
        append(
            args.path,
            **{
                name: getattr(args, name)
                for name in ("edges", "remove_edges", "format", "rename", "ids", "split", "seed")
            },
            inputs=source_options(args),
            treatment=EdgeTreatment(
                **{field.name: getattr(args, field.name) for field in dataclasses.fields(EdgeTreatment)}
            ),
            memory=args.memory,
            progress=progress,
            note=lambda text: console.print(escape(text)),
        )
    seconds = time.monotonic() - start
    console.print(escape(f"{args.path}: {summary(open_dataset(args.path))}, appended in {seconds:.1f} s"))
    return 0
