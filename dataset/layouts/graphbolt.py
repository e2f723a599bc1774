"""GraphBolt's OnDiskDataset: metadata.yaml that names the files of edges, features and tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset import arrays
from cohort_gnn.dataset.array_file import open_npy
from cohort_gnn.dataset.layouts.graph import Edges, Labels, Rows
from cohort_gnn.dataset.layouts.text_file import TextFile, TextOptions
from cohort_gnn.dataset.layouts.torch_files import array_of, is_dense, load_tensors, rows_of_tensor
from cohort_gnn.dataset.layouts.typed import Nodes, TypedGraph, by_relation, relation_of
from cohort_gnn.dataset.structured import read_structured

METADATA = "metadata.yaml"
SETS = ("train_set", "validation_set", "test_set")
SEEDS = ("seeds", "seed_nodes", "node_ids")
PLAIN = TextOptions(separator=",", header="no")
HINT = "see FORMAT.md for what is read of an OnDiskDataset"
NODE, RELATION = "node", ("node", "to", "node")  # of entries without a type


class File(msgspec.Struct):
    """An array, also one of several that have names."""

    path: str
    format: str | None = None
    name: str | None = None
    domain: str | None = None
    type: str | None = None


class NodeType(msgspec.Struct):
    num: int
    type: str | None = None


class TaskSet(msgspec.Struct):
    data: list[File] | None = None
    type: str | None = None


class Task(msgspec.Struct):
    name: Any = None
    num_classes: Any = None
    train_set: list[TaskSet] | None = None
    validation_set: list[TaskSet] | None = None
    test_set: list[TaskSet] | None = None


class GraphFiles(msgspec.Struct):
    nodes: list[NodeType]
    edges: list[File]


class Metadata(msgspec.Struct):
    graph: GraphFiles
    dataset_name: Any = None
    feature_data: list[File] | None = None
    tasks: list[Task] | None = None


def read_graphbolt(source: Path) -> TypedGraph:
    """The graph, of each node type the feature "feat" (or the only one), and the first task of a folder."""
    path = source / METADATA if source.is_dir() else source
    meta = read_structured(path, "YAML", Metadata, "the metadata of an OnDiskDataset", HINT)
    nodes = {node.type or NODE: node.num for node in meta.graph.nodes}
    for type_, count in nodes.items():
        if count < 1:
            raise CohortError(f"{path}: nodes {type_}", "num, the number of nodes, of at least 1", str(count), HINT)
    if len(nodes) < len(meta.graph.nodes):
        raise CohortError(str(path), "each node type once", f"{len(meta.graph.nodes)} entries of {', '.join(nodes)}")
    task = meta.tasks[0] if meta.tasks else Task()
    sets = [_Set(path, task, name) for name in SETS] if meta.tasks else []
    targets = {part.type for part in sets if part.items} or {NODE if NODE in nodes else next(iter(nodes), NODE)}
    if len(targets) > 1:
        raise CohortError(str(path), "a task of one node type", ", ".join(sorted(targets)), HINT)
    (target,) = targets
    num_nodes = nodes.get(target, 0)
    relations = ((_relation(path, item), _edges(path, item, meta.feature_data or [])) for item in meta.graph.edges)
    return TypedGraph(
        name=str(meta.dataset_name or path.parent.resolve().name),
        place=str(path),
        nodes={type_: Nodes(count, _features(path, meta.feature_data or [], type_)) for type_, count in nodes.items()},
        edges=by_relation(str(path), relations),
        target=target,
        labels=Labels(str(path), lambda: _labels(sets, num_nodes)) if sets else None,
        splits=(lambda: [part.seeds() for part in sets]) if sets else None,
        num_classes=task.num_classes if isinstance(task.num_classes, int) else None,
        notes=[f"the first of {len(meta.tasks)} tasks: {task.name}"] if meta.tasks and len(meta.tasks) > 1 else [],
    )


def _relation(path: Path, item: File) -> tuple[str, str, str]:
    return relation_of(f"{path}: type of edges", item.type, ":") if item.type else RELATION


def _edges(path: Path, item: File, features: Sequence[File]) -> Edges:
    file, relation = path.parent / item.path, _relation(path, item)
    _demand(path, item.format in ("csv", "numpy"), "edges of format csv or numpy", item.format)
    csv = item.format == "csv"
    edges = Edges.of_table(TextFile(file, PLAIN), (0, 1)) if csv else Edges.of_pairs(open_npy(file))
    own = [each for each in features if each.domain == "edge" and _relation(path, each) == relation]
    return replace(edges, features=_rows(path, own, ":".join(relation)))


def _features(path: Path, items: Sequence[File], type_: str) -> Rows | None:
    """The rows of the feature "feat" of a node type, or of its only one."""
    return _rows(path, [item for item in items if item.domain == "node" and (item.type or NODE) == type_], type_)


def _rows(path: Path, items: Sequence[File], type_: str) -> Rows | None:
    chosen = [item for item in items if item.name == "feat"] or items
    if not chosen:
        return None
    names = ", ".join(str(item.name) for item in items)
    _demand(path, len(chosen) == 1, f"one feature of {type_}, or one named feat", names)
    file = path.parent / chosen[0].path
    if chosen[0].format == "torch":
        return rows_of_tensor(str(file), _tensor(path, file))
    _demand(path, chosen[0].format == "numpy", "features of format numpy or torch", chosen[0].format)
    return Rows.of_file(open_npy(file))


def _array(path: Path, item: File) -> np.ndarray:
    """A small array of a task, or a tensor."""
    file = path.parent / item.path
    if item.format == "torch":
        return array_of(_tensor(path, file))
    _demand(path, item.format == "numpy", "arrays of format numpy or torch", item.format)
    return open_npy(file).read()


def _tensor(path: Path, file: Path) -> Any:
    found = load_tensors(file, "save it by numpy.save, and say format: numpy")
    _demand(path, is_dense(found), f"a dense tensor in {file}", type(found).__name__)
    return found


def _demand(path: Path, fits: bool, expected: str, found: Any) -> None:
    if not fits:
        raise CohortError(str(path), expected, str(found)[:80], HINT)


class _Set:
    """The nodes of one set of a task, and their labels."""

    def __init__(self, path: Path, task: Task, name: str):
        self._path, self._name = path, name
        groups = getattr(task, name) or []
        _demand(path, len(groups) <= 1, f"one {name}, of one type", f"{len(groups)} of them")
        self.type = (groups[0].type if groups else None) or NODE
        self.items = {item.name: item for group in groups for item in group.data or []}

    def seeds(self) -> np.ndarray:
        """int64 [n]"""
        if not self.items:
            return np.empty(0, np.int64)
        found = next((self.items[name] for name in SEEDS if name in self.items), None)
        if found is None:
            raise CohortError(str(self._path), f"seeds in {self._name}", ", ".join(map(str, self.items)), HINT)
        return arrays.integers(f"{self._path}: {self._name}", _array(self._path, found))

    def labels(self) -> np.ndarray:
        """int64 [n]"""
        if not self.items:
            return np.empty(0, np.int64)
        _demand(self._path, "labels" in self.items, f"labels in {self._name}", list(self.items))
        place = f"{self._path}: labels of {self._name}"
        return arrays.class_labels(place, _array(self._path, self.items["labels"]), len(self.seeds()))


def _labels(sets: list[_Set], num_nodes: int) -> np.ndarray:
    """int64 [V]: those of the sets' nodes; the others have none."""
    out = np.full(num_nodes, -1, dtype=np.int64)
    for part in sets:
        seeds = part.seeds()
        arrays.demand_nodes(f"{METADATA}: seeds", seeds, num_nodes)
        out[seeds] = part.labels()
    return out
