"""How long does `cohort predict --update` take after an append, beside a predict of all?

    python bench/predict_update.py [--edges 4000000] [--shares 0.00002,0.001] [--dim 64] [--hidden 64] [--rounds 3]
        [--device cpu] [--folder FOLDER]

A graph of random pairs, one node for 20 edges; a share of its edges is appended to a copy after a predict with --keep.
GraphSAGE of two layers. A predict of all, an update, and an update that keeps its rows, too, take turns;
each is a process of its own. A line has the median of the rounds; "in it" are the seconds that the command says,
without the start of Python. "again" is the part of all edges and nodes, of both layers, that was computed again. The
outputs are compared, byte for byte. Data sets are in a folder in FOLDER, which is removed in the end; the page cache is
warm.
"""

import argparse
import filecmp
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from cohort_gnn.base.tables import TextTable, print_tables

EDGES_A_NODE, CLASSES = 20, 16


def cohort(*arguments: object) -> tuple[float, str]:
    """Seconds that a command takes, and what it says."""
    begin = time.monotonic()
    command = [sys.executable, "-m", "cohort_gnn", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with status {done.returncode}: {done.stderr}")
    return time.monotonic() - begin, done.stdout + done.stderr


def write_data(folder: Path, num_edges: int, dim: int, hidden: int, device: str) -> None:
    """The data set, a run, and the rows that a predict kept."""
    generator = np.random.default_rng(0)
    nodes = num_edges // EDGES_A_NODE
    np.save(folder / "edges.npy", generator.integers(nodes, size=(2, num_edges)))
    np.save(folder / "x.npy", generator.standard_normal((nodes, dim), np.float32))
    np.save(folder / "y.npy", generator.integers(CLASSES, size=nodes))
    rows = ["--features", folder / "x.npy", "--labels", folder / "y.npy", "--split-ratio", "0.01,0.01,0.01"]
    cohort("dataset", "import", folder / "edges.npy", folder / "data", *rows)
    options = ["--epochs", 1, "--hidden", hidden, "--fanout", "5,5", "--device", device, "--quiet"]
    cohort("train", folder / "data", *options, "--out", folder / "run")
    cohort(*predict(folder, "data", "before", device), "--keep", folder / "kept")


def predict(folder: Path, data: str, out: str, device: str) -> list[object]:
    return ["predict", folder / "run", folder / data, "--out", folder / f"{out}.npy", "--device", device]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in {"edges": 4_000_000, "dim": 64, "hidden": 64, "rounds": 3}.items():
        parser.add_argument(f"--{name}", type=int, default=value, help=f"default {value:,}")
    parser.add_argument("--shares", default="0.00002,0.001", help="of the edges, appended; default 0.00002,0.001")
    parser.add_argument("--device", default="cpu", help="of all programs (default: cpu)")
    parser.add_argument("--folder", type=Path, help="where the files are made (default: that of temporary files)")
    args = parser.parse_args()
    table = TextTable(f"{args.edges:,} edges", ["appended", "", "s", "in it", "again", "of all's s", "of all's in it"])
    with tempfile.TemporaryDirectory(dir=args.folder) as name:
        folder = Path(name)
        write_data(folder, args.edges, args.dim, args.hidden, args.device)
        for share in map(float, args.shares.split(",")):
            new = np.random.default_rng(1).integers(args.edges // EDGES_A_NODE, size=(2, int(args.edges * share)))
            np.save(folder / "new.npy", new)
            shutil.rmtree(folder / "later", ignore_errors=True)
            shutil.copytree(folder / "data", folder / "later")
            cohort("dataset", "append", folder / "later", "--edges", folder / "new.npy")
            ways: dict[str, list[object]] = {
                "all": [],
                "update": ["--update", folder / "kept"],
                "update and keep": ["--update", folder / "kept", "--keep", folder / "again"],
            }
            costs: dict[str, list[tuple[float, float, str]]] = {way: [] for way in ways}
            for _ in range(args.rounds):
                for way, more in ways.items():
                    seconds, said = cohort(*predict(folder, "later", way, args.device), *more)
                    part = re.search(r"([\d.]+%) of the edges", said)
                    in_it = re.search(r" in ([\d.]+) s,", said)
                    assert in_it is not None
                    costs[way].append((seconds, float(in_it[1]), part[1] if part else "100%"))
                    if not filecmp.cmp(folder / "all.npy", folder / f"{way}.npy", shallow=False):
                        sys.exit(f"{way}: other bytes than those of a predict of all")
            whole = [statistics.median(cost[i] for cost in costs["all"]) for i in (0, 1)]
            for way, rows in costs.items():
                seconds, said_seconds = (statistics.median(cost[i] for cost in rows) for i in (0, 1))
                parts = [f"{seconds / whole[0]:.3f}", f"{said_seconds / whole[1]:.3f}"]
                table.rows.append([f"{share:.3%}", way, f"{seconds:.2f}", f"{said_seconds:.2f}", rows[0][2], *parts])
    print_tables(table)


if __name__ == "__main__":
    main()
