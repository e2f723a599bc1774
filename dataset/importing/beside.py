"""Files and settings that options add to a source, or that replace what the source has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset import arrays
from cohort_gnn.dataset.importing.options import ConvertOptions
from cohort_gnn.dataset.layouts import tables
from cohort_gnn.dataset.layouts.graph import Graph
from cohort_gnn.dataset.layouts.streams import ONES, Labels, Rows
from cohort_gnn.dataset.tables.column_names import LABELS, is_id_name
from cohort_gnn.dataset.tables.ids import integers_of, named_ids
from cohort_gnn.dataset.tables.parts import part_files
from cohort_gnn.dataset.tables.table import TableFile, shortened, spans
from cohort_gnn.dataset.tables.text_options import NONE, SEPARATORS, TextOptions, Wanted
from cohort_gnn.dataset.tables.timestamps import Clock
from cohort_gnn.spec.graph import EDGE_TYPE, NODE_TYPE
from cohort_gnn.spec.options import flag_of

COLUMNS = {"weights": "weight_column", "times": "time_column", "features": "edge_feature_columns"}  # of an edge list
TABLE_NAMES = (
    *("edges", "features", "labels", "splits", "node-ids"),
    *("edge-weights", "edge-times", "edge-features"),
)  # as --header, --separator, --comment, --null and --id-column call them
# Fields of SourceOptions and ConvertOptions that do not apply to named types, and what to do instead.
OF_FILES = ("features", "edge_weights", "edge_times", "edge_features", "nodes")
OF_ONE_TYPE = ("transpose", "undirected", "rename", "node_ids", "pca", "row_normalize", *OF_FILES)
OF_SEVERAL_TYPES = "with several node types, name the table as file of its type, with its id, label and features"
HINTS = {
    "undirected": "--reverse-edges adds a relation for the other direction of each relation",
    "features": "describe the graph in a YAML file, which names the features of each type",
}

FILES = ("destinations", "features", "labels", "edge_weights", "edge_times", "edge_features", "node_ids")

Each = str | Mapping[str, str] | None  # a value for all tables, or one for each of some; "" are the others


@dataclass(frozen=True)
class SourceOptions:
    """What a source does not contain, or what is read instead of its own: the options of these names of
    `cohort dataset import`, whose help describes them.

    Attributes:
        raw: columns and type of a `features` of bare numbers.
        separator, header, comment, null: of texts: one value, or one for each of TABLE_NAMES.
        id_column: of tables of nodes, likewise.
        target: of several node types, the one of the labels and splits.
    """

    destinations: Path | None = None
    columns: Sequence[str] | None = None
    separator: Each = None
    header: Each = None
    comment: Each = None
    null: Each = None
    id_column: Each = None
    features: Path | None = None
    raw: tables.RawLayout = tables.RawLayout()
    feature_columns: Sequence[str] | None = None
    labels: Path | None = None
    label_columns: Sequence[str] | None = None
    edge_weights: Path | None = None
    weight_column: str | None = None
    edge_times: Path | None = None
    time_column: str | None = None
    time_unit: str | None = None
    time_zone: str | None = None
    edge_features: Path | None = None
    edge_feature_columns: Sequence[str] | None = None
    splits: Sequence[Path] | None = None
    nodes: int | None = None
    node_ids: Path | None = None
    target: str | None = None

    def __post_init__(self):
        for name in FILES:  # texts name files, too
            if isinstance(file := getattr(self, name), str):
                object.__setattr__(self, name, Path(file))
        if self.splits is not None:
            object.__setattr__(self, "splits", [Path(file) for file in self.splits])

    def text(self, table: str) -> TextOptions:
        """How the lines of a table are made."""
        header, separator = _for_table(self.header, table) or "auto", _for_table(self.separator, table)
        separator = separator if separator is None else SEPARATORS.get(separator, separator)
        return TextOptions(separator, header, _for_table(self.comment, table), _for_table(self.null, table), table)

    @property
    def clock(self) -> Clock | None:
        """How timestamps become times of edges; None: times are integers."""
        clock = Clock.named(
            "--time-unit", self.time_unit, self.time_zone, lambda option, value: f"{flag_of(option)} {value}"
        )
        if clock is not None and self.time_column is None and self.edge_times is None:
            raise CohortError("--time-unit", "times of edges", "none", "--time-column names their column")
        return clock

    def ids_of(self, table: str) -> str | None:
        """The column of ids of a table; "none": it has none; None: nobody said."""
        return _for_table(self.id_column, table)


AS_IT_IS = SourceOptions()


def _for_table(option: Each, table: str) -> str | None:
    return option if option is None or isinstance(option, str) else option.get(table, option.get(""))


def demand_files(inputs: SourceOptions) -> None:
    """Raises CohortError for a file that is named beside the source and is not there."""
    for name, value in vars(inputs).items():
        for path in value if name == "splits" and value else [value]:
            if (
                isinstance(path, Path)
                and (name, str(path)) != ("features", ONES)
                and not tables.file_of(path).exists()
                and not part_files(path)
            ):
                raise CohortError(str(path), f"the file that {flag_of(name)} names", "no such file", "check the path")


def demand_no_edge_list(inputs: SourceOptions, kind: str) -> None:
    """Raises CohortError for options of edge lists, or of tables of which there is none, beside a source of another
    format."""
    beside = (*FILES[1:], "splits")
    has_files = any(getattr(inputs, name) is not None for name in beside)
    table_options = (
        () if has_files else ("separator", "header", "comment", "null", "id_column", "time_unit", "time_zone")
    )
    for name in ("columns", "destinations", *COLUMNS.values(), *table_options):
        if getattr(inputs, name):
            hint = "graph.yaml says it itself, beside the file" if kind == "yaml" else "leave it out"
            raise CohortError(flag_of(name), "an edge list, or a table beside the source", f"format {kind}", hint)
    if inputs.raw != tables.RawLayout() and inputs.features is None and inputs.edge_features is None:
        raise CohortError("--feature-dim, --feature-dtype", "--features FILE", "none", "leave them out")


def node_ids_of(inputs: SourceOptions) -> np.ndarray | None:
    """int64 [V]: the id of each row of features; None: no option gives the ids."""
    column = inputs.ids_of("features")
    in_features = column not in (None, NONE) and inputs.features is not None and _is_table(inputs.features)
    if inputs.node_ids is None:
        if not in_features:
            return None
        assert inputs.features is not None and column is not None
        wanted = Wanted([*(inputs.feature_columns or ()), column])
        table = tables.open_table(inputs.features, inputs.text("features"), wanted)
        number = table.choose([column])[0]
        return arrays.integers(table.place(number), table.read([number], np.int64))
    if in_features:
        raise CohortError("--node-ids, --id-column", "one of the two for the ids of features", "both", "leave one out")
    return arrays.integers(str(inputs.node_ids), tables.read_ids(inputs.node_ids, inputs.text("node-ids")))


def demand_options_fit(graph: Graph, inputs: SourceOptions, options: ConvertOptions) -> None:
    """Raises CohortError for an option that does not apply to a graph with named types, or without them; and for
    --rename with rows of nodes that have no ids."""
    if not graph.has_names:
        if options.reverse_of:
            raise CohortError("--reverse-of", "a graph of several relations", "one of one relation", "leave it out")
        _demand_no_rows_renamed(graph, inputs, options)
        return
    if inputs.ids_of("labels") not in (None, NONE):
        raise CohortError("--id-column", "a graph of one node type", "several", OF_SEVERAL_TYPES)
    option_values = vars(options) | {name: value for name, value in vars(inputs).items() if value is not None}
    for name in OF_ONE_TYPE:
        if option_values.get(name) is not None and option_values[name] is not False:
            hint = HINTS.get(name, f"leave {flag_of(name)} out")
            raise CohortError(flag_of(name), "a graph of one node type", f"several: {', '.join(graph.nodes)}", hint)


def _demand_no_rows_renamed(graph: Graph, inputs: SourceOptions, options: ConvertOptions) -> None:
    if not options.rename or options.node_ids is not None:
        return
    has_features = graph.nodes[graph.target].features is not None
    rows = has_features if inputs.features is None else str(inputs.features) != ONES
    labels = inputs.labels or graph.labels
    if rows or labels and inputs.ids_of("labels") in (None, NONE):
        actual = "rows of features" if rows else "labels, one a row"
        hint = "--node-ids FILE says the id of each row; of a table, --id-column NAME says its column of ids"
        raise CohortError("--rename", "edges alone, as rows do not say whose they are", actual, hint)


def replace_task(graph: Graph, inputs: SourceOptions, task: str, ids: np.ndarray | None, first: int = 0) -> None:
    """Puts the labels and splits that the options name in the place of those of the source.

    Args:
        ids: int64 [V] of the nodes, where they are known.
        first: the number of the node of the first row.
    """
    if inputs.labels is not None:
        graph.labels, graph.any_task = _labels(inputs.labels, inputs, task, ids, first), True
    if inputs.splits is not None:
        graph.splits, graph.splits_from = tables.read_splits(inputs.splits, inputs.text("splits")), "--splits"
    elif graph.splits is not None and graph.labels is None:
        graph.splits = None
        graph.notes.append("no labels: the splits of the source are not used")


def replace_graph(
    graph: Graph, inputs: SourceOptions, ids: np.ndarray | None, needs_rows: bool = True, first: int = 0
) -> None:
    """Replaces nodes and edges of a source without named types by what the options name.

    Args:
        needs_rows: without rows of features, the graph is refused.
        first: the number of the node of the first row.
    """
    if graph.has_names:
        return
    (nodes,), (edges,) = graph.nodes.values(), graph.edges.values()
    for option, chosen, file in (
        ("--feature-columns", inputs.feature_columns, inputs.features),
        ("--label-columns", inputs.label_columns, inputs.labels),
    ):
        if chosen and (file is None or not _is_table(file)):
            raise CohortError(option, "a .csv or .parquet file that has columns", str(file or "none"))
    if inputs.features is not None and str(inputs.features) != ONES:
        nodes = replace(nodes, features=_features(inputs.features, inputs, graph.notes, first))
    elif inputs.features is not None:
        nodes = replace(nodes, features=None)
    elif nodes.features is None and needs_rows:
        hint = f"pass --features FILE, or --features {ONES} for one column of ones"
        hint += f"; of tables, features: [COLUMN] or {ONES}"
        raise CohortError(edges.place, "feature rows", "only edges", hint)
    for what, option in COLUMNS.items():
        if (file := getattr(inputs, f"edge_{what}")) is None:
            continue
        if getattr(inputs, option) is not None:
            raise CohortError(f"--edge-{what}, {flag_of(option)}", "one of the two", "both")
        text = inputs.text(f"edge-{what}")
        if what == "features":
            raw = tables.RawLayout(dtype=inputs.raw.dtype)
            rows = tables.read_rows(file, raw, text, inputs.ids_of("edge-features"))
            edges = edges.with_column(rows)
        else:
            clock = inputs.clock if what == "times" else None
            edges = edges.with_column(tables.read_weights(file, what == "times", text, clock))
    if inputs.nodes is not None:
        if nodes.num_nodes not in (None, inputs.nodes):
            raise CohortError("--nodes", f"{nodes.num_nodes}, as the source says", str(inputs.nodes))
        nodes = replace(nodes, num_nodes=inputs.nodes)
    graph.nodes, graph.edges = {NODE_TYPE: nodes}, {EDGE_TYPE: edges}


def _is_table(path: Path) -> bool:
    return tables.kind_of(path) in tables.TABLES


def _open_table(
    path: Path, wanted: Sequence[str] | None, inputs: SourceOptions, table_name: str
) -> tuple[TableFile, list[int], int | None]:
    """Opens a table; returns it, the numbers of the wanted columns (None: all but the ids), and the column of ids."""
    named = inputs.ids_of(table_name)
    ids = None if named in (None, NONE) else named
    columns = [*(wanted or ()), *([] if ids is None or ids in (wanted or ()) else [ids])]
    table = tables.open_table(path, inputs.text(table_name), Wanted(columns or None))
    column = None if ids is None else table.choose([ids])[0]
    if column is None:
        tables.demand_part_order(table)
    numbers = table.choose(wanted)
    return table, numbers if wanted else [i for i in numbers if i != column], column


def _features(path: Path, inputs: SourceOptions, notes: list[str], first: int) -> Rows:
    """The rows of a file; of a table, the columns that are features."""
    text = inputs.text("features")
    if not _is_table(path):
        return tables.read_rows(path, inputs.raw, text)
    table, numbers, column = _open_table(path, inputs.feature_columns, inputs, "features")
    names = [table.titles[i] for i in numbers]
    if not inputs.feature_columns:
        is_said = inputs.ids_of("features") is not None
        _demand_features(table, numbers, text, is_said)
    total = "" if len(names) == len(table.titles) else f" of {len(table.titles)}"
    if inputs.ids_of("features") is None and inputs.node_ids is None:
        others = [i for i in range(len(table.titles)) if i not in numbers]
        tables.demand_order(table, others, text, first=first)
    ids_note = "" if column is None else f"; ids: {table.titles[column]}"
    notes.append(f"{path.name}: {len(names)}{total} columns taken as features: {shortened(names)}{ids_note}")
    return Rows.from_table(table, numbers if inputs.feature_columns or column is not None else None)


def _demand_features(table: TableFile, numbers: list[int], text: TextOptions, is_said: bool) -> None:
    """Raises CohortError if a column that is taken by default is not a feature.

    Args:
        is_said: the user has named the column of ids, or has said that there is none.
    """
    by_name = [i for i in numbers if table.titles[i].lower() in LABELS or not is_said and is_id_name(table.titles[i])]
    odd = by_name or ([] if is_said else [i for i in numbers if i in named_ids(table)])
    by_value = []
    if not odd and not is_said and len(table.titles) > 1:
        by_value = [i for i in numbers if integers_of(table, i, is_named=False) is not None]
    odd = odd or by_value
    if not odd:
        return
    names, titles = [table.titles[i] for i in odd], [table.titles[i] for i in numbers]
    hint = f"say which are: --feature-columns {spans(titles, names) or 'A,B,C:F'}; row i is node i, whatever its id"
    actual = f"{' and '.join(names)} among them"
    if by_value:
        actual += ", integers of which none comes twice"
        hint += f"; or {text.says('id-column', names[0])}: they are the nodes' ids; {text.says('id-column', NONE)}: "
        hint += "all are features"
    raise CohortError(str(table.path), "only columns of features", actual, hint)


def _labels(path: Path, inputs: SourceOptions, task: str, node_ids: np.ndarray | None, first: int) -> Labels:
    """The labels of a file; of a table, the column that is meant."""
    text = inputs.text("labels")
    if not _is_table(path):
        return Labels(str(path), lambda: tables.read_array(path, text))
    wanted = inputs.label_columns
    table, numbers, column = _open_table(path, wanted, inputs, "labels")
    names = [table.titles[i] for i in numbers]
    ids = [table.titles[i] for i in named_ids(table) if i in numbers]
    if not wanted and len(names) > 1 and (ids or task != "multilabel"):
        others = [name for name in names if name not in ids]
        best = next((name for name in others if name.lower() in LABELS), others[-1] if others else "A")
        hint = f"--label-columns {best} takes only that column; row i is node i, whatever its id"
        if not ids:
            hint += "; --label-type multilabel takes all, each a label of its own"
        raise CohortError(str(path), "one column, the label of each node", shortened(names), hint)
    if inputs.ids_of("labels") is None:
        tables.demand_order(table, [i for i in range(len(table.titles)) if i not in numbers], text, node_ids, first)
        if not wanted and len(numbers) > 1:
            tables.demand_order(table, numbers, text, node_ids, first)
    read_ids: Callable[[], np.ndarray] | None = None
    if column is not None:
        place, number = table.place(column), column
        read_ids = lambda: arrays.integers(place, table.read([number], np.int64))  # noqa: E731
    return Labels.from_table(table, numbers, task == "multilabel", read_ids)
