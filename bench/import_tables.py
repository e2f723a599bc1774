"""How fast are tables imported, beside arrays and beside pandas?

    python bench/import_tables.py [--edges 160000000] [--text-edges 20000000] [--rounds 3] [--folder FOLDER]

First the same pairs of integers from a .npy file, from a folder of 64 Parquet parts (snappy) and from a DuckDB relation
of these parts. Then pairs of texts: a table of nodes with ids and a table of edges (Parquet) become a data set, beside
the route of pandas: read the edges, factorize the column of sources and targets, build a CSR with NumPy. Each import is
a process of its own with --memory 2GB; all take turns, and each line has the median of the rounds.

Ends are uniform; there is one node for 20 edges. The files, new and thus in the page cache, and the data sets are in a
folder in FOLDER, which is removed in the end. Peak memory is the resident memory of the process.
"""

import argparse
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from cohort_gnn.base.tables import TextTable, print_tables
from cohort_gnn.base.units import format_bytes

PARTS = 64
EDGES_A_NODE = 20
ROWS_AT_ONCE = 1 << 20
MEMORY = 2_000_000_000

# What each process does. Its arguments: the folder of the files, the data set to write, the nodes, and the memory.
START = """
import sys
from pathlib import Path
folder, out, nodes, memory = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
"""
ARRAYS = """
from cohort_gnn.dataset import import_graph
from cohort_gnn.dataset.importing.beside import SourceOptions
inputs = SourceOptions(features=Path("ones"), nodes=nodes)
import_graph(folder / {source!r}, out, inputs=inputs, memory=memory, overwrite=True)
"""
DUCKDB = """
import duckdb, numpy as np, pyarrow as pa
from cohort_gnn.dataset import from_tables
duckdb.sql("SET threads=2; SET memory_limit='1GB'; SET enable_progress_bar=false")
edges = duckdb.sql(f"SELECT src, dst FROM '{folder}/parts/*.parquet'")
rows = pa.table({"x": np.ones(nodes, np.float32)})
from_tables(
    out,
    nodes={"node": {"table": rows, "features": ["x"]}},
    edges={("node", "to", "node"): {"table": edges, "source": "src", "target": "dst"}},
    memory=memory,
    overwrite=True,
)
"""
TEXTS = """
from cohort_gnn.dataset import import_graph
import_graph(folder / "graph.yaml", out, memory=memory, overwrite=True)
"""
PANDAS = """
import numpy as np, pandas as pd
edges = pd.read_parquet(folder / "edges.parquet")
codes, ids = pd.factorize(pd.concat([edges["src"], edges["dst"]], ignore_index=True))
sources, targets = codes[: len(edges)], codes[len(edges) :]
indptr = np.zeros(len(ids) + 1, np.int64)
np.cumsum(np.bincount(targets, minlength=len(ids)), out=indptr[1:])
indices = sources[np.argsort(targets, kind="stable")]
"""
GRAPH = """
nodes: {user: {file: nodes.parquet, id: id, features: [x]}}
edges: [{type: [user, pays, user], file: edges.parquet, source: src, target: dst}]
"""


@dataclass(frozen=True)
class Cost:
    """What a process took."""

    seconds: float
    cpu_seconds: float
    peak_bytes: int


def write_pairs(folder: Path, num_edges: int) -> None:
    """pairs.npy, int64 [2, E], and the same in parts/."""
    pairs = np.random.default_rng(0).integers(num_edges // EDGES_A_NODE, size=(2, num_edges))
    np.save(folder / "pairs.npy", pairs)
    (folder / "parts").mkdir()
    bounds = [number * num_edges // PARTS for number in range(PARTS + 1)]
    for number, (begin, end) in enumerate(zip(bounds, bounds[1:], strict=False)):
        table = pa.table({"src": pairs[0, begin:end], "dst": pairs[1, begin:end]})
        pq.write_table(table, folder / "parts" / f"part-{number:02}.parquet", compression="snappy")


def write_texts(folder: Path, num_edges: int) -> None:
    """nodes.parquet with ids like user-00012345, edges.parquet between them, and graph.yaml."""
    generator, num_nodes = np.random.default_rng(0), num_edges // EDGES_A_NODE
    ids = pa.array([f"user-{number:08}" for number in generator.permutation(num_nodes)])
    pq.write_table(pa.table({"id": ids, "x": np.ones(num_nodes, np.float32)}), folder / "nodes.parquet")
    schema = pa.schema({"src": pa.string(), "dst": pa.string()})
    with pq.ParquetWriter(folder / "edges.parquet", schema) as file:
        for begin in range(0, num_edges, ROWS_AT_ONCE):
            rows = generator.integers(num_nodes, size=(2, min(ROWS_AT_ONCE, num_edges - begin)))
            file.write_table(pa.table([ids.take(pa.array(ends)) for ends in rows], schema=schema))
    (folder / "graph.yaml").write_text(GRAPH)


def in_a_process(write: Callable[[Path, int], None], folder: Path, num_edges: int) -> None:
    """Writes the files in a process of its own: what it holds would count as peak memory of those that start here."""
    process = multiprocessing.get_context("spawn").Process(target=write, args=(folder, num_edges))
    process.start()
    process.join()
    if process.exitcode:
        sys.exit(f"the files were not written: the process ended with {process.exitcode}")


def cost_of(code: str, folder: Path, num_edges: int) -> Cost:
    """Of a process that does this."""
    arguments = [str(folder), str(folder / "out"), str(num_edges // EDGES_A_NODE), str(MEMORY)]
    begin = time.monotonic()
    process = subprocess.Popen([sys.executable, "-c", START + code, *arguments])
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"an import ended with status {os.waitstatus_to_exitcode(status)}")
    return Cost(time.monotonic() - begin, usage.ru_utime + usage.ru_stime, 1024 * usage.ru_maxrss)


def measure(title: str, ways: dict[str, str], folder: Path, num_edges: int, rounds: int) -> None:
    """Prints a table with a line for each way; the last column compares its rate with that of the first way."""
    costs: dict[str, list[Cost]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way, code in ways.items():
            costs[way].append(cost_of(code, folder, num_edges))
    seconds = {way: statistics.median(cost.seconds for cost in all_costs) for way, all_costs in costs.items()}
    first = next(iter(ways))
    table = TextTable(title, ["source", "s", "CPU s", "M edges/s", "peak memory", f"rate / {first}"])
    for way, all_costs in costs.items():
        row = [way, f"{seconds[way]:.1f}", f"{statistics.median(cost.cpu_seconds for cost in all_costs):.1f}"]
        row += [f"{num_edges / seconds[way] / 1e6:.1f}", format_bytes(max(cost.peak_bytes for cost in all_costs))]
        table.rows.append([*row, f"{seconds[first] / seconds[way]:.2f}"])
    print_tables(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in {"edges": 160_000_000, "text-edges": 20_000_000, "rounds": 3}.items():
        parser.add_argument(f"--{name}", type=int, default=value, help=f"default {value:,}; 0 edges: left out")
    parser.add_argument("--folder", type=Path, help="where the files are made (default: that of temporary files)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder) as name:
        folder = Path(name)
        if args.edges:
            in_a_process(write_pairs, folder, args.edges)
            ways = {"npy": ARRAYS.format(source="pairs.npy"), "parts": ARRAYS.format(source="parts"), "duckdb": DUCKDB}
            measure(f"{args.edges:,} pairs of integers", ways, folder, args.edges, args.rounds)
        if args.text_edges:
            in_a_process(write_texts, folder, args.text_edges)
            ways = {"pandas": PANDAS, "texts": TEXTS}
            measure(f"{args.text_edges:,} pairs of texts", ways, folder, args.text_edges, args.rounds)


if __name__ == "__main__":
    main()
