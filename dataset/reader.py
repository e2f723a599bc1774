"""Reading a data set: memory-mapped NumPy arrays."""

from __future__ import annotations

import copyreg
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.files import demand_regular
from cohort_gnn.dataset import _native
from cohort_gnn.dataset.array_file import map_array
from cohort_gnn.dataset.arrays import as_float32
from cohort_gnn.dataset.hetero import (
    FeatureTable,
    HeteroDataset,
    NodeTable,
    Relation,
    demand_raw,
    feature_table,
    fill_edges,
    fill_targets,
    read_typed,
)
from cohort_gnn.dataset.meta import META, SPLITS

FORMAT_NAME = b'"cohort-dataset"'
ARRAYS = ("indptr", "indices", "edge_weights", "edge_times", "features", "labels", *SPLITS)
SIZES = ("name", "num_nodes", "num_edges", "feature_dim", "feature_dtype", "num_classes")
OF_PYG = {f"{part}_mask": f"{part}_ids" for part in ("train", "val", "test")}
OF_PYG |= {"edge_index": "indptr and indices", "edge_weight": "edge_weights", "edge_time": "edge_times"}


@dataclass(frozen=True, eq=False)
class Dataset:
    """A data set of V nodes and E edges; the arrays are read-only and mapped from disk.

    Pickling keeps only the path: another process maps the same files. Equality is identity of objects.

    Attributes:
        indptr: int64 [V + 1], where the in-neighbours of each node start in `indices`.
        indices: int32 or int64 [E], sources of the edges into each node.
        edge_weights: float32 [E], in the order of `indices`, or None.
        edge_times: int64 [E], in the order of `indices`, ascending for each node, or None.
        edge_table: the features of edges, in the order of `indices`, or None; `edge_attr` is their array.
        x: [V, D] in `feature_dtype`; bfloat16 as its bits in uint16. None if only encoded rows exist.
        task: "classification", "regression" or "multilabel".
        y: int64 [V], -1 for nodes without a label; regression: float32 [V], NaN for none; multilabel: [V, num_classes]
            of 0 and 1, as uint8 (255: unknown) or float32 (NaN: unknown).
        train_ids, val_ids, test_ids: int64 [any].
        encoded_rows: the file of encoded rows, or None (see `cohort dataset prepare`).
        file: of the raw features, which may not exist where encoded ones do.
    """

    path: Path
    name: str
    num_nodes: int
    num_edges: int
    feature_dim: int
    feature_dtype: str
    num_classes: int
    indptr: np.ndarray
    indices: np.ndarray
    x: np.ndarray | None
    y: np.ndarray
    train_ids: np.ndarray
    val_ids: np.ndarray
    test_ids: np.ndarray
    encoded_rows: Path | None = None
    task: str = "classification"
    edge_weights: np.ndarray | None = None
    edge_times: np.ndarray | None = None
    file: Path | None = None
    edge_table: FeatureTable | None = None

    def __reduce__(self):
        return open, (self.path.absolute(),)

    def __repr__(self) -> str:
        x = "x encoded" if self.x is None else f"x {self.feature_dtype} [{self.num_nodes}, {self.feature_dim}]"
        return f"Dataset({str(self.path)!r}, {self.num_nodes:,} nodes, {self.num_edges:,} edges, {x})"

    @property
    def num_features(self) -> int:
        """`feature_dim`, as PyG calls it."""
        return self.feature_dim

    @property
    def num_node_features(self) -> int:
        """`feature_dim`, as PyG calls it."""
        return self.feature_dim

    @property
    def edge_attr(self) -> np.ndarray | None:
        """[E, D], the features of edges in their type, bfloat16 as its bits in uint16; None without, and if only
        encoded rows exist."""
        return None if self.edge_table is None else self.edge_table.x

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
        found = [self._has_edge(target, source) for source, target in pairs if source != target]
        return float(np.mean(found)) if found else 1.0

    def _has_edge(self, source: int, target: int) -> bool:
        sources = self.indices[self.indptr[target] : self.indptr[target + 1]]
        if self.edge_times is not None:  # which the order follows
            return bool(np.any(sources == source))
        place = np.searchsorted(sources, source)
        return bool(place < len(sources) and sources[place] == source)

    def to_pyg(self):
        """The whole graph as torch_geometric Data: float32 x, y, edge_index int64 [2, E], edge_weight float32 [E] or
        edge_time int64 [E] if the edges have weights or times, edge_attr float32 [E, D] if they have features, and
        three bool masks [V]."""
        import torch
        from torch_geometric.data import Data

        data = Data(x=torch.from_numpy(self.x_float32()))
        fill_edges(data, self)
        fill_targets(data, self)
        return data


def is_dataset(path: Path) -> bool:
    """Whether it is a folder whose meta.json says that it is a data set, whole or not."""
    try:
        with (path / META).open("rb") as file:
            return FORMAT_NAME in file.read(4096)
    except OSError:
        return False


def open(path: str | os.PathLike, *, prefer_raw: bool = False) -> Dataset | HeteroDataset:
    """Opens a data set after the cheap checks (existence, dtypes, shapes, sizes): a HeteroDataset if it has several
    node types.

    Args:
        prefer_raw: where there are raw features, do not look at encoded ones, which may be of an older file.

    Raises:
        CohortError: for the first thing wrong.
    """
    folder = Path(path).expanduser()
    demand_regular(folder / META)
    rows, edge_rows = _native.find_rows(os.fspath(folder), prefer_raw)
    meta = json.loads((folder / META).read_bytes())
    if "nodes" in meta:
        return read_typed(folder, meta, rows, edge_rows)
    ((encoded, has_raw),) = rows
    of_edges = meta.get("edge_features")
    files = {name: folder / meta["files"][name] for name in ARRAYS if name in meta["files"]}
    arrays: dict[str, Any] = {name: map_array(file) for name, file in files.items() if name != "features" or has_raw}
    return Dataset(
        path=folder,
        encoded_rows=Path(encoded) if encoded else None,
        file=files["features"],
        edge_table=of_edges and feature_table(folder, meta["num_edges"], of_edges, edge_rows[0], FeatureTable),
        x=arrays.pop("features", None),
        y=arrays.pop("labels"),
        task=meta.get("task", "classification"),
        **{name: meta[name] for name in SIZES},
        **arrays,
    )


def _open_typed(path: Path) -> HeteroDataset:
    data = open(path)
    assert isinstance(data, HeteroDataset)
    return data


copyreg.pickle(HeteroDataset, lambda data: (_open_typed, (data.path.absolute(),)))


def tables_of(data: Dataset | HeteroDataset) -> Sequence[Dataset | NodeTable]:
    """What has the nodes and features of each node type: of one type, the data set itself."""
    return list(data.node_types.values()) if isinstance(data, HeteroDataset) else [data]


def relations_of(data: Dataset | HeteroDataset) -> Sequence[Dataset | Relation]:
    """What has the edges of each relation: of one relation, the data set itself."""
    return list(data.edge_types.values()) if isinstance(data, HeteroDataset) else [data]


def numbered_relations(data: Dataset | HeteroDataset) -> list[tuple[Dataset | Relation, tuple[int, int]]]:
    """The same, each with the numbers of the first nodes of its source type and of its target type, when the nodes of
    all types are numbered through."""
    if isinstance(data, Dataset):
        return [(data, (0, 0))]
    first = data.first_node
    return [(edges, (first[source], first[target])) for (source, _, target), edges in data.edge_types.items()]


def has_edge_features(data: Dataset | HeteroDataset) -> bool:
    """Whether the edges of any relation have features."""
    return any(relation.edge_table is not None for relation in relations_of(data))


def open_one_type(path: str | os.PathLike, *, prefer_raw: bool = False) -> Dataset:
    """The same, for callers that support one node type alone.

    Raises:
        CohortError: for the first thing wrong, and for a data set of several node types.
    """
    data = open(path, prefer_raw=prefer_raw)
    if isinstance(data, HeteroDataset):
        count = len(data.node_types)
        sort = "one of version 3, with 1 node type" if count == 1 else f"{count} node types"
        found = f"{sort}: {', '.join(data.node_types)}"
        hint = "several node types are not supported here yet"
        raise CohortError(str(data.path), "a data set of one node type", found, hint)
    return data
