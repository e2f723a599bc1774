"""How fast are temporal batches of a database, and its import, beside Kumo Engine's sampler and snapshot?

    python bench/temporal_peers.py --kumo VENV/bin/python [--rows 2000000] [--cores 2] [--rounds 5] [--seeds 8192]

VENV has kumo-engine==1.0.0. The database is that of bench/shop_database.py, as Parquet files; the seeds are rows of its
task. Both sides draw the latest 12 edges of each relation and hop up to the seed's time, in disjoint trees, and bring
the columns of all rows; they run on the same cores, in turns. A round draws --seeds seeds; a table has the medians of
the rounds. Seconds of the processor are those of all processes of a side: a busy machine changes them less. Peak
memory is that of all processes of an import together; Kumo Engine's seconds begin when its packages are imported.
--device cuda: Cohort's sampler with the GPU, and all rows there; start the script by `cohort run`, so that both share
the GPU by MPS. --folder FOLDER has the files, which are removed. No more seeds are drawn than the task has rows.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import shop_database
import torch

import cohort_gnn as cohort
from cohort_gnn.base.tables import TextTable, print_tables
from cohort_gnn.base.units import format_bytes

HERE = Path(__file__).parent
FANOUT = 12
CASES = [(2, 512), (2, 8192), (3, 512), (3, 8192)]  # hops, batch size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kumo", help="the Python of an environment with kumo-engine; left out: Cohort alone")
    for name, value in {"rows": 2_000_000, "cores": 2, "rounds": 5, "seeds": 8192}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--folder", type=Path)
    args = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: args.cores])
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        compare(args, Path(folder))


def compare(args: argparse.Namespace, folder: Path) -> None:
    tables = folder / "tables"
    shop_database.write(tables, args.rows)
    imports = {"Cohort": imported(tables, folder / "data")}
    sides = {"Cohort": CohortSide(folder / "data", args.device)}
    if args.kumo:
        sides["Kumo Engine"] = KumoSide(args, tables, folder)
        imports["Kumo Engine"] = sides["Kumo Engine"].snapshot
    found: dict = {}
    seeds = min(args.seeds, sides["Cohort"].num_rows)
    for hops, batch_size in CASES:
        batches = -(-seeds // batch_size)
        for each in range(args.rounds + 1):  # the first is not counted
            for name, side in sides.items():
                answer = side.batches(hops=hops, batch_size=batch_size, batches=batches)
                if each:
                    found.setdefault((hops, batch_size, name), []).append(answer)
    for side in sides.values():
        side.close()
    columns = ["side", "s", "CPU s", "peak memory"]
    of_import = TextTable("Import and snapshot", columns)
    for name, cost in imports.items():
        of_import.rows.append([name, f"{cost['seconds']:.1f}", f"{cost['cpu']:.1f}", format_bytes(cost["peak"])])
    print_tables(of_import, table_of(found))


def table_of(found: dict) -> TextTable:
    titles = ["hops", "batch", "side", "seeds/s", "seeds/CPU s", "nodes/seed", "edges/seed"]
    table = TextTable("Batches", titles)
    for (hops, batch_size, name), answers in found.items():
        rates = [f"{statistics.median(each['seeds'] / each[of] for each in answers):,.0f}" for of in ("seconds", "cpu")]
        sizes = [f"{statistics.mean(each[of] / each['seeds'] for each in answers):.1f}" for of in ("nodes", "edges")]
        table.rows.append([str(hops), str(batch_size), name, *rates, *sizes])
    return table


def imported(tables: Path, out: Path) -> dict:
    """Seconds, CPU seconds and bytes of memory of `cohort dataset import`."""
    start = time.perf_counter()
    command = [sys.executable, "-m", "cohort_gnn", "dataset", "import", tables / "graph.yaml", out]
    with subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL) as child, Peak(child.pid) as peak:
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        sys.exit(f"the import ended with {child.returncode}")
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "cpu": usage.ru_utime + usage.ru_stime, "peak": peak.bytes}


class Peak:
    """The most resident memory that a process and its children were seen to have, every 20 ms.

    Attributes:
        bytes: all of them together.
    """

    def __init__(self, process: int):
        self.bytes = 0
        self._process, self._ended = process, threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> "Peak":
        self._thread.start()
        return self

    def __exit__(self, *_) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._ended.wait(0.02):
            pages = sum(int(Path(f"/proc/{each}/statm").read_text().split()[1]) for each in tree_of(self._process))
            self.bytes = max(self.bytes, pages * os.sysconf("SC_PAGE_SIZE"))


class CohortSide:
    """Loaders over the data set, one for each number of hops."""

    def __init__(self, data: Path, device: str):
        self._rows = cohort.dataset.open_task(data, "churn").splits["train"]
        self.num_rows = len(self._rows.nodes)
        self._data, self._device = data, device
        self._loader: tuple = (None, None)

    def batches(self, hops: int, batch_size: int, batches: int) -> dict:
        if self._loader[0] != (hops, batch_size):
            self.close()
            how = {"time_attr": "at", "temporal_strategy": "last", "batch_size": batch_size, "device": self._device}
            nodes = ("users", self._rows.nodes)
            all_ = cohort.NeighborLoader(self._data, [FANOUT] * hops, nodes, input_time=self._rows.times, **how)
            self._loader = (hops, batch_size), all_
        chosen = torch.randperm(len(self._rows.nodes))[: batches * batch_size]
        nodes, times = self._rows.nodes[chosen], self._rows.times[chosen]
        part = self._loader[1].with_nodes(("users", nodes), input_time=times)
        seeds = num_nodes = edges = 0
        start, before = time.perf_counter(), cpu_seconds(os.getpid())
        for batch in part:
            seeds += batch["users"].batch_size
            num_nodes += sum(len(batch[name].x) for name in batch.node_types)
            edges += sum(batch[name].edge_index.shape[1] for name in batch.edge_types)
        if self._device == "cuda":
            torch.cuda.synchronize()
        cost = {"seconds": time.perf_counter() - start, "cpu": cpu_seconds(os.getpid()) - before}
        return cost | {"seeds": seeds, "nodes": num_nodes, "edges": edges}

    def close(self) -> None:
        if self._loader[1] is not None:
            self._loader[1].close()


class KumoSide:
    """Another process, under Kumo Engine's Python."""

    def __init__(self, args: argparse.Namespace, tables: Path, folder: Path):
        command = [args.kumo, HERE / "temporal_kumo.py", tables, folder / "scratch", args.cores]
        (folder / "scratch").mkdir()
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "env": environment, "text": True}
        with open(folder / "kumo.log", "w") as log:
            self._process = subprocess.Popen(list(map(str, command)), stderr=log, **pipes)
        self._log = folder / "kumo.log"
        with Peak(self._process.pid) as peak:
            self.snapshot = self._answer()
        self.snapshot["peak"] = peak.bytes

    def batches(self, **asked: int) -> dict:
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait()

    def _answer(self) -> dict:
        line = self._process.stdout.readline()
        if not line:
            sys.exit(f"Kumo Engine ended with {self._process.wait()}:\n{self._log.read_text()[-3000:]}")
        return json.loads(line)


def tree_of(process: int) -> list[int]:
    """A process and those that it started, as long as they run."""
    try:
        tasks = list((Path("/proc") / str(process) / "task").iterdir())
        children = [each for task in tasks for each in (task / "children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):  # it has just ended
        return []
    return [process, *(each for child in children for each in tree_of(int(child)))]


def cpu_seconds(process: int) -> float:
    """Of a process and those that it started and that still run."""
    stats = [Path(f"/proc/{each}/stat").read_text().rsplit(")", 1)[1].split() for each in tree_of(process)]
    return sum(int(fields[11]) + int(fields[12]) for fields in stats) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
