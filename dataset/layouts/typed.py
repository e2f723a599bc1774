"""Graphs of several node types and relations: what their importers find in a source."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields

import numpy as np

from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.spelling import did_you_mean
from cohort_gnn.dataset.hetero import RelationType
from cohort_gnn.dataset.layouts.graph import Edges, Graph, Labels, Rows, Source


@dataclass(frozen=True)
class Nodes:
    """The nodes of one type; `num_nodes` where the source says it, else the rows do."""

    num_nodes: int | None
    features: Rows | None = None


@dataclass(frozen=True)
class Target:
    """What a source says of a node type that may be learned."""

    labels: Labels | None
    splits: Callable[[], list[np.ndarray]] | None = None
    splits_from: str = "the source"


@dataclass(kw_only=True)
class TypedGraph(Source):
    """A graph of another format, with several types.

    Attributes:
        place: for messages.
        nodes: by type, in the order in which they are numbered.
        edges: by (source type, name, target type).
        target: the node type of the labels and splits; "" before it is chosen.
        targets: labels and splits by node type, where the source may have those of several.
        id_bytes: memory that the ids of nodes need while edges are read.
        reverse_of: {relation: the one that it is the reverse of; None: none}, as far as the source says it.
    """

    place: str
    nodes: dict[str, Nodes]
    edges: dict[RelationType, Edges]
    target: str = ""
    targets: dict[str, Target] = field(default_factory=dict)
    id_bytes: int = 0
    reverse_of: Mapping[RelationType, RelationType | None] | None = None

    def choose_target(self, given: str | None) -> None:
        """Settles the node type of the labels and splits, which --target may have given.

        Raises:
            CohortError: it is open, or none of the graph's.
        """
        if given is not None and given not in self.nodes:
            expected = f"one of the node types {', '.join(self.nodes) or '(none)'}"
            raise CohortError("--target", expected, given, did_you_mean(given, self.nodes))
        labelled = [type_ for type_, target in self.targets.items() if target.labels is not None]
        if given is None and not self.target and len(labelled) != 1 and len(self.nodes) > 1:
            hint = f"--target {next(iter(labelled or self.nodes))} names the node type to learn"
            hint += "" if labelled else "; --labels FILE has its labels"
            raise CohortError(self.place, "labels of one node type", ", ".join(labelled) or "none", hint)
        before = self.target
        self.target = given or before or next(iter([*labelled, *self.nodes]), "")
        if chosen := self.targets.get(self.target):
            self.labels, self.splits, self.splits_from = chosen.labels, chosen.splits, chosen.splits_from
        elif before not in ("", self.target):
            self.labels = self.splits = self.num_classes = None

    def demand_types(self) -> None:
        """Raises CohortError for a relation between types that there are not, and for a target that there is not."""
        told = f"one of the node types {', '.join(self.nodes) or '(none)'}"
        for relation in self.edges:
            for end in (relation[0], relation[2]):
                if end not in self.nodes:
                    raise CohortError(f"{self.place}: {', '.join(relation)}", told, end)
        if self.target not in self.nodes:
            raise CohortError(f"{self.place}: the type that has labels", told, self.target or "none")
        if not self.edges:
            raise CohortError(self.place, "at least one relation", "none")

    def of_one_type(self) -> Graph | None:
        """The same graph without names of types, where it has one node type and one relation."""
        if len(self.nodes) != 1 or len(self.edges) != 1 or self.reverse_of:
            return None
        (nodes,), (edges,) = self.nodes.values(), self.edges.values()
        common = {field.name: getattr(self, field.name) for field in fields(Source)}
        return Graph(edges=edges, features=nodes.features, num_nodes=nodes.num_nodes, **common)


def by_relation(place: str, found: Iterable[tuple[RelationType, Edges]]) -> dict[RelationType, Edges]:
    """The edges by their relation, of which none comes twice."""
    out: dict[RelationType, Edges] = {}
    for relation, edges in found:
        if relation in out:
            raise CohortError(place, "each relation once", f"{', '.join(relation)} again")
        out[relation] = edges
    return out


def relation_of(place: str, text: str, separator: str) -> RelationType:
    """ "author:writes:paper" as a relation."""
    parts = text.split(separator)
    if len(parts) != 3 or not all(parts):
        expected = f"a relation source{separator}name{separator}target"
        raise CohortError(place, expected, repr(text))
    return parts[0], parts[1], parts[2]
