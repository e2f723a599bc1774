"""A YAML file that names the tables and arrays of node types and relations; paths are relative to its folder."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import numpy as np

from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.spelling import did_you_mean
from cohort_gnn.dataset.columns import Column
from cohort_gnn.dataset.layouts import tables
from cohort_gnn.dataset.layouts.description import DESCRIPTION, HINT, ByTime, Description, EdgesOf, FileOf, NodesOf
from cohort_gnn.dataset.layouts.graph import Graph, Nodes, Target, by_relation, demand_type_name
from cohort_gnn.dataset.layouts.node_ids import MIN_BLOCK, KnownNodes, NodeIds, RowEdges, with_ids
from cohort_gnn.dataset.layouts.streams import ONES, Edges, Labels, Rows, Weights
from cohort_gnn.dataset.layouts.task_tables import read_task
from cohort_gnn.dataset.layouts.tensor_files import ARRAYS, names_array, open_array
from cohort_gnn.dataset.structured import file_beside, read_structured
from cohort_gnn.dataset.tables.classes import EqualTo, relation_codes
from cohort_gnn.dataset.tables.column_names import LABELS, edge_columns, is_id_name
from cohort_gnn.dataset.tables.encoding import DeclaredColumns
from cohort_gnn.dataset.tables.first_line import EDGE_LISTS, kind_suffix
from cohort_gnn.dataset.tables.known_files import demand_unknown
from cohort_gnn.dataset.tables.table import TableFile, shortened
from cohort_gnn.dataset.tables.text_options import NONE, Wanted
from cohort_gnn.dataset.tables.timestamps import Clock, as_order
from cohort_gnn.spec.graph import NO_TIME, EdgeType

PARTS = {"train": 0, "val": 1, "valid": 1, "validation": 1, "test": 2, "": -1, "none": -1}
ANY_RELATION = 'a name "*" in type and a column as relation'
NO_STREAMS: Mapping[str, TableFile] = {}
NO_NODES: Mapping[str, KnownNodes] = {}
SOURCE_CURE = "source: A, target: B"


def read_described(source: Path, text: bytes | None = None) -> Graph:
    """The graph that a YAML file, or graph.yaml in a folder, describes.

    Args:
        text: of the file, which need not be there.
    """
    path = source / DESCRIPTION if source.is_dir() else source
    return described_graph(path, read_structured(path, "YAML", Description, "nodes and edges of a graph", HINT, text))


def described_graph(
    path: Path,
    description: Description,
    streams: Mapping[str, TableFile] = NO_STREAMS,
    known: Mapping[str, KnownNodes] = NO_NODES,
) -> Graph:
    """The graph of a description, whose files are in the folder of ``path``.

    Args:
        streams: tables of edges that are no files, by the names that the description has for them.
        known: nodes that there are before those of the tables, by type.
    """
    nodes = {type_: _NodeFiles(path, type_, keys, known.get(type_)) for type_, keys in description.nodes.items()}
    all_ids: dict[str, NodeIds | None] = {
        type_: None if before.ids is None else NodeIds(type_, None, (), before.ids)
        for type_, before in known.items()
        if type_ not in nodes
    }
    all_ids |= {type_: files.ids for type_, files in nodes.items()}
    ids = {type_: node_ids for type_, node_ids in all_ids.items() if node_ids is not None}
    _demand_one_unit(path, description)
    return Graph(
        name=description.name or (path.stem if path.name != DESCRIPTION else path.parent.resolve().name),
        place=str(path),
        nodes={type_: Nodes(files.num_nodes, files.features, files.times()) for type_, files in nodes.items()},
        edges=by_relation(
            str(path),
            itertools.chain(
                (
                    pair
                    for edges in description.edges
                    for pair in _relations(path, edges, _edges(path, edges, ids, streams))
                ),
                (pair for files in nodes.values() for pair in files.keys(all_ids)),
            ),
        ),
        reverse=any(entry.keys for entry in description.nodes.values()),
        keeps_names=any(entry.keys for entry in description.nodes.values()),
        notes=[note for files in nodes.values() for note in files.unused()],
        target=description.target or "",
        targets={type_: files.target() for type_, files in nodes.items()},
        tasks={name: cache(partial(read_task, path, name, task, all_ids)) for name, task in description.tasks.items()},
        any_task=True,
        called=next((edges.type for edges in description.edges), None),
        ids={type_: node_ids.blocks for type_, node_ids in ids.items()},
        id_bytes=sum(node_ids.nbytes for node_ids in ids.values()),
        reverse_of={
            edges.type: edges.reverse_of if isinstance(edges.reverse_of, tuple) else None
            for edges in description.edges
            if edges.reverse_of is not None
        },
    )


def _demand_one_unit(path: Path, description: Description) -> None:
    """Raises CohortError for times in several units, which are compared as integers."""
    units = {entry.time_unit: name for name, entry in description.nodes.items()}
    units |= {edges.time_unit: ", ".join(edges.type) for edges in description.edges}
    units |= {entry.time_unit: name for name, entry in description.tasks.items()}
    units.pop(None, None)
    if len(units) > 1:
        actual = ", ".join(f"{unit} ({name})" for unit, name in units.items())
        raise CohortError(f"{path}: time_unit", "one unit of all times", actual, "choose the shortest")


class _NodeFiles:
    """What the files of a node type say."""

    def __init__(self, path: Path, type_: str, entry: NodesOf, before: KnownNodes | None = None):
        self._place, self._type, self._entry = f"{path}: nodes.{type_}", type_, entry
        self._first = 0 if before is None else before.count
        self._files, self._options = _Files(path, self._first), entry.options(self._place)
        self._table = self._open_table()
        self._demand_ids_as(before)
        self.ids: NodeIds | None = None
        if entry.id not in (None, NONE):
            table = self._demand_table("id")
            self.ids = NodeIds(type_, table, table.choose(_id_columns(entry)), None if before is None else before.ids)
        elif self._table is not None:
            tables.demand_part_order(self._table)
        if entry.id is None and self._table is not None:
            chosen = self._table.choose(self._columns())
            others = [i for i in range(len(self._table.titles)) if i not in chosen]
            tables.demand_order(self._table, others, self._options, first=self._first)
        self.features = self._features()
        self.num_nodes = self._num_nodes()
        if entry.features == ONES:
            self.features = Rows.ones(f"{self._place}.features", self.num_nodes or 0)

    def _demand_ids_as(self, before: KnownNodes | None) -> None:
        """Raises CohortError where the nodes have ids and those before them have none, or the other way round."""
        if before is None or (before.ids is not None) == (self._entry.id not in (None, NONE)):
            return
        have, hint = "no ids", "leave id out: relations refer to nodes by their numbers"
        if before.ids is not None:
            have, hint = "ids", "id: COLUMN names the column of the ids"
        raise CohortError(f"{self._place}.id", f"nodes with {have}, as {before.place} has", str(self._entry.id), hint)

    def _columns(self) -> list[str]:
        """The columns of features and labels, as far as they are in the table, each once."""
        entry = self._entry
        label = [entry.label] if isinstance(entry.label, str) and not names_array(entry.label) else entry.label
        split = [entry.split] if isinstance(entry.split, str) else []
        split += [entry.split.by_time] if isinstance(entry.split, ByTime) else []
        split += [str(entry.time)] if _is_column(entry.time) else []
        features = column_names(entry.features) if isinstance(entry.features, list) else []
        keys = [column for key in entry.keys for column in key.columns]
        lists = [features, label if isinstance(label, list) else [], split, keys]
        return list(dict.fromkeys(name for names in lists for name in names))

    def _texts(self) -> list[str]:
        """The columns that may be texts."""
        entry = self._entry
        split = entry.split.by_time if isinstance(entry.split, ByTime) else entry.split
        time = None if entry.time_unit is None else entry.time
        keys = [column for key in entry.keys for column in key.columns]
        texts = [name for name in (entry.label, split, time, *keys) if isinstance(name, str)]
        return [*texts, *text_names(entry.features)]

    def _open_table(self) -> TableFile | None:
        entry = self._entry
        if entry.file is None:
            return None
        ids = _id_columns(entry)
        named = [*self._columns(), *ids]
        texts = {*ids, *self._texts()}  # texts do not decide whether the first line has names
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
        if features in (None, ONES):
            return None
        if isinstance(features, list):
            chosen = self._chosen("features", column_names(features))
            self._demand_no_keys(*chosen)
            return rows_of_columns(chosen, features, f"{self._place}.features", self._entry.fit == "all")
        return self._files.rows(f"{self._place}.features", features)

    def _demand_no_keys(self, table: TableFile, features: list[int]) -> None:
        """Raises CohortError for ids among features: what a model learns of an id means nothing for others."""
        keys = [*_id_columns(self._entry), *(column for key in self._entry.keys for column in key.columns)]
        if odd := [table.titles[number] for number in table.choose(list(dict.fromkeys(keys))) if number in features]:
            hint = "leave it out: what is learned of an id means nothing for others"
            raise CohortError(
                f"{self._place}.features", "columns that are no ids", f"{' and '.join(odd)} among them", hint
            )

    def keys(self, ids: Mapping[str, NodeIds | None]) -> Iterator[tuple[EdgeType, Edges]]:
        """The relations of the foreign keys."""
        for key in self._entry.keys:
            if key.to not in ids:
                expected = f"one of the node types {', '.join(ids)}"
                raise CohortError(f"{self._place}.keys", expected, key.to, did_you_mean(key.to, ids))
            table = self._demand_table("keys")
            skip = {what for what in ("nulls", "unknown_ids") if getattr(key, what) == "skip"}
            rows = RowEdges(table, table.choose(key.columns), ids[key.to], skip, self._first)
            yield key.relation(self._type), Edges(str(table.path), rows.chunks, left_out=rows.left_out)

    def unused(self) -> Iterator[str]:
        """A line about columns of a table with keys that nothing is made of."""
        if self._table is not None and self._entry.keys:
            taken = self._table.choose(list(dict.fromkeys([*self._columns(), *_id_columns(self._entry)])))
            if names := [name for number, name in enumerate(self._table.titles) if number not in taken]:
                yield f"{self._table.path.name}: not used: {shortened(names)}"

    def _num_nodes(self) -> int | None:
        count = self._entry.count
        own_ids = 0 if self.ids is None else self.ids.num_nodes - self._first
        if self.ids is not None and count not in (None, own_ids):
            expected = f"{own_ids} nodes, one per id"
            raise CohortError(f"{self._place}.count", expected, str(count), "leave count out where there is a table")
        if self.ids is not None:
            return own_ids
        if count is not None:
            return count
        if self.features is not None and self.features.declared is None:
            return None
        if self._table is None:
            raise CohortError(self._place, "a file, features or a count", "none of them", HINT)
        return self._table.count()

    def times(self) -> Weights | None:
        """Since when each node exists."""
        entry, place = self._entry, self._place
        clock = Clock.named(f"{place}.time_unit", entry.time_unit, entry.time_zone, self._options.says)
        none = NO_TIME if entry.null_time == "always" else None
        if (clock or none) is not None and entry.time is None:
            raise CohortError(f"{place}.time", "times of the nodes", "none", "time: COLUMN names their column")
        if none is not None and not _is_column(entry.time):
            raise CohortError(f"{place}.null_time", "times in a column of the table", "a file", HINT)
        if entry.time is None:
            return None
        if _is_column(entry.time):
            self._demand_table("time")
        return self._files.numbers(f"{place}.time", entry.time, self._table, True, clock, none)

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


def _id_columns(entry: NodesOf) -> list[str]:
    """The columns of the ids of nodes, if they have some."""
    if entry.id in (None, NONE):
        return []
    return entry.id if isinstance(entry.id, list) else [str(entry.id)]


class _Files:
    """The files that a description names, in its folder; `first`: the number of the node of a table's first row."""

    def __init__(self, path: Path, first: int = 0):
        self._path, self.name, self._first = path, path.name, first

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
            others = [i for i in range(len(table.titles)) if i not in numbers]
            tables.demand_order(table, others, options, first=self._first)
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
        self,
        place: str,
        source: str | FileOf,
        table: TableFile | None,
        are_times: bool,
        clock: Clock | None,
        none: int | None = None,
    ) -> Weights:
        """The weights or times of a relation's edges, or of nodes: a column of their table, or a file; `none`: the
        time of a null in the column."""
        if isinstance(source, FileOf):
            return tables.read_weights(self.path_of(place, source.file), are_times, source.options(place), clock)
        if not _is_column(source):
            return tables.read_weights(self.path_of(place, source), are_times)
        if table is None:
            raise CohortError(place, "a file of them, for edges without a table", source, HINT)
        return Weights.from_table(table, table.choose([source])[0], are_times, clock, none)


def _is_column(source: object) -> bool:
    """Whether weights or times are in a column of the table, not in a file."""
    return isinstance(source, str) and not names_array(source)


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
    parts, kinds, done = [], set(), 0
    for (array,), _ in table.pieces([column], "texts", MIN_BLOCK):
        if not len(array):
            continue
        kind, numbers = as_order(table.place(column), array, done)
        parts.append(numbers)
        kinds.add(kind)
        if len(kinds) > 1:  # in another part, or further down in a text
            hint = "convert the column to one of them in all parts"
            raise CohortError(table.place(column), "times of one kind", " and ".join(sorted(kinds)), hint)
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
                    hint = "replace({0: 'train', 1: 'val', 2: 'test'}) in pandas, or CASE in SQL, renames others"
                    raise CohortError(table.place(column), "train, val, test or nothing", repr(name), hint)
                numbers.append(PARTS[str(name).lower()])
            indices = names.indices.fill_null(len(numbers)).to_numpy(zero_copy_only=False)
            parts.append(np.array([*numbers, -1])[indices])
    part_of_row = np.concatenate(parts) if parts else np.empty(0, np.int64)
    return [part_of_row == part for part in range(3)]


def _edges(path: Path, entry: EdgesOf, ids: dict[str, NodeIds], streams: Mapping[str, TableFile]) -> Edges:
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
        table = streams.get(entry.file) or tables.open_table(file, options, _wanted(entry, node_ids), entry.format)
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
    column = table.choose([entry.relation])[0]
    names, codes = relation_codes(table, column)
    for number, relation in enumerate(names):
        demand_type_name(table.place(column), relation)
        yield (source, relation, target), replace(edges, selected=EqualTo(codes, number))


def _wanted(entry: EdgesOf, node_ids: Sequence[NodeIds | None]) -> Wanted:
    """The columns that are read of a relation's table. Endpoints that are texts do not distinguish a row from names."""
    columns = None if entry.source is None else [entry.source, str(entry.target)]
    beside = [str(name) for name in (entry.weight, entry.time) if _is_column(name)]
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
