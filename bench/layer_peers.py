"""How fast is layer sampling on a CPU, and how large are its batches, beside DGL's GraphBolt?

    python bench/layer_peers.py DIR --graphbolt VENV/bin/python [--cores 2] [--rounds 5] [--seeds 65536]

VENV has dgl==2.1.0, torch==2.2.1, torchdata==0.7.1, numpy==1.26.4, pydantic, pyyaml and pandas. Both sides draw 25 and
10 neighbours of the same seeds, on the same cores, in turns, each node by itself (sample_neighbors) and by layers
(sample_layer_neighbors). Cohort's batches also have the rows of all nodes and come from a process of their own;
GraphBolt's are the edges, and the nodes in the order of local ids. The table has medians of the rounds; seconds of the
processor are those of all processes of a side.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from temporal_peers import cpu_seconds

import cohort_gnn as cohort
from cohort_gnn.base.tables import TextTable, print_tables

FANOUT = [25, 10]
METHODS = {"neighbor": "sample_neighbors", "labor": "sample_layer_neighbors"}
BATCH_SIZES = [1024, 8192]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", type=Path, metavar="DIR")
    parser.add_argument("--graphbolt", required=True, help="the Python of an environment with DGL")
    for name, value in {"cores": 2, "rounds": 5, "seeds": 65536}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    args = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: args.cores])
    data, found = cohort.dataset.open(args.dataset), {}
    with tempfile.TemporaryDirectory() as folder:
        sides = {"Cohort": cohort_batches, "GraphBolt": GraphBolt(args, Path(folder))}
        for batch_size in BATCH_SIZES:
            for sampling in METHODS:
                how = {"batch_size": batch_size, "sampling": sampling, "device": "cpu"}
                with cohort.NeighborLoader(data, FANOUT, **how) as loader:
                    for each in range(args.rounds + 1):  # the first is not counted
                        seeds = torch.randperm(data.num_nodes)[: args.seeds]
                        for name, batches in sides.items():
                            answer = batches(how, loader, seeds)
                            if each:
                                found.setdefault((batch_size, sampling, name), []).append(answer)
    print_tables(table_of(found, args.seeds))


def table_of(found: dict, num_seeds: int) -> TextTable:
    table = TextTable("Batches", ["batch", "sampling", "side", "seeds/s", "seeds/CPU s", "nodes a batch", "edges"])
    for (batch_size, sampling, name), answers in found.items():
        rates = [f"{statistics.median(each['seeds'] / each[of] for each in answers):,.0f}" for of in ("seconds", "cpu")]
        batches = -(-num_seeds // batch_size)
        sizes = [f"{statistics.mean(each[of] for each in answers) / batches:,.0f}" for of in ("nodes", "edges")]
        table.rows.append([str(batch_size), sampling, name, *rates, *sizes])
    return table


def cohort_batches(_how: dict, loader: cohort.NeighborLoader, seeds: torch.Tensor) -> dict:
    found = {"seeds": 0, "nodes": 0, "edges": 0}
    start, before = time.perf_counter(), cpu_seconds(os.getpid())
    for batch in loader.with_nodes(seeds):
        found["seeds"] += batch.batch_size
        found["nodes"] += len(batch.n_id)
        found["edges"] += batch.edge_index.shape[1]
    return found | {"seconds": time.perf_counter() - start, "cpu": cpu_seconds(os.getpid()) - before}


class GraphBolt:
    """A process under its Python, which lives as long as this one."""

    def __init__(self, args: argparse.Namespace, folder: Path):
        program = Path(__file__).parent / "layer_graphbolt.py"
        command = [args.graphbolt, "-W", "ignore", program, args.dataset, args.cores]
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "env": environment, "text": True}
        self._process = subprocess.Popen(list(map(str, command)), **pipes)
        self._seeds = folder / "seeds.npy"

    def __call__(self, how: dict, loader: cohort.NeighborLoader, seeds: torch.Tensor) -> dict:
        np.save(self._seeds, seeds.numpy())
        asked = {"method": METHODS[how["sampling"]], "batch_size": how["batch_size"], "fanout": FANOUT}
        asked["seeds"] = str(self._seeds)
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            sys.exit(f"GraphBolt ended with {self._process.wait()}")
        return json.loads(line)


if __name__ == "__main__":
    main()
