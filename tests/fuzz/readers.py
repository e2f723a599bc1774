"""What Python reads from outside: for each reader a folder that is right, made by code, and how it is read."""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import layout_writers as layouts
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
import typed_layout_writers as typed

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset import append, check, import_graph, open_task
from cohort_gnn.dataset import open as open_dataset
from cohort_gnn.dataset.changes import problems_of_record
from cohort_gnn.dataset.importing.beside import SourceOptions
from cohort_gnn.dataset.importing.describe import describe
from cohort_gnn.dataset.tasks import SPLITS
from cohort_gnn.launch.options.parser import read_config
from cohort_gnn.launch.report.results import LISTS, ROWS, read_run
from cohort_gnn.launch.run import resume
from cohort_gnn.spec.files import MODEL
from cohort_gnn.spec.graph import GraphTypes
from cohort_gnn.spec.options import options_of
from cohort_gnn.spec.results import TIERS, EpochReport, RunReport
from cohort_gnn.spec.run import RunSpec, TrainerSpec, as_json
from cohort_gnn.trainer.loop import checkpoint
from cohort_gnn.trainer.models.sampled import SampledGNN
from cohort_gnn.trainer.models.weights import load_weights
from cohort_gnn.trainer.predict.kept_layers import keep_digests, kept_folder, read_before
from cohort_gnn.trainer.predict.program import model_of_run
from cohort_gnn.trainer.predict.row_digests import Digests

MEMORY_BYTES = 32_000_000  # for sorting


class Reader(NamedTuple):
    """write(folder) puts a good input into an existing folder; read(folder) reads it, CohortError or not."""

    write: Callable[[Path], None]
    read: Callable[[Path], object]
    package: str = "numpy"  # without it there is no such reader


def _import(name: str, **options) -> Callable[[Path], None]:
    def read(folder: Path) -> None:
        out = folder.parent / "out"
        shutil.rmtree(out, ignore_errors=True)
        import_graph(folder / name, out, memory=MEMORY_BYTES, **options)

    return read


def _layout(write: Callable, *more) -> Callable[[Path], None]:
    return lambda folder: write(folder / "source", layouts.sample(), *more)


def _typed(write: Callable, *more, **of_sample) -> Callable[[Path], None]:
    return lambda folder: write(folder / "source", typed.sample(**of_sample), *more) and None


def _appended(folder: Path) -> None:
    _npz(folder)
    import_graph(folder / "plain.npz", folder / "data", memory=MEMORY_BYTES)
    (folder / "plain.npz").unlink()
    np.save(folder / "new.npy", np.array([[0, 1, 2], [2, 2, 0]]))
    append(folder / "data", edges=folder / "new.npy", memory=MEMORY_BYTES)


def _read_appended(folder: Path) -> None:
    """Its record, and another append: what is there is damaged, or what comes."""
    changed = problems_of_record(open_dataset(folder / "data"))
    append(folder / "data", edges=folder / "new.npy", memory=MEMORY_BYTES)
    if changed:
        raise changed[0]


def _npz(folder: Path) -> None:
    graph = layouts.sample()
    splits = dict(zip(("train_ids", "val_ids", "test_ids"), graph.splits, strict=True))
    ends = {"src": graph.edge_index[0], "dst": graph.edge_index[1]}
    np.savez(folder / "plain.npz", x=graph.x, labels=graph.y, **ends, **splits)


def _csr_npz(folder: Path) -> None:
    import scipy.sparse

    graph = layouts.sample()
    size = (graph.num_nodes, graph.num_nodes)
    ones = np.ones(graph.edge_index.shape[1], np.float32)
    adjacency, attributes = scipy.sparse.csr_matrix((ones, graph.edge_index), size), scipy.sparse.csr_matrix(graph.x)
    parts = {
        f"{name}_{part}": getattr(matrix, part)
        for name, matrix in (("adj", adjacency), ("attr", attributes))
        for part in ("data", "indices", "indptr", "shape")
    }
    np.savez(folder / "csr.npz", labels=graph.y, **parts)


def _sparse_npz(folder: Path) -> None:
    import scipy.sparse

    graph = layouts.sample()
    values, size = np.arange(graph.edge_index.shape[1]) / 4, (graph.num_nodes, graph.num_nodes)
    matrix = scipy.sparse.coo_array((values, tuple(graph.edge_index)), size)
    scipy.sparse.save_npz(folder / "sparse.npz", matrix.tocsc(), compressed=False)


def _npy_folder(folder: Path) -> None:
    graph = layouts.sample()
    (folder / "source").mkdir()
    for name, array in (
        ("x", graph.x),
        ("labels", graph.y),
        ("src", graph.edge_index[0]),
        ("dst", graph.edge_index[1]),
    ):
        np.save(folder / "source" / f"{name}.npy", array)


def _edge_list(folder: Path) -> None:
    pairs = layouts.sample().edge_index.T
    text = "".join(f"{src},{dst}\n" for src, dst in pairs.tolist())
    (folder / "edges.csv").write_text("source,target\n# a comment\n" + text)


def _matrix_market(folder: Path) -> None:
    import scipy.io
    import scipy.sparse

    graph = layouts.sample()
    values = np.arange(graph.edge_index.shape[1]) / 4
    matrix = scipy.sparse.coo_array((values, tuple(graph.edge_index)), (graph.num_nodes, graph.num_nodes))
    scipy.io.mmwrite(folder / "edges.mtx", matrix)


def _parquet(folder: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    src, dst = layouts.sample().edge_index
    pq.write_table(pa.table({"src": src, "dst": dst}), folder / "edges.parquet")


def _pyg(folder: Path) -> None:
    graph = layouts.sample()
    masks = {}
    for name, ids in zip(("train_mask", "val_mask", "test_mask"), graph.splits, strict=True):
        masks[name] = torch.zeros(graph.num_nodes, dtype=torch.bool)
        masks[name][torch.from_numpy(ids)] = True
    tensors = {"x": torch.from_numpy(graph.x), "edge_index": torch.from_numpy(graph.edge_index)}
    torch.save(tensors | {"y": torch.from_numpy(graph.y)} | masks, folder / "data.pt")


def _tensors(folder: Path, name: str) -> None:
    """Edges, labels, and rows of bfloat16 in one file."""
    graph, path = layouts.sample(), folder / name
    tensors = {"edges": torch.from_numpy(graph.edge_index), "y": torch.from_numpy(graph.y)}
    tensors["x"] = torch.from_numpy(graph.x).bfloat16()
    layouts.write_safetensors(path, tensors) if path.suffix == ".safetensors" else torch.save(tensors, path)


def _read_tensors(name: str) -> Callable[[Path], None]:
    def read(folder: Path) -> None:
        inputs = SourceOptions(features=folder / f"{name}:x", labels=folder / f"{name}:y")
        _import(f"{name}:edges", inputs=inputs)(folder)

    return read


def _split_dict(folder: Path) -> None:
    graph = layouts.sample()
    split = layouts.write_ogb(folder / "source", graph, True) / "split" / "time"
    ids = dict(zip(("train", "valid", "test"), map(torch.from_numpy, graph.splits), strict=True))
    torch.save(ids, split / "split_dict.pt")


def _data_set(folder: Path) -> None:
    _npz(folder)
    import_graph(folder / "plain.npz", folder / "data", memory=MEMORY_BYTES)
    (folder / "plain.npz").unlink()


def _read_data_set(folder: Path) -> None:
    data = open_dataset(folder / "data")
    data.x_float32().sum(), data.y.sum(), data.indptr[-1], data.indices.sum()
    for ids in (data.train_ids, data.val_ids, data.test_ids):
        ids.sum()


def _checkpoint(folder: Path) -> None:
    state = {"epoch": 1, "step": 3, "model": {"w": torch.ones(3, 2)}, "optimizer": {"state": {}, "param_groups": []}}
    rest = {"best_model": None, "report": {"epochs": []}, "ranks": [{"random": {"cpu": torch.get_rng_state()}}]}
    checkpoint.CheckpointFile(folder / "checkpoint.pt", {"seed": 0}).write(state | rest)


def _model(folder: Path) -> None:
    torch.save(torch.nn.Linear(3, 2).state_dict(), folder / MODEL)


CONFIG = """
epochs = 9
fanout = [4, 2]
model = "gcn"
hidden = 8
quiet = true
lr = 0.1
batch-size = 100
cache-ratio = [0.1, 0.2]
seed = 3
sampler-sms = 16
out = "runs/a"
dropout = 0.2
weight-decay = 1e-4
"""


def _read_config(folder: Path) -> None:
    read_config(folder / "run.toml", {each.name: each for each in options_of(RunSpec)})


RUN = {
    "mps": True,
    "sampler": {"dataset": "data", "device": "cpu", "num_ranks": 1},
    "trainer": as_json(TrainerSpec(task="node", epochs=3, num_classes=4, feature_dim=5)),
    "data": {"labels": "0a"},
}


def _read_run_json(folder: Path) -> None:
    resume.resumed(folder, {"epochs": 3, "quiet": True})


def _run_to_predict(folder: Path) -> None:
    """A data set, and a run with a model for it."""
    _data_set(folder)
    trainer = {"model": "sage", "feature_dim": 5, "hidden": 3, "num_classes": 4, "fanout": [2, 2]}
    (folder / "run.json").write_text(json.dumps({"trainer": trainer}))
    torch.save(SampledGNN("sage", 5, 3, 4, 2, dropout=0.0).state_dict(), folder / MODEL)


TYPES = GraphTypes({"a": 5, "b": 3}, {"a": 2, "b": 0}, [("a", "to", "b")], "b")


def _kept_rows(folder: Path) -> None:
    """What a predict has kept, under a name that is always the same."""
    counts = {name: np.arange(count, dtype=np.uint64) for name, count in TYPES.counts.items()}
    digests = Digests(counts, {TYPES.edge_types[0]: counts["b"]})
    with kept_folder(folder / "kept", TYPES, {"weights": "0a"}) as rows:
        keep_digests(rows, digests)
        np.save(rows / "layer-0-0.npy", np.ones((5, 2), np.float32))
    (made,) = (folder / "kept").glob("rows-*")
    record = folder / "kept" / "record.json"
    record.write_text(record.read_text().replace(made.name, "rows-0"))
    made.rename(folder / "kept" / "rows-0")


def _read_kept_rows(folder: Path) -> None:
    before = read_before(folder / "kept", TYPES, {"weights": "0a"})
    before.digests().since(before.digests())
    before.rows(0, "a", 2)


def _results(folder: Path) -> None:
    """Of a run of one epoch with one rank and a cache, by hand."""
    by_tier = dict.fromkeys(TIERS, 0.5)
    predicted = dict.fromkeys(("hit_rate", "bytes", "list_hit_rate", "list_bytes"), by_tier)
    held = dict.fromkeys(("budget_bytes", "index_bytes", "used_bytes", "alpha"), 1)
    rows, lists = {"rows": 1, "bytes": 2}, {"lists": 1, "bytes": 2}
    held |= {"features": rows | {"types": [rows, rows]}, "topology": lists | {"relations": [lists]}}
    types = GraphTypes({"a": 9, "b": 4}, {"a": 3, "b": 0}, [("a", "to", "b")], "b")
    report = RunReport(
        device="cpu",
        start={"seconds": 2.0, "packages_seconds": 1.0, "parts": [{"part": "a", "bytes": 3, "seconds": 0.5}]},
        val_metrics={"accuracy": 0.5},
        epochs=[EpochReport(1, seconds=1.0, loss=1.5, num_batches=2, val_metrics={"accuracy": None})],
        cache={"predicted": [predicted], "measured": []},
        floor={"step_seconds": 0.5, "epochs": [{"seconds": 1.0, "bottleneck": "sample"}]},
    )
    for name, content in {
        "run": RUN | {"trainer": RUN["trainer"] | {"types": asdict(types)}},
        "summary": asdict(report),
        "plan": {"ranks": [held]},
    }.items():
        (folder / f"{name}.json").write_text(json.dumps(content))


def _read_results(folder: Path) -> None:
    run = read_run(folder)
    for kind in (ROWS, LISTS):
        run.uses(kind)
        run.uses(kind, 0)


def _task(folder: Path) -> None:
    _database(folder)
    import_graph(folder, folder.parent / "written", overwrite=True, memory=MEMORY_BYTES)
    shutil.copytree(folder.parent / "written", folder, dirs_exist_ok=True)
    for path in folder.iterdir():
        if path.suffix == ".parquet" or path.name == "graph.yaml":
            path.unlink()


def _read_task(folder: Path) -> None:
    check(folder)
    open_dataset(folder)
    open_task(folder, "churn")


def _database(folder: Path) -> None:
    """A database of two tables with a key and times, and a task."""
    days = np.array([0, 86_400, 5 * 86_400], "datetime64[s]")
    parts = {"a": ["x", "x", "y"], "b": np.arange(3)}
    for name, table in {
        "customer": parts | {"since": days, "age": [1.0, 2.0, 4.0]},
        "order": {"a": ["x", "y", None], "b": [1, 2, 0], "at": days},
        **{split: {**parts, "day": days + i * 10**7, "label": [0, 1, 1]} for i, split in enumerate(SPLITS)},
    }.items():
        pq.write_table(pa.table(table), folder / f"{name}.parquet", compression="none")
    times = {"time_unit": "s", "time_zone": "UTC"}
    key = {"column": ["a", "b"], "to": "customer", "unknown_ids": "skip"}
    features = [{"column": "age", "standardize": True}]
    described = {
        "nodes": {
            "customer": {"file": "customer.parquet", "id": ["a", "b"], "time": "since", "features": features} | times,
            "order": {"file": "order.parquet", "id": "none", "keys": [key], "time": "at"} | times,
        },
        "tasks": {
            "churn": {"nodes": "customer", "id": ["a", "b"], "time": "day", "label": "label", "metric": "auroc"}
            | times
            | {split: f"{split}.parquet" for split in SPLITS}
        },
    }
    (folder / "graph.yaml").write_text(json.dumps(described))


def _relbench(folder: Path) -> None:
    for part in ("db", "tasks/churn"):
        (folder / part).mkdir(parents=True)
    days = np.array([0, 86_400], "datetime64[s]")
    pq.write_table(pa.table({"id": [0, 1], "key": [1.0, None], "at": days}), folder / "db/thing.parquet")
    table = {"pkey": "id", "time_col": "at", "fkeys": {"key": "thing"}}
    (folder / "manifest.yaml").write_text(json.dumps({"name": "x", "tables": {"thing": table}}))
    task = {"task_type": "regression", "entity_table": "thing", "entity_col": "id", "target_col": "y", "time_col": "at"}
    (folder / "tasks/churn/manifest.yaml").write_text(json.dumps(task))
    pq.write_table(pa.table({"id": [0, 1], "at": days, "y": [0.5, 1.5]}), folder / "tasks/churn/train.parquet")


READERS = {
    "appended": Reader(_appended, _read_appended),
    "data_set": Reader(_data_set, _read_data_set),
    "npz": Reader(_npz, _import("plain.npz")),
    "csr_npz": Reader(_csr_npz, _import("csr.npz")),
    "sparse_npz": Reader(_sparse_npz, _import("sparse.npz", inputs=SourceOptions(features="ones"))),
    "npy_folder": Reader(_npy_folder, _import("source")),
    "edge_list": Reader(_edge_list, _import("edges.csv", inputs=SourceOptions(features="ones"))),
    "mtx": Reader(_matrix_market, _import("edges.mtx", inputs=SourceOptions(features="ones"))),
    "parquet": Reader(_parquet, _import("edges.parquet", inputs=SourceOptions(features="ones"))),
    "ogb_text": Reader(_layout(layouts.write_ogb), _import("source", format="ogb")),
    "ogb_binary": Reader(_layout(layouts.write_ogb, True), _import("source", format="ogb")),
    "ogb_split_dict": Reader(_split_dict, _import("source", format="ogb")),
    "planetoid": Reader(
        lambda folder: layouts.write_planetoid(folder / "raw", layouts.planetoid_sample()), _import("raw", format="pyg")
    ),
    "pyg": Reader(_pyg, _import("data.pt")),
    "safetensors": Reader(lambda folder: _tensors(folder, "all.safetensors"), _read_tensors("all.safetensors")),
    "pt_tensors": Reader(lambda folder: _tensors(folder, "all.pt"), _read_tensors("all.pt")),
    "igb": Reader(_layout(layouts.write_igb), _import("source", format="igb")),
    "graphbolt": Reader(_layout(layouts.write_graphbolt, "numpy"), _import("source", format="graphbolt"), "yaml"),
    "legion": Reader(_layout(layouts.write_legion), _import("source", format="legion")),
    "yaml_parquet": Reader(_typed(typed.write_described, "parquet", "texts"), _import("source"), "yaml"),
    "yaml_csv": Reader(_typed(typed.write_described, "csv", "numbers"), _import("source"), "yaml"),
    "database": Reader(_database, _import("."), "yaml"),
    "task": Reader(_task, _read_task, "yaml"),
    "relbench": Reader(_relbench, describe, "yaml"),
    "ogb_types": Reader(_typed(typed.write_ogb), _import("source", format="ogb")),
    "mag240m": Reader(_typed(typed.write_mag240m), _import("source", format="mag240m")),
    "igbh": Reader(_typed(typed.write_igbh, features=tuple(typed.COUNTS), dim=1024), _import("source", format="igbh")),
    "graphbolt_types": Reader(_typed(typed.write_graphbolt), _import("source", format="graphbolt"), "yaml"),
    "dgl": Reader(_typed(typed.write_chunked, "csv"), _import("source", format="dgl")),
    "checkpoint": Reader(_checkpoint, lambda folder: checkpoint.load_checkpoint(folder / "checkpoint.pt")),
    "model": Reader(_model, lambda folder: load_weights(folder, torch.nn.Linear(3, 2))),
    "run_to_predict": Reader(_run_to_predict, lambda folder: model_of_run(folder, open_dataset(folder / "data"))),
    "kept_rows": Reader(_kept_rows, _read_kept_rows),
    "config": Reader(lambda folder: (folder / "run.toml").write_text(CONFIG), _read_config),
    "run_json": Reader(lambda folder: (folder / "run.json").write_text(json.dumps(RUN)), _read_run_json),
    "results": Reader(_results, _read_results),
}


def available() -> list[str]:
    """The readers whose packages are installed."""
    return [name for name, reader in READERS.items() if importlib.util.find_spec(reader.package)]


def read_damaged(name: str, folder: Path) -> str | None:
    """What a reader says of an input: the text of its CohortError, None when it takes it. Other errors get through."""
    try:
        READERS[name].read(folder)
    except CohortError as error:
        if not (error.place and error.expected):
            raise AssertionError(f"an error without place: {error}") from error
        return str(error)
    return None
