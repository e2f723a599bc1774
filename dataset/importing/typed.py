"""From a graph of several node types in another format to a data set on disk, in bounded memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from cohort.base.errors import CohortError
from cohort.dataset import _native
from cohort.dataset.array_file import open_npy
from cohort.dataset.hetero import HeteroDataset, RelationType
from cohort.dataset.importing.convert import Conversion, ConvertOptions
from cohort.dataset.importing.outcome import labels_and_splits_told
from cohort.dataset.layouts.graph import Edges, edges_of_columns
from cohort.dataset.layouts.typed import Nodes, TypedGraph
from cohort.dataset.typed_writer import demand_name, edge_type, missing_reverses, write_meta

# Of ConvertOptions and SourceOptions: what several types have no meaning for.
OF_ONE_TYPE = {
    "transpose": "--transpose",
    "undirected": "--undirected",
    "rename": "--rename",
    "node_ids": "--node-ids",
    "pca": "--pca",
    "row_normalize": "--row-normalize",
    "features": "--features",
    "edge_weights": "--edge-weights",
    "nodes": "--nodes",
}
HINTS = {
    "--undirected": "--reverse-edges adds a relation for the other direction of each relation",
    "--features": "describe the graph in a YAML file, which names the features of each type",
}


class TypedConversion(Conversion):
    """A graph of several types."""

    source: TypedGraph

    def run(self) -> None:
        graph = self.source
        for name in [*graph.nodes, *(name for _, name, _ in graph.edges)]:
            demand_name(name)
        self.demand_memory(graph.id_bytes)
        nodes = [self._write_nodes(type_, nodes) for type_, nodes in graph.nodes.items()]
        counts = {type_.name: type_.num_nodes for type_ in nodes}
        edges = self._write_relations(counts)
        labels = self.labels(counts[graph.target])
        write_meta(
            self.folder,
            name=graph.name,
            nodes=nodes,
            edges=edges,
            target=graph.target,
            task=self.options.task,
            labels=labels,
            splits=self.splits(labels),
            num_classes=self.num_classes(labels),
        )

    def _write_nodes(self, type_: str, nodes: Nodes) -> _native.NodeType:
        if nodes.features is None:
            if not nodes.num_nodes:
                raise CohortError(f"{self.source.place}: {type_}", "at least one node", str(nodes.num_nodes))
            return _native.NodeType(type_, nodes.num_nodes, 0, "float32", "")
        file = f"{type_}.features.npy"
        num_nodes, dim = self.write_rows(nodes.features, file, nodes.num_nodes, f"features of {type_}")
        return _native.NodeType(type_, num_nodes, dim, nodes.features.dtype, file)

    def _write_relations(self, counts: dict[str, int]) -> list[_native.EdgeType]:
        """The edges of each relation and, where they are wanted, of its reverse, which is read from what is written."""
        wanted = self.source.reverse if self.options.reverse is None else self.options.reverse
        reverses = missing_reverses(self.source.edges) if wanted else {}
        numbers = {type_: number for number, type_ in enumerate(counts)}
        order = sorted([*self.source.edges, *reverses], key=lambda relation: numbers[relation[0]])
        sizes = {relation: self._write_edges(relation, edges, counts) for relation, edges in self.source.edges.items()}
        for relation, of in reverses.items():
            sizes[relation] = self._write_edges(relation, self._reversed(of), counts)
        return [edge_type(relation, sizes[relation], order, reverses.get(relation)) for relation in order]

    def _write_edges(self, relation: RelationType, edges: Edges, counts: dict[str, int]) -> int:
        """Writes the neighbours of each node of the target type; returns the number of edges."""
        source, name, target = relation
        loops = self.options.self_loops if source == target else None
        sorter = _native.EdgeSorter(
            folder=self.folder,
            memory_bytes=self.sort_memory,
            place=edges.place,
            num_nodes=counts[target],
            num_sources=counts[source],
            source_type=source,
            target_type=target,
            dedupe=bool(self.options.dedupe),
            self_loops=loops or "keep",
        )
        for src, dst, fraction in edges.chunks(self.options.block_bytes):
            sorter.add(src, dst, None)
            self.progress(f"reading {source} {name} {target}", fraction)
        expected = max(1, sorter.edges_read)
        sorter.write(self.folder, lambda written: self.progress(f"writing {name}", min(1.0, written / expected)))
        for part in ("indptr", "indices"):
            (self.folder / f"{part}.npy").rename(self.folder / f"{'.'.join(relation)}.{part}.npy")
        return sorter.edges_written

    def _reversed(self, relation: RelationType) -> Edges:
        """target -> source of a relation that is written."""
        file = self.folder / ".".join(relation)
        indptr = np.load(f"{file}.indptr.npy", mmap_mode="r")
        return edges_of_columns(f"the reverse of {', '.join(relation)}", indptr, open_npy(f"{file}.indices.npy"))


def demand_no_option_of_one_type(graph: TypedGraph, *options: Any) -> None:
    """Raises CohortError for an option that was given and that several types have no meaning for."""
    for given in options:
        for field, option in OF_ONE_TYPE.items():
            value = getattr(given, field, None)
            if value is not None and value is not False:
                hint = HINTS.get(option, f"leave {option} out")
                raise CohortError(option, "a graph of one node type", f"several: {', '.join(graph.nodes)}", hint)


def typed_outcome(graph: TypedGraph, data: HeteroDataset, options: ConvertOptions, *, labels: str) -> list[str]:
    """Lines about classes that are not used, splits, and types that no edge reaches."""
    lines = labels_and_splits_told(graph, data, options, labels=labels)
    unreached = [type_ for type_ in data.node_types if all(target != type_ for _, _, target in data.edge_types)]
    if unreached:
        verb = "receives" if len(unreached) == 1 else "receive"
        lines.append(f"{', '.join(unreached)} {verb} no edges; --reverse-edges adds the reverse of each relation")
    return lines
