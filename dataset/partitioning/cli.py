"""`cohort dataset partition`."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from cohort_gnn.dataset.partitioning.partition import METHODS, Partition, partition, parts_file
from cohort_gnn.spec.types import Bytes, kind


def register(commands: argparse._SubParsersAction) -> None:
    """Adds the command."""
    text = "divide the nodes into parts with few edges between them, one part for each clique of GPUs"
    command = commands.add_parser("partition", help=text, description=text)
    command.add_argument(
        "path", metavar="DIR", type=Path, help="folder of a data set; the parts are written to this folder"
    )
    command.add_argument(
        "--parts", type=int, required=True, metavar="K", help="number of parts: the number of cliques of GPUs"
    )
    command.add_argument(
        "--method",
        choices=METHODS,
        default="metis",
        help="metis (default): fewest edges between parts, in memory; streaming: for graphs of any size; random: a"
        " baseline",
    )
    command.add_argument("--seed", type=int, default=0, help="seed of the random numbers (default 0)")
    command.add_argument(
        "--memory", type=kind(Bytes), default=0, help="memory limit of METIS (default: the available memory)"
    )
    command.set_defaults(func=_partition)


def _partition(args: argparse.Namespace) -> int:
    start = time.monotonic()
    with Console(stderr=True).status(escape(f"partitioning {args.path}")):
        result = partition(args.path, args.parts, args.method, args.seed, args.memory)
    print_partition(result, time.monotonic() - start, parts_file(args.path, args.parts))
    return 0


def print_partition(result: Partition, seconds: float, file: Path) -> None:
    """Prints edge cut and balance, compared with random parts."""
    num_parts, num_edges = len(result.nodes), result.num_edges
    share = 100 * result.cut_edges / num_edges if num_edges else 0.0
    by_chance = 100 * (1 - sum((count / len(result.parts)) ** 2 for count in result.nodes))
    print(f"edge cut     {share:.2f} % of {num_edges:,} stored edges (random parts: {by_chance:.2f} %)")
    print(f"nodes        {_balance(result.nodes)}")
    print(f"train nodes  {_balance(result.train_nodes)}")
    print(f"written      {file}, {num_parts} parts in {seconds:.1f} s")


def _balance(counts: list[int]) -> str:
    mean = sum(counts) / len(counts)
    most = max(counts) / mean if mean else 1.0
    return f"{min(counts):,} to {max(counts):,} per part; the largest has {most:.3f} times the mean"
