"""From a graph of several node types in another format to a data set on disk, in bounded memory."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset.array_file import open_npy
from cohort_gnn.dataset.hetero import HeteroDataset, RelationType
from cohort_gnn.dataset.importing.convert import Conversion, ConvertOptions
from cohort_gnn.dataset.importing.edge_data import FEATURES, EdgeData
from cohort_gnn.dataset.importing.outcome import labels_and_splits_told
from cohort_gnn.dataset.layouts.graph import Edges, Rows, Weights
from cohort_gnn.dataset.layouts.typed import Nodes, TypedGraph
from cohort_gnn.dataset.meta import TYPED_VERSION, write_meta, write_targets
from cohort_gnn.dataset.reverses import Found, Lists, checked_reverses, find_reverses
from cohort_gnn.spec.options import flag_of

PARTS, NUMBERS = ("indptr", "indices"), ("edge_weights", "edge_times")
NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
# Of ConvertOptions and SourceOptions: what several types have no meaning for.
OF_FILES = ("features", "edge_weights", "edge_times", "edge_features", "nodes")
OF_ONE_TYPE = ("transpose", "undirected", "rename", "node_ids", "pca", "row_normalize", *OF_FILES)
HINTS = {
    "undirected": "--reverse-edges adds a relation for the other direction of each relation",
    "features": "describe the graph in a YAML file, which names the features of each type",
}


class TypedConversion(Conversion):
    """A graph of several types."""

    source: TypedGraph

    def run(self) -> None:
        graph = self.source
        for name in [*graph.nodes, *(name for _, name, _ in graph.edges)]:
            if not NAME.fullmatch(name):  # it becomes a part of file names
                expected = "names of 1 to 64 letters, digits, _ and -"
                raise CohortError("node and edge types", expected, repr(name), "rename it")
        self.demand_memory(graph.id_bytes)
        nodes = [self._write_nodes(type_, nodes) for type_, nodes in graph.nodes.items()]
        counts = {type_["type"]: type_["count"] for type_ in nodes}
        edges = self._write_relations(counts)
        labels = self.labels(counts[graph.target])
        files = write_targets(self.folder, labels, self.splits(labels), f"{graph.target}.")
        learned = {"task": self.options.task, "label_dtype": labels.dtype.name, "num_classes": self.num_classes(labels)}
        target = {"type": graph.target} | learned | files
        write_meta(self.folder, TYPED_VERSION, graph.name, {"nodes": nodes, "edges": edges, "target": target})

    def _write_nodes(self, type_: str, nodes: Nodes) -> dict[str, Any]:
        """What meta.json says of a node type, whose features are written."""
        if nodes.features is None:
            if not nodes.num_nodes:
                raise CohortError(f"{self.source.place}: {type_}", "at least one node", str(nodes.num_nodes))
            return {"type": type_, "count": nodes.num_nodes}
        file = f"{type_}.features.npy"
        num_nodes, dim = self.write_rows(nodes.features, file, nodes.num_nodes, f"features of {type_}")
        features = {"file": file, "dim": dim, "dtype": nodes.features.dtype}
        return {"type": type_, "count": num_nodes, "features": features}

    def _write_relations(self, counts: dict[str, int]) -> list[dict[str, Any]]:
        """What meta.json says of the relations. Writes the edges of each and, where they are wanted, of its reverse,
        which is read from what is written."""
        said = self._said_reverses()
        written = {of: self._write_edges(of, edges, counts) for of, edges in self.source.edges.items()}
        self.progress("comparing edges", 0)
        known = self._find_reverses(written, said)
        wanted = self.source.reverse if self.options.reverse is None else self.options.reverse
        reverses = missing_reverses(known) if wanted else {}
        for relation, of in reverses.items():
            written[relation] = self._write_edges(relation, self._reversed(of, written[of][1]), counts)
        named = {relation: found.reverse_of for relation, found in known.items()} | reverses
        numbers = {type_: number for number, type_ in enumerate(counts)}
        order = sorted(written, key=lambda relation: numbers[relation[0]])
        out = []
        for relation in order:
            files = {part: self._file(relation, part) for part in (*PARTS, *NUMBERS)}
            arrays = {part: file.name for part, file in files.items() if file.exists()}
            of_reverse: dict[str, Any] = {}
            if relation in said or named[relation] is not None:
                reverse_of = named[relation]
                of_reverse["reverse_of"] = None if reverse_of is None else order.index(reverse_of)
            count, described = written[relation]
            of_edges = {} if described is None else {"features": described}
            out.append({"type": relation, "count": count} | arrays | of_edges | of_reverse)
        return out

    def _said_reverses(self) -> dict[RelationType, RelationType | None]:
        """What the source says of reverses, and the options in place of it."""
        source = checked_reverses(f"{self.source.place}: reverse_of", self.source.reverse_of, self.source.edges)
        return source | checked_reverses("--reverse-of", self.options.reverse_of, self.source.edges)

    def _find_reverses(
        self, relations: Iterable[RelationType], said: dict[RelationType, RelationType | None]
    ) -> dict[RelationType, Found]:
        lists = {}
        for relation in relations:
            indptr, indices = (np.load(self._file(relation, part), mmap_mode="r") for part in PARTS)
            of = said.get(relation)
            lists[relation] = Lists(indptr, indices, of, relation in said and of is None)
        return find_reverses(lists)

    def _file(self, relation: RelationType, part: str) -> Path:
        return self.folder / f"{'.'.join(relation)}.{part}.npy"

    def _write_edges(
        self, relation: RelationType, edges: Edges, counts: dict[str, int]
    ) -> tuple[int, dict[str, Any] | None]:
        """Writes the neighbours of each node of the target type, and what the edges have beside; returns the number of
        edges, and what meta.json says of their features."""
        source, name, target = relation
        told = {"reading": " ".join(relation), "writing": name}
        sorter, described = EdgeData(edges, self.options.memory).sort(
            self.folder,
            lambda what, done: self.progress(f"{what} {told[what]}", done),
            memory_bytes=self.sort_memory,
            num_nodes=counts[target],
            num_sources=counts[source],
            source_type=source,
            target_type=target,
            dedupe=bool(self.options.dedupe),
            self_loops=(self.options.self_loops if source == target else None) or "keep",
        )
        beside = [part for part, numbers in zip(NUMBERS, (edges.weights, edges.times), strict=True) if numbers]
        for part in (*PARTS, *beside):
            (self.folder / f"{part}.npy").rename(self._file(relation, part))
        if described is not None:
            described["file"] = f"{'.'.join(relation)}.features.npy"
            (self.folder / FEATURES).rename(self.folder / described["file"])
        return sorter.edges_written, described

    def _reversed(self, relation: RelationType, described: dict[str, Any] | None) -> Edges:
        """target -> source of a relation that is written, and what its edges have beside; `described`: what meta.json
        says of their features."""
        indptr, indices, *numbers = (self._file(relation, part) for part in (*PARTS, *NUMBERS))
        weights, times = (
            Weights.of_array(open_npy(file), are_times) if file.exists() else None
            for file, are_times in zip(numbers, (False, True), strict=True)
        )
        rows = None
        if described is not None:
            dtype = "bfloat16" if described["dtype"] == "bfloat16" else None
            rows = Rows.of_file(open_npy(self.folder / described["file"]), dtype)
        place = f"the reverse of {', '.join(relation)}"
        edges = Edges.of_columns(place, np.load(indptr, mmap_mode="r"), open_npy(indices))
        return replace(edges, weights=weights, times=times, features=rows)


def missing_reverses(relations: Mapping[RelationType, Found]) -> dict[RelationType, RelationType]:
    """The relations ("b", "rev_NAME", "a") that are missing in the other direction, and which each reverses. None is
    missing where another relation is the reverse, or is called so."""
    out = {}
    for (source, name, target), found in relations.items():
        relation, reverse = (source, name, target), (target, f"rev_{name}", source)
        is_called_reverse = name.startswith("rev_") and (target, name.removeprefix("rev_"), source) in relations
        has_reverse = any(is_reversed and other != relation for other, is_reversed in found.there)
        if not has_reverse and not is_called_reverse and reverse not in relations:
            out[reverse] = relation
    return out


def demand_no_option_of_one_type(graph: TypedGraph, *options: Any) -> None:
    """Raises CohortError for an option that was given and that several types have no meaning for."""
    for given in options:
        for name in OF_ONE_TYPE:
            value = getattr(given, name, None)
            if value is not None and value is not False:
                hint = HINTS.get(name, f"leave {flag_of(name)} out")
                raise CohortError(flag_of(name), "a graph of one node type", f"several: {', '.join(graph.nodes)}", hint)


def typed_outcome(graph: TypedGraph, data: HeteroDataset, options: ConvertOptions, *, labels: str) -> list[str]:
    """Lines about classes that are not used, splits, and types that no edge reaches."""
    lines = labels_and_splits_told(graph, data, options, labels=labels)
    unreached = [type_ for type_ in data.node_types if all(target != type_ for _, _, target in data.edge_types)]
    if unreached:
        verb = "receives" if len(unreached) == 1 else "receive"
        lines.append(f"{', '.join(unreached)} {verb} no edges; --reverse-edges adds the reverse of each relation")
    return lines
