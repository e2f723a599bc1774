"""A graph of another format, as its reader found it: node types and edge types, one of each at least."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.spelling import did_you_mean
from cohort_gnn.dataset import arrays
from cohort_gnn.dataset.array_file import Array
from cohort_gnn.dataset.layouts.streams import Edges, Labels, Rows, Weights
from cohort_gnn.dataset.links import HeldOut
from cohort_gnn.dataset.tasks import Task
from cohort_gnn.spec.graph import EDGE_TYPE, NODE_TYPE, EdgeType

TYPE_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True)
class Nodes:
    """The nodes of one type; `num_nodes` where the source says it, else the rows do, or the edges; `times`: since when
    each exists."""

    num_nodes: int | None
    features: Rows | None = None
    times: Weights | None = None


@dataclass(frozen=True)
class Target:
    """What a source says of a node type that may be learned."""

    labels: Labels | None
    splits: Callable[[], list[np.ndarray]] | None = None
    splits_from: str = "the source"
    split_times: Callable[[], np.ndarray] | None = None


@dataclass(kw_only=True)
class Graph:
    """A graph of another format.

    Attributes:
        place: for messages.
        nodes: by type, in the order in which they are numbered.
        edges: by (source type, name, target type).
        has_names: the data set keeps the names of the types. Without, they are one node type and one edge type, called
            NODE_TYPE and EDGE_TYPE; then alone edges may say how many nodes there are.
        keeps_names: also with one node type and one edge type.
        called: the first edge type, as a description names it; None: somebody else named it, or nobody.
        target: the node type of the labels and splits; "" before it is chosen.
        targets: labels and splits by node type, where the source may have those of several.
        any_task: the labels are as the source has them; else the reader made classes of them.
        splits: gives train, val and test ids, or bool masks [V].
        splits_from: where they are from, for messages.
        split_times: gives the time of each node of the target type, int64 [V], where the splits are by time.
        reverse: the other library adds the reverse of each edge when it loads them.
        reverse_of: {edge type: the one that it is the reverse of; None: none}, as far as the source says it.
        dedupe, self_loops: what the other library does to the edges when it loads them.
        ids: gives the ids of the nodes of a type in their order, as arrays of Arrow of int64 or texts, where the source
            has some of its own.
        id_bytes: memory that the ids of nodes need while edges are read.
        tasks: gives the tasks that the source has, by name.
        links: of a graph without names, gives those that are held out: "val" and "test", each with a place for
            messages.
        missing: what the format has and this source lacks, by the option that can stand in for it, such as "labels".
    """

    name: str
    place: str
    nodes: dict[str, Nodes]
    edges: dict[EdgeType, Edges]
    has_names: bool = True
    keeps_names: bool = False
    called: EdgeType | None = None
    target: str = ""
    targets: dict[str, Target] = field(default_factory=dict)
    labels: Labels | Array | None = None
    splits: Callable[[], list[np.ndarray]] | None = None
    splits_from: str = "the source"
    split_times: Callable[[], np.ndarray] | None = None
    num_classes: int | None = None
    any_task: bool = False
    reverse: bool = False
    reverse_of: Mapping[EdgeType, EdgeType | None] | None = None
    dedupe: bool = False
    self_loops: str = "keep"
    ids: dict[str, Callable[[], Iterator[Any]]] = field(default_factory=dict)
    id_bytes: int = 0
    tasks: dict[str, Callable[[], Task]] = field(default_factory=dict)
    links: Callable[[], dict[str, tuple[str, HeldOut]]] | None = None
    missing: dict[str, CohortError] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def time_unit(self) -> str | None:
        """The unit of times that are timestamps or dates; None: integers."""
        times = [entry.times for entries in (self.nodes, self.edges) for entry in entries.values()]
        return next((some.unit for some in times if some is not None and some.unit is not None), None)

    @staticmethod
    def homogeneous(
        edges: Edges,
        features: Rows | None = None,
        *,
        num_nodes: int | None = None,
        node_times: Weights | None = None,
        **members: Any,
    ) -> Graph:
        """A graph whose types have no names, with these other attributes."""
        nodes = {NODE_TYPE: Nodes(num_nodes, features, node_times)}
        types: dict[str, Any] = {"nodes": nodes, "edges": {EDGE_TYPE: edges}, "target": NODE_TYPE}
        return Graph(place=edges.place, has_names=False, **types, **members)

    def without_names(self) -> Graph:
        """The same graph without the names of its types, where it has one node type and one edge type."""
        if len(self.nodes) != 1 or len(self.edges) != 1 or self.reverse_of or self.keeps_names:
            return self
        (nodes,), (edges,) = self.nodes.values(), self.edges.values()
        types: dict[str, Any] = {"nodes": {NODE_TYPE: nodes}, "edges": {EDGE_TYPE: edges}, "target": NODE_TYPE}
        types["tasks"] = {name: partial(_without_name, read) for name, read in self.tasks.items()}
        types["ids"] = dict.fromkeys([NODE_TYPE], *self.ids.values()) if self.ids else {}
        return replace(self, has_names=False, **types)

    def take_splits(self, path: Path, there: Mapping[str, Callable[[], np.ndarray]], names: Sequence[str]) -> None:
        """Takes the three splits, ids or bool masks called `names`, from a file; those that it lacks are empty."""
        if self.splits is None:
            self.splits, self.splits_from = splits_in(path, there, names)

    def choose_target(self, requested: str | None) -> None:
        """Settles the node type of the labels and splits, which --target may have given.

        Raises:
            CohortError: more than one is possible, or the graph has no such node type.
        """
        if requested is not None and not self.has_names:
            raise CohortError("--target", "a graph of several node types", "one of one node type", "leave it out")
        if requested is not None and requested not in self.nodes:
            expected = f"one of the node types {', '.join(self.nodes) or '(none)'}"
            raise CohortError("--target", expected, requested, did_you_mean(requested, self.nodes))
        labelled = [type_ for type_, target in self.targets.items() if target.labels is not None]
        if not labelled and self.tasks and not self.target:
            self.target = next(iter(self.tasks.values()))().node_type
        if requested is None and not self.target and len(labelled) != 1 and len(self.nodes) > 1:
            hint = f"--target {next(iter(labelled or self.nodes))} names the node type to learn"
            hint += "" if labelled else "; --labels FILE has its labels"
            raise CohortError(self.place, "labels of one node type", ", ".join(labelled) or "none", hint)
        before = self.target
        self.target = requested or before or next(iter([*labelled, *self.nodes]), "")
        if chosen := self.targets.get(self.target):
            self.labels, self.splits, self.splits_from = chosen.labels, chosen.splits, chosen.splits_from
            self.split_times = chosen.split_times
        elif before not in ("", self.target):
            self.labels = self.splits = self.split_times = self.num_classes = None

    def demand_types(self) -> None:
        """Raises CohortError for an edge type between unknown node types, for an unknown target, and without edge
        types."""
        expected = f"one of the node types {', '.join(self.nodes) or '(none)'}"
        for relation in self.edges:
            for end in (relation[0], relation[2]):
                if end not in self.nodes:
                    raise CohortError(f"{self.place}: {', '.join(relation)}", expected, end)
        if self.target not in self.nodes:
            raise CohortError(f"{self.place}: the type that has labels", expected, self.target or "none")
        if not self.edges:
            raise CohortError(self.place, "at least one relation", "none")


def _without_name(read: Callable[[], Task]) -> Task:
    """The task of a graph without names."""
    task = read()
    return replace(task, node_type=NODE_TYPE, target_type=None if task.target_type is None else NODE_TYPE)


def splits_in(
    path: Path, there: Mapping[str, Callable[[], np.ndarray]], names: Sequence[str]
) -> tuple[Callable[[], list[np.ndarray]], str]:
    """The three splits, ids or bool masks called `names`, as far as a file has them, and where they are from."""

    def read(key: str) -> np.ndarray:
        if key not in there:
            return np.empty(0, np.int64)
        ids = there[key]()
        arrays.demand_shape(f"{path}: {key}", ids, (None,))
        return ids if ids.dtype.kind == "b" else arrays.integers(f"{path}: {key}", ids)

    missing = [key for key in names if key not in there]
    origin = path.name + (f", which has no {' and no '.join(missing)}" if missing else "")
    return lambda: [read(key) for key in names], origin


def demand_type_name(place: str, name: str) -> None:
    """Raises CohortError for a name that no node type or edge type can have: it becomes a part of file names."""
    if not TYPE_NAME.fullmatch(name):
        raise CohortError(place, "names of 1 to 64 letters, digits, _ and -", repr(name), "rename it")


def by_relation(place: str, relations: Iterable[tuple[EdgeType, Edges]]) -> dict[EdgeType, Edges]:
    """The edges by their relation, of which none comes twice."""
    out: dict[EdgeType, Edges] = {}
    for relation, edges in relations:
        if relation in out:
            raise CohortError(place, "each relation once", f"{', '.join(relation)} again")
        out[relation] = edges
    return out


def relation_of(place: str, text: str, separator: str) -> EdgeType:
    """ "author:writes:paper" as a relation."""
    parts = text.split(separator)
    if len(parts) != 3 or not all(parts):
        expected = f"a relation source{separator}name{separator}target"
        raise CohortError(place, expected, repr(text))
    return parts[0], parts[1], parts[2]
