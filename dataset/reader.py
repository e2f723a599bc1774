"""Reading a data set: memory-mapped NumPy arrays."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.files import demand_regular
from cohort_gnn.dataset import _native
from cohort_gnn.dataset.array_file import map_array
from cohort_gnn.dataset.arrays import as_float32
from cohort_gnn.dataset.meta import META, SPLITS
from cohort_gnn.dataset.stored_graph import (
    FeatureTable,
    NodeTable,
    Relation,
    StoredGraph,
    demand_raw,
    feature_table,
)
from cohort_gnn.spec.graph import EDGE_TYPE, NODE_TYPE
from cohort_gnn.spec.meta import read_meta

FORMAT_NAME = b'"cohort-dataset"'
OF_NODES = ("feature_dim", "feature_dtype", "x", "encoded_rows", "file", "node_times")
OF_EDGES = ("indptr", "indices", "edge_weights", "edge_times", "edge_table", "edge_attr")
OF_PYG = {f"{part}_mask": f"{part}_ids" for part in ("train", "val", "test")}
OF_PYG |= {"edge_index": "indptr and indices", "edge_weight": "edge_weights", "edge_time": "edge_times"}


@dataclass(frozen=True, eq=False, repr=False)
class Dataset(StoredGraph):
    """A data set of V nodes and E edges, whose types have no names; the arrays are read-only and mapped from disk.

    Examples:
        >>> data = cohort.dataset.open("data/cora")
        >>> data.num_nodes, data.feature_dim, data.num_classes
        (2708, 1433, 7)

    Where the node type and the edge type are named nevertheless, they are "node" and ("node", "to", "node"): in
    `node_types` and `edge_types`, which have the arrays, too. Pickling keeps only the path: another process maps the
    same files. Equality is identity of objects.

    Attributes:
        indptr: int64 [V + 1], where the in-neighbours of each node start in `indices`.
        indices: int32 or int64 [E], sources of the edges into each node.
        edge_weights: float32 [E], in the order of `indices`, or None.
        edge_times: int64 [E], in the order of `indices`, ascending for each node, or None.
        edge_table: the features of edges, in the order of `indices`, or None.
        edge_attr: [E, D], their array; bfloat16 as its bits in uint16. None without, and if only encoded rows exist.
        x: [V, D] in `feature_dtype`; bfloat16 as its bits in uint16. None if only encoded rows exist.
        task: "classification", "regression" or "multilabel".
        y: int64 [V], -1 for nodes without a label; regression: float32 [V], NaN for none; multilabel: [V, num_classes]
            of 0 and 1, as uint8 (255: unknown) or float32 (NaN: unknown).
        train_ids, val_ids, test_ids: int64 [any].
        encoded_rows: the file of encoded rows, or None (see `cohort dataset prepare`).
        file: of the raw features, which may not exist where encoded ones do.
        node_times: int64 [V], since when each node exists, or None; NO_TIME (-2^63): always.
    """

    feature_dim: int = field(init=False)
    feature_dtype: str = field(init=False)
    x: np.ndarray | None = field(init=False)
    encoded_rows: Path | None = field(init=False)
    file: Path = field(init=False)
    node_times: np.ndarray | None = field(init=False)
    indptr: np.ndarray = field(init=False)
    indices: np.ndarray = field(init=False)
    edge_weights: np.ndarray | None = field(init=False)
    edge_times: np.ndarray | None = field(init=False)
    edge_table: FeatureTable | None = field(init=False)
    edge_attr: np.ndarray | None = field(init=False)

    def __post_init__(self):
        for owner, names in ((self.node_types[NODE_TYPE], OF_NODES), (self.edge_types[EDGE_TYPE], OF_EDGES)):
            vars(self).update({name: getattr(owner, name) for name in names})

    def __reduce__(self):
        return open, (self.path.absolute(),)

    def __repr__(self) -> str:
        x = "x encoded" if self.x is None else f"x {self.feature_dtype} [{self.num_nodes}, {self.feature_dim}]"
        return f"Dataset({str(self.path)!r}, {self.num_nodes:,} nodes, {self.num_edges:,} edges, {x})"

    @staticmethod
    def key_of(name):
        """Empty: files and results leave both names out."""
        return name[:0]

    @property
    def num_features(self) -> int:
        """`feature_dim`, as PyG calls it."""
        return self.feature_dim

    @property
    def num_node_features(self) -> int:
        """`feature_dim`, as PyG calls it."""
        return self.feature_dim

    def __getattr__(self, name: str):
        if name in OF_PYG:
            raise AttributeError(f"a Dataset has {OF_PYG[name]} instead of {name}; dataset.to_pyg() has {name}")
        raise AttributeError(f"a Dataset has no {name}")

    def x_float32(self) -> np.ndarray:
        """The features as float32 [V, D], a copy.

        Raises:
            CohortError: if only encoded rows exist.
        """
        return as_float32(demand_raw(self.x, self.encoded_rows), self.feature_dtype)

    def reversed_share(self, at_most: int = 10_000) -> float:
        """The share of edges (no self loops) that have a reverse edge, by a sample of `at_most` evenly spaced edges.

        Without times, the neighbours of each node must be in ascending order, as in all data sets that Cohort writes.
        1.0 without edges.
        """
        places = np.linspace(0, self.num_edges - 1, min(self.num_edges, at_most)).astype(np.int64)
        targets = np.searchsorted(self.indptr, places, side="right") - 1
        pairs = [(source, target) for source, target in zip(self.indices[places], targets, strict=True)]
        has_reverse = [self._has_edge(target, source) for source, target in pairs if source != target]
        return float(np.mean(has_reverse)) if has_reverse else 1.0

    def _has_edge(self, source: int, target: int) -> bool:
        sources = self.indices[self.indptr[target] : self.indptr[target + 1]]
        if self.edge_times is not None:  # which the order follows
            return bool(np.any(sources == source))
        place = np.searchsorted(sources, source)
        return bool(place < len(sources) and sources[place] == source)

    def to_pyg(self):
        """The whole graph as torch_geometric Data: float32 x, y, edge_index int64 [2, E], edge_weight float32 [E] or
        edge_time int64 [E] if the edges have weights or times, edge_attr float32 [E, D] if they have features, time
        int64 [V] if the nodes have times, and three bool masks [V]."""
        from torch_geometric.data import Data

        data = Data()
        self.fill(lambda _: data)
        return data


@dataclass(frozen=True, eq=False, repr=False)
class HeteroDataset(StoredGraph):
    """A data set whose node types and edge types have names; the arrays are read-only and mapped from disk.

    Examples:
        >>> data = cohort.dataset.open("data/types")
        >>> list(data.node_types), data.target
        (['paper', 'author', 'field'], 'paper')

    Nodes of each type are numbered from 0. Pickling keeps only the path: another process maps the same files. Equality
    is identity of objects.

    Attributes:
        node_types: `NodeTable` by name, in the order of meta.json.
        edge_types: `Relation` by (source type, name, target type), in the order of meta.json.
        target: the node type that has labels and splits.
        task, num_classes, y, train_ids, val_ids, test_ids: as of a Dataset, with nodes of the target type.
    """

    __reduce__ = Dataset.__reduce__

    def __repr__(self) -> str:
        sizes = f"{self.num_nodes:,} nodes of {len(self.node_types)} types, {self.num_edges:,} edges of "
        return f"HeteroDataset({str(self.path)!r}, {sizes}{len(self.edge_types)} relations, target {self.target!r})"

    def to_pyg(self):
        """The whole graph as torch_geometric HeteroData: float32 x or num_nodes of each type, time int64 [V] where its
        nodes have times, edge_index int64 [2, E] of each relation, edge_weight float32 [E] where it has weights,
        edge_time int64 [E] where it has times, edge_attr float32 [E, D] where its edges have features, y and three bool
        masks of the target type."""
        from torch_geometric.data import HeteroData

        data = HeteroData()
        for name, table in self.node_types.items():
            data[name].num_nodes = table.num_nodes
        self.fill(data.__getitem__)
        return data


def is_dataset(path: Path) -> bool:
    """Whether it is a folder whose meta.json says that it is a data set, whole or not."""
    try:
        with (path / META).open("rb") as file:
            return FORMAT_NAME in file.read(4096)
    except OSError:
        return False


def open(path: str | os.PathLike, *, prefer_raw: bool = False) -> Dataset | HeteroDataset:
    """Opens a data set after the cheap checks (existence, dtypes, shapes, sizes): a HeteroDataset if its types have
    names, which those of version 3 have.

    Args:
        prefer_raw: where there are raw features, do not look at encoded ones, which may be of an older file.

    Raises:
        CohortError: for the first thing wrong.
    """
    folder = Path(path).expanduser()
    while True:
        before = _identity_of(folder)
        try:
            data = _open_once(folder, prefer_raw)
        except CohortError:
            if _identity_of(folder) == before:
                raise
            continue
        if _identity_of(folder) == before:  # else replaced meanwhile: files of two data sets are none
            return data


def _identity_of(folder: Path) -> tuple[int, int] | None:
    """What another folder of the same name does not have."""
    try:
        known = os.stat(folder)
    except OSError:
        return None
    return known.st_dev, known.st_ino


def _open_once(folder: Path, prefer_raw: bool) -> Dataset | HeteroDataset:
    demand_regular(folder / META)
    rows, edge_rows = _native.find_rows(os.fspath(folder), prefer_raw)
    meta = read_meta(folder)
    edge_types, target = [tuple(edges["type"]) for edges in meta["edges"]], meta["target"]
    kind: type[Dataset | HeteroDataset] = HeteroDataset if meta["version"] == 3 else Dataset
    return kind(
        path=folder,
        name=meta["name"],
        node_types={
            nodes["type"]: _node_table(folder, nodes, row_source)
            for nodes, row_source in zip(meta["nodes"], rows, strict=True)
        },
        edge_types={
            type_: Relation(
                indptr=map_array(folder / edges["indptr"]),
                indices=map_array(folder / edges["indices"]),
                reverse_of=None if edges.get("reverse_of") is None else edge_types[edges["reverse_of"]],
                **{name: map_array(folder / edges[name]) for name in ("edge_weights", "edge_times") if name in edges},
                edge_table=feature_table(folder, edges["count"], edges["features"], row_source, FeatureTable)
                if "features" in edges
                else None,
                has_no_reverse="reverse_of" in edges and edges["reverse_of"] is None,
                position=edges.get("position", 0),
            )
            for type_, edges, row_source in zip(edge_types, meta["edges"], edge_rows, strict=True)
        },
        target=target["type"],
        task=target["task"],
        num_classes=target["num_classes"],
        y=map_array(folder / target["labels"]),
        **{name: map_array(folder / target[name]) for name in SPLITS},
    )


def _node_table(folder: Path, nodes: dict[str, Any], row_source: tuple[str, bool]) -> NodeTable:
    table = feature_table(folder, nodes["count"], nodes.get("features"), row_source, NodeTable)
    return replace(table, node_times=map_array(folder / nodes["node_times"])) if "node_times" in nodes else table


def open_one_type(path: str | os.PathLike, *, prefer_raw: bool = False) -> Dataset:
    """The same, for callers that support one node type alone.

    Raises:
        CohortError: for the first thing wrong, and for a data set of several node types.
    """
    data = open(path, prefer_raw=prefer_raw)
    if not isinstance(data, Dataset):
        count = len(data.node_types)
        sort = "one of version 3, with 1 node type" if count == 1 else f"{count} node types"
        actual = f"{sort}: {', '.join(data.node_types)}"
        hint = "several node types are not supported here yet"
        raise CohortError(str(data.path), "a data set of one node type", actual, hint)
    return data
