"""From a graph of another format to a data set on disk, in bounded memory."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from cohort_gnn.base.distinct import has_repeats
from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.units import format_bytes
from cohort_gnn.dataset import _native, arrays
from cohort_gnn.dataset.array_file import open_npy
from cohort_gnn.dataset.importing.edge_data import EdgeData, ProgressCall
from cohort_gnn.dataset.importing.fitting import Fitting
from cohort_gnn.dataset.importing.options import ConvertOptions
from cohort_gnn.dataset.importing.row_options import transformed
from cohort_gnn.dataset.layouts.graph import Graph, Nodes, demand_type_name
from cohort_gnn.dataset.layouts.node_ids import known_edges
from cohort_gnn.dataset.layouts.streams import EdgeChunk, Edges, Labels, Rows, Weights
from cohort_gnn.dataset.learned import seen_until
from cohort_gnn.dataset.links import HeldOut, checked_links, link_edges, save_links
from cohort_gnn.dataset.meta import SPLITS, write_meta, write_targets
from cohort_gnn.dataset.original_ids import FILE, RENAMED, write_ids
from cohort_gnn.dataset.reader import open_one_type
from cohort_gnn.dataset.reverses import EdgesByTarget, KnownRelation, checked_reverses, find_reverses
from cohort_gnn.dataset.tasks import write_task
from cohort_gnn.dataset.treatment import Treatment, write_treatment
from cohort_gnn.dataset.writer import (
    demand_no_problem,
    demand_split,
    output_folder,
    random_splits,
    splits_by_time,
    write_rows,
)
from cohort_gnn.spec.graph import EdgeType

MIN_MEMORY = 16_000_000  # bytes


def write_graph(
    graph: Graph,
    out: str | os.PathLike,
    options: ConvertOptions,
    progress: ProgressCall = lambda what, fraction: None,
    kind: type[Conversion] | None = None,
) -> None:
    """Writes a graph as a data set by a conversion, of another kind where one is given; nothing appears when something
    is wrong with it.

    Raises:
        CohortError: for a source that is damaged, out of range or larger than `memory` allows.
    """
    demand_split(options.split, options.seed)
    if options.memory < MIN_MEMORY:
        raise CohortError("--memory", f"at least {format_bytes(MIN_MEMORY)}", format_bytes(options.memory))
    with output_folder(out, options.overwrite) as folder:
        (kind or Conversion)(graph, Path(folder.path), options, progress).run()
        progress("checking", 0)
        demand_no_problem(out, Path(folder.path))


class Conversion:
    """A graph on its way into a folder."""

    def __init__(self, graph: Graph, folder: Path, options: ConvertOptions, progress: ProgressCall):
        self.graph, self.folder, self.options, self.progress = graph, folder, options, progress
        self.sort_memory = options.memory // 4 * 3
        self.counts: dict[str, int | None] = {}  # nodes of each type, as far as they are known
        self.rows_note = ""  # the shape of features, where the source's own is known
        self.id_map: _native.IdMap | None = None  # from ids of any kind to nodes of the only type
        self._node_times: dict[str, np.ndarray] = {}  # int64 [V] of the types that have some, mapped
        self._read: dict[EdgeType, Edges] = {}  # the edges of relations, as they were read
        self._fitting = Fitting(options.columns_from)
        self._targets: tuple[np.ndarray, list[np.ndarray]] | None = None  # once they are read

    def run(self) -> None:
        """Writes all files of the data set."""
        graph = self.graph
        for name in [*graph.nodes, *(name for _, name, _ in graph.edges)]:
            demand_type_name("node and edge types", name)
        self._take_memory(graph.id_bytes)
        times = {type_: self._write_node_times(type_, nodes) for type_, nodes in graph.nodes.items()}
        features = {
            type_: self._write_features(type_, nodes.num_nodes, self._transformed(type_, nodes))
            for type_, nodes in graph.nodes.items()
        }
        self._name_nodes()
        edges = self._write_relations()
        counts = {type_: count or 0 for type_, count in self.counts.items()}  # known once the edges are read
        labels, splits = self._learned(counts[graph.target])
        files = write_targets(self.folder, labels, splits, self._prefix(graph.target))
        learned = {
            "task": self.options.task,
            "label_dtype": labels.dtype.name,
            "num_classes": self._num_classes(labels),
        }
        if not graph.has_names and not all(features.values()):
            ones = Rows.ones("features", counts[graph.target])
            features = {graph.target: self._write_features(graph.target, counts[graph.target], ones)}
        nodes = [
            {"type": type_, "count": counts[type_]} | members | times[type_] for type_, members in features.items()
        ]
        target = {"type": graph.target} | learned | files
        write_meta(self.folder, graph.name, nodes, edges, target, graph.has_names)
        for read_task in graph.tasks.values():
            write_task(self.folder, read_task())
        self._fitting.write(self.folder)
        self.graph.notes.extend(self._fitting.unknown_told())
        write_treatment(self.folder, self._treatment())
        self._keep_ids()
        if graph.links is not None:
            self._write_links(graph.links())

    def _treatment(self) -> Treatment:
        """What becomes of edges and features, by the options, or else as the other library does it."""
        graph, options = self.graph, self.options
        return Treatment(
            transpose=options.transpose,
            reverse=options.undirected or self._adds_reverses,
            dedupe=options.undirected or (graph.dedupe if options.dedupe is None else options.dedupe),
            self_loops=options.self_loops or graph.self_loops,
            row_normalize=options.row_normalize,
            pca=options.pca,
            time_unit=graph.time_unit,
            drops_ids=not options.ids and (bool(graph.ids) or options.rename or options.node_ids is not None),
            called=None if graph.has_names else graph.called,
            ends={".".join(name): edges.ends for name, edges in graph.edges.items() if edges.ends is not None},
        )

    def _prefix(self, type_: str | EdgeType) -> str:
        """How the names of the files of a type begin."""
        if not self.graph.has_names:
            return ""
        return f"{type_ if isinstance(type_, str) else '.'.join(type_)}."

    def _take_memory(self, map_bytes: int) -> None:
        """Takes the share of a map of ids from the memory for sorting."""
        if 2 * map_bytes > self.sort_memory:
            expected = f"at least {format_bytes(4 * map_bytes)} for the ids of all nodes"
            raise CohortError("--memory", expected, format_bytes(self.options.memory), "give more")
        self.sort_memory -= map_bytes

    # --- nodes ------------------------------------------------------------------------------------------------------

    def _keep_ids(self) -> None:
        """Writes the ids of nodes that come from tables; --no-ids: those of others go, too."""
        if not self.options.ids:
            (self.folder / RENAMED).unlink(missing_ok=True)
            return
        for type_, blocks in self.graph.ids.items():
            write_ids(self.folder / f"{self._prefix(type_)}{FILE}", blocks())

    def _rows(self, type_: str, nodes: Nodes) -> Rows | None:
        """The feature rows of a node type; columns of unlike types are encoded as the training rows say: those of the
        training split, or, with tasks, those that exist when the first of them ends to train."""

        def training() -> np.ndarray | None:
            if (end := self._training_end()) is not None and type_ in self._node_times:
                return self._node_times[type_] <= end
            if type_ != self.graph.target or nodes.num_nodes is None:
                return None
            _, (train, *others) = self._learned(nodes.num_nodes)
            if not len(train) + sum(map(len, others)):
                return None  # nodes without labels have no splits
            rows = np.zeros(nodes.num_nodes, bool)
            rows[train] = True
            return rows

        return self._fitting.node_rows(type_, nodes.features, training)

    def _transformed(self, type_: str, nodes: Nodes) -> Rows | None:
        """The feature rows of a node type after --row-normalize and --pca, whose components are kept."""
        rows = self._rows(type_, nodes)
        known = None if rows is None else self._fitting.components(self.options.pca)
        rows, components = transformed(rows, self.options, known)
        if components is not None:
            components.save(self.folder)
        return rows

    def _training_end(self) -> int | None:
        """The last time of the training rows of the task whose training ends first; None: no task has times."""
        tasks = [read_task() for read_task in self.graph.tasks.values()]
        times = [seen_until(task, task.splits["train"]) for task in tasks]
        return min((int(array.max()) for array in times if array is not None and len(array)), default=None)

    def _write_features(self, type_: str, count: int | None, rows: Rows | None) -> dict[str, Any]:
        """Writes the features of a node type, if it has some; returns them as meta.json does. The number of nodes is
        known then."""
        if type_ in self._node_times:
            count = len(self._node_times[type_])
        self.counts[type_] = count
        if rows is None:
            if count == 0:
                raise CohortError(f"{self.graph.place}: {type_}", "at least one node", "0")
            return {}
        prefix = self._prefix(type_)
        file, what = f"{prefix}features.npy", f"features of {type_}" if prefix else "features"
        num_nodes, dim = self.write_rows(rows, file, count, what)
        if self.options.pca is None:
            self.rows_note = f"{rows.place} has {num_nodes} rows of {dim} columns: one row per node"
        self.counts[type_] = num_nodes
        return {"features": {"file": file, "dim": dim, "dtype": rows.dtype}}

    def _write_node_times(self, type_: str, nodes: Nodes) -> dict[str, Any]:
        """Writes since when each node of a type exists, if that is known; returns it as meta.json does."""
        times = nodes.times
        if times is None:
            return {}
        parts = [times.converted(part) for part in times.chunks(self.options.block_bytes)]
        numbers, count = np.concatenate(parts) if parts else np.empty(0, np.int64), nodes.num_nodes
        if count not in (None, len(numbers)):
            raise CohortError(times.place, f"{count} times, one per node", f"{len(numbers)}")
        file = f"{self._prefix(type_)}node_times.npy"
        np.save(self.folder / file, numbers)
        self._node_times[type_] = np.load(self.folder / file, mmap_mode="r")
        return {"node_times": file}

    def write_rows(self, rows: Rows, file: str, num_nodes: int | None, what: str) -> list[int]:
        """Writes the feature rows, one for each node; returns their shape."""

        def report(done: int) -> None:
            self.progress(what, done / num_nodes if num_nodes else 0)

        shape = write_rows(self.folder / file, rows.chunks(self.options.block_bytes), report)
        if 0 in shape:
            raise CohortError(rows.place, "at least one row and one column", f"shape {shape}")
        if num_nodes not in (None, shape[0]):
            hint = "each node has one row"
            raise CohortError(rows.place, f"{num_nodes} rows, one per node", f"{shape[0]}", hint)
        return shape

    def _name_nodes(self) -> None:
        """With ids of any kind: id_of_node.npy, and the map from ids to nodes."""
        options, path = self.options, self.folder / RENAMED
        if options.node_ids is not None:
            self._take_node_ids(options.node_ids)
        elif options.rename:
            (edges,) = self.graph.edges.values()
            sorter = _native.IdSorter(os.fspath(self.folder), self.sort_memory)
            for src, dst, fraction in edges.chunks(options.block_bytes):
                sorter.add(src)
                sorter.add(dst)
                self.progress("finding ids", fraction)
            sorter.write(os.fspath(path))
            del sorter
            ids = np.load(path, mmap_mode="r")
            self._take_count(len(ids), "distinct ids in the edges")
            self._take_memory(8 * len(ids))
            self.id_map = _native.IdMap(ids, np.empty(0, np.int64))

    def _take_node_ids(self, ids: np.ndarray) -> None:
        order = np.argsort(ids, kind="stable")
        ascending = ids[order]
        again = np.flatnonzero(ascending[1:] == ascending[:-1])
        if len(again):
            place = f"--node-ids[{order[again[0] + 1]}]"
            raise CohortError(place, "an id named once", f"{ascending[again[0]]} again", "give each node one row")
        self._take_count(len(ids), "ids in --node-ids")
        self._take_memory(24 * len(ids))
        self.id_map = _native.IdMap(ascending, order)
        np.save(self.folder / RENAMED, ids)

    def _take_count(self, count: int, what: str) -> None:
        """Sets the number of nodes of the only type; it must be that of its rows."""
        before = self.counts[self.graph.target]
        if before not in (None, count):
            hint = "--node-ids FILE says which id each feature row belongs to, also of nodes without edges"
            place = next(iter(self.graph.edges.values())).place
            raise CohortError(place, f"{before} nodes, one per row", f"{count} {what}", hint)
        self.counts[self.graph.target] = count

    def _nodes_of(self, name: str, ids: np.ndarray) -> np.ndarray:
        """The nodes with these ids."""
        if self.id_map is None:
            return ids
        nodes = np.empty(len(ids), np.int64)
        self.id_map.find(ids, nodes)
        bad = np.flatnonzero(nodes < 0)
        if len(bad):
            raise CohortError(f"{name}[{bad[0]}]", "the id of a node", f"{ids[bad[0]]}", "leave it out")
        return nodes

    # --- edges ------------------------------------------------------------------------------------------------------

    def _write_relations(self) -> list[dict[str, Any]]:
        """Writes the edges of each edge type and, if wanted, of its reverse, which is made from the written edges.
        Returns the entries of meta.json for the edge types."""
        said = self._said_reverses()
        written = {relation: self._write_edges(relation, edges) for relation, edges in self.graph.edges.items()}
        if not self.graph.has_names:
            return list(written.values())
        self.progress("comparing edges", 0)
        known = self._find_reverses(written, said)
        reverses = missing_reverses(self.graph.place, known) if self._adds_reverses else {}
        for relation, original in reverses.items():
            written[relation] = self._write_edges(relation, self._reversed(original, written[original]))
        named = {relation: result.reverse_of for relation, result in known.items()} | reverses
        numbers = {type_: number for number, type_ in enumerate(self.counts)}
        order = sorted(written, key=lambda relation: numbers[relation[0]])
        for relation in order:
            reverse_of = named[relation]
            if relation in said or reverse_of is not None:
                written[relation]["reverse_of"] = None if reverse_of is None else order.index(reverse_of)
        if order != list(written):
            for position, entry in enumerate(written.values()):
                entry["position"] = position
        return [written[relation] for relation in order]

    @property
    def _adds_reverses(self) -> bool:
        """Whether each edge also comes in the other direction; with names, in an edge type of its own."""
        return self.graph.reverse if self.options.reverse is None else self.options.reverse

    def _said_reverses(self) -> dict[EdgeType, EdgeType | None]:
        """The reverses that the options give, or else the source."""
        source = checked_reverses(f"{self.graph.place}: reverse_of", self.graph.reverse_of, self.graph.edges)
        return source | checked_reverses("--reverse-of", self.options.reverse_of, self.graph.edges)

    def _find_reverses(
        self, written: Mapping[EdgeType, dict[str, Any]], said: dict[EdgeType, EdgeType | None]
    ) -> dict[EdgeType, KnownRelation]:
        lists = {}
        for relation, edges in written.items():
            indptr, indices = (np.load(self.folder / edges[part], mmap_mode="r") for part in ("indptr", "indices"))
            reverse = said.get(relation)
            lists[relation] = EdgesByTarget(indptr, indices, reverse, relation in said and reverse is None)
        return find_reverses(lists)

    def _write_edges(self, relation: EdgeType, edges: Edges) -> dict[str, Any]:
        """Writes the neighbours of each node of the target type, with weights, times and features; returns the entry of
        meta.json for the edge type."""
        graph, options, (source, name, target) = self.graph, self.options, relation
        treatment, kept = self._treatment(), self._kept(edges)
        edges = replace(edges, features=self._fitting.edge_rows(relation, edges.features, kept))
        edges = self._read[relation] = edges if kept is None else edges.only(kept)
        stage_names = dict.fromkeys(("reading", "writing"), "edges")
        direction: dict[str, Any] = {"transpose": treatment.transpose, "reverse": treatment.reverse}
        if graph.has_names:
            stage_names = {"reading": " ".join(relation), "writing": name}
            direction = {"num_sources": self.counts[source], "source_type": source, "target_type": target}
        id_map, source_times = self.id_map, self._node_times.get(source)
        if source_times is not None and not graph.has_names:  # the two directions have times of their own
            edges, id_map = self._in_directions(edges, **direction), None
            direction = {}
        count = self.counts[target]
        try:
            self.counts[target], described = EdgeData(edges, options.memory, source_times).sort(
                self.folder,
                lambda what, done: self.progress(f"{what} {stage_names[what]}", done),
                id_map,
                self._prefix(relation),
                memory_bytes=self.sort_memory,
                num_nodes=-1 if count is None else count,
                dedupe=treatment.dedupe,
                self_loops=treatment.self_loops if source == target else "keep",
                **direction,
            )
        except CohortError as error:
            raise self._blamed_on_rows(error) from error
        if skipped := edges.left_out():
            self.graph.notes.append(f"{', '.join(relation)}: no edges of {skipped}")
        if self.counts[target] == 0:
            raise CohortError(edges.place, "at least one node", "no edges", "--nodes says how many there are")
        return {"type": relation} | described

    def _in_directions(self, edges: Edges, transpose: bool, reverse: bool) -> Edges:
        """Edges between nodes, in the directions that the options say."""

        def chunks(block_bytes: int) -> Iterator[EdgeChunk]:
            for src, dst, fraction in by_id.chunks(block_bytes):
                yield self._nodes_of(by_id.place, src), self._nodes_of(by_id.place, dst), fraction

        by_id = edges
        edges = replace(by_id, chunks=chunks)
        edges = edges.transposed() if transpose else edges
        return edges.both_ways() if reverse else edges

    def _kept(self, edges: Edges) -> np.ndarray | None:
        """bool [E]: the edges of a source that are meant, less those with ids of no node; None: all."""
        if not edges.has_unknown:
            return None if edges.selected is None else edges.selected[:]
        kept = known_edges(edges)
        self._take_memory(len(kept))
        meant = np.ones(len(kept), bool) if edges.selected is None else edges.selected[:]
        kept &= meant
        if skipped := (total := int(np.count_nonzero(meant))) - int(np.count_nonzero(kept)):
            self.graph.notes.append(
                f"{edges.place}: {skipped:,} of {total:,} edges left out, with ids that no node has"
            )
        return kept

    def _blamed_on_rows(self, error: CohortError) -> CohortError:
        """The error for a node that is too large, with the shape of the rows, which may be transposed."""
        too_large = error.expected.startswith("a node in [0, ") and not error.found.startswith("-")
        if not too_large or not self.rows_note or self.id_map is not None:
            return error
        return CohortError(error.place, error.expected, error.found, f"{error.hint}; {self.rows_note}")

    def _reversed(self, relation: EdgeType, described: dict[str, Any]) -> Edges:
        """target -> source of an edge type that is written, and what its edges have beside, without the times of its
        sources; `described`: what meta.json says of it."""
        has_source_times = relation[0] in self._node_times
        if has_source_times and self._read[relation].times is not None:  # their own times are not written
            return self._read[relation].transposed()
        weights, times = (
            Weights.from_array(open_npy(self.folder / described[array]), are_times) if array in described else None
            for array, are_times in (("edge_weights", False), ("edge_times", True))
        )
        times = None if has_source_times else times
        rows = None
        if features := described.get("features"):
            dtype = "bfloat16" if features["dtype"] == "bfloat16" else None
            rows = Rows.from_file(open_npy(self.folder / features["file"]), dtype)
        indptr, indices = (self.folder / described[part] for part in ("indptr", "indices"))
        place = f"the reverse of {', '.join(described['type'])}"
        edges = Edges.from_columns(place, np.load(indptr, mmap_mode="r"), open_npy(indices))
        return replace(edges, weights=weights, times=times, features=rows)

    # --- labels, splits, links --------------------------------------------------------------------------------------

    def _learned(self, num_nodes: int) -> tuple[np.ndarray, list[np.ndarray]]:
        """The labels, and the ids of the splits; they are read once."""
        if self._targets is None:
            labels = self._labels(num_nodes)
            self._targets = labels, self._splits(labels)
        return self._targets

    def _labels(self, num_nodes: int) -> np.ndarray:
        """int64 [V], or as arrays.targets has them for another task."""
        task, labels = self.options.task, self.graph.labels
        if labels is None:
            if task != "classification":
                raise CohortError(f"--label-type {task}", "labels", "none in the source", "pass --labels FILE")
            return np.full(num_nodes, -1, dtype=np.int64)
        if not isinstance(labels, Labels):
            return arrays.targets(labels.place, labels.read(), num_nodes, task)
        named = labels.classes() if task == "classification" else None
        if named is not None:
            values = self._fitting.classes(labels.place, *named)
        else:
            if task == "classification" and labels.numbers:  # of a table
                self._fitting.demand_numbered_classes(labels.place)
            values = labels.numbers() if task == "regression" and labels.numbers else labels.read()
            self._fitting.name_outputs(labels.place, list(labels.outputs) if task == "multilabel" else [])
        if labels.ids is not None:
            values = self._by_ids(labels.place, labels.ids(), values, num_nodes)
        return arrays.targets(labels.place, values, num_nodes, task)

    def _by_ids(self, place: str, ids: np.ndarray, values: np.ndarray, num_nodes: int) -> np.ndarray:
        """Labels of nodes with these ids in the order of the nodes, NaN for those of which there is none."""
        nodes = self._labelled_nodes(f"{place}: ids", ids)
        arrays.demand_nodes(f"{place}: ids", nodes, num_nodes)
        if has_repeats(nodes):
            again = ids[np.flatnonzero(np.bincount(nodes, minlength=num_nodes)[nodes] > 1)[0]]
            raise CohortError(place, "an id named once", f"{again} again", "give each node one row")
        if len(nodes) == num_nodes:
            out = np.empty_like(values)
        else:
            out = np.full((num_nodes, *values.shape[1:]), np.nan)
        out[nodes] = values
        return out

    def _labelled_nodes(self, name: str, ids: np.ndarray) -> np.ndarray:
        """The nodes with these ids, whose labels are read."""
        return self._nodes_of(name, ids)

    def _num_classes(self, labels: np.ndarray) -> int:
        count = arrays.num_outputs(labels)
        arrays.demand_few_classes("labels", count, len(labels))
        if self.options.task != "classification":
            return count
        place = self.graph.labels.place if self.graph.labels else "labels"
        return self._fitting.num_classes(place, labels) or self.graph.num_classes or count

    def _splits(self, labels: np.ndarray) -> list[np.ndarray]:
        """Train, val and test ids, int64 [any] each; those of a mask are its nodes with a label."""
        if self.graph.split_times is not None and self.graph.splits is None:
            return splits_by_time(labels, self.graph.split_times(), self.options.split)
        if self.graph.splits is None:
            return random_splits(labels, self.options.split, self.options.seed)
        out = []
        for name, ids_or_mask in zip(SPLITS, self.graph.splits(), strict=True):
            place = f"--splits: {name}" if self.graph.splits_from == "--splits" else name
            ids = arrays.split_ids(place, ids_or_mask, labels)
            out.append(ids if ids_or_mask.dtype.kind == "b" else self._nodes_of(place, ids))
            arrays.demand_nodes(place, out[-1], len(labels))
        return out

    def _write_links(self, links: dict[str, tuple[str, HeldOut]]) -> None:
        """Held-out links, with the nodes' ids."""
        if self.options.transpose:
            raise CohortError("--transpose", "edges in the direction of the held-out links", "--transpose")
        edges = link_edges(open_one_type(self.folder))
        for split, (place, held) in links.items():
            names = [f"{place}: {what}" for what in ("links", "negatives")]
            pairs, negatives = (
                self._nodes_of(name, arrays.integers(name, ids, (None, None)).reshape(-1)).reshape(ids.shape)
                for name, ids in zip(names, (held.pairs, held.negatives), strict=True)
            )
            save_links(self.folder, split, checked_links(names, HeldOut(pairs, negatives, held.shared), edges), edges)


def missing_reverses(place: str, relations: Mapping[EdgeType, KnownRelation]) -> dict[EdgeType, EdgeType]:
    """The reverse edge types ("b", "rev_NAME", "a") that are missing, each with the edge type that it reverses.

    Raises:
        CohortError: an edge type has the name of one that is missing, and other edges.
    """
    out = {}
    for (source, name, target), result in relations.items():
        relation, reverse = (source, name, target), (target, f"rev_{name}", source)
        if any(is_reversed and other != relation for other, is_reversed in result.there):
            continue
        if reverse in relations:
            hint = (
                f"give one of the two another name (name: of a key), or say that it is the reverse: --reverse-of"
                f" {':'.join(reverse)}={':'.join(relation)}, in graph.yaml reverse_of; --no-reverse-edges adds none"
            )
            expected = f"the edges of {', '.join(relation)} in the other direction, whose reverse is called so"
            raise CohortError(f"{place}: {', '.join(reverse)}", expected, "other edges", hint)
        out[reverse] = relation
    return out
