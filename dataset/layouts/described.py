"""A YAML file that names the tables and arrays of node types and relations; paths are relative to its folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset.array_file import open_npy
from cohort_gnn.dataset.layouts import tables
from cohort_gnn.dataset.layouts.graph import Edges, Labels, Rows, Weights
from cohort_gnn.dataset.layouts.node_ids import MIN_BLOCK, NodeIds, text_columns, with_ids
from cohort_gnn.dataset.layouts.parquet_file import ParquetFile
from cohort_gnn.dataset.layouts.table import NO_FEATURES, Table
from cohort_gnn.dataset.layouts.text_file import TextOptions
from cohort_gnn.dataset.layouts.typed import Nodes, Target, TypedGraph, by_relation
from cohort_gnn.dataset.reverses import NO_REVERSE
from cohort_gnn.dataset.structured import read_structured

DESCRIPTION = "graph.yaml"
HINT = "dataset/FORMAT.md lists the keys, under graph.yaml; docs/how-to/types.md has an example"
WITH_HEADER = TextOptions(header="yes")
PARTS = {"train": 0, "val": 1, "valid": 1, "validation": 1, "test": 2, "": -1, "none": -1}


class NodesOf(msgspec.Struct, forbid_unknown_fields=True):
    """A node type.

    Attributes:
        file: table with a row for each node.
        id: its column of ids, integers or texts; without it, row i is node i.
        count: the number of nodes, where neither a table nor features say it.
        features: columns of the table, or a file of rows.
        label: column (or columns) of the table, or a .npy file.
        split: column of the table with train, val, test or nothing; or three files of ids.
    """

    file: str | None = None
    id: str | None = None
    count: int | None = None
    features: str | list[str] | None = None
    label: str | list[str] | None = None
    split: str | list[str] | None = None


class EdgesOf(msgspec.Struct, forbid_unknown_fields=True):
    """A relation: its type, its table or .npy file, the columns of sources and targets, its weights or times: a column
    of the table, or a .npy file; the features of its edges: columns of the table, or a file of rows; and the type of
    the relation that it is the reverse of, or "none"."""

    type: tuple[str, str, str]
    file: str
    source: str | None = None
    target: str | None = None
    weight: str | None = None
    time: str | None = None
    features: str | list[str] | None = None
    reverse_of: tuple[str, str, str] | Literal["none"] | None = None


class Description(msgspec.Struct, forbid_unknown_fields=True):
    """The file; `target` is the node type to learn, where none or more than one has labels."""

    nodes: dict[str, NodesOf]
    edges: list[EdgesOf]
    name: str | None = None
    target: str | None = None


def read_described(source: Path) -> TypedGraph:
    """The graph that a YAML file, or graph.yaml in a folder, describes."""
    path = source / DESCRIPTION if source.is_dir() else source
    found = read_structured(path, "YAML", Description, "nodes and edges of a graph", HINT)
    nodes = {type_: _NodeFiles(path, type_, of) for type_, of in found.nodes.items()}
    ids = {type_: files.ids for type_, files in nodes.items() if files.ids is not None}
    return TypedGraph(
        name=found.name or (path.stem if path.name != DESCRIPTION else path.parent.resolve().name),
        place=str(path),
        nodes={type_: Nodes(files.num_nodes, files.features) for type_, files in nodes.items()},
        edges=by_relation(str(path), ((edges.type, _edges(path, edges, ids)) for edges in found.edges)),
        target=found.target or "",
        targets={type_: Target(files.labels(), files.splits(), path.name) for type_, files in nodes.items()},
        any_task=True,
        id_bytes=sum(each.nbytes for each in ids.values()),
        reverse_of={
            edges.type: None if edges.reverse_of == NO_REVERSE else edges.reverse_of
            for edges in found.edges
            if isinstance(edges.reverse_of, tuple | str)
        },
    )


class _NodeFiles:
    """What the files of a node type say."""

    def __init__(self, path: Path, type_: str, of: NodesOf):
        self._place, self._of, self._folder = f"{path}: nodes.{type_}", of, path.parent
        self._table: Table | None = None if of.file is None else tables.open_table(path.parent / of.file, WITH_HEADER)
        self.ids: NodeIds | None = None
        if of.id is not None:
            table = self._demand_table("id")
            self.ids = NodeIds(type_, table, table.choose([of.id])[0])
        self.features = self._features()
        self.num_nodes = self._num_nodes()

    def _demand_table(self, member: str) -> Table:
        if self._table is None:
            raise CohortError(f"{self._place}.{member}", "a file that has the column", "no file", HINT)
        return self._table

    def _columns(self, member: str, columns: Sequence[str]) -> tuple[Table, list[int]]:
        """The table for reading these columns, and their numbers."""
        table = self._demand_table(member)
        return table, table.choose(columns)

    def _features(self) -> Rows | None:
        found = self._of.features
        if found is None:
            return None
        if isinstance(found, str):
            return _rows_in(f"{self._place}.features", self._folder / found)
        return Rows.of_table(*self._columns("features", found))

    def _num_nodes(self) -> int | None:
        count = self._of.count
        if self.ids is not None and count not in (None, self.ids.num_nodes):
            expected = f"{self.ids.num_nodes} nodes, one per id"
            raise CohortError(f"{self._place}.count", expected, str(count), "leave count out where there is a table")
        if self.ids is not None:
            return self.ids.num_nodes
        if count is not None:
            return count
        if self.features is not None:
            return None
        if self._table is None:
            raise CohortError(self._place, "a file, features or a count", "none of them", HINT)
        if isinstance(self._table, ParquetFile):
            return self._table.num_rows
        return sum(len(batch[0]) for batch, _ in text_columns(self._table, [0], MIN_BLOCK, nulls=True))

    def labels(self) -> Labels | None:
        found = self._of.label
        if isinstance(found, str) and found.endswith(".npy"):
            return Labels(str(self._folder / found), open_npy(self._folder / found).read)
        if found is None:
            return None
        table, numbers = self._columns("label", [found] if isinstance(found, str) else found)
        return Labels(
            f"{table.path}: column {', '.join(table.titles[i] for i in numbers)}", lambda: table.read(numbers)
        )

    def splits(self) -> Callable[[], list[np.ndarray]] | None:
        found = self._of.split
        if found is None:
            return None
        if isinstance(found, list):
            if len(found) != 3:
                raise CohortError(f"{self._place}.split", "a column, or files of train, val and test", ", ".join(found))
            return tables.splits_of([self._folder / file for file in found])
        table = self._demand_table("split")
        column = table.choose([found])[0]
        return lambda: _parts(table, column)


def _rows_in(place: str, path: Path) -> Rows:
    """The rows of a file."""
    kind = tables.kind_of(path)
    if kind not in ("npy", "csv", "parquet"):
        raise CohortError(place, "a list of columns, or a .npy, .csv or .parquet file", path.name, HINT)
    if kind == "npy":
        return tables.read_rows(path)
    table = tables.open_table(path, WITH_HEADER)
    if odd := [name for name in table.titles if name.lower() in NO_FEATURES]:
        hint = "name the table as file, and as features the list of its columns that are"
        raise CohortError(f"{place}: {path.name}", "only columns of features", f"{' and '.join(odd)} among them", hint)
    return Rows.of_table(table)


def _parts(table: Table, column: int) -> list[np.ndarray]:
    """bool [V] of train, val and test."""
    parts = []
    for (texts,), _ in text_columns(table, [column], MIN_BLOCK, nulls=True):
        names = texts.dictionary_encode()
        numbers = []
        for name in names.dictionary.to_pylist():
            if str(name).lower() not in PARTS:
                place = f"{table.path}: column {table.titles[column]}"
                raise CohortError(place, "train, val, test or nothing", repr(name))
            numbers.append(PARTS[str(name).lower()])
        parts.append(np.array([*numbers, -1])[names.indices.fill_null(len(numbers)).to_numpy(zero_copy_only=False)])
    found = np.concatenate(parts) if parts else np.empty(0, np.int64)
    return [found == part for part in range(3)]


def _edges(path: Path, found: EdgesOf, ids: dict[str, NodeIds]) -> Edges:
    file = path.parent / found.file
    of = [ids.get(found.type[0]), ids.get(found.type[2])]
    given = [found.source, found.target]
    if None in given and given != [None, None]:
        raise CohortError(f"{path}: {', '.join(found.type)}", "source and target, or neither", "one of the two", HINT)
    options = TextOptions(header="yes", columns=None if found.source is None else [found.source, str(found.target)])
    edges = tables.read_edges(file, None, options)
    table = None if tables.kind_of(file) == "npy" else tables.open_table(file, WITH_HEADER)
    ends = [] if table is None else table.choose(edges.ends)
    edges = with_ids(edges, table, ends, of) if any(of) else edges
    weights, times = _numbers(path, found, found.weight, False), _numbers(path, found, found.time, True)
    return replace(edges, weights=weights, times=times, features=_edge_rows(path, found, table))


def _edge_rows(path: Path, found: EdgesOf, table: Table | None) -> Rows | None:
    place = f"{path}: features of {', '.join(found.type)}"
    if found.features is None:
        return None
    if isinstance(found.features, str):
        return _rows_in(place, path.parent / found.features)
    if table is None:
        raise CohortError(place, "a file, for edges without a table", "columns", HINT)
    return Rows.of_table(table, table.choose(found.features))


def _numbers(path: Path, found: EdgesOf, given: str | None, are_times: bool) -> Weights | None:
    """The weights of a relation's edges, or their times, where they are given."""
    if given is None:
        return None
    if given.endswith(".npy"):
        return tables.read_weights(path.parent / given, are_times)
    table = tables.open_table(path.parent / found.file, WITH_HEADER)
    return Weights.of_table(table, table.choose([given])[0], are_times)
