"""A YAML file that names the tables and arrays of node types and relations; paths are relative to its folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import numpy as np

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset.columns import Column
from cohort_gnn.dataset.layouts import tables
from cohort_gnn.dataset.layouts.graph import Graph, Nodes, Target, by_relation
from cohort_gnn.dataset.layouts.node_ids import MIN_BLOCK, NodeIds, with_ids
from cohort_gnn.dataset.layouts.streams import Edges, Labels, Rows, Weights
from cohort_gnn.dataset.layouts.tensor_files import ARRAYS, names_array, open_array
from cohort_gnn.dataset.structured import file_beside, read_structured
from cohort_gnn.dataset.tables.classes import EqualTo, relation_codes
from cohort_gnn.dataset.tables.column_names import LABELS, edge_columns, is_id_name
from cohort_gnn.dataset.tables.encoding import DeclaredColumns
from cohort_gnn.dataset.tables.first_line import EDGE_LISTS, kind_suffix
from cohort_gnn.dataset.tables.known_files import demand_unknown
from cohort_gnn.dataset.tables.table import TableFile
from cohort_gnn.dataset.tables.text_options import NONE, SEPARATORS, TextOptions, Wanted
from cohort_gnn.dataset.tables.timestamps import Clock, as_order
from cohort_gnn.spec.graph import EdgeType

DESCRIPTION = "graph.yaml"
HINT = "dataset/FORMAT.md lists the keys, under graph.yaml; docs/how-to/types.md has an example"
PARTS = {"train": 0, "val": 1, "valid": 1, "validation": 1, "test": 2, "": -1, "none": -1}
ANY_RELATION = 'a name "*" in type and a column as relation'
SOURCE_CURE = "source: A, target: B"


class Text(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """How a file is read, where its name and its first line leave it open: as the options of these names."""

    format: str | None = None
    separator: str | None = None
    header: bool | str = "auto"
    comment: str | None = None
    null: str | None = None

    def options(self, place: str) -> TextOptions:
        separator = self.separator if self.separator is None else SEPARATORS.get(self.separator, self.separator)
        header = self.header if isinstance(self.header, str) else "yes" if self.header else "no"
        for key, value, fits, expected in (
            (
                "format",
                self.format,
                self.format in (None, *ARRAYS, *tables.TABLES),
                "csv, parquet, arrow, npy, safetensors or pt",
            ),
            ("separator", separator, separator is None or len(separator) == 1, "one character, or its name"),
            ("header", header, header in ("auto", "yes", "no"), "yes or no"),
        ):
            if not fits:
                raise CohortError(f"{place}.{key}", expected, repr(value), HINT)
        return TextOptions(separator, header, self.comment, self.null, in_yaml=True)


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


class ByTime(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Splits by a column of integers, timestamps or dates: the earliest labelled rows are for training, the latest for
    the test, by the shares of --split-ratio. Rows of equal times are in one split."""

    by_time: str


class NodesOf(Text, forbid_unknown_fields=True, kw_only=True):
    """A node type.

    Attributes:
        file: table with a row for each node.
        id: its column of ids, integers or texts; without it, or with "none", row i is node i.
        count: the number of nodes, where neither a table nor features say it.
        features: columns of the table, by name or with what features are made of them; or a file of rows.
        fit: the rows that decide means, deviations and categories: "train" (those of the training split; of a node type
            without a split, all) or "all".
        label: column (or columns) of the table, or a file.
        classes: the texts of the label column, in the order of the classes.
        split: column of the table with train, val, test or nothing; or three files of ids; or a column of times, by
            which the rows are divided.
    """

    file: str | None = None
    id: str | None = None
    count: Annotated[int, msgspec.Meta(ge=1, le=2**32)] | None = None
    features: str | list[str | Column] | FileOf | None = None
    fit: Literal["train", "all"] = "train"
    label: str | list[str] | FileOf | None = None
    classes: list[str] | None = None
    split: str | list[str | FileOf] | ByTime | None = None


class EdgesOf(Text, forbid_unknown_fields=True, kw_only=True):
    """A relation: its type, its table or .npy file, the columns of sources and targets, its weights or times: a column
    of the table, or a file; the features of its edges: columns of the table, or a file of rows; the type of the
    relation that it is the reverse of, or "none"; of times that are timestamps, the unit that they are kept in, and the
    zone of clocks without one; what becomes of edges whose ids no node has; and, of a table that has the edges of
    several relations, the column of their names: the name in ``type`` is then ``*``."""

    type: tuple[str, str, str]
    file: str
    source: str | None = None
    target: str | None = None
    weight: str | FileOf | None = None
    time: str | FileOf | None = None
    features: str | list[str | Column] | FileOf | None = None
    reverse_of: tuple[str, str, str] | Literal["none"] | None = None
    relation: str | None = None
    time_unit: str | None = None
    time_zone: str | None = None
    unknown_ids: Literal["refuse", "skip"] = "refuse"


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


def described_graph(path: Path, description: Description) -> Graph:
    """The graph of a description, whose files are in the folder of ``path``."""
    nodes = {type_: _NodeFiles(path, type_, keys) for type_, keys in description.nodes.items()}
    ids = {type_: files.ids for type_, files in nodes.items() if files.ids is not None}
    return Graph(
        name=description.name or (path.stem if path.name != DESCRIPTION else path.parent.resolve().name),
        place=str(path),
        nodes={type_: Nodes(files.num_nodes, files.features) for type_, files in nodes.items()},
        edges=by_relation(
            str(path),
            (pair for edges in description.edges for pair in _relations(path, edges, _edges(path, edges, ids))),
        ),
        target=description.target or "",
        targets={type_: files.target() for type_, files in nodes.items()},
        any_task=True,
        ids={type_: node_ids.blocks for type_, node_ids in ids.items()},
        id_bytes=sum(node_ids.nbytes for node_ids in ids.values()),
        reverse_of={
            edges.type: edges.reverse_of if isinstance(edges.reverse_of, tuple) else None
            for edges in description.edges
            if edges.reverse_of is not None
        },
    )


class _NodeFiles:
    """What the files of a node type say."""

    def __init__(self, path: Path, type_: str, entry: NodesOf):
        self._place, self._entry, self._files = f"{path}: nodes.{type_}", entry, _Files(path)
        self._options = entry.options(self._place)
        self._table = self._open_table()
        self.ids: NodeIds | None = None
        if entry.id not in (None, NONE):
            table = self._demand_table("id")
            self.ids = NodeIds(type_, table, table.choose([entry.id])[0])
        elif self._table is not None:
            tables.demand_part_order(self._table)
        if entry.id is None and self._table is not None:
            chosen = self._table.choose(self._columns())
            others = [i for i in range(len(self._table.titles)) if i not in chosen]
            tables.demand_order(self._table, others, self._options)
        self.features = self._features()
        self.num_nodes = self._num_nodes()

    def _columns(self) -> list[str]:
        """The columns of features and labels, as far as they are in the table, each once."""
        entry = self._entry
        label = [entry.label] if isinstance(entry.label, str) and not names_array(entry.label) else entry.label
        split = [entry.split] if isinstance(entry.split, str) else []
        split += [entry.split.by_time] if isinstance(entry.split, ByTime) else []
        features = column_names(entry.features) if isinstance(entry.features, list) else []
        lists = [features, label if isinstance(label, list) else [], split]
        return list(dict.fromkeys(name for names in lists for name in names))

    def _texts(self) -> list[str]:
        """The columns that may be texts."""
        entry = self._entry
        split = [entry.split.by_time] if isinstance(entry.split, ByTime) else [entry.split]
        texts = [name for name in (entry.label, *split) if isinstance(name, str)]
        return [*texts, *text_names(entry.features)]

    def _open_table(self) -> TableFile | None:
        entry = self._entry
        if entry.file is None:
            return None
        named = [name for name in (*self._columns(), entry.id) if name not in (None, NONE)]
        texts = {entry.id, *self._texts()}  # texts do not decide whether the first line has names
        bounds = (end for name in named if name not in texts for end in name.split(":", 1))
        wanted = Wanted(named, [int(end) for end in bounds if end.isdecimal()]) if named else Wanted()
        return tables.open_table(self._files.path_of(self._place, entry.file), self._options, wanted, entry.format)

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
        features = self._entry.features
        if features is None:
            return None
        if isinstance(features, list):
            chosen = self._chosen("features", column_names(features))
            return rows_of_columns(chosen, features, f"{self._place}.features", self._entry.fit == "all")
        return self._files.rows(f"{self._place}.features", features)

    def _num_nodes(self) -> int | None:
        count = self._entry.count
        if self.ids is not None and count not in (None, self.ids.num_nodes):
            expected = f"{self.ids.num_nodes} nodes, one per id"
            raise CohortError(f"{self._place}.count", expected, str(count), "leave count out where there is a table")
        if self.ids is not None:
            return self.ids.num_nodes
        if count is not None:
            return count
        if self.features is not None and self.features.declared is None:
            return None
        if self._table is None:
            raise CohortError(self._place, "a file, features or a count", "none of them", HINT)
        return self._table.count()

    def target(self) -> Target:
        """What may be learned of the type."""
        return Target(self.labels(), self.splits(), self._files.name, self.split_times())

    def labels(self) -> Labels | None:
        label = self._entry.label
        if label is None:
            return None
        if isinstance(label, str) and names_array(label):
            label = FileOf(file=label)
        if isinstance(label, FileOf):
            path = self._files.path_of(f"{self._place}.label", label.file)
            if (kind := label.format or tables.kind_of(path)) in ARRAYS:
                return Labels(str(path), open_array(path, kind).read)
            table, numbers = self._files.table(f"{self._place}.label", label)
        else:
            table, numbers = self._chosen("label", [label] if isinstance(label, str) else label)
        return Labels.from_table(table, numbers, several=True, classes=self._entry.classes)

    def splits(self) -> Callable[[], list[np.ndarray]] | None:
        split = self._entry.split
        if split is None or isinstance(split, ByTime):
            return None
        if isinstance(split, str):
            table = self._demand_table("split")
            column = table.choose([split])[0]
            return lambda: _parts(table, column)
        parts = [FileOf(file=part) if isinstance(part, str) else part for part in split]
        if len(parts) != 3:
            names = ", ".join(part.file for part in parts)
            raise CohortError(f"{self._place}.split", "a column, or files of train, val and test", names, HINT)
        place = f"{self._place}.split"
        return lambda: [tables.read_ids(self._files.path_of(place, part.file), part.options(place)) for part in parts]

    def split_times(self) -> Callable[[], np.ndarray] | None:
        """int64 [V]: the time of each node, where the splits are by time."""
        split = self._entry.split
        if not isinstance(split, ByTime):
            return None
        table, numbers = self._chosen("split", [split.by_time])
        return lambda: times_of(table, numbers[0])


class _Files:
    """The files that a description names, in its folder."""

    def __init__(self, path: Path):
        self._path, self.name = path, path.name

    def path_of(self, place: str, file: str) -> Path:
        """Raises CohortError for a file outside the folder."""
        return file_beside(place, self._path, file)

    def table(self, place: str, entry: FileOf) -> tuple[TableFile, list[int]]:
        """A table, and its columns that are read."""
        options = entry.options(place)
        table = tables.open_table(self.path_of(place, entry.file), options, Wanted(entry.columns), entry.format)
        numbers = table.choose(entry.columns)
        if not numbers:
            raise CohortError(str(table.path), "at least one column", "none", HINT)
        tables.demand_part_order(table)
        if entry.id is None and entry.columns is not None:
            tables.demand_order(table, [i for i in range(len(table.titles)) if i not in numbers], options)
        return table, numbers

    def rows(self, place: str, source: str | FileOf) -> Rows:
        """The rows of a file."""
        entry = FileOf(file=source) if isinstance(source, str) else source
        path = self.path_of(place, entry.file)
        kind = entry.format or tables.kind_of(path)
        if kind not in (*ARRAYS, *tables.TABLES):
            demand_unknown(path, f"a list of columns, or {tables.KNOWN}")
            raise CohortError(place, f"a list of columns, or {tables.KNOWN}", path.name, HINT)
        if kind in ARRAYS:
            return tables.rows_of_array(open_array(path, kind), entry.dtype, "dtype: ")
        table, numbers = self.table(place, entry)
        if entry.columns is not None:
            return Rows.from_table(table, numbers)
        if odd := [name for name in table.titles if is_id_name(name) or name.lower() in LABELS]:
            hint = "name the table as file, and as features the list of its columns that are"
            raise CohortError(
                f"{place}: {path.name}", "only columns of features", f"{' and '.join(odd)} among them", hint
            )
        if entry.id is None:
            tables.demand_only_features(table, entry.options(place))
        return Rows.from_table(table)

    def numbers(
        self, place: str, source: str | FileOf, table: TableFile | None, are_times: bool, clock: Clock | None
    ) -> Weights:
        """The weights or times of a relation's edges: a column of its table, or a file."""
        if isinstance(source, FileOf):
            return tables.read_weights(self.path_of(place, source.file), are_times, source.options(place), clock)
        if names_array(source):
            return tables.read_weights(self.path_of(place, source), are_times)
        if table is None:
            raise CohortError(place, "a file of them, for edges without a table", source, HINT)
        return Weights.from_table(table, table.choose([source])[0], are_times, clock)


def column_names(entries: Sequence[str | Column]) -> list[str]:
    """The columns that a list of features names."""
    return [entry if isinstance(entry, str) else entry.column for entry in entries]


def text_names(entries: object) -> list[str]:
    """Those of them that are texts."""
    listed = entries if isinstance(entries, list) else []
    return [entry.column for entry in listed if isinstance(entry, Column) and entry.kind != "number"]


def rows_of_columns(
    chosen: tuple[TableFile, list[int]], entries: Sequence[str | Column], place: str, fit_all: bool
) -> Rows:
    """Rows of a table's columns, of unlike types if one of them says so."""
    table, numbers = chosen
    if any(isinstance(entry, Column) for entry in entries):
        return Rows.from_declared(DeclaredColumns.from_entries(table, entries, place, fit_all))
    return Rows.from_table(table, numbers)


def times_of(table: TableFile, column: int) -> np.ndarray:
    """int64 [n]: a column of integers, timestamps or dates as numbers that ascend with the time."""
    parts, done = [], 0
    for (array,), _ in table.pieces([column], "texts", MIN_BLOCK):
        parts.append(as_order(table.place(column), array, done))
        done += len(array)
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


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
    part_of_row = np.concatenate(parts) if parts else np.empty(0, np.int64)
    return [part_of_row == part for part in range(3)]


def _edges(path: Path, entry: EdgesOf, ids: dict[str, NodeIds]) -> Edges:
    files, place = _Files(path), f"{path}: {', '.join(entry.type)}"
    file, options = files.path_of(place, entry.file), entry.options(place)
    node_ids = [ids.get(entry.type[0]), ids.get(entry.type[2])]
    if (entry.source is None) != (entry.target is None):
        raise CohortError(place, "source and target, or neither", "one of the two", HINT)
    table: TableFile | None = None
    columns: Sequence[int] = ()
    if (kind := entry.format or tables.kind_of(file)) in ARRAYS:
        edges = tables.read_edges(file, None, options, kind=kind)
    else:
        table = tables.open_table(file, options, _wanted(entry, node_ids), entry.format)
        columns = _endpoint_columns(table, entry)
        edges = Edges.from_table(table, columns)
    if any(node_ids):
        edges = with_ids(edges, table, columns, node_ids, entry.unknown_ids == "skip")
    clock = Clock.named(f"{place}: time_unit", entry.time_unit, entry.time_zone, options.says)
    if clock is not None and entry.time is None:
        raise CohortError(f"{place}: time_unit", "times of edges", "none", "time: COLUMN names their column")
    weights, times = (
        None if source is None else files.numbers(place, source, table, are_times, clock if are_times else None)
        for source, are_times in ((entry.weight, False), (entry.time, True))
    )
    return replace(edges, weights=weights, times=times, features=_edge_rows(files, place, entry, table))


def _relations(path: Path, entry: EdgesOf, edges: Edges) -> Iterator[tuple[EdgeType, Edges]]:
    """The edge types of a table: one, or those that its column of relations names."""
    source, name, target = entry.type
    place = f"{path}: {', '.join(entry.type)}"
    if (entry.relation is None) != (name != "*"):
        raise CohortError(place, f"{ANY_RELATION} together", f"relation: {entry.relation}, name {name}", HINT)
    if entry.relation is None:
        yield entry.type, edges
        return
    file = _Files(path).path_of(place, entry.file)
    table = tables.open_table(file, entry.options(place), _wanted(entry, (None, None)), entry.format)
    names, codes = relation_codes(table, table.choose([entry.relation])[0])
    for number, relation in enumerate(names):
        yield (source, relation, target), replace(edges, selected=EqualTo(codes, number))


def _wanted(entry: EdgesOf, node_ids: Sequence[NodeIds | None]) -> Wanted:
    """The columns that are read of a relation's table. Endpoints that are texts do not distinguish a row from names."""
    columns = None if entry.source is None else [entry.source, str(entry.target)]
    beside = [name for name in (entry.weight, entry.time) if isinstance(name, str) and not names_array(name)]
    beside += [] if entry.relation is None else [entry.relation]
    beside += column_names(entry.features) if isinstance(entry.features, list) else []
    wanted = tables.wanted_of_edges(columns, beside, (entry.type[0], entry.type[2]))
    texts = [ids is not None and ids.is_text for ids in node_ids]
    numbers = [number for number, is_text in zip(columns or ("0", "1"), texts, strict=True) if not is_text]
    judged = tuple(int(number) for number in numbers if number.isdecimal())
    return replace(wanted, numbers=judged, edges=not any(texts))


def _endpoint_columns(table: TableFile, entry: EdgesOf) -> Sequence[int]:
    """The columns of sources and of targets."""
    if len(table.titles) < 2:
        hint = "each line has a source and a target; separator: says what is between them"
        raise CohortError(str(table.path), "lines of at least two fields", f"{len(table.titles)}", hint)
    if entry.source is not None:
        return table.choose([entry.source, str(entry.target)])
    return edge_columns(table, SOURCE_CURE, kind_suffix(table.path) in EDGE_LISTS, (entry.type[0], entry.type[2]))


def _edge_rows(files: _Files, place: str, entry: EdgesOf, table: TableFile | None) -> Rows | None:
    if entry.features is None:
        return None
    if not isinstance(entry.features, list):
        return files.rows(f"{place}: features", entry.features)
    if table is None:
        raise CohortError(f"{place}: features", "a file, for edges without a table", "columns", HINT)
    if not entry.features:
        raise CohortError(f"{place}: features", "at least one column", "none", "leave features out")
    chosen = table, table.choose(column_names(entry.features))
    return rows_of_columns(chosen, entry.features, f"{place}: features", fit_all=True)
