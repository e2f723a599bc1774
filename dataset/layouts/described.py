"""A YAML file that names the tables and arrays of node types and relations; paths are relative to its folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import numpy as np

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset.array_file import open_npy
from cohort_gnn.dataset.layouts import tables
from cohort_gnn.dataset.layouts.graph import Graph, Nodes, Target, by_relation
from cohort_gnn.dataset.layouts.node_ids import MIN_BLOCK, NodeIds, with_ids
from cohort_gnn.dataset.layouts.streams import Edges, Labels, Rows, Weights
from cohort_gnn.dataset.structured import file_beside, read_structured
from cohort_gnn.dataset.tables.column_names import LABELS, edge_columns, is_id_name
from cohort_gnn.dataset.tables.first_line import EDGE_LISTS, kind_suffix
from cohort_gnn.dataset.tables.known_files import demand_unknown
from cohort_gnn.dataset.tables.table import TableFile
from cohort_gnn.dataset.tables.text_options import NONE, SEPARATORS, TextOptions, Wanted

DESCRIPTION = "graph.yaml"
HINT = "dataset/FORMAT.md lists the keys, under graph.yaml; docs/how-to/types.md has an example"
PARTS = {"train": 0, "val": 1, "valid": 1, "validation": 1, "test": 2, "": -1, "none": -1}
SOURCE_CURE = "source: A, target: B"


class Text(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """How a file is read, where its name and its first line leave it open: as the options of these names."""

    format: str | None = None
    separator: str | None = None
    header: bool | str = "auto"
    comment: str | None = None

    def options(self, place: str) -> TextOptions:
        separator = self.separator if self.separator is None else SEPARATORS.get(self.separator, self.separator)
        header = self.header if isinstance(self.header, str) else "yes" if self.header else "no"
        for key, value, fits, expected in (
            ("format", self.format, self.format in (None, "npy", *tables.TABLES), "csv, parquet, arrow or npy"),
            ("separator", separator, separator is None or len(separator) == 1, "one character, or its name"),
            ("header", header, header in ("auto", "yes", "no"), "yes or no"),
        ):
            if not fits:
                raise CohortError(f"{place}.{key}", expected, repr(value), HINT)
        return TextOptions(separator, header, self.comment, in_yaml=True)


class FileOf(Text, forbid_unknown_fields=True, kw_only=True):
    """A file of rows, of labels, of ids or of numbers of edges, and how it is read.

    Attributes:
        columns: of a table, those that are read; default: all.
        dtype: of a .npy file of uint16: "bfloat16" or "float32".
        id: "none": no column of the table has ids.
    """

    file: str
    columns: list[str] | None = None
    dtype: str | None = None
    id: str | None = None


class NodesOf(Text, forbid_unknown_fields=True, kw_only=True):
    """A node type.

    Attributes:
        file: table with a row for each node.
        id: its column of ids, integers or texts; without it, or with "none", row i is node i.
        count: the number of nodes, where neither a table nor features say it.
        features: columns of the table, or a file of rows.
        label: column (or columns) of the table, or a file.
        split: column of the table with train, val, test or nothing; or three files of ids.
    """

    file: str | None = None
    id: str | None = None
    count: Annotated[int, msgspec.Meta(ge=1, le=2**32)] | None = None
    features: str | list[str] | FileOf | None = None
    label: str | list[str] | FileOf | None = None
    split: str | list[str | FileOf] | None = None


class EdgesOf(Text, forbid_unknown_fields=True, kw_only=True):
    """A relation: its type, its table or .npy file, the columns of sources and targets, its weights or times: a column
    of the table, or a file; the features of its edges: columns of the table, or a file of rows; and the type of the
    relation that it is the reverse of, or "none"."""

    type: tuple[str, str, str]
    file: str
    source: str | None = None
    target: str | None = None
    weight: str | FileOf | None = None
    time: str | FileOf | None = None
    features: str | list[str] | FileOf | None = None
    reverse_of: tuple[str, str, str] | Literal["none"] | None = None


class Description(msgspec.Struct, forbid_unknown_fields=True):
    """The file; `target` is the node type to learn, where none or more than one has labels."""

    nodes: dict[str, NodesOf]
    edges: list[EdgesOf]
    name: str | None = None
    target: str | None = None


def read_described(source: Path) -> Graph:
    """The graph that a YAML file, or graph.yaml in a folder, describes."""
    path = source / DESCRIPTION if source.is_dir() else source
    return described_graph(path, read_structured(path, "YAML", Description, "nodes and edges of a graph", HINT))


def described_graph(path: Path, found: Description) -> Graph:
    """The graph of a description, whose files are in the folder of ``path``."""
    nodes = {type_: _NodeFiles(path, type_, of) for type_, of in found.nodes.items()}
    ids = {type_: files.ids for type_, files in nodes.items() if files.ids is not None}
    return Graph(
        name=found.name or (path.stem if path.name != DESCRIPTION else path.parent.resolve().name),
        place=str(path),
        nodes={type_: Nodes(files.num_nodes, files.features) for type_, files in nodes.items()},
        edges=by_relation(str(path), ((edges.type, _edges(path, edges, ids)) for edges in found.edges)),
        target=found.target or "",
        targets={type_: Target(files.labels(), files.splits(), path.name) for type_, files in nodes.items()},
        any_task=True,
        id_bytes=sum(each.nbytes for each in ids.values()),
        reverse_of={
            edges.type: edges.reverse_of if isinstance(edges.reverse_of, tuple) else None
            for edges in found.edges
            if edges.reverse_of is not None
        },
    )


class _NodeFiles:
    """What the files of a node type say."""

    def __init__(self, path: Path, type_: str, of: NodesOf):
        self._place, self._of, self._files = f"{path}: nodes.{type_}", of, _Files(path)
        self._options = of.options(self._place)
        self._table = self._open_table()
        self.ids: NodeIds | None = None
        if of.id not in (None, NONE):
            table = self._demand_table("id")
            self.ids = NodeIds(type_, table, table.choose([of.id])[0])
        elif self._table is not None:
            tables.demand_part_order(self._table)
        if of.id is None and self._table is not None:
            chosen = self._table.choose(self._columns())
            others = [i for i in range(len(self._table.titles)) if i not in chosen]
            tables.demand_order(self._table, others, self._options)
        self.features = self._features()
        self.num_nodes = self._num_nodes()

    def _columns(self) -> list[str]:
        """The columns of features and labels, as far as they are in the table, each once."""
        of = self._of
        label = [of.label] if isinstance(of.label, str) and not of.label.endswith(".npy") else of.label
        split = [of.split] if isinstance(of.split, str) else []
        lists = [each for each in (of.features, label) if isinstance(each, list)]
        return list(dict.fromkeys(name for names in (*lists, split) for name in names))

    def _open_table(self) -> TableFile | None:
        of = self._of
        if of.file is None:
            return None
        named = [name for name in (*self._columns(), of.id) if name not in (None, NONE)]
        texts = (of.id, of.split)  # say nothing about the first line
        ends = (end for name in named if name not in texts for end in name.split(":", 1))
        wanted = Wanted(named, [int(end) for end in ends if end.isdecimal()]) if named else Wanted()
        return tables.open_table(self._files.path_of(self._place, of.file), self._options, wanted, of.format)

    def _demand_table(self, member: str) -> TableFile:
        if self._table is None:
            raise CohortError(f"{self._place}.{member}", "a file that has the column", "no file", HINT)
        return self._table

    def _chosen(self, member: str, columns: Sequence[str]) -> tuple[TableFile, list[int]]:
        """The table for reading these columns, and their numbers."""
        if not columns:
            raise CohortError(f"{self._place}.{member}", "at least one column", "none", f"leave {member} out")
        table = self._demand_table(member)
        return table, table.choose(columns)

    def _features(self) -> Rows | None:
        found = self._of.features
        if found is None:
            return None
        if isinstance(found, list):
            return Rows.of_table(*self._chosen("features", found))
        return self._files.rows(f"{self._place}.features", found)

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
        return self._table.count()

    def labels(self) -> Labels | None:
        found = self._of.label
        if found is None:
            return None
        if isinstance(found, str) and found.endswith(".npy"):
            found = FileOf(file=found)
        if isinstance(found, FileOf):
            path = self._files.path_of(f"{self._place}.label", found.file)
            if tables.kind_of(path) == "npy" or found.format == "npy":
                return Labels(str(path), open_npy(path).read)
            table, numbers = self._files.table(f"{self._place}.label", found)
        else:
            table, numbers = self._chosen("label", [found] if isinstance(found, str) else found)
        return Labels.of_table(table, numbers, several=True)

    def splits(self) -> Callable[[], list[np.ndarray]] | None:
        found = self._of.split
        if found is None:
            return None
        if isinstance(found, str):
            table = self._demand_table("split")
            column = table.choose([found])[0]
            return lambda: _parts(table, column)
        given = [FileOf(file=each) if isinstance(each, str) else each for each in found]
        if len(given) != 3:
            names = ", ".join(each.file for each in given)
            raise CohortError(f"{self._place}.split", "a column, or files of train, val and test", names, HINT)
        place = f"{self._place}.split"
        return lambda: [tables.read_ids(self._files.path_of(place, each.file), each.options(place)) for each in given]


class _Files:
    """The files that a description names, in its folder."""

    def __init__(self, path: Path):
        self._path = path

    def path_of(self, place: str, file: str) -> Path:
        """Raises CohortError for a file outside the folder."""
        return file_beside(place, self._path, file)

    def table(self, place: str, of: FileOf) -> tuple[TableFile, list[int]]:
        """A table, and its columns that are read."""
        options = of.options(place)
        table = tables.open_table(self.path_of(place, of.file), options, Wanted(of.columns), of.format)
        numbers = table.choose(of.columns)
        if not numbers:
            raise CohortError(str(table.path), "at least one column", "none", HINT)
        tables.demand_part_order(table)
        if of.id is None and of.columns is not None:
            tables.demand_order(table, [i for i in range(len(table.titles)) if i not in numbers], options)
        return table, numbers

    def rows(self, place: str, found: str | FileOf) -> Rows:
        """The rows of a file."""
        of = FileOf(file=found) if isinstance(found, str) else found
        path = self.path_of(place, of.file)
        kind = of.format or tables.kind_of(path)
        if kind not in ("npy", *tables.TABLES):
            demand_unknown(path, "a list of columns, or a .npy, .csv or .parquet file")
            raise CohortError(place, "a list of columns, or a .npy, .csv or .parquet file", path.name, HINT)
        if kind == "npy":
            return tables.rows_of_npy(open_npy(path), of.dtype, "dtype: ")
        table, numbers = self.table(place, of)
        if of.columns is not None:
            return Rows.of_table(table, numbers)
        if odd := [name for name in table.titles if is_id_name(name) or name.lower() in LABELS]:
            hint = "name the table as file, and as features the list of its columns that are"
            raise CohortError(
                f"{place}: {path.name}", "only columns of features", f"{' and '.join(odd)} among them", hint
            )
        if of.id is None:
            tables.demand_only_features(table, of.options(place))
        return Rows.of_table(table)

    def numbers(self, place: str, found: str | FileOf, table: TableFile | None, are_times: bool) -> Weights:
        """The weights or times of a relation's edges: a column of its table, or a file."""
        if isinstance(found, FileOf):
            return tables.read_weights(self.path_of(place, found.file), are_times, found.options(place))
        if found.endswith(".npy"):
            return tables.read_weights(self.path_of(place, found), are_times)
        if table is None:
            raise CohortError(place, "a .npy file, for edges without a table", found, HINT)
        return Weights.of_table(table, table.choose([found])[0], are_times)


def _parts(table: TableFile, column: int) -> list[np.ndarray]:
    """bool [V] of train, val and test."""
    parts = []
    for (texts,), _ in table.texts([column], MIN_BLOCK, nulls=True):
        for names in texts.dictionary_encode().chunks:
            numbers = []
            for name in names.dictionary.to_pylist():
                if str(name).lower() not in PARTS:
                    raise CohortError(table.place(column), "train, val, test or nothing", repr(name))
                numbers.append(PARTS[str(name).lower()])
            indices = names.indices.fill_null(len(numbers)).to_numpy(zero_copy_only=False)
            parts.append(np.array([*numbers, -1])[indices])
    found = np.concatenate(parts) if parts else np.empty(0, np.int64)
    return [found == part for part in range(3)]


def _edges(path: Path, found: EdgesOf, ids: dict[str, NodeIds]) -> Edges:
    files, place = _Files(path), f"{path}: {', '.join(found.type)}"
    file, options = files.path_of(place, found.file), found.options(place)
    of = [ids.get(found.type[0]), ids.get(found.type[2])]
    if (found.source is None) != (found.target is None):
        raise CohortError(place, "source and target, or neither", "one of the two", HINT)
    table: TableFile | None = None
    ends: Sequence[int] = ()
    if (found.format or tables.kind_of(file)) == "npy":
        edges = tables.read_edges(file, None, options, kind="npy")
    else:
        table = tables.open_table(file, options, _wanted(found, of), found.format)
        ends = _ends(table, found)
        edges = Edges.of_table(table, ends)
    edges = with_ids(edges, table, ends, of) if any(of) else edges
    weights, times = (
        None if given is None else files.numbers(place, given, table, are_times)
        for given, are_times in ((found.weight, False), (found.time, True))
    )
    return replace(edges, weights=weights, times=times, features=_edge_rows(files, place, found, table))


def _wanted(found: EdgesOf, of: Sequence[NodeIds | None]) -> Wanted:
    """What is read of a relation's table; ends that are texts do not tell a row from names."""
    columns = None if found.source is None else [found.source, str(found.target)]
    beside = [given for given in (found.weight, found.time) if isinstance(given, str) and not given.endswith(".npy")]
    beside += found.features if isinstance(found.features, list) else []
    wanted = tables.wanted_of_edges(columns, beside, (found.type[0], found.type[2]))
    texts = [ids is not None and ids.is_text for ids in of]
    numbers = [number for number, is_text in zip(columns or ("0", "1"), texts, strict=True) if not is_text]
    judged = tuple(int(number) for number in numbers if number.isdecimal())
    return replace(wanted, numbers=judged, edges=not any(texts))


def _ends(table: TableFile, found: EdgesOf) -> Sequence[int]:
    """The columns of sources and of targets."""
    if len(table.titles) < 2:
        hint = "each line has a source and a target; separator: says what is between them"
        raise CohortError(str(table.path), "lines of at least two fields", f"{len(table.titles)}", hint)
    if found.source is not None:
        return table.choose([found.source, str(found.target)])
    return edge_columns(table, SOURCE_CURE, kind_suffix(table.path) in EDGE_LISTS, (found.type[0], found.type[2]))


def _edge_rows(files: _Files, place: str, found: EdgesOf, table: TableFile | None) -> Rows | None:
    if found.features is None:
        return None
    if not isinstance(found.features, list):
        return files.rows(f"{place}: features", found.features)
    if table is None:
        raise CohortError(f"{place}: features", "a file, for edges without a table", "columns", HINT)
    if not found.features:
        raise CohortError(f"{place}: features", "at least one column", "none", "leave features out")
    return Rows.of_table(table, table.choose(found.features))
