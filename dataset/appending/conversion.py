"""New nodes and edges on their way into a data set that is there."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from cohort_gnn.base.distinct import is_among
from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset import _native, arrays
from cohort_gnn.dataset.appending.folder import join_arrays
from cohort_gnn.dataset.importing.convert import Conversion
from cohort_gnn.dataset.importing.edge_data import FEATURES, EdgeData, ProgressCall
from cohort_gnn.dataset.importing.fitting import Fitting
from cohort_gnn.dataset.importing.options import ConvertOptions
from cohort_gnn.dataset.layouts.graph import Graph, Nodes
from cohort_gnn.dataset.layouts.streams import Edges, Rows
from cohort_gnn.dataset.meta import SPLITS
from cohort_gnn.dataset.original_ids import FILE, RENAMED, original_ids, write_ids
from cohort_gnn.dataset.reverses import EdgesByTarget, are_by_source, find_reverses
from cohort_gnn.dataset.stored_graph import NodeTable, Relation, StoredGraph
from cohort_gnn.dataset.writer import random_splits
from cohort_gnn.spec.graph import EdgeType

BESIDE = ("edge_weights", "edge_times")
AGAIN = "import all data again"
NO_EDGES = Edges.in_memory("append", np.empty(0, np.int64), np.empty(0, np.int64))
ONES_HINT = "--nodes V says how many nodes there are then; --rename takes any integers as new ids"


class Appending(Conversion):
    """What comes to a data set: sorted in a folder of its own, then merged with what is there into a new folder.

    Args:
        graph: what comes: edges, and of the nodes only new ones.
        options: as of the import of the data set.
        split: shares of the new nodes with labels for train, val and test; None: nobody said.
        old: the data set as it is; `meta`: its meta.json, with the names of types.
        out: the new folder.
        removed: edges to take out.
    """

    def __init__(
        self,
        graph: Graph,
        options: ConvertOptions,
        progress: ProgressCall,
        *,
        old: StoredGraph,
        meta: dict[str, Any],
        out: Path,
        removed: Graph | None = None,
        split: Sequence[float] | None = None,
    ):
        self.added, self._taken = out / "added", out / "removed"  # gone at the end
        for folder in (self.added, self._taken):
            folder.mkdir()
        super().__init__(graph, self.added, options, progress)
        self.old, self.meta, self.out, self._split = old, meta, out, split
        self._removed = {} if removed is None else removed.edges
        self._fitting = Fitting(old.path)
        self.new_nodes = dict.fromkeys(old.node_types, 0)
        self.changed: dict[EdgeType, np.ndarray] = {}
        self._by_source: set[EdgeType] = set()  # relations whose edges of equal times stand by their sources
        self.underived: dict[str, EdgeType] = {}  # types whose derived features are others now, and of what they were

    def run(self) -> None:
        """Writes all files that are others than before; `meta` says then what the new meta.json has to."""
        self._take_memory(self.graph.id_bytes)
        for type_, nodes in self.graph.nodes.items():
            self._add_nodes(type_, nodes)
        self._name_nodes()
        self._extend_ids()
        described = {relation: self._write_edges(relation, edges) for relation, edges in self.graph.edges.items()}
        described |= self._add_reverses(described)
        described |= {relation: self._write_edges(relation, NO_EDGES) for relation in self._lacking_loops(described)}
        removed = self._all_removed()
        for relation, edges in removed.items():
            self._write_removed(relation, edges)
        for number, relation in enumerate(self.old.edge_types):
            entry = self.meta["edges"][number]
            entry["count"] = self._merge(relation, entry, described.get(relation), relation in removed)
        if self.new_nodes[self.old.target]:
            self._extend_targets()
        self._drop_derived()
        self.graph.notes.extend(self._fitting.unknown_told())

    # --- nodes ------------------------------------------------------------------------------------------------------

    def _add_nodes(self, type_: str, nodes: Nodes) -> None:
        """Extends the features and times of a node type; the number of its nodes is known then."""
        table, entry = self.old.node_types[type_], next(entry for entry in self.meta["nodes"] if entry["type"] == type_)
        rows = None if nodes.num_nodes == 0 else self._transformed(type_, nodes)
        count, derived = nodes.num_nodes, entry.get("features", {}).get("derived")
        if rows is not None and derived:
            hint = "leave them out: cohort dataset derive makes them again"
            raise CohortError(rows.place, f"nodes of type {type_}, whose features were derived", "rows", hint)
        if rows is not None:
            count = self._extend_rows(rows, count, table, self.out / entry["features"]["file"])
        elif count and table.feature_dtype is not None and not derived:
            hint = "--features FILE has them, or --features ones where each node has one column of ones"
            raise CohortError(f"{self.graph.place}: {type_}", f"rows of features for {count} new nodes", "none", hint)
        self.new_nodes[type_] = count or 0
        self.counts[type_] = entry["count"] = table.num_nodes + (count or 0)
        self._extend_times(type_, nodes, table, entry)

    def _extend_rows(self, rows: Rows, count: int | None, table: NodeTable, out: Path) -> int:
        """Writes the features of nodes that were there, and behind them new ones; returns the number of these."""
        if table.feature_dtype is None:
            raise CohortError(rows.place, f"nodes without features, as in {self.old.path}", "rows", "leave them out")
        if table.x is None:
            hint = f"cohort ibp decode {table.encoded_rows} {table.file} restores them"
            raise CohortError(str(self.old.path), "raw features, which new rows come to", "only encoded ones", hint)
        if rows.dtype != table.feature_dtype:
            expected = f"{table.feature_dtype}, as the rows of {self.old.path} are"
            raise CohortError(rows.place, expected, rows.dtype, f"write them as {table.feature_dtype}")
        count, dim = self.write_rows(rows, out.name, count, "features")
        if dim != table.feature_dim:
            expected = f"{table.feature_dim} columns, as the rows of {self.old.path} have"
            raise CohortError(rows.place, expected, f"{dim} columns", "give the same features as before")
        demand_finite(self.added / out.name, rows.place, rows.dtype)
        self.rows_note = f"{rows.place} has {count} rows: one per new node"
        join_arrays(out, [self.old.path / out.name, self.added / out.name])
        return count

    def _drop_derived(self) -> None:
        """Takes features that `cohort dataset derive` made out of meta.json where it would make others now."""
        derived = {
            entry["type"]: (entry, tuple(entry["features"]["derived"]))
            for entry in self.meta["nodes"]
            if "derived" in entry.get("features", {})
        }
        for _ in derived:  # some may be derived from others
            for type_, (entry, relation) in derived.items():
                is_other = self.new_nodes[type_] or len(self.changed.get(relation, ())) or relation[0] in self.underived
                if is_other and type_ not in self.underived:
                    self.underived[type_] = relation
                    del entry["features"]

    def _extend_times(self, type_: str, nodes: Nodes, table: NodeTable, entry: dict[str, Any]) -> None:
        """Since when the nodes of a type exist, those that were there and new ones."""
        if (nodes.times is None) != (table.node_times is None) and (self.new_nodes[type_] or nodes.times is not None):
            expected = f"{'no times' if table.node_times is None else 'times'} of nodes, as {self.old.path} has"
            raise CohortError(f"{self.graph.place}: {type_}", expected, "the other", "give the same as before")
        if table.node_times is None:
            return
        times = [np.asarray(table.node_times)]
        if self.new_nodes[type_]:
            self._write_node_times(type_, replace(nodes, num_nodes=self.new_nodes[type_]))
            times.append(self._node_times[type_])
        self._node_times[type_] = np.concatenate(times)
        if self.new_nodes[type_]:
            np.save(self.out / entry["node_times"], self._node_times[type_])

    def _name_nodes(self) -> None:
        """With ids of any kind: the map from ids, those of new nodes too, to nodes."""
        before = self.old.path / RENAMED
        if self.graph.has_names or not before.exists():
            self._demand_no_new_ids()
            return
        ids, added = np.load(before), self.options.node_ids
        if added is None and self.options.rename:
            added = self._unknown_ids(ids)
            self._take_new_nodes(len(added))
        added = np.empty(0, np.int64) if added is None else added
        (count,) = self.new_nodes.values()
        if len(added) != count:
            hint = "--node-ids FILE has the id of each new row; of a table, --id-column says which column has them"
            raise CohortError(self.graph.place, f"{count} ids, one per new node", f"{len(added)}", hint)
        place = "--rename" if self.options.rename else "--node-ids"
        if len(again := np.flatnonzero(is_among(added, np.sort(ids)))):
            expected = f"ids that no node of {self.old.path} has"
            raise CohortError(f"{place}[{again[0]}]", expected, str(added[again[0]]), "leave these rows out")
        self._take_node_ids(np.concatenate([ids, added]))
        if count:
            (self.added / RENAMED).rename(self.out / RENAMED)

    def _demand_no_new_ids(self) -> None:
        if self.options.node_ids is not None or self.options.rename:
            flag = "--rename" if self.options.rename else "--node-ids"
            hint = f"leave {flag} out: new nodes get the next numbers"
            raise CohortError(flag, f"ids in {self.old.path / RENAMED}", "a data set without them", hint)

    def _unknown_ids(self, known: np.ndarray) -> np.ndarray:
        """int64 [any], ascending: the ids of ends of new edges that no node has."""
        sorter = _native.IdSorter(os.fspath(self.added), self.sort_memory)
        for edges in self.graph.edges.values():
            for src, dst, fraction in edges.chunks(self.options.block_bytes):
                sorter.add(src)
                sorter.add(dst)
                self.progress("finding ids", fraction)
        sorter.write(os.fspath(self.added / RENAMED))
        ids = np.load(self.added / RENAMED)
        return ids[~is_among(ids, np.sort(known))]

    def _take_new_nodes(self, count: int) -> None:
        """Nodes that only edges name: each has one column of ones."""
        (type_,) = self.new_nodes
        if self.new_nodes[type_]:
            raise CohortError("--rename", "new nodes without rows", "rows of features", "--node-ids FILE names them")
        if count:
            self._add_nodes(type_, Nodes(count, Rows.ones("--rename", count)))

    def _extend_ids(self) -> None:
        """Writes the ids of nodes that come from tables, of those types that have new nodes."""
        for type_, blocks in self.graph.ids.items():
            if self.new_nodes[type_]:
                write_ids(self.out / f"{self._prefix(type_)}{FILE}", blocks())

    # --- edges ------------------------------------------------------------------------------------------------------

    def _write_edges(self, relation: EdgeType, edges: Edges) -> dict[str, Any]:
        known = self.old.edge_types[relation]
        self._demand_edges_fit(relation, edges, known)
        try:
            described = self._write_added(relation, edges)
        except CohortError as error:
            if "an id that the list" in error.expected or "a node in [0, " in error.expected:
                raise CohortError(error.place, error.expected, error.found, ONES_HINT) from error
            raise
        for name in ("edge_weights", "features"):
            if name in described:
                self._demand_finite_edges(described[name], edges, name)
        return described

    def _write_added(self, relation: EdgeType, edges: Edges) -> dict[str, Any]:
        """As an import writes edges, which refuses none with features: no row says then how many columns there are."""
        if edges.features is not None and not any(len(src) for src, _, _ in edges.chunks(self.options.block_bytes)):
            return self._nothing_added(relation, self.meta["edges"][list(self.old.edge_types).index(relation)])
        return super()._write_edges(relation, edges)

    def _demand_finite_edges(self, file: str | dict[str, Any], edges: Edges, name: str) -> None:
        if isinstance(file, str):
            demand_finite(self.added / file, f"{edges.weights.place if edges.weights else edges.place}", "float32")
        else:
            demand_finite(self.added / file["file"], f"{edges.place}: {name}", file["dtype"])

    def _demand_edges_fit(self, relation: EdgeType, edges: Edges, known: Relation) -> None:
        """Raises CohortError unless new edges have weights, times and features where those before have them."""
        if known.edge_weights is not None and self._treatment().self_loops == "add":
            expected = "edges without weights, where each node has one loop (--self-loops add)"
            raise CohortError(edges.place, expected, "weights, which a loop may be the sum of", AGAIN)
        timed = known.edge_times is not None and (edges.times is not None or self._has_own_times(relation, known))
        for what, is_given, is_needed in (
            ("weights", edges.weights is not None, known.edge_weights is not None),
            ("times", edges.times is not None, timed),
            ("features", edges.features is not None, known.edge_table is not None),
        ):
            if is_given != is_needed:
                have = f"edges {'with' if is_needed else 'without'} {what}, as {self.old.path} has"
                key = what if what == "features" else what.removesuffix("s")
                hint = f"--edge-{what} FILE has them, of a described table {key}: COLUMN"
                hint = hint if is_needed else "leave them out"
                raise CohortError(f"{edges.place}: {what}", have, "some" if is_given else "none", hint)
        table = known.edge_table
        if edges.features is not None and table is not None:
            if table.x is None:
                hint = f"cohort ibp decode {table.encoded_rows} {table.file} restores them"
                raise CohortError(str(self.old.path), "raw features of edges", "only encoded ones", hint)
            if edges.features.declared is None and edges.features.dtype != table.feature_dtype:
                expected = f"{table.feature_dtype}, as the edges of {self.old.path} have"
                raise CohortError(edges.features.place, expected, edges.features.dtype, "convert them")

    def _has_own_times(self, relation: EdgeType, known: Relation) -> bool:
        """Whether an edge's time is another than since when its source exists."""
        nodes, times = self._node_times.get(relation[0]), known.edge_times
        assert times is not None
        size = max(1, self.options.block_bytes // times.itemsize)
        pieces = (slice(first, first + size) for first in range(0, len(times), size))
        return nodes is None or any(not np.array_equal(nodes[known.indices[some]], times[some]) for some in pieces)

    def _add_reverses(self, described: dict[EdgeType, dict[str, Any]]) -> dict[EdgeType, dict[str, Any]]:
        """Writes the reverses of new edges where the data set has a relation of them; those that the source has are
        compared."""
        made: dict[EdgeType, dict[str, Any]] = {}
        for relation, reverse in self._reverse_pairs():
            there = [name for name in (relation, reverse) if name in described]
            if len(there) == 1:
                other = reverse if there[0] == relation else relation
                if self._stand_by_source(other, there[0]):
                    self._by_source.add(other)
                edges = self._reversed(there[0], described[there[0]])
                made[other] = self._write_added(other, self._like(other, edges, described[there[0]]))
            elif there and not self._are_reverses(relation, reverse, described):
                expected = f"the edges of {', '.join(reverse)} in the other direction, as {self.old.path} says"
                hint = f"give one of the two relations: append makes the other. Else {AGAIN}"
                raise CohortError(f"{self.graph.place}: {', '.join(relation)}", expected, "others", hint)
        return made

    def _like(self, relation: EdgeType, edges: Edges, described: dict[str, Any]) -> Edges:
        """The reverses of described edges, with what those of a relation have beside.

        Raises:
            CohortError: they lack some of it.
        """
        known = self.old.edge_types[relation]
        beside = {"weights": known.edge_weights, "times": known.edge_times, "features": known.edge_table}
        lacks = [name for name, array in beside.items() if array is not None and getattr(edges, name) is None]
        if "times" in lacks and relation[0] in self._node_times:
            lacks.remove("times")
        if known.edge_table is not None and edges.features is not None:
            kinds = described["features"]["dim"], described["features"]["dtype"]
            lacks += ["features"] if kinds != (known.edge_table.feature_dim, known.edge_table.feature_dtype) else []
        if lacks:
            expected = f"edges of {', '.join(relation)}, which have {lacks[0]} of their own"
            raise CohortError(self.graph.place, expected, f"only {edges.place}", "append the edges of both relations")
        left_out: dict[str, Any] = {name: None for name, array in beside.items() if array is None}
        return replace(edges, **left_out)

    def _lacking_loops(self, described: Mapping[EdgeType, Any]) -> list[EdgeType]:
        """The relations without new edges whose new nodes have a loop nevertheless."""
        adds = self._treatment().self_loops == "add"
        own = (relation for relation in self.old.edge_types if relation[0] == relation[2] and relation not in described)
        return [relation for relation in own if adds and self.new_nodes[relation[2]]]

    def _reverse_pairs(self) -> Iterator[tuple[EdgeType, EdgeType]]:
        """Each relation that is the reverse of one, with that one; of two, once."""
        done = set()
        for relation, known in self.old.edge_types.items():
            if known.reverse_of is not None and (known.reverse_of, relation) not in done:
                done.add((relation, known.reverse_of))
                yield relation, known.reverse_of

    def _are_reverses(self, one: EdgeType, other: EdgeType, described: dict[EdgeType, dict[str, Any]]) -> bool:
        lists = {}
        for relation in {one, other}:
            files = (self.added / described[relation][name] for name in ("indptr", "indices"))
            lists[relation] = EdgesByTarget(*(np.load(file, mmap_mode="r") for file in files))
        return (other, True) in find_reverses(lists)[one].there or not len(lists[one].indices) + len(
            lists[other].indices
        )

    def _stand_by_source(self, made: EdgeType, original: EdgeType) -> bool:
        """Whether edges of equal times of a relation that is made of the reverse ones stand by their sources."""
        known, own = self.old.edge_types[made], self._read[original].times is not None
        if known.edge_times is None or known.edge_table is None:
            return False
        return are_by_source(self.graph.place, self.old, made, original, own)

    def _all_removed(self) -> dict[EdgeType, Edges]:
        """The edges to take out, also of the relations that have their reverses."""
        removed = dict(self._removed)
        for relation, reverse in self._reverse_pairs():
            there = [name for name in (relation, reverse) if name in self._removed]
            if len(there) == 1:
                removed[reverse if there[0] == relation else relation] = self._removed[there[0]].transposed()
        return removed

    def _write_removed(self, relation: EdgeType, edges: Edges) -> None:
        treatment, (source, _, target) = self._treatment(), relation
        if treatment.self_loops == "add" and source == target:
            expected = "a data set whose self loops are as in the source"
            raise CohortError("--remove-edges", expected, "one with a loop at each node (--self-loops add)", AGAIN)
        direction: dict[str, Any] = {"transpose": treatment.transpose, "reverse": treatment.reverse}
        if self.graph.has_names:
            direction = {"num_sources": self.counts[source], "source_type": source, "target_type": target}
        edges = replace(edges, weights=None, times=None, features=None)
        EdgeData(edges, self.options.memory).sort(
            self._taken,
            ids=self.id_map,
            prefix=self._prefix(relation),
            memory_bytes=self.sort_memory,
            num_nodes=self.counts[target],
            dedupe=True,
            **direction,
        )

    def _merge(self, relation: EdgeType, entry: dict[str, Any], added: dict[str, Any] | None, removes: bool) -> int:
        """Writes the edges of a relation with those that come and without those that go; returns their number."""
        known, target, treatment = self.old.edge_types[relation], relation[2], self._treatment()
        if added is None and not removes:
            if self.new_nodes[target]:
                more = np.full(self.new_nodes[target], known.num_edges, np.int64)
                np.save(self.out / entry["indptr"], np.concatenate([known.indptr, more]))
            return known.num_edges
        self.progress("merging", 0)
        if added is None:
            added = self._nothing_added(relation, entry)
        names = ["indptr", "indices", *(name for name in BESIDE if name in entry)]
        files = {
            name: (self.old.path / entry[name], self.added / added[name], self.out / entry[name]) for name in names
        }
        if "features" in entry:
            rows = entry["features"]["file"]
            files["features"] = (self.old.path / rows, self.added / added["features"]["file"], self.out / rows)
        self._widen(files["indices"][1], known.indices.dtype)
        order = "weight" if known.edge_weights is not None else "source" if known.edge_times is None else "time"
        if known.edge_table is not None and relation not in self._by_source:
            order = "source" if known.edge_times is None else "time alone"
        prefix = self._prefix(relation)
        removed = tuple(self._taken / f"{prefix}{name}.npy" for name in ("indptr", "indices")) if removes else None
        if removed is not None:
            self._widen(removed[1], known.indices.dtype)
        try:
            count, self.changed[relation] = _native.merge_edges(
                place=self.graph.place if not self.graph.has_names else f"{self.graph.place}: {', '.join(relation)}",
                order=order,
                dedupe=treatment.dedupe,
                has_loops=treatment.self_loops == "add" and relation[0] == target,
                indptr=_texts(files.pop("indptr")),
                indices=_texts(files.pop("indices")),
                beside=[*map(_texts, files.values())],
                removed=None if removed is None else _texts(removed),
            )
        except CohortError as error:
            raise self._with_ids(relation, error) from error
        return count

    def _with_ids(self, relation: EdgeType, error: CohortError) -> CohortError:
        """The error with the ids of the ends of the edge that it names, in the direction that the source has."""
        if relation in self._by_source and "ascending order" in error.expected:
            hint = f"append the edges of {', '.join(relation)}, too: the first import had them from its source"
            return CohortError(error.place, error.expected, error.found, hint)
        numbers = re.fullmatch(r"edge (\d+) -> (\d+)", error.found)
        if numbers is None:
            return error
        names = []
        for type_, node in zip(relation[::2], map(int, numbers.groups()), strict=True):
            ids = original_ids(self.old.path, type_)
            names.append(str(node if ids is None or node >= len(ids) else ids[node]))
        names = names[::-1] if self._treatment().transpose else names
        return CohortError(error.place, error.expected, f"edge {' -> '.join(names)}", error.hint)

    def _widen(self, file: Path, dtype: np.dtype) -> None:
        """Gives the neighbours in a file the type that those of the data set have."""
        indices = np.load(file)
        if indices.dtype == dtype:
            return
        if indices.dtype.itemsize > dtype.itemsize:
            raise CohortError(str(self.old.path), "less than 2^31 nodes, which int32 holds", "more", AGAIN)
        np.save(file, indices.astype(dtype))

    def _nothing_added(self, relation: EdgeType, entry: dict[str, Any]) -> dict[str, Any]:
        """Files of no edges, described as edges that come are."""
        known, prefix = self.old.edge_types[relation], self._prefix(relation)
        names = ["indptr", "indices", *(name for name in BESIDE if name in entry)]
        none: dict[str, Any] = {"type": relation} | {name: f"{prefix}{name}.npy" for name in names}
        for name in names[1:]:
            np.save(self.added / none[name], getattr(known, name)[:0])
        np.save(self.added / none["indptr"], np.zeros((self.counts[relation[2]] or 0) + 1, np.int64))
        if known.edge_table is not None:
            none["features"] = entry["features"] | {"file": f"{prefix}features.npy" if prefix else FEATURES}
            np.save(self.added / none["features"]["file"], arrays_of(known)[:0])
        return none

    # --- labels and splits ------------------------------------------------------------------------------------------

    def _extend_targets(self) -> None:
        """Writes the labels and splits of the nodes that were there and of the new ones."""
        target, count = self.meta["target"], self.new_nodes[self.old.target]
        first = self.old.node_types[self.old.target].num_nodes
        known = np.asarray(self.old.y)
        if self.graph.labels is None:
            unknown = {"i": -1, "u": 255, "f": np.nan}[known.dtype.kind]
            labels = np.full((count, *known.shape[1:]), unknown, known.dtype)
        else:
            labels = self._labels_as(known, self._labels(count))
        np.save(self.out / target["labels"], np.concatenate([known, labels]))
        for name, ids in zip(SPLITS, self._new_splits(labels, first), strict=True):
            np.save(self.out / target[name], np.concatenate([getattr(self.old, name), ids]))

    def _labels_as(self, known: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """New labels as those of the data set are."""
        place, classes = self.graph.labels.place if self.graph.labels else "labels", self.old.num_classes
        if known.dtype == np.float32 and labels.dtype == np.uint8:
            labels = np.where(labels == 255, np.float32(np.nan), labels.astype(np.float32))
        if labels.dtype != known.dtype or labels.shape[1:] != known.shape[1:]:
            expected = f"{known.dtype} of shape [any{''.join(f', {size}' for size in known.shape[1:])}]"
            raise CohortError(place, expected, f"{labels.dtype} of shape {list(labels.shape)}", "label as before")
        if self.old.task == "classification" and len(bad := np.flatnonzero(labels >= classes)):
            hint = f"its models have no output for others: leave the row without a label (-1), or {AGAIN}"
            expected = f"a class in [0, {classes}), those of {self.old.path}"
            raise CohortError(f"{place}[{bad[0]}]", expected, str(labels[bad[0]]), hint)
        return labels

    def _labelled_nodes(self, name: str, ids: np.ndarray) -> np.ndarray:
        """The new nodes with these ids, numbered from 0."""
        nodes = self._nodes_of(name, ids) - self.old.node_types[self.old.target].num_nodes
        if len(bad := np.flatnonzero(nodes < 0)):
            hint = "labels and splits of nodes that are there stay as they are"
            raise CohortError(f"{name}[{bad[0]}]", "a new node", f"{ids[bad[0]]}, which is there", hint)
        return nodes

    def _new_splits(self, labels: np.ndarray, first: int) -> list[np.ndarray]:
        """Train, val and test ids of the new nodes, the first of which is `first`."""
        graph = self.graph
        if not arrays.labelled(labels).any() and graph.splits is None:
            return [np.empty(0, np.int64)] * 3
        if graph.splits is None and self._split is None:
            expected = "the splits that new nodes with labels are in"
            hint = "--splits TRAIN VAL TEST, or --split-ratio 1,0,0 (all for training; 0,0,0: in none)"
            raise CohortError(graph.place, expected, "none", hint)
        if graph.splits is None and self._split is not None:
            return [first + ids for ids in random_splits(labels, self._split, self.options.seed)]
        assert graph.splits is not None
        out = []
        for name, ids_or_mask in zip(SPLITS, graph.splits(), strict=True):
            place = f"--splits: {name}" if graph.splits_from == "--splits" else name
            ids = arrays.split_ids(place, ids_or_mask, labels)
            if ids_or_mask.dtype.kind != "b" and graph.splits_from == "--splits":
                ids = self._labelled_nodes(place, ids)
            arrays.demand_nodes(place, ids, len(labels))
            if len(bad := np.flatnonzero(~arrays.labelled(labels)[ids])):
                raise CohortError(f"{place}[{bad[0]}]", "a node with a label", str(first + ids[bad[0]]), "leave it out")
            out.append(first + ids)
        values, counts = np.unique(np.concatenate(out), return_counts=True)
        if len(again := np.flatnonzero(counts > 1)):
            raise CohortError("splits", "each node once", f"{values[again[0]]} again", "put it into one split, once")
        return out


def arrays_of(relation: Relation) -> np.ndarray:
    """The raw rows of a relation's edges."""
    if relation.edge_attr is None:
        hint = "cohort ibp decode restores them"
        raise CohortError("features of edges", "raw rows", "only encoded ones", hint)
    return relation.edge_attr


def _texts(paths: Iterable[Path]) -> tuple[str, ...]:
    return tuple(map(os.fspath, paths))


def in_pieces(array: np.ndarray, block_bytes: int) -> Iterator[np.ndarray]:
    """The rows of an array [n, D], some at a time."""
    at_once = max(1, block_bytes // max(1, array[:1].nbytes))
    return (array[first : first + at_once] for first in range(0, len(array), at_once))


def demand_finite(file: Path, place: str, dtype: str) -> None:
    """Raises CohortError for a number in a file that is not finite; `dtype`: as meta.json has it."""
    array, done = np.load(file, mmap_mode="r"), 0
    if not array.size:
        return
    for rows in in_pieces(array.reshape(len(array), -1), 1 << 24):
        bad = (rows & 0x7F80) == 0x7F80 if dtype == "bfloat16" else ~np.isfinite(rows)
        if bad.any():
            row, column = np.argwhere(bad)[0]
            at = f"{place}[{done + row}, {column}]" if array.ndim > 1 else f"{place}[{done + row}]"
            hint = "replace it, e.g. with numpy.nan_to_num"
            raise CohortError(at, "a finite number", "NaN or infinity", hint)
        done += len(rows)
