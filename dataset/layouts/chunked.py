"""DGL's chunked format, which GraphStorm writes too: metadata.json that names the chunks of edges and of node data."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec
import numpy as np

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset import arrays
from cohort_gnn.dataset.array_file import ArrayFile, open_npy
from cohort_gnn.dataset.arrays import MASKS
from cohort_gnn.dataset.layouts.graph import Graph, Nodes, Target, by_relation, relation_of, splits_in
from cohort_gnn.dataset.layouts.streams import Edges, Labels, Rows
from cohort_gnn.dataset.structured import file_beside, read_structured
from cohort_gnn.dataset.tables.arrow_table import ParquetFile
from cohort_gnn.dataset.tables.table import TableFile
from cohort_gnn.dataset.tables.text_file import TextFile
from cohort_gnn.dataset.tables.text_options import TextOptions

METADATA = "metadata.json"
FEATURES, LABELS = ("feat", "features", "x"), ("label", "labels", "y")
HINT = "see FORMAT.md for what is read of DGL's chunked format"


class Format(msgspec.Struct):
    name: str
    delimiter: str = " "


class Chunks(msgspec.Struct):
    format: Format
    data: list[str]


class ChunkedMetadata(msgspec.Struct):
    """The file; of a node type it has the number of nodes, or, in older versions, that of each chunk."""

    node_type: list[str]
    edge_type: list[str]
    edges: dict[str, Chunks]
    node_data: dict[str, dict[str, Chunks]] = {}
    edge_data: dict[str, dict[str, Chunks]] = {}
    graph_name: str | None = None
    num_nodes_per_type: list[int] | None = None
    num_nodes_per_chunk: list[list[int]] | None = None


def read_chunked(source: Path) -> Graph:
    """The graph of a folder with metadata.json, with the features, labels and masks of its nodes."""
    path = source / METADATA if source.is_dir() else source
    meta = read_structured(path, "JSON", ChunkedMetadata, "the metadata of a chunked graph", HINT)
    counts = _counts(path, meta)
    return Graph(
        name=meta.graph_name or path.parent.resolve().name,
        place=str(path),
        nodes={
            type_: Nodes(count, _features(path, type_, "node_data", meta.node_data)) for type_, count in counts.items()
        },
        edges=by_relation(
            str(path), ((relation_of(str(path), key, ":"), _edges(path, key, meta)) for key in meta.edge_type)
        ),
        targets={type_: _target(path, data) for type_, data in meta.node_data.items() if set(LABELS) & set(data)},
        any_task=True,
    )


def _counts(path: Path, meta: ChunkedMetadata) -> dict[str, int]:
    """The nodes of each type."""
    counts, key = meta.num_nodes_per_type, "num_nodes_per_type"
    if counts is None:
        counts, key = [sum(parts) for parts in meta.num_nodes_per_chunk or []], "num_nodes_per_chunk"
    if not len(set(meta.node_type)) == len(meta.node_type) == len(counts):
        actual = f"{len(counts)} for {', '.join(meta.node_type)}"
        raise CohortError(f"{path}: {key}", "one entry for each node type, of which none comes twice", actual, HINT)
    return dict(zip(meta.node_type, counts, strict=True))


def _target(path: Path, data: dict[str, Chunks]) -> Target:
    """The labels of a node type, and its masks."""
    label = next(data[name] for name in LABELS if name in data)
    labels = Labels(f"{path}: labels", partial(_array, path, label))
    masks = {name: partial(_mask, path, name, data[name]) for name in MASKS if name in data}
    return Target(labels, *splits_in(path, masks, MASKS)) if masks else Target(labels)


def _edges(path: Path, key: str, meta: ChunkedMetadata) -> Edges:
    if key not in meta.edges:
        raise CohortError(f"{path}: edges", f"the relation {key}", ", ".join(meta.edges) or "none", HINT)
    chunks, place = meta.edges[key], f"{path}: edges of {key}"
    parts = [
        Edges.from_pairs(part, rows=True) if isinstance(part, ArrayFile) else Edges.from_table(part, (0, 1))
        for part in _parts(path, chunks)
    ]
    return replace(Edges.from_parts(place, parts), features=_features(path, key, "edge_data", meta.edge_data))


def _parts(path: Path, chunks: Chunks) -> list[ArrayFile | TableFile]:
    """The files of an array."""
    files, form = [file_beside(f"{path}: data", path, file) for file in chunks.data], chunks.format
    if form.name == "numpy":
        return [open_npy(file) for file in files]
    if form.name not in ("csv", "parquet"):
        raise CohortError(str(path), "chunks of format numpy, parquet or csv", form.name, HINT)
    options = TextOptions(form.delimiter, "no")
    return [ParquetFile(file) if form.name == "parquet" else TextFile(file, options) for file in files]


def _features(path: Path, type_: str, member: str, data: dict[str, dict[str, Chunks]]) -> Rows | None:
    """The feature called as usual, or the only thing that is neither label nor mask."""
    there = data.get(type_, {})
    others = [name for name in there if name not in (*LABELS, *MASKS)]
    chosen = [name for name in FEATURES if name in there] or others
    if not chosen:
        return None
    if len(chosen) > 1:
        expected = f"one feature of {type_}, or one of {', '.join(FEATURES)}"
        raise CohortError(f"{path}: {member}", expected, ", ".join(others), HINT)
    parts = _parts(path, there[chosen[0]])
    rows = [Rows.from_file(part) if isinstance(part, ArrayFile) else Rows.from_table(part) for part in parts]
    return Rows.from_parts(f"{path}: {chosen[0]} of {type_}", rows)


def _array(path: Path, chunks: Chunks) -> np.ndarray:
    """A small array, such as labels."""
    parts = [part.read() for part in _parts(path, chunks)]
    return np.concatenate([part.reshape(len(part), -1) for part in parts]) if parts else np.empty((0, 1), np.int64)


def _mask(path: Path, name: str, chunks: Chunks) -> np.ndarray:
    return arrays.mask(f"{path}: {name}", _array(path, chunks).reshape(-1), name)
