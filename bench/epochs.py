"""Epochs on graphs of published sizes, rows raw or encoded, in cache and host memory.

    python bench/epochs.py --shape products [--modes none,M]

Nodes, edges and columns are those of the data sets (OGB; Reddit: GraphSAGE, NeurIPS 2017); batch sizes, fanout, a cache
of 1 % of the raw rows, and 10 epochs of which the first is not counted, those of the IBP paper (EuroSys 2026, section
6.2). The graphs are random (powerlaw); rows are Gaussian, or drawn from a table of rows.
"""

import argparse
import sys
import time
from pathlib import Path
from typing import Literal

from rich.console import Console
from shapes import MODES, Shape, add_shape_options, data_set

from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.log import shown
from cohort_gnn.base.machine import devices
from cohort_gnn.base.tables import TextTable, print_tables
from cohort_gnn.base.units import format_bytes
from cohort_gnn.launch.bench.parts import appending
from cohort_gnn.launch.options.parser import CommandParser, kind
from cohort_gnn.launch.report.results import ROWS, Run, ranks_of, read_run
from cohort_gnn.launch.tune.trial import Trial
from cohort_gnn.spec.results import TIMES
from cohort_gnn.spec.types import AboveZero, AtLeastZero, Device, Positive, choices_of

SHOWN_TIMES = ("seconds", "wait_seconds", "train_seconds", "sample_seconds", "fetch_seconds")
FANOUT = [25, 10]


def build_parser() -> argparse.ArgumentParser:
    parser = CommandParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_shape_options(parser, required=True)
    parser.add_argument(
        "--modes",
        type=kind(list[Literal[tuple(MODES)]]),
        default=list(MODES),
        metavar="none,C,M,C/M",
        help="modes to measure (default: all)",
    )
    parser.add_argument(
        "--cache-ratio",
        type=kind(AtLeastZero),
        default=0.01,
        help="cache of each GPU, as of cohort train (default 0.01)",
    )
    parser.add_argument(
        "--epochs",
        type=kind(Positive),
        default=10,
        help="epochs of a run, of which the first is not counted (default 10)",
    )
    parser.add_argument("--hidden", type=kind(Positive), default=256, help="features of hidden layers (default 256)")
    parser.add_argument(
        "--reuse",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="copy rows of earlier batches, as cohort train (default off)",
    )
    parser.add_argument(
        "--device", choices=choices_of(Device), default="auto", help="auto (default): a GPU where there is one"
    )
    parser.add_argument("--gpus", help="numbers of the GPUs to use, as of cohort train (default 0)")
    parser.add_argument("--minutes", type=kind(AboveZero), default=10.0, help="most minutes of a run (default 10)")
    parser.add_argument(
        "--out", type=Path, default=Path("bench.jsonl"), help="file to which lines are appended (default bench.jsonl)"
    )
    return parser


def epoch(args: argparse.Namespace) -> int:
    """0 when every mode ran."""
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    lines = []
    with appending(args.out) as append:
        data, shape = data_set(args)
        for number, mode in enumerate(args.modes, start=1):
            folder = args.data / "runs" / f"{data.name}-{mode.replace('/', '')}"
            trial = Trial(number, folder, {}, _options(args, shape, mode))
            with console.status(f"{args.shape}, {mode}"):
                trial.run(data, args.epochs, 60 * args.minutes, lambda: None)
            found = {"failure": trial.failure} if trial.failure else numbers_of(read_run(trial.folder))
            lines.append(_told_by(args) | {"mode": mode} | found)
            append(lines[-1:])
    _print(args, lines)
    return int(any("failure" in line for line in lines))


def _options(args: argparse.Namespace, shape: Shape, mode: str) -> dict:
    """Options of ``cohort train``."""
    options = {"fanout": ",".join(map(str, FANOUT)), "batch_size": shape.batch_size, "hidden": args.hidden}
    options |= {"compress": MODES[mode], "cache_ratio": args.cache_ratio, "reuse": args.reuse, "device": args.device}
    return options | ({"gpus": args.gpus} if args.gpus else {})


def _told_by(args: argparse.Namespace) -> dict:
    """What a line says of its making."""
    gpus = [gpu.get("name", gpu["uuid"]) for gpu in devices()["gpus"]]
    return {
        "bench": "epoch",
        "shape": args.shape,
        "scale": args.scale,
        "rows": str(args.rows) if args.rows else "Gaussian",
        "device": args.device,
        "gpus": args.gpus or "0",
        "machine": gpus,
        "reuse": args.reuse,
        "cache_ratio": args.cache_ratio,
        "time": time.strftime("%Y-%m-%dT%H:%M:%S"),
    }


def numbers_of(run: Run) -> dict:
    """Means over the epochs after the first (of rank 0), and what a batch read."""
    epochs = [ranks_of(epoch)[0] for epoch in run.settled]
    means = {name: sum(epoch[name] for epoch in epochs) / len(epochs) for name in TIMES}
    uses = run.uses(ROWS)
    return means | {
        "batches": epochs[0]["num_batches"],
        "host_bytes": uses["host"].bytes,
        "shares": {tier: use.share for tier, use in uses.items()},
        "held_rows": [rank["features"]["rows"] for rank in run.held],
    }


def _print(args: argparse.Namespace, lines: list[dict]) -> None:
    rows = "Gaussian rows" if not args.rows else f"rows of {args.rows}"
    times = ["epoch s", "wait s", "train s", "sample s", "fetch s"]
    columns = ["mode", *times, "host bytes", "local %", "held", "speed"]
    told = "host bytes: of rows, a batch; held: rows in the cache; speed: against none"
    table = TextTable(f"{args.shape}, {rows}, {args.epochs} epochs", columns, note=f"{told}; appended to {args.out}")
    first = next((line["seconds"] for line in lines if line["mode"] == "none" and "seconds" in line), None)
    for line in lines:
        if "failure" in line:
            table.rows.append([line["mode"], line["failure"]])
            continue
        seconds = [f"{line[name]:.4f}" for name in SHOWN_TIMES]
        speed = f"{first / line['seconds']:.2f}" if first else "-"
        held = f"{line['held_rows'][0]:,}" if line["held_rows"] else "-"
        shares = f"{100 * line['shares']['local']:.2f}"
        table.rows.append([line["mode"], *seconds, format_bytes(line["host_bytes"]), shares, held, speed])
    print_tables(table)


def main(argv: list[str] | None = None) -> int:
    """0 when every mode ran."""
    try:
        with shown("stderr"):
            return epoch(build_parser().parse_args(argv))
    except CohortError as error:
        print(f"epochs: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
