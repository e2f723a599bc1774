"""From a graph of another format to a data set on disk, in bounded memory."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy  # its packages load on first use

from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.units import format_bytes
from cohort_gnn.dataset import _native, arrays
from cohort_gnn.dataset.importing.edge_data import EdgeData, Progress, block_bytes_of
from cohort_gnn.dataset.importing.pca import principal_components
from cohort_gnn.dataset.layouts.graph import Graph, Labels, Rows, Source
from cohort_gnn.dataset.links import HeldOut, checked_links, link_edges, save_links
from cohort_gnn.dataset.meta import SPLITS, write_meta_of_one_type, write_targets
from cohort_gnn.dataset.reader import open_one_type
from cohort_gnn.dataset.reverses import RelationType
from cohort_gnn.dataset.writer import demand_no_problem, demand_split, output_folder, random_splits, write_rows

MIN_MEMORY = 16_000_000  # bytes
ID_MAP = "id_of_node.npy"
MANY_CLASSES = 1_000_000  # more than there are nodes are none


@dataclass(frozen=True)
class ConvertOptions:
    """What happens to a graph on its way into a data set: the options of these names of `cohort dataset import`, whose
    help describes them; None: as the other library does.

    Attributes:
        memory: bytes for sorting and for pieces of files, beside the interpreter and about 40 bytes a node.
        reverse: --reverse-edges.
        reverse_of: of several types, {relation: the one that it is the reverse of; None: none}.
        node_ids: int64 [V], the id of each row, when ids are any integers.
        row_normalize: before `pca`.
        split: parts of the labelled nodes; unused when the source has splits.
    """

    memory: int = 4_000_000_000
    transpose: bool = False
    reverse: bool | None = None
    reverse_of: Mapping[RelationType, RelationType | None] | None = None
    undirected: bool = False
    dedupe: bool | None = None
    self_loops: str | None = None
    rename: bool = False
    node_ids: np.ndarray | None = None
    pca: int | None = None
    row_normalize: bool = False
    task: str = "classification"
    split: Sequence[float] = (0.6, 0.2, 0.2)
    seed: int = 0
    overwrite: bool = False

    def __post_init__(self):
        for name, value in (("--no-dedupe", self.dedupe), ("--no-reverse-edges", self.reverse)):
            if self.undirected and value is False:
                hint = "--undirected makes every edge come in both directions, once; --reverse-edges keeps equal ones"
                raise CohortError(f"--undirected, {name}", "one of the two", "both", hint)

    @property
    def block_bytes(self) -> int:
        """Of a file, read at once."""
        return block_bytes_of(self.memory)


def write_graph(
    kind: type[Conversion],
    graph: Source,
    out: str | os.PathLike,
    options: ConvertOptions,
    progress: Progress = lambda what, fraction: None,
) -> None:
    """Writes a graph as a data set by a conversion of this kind; nothing appears when something is wrong with it.

    Raises:
        CohortError: for a source that is damaged, out of range or larger than `memory` allows.
    """
    demand_split(options.split, options.seed)
    if options.memory < MIN_MEMORY:
        raise CohortError("--memory", f"at least {format_bytes(MIN_MEMORY)}", format_bytes(options.memory))
    with output_folder(out, options.overwrite) as folder:
        kind(graph, Path(folder.path), options, progress).run()
        progress("checking", 0)
        demand_no_problem(out, folder.path)


class Conversion(ABC):
    """A graph on its way into a folder: what graphs of one and of several types share."""

    def __init__(self, source: Source, folder: Path, options: ConvertOptions, progress: Progress):
        self.source, self.folder, self.options, self.progress = source, folder, options, progress
        self.sort_memory = options.memory // 4 * 3

    @abstractmethod
    def run(self) -> None:
        """Writes all files of the data set."""

    def demand_memory(self, map_bytes: int) -> None:
        """Takes the share of a map of ids from the memory for sorting."""
        if 2 * map_bytes > self.sort_memory:
            expected = f"at least {format_bytes(4 * map_bytes)} for the ids of all nodes"
            raise CohortError("--memory", expected, format_bytes(self.options.memory), "give more")
        self.sort_memory -= map_bytes

    def write_rows(self, rows: Rows, file: str, num_nodes: int | None, what: str = "features") -> list[int]:
        """Writes the feature rows, one for each node; returns their shape."""

        def told(done: int) -> None:
            self.progress(what, done / num_nodes if num_nodes else 0)

        shape = write_rows(self.folder / file, rows.chunks(self.options.block_bytes), told)
        if 0 in shape:
            raise CohortError(rows.place, "at least one row and one column", f"shape {shape}")
        if num_nodes not in (None, shape[0]):
            hint = "each node has one row"
            raise CohortError(rows.place, f"{num_nodes} rows, one per node", f"{shape[0]}", hint)
        return shape

    def labels(self, num_nodes: int) -> np.ndarray:
        """int64 [V], or as arrays.targets has them for another task."""
        task = self.options.task
        if self.source.labels is not None:
            labels = self.source.labels
            if not isinstance(labels, Labels):
                return arrays.targets(labels.place, labels.read(), num_nodes, task)
            values = labels.numbers() if task == "regression" and labels.numbers else labels.read()
            if labels.ids is not None:
                values = self._by_ids(labels, values, num_nodes)
            return arrays.targets(labels.place, values, num_nodes, task)
        if task != "classification":
            raise CohortError(f"--task {task}", "labels", "none in the source", "pass --labels FILE")
        return np.full(num_nodes, -1, dtype=np.int64)

    def _by_ids(self, labels: Labels, values: np.ndarray, num_nodes: int) -> np.ndarray:
        """Labels in the order of the nodes, NaN for those of which there is none."""
        assert labels.ids is not None
        ids = labels.ids()
        nodes = self.nodes_of(f"{labels.place}: ids", ids)
        arrays.demand_nodes(f"{labels.place}: ids", nodes, num_nodes)
        if len(np.unique(nodes)) < len(nodes):
            again = ids[np.flatnonzero(np.bincount(nodes, minlength=num_nodes)[nodes] > 1)[0]]
            raise CohortError(labels.place, "an id named once", f"{again} again", "give each node one row")
        if len(nodes) == num_nodes:
            out = np.empty_like(values)
        else:
            out = np.full((num_nodes, *values.shape[1:]), np.nan)
        out[nodes] = values
        return out

    def num_classes(self, labels: np.ndarray) -> int:
        found = arrays.num_outputs(labels)
        if found > max(len(labels), MANY_CLASSES):
            hint = "classes are numbered from 0: are these ids? --task regression takes numbers as they are"
            raise CohortError("labels", f"at most {max(len(labels), MANY_CLASSES)} classes", str(found), hint)
        given = self.source.num_classes
        return found if given is None or self.options.task != "classification" else given

    def splits(self, labels: np.ndarray) -> list[np.ndarray]:
        """Train, val and test ids, int64 [any] each; those of a mask are its nodes with a label."""
        if self.source.splits is None:
            return random_splits(labels, self.options.split, self.options.seed)
        out = []
        for name, given in zip(SPLITS, self.source.splits(), strict=True):
            place = f"--splits: {name}" if self.source.splits_from == "--splits" else name
            ids = arrays.split_ids(place, given, labels)
            out.append(ids if given.dtype.kind == "b" else self.nodes_of(place, ids))
            arrays.demand_nodes(place, out[-1], len(labels))
        return out

    def nodes_of(self, name: str, ids: np.ndarray) -> np.ndarray:
        """The nodes with these ids."""
        return ids


class GraphConversion(Conversion):
    """A graph of one node type."""

    def __init__(self, graph: Graph, folder: Path, options: ConvertOptions, progress: Progress):
        super().__init__(graph, folder, options, progress)
        self.graph = graph
        self.num_nodes = graph.num_nodes
        self.rows_told = ""  # their shape, where the source's own is known
        self.ids: np.ndarray | None = None  # int64 [V], the id of each node
        self.id_map: _native.IdMap | None = None

    def run(self) -> None:
        graph, rows = self.graph, self._prepared_rows()
        shape = None if rows is None else self._write_features(rows)
        self._name_nodes()
        num_nodes, num_edges, edge_features = self._write_edges()
        self.id_map = None
        labels = self.labels(num_nodes)
        files = write_targets(self.folder, labels, self.splits(labels))
        if rows is None or shape is None:
            rows = Rows.of_matrix("features", np.broadcast_to(np.uint8(1), (num_nodes, 1)))
            shape = self._write_features(rows)
        write_meta_of_one_type(
            self.folder,
            name=graph.name,
            task=self.options.task,
            label_dtype=labels.dtype.name,
            files=files,
            edge_features=edge_features,
            num_nodes=num_nodes,
            num_edges=num_edges,
            feature_dim=shape[1],
            feature_dtype=rows.dtype,
            num_classes=self.num_classes(labels),
        )
        if graph.links is not None:
            self._write_links(graph.links())

    def _write_links(self, links: dict[str, tuple[str, HeldOut]]) -> None:
        """Held-out links, with the nodes' ids."""
        if self.options.transpose:
            raise CohortError("--transpose", "edges in the direction of the held-out links", "--transpose")
        edges = link_edges(open_one_type(self.folder))
        for split, (place, given) in links.items():
            names = [f"{place}: {what}" for what in ("links", "negatives")]
            pairs, negatives = (
                self.nodes_of(name, arrays.integers(name, ids, (None, None)).reshape(-1)).reshape(ids.shape)
                for name, ids in zip(names, (given.pairs, given.negatives), strict=True)
            )
            save_links(self.folder, split, checked_links(names, HeldOut(pairs, negatives, given.shared), edges))

    # --- features ---------------------------------------------------------------------------------------------------

    def _prepared_rows(self) -> Rows | None:
        """The rows after --row-normalize and --pca, which have them in memory."""
        rows, options = self.graph.features, self.options
        if rows is None or not (options.row_normalize or options.pca is not None):
            return rows
        x = rows.matrix if rows.matrix is not None else self._in_memory(rows)
        if rows.dtype == "bfloat16":  # its bits
            x = (x.astype(np.uint32) << 16).view(np.float32)
        if options.row_normalize:
            x = _row_normalize(x)
        if options.pca is not None:
            x = principal_components(x, options.pca, options.seed)
        return Rows.of_matrix(rows.place, x)

    def _in_memory(self, rows: Rows) -> np.ndarray:
        parts, size = [], 0
        for part in rows.chunks(self.options.block_bytes):
            parts.append(part)
            size += part.nbytes
            if 4 * size > self.options.memory:
                hint = "use a larger --memory, or leave out --pca and --row-normalize"
                raise CohortError(rows.place, f"rows of {format_bytes(self.options.memory // 4)}", "more", hint)
        return np.concatenate(parts)

    def _write_features(self, rows: Rows) -> list[int]:
        """Writes features.npy; returns its shape. The number of nodes is known then."""
        shape = self.write_rows(rows, "features.npy", self.num_nodes)
        if self.options.pca is None:
            self.rows_told = f"{rows.place} has {shape[0]} rows of {shape[1]} columns: one row per node"
        self.num_nodes = shape[0]
        return shape

    # --- nodes and edges --------------------------------------------------------------------------------------------

    def _name_nodes(self) -> None:
        """With names of any kind: id_of_node.npy, and the map from ids to nodes."""
        options, path = self.options, self.folder / ID_MAP
        if options.node_ids is not None:
            self._take_node_ids(options.node_ids)
        elif options.rename:
            sorter = _native.IdSorter(self.folder, self.sort_memory)
            for src, dst, fraction in self.graph.edges.chunks(options.block_bytes):
                sorter.add(src)
                sorter.add(dst)
                self.progress("finding ids", fraction)
            sorter.write(path)
            del sorter
            self.ids = np.load(path, mmap_mode="r")
            self._demand_nodes(len(self.ids), "distinct ids in the edges")
            self.demand_memory(8 * len(self.ids))
            self.id_map = _native.IdMap(self.ids, np.empty(0, np.int64))

    def _take_node_ids(self, ids: np.ndarray) -> None:
        order = np.argsort(ids, kind="stable")
        ascending = ids[order]
        again = np.flatnonzero(ascending[1:] == ascending[:-1])
        if len(again):
            place = f"--node-ids[{order[again[0] + 1]}]"
            raise CohortError(place, "an id named once", f"{ascending[again[0]]} again", "give each node one row")
        self._demand_nodes(len(ids), "ids in --node-ids")
        self.demand_memory(24 * len(ids))
        self.ids = ids
        self.id_map = _native.IdMap(ascending, order)
        np.save(self.folder / ID_MAP, ids)

    def _demand_nodes(self, count: int, what: str) -> None:
        if self.num_nodes not in (None, count):
            hint = "--node-ids FILE says which id each feature row belongs to, also of nodes without edges"
            raise CohortError(self.graph.edges.place, f"{self.num_nodes} nodes, one per row", f"{count} {what}", hint)
        self.num_nodes = count

    def _write_edges(self) -> tuple[int, int, dict[str, Any] | None]:
        """Writes indptr.npy, indices.npy and the edges' weights, times and features; returns the numbers of nodes and
        edges, and what meta.json says of the features."""
        graph, options = self.graph, self.options
        try:
            sorter, described = EdgeData(graph.edges, options.memory).sort(
                self.folder,
                lambda what, done: self.progress(f"{what} edges", done),
                self.id_map,
                memory_bytes=self.sort_memory,
                num_nodes=-1 if self.num_nodes is None else self.num_nodes,
                transpose=options.transpose,
                reverse=options.undirected or (graph.reverse if options.reverse is None else options.reverse),
                dedupe=options.undirected or (graph.dedupe if options.dedupe is None else options.dedupe),
                self_loops=options.self_loops or graph.self_loops,
            )
        except CohortError as error:
            raise self._blamed_on_rows(error) from error
        self.num_nodes = sorter.num_nodes
        if self.num_nodes == 0:
            raise CohortError(graph.edges.place, "at least one node", "no edges", "--nodes says how many there are")
        return sorter.num_nodes, sorter.edges_written, described

    def _blamed_on_rows(self, error: CohortError) -> CohortError:
        """The error of a node that is too large, with the shape of the rows: they may lie the wrong way round."""
        too_large = error.expected.startswith("a node in [0, ") and not error.found.startswith("-")
        if not too_large or not self.rows_told or self.id_map is not None:
            return error
        return CohortError(error.place, error.expected, error.found, f"{error.hint}; {self.rows_told}")

    def nodes_of(self, name: str, ids: np.ndarray) -> np.ndarray:
        """The nodes with these ids."""
        if self.ids is None:
            return ids
        order = np.argsort(self.ids, kind="stable")
        places = np.minimum(np.searchsorted(self.ids, ids, sorter=order), len(order) - 1)
        nodes = order[places]
        bad = np.flatnonzero(self.ids[nodes] != ids)
        if len(bad):
            raise CohortError(f"{name}[{bad[0]}]", "the id of a node", f"{ids[bad[0]]}", "leave it out")
        return nodes


def _row_normalize(x):
    """Rows whose absolute values add up to 1, float32; rows of zeros stay."""
    sums = np.asarray(abs(x).sum(axis=1, dtype=np.float64)).reshape(-1, 1)
    scale = np.divide(1.0, sums, out=np.zeros_like(sums), where=sums != 0)
    if scipy.sparse.issparse(x):
        return scipy.sparse.csr_matrix(scipy.sparse.diags(scale[:, 0]) @ x, dtype=np.float32)
    return (x * scale).astype(np.float32)
