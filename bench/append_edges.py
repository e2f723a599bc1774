"""How long does it take to append edges, beside importing all of them again?

    python bench/append_edges.py [--edges 50000000] [--share 0.01] [--dim 64] [--rounds 3] [--only edges]
        [--folder FOLDER]

A graph of random pairs, one node for 20 edges, is imported without the last edges, which are then appended: once
between nodes that are there, once with as large a share of new nodes and their rows (not with --only edges). Beside it
stands the import of all. Each is a process of its own with --memory 2GB, and all take turns; a line has the median of
the rounds. "in it" are the seconds that the command says, without the start of Python. The arrays of the result are
compared, whole. Data sets are in a folder in FOLDER, which is removed in the end; the page cache is warm. Peak memory
is the resident memory of the process, with the pages of files that it has mapped.
"""

import argparse
import filecmp
import multiprocessing
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from cohort_gnn.base.tables import TextTable, print_tables
from cohort_gnn.base.units import format_bytes

EDGES_A_NODE = 20
PAIRS_AT_ONCE = 1 << 22
OPTIONS = ["--memory", "2GB"]


def write_files(folder: Path, num_edges: int, share: float, dim: int, suffixes: list[str]) -> None:
    """all.npy, old.npy and new.npy: int32 [2, E]; x.npy and the like: float32 [V, dim]."""
    generator = np.random.default_rng(0)
    nodes, later = num_edges // EDGES_A_NODE, int(num_edges * share)
    grown = int(nodes * (1 + share))
    x = generator.standard_normal((grown, dim), np.float32)
    for name, array in (("x", x[:nodes]), ("x-new", x[nodes:]), ("x-all", x)):
        np.save(folder / f"{name}.npy", array)
    pairs = np.empty((2, num_edges), np.int32)
    with ThreadPoolExecutor() as threads:
        pieces = [pairs[:, begin : begin + PAIRS_AT_ONCE] for begin in range(0, num_edges, PAIRS_AT_ONCE)]
        list(threads.map(_draw, pieces, generator.spawn(len(pieces)), [nodes] * len(pieces)))
    np.save(folder / "old.npy", pairs[:, : num_edges - later])
    for suffix in suffixes:
        new = pairs[:, num_edges - later :]
        _draw(new, generator, grown if suffix else nodes)
        np.save(folder / f"new{suffix}.npy", new)
        np.save(folder / f"all{suffix}.npy", pairs)


def _draw(piece: np.ndarray, generator: np.random.Generator, nodes: int) -> None:
    piece[:] = generator.integers(nodes, size=piece.shape, dtype=piece.dtype)


def cost_of(*arguments: object) -> tuple[float, float, int]:
    """Seconds, those that the command says, and bytes of resident memory that `cohort dataset ...` takes."""
    begin = time.monotonic()
    command = [sys.executable, "-m", "cohort_gnn", "dataset", *map(str, arguments), *OPTIONS]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    text = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"{' '.join(command)} ended with status {os.waitstatus_to_exitcode(status)}: {text}")
    said = float(text.split(" in ")[-1].split()[0])
    return time.monotonic() - begin, said, 1024 * usage.ru_maxrss


def others(one: Path, other: Path) -> list[str]:
    """The arrays of two data sets that are not the same, byte for byte."""
    names = {path.name for folder in (one, other) for path in folder.glob("*.npy")}
    return [name for name in sorted(names) if not filecmp.cmp(one / name, other / name, shallow=False)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in {"edges": 50_000_000, "dim": 64, "rounds": 3}.items():
        parser.add_argument(f"--{name}", type=int, default=value, help=f"default {value:,}")
    parser.add_argument("--share", type=float, default=0.01, help="of the edges, and of the nodes; default 0.01")
    parser.add_argument("--only", choices=["edges"], help="leave the new nodes out")
    parser.add_argument("--folder", type=Path, help="where the files are made (default: that of temporary files)")
    args = parser.parse_args()
    table = TextTable(
        f"{args.edges:,} edges, {args.share:.2%} of them later", ["", "s", "in it", "peak memory", "part", "part in it"]
    )
    with tempfile.TemporaryDirectory(dir=args.folder) as name:
        folder = Path(name)
        start = multiprocessing.get_context("spawn").Process  # what this process holds would count as peak memory
        suffixes = [""] if args.only else ["", "-grown"]
        writer = start(target=write_files, args=(folder, args.edges, args.share, args.dim, suffixes))
        writer.start()
        writer.join()
        if writer.exitcode:
            sys.exit(f"the files were not written: the process ended with {writer.exitcode}")
        cost_of("import", folder / "old.npy", folder / "old", "--features", folder / "x.npy")
        for title, suffix, rows, more in (
            ("edges", "", "x", []),
            ("edges and nodes", "-grown", "x-all", ["--features", folder / "x-new.npy"]),
        )[: len(suffixes)]:
            costs: dict[str, list[tuple[float, float, int]]] = {"import of all": [], f"append of {title}": []}
            for _ in range(args.rounds):
                options = ["--features", folder / f"{rows}.npy", "--overwrite"]
                costs["import of all"].append(cost_of("import", folder / f"all{suffix}.npy", folder / "all", *options))
                shutil.rmtree(folder / "data", ignore_errors=True)
                shutil.copytree(folder / "old", folder / "data")
                os.sync()
                costs[f"append of {title}"].append(
                    cost_of("append", folder / "data", "--edges", folder / f"new{suffix}.npy", *more)
                )
                if odd := others(folder / "all", folder / "data"):
                    sys.exit(f"not as after an import of all: {', '.join(odd)}")
            medians = {
                way: [statistics.median(each) for each in zip(*rows, strict=True)] for way, rows in costs.items()
            }
            whole = medians["import of all"]
            for way, (seconds, said, _) in medians.items():
                peak = format_bytes(max(peak for *_, peak in costs[way]))
                row = [
                    way,
                    f"{seconds:.2f}",
                    f"{said:.2f}",
                    peak,
                    f"{seconds / whole[0]:.3f}",
                    f"{said / whole[1]:.3f}",
                ]
                table.rows.append(row)
    print_tables(table)


if __name__ == "__main__":
    main()
