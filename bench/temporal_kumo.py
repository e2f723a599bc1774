"""Kumo Engine's side of bench/temporal_peers.py, under its own Python: a snapshot of the tables, then batches as asked.

    VENV/bin/python bench/temporal_kumo.py TABLES SCRATCH CORES

Writes a line of JSON for the snapshot, and one for each line of JSON that it reads: the keys of `measured`. The batches
are those of its sampler for a training, with the rows' columns as Arrow arrays; the model is never built.
"""

import json
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from shop_database import FEATURES, IDS, KEYS, SPLITS

SELF, CHILDREN = resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN
FANOUT = 12


def main() -> None:
    tables, scratch, cores = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    out, sys.stdout = sys.stdout, sys.stderr
    import kumo.engine  # noqa: F401  the snapshot begins when it is there

    graph, snapshot, cost = measured(lambda: snapshot_of(tables, scratch))

    def say(answer: dict) -> None:
        print(json.dumps(answer), file=out, flush=True)

    say(cost)
    from diskgraph import RuntimeIndex

    index = RuntimeIndex(str(manifest_of(tables, scratch, graph, snapshot)), rnd_seed=1, num_threads=cores)
    for number, line in enumerate(sys.stdin):
        asked = json.loads(line)
        *counts, cost = measured(lambda asked=asked, number=number: batches_of(index, epoch=number, **asked))
        say(cost | dict(zip(("seeds", "nodes", "edges"), counts, strict=True)))


def measured(work: Callable[[], tuple]) -> tuple:
    """What the work returns, then its seconds and CPU seconds, those of programs that it ran included."""

    def used() -> float:
        found = [resource.getrusage(each) for each in (SELF, CHILDREN)]
        return sum(each.ru_utime + each.ru_stime for each in found)

    start, before = time.perf_counter(), used()
    result = work()
    return *result, {"seconds": time.perf_counter() - start, "cpu": used() - before}


def snapshot_of(tables: Path, scratch: Path) -> tuple:
    from kumo.engine import Edge, FileConnector, Graph, Table, configure

    configure(scratch_dir=str(scratch / "kumo"))
    files = FileConnector(root_dir=str(tables))
    times = {name: None if name == "shops" else "at" for name in FEATURES}
    found = {
        name: Table.from_source_table(files[name], primary_key=IDS.get(name), time_column=at)
        for name, at in times.items()
    }
    edges = [Edge(name, key, other) for name, keys in KEYS.items() for key, other in keys.items()]
    graph = Graph(tables=found, edges=edges)
    return graph, graph.snapshot()


def manifest_of(tables: Path, scratch: Path, graph, snapshot) -> Path:
    """Of the task's rows, as its trainer prepares them; the training that would follow is left out."""
    import kumo_core.training.orchestration as orchestration
    from kumo.engine import FileConnector, PredictiveQuery, Trainer, TrainingTable
    from kumoapi.train import TrainingTableSpec

    parts = [pq.read_table(tables / f"task-{split}.parquet") for split in SPLITS]
    rows = pa.concat_tables(parts)
    columns = {
        "ENTITY1": rows["user_id"],
        "TIMESTAMP": rows["at"].cast(pa.timestamp("ns")),
        "TARGET1": rows["label"].cast(pa.float64()),
        "SPLIT": np.repeat(np.arange(len(SPLITS)), [len(part) for part in parts]),
    }
    (scratch / "task").mkdir()
    pq.write_table(pa.table(columns), scratch / "task" / "rows.parquet")
    query = PredictiveQuery(graph, "PREDICT COUNT(orders.*, 0, 30, days) > 0 FOR EACH users.user_id")
    source = FileConnector(root_dir=str(scratch / "task"))["rows"]
    task = TrainingTable.from_source_table(source, TrainingTableSpec(split_col="SPLIT"), pq=query, snapshot=snapshot)
    prepared = []

    class Prepared(Exception):
        pass

    def stop(of_training, **_) -> None:
        prepared.append(of_training.task_dataset_bundle_dir)
        raise Prepared

    orchestration.run_callable_training = stop
    try:
        Trainer(query.suggest_model_plan(snapshot)).fit(task, snapshot=snapshot)
    except Prepared:
        pass
    return Path(prepared[0]) / "runtime_manifest.json"


def batches_of(index, epoch: int, hops: int, batch_size: int, batches: int) -> tuple[int, int, int]:
    """Seeds, nodes and edges of so many batches of the training."""
    hop = {"fanout": FANOUT, "mode": "temporal_most_recent", "absent_key_policy": "uniform_fallback"}
    how = {"stage": "train", "num_workers": 1, "worker_id": 0, "shuffle": True, "entity_node_type": "users"}
    plan = {"layers": [{"fanouts": {}, "default_fanout": hop}] * hops}
    found, _ = index.iter(sampling_plan=plan, epoch=epoch, batch_size=batch_size, **how)
    seeds = nodes = edges = 0
    for _ in range(batches):
        batch = next(found)
        seeds += len(batch["task"]["input_ids"])
        nodes += sum(each.num_rows for table in batch["raw_features"].values() for each in table["record_batches"])
        edges += sum(len(each["src"]) for each in batch["graphs"]["main"]["edge_index_dict"])
    return seeds, nodes, edges


if __name__ == "__main__":
    main()
