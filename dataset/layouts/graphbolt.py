"""GraphBolt's OnDiskDataset: metadata.yaml that names the files of edges, features and tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset import arrays
from cohort_gnn.dataset.array_file import open_npy
from cohort_gnn.dataset.layouts.graph import Graph, Nodes, Target, by_relation, relation_of
from cohort_gnn.dataset.layouts.streams import Edges, Labels, Rows
from cohort_gnn.dataset.layouts.torch_files import array_of, is_dense, load_tensors, rows_of_tensor
from cohort_gnn.dataset.links import HeldOut
from cohort_gnn.dataset.structured import file_beside, read_structured
from cohort_gnn.dataset.tables.text_file import TextFile
from cohort_gnn.dataset.tables.text_options import TextOptions
from cohort_gnn.spec.graph import EDGE_TYPE, NODE_TYPE

METADATA = "metadata.yaml"
SETS = ("train_set", "validation_set", "test_set")
LINK_SETS = {"val": "validation_set", "test": "test_set"}
SEEDS = ("seeds", "seed_nodes", "node_ids")
PAIRS = ("seeds", "node_pairs")
FORMATS = {".csv": "csv", ".npy": "numpy", ".pt": "torch"}
PLAIN = TextOptions(separator=",", header="no")
HINT = "see FORMAT.md for what is read of an OnDiskDataset"


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


class GraphBoltMetadata(msgspec.Struct):
    graph: GraphFiles
    dataset_name: Any = None
    feature_data: list[File] | None = None
    tasks: list[Task] | None = None


def read_graphbolt(source: Path) -> Graph:
    """The graph, of each node type the feature "feat" (or the only one), and the first task of a folder."""
    path = source / METADATA if source.is_dir() else source
    meta = read_structured(path, "YAML", GraphBoltMetadata, "the metadata of an OnDiskDataset", HINT)
    nodes = {node.type or NODE_TYPE: node.num for node in meta.graph.nodes}
    for type_, count in nodes.items():
        if count < 1:
            raise CohortError(f"{path}: nodes {type_}", "num, the number of nodes, of at least 1", str(count), HINT)
    if len(nodes) < len(meta.graph.nodes):
        raise CohortError(str(path), "each node type once", f"{len(meta.graph.nodes)} entries of {', '.join(nodes)}")
    relations = ((_relation(path, item), _edges(path, item, meta.feature_data or [])) for item in meta.graph.edges)
    graph = Graph(
        name=str(meta.dataset_name or path.parent.resolve().name),
        place=str(path),
        nodes={type_: Nodes(count, _features(path, meta.feature_data or [], type_)) for type_, count in nodes.items()},
        edges=by_relation(str(path), relations),
    )
    _take_tasks(path, graph, nodes, meta.tasks or [])
    return graph


def _take_tasks(path: Path, graph: Graph, nodes: dict[str, int], tasks: list[Task]) -> None:
    """The first task about nodes, and, in a graph of one node type, the first about links."""
    sets = [[_Set(path, task, name) for name in SETS] for task in tasks]
    numbers = {kind: [i for i, parts in enumerate(sets) if _is_of_links(parts) == kind] for kind in (False, True)}
    node_tasks, link_tasks = (numbers[kind][:1] for kind in (False, True))
    for i in node_tasks:
        _take_nodes(path, graph, nodes, sets[i])
        graph.num_classes = tasks[i].num_classes if isinstance(tasks[i].num_classes, int) else None
    for i in link_tasks if (len(graph.nodes), len(graph.edges)) == (1, 1) else []:
        _take_links(graph, sets[i])
    if link_tasks and graph.links is None and (len(graph.nodes), len(graph.edges)) != (1, 1):
        graph.notes.append("links of several types are not read: cohort.dataset.write_links writes those of a relation")
    if len(tasks) > len(node_tasks) + len(link_tasks):
        taken = ", ".join(str(tasks[i].name) for i in sorted([*node_tasks, *link_tasks]))
        graph.notes.append(f"of {len(tasks)} tasks, the first of nodes and the first of links: {taken}")


def _take_nodes(path: Path, graph: Graph, nodes: dict[str, int], sets: list[_Set]) -> None:
    """The labels and splits of a task about nodes of one type."""
    targets = {part.type for part in sets if part.items}
    if len(targets) > 1:
        raise CohortError(str(path), "a task of one node type", ", ".join(sorted(targets)), HINT)
    labelled = [part for part in sets if part.has_labels]
    hidden = [part.name for part in sets if part.items and not part.has_labels] if labelled else []
    graph.notes += [f"{name} has no labels, and is left empty" for name in hidden]
    for target in targets:
        labels = Labels(str(path), partial(_labels, labelled, nodes.get(target, 0))) if labelled else None
        graph.targets[target] = Target(labels, lambda: [part.seeds(without=hidden) for part in sets])


def _take_links(graph: Graph, sets: list[_Set]) -> None:
    """The held-out links of a task about links, where both sets say what they compete with."""
    by_split = {split: part for split, name in LINK_SETS.items() for part in sets if part.name == name}
    if all(part.has_negatives for part in by_split.values()):
        graph.links = lambda: {split: part.links() for split, part in by_split.items()}
    elif any(part.items for part in by_split.values()):
        cure = "cohort dataset split-links holds out others"
        graph.notes.append(
            f"links without negatives: those of {' and '.join(LINK_SETS.values())} are not held out; {cure}"
        )


def _is_of_links(sets: list[_Set]) -> bool:
    return any(part.is_of_links for part in sets)


def _relation(path: Path, item: File) -> tuple[str, str, str]:
    return relation_of(f"{path}: type of edges", item.type, ":") if item.type else EDGE_TYPE


def _edges(path: Path, item: File, features: Sequence[File]) -> Edges:
    file, relation, form = _file(path, item), _relation(path, item), _format(item)
    _demand(path, form in ("csv", "numpy"), f"edges of format csv or numpy in {item.path}", form)
    edges = _edges_in_text(file) if form == "csv" else Edges.from_pairs(open_npy(file))
    own = [feature for feature in features if feature.domain == "edge" and _relation(path, feature) == relation]
    return replace(edges, features=_rows(path, own, ":".join(relation)))


def _edges_in_text(file: Path) -> Edges:
    table = TextFile(file, PLAIN)
    if len(table.titles) != 2:  # of three columns, GraphBolt takes the last two
        raise CohortError(str(file), "two columns, source and destination", f"{len(table.titles)} columns", HINT)
    return Edges.from_table(table, (0, 1))


def _features(path: Path, items: Sequence[File], type_: str) -> Rows | None:
    """The rows of the feature "feat" of a node type, or of its only one."""
    return _rows(path, [item for item in items if item.domain == "node" and (item.type or NODE_TYPE) == type_], type_)


def _rows(path: Path, items: Sequence[File], type_: str) -> Rows | None:
    chosen = [item for item in items if item.name == "feat"] or items
    if not chosen:
        return None
    names = ", ".join(str(item.name) for item in items)
    _demand(path, len(chosen) == 1, f"one feature of {type_}, or one named feat", names)
    file = _file(path, chosen[0])
    form = _format(chosen[0])
    if form == "torch":
        return rows_of_tensor(str(file), _tensor(path, file))
    _demand(path, form == "numpy", "features of format numpy or torch", form)
    return Rows.from_file(open_npy(file))


def _file(path: Path, item: File) -> Path:
    return file_beside(f"{path}: path", path, item.path)


def _array(path: Path, item: File) -> np.ndarray:
    """A small array of a task, or a tensor."""
    file, form = _file(path, item), _format(item)
    if form == "torch":
        return array_of(_tensor(path, file))
    _demand(path, form == "numpy", "arrays of format numpy or torch", form)
    return open_npy(file).read()


def _num_axes(path: Path, item: File) -> int:
    file = _file(path, item)
    return len(open_npy(file).shape) if _format(item) == "numpy" else _array(path, item).ndim


def _format(item: File) -> str | None:
    """As the entry says, or else the name of its file."""
    return item.format or FORMATS.get(Path(item.path).suffix)


def _tensor(path: Path, file: Path) -> Any:
    tensor = load_tensors(file, "save it by numpy.save, and say format: numpy")
    _demand(path, is_dense(tensor), f"a dense tensor in {file}", type(tensor).__name__)
    return tensor


def _demand(path: Path, fits: bool, expected: str, actual: Any) -> None:
    if not fits:
        raise CohortError(str(path), expected, str(actual)[:80], HINT)


class _Set:
    """One set of a task: nodes and their labels, or links and what they compete with."""

    def __init__(self, path: Path, task: Task, name: str):
        self._path, self.name = path, name
        groups = getattr(task, name) or []
        self.type = (groups[0].type if groups else None) or NODE_TYPE
        self.items = {item.name: item for group in groups for item in group.data or []}
        pairs = next((self.items[key] for key in PAIRS if key in self.items), None)
        self.is_of_links = ":" in self.type or pairs is not None and _num_axes(path, pairs) == 2
        _demand(path, self.is_of_links or len(groups) <= 1, f"one {name}, of one type", f"{len(groups)} of them")

    @property
    def has_labels(self) -> bool:
        return "labels" in self.items

    @property
    def has_negatives(self) -> bool:
        """Of links."""
        return "negative_dsts" in self.items or {"labels", "indexes"} <= self.items.keys()

    def seeds(self, without: Sequence[str] = ()) -> np.ndarray:
        """int64 [n]; none of a set that is left out."""
        if not self.items or self.name in without:
            return np.empty(0, np.int64)
        file = next((self.items[name] for name in SEEDS if name in self.items), None)
        if file is None:
            raise CohortError(str(self._path), f"seeds in {self.name}", ", ".join(map(str, self.items)), HINT)
        return arrays.integers(f"{self._path}: {self.name}", _array(self._path, file))

    def labels(self) -> np.ndarray:
        """int64 [n]"""
        place = f"{self._path}: labels of {self.name}"
        return arrays.class_labels(place, _array(self._path, self.items["labels"]), len(self.seeds()))

    def links(self) -> tuple[str, HeldOut]:
        """The links, each with negative targets, which are in the same list or in one of their own."""
        place = f"{self._path}: {self.name}"
        members = {str(name): _array(self._path, item) for name, item in self.items.items()}
        pairs = next(members[name] for name in PAIRS if name in members)
        if "negative_dsts" in members:
            negatives = members["negative_dsts"]
            return place, HeldOut(pairs, negatives.reshape(len(negatives), -1))
        return place, _grouped(place, pairs, members["labels"], members["indexes"])


def _grouped(place: str, seeds: np.ndarray, labels: np.ndarray, indexes: np.ndarray) -> HeldOut:
    """Links and their negatives that come in one list: those of one link have its index, and a label of 0.

    Args:
        seeds: [n, 2]; labels, indexes: [n].
    """
    arrays.demand_shape(place, seeds, (None, 2))
    for array in (labels, indexes):
        arrays.demand_shape(place, array, (len(seeds),))
    order = np.lexsort((labels == 0, indexes))  # a link, its negatives, the next link
    seeds, is_link, indexes = seeds[order], labels[order] != 0, indexes[order]
    group_size = len(seeds) // max(1, int(np.count_nonzero(is_link)))
    fits = group_size > 1 and len(seeds) % group_size == 0
    if fits:
        groups = [array.reshape(-1, group_size) for array in (is_link, indexes, seeds[:, 0])]
        fits = all((array[:, 1:] == array[:, 1:2]).all() for array in groups) and not groups[0][:, 1].any()
        fits = fits and bool(groups[0][:, 0].all()) and all((array[:, 0] == array[:, 1]).all() for array in groups[1:])
    if not fits:
        hint = "leave the set out of metadata.yaml, and write its links with cohort.dataset.write_links"
        raise CohortError(place, "as many negatives for each link, with its source and index", "others", hint)
    return HeldOut(seeds.reshape(-1, group_size, 2)[:, 0], seeds[:, 1].reshape(-1, group_size)[:, 1:])


def _labels(sets: list[_Set], num_nodes: int) -> np.ndarray:
    """int64 [V]: those of the sets' nodes; the others have none."""
    out = np.full(num_nodes, -1, dtype=np.int64)
    for part in sets:
        seeds = part.seeds()
        arrays.demand_nodes(f"{METADATA}: seeds", seeds, num_nodes)
        out[seeds] = part.labels()
    return out
