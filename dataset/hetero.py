"""Data sets of several node types and relations: memory-mapped NumPy arrays."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset.array_file import map_array
from cohort_gnn.dataset.arrays import MASKS, as_float32
from cohort_gnn.dataset.meta import SPLITS
from cohort_gnn.dataset.reverses import Found, Lists, RelationType, find_reverses
from cohort_gnn.spec.graph import GraphTypes

Table = TypeVar("Table", bound="FeatureTable")


@dataclass(frozen=True, eq=False)
class FeatureTable:
    """Feature rows, of the nodes of one type or of the edges of one relation.

    Attributes:
        x: [num_rows, D] in `feature_dtype`, bfloat16 as its bits in uint16; None without features, and if only encoded
            rows exist.
        feature_dtype: None without features.
        encoded_rows: the file of encoded rows, or None (see `cohort dataset prepare`).
        encoded_dim: D of rows that exist only encoded.
        file: of a data set's raw features, which may not exist where encoded ones do; None without features.
    """

    num_rows: int
    x: np.ndarray | None
    feature_dtype: str | None
    encoded_rows: Path | None = None
    encoded_dim: int = 0
    file: Path | None = None

    @property
    def feature_dim(self) -> int:
        """D; 0 without features."""
        return self.encoded_dim if self.x is None else self.x.shape[1]

    def x_float32(self) -> np.ndarray | None:
        """The features as float32 [num_rows, D], a copy; None without features.

        Raises:
            CohortError: if only encoded rows exist.
        """
        if self.feature_dtype is None:
            return None
        return as_float32(demand_raw(self.x, self.encoded_rows), self.feature_dtype)


class NodeTable(FeatureTable):
    """The nodes of one type, and their features, if they have some."""

    @property
    def num_nodes(self) -> int:
        return self.num_rows


@dataclass(frozen=True, eq=False)
class Relation:
    """The edges of one relation, by target.

    Attributes:
        indptr: int64 [nodes of the target type + 1], where the in-neighbours of each node start in `indices`.
        indices: int32 or int64 [E], nodes of the source type.
        reverse_of: the relation that has the same edges in the other direction, if the data set names one.
        has_no_reverse: the data set says that no relation has.
        edge_weights: float32 [E], in the order of `indices`, or None.
        edge_times: int64 [E], in the order of `indices`, ascending for each node, or None.
        edge_table: the edges' features, in the order of `indices`, or None.
    """

    indptr: np.ndarray
    indices: np.ndarray
    reverse_of: RelationType | None
    edge_weights: np.ndarray | None = None
    edge_times: np.ndarray | None = None
    edge_table: FeatureTable | None = None
    has_no_reverse: bool = False

    @property
    def edge_attr(self) -> np.ndarray | None:
        """[E, D], the edges' features; None without, and if only encoded rows exist."""
        return None if self.edge_table is None else self.edge_table.x

    @property
    def num_edges(self) -> int:
        return len(self.indices)

    def edge_index(self) -> np.ndarray:
        """int64 [2, E]: sources and targets."""
        return edge_index_of(self.indptr, self.indices)


@dataclass(frozen=True, eq=False)
class HeteroDataset:
    """A data set of several node types and relations; the arrays are read-only and mapped from disk.

    Nodes of each type are numbered from 0. Pickling keeps the path alone: another process maps the same files. Equal is
    only what is the same object.

    Attributes:
        node_types: by name, in the order of meta.json.
        edge_types: by (source type, name, target type), in the order of meta.json.
        target: the node type that has labels and splits.
        task, num_classes, y, train_ids, val_ids, test_ids: as of a Dataset, with nodes of the target type.
    """

    path: Path
    name: str
    node_types: dict[str, NodeTable]
    edge_types: dict[RelationType, Relation]
    target: str
    task: str
    num_classes: int
    y: np.ndarray
    train_ids: np.ndarray
    val_ids: np.ndarray
    test_ids: np.ndarray

    def __repr__(self) -> str:
        sizes = f"{self.num_nodes:,} nodes of {len(self.node_types)} types, {self.num_edges:,} edges of "
        return f"HeteroDataset({str(self.path)!r}, {sizes}{len(self.edge_types)} relations, target {self.target!r})"

    @property
    def num_nodes(self) -> int:
        """Of all types."""
        return sum(table.num_nodes for table in self.node_types.values())

    @property
    def num_edges(self) -> int:
        """Of all relations."""
        return sum(relation.num_edges for relation in self.edge_types.values())

    @property
    def first_node(self) -> dict[str, int]:
        """The number of each type's first node when the nodes of all types are numbered through, in order."""
        return self.types.first_node

    @property
    def types(self) -> GraphTypes:
        """The node types and edge types without their arrays."""
        counts = {name: table.num_nodes for name, table in self.node_types.items()}
        dims = {name: table.feature_dim for name, table in self.node_types.items()}
        return GraphTypes(counts, dims, list(self.edge_types), self.target)

    @functools.cached_property
    def reverses(self) -> dict[RelationType, Found]:
        """Of each relation, the one that it is the reverse of, and where its edges are: what the data set says, and
        what is found. The first access compares the edges of opposite relations with equally many edges, of which the
        data set says nothing. The sampler has the same rules (dataset/reverses.h)."""
        return find_reverses(
            {
                name: Lists(edges.indptr, edges.indices, edges.reverse_of, edges.has_no_reverse)
                for name, edges in self.edge_types.items()
            }
        )

    def same_edges(self, name: RelationType) -> list[tuple[RelationType, bool]]:
        """The relations that have a relation's edges, itself first, and whether in the other direction. A relation
        within one node type of whose reverse nothing is known is its own reverse."""
        return self.reverses[name].there

    def reverse_of(self, name: RelationType) -> RelationType | None:
        """The first other relation that has a relation's edges in the other direction; else, if it is its own reverse,
        the relation itself."""
        reverses = [other for other, is_reversed in self.same_edges(name) if is_reversed]
        return next((other for other in reverses if other != name), reverses[0] if reverses else None)

    def metadata(self) -> tuple[list[str], list[RelationType]]:
        """Node types and edge types, as HeteroData.metadata() gives them."""
        return list(self.node_types), list(self.edge_types)

    def to_pyg(self):
        """The whole graph as torch_geometric HeteroData: float32 x or num_nodes of each type, edge_index int64 [2, E]
        of each relation, edge_weight float32 [E] where it has weights, edge_time int64 [E] where it has times,
        edge_attr float32 [E, D] where its edges have features, y and three bool masks of the target type."""
        from torch_geometric.data import HeteroData

        data = HeteroData()
        for name, table in self.node_types.items():
            data[name].num_nodes = table.num_nodes
            _fill(data[name], x=table.x_float32())
        for type_, relation in self.edge_types.items():
            fill_edges(data[type_], relation)
        fill_targets(data[self.target], self)
        return data


def edge_index_of(indptr: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """int64 [2, E]: sources and targets of edges by target."""
    target = np.repeat(np.arange(len(indptr) - 1, dtype=np.int64), np.diff(indptr))
    return np.stack([indices.astype(np.int64), target])


def fill_edges(store: Any, edges: Any) -> None:
    """Gives a store of PyG the edges of a relation, or of a data set of one node type, and what they have beside."""
    attributes = None if edges.edge_table is None else edges.edge_table.x_float32()
    beside = {"edge_weight": edges.edge_weights, "edge_time": edges.edge_times, "edge_attr": attributes}
    _fill(store, edge_index=edge_index_of(edges.indptr, edges.indices), **beside)


def fill_targets(store: Any, data: Any) -> None:
    """Gives a store of PyG the labels of a data set, and bool masks of its splits."""
    _fill(store, y=data.y)
    for name, mask in zip(SPLITS, MASKS, strict=True):
        is_in_split = np.zeros(len(data.y), bool)
        is_in_split[getattr(data, name)] = True
        _fill(store, **{mask: is_in_split})


def _fill(store: Any, **arrays: np.ndarray | None) -> None:
    """Copies of those that there are, as tensors."""
    import torch

    for name, array in arrays.items():
        if array is not None:
            store[name] = torch.from_numpy(np.array(array))


def demand_raw(x: np.ndarray | None, encoded_rows: Path | None) -> np.ndarray:
    """The raw features.

    Raises:
        CohortError: if only encoded rows exist.
    """
    if x is None:
        hint = f"decode them with: cohort ibp decode {encoded_rows} FILE.npy"
        raise CohortError(f"features of {encoded_rows}", "raw features", "encoded rows only", hint)
    return x


def read_typed(
    folder: Path, meta: dict[str, Any], rows: list[tuple[str, bool]], edge_rows: list[tuple[str, bool]]
) -> HeteroDataset:
    """The data set of a folder whose meta.json says this.

    Args:
        rows: of each node type: the file of encoded rows ("": none), and whether there are raw ones.
        edge_rows: the same of each relation.
    """
    types = [tuple(edges["type"]) for edges in meta["edges"]]
    target = meta["target"]
    return HeteroDataset(
        path=folder,
        name=meta["name"],
        node_types={
            nodes["type"]: feature_table(folder, nodes["count"], nodes.get("features"), found, NodeTable)
            for nodes, found in zip(meta["nodes"], rows, strict=True)
        },
        edge_types={
            type_: Relation(
                indptr=map_array(folder / edges["indptr"]),
                indices=map_array(folder / edges["indices"]),
                reverse_of=None if edges.get("reverse_of") is None else types[edges["reverse_of"]],
                **{name: map_array(folder / edges[name]) for name in ("edge_weights", "edge_times") if name in edges},
                edge_table=feature_table(folder, edges["count"], edges["features"], found, FeatureTable)
                if "features" in edges
                else None,
                has_no_reverse="reverse_of" in edges and edges["reverse_of"] is None,
            )
            for type_, edges, found in zip(types, meta["edges"], edge_rows, strict=True)
        },
        target=target["type"],
        task=target["task"],
        num_classes=target["num_classes"],
        y=map_array(folder / target["labels"]),
        **{name: map_array(folder / target[name]) for name in SPLITS},
    )


def feature_table(
    folder: Path, num_rows: int, features: dict[str, Any] | None, found: tuple[str, bool], kind: type[Table]
) -> Table:
    """The rows that meta.json describes by `features`; None: there are none.

    Args:
        found: the file of encoded rows ("": none), and whether there are raw ones.
    """
    if features is None:
        return kind(num_rows, None, None)
    encoded_rows, has_raw = found
    file = folder / features["file"]
    return kind(
        num_rows=num_rows,
        x=map_array(file) if has_raw else None,
        feature_dtype=features["dtype"],
        encoded_rows=Path(encoded_rows) if encoded_rows else None,
        encoded_dim=0 if has_raw else features["dim"],
        file=file,
    )
