"""GraphBolt's OnDiskDataset: metadata.yaml that names the files of edges, features and tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from cohort.base.errors import CohortError
from cohort.dataset import arrays
from cohort.dataset.array_file import open_npy
from cohort.dataset.layouts.graph import Edges, Graph, Labels, Rows, edges_of_pairs, edges_of_table, rows_of_file
from cohort.dataset.layouts.text_file import TextFile, TextOptions
from cohort.dataset.layouts.torch_files import array_of, is_dense, load_tensors, rows_of_tensor

METADATA = "metadata.yaml"
SETS = ("train_set", "validation_set", "test_set")
SEEDS = ("seeds", "seed_nodes", "node_ids")
PLAIN = TextOptions(separator=",", header="no")
HINT = "see FORMAT.md for what is read of an OnDiskDataset"


class _Metadata:
    """metadata.yaml, whose paths are relative to its folder."""

    def __init__(self, path: Path):
        self.path = path
        try:
            import yaml
        except ImportError as error:
            raise CohortError(
                str(path), "the package PyYAML", f"none ({error})", "python -m pip install pyyaml"
            ) from error
        try:
            self.top = yaml.safe_load(path.read_text())
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise CohortError(str(path), "a readable YAML file", " ".join(str(error).split()), HINT) from error
        self.demand(isinstance(self.top, dict), "a mapping", self.top)

    def demand(self, fits: bool, expected: str, found: Any) -> None:
        if not fits:
            raise CohortError(str(self.path), expected, str(found)[:80], HINT)

    def list_of(self, parent: Any, key: str) -> list[dict]:
        found = (parent or {}).get(key) or []
        self.demand(isinstance(found, list) and all(isinstance(item, dict) for item in found), f"a list {key}", found)
        return found

    def file(self, item: dict) -> Path:
        self.demand(isinstance(item.get("path"), str), "an entry with a path", item)
        return self.path.parent / item["path"]


def read_graphbolt(source: Path) -> Graph:
    """The homogeneous graph, the feature "feat" (or the only one) and the first task of a folder."""
    meta = _Metadata(source / METADATA if source.is_dir() else source)
    graph = meta.top.get("graph")
    meta.demand(isinstance(graph, dict), "a mapping graph", graph)
    nodes, edges = meta.list_of(graph, "nodes"), meta.list_of(graph, "edges")
    typed = [item for item in nodes + edges if item.get("type") is not None]
    if len(nodes) != 1 or len(edges) != 1 or typed:
        found = f"{len(nodes)} and {len(edges)}" + (", with types" if typed else "")
        hint = "export the relation that you want as an edge list and import that"
        raise CohortError(str(meta.path), "one kind of nodes and one of edges", found, hint)
    num_nodes = nodes[0].get("num")
    meta.demand(isinstance(num_nodes, int) and num_nodes > 0, "num, the number of nodes", nodes[0])
    tasks = meta.list_of(meta.top, "tasks")
    task = tasks[0] if tasks else {}
    sets = [_Set(meta, task, name) for name in SETS] if task else []
    classes = task.get("num_classes")
    return Graph(
        name=str(meta.top.get("dataset_name") or meta.path.parent.resolve().name),
        edges=_edges(meta, edges[0]),
        features=_features(meta),
        labels=Labels(str(meta.path), lambda: _labels(sets, num_nodes)) if sets else None,
        splits=(lambda: [part.seeds() for part in sets]) if sets else None,
        num_nodes=num_nodes,
        num_classes=classes if isinstance(classes, int) else None,
        notes=[f"the first of {len(tasks)} tasks: {task.get('name')}"] if len(tasks) > 1 else [],
    )


def _edges(meta: _Metadata, item: dict) -> Edges:
    path, form = meta.file(item), item.get("format")
    if form == "csv":
        return edges_of_table(TextFile(path, PLAIN), (0, 1))
    meta.demand(form == "numpy", "edges of format csv or numpy", form)
    return edges_of_pairs(open_npy(path))


def _features(meta: _Metadata) -> Rows | None:
    """The rows of the nodes' feature "feat", or of their only one."""
    of_nodes = [item for item in meta.list_of(meta.top, "feature_data") if item.get("domain") == "node"]
    chosen = [item for item in of_nodes if item.get("name") == "feat"] or of_nodes
    if not chosen:
        return None
    names = ", ".join(str(item.get("name")) for item in of_nodes)
    meta.demand(len(chosen) == 1, "one feature of the nodes, or one named feat", names)
    path = meta.file(chosen[0])
    if chosen[0].get("format") == "torch":
        return rows_of_tensor(str(path), _tensor(meta, path))
    meta.demand(chosen[0].get("format") == "numpy", "features of format numpy or torch", chosen[0].get("format"))
    return rows_of_file(open_npy(path))


def _array(meta: _Metadata, item: dict) -> np.ndarray:
    """A small array of a task, or a tensor."""
    path, form = meta.file(item), item.get("format")
    if form == "torch":
        return array_of(_tensor(meta, path))
    meta.demand(form == "numpy", "arrays of format numpy or torch", form)
    return open_npy(path).read()


def _tensor(meta: _Metadata, path: Path) -> Any:
    found = load_tensors(path, "save it by numpy.save, and say format: numpy")
    meta.demand(is_dense(found), f"a dense tensor in {path}", type(found).__name__)
    return found


class _Set:
    """The nodes of one set of a task, and their labels."""

    def __init__(self, meta: _Metadata, task: dict, name: str):
        self._meta, self._name = meta, name
        groups = meta.list_of(task, name)
        if len(groups) > 1 or any(group.get("type") is not None for group in groups):
            meta.demand(False, f"one {name} without types", f"{len(groups)} of them")
        self._items = {item.get("name"): item for group in groups for item in meta.list_of(group, "data")}

    def seeds(self) -> np.ndarray:
        """int64 [n]"""
        if not self._items:
            return np.empty(0, np.int64)
        found = next((self._items[name] for name in SEEDS if name in self._items), None)
        self._meta.demand(found is not None, f"seeds in {self._name}", list(self._items))
        return arrays.integers(f"{self._meta.path}: {self._name}", _array(self._meta, found))

    def labels(self) -> np.ndarray:
        """int64 [n]"""
        if not self._items:
            return np.empty(0, np.int64)
        self._meta.demand("labels" in self._items, f"labels in {self._name}", list(self._items))
        place = f"{self._meta.path}: labels of {self._name}"
        return arrays.class_labels(place, _array(self._meta, self._items["labels"]), len(self.seeds()))


def _labels(sets: list[_Set], num_nodes: int) -> np.ndarray:
    """int64 [V]: those of the sets' nodes; the others have none."""
    out = np.full(num_nodes, -1, dtype=np.int64)
    for part in sets:
        seeds = part.seeds()
        arrays.demand_nodes(f"{METADATA}: seeds", seeds, num_nodes)
        out[seeds] = part.labels()
    return out
