"""Writing a data set of several node types: version 3 of the format."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cohort.base.errors import CohortError
from cohort.dataset import _native, arrays
from cohort.dataset.hetero import NodeTable, RelationType
from cohort.dataset.writer import SPLITS, coo_to_csc, demand_no_problem, output_folder

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True)
class Edges:
    """The edges of one relation in any order: node src[i] of the source type -> node dst[i] of the target type.

    Attributes:
        src, dst: integers [E] each.
        reverse_of: the relation that has the same edges in the other direction.
    """

    src: np.ndarray
    dst: np.ndarray
    reverse_of: RelationType | None = None


def write_typed(
    out: str | os.PathLike,
    *,
    nodes: Mapping[str, NodeTable],
    edges: Mapping[RelationType, Edges],
    target: str,
    labels: np.ndarray,
    splits: Sequence[np.ndarray],
    num_classes: int | None = None,
    task: str = "classification",
    name: str | None = None,
    overwrite: bool = False,
) -> None:
    """Writes a data set of several node types; nothing appears when something is wrong with it.

    Args:
        edges: by (source type, name, target type); written in the order of their source types.
        target: the node type of `labels`, `splits`, `num_classes` and `task`, which are as for ``write_dataset``.
    """
    for part in [*nodes, *(part for type_ in edges for part in type_)]:
        demand_name(part)
    numbers = {type_: number for number, type_ in enumerate(nodes)}
    for type_ in edges:
        for end in (type_[0], type_[2]):
            if end not in numbers:
                raise CohortError(", ".join(type_), f"one of the node types {', '.join(nodes)}", end)
    order = sorted(edges, key=lambda type_: numbers[type_[0]])
    of_labels = arrays.num_outputs(labels)
    with output_folder(out, overwrite) as written:
        folder = Path(written.path)
        node_types = [_write_nodes(folder, type_, table) for type_, table in nodes.items()]
        edge_types = [_write_edges(folder, type_, edges[type_], nodes, order) for type_ in order]
        write_meta(
            folder,
            name=name or Path(written.out).name,
            nodes=node_types,
            edges=edge_types,
            target=target,
            task=task,
            labels=labels,
            splits=splits,
            num_classes=of_labels if num_classes is None or task != "classification" else int(num_classes),
        )
        demand_no_problem(out, folder)


def missing_reverses(relations: Collection[RelationType]) -> dict[RelationType, RelationType]:
    """The relations ("b", "rev_NAME", "a") that are missing in the other direction, and which each reverses."""
    there, out = set(relations), {}
    for source, name, target in relations:
        is_reverse = name.startswith("rev_") and (target, name.removeprefix("rev_"), source) in there
        reverse = (target, f"rev_{name}", source)
        if not is_reverse and reverse not in there:
            out[reverse] = (source, name, target)
    return out


def edge_type(
    relation: RelationType, num_edges: int, relations: Sequence[RelationType], reverse_of: RelationType | None
) -> _native.EdgeType:
    """What meta.json says of a relation; `relations` in the order in which they are written."""
    file, number = ".".join(relation), -1 if reverse_of is None else relations.index(reverse_of)
    return _native.EdgeType(relation, num_edges, f"{file}.indptr.npy", f"{file}.indices.npy", number)


def write_meta(
    folder: Path,
    *,
    name: str,
    nodes: Sequence[_native.NodeType],
    edges: Sequence[_native.EdgeType],
    target: str,
    task: str,
    labels: np.ndarray,
    splits: Sequence[np.ndarray],
    num_classes: int,
) -> None:
    """Writes the labels and splits of the target type, and meta.json."""
    files = {part: f"{target}.{part}.npy" for part in ("labels", *SPLITS)}
    np.save(folder / files["labels"], labels)
    for split, ids in zip(SPLITS, splits, strict=True):
        np.save(folder / files[split], np.asarray(ids, dtype=np.int64))
    _native.write_typed_meta(
        folder,
        name=name,
        nodes=nodes,
        edges=edges,
        target_type=[type_.name for type_ in nodes].index(target),
        task=task,
        label_dtype=labels.dtype.name,
        num_classes=num_classes,
        files=list(files.values()),
    )


def demand_name(name: str) -> None:
    """Raises CohortError for a name that no type or relation may have; it becomes a part of file names."""
    if not NAME.fullmatch(name):
        raise CohortError("node and edge types", "names of 1 to 64 letters, digits, _ and -", repr(name), "rename it")


def _write_nodes(folder: Path, type_: str, table: NodeTable) -> _native.NodeType:
    if table.x is None or table.feature_dtype is None:
        return _native.NodeType(type_, table.num_nodes, 0, "float32", "")
    file = f"{type_}.features.npy"
    np.save(folder / file, table.x)
    return _native.NodeType(type_, table.num_nodes, table.x.shape[1], table.feature_dtype, file)


def _write_edges(
    folder: Path, type_: RelationType, edges: Edges, nodes: Mapping[str, NodeTable], order: list[RelationType]
) -> _native.EdgeType:
    num_sources, num_targets = nodes[type_[0]].num_nodes, nodes[type_[2]].num_nodes
    place = ", ".join(type_)
    _demand_nodes(f"{place}: src", edges.src, type_[0], num_sources)
    _demand_nodes(f"{place}: dst", edges.dst, type_[2], num_targets)
    indptr, indices = coo_to_csc(edges.src, edges.dst, max(num_sources, num_targets))
    file = ".".join(type_)
    np.save(folder / f"{file}.indptr.npy", indptr[: num_targets + 1])
    np.save(folder / f"{file}.indices.npy", indices)
    return edge_type(type_, len(indices), order, edges.reverse_of)


def _demand_nodes(place: str, ids: np.ndarray, type_: str, num_nodes: int) -> None:
    bad = np.flatnonzero((ids < 0) | (ids >= num_nodes))
    if len(bad):
        found = f"{ids[bad[0]]}" + (f" ({len(bad)} such places)" if len(bad) > 1 else "")
        hint = f"nodes of a type are numbered from 0, and there are {num_nodes} of type {type_}"
        raise CohortError(f"{place}[{bad[0]}]", f"a node of type {type_} in [0, {num_nodes})", found, hint)
