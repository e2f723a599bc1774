"""What a data set holds: memory-mapped NumPy arrays of node types and edge types."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset.array_file import map_array
from cohort_gnn.dataset.arrays import MASKS, as_float32
from cohort_gnn.dataset.meta import SPLITS
from cohort_gnn.dataset.reverses import EdgesByTarget, KnownRelation, find_reverses
from cohort_gnn.spec.graph import EdgeType, GraphTypes

AnyTable = TypeVar("AnyTable", bound="FeatureTable")
Type = TypeVar("Type", str, EdgeType)


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


@dataclass(frozen=True, eq=False)
class NodeTable(FeatureTable):
    """The nodes of one type, and their features, if they have some.

    Attributes:
        node_times: int64 [num_nodes], since when each node exists, mapped from disk, or None; NO_TIME (-2^63): always.
    """

    node_times: np.ndarray | None = None

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
        position: among the relations in the order of their source, which batches have; 0 for all: that of meta.json.
        edge_weights: float32 [E], in the order of `indices`, or None.
        edge_times: int64 [E], in the order of `indices`, ascending for each node, or None.
        edge_table: the edges' features, in the order of `indices`, or None.
    """

    indptr: np.ndarray
    indices: np.ndarray
    reverse_of: EdgeType | None
    edge_weights: np.ndarray | None = None
    edge_times: np.ndarray | None = None
    edge_table: FeatureTable | None = None
    has_no_reverse: bool = False
    position: int = 0

    @property
    def edge_attr(self) -> np.ndarray | None:
        """[E, D], the edges' features; None without, and if only encoded rows exist."""
        return None if self.edge_table is None else self.edge_table.x

    @property
    def num_edges(self) -> int:
        return len(self.indices)

    def edge_index(self) -> np.ndarray:
        """int64 [2, E]: sources and targets."""
        target = np.repeat(np.arange(len(self.indptr) - 1, dtype=np.int64), np.diff(self.indptr))
        return np.stack([self.indices.astype(np.int64), target])


@dataclass(frozen=True, eq=False, repr=False)
class StoredGraph:
    """A data set: a graph of one or several node types and edge types; the arrays are read-only and mapped from disk.

    Nodes of each type are numbered from 0. Equality is identity of objects.

    Attributes:
        node_types: by name, in the order of meta.json.
        edge_types: by (source type, name, target type), in the order of meta.json.
        target: the node type that has labels and splits.
        task: "classification", "regression" or "multilabel".
        y: of the nodes of the target type: int64 [V], -1 for nodes without a label; regression: float32 [V], NaN for
            none; multilabel: [V, num_classes] of 0 and 1, as uint8 (255: unknown) or float32 (NaN: unknown).
        train_ids, val_ids, test_ids: int64 [any], nodes of the target type.
    """

    path: Path
    name: str
    node_types: dict[str, NodeTable]
    edge_types: dict[EdgeType, Relation]
    target: str
    task: str
    num_classes: int
    y: np.ndarray
    train_ids: np.ndarray
    val_ids: np.ndarray
    test_ids: np.ndarray

    @staticmethod
    def key_of(name: Type) -> Type:
        """What files and results call a node type or an edge type; empty where they leave it out."""
        return name

    @property
    def has_names(self) -> bool:
        """Whether files and results name its types: not those of a graph of one type."""
        return bool(self.key_of(self.target))

    @property
    def num_nodes(self) -> int:
        """Of all types."""
        return sum(table.num_nodes for table in self.node_types.values())

    @property
    def num_edges(self) -> int:
        """Of all edge types."""
        return sum(relation.num_edges for relation in self.edge_types.values())

    @property
    def feature_tables(self) -> list[NodeTable]:
        """Those of the node types that have features."""
        return [table for table in self.node_types.values() if table.feature_dtype is not None]

    @property
    def edge_tables(self) -> list[FeatureTable]:
        """Those of the edge types whose edges have features."""
        return [edges.edge_table for edges in self.edge_types.values() if edges.edge_table is not None]

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
    def reverses(self) -> dict[EdgeType, KnownRelation]:
        """The reverse of each edge type, and the edge types with the same edges, as declared in the data set or as
        found. The first access compares the edges of opposite types with equally many edges, if they declare no
        reverse. The sampler has the same rules (dataset/reverses.h)."""
        return find_reverses(
            {
                name: EdgesByTarget(edges.indptr, edges.indices, edges.reverse_of, edges.has_no_reverse)
                for name, edges in self.edge_types.items()
            }
        )

    def same_edges(self, name: EdgeType) -> list[tuple[EdgeType, bool]]:
        """The edge types that have a type's edges, itself first, and whether in the other direction. An edge type
        within one node type without a known reverse is its own reverse."""
        return self.reverses[name].there

    def reverse_of(self, name: EdgeType) -> EdgeType | None:
        """The first other edge type that has a type's edges in the other direction; else, if it is its own reverse, the
        type itself."""
        reverses = [other for other, is_reversed in self.same_edges(name) if is_reversed]
        return next((other for other in reverses if other != name), reverses[0] if reverses else None)

    def metadata(self) -> tuple[list[str], list[EdgeType]]:
        """Node types and edge types, as HeteroData.metadata() gives them, and in the order of batches."""
        return list(self.node_types), sorted(self.edge_types, key=lambda name: self.edge_types[name].position)

    def fill(self, store_of: Callable[[Any], Any]) -> None:
        """Gives PyG's stores of the types copies of all arrays, as tensors."""
        for name, table in self.node_types.items():
            _fill(store_of(name), x=table.x_float32(), time=table.node_times)
        for type_ in self.metadata()[1]:
            edges = self.edge_types[type_]
            attributes = None if edges.edge_table is None else edges.edge_table.x_float32()
            beside = {"edge_weight": edges.edge_weights, "edge_time": edges.edge_times, "edge_attr": attributes}
            _fill(store_of(type_), edge_index=edges.edge_index(), **beside)
        masks = {mask: np.zeros(len(self.y), bool) for mask in MASKS}
        for name, is_in_split in zip(SPLITS, masks.values(), strict=True):
            is_in_split[getattr(self, name)] = True
        _fill(store_of(self.target), y=self.y, **masks)


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


def feature_table(
    folder: Path, num_rows: int, features: dict[str, Any] | None, row_source: tuple[str, bool], kind: type[AnyTable]
) -> AnyTable:
    """The rows that meta.json describes by `features`; None: there are none.

    Args:
        row_source: the file of encoded rows ("": none), and whether there are raw ones.
    """
    if features is None:
        return kind(num_rows, None, None)
    encoded_rows, has_raw = row_source
    file = folder / features["file"]
    return kind(
        num_rows=num_rows,
        x=map_array(file) if has_raw else None,
        feature_dtype=features["dtype"],
        encoded_rows=Path(encoded_rows) if encoded_rows else None,
        encoded_dim=0 if has_raw else features["dim"],
        file=file,
    )
