"""`cohort dataset import`: graphs of other formats become data sets, in bounded memory. No pickle is ever loaded."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset import arrays
from cohort_gnn.dataset.hetero import HeteroDataset
from cohort_gnn.dataset.importing.convert import ConvertOptions, GraphConversion, Progress, write_graph
from cohort_gnn.dataset.importing.outcome import outcome
from cohort_gnn.dataset.importing.typed import TypedConversion, demand_no_option_of_one_type, typed_outcome
from cohort_gnn.dataset.layouts import tables
from cohort_gnn.dataset.layouts.chunked import METADATA as CHUNKED
from cohort_gnn.dataset.layouts.chunked import read_chunked
from cohort_gnn.dataset.layouts.described import DESCRIPTION, read_described
from cohort_gnn.dataset.layouts.graph import Graph, Labels, Rows, Source
from cohort_gnn.dataset.layouts.graphbolt import METADATA, read_graphbolt
from cohort_gnn.dataset.layouts.igb import find_igb, is_igbh, read_igb
from cohort_gnn.dataset.layouts.legion import is_legion, read_legion
from cohort_gnn.dataset.layouts.mag240m import find_mag240m, read_mag240m
from cohort_gnn.dataset.layouts.npz import read_npz
from cohort_gnn.dataset.layouts.ogb import is_ogb, read_ogb
from cohort_gnn.dataset.layouts.planetoid import is_planetoid, read_planetoid
from cohort_gnn.dataset.layouts.pyg import read_data
from cohort_gnn.dataset.layouts.table import IDS, NO_FEATURES, Table, shortened, spans
from cohort_gnn.dataset.layouts.text_file import TextOptions
from cohort_gnn.dataset.layouts.typed import TypedGraph
from cohort_gnn.dataset.reader import is_dataset, open_one_type
from cohort_gnn.dataset.reader import open as open_dataset
from cohort_gnn.spec.options import flag_of

TABLES = ("csv", "parquet")
EDGE_LISTS = (*TABLES, "npy")
FORMATS = ("auto", "npz", *EDGE_LISTS, "yaml", "ogb", "mag240m", "pyg", "igb", "igbh", "graphbolt", "dgl", "legion")
ONES = "ones"
COLUMNS = {"weights": "weight_column", "times": "time_column", "features": "edge_feature_columns"}  # of an edge list
FETCH_HINT = "Cohort downloads nothing: fetch a published data set with its own library, then name the folder it made"


@dataclass(frozen=True)
class SourceOptions:
    """What a source does not say itself, or what is to be read in the place of what it says: the options of these names
    of `cohort dataset import`, whose help describes them.

    Attributes:
        text: how the lines of an edge list are made.
        raw: columns and type of a `features` of bare numbers.
        target: of several node types, the one of the labels and splits.
    """

    destinations: Path | None = None
    text: TextOptions = TextOptions()
    features: Path | None = None
    raw: tables.RawLayout = tables.RawLayout()
    feature_columns: Sequence[str] | None = None
    labels: Path | None = None
    label_columns: Sequence[str] | None = None
    edge_weights: Path | None = None
    weight_column: str | None = None
    edge_times: Path | None = None
    time_column: str | None = None
    edge_features: Path | None = None
    edge_feature_columns: Sequence[str] | None = None
    splits: Sequence[Path] | None = None
    nodes: int | None = None
    node_ids: Path | None = None
    target: str | None = None


def import_graph(
    source: str | os.PathLike,
    out: str | os.PathLike,
    *,
    format: str = "auto",
    inputs: SourceOptions = SourceOptions(),
    progress: Progress = lambda what, fraction: None,
    note: Callable[[str], None] = lambda text: None,
    **options: Any,
) -> None:
    """Turns a graph in another format into a data set. FORMAT.md describes the content that is read.

    Args:
        format: one of FORMATS; "auto": guessed from the names of files.
        note: function that gets messages for the user about the source, and at the end about the result.
        options: fields of ConvertOptions.

    Raises:
        CohortError: for input that is missing, damaged or out of range.
    """
    path = Path(source)
    if not path.exists():
        hint = "" if path.suffix else FETCH_HINT
        raise CohortError(str(path), "a file or folder to import", "no such file or folder", hint)
    if is_dataset(path):
        hint = "use it as it is; copy it with cp -a"
        raise CohortError(str(path), "a graph of another format", "a data set of Cohort already", hint)
    _demand_files(inputs)
    kind = detect(path) if format == "auto" else format
    graph = _read(path, kind, inputs)
    if isinstance(graph, TypedGraph):
        graph.choose_target(inputs.target)
        graph.demand_types()
        graph = graph.of_one_type() or graph
    elif inputs.target is not None:
        raise CohortError("--target", "a graph of several node types", "one of one node type", "leave it out")
    for name, problem in graph.missing.items():
        if getattr(inputs, name) is None:
            raise problem
    _replace_task(graph, inputs, options.get("task", "classification"))
    if isinstance(graph, Graph):
        _replace(graph, inputs)
    for text in graph.notes:
        note(text)
    if inputs.node_ids is not None:
        options["node_ids"] = arrays.integers(str(inputs.node_ids), tables.read_ids(inputs.node_ids))
    _demand_task(graph, options.get("task", "classification"), kind)
    converted = ConvertOptions(**options)
    labels, by_hand = (inputs.labels or path).name, kind in (*EDGE_LISTS, "npz")
    if isinstance(graph, TypedGraph):
        demand_no_option_of_one_type(graph, inputs, converted)
        write_graph(TypedConversion, graph, out, converted, progress)
        data = open_dataset(out)
        assert isinstance(data, HeteroDataset)
        lines = typed_outcome(graph, data, converted, labels=labels)
    else:
        if converted.reverse_of:
            raise CohortError("--reverse-of", "a graph of several relations", "one of one relation", "leave it out")
        write_graph(GraphConversion, graph, out, converted, progress)
        lines = outcome(graph, open_one_type(out), converted, labels=labels, numbered_by_hand=by_hand)
    for text in lines:
        note(text)


def _demand_files(inputs: SourceOptions) -> None:
    """Raises CohortError for a file that is named beside the source and is not there."""
    for name, value in vars(inputs).items():
        for path in value if name == "splits" and value else [value]:
            if isinstance(path, Path) and (name, str(path)) != ("features", ONES) and not path.exists():
                raise CohortError(str(path), f"the file that {flag_of(name)} names", "no such file", "check the path")


def _demand_task(graph: Source, task: str, kind: str) -> None:
    """Raises CohortError for a task that the source's labels are not for."""
    if task not in arrays.TASKS:
        raise CohortError("--task", " or ".join(arrays.TASKS), repr(task))
    if task != "classification" and graph.labels is not None and not graph.any_task:
        hint = "pass the targets with --labels FILE, which replaces the labels of the format"
        raise CohortError(f"--task {task}", f"classification: the labels of format {kind} are classes", task, hint)


def import_npz(source: str | os.PathLike, out: str | os.PathLike, **options: Any) -> None:
    """Turns an .npz file (or a folder of .npy files) into a data set; options as those of import_graph."""
    import_graph(source, out, format="npz", **options)


def detect(source: Path) -> str:
    """The format of a file or folder, by its names.

    Raises:
        CohortError: when it looks like none.
    """
    hint = f"--format {'|'.join(FORMATS[1:])}"
    if source.is_dir():
        for kind, (looks_so, _) in FOLDERS.items():
            if looks_so(source):
                return kind
        raise CohortError(str(source), "a folder in a known format", "none", hint)
    if source.suffix in (".yaml", ".yml"):
        return "graphbolt" if source.name == METADATA else "yaml"
    found = "dgl" if source.suffix == ".json" else tables.kind_of(source)
    if found is None:
        raise CohortError(str(source), "a source in a known format", f"a file {source.name}", hint)
    return "pyg" if found == "pt" else found


def _read(path: Path, kind: str, inputs: SourceOptions) -> Graph | TypedGraph:
    given = {what: option for what, option in COLUMNS.items() if getattr(inputs, option) is not None}
    if kind in EDGE_LISTS:
        edges = tables.read_edges(path, inputs.destinations, inputs.text)
        beside = {
            what: tables.read_columns(path, what, flag_of(option), getattr(inputs, option), inputs.text)
            for what, option in given.items()
        }
        return Graph(name=path.name.split(".")[0], edges=replace(edges, **beside))
    for option in given.values():
        raise CohortError(flag_of(option), f"an edge list: {', '.join(EDGE_LISTS)}", f"format {kind}")
    if kind not in FOLDERS:
        raise CohortError("--format", " or ".join(FORMATS), kind)
    return FOLDERS[kind][1](path)


def _read_pyg(path: Path) -> Graph:
    read = _pyg_reader(path)
    if read is None:
        expected = "a Data file, or a folder with raw/ind.NAME.* or processed/data.pt"
        raise CohortError(str(path), expected, "neither", "FORMAT.md lists the layouts that are known")
    return read()


def _pyg_reader(path: Path) -> Callable[[], Graph] | None:
    """What reads a file of PyG, or a folder of its data sets; None when it is none."""
    if not path.is_dir():
        return lambda: read_data(path)
    for folder in (path, path / "raw"):
        if is_planetoid(folder):
            return lambda: read_planetoid(folder)
    processed = path / "processed" / "data.pt"
    return (lambda: read_data(processed, path.resolve().name)) if processed.exists() else None


# Format -> how a folder of it looks, and what reads it; the first one that fits is taken.
FOLDERS: dict[str, tuple[Callable[[Path], bool], Callable[[Path], Graph | TypedGraph]]] = {
    "yaml": (lambda path: (path / DESCRIPTION).exists(), read_described),
    "ogb": (is_ogb, read_ogb),
    "mag240m": (lambda path: find_mag240m(path) is not None, read_mag240m),
    "pyg": (lambda path: _pyg_reader(path) is not None, _read_pyg),
    "graphbolt": (lambda path: (path / METADATA).exists(), read_graphbolt),
    "dgl": (lambda path: (path / CHUNKED).exists(), read_chunked),
    "legion": (is_legion, read_legion),
    "igbh": (is_igbh, lambda path: read_igb(path, has_types=True)),
    "igb": (lambda path: find_igb(path) is not None, read_igb),
    "npz": (lambda path: any(path.glob("*.npy")), read_npz),
}


def _replace_task(graph: Source, inputs: SourceOptions, task: str) -> None:
    """Puts the labels and splits that the options name in the place of those of the source."""
    if inputs.labels is not None:
        graph.labels, graph.any_task = _labels(inputs.labels, inputs, task), True
    if inputs.splits is not None:
        graph.splits, graph.splits_from = tables.splits_of(inputs.splits), "--splits"
    elif graph.splits is not None and graph.labels is None:
        graph.splits = None
        graph.notes.append("no labels: the splits of the source are not used")


def _replace(graph: Graph, inputs: SourceOptions) -> None:
    """Puts what the options name in the place of what the source has of nodes and edges."""
    for option, chosen, file in (
        ("--feature-columns", inputs.feature_columns, inputs.features),
        ("--label-columns", inputs.label_columns, inputs.labels),
    ):
        if chosen and (file is None or tables.kind_of(file) not in TABLES):
            raise CohortError(option, "a .csv or .parquet file that has columns", str(file or "none"))
    if inputs.features is not None and str(inputs.features) != ONES:
        graph.features = _features(inputs.features, inputs, graph.notes)
    elif inputs.features is not None:
        graph.features = None
    elif graph.features is None:
        hint = f"pass --features FILE, or --features {ONES} for one column of ones"
        raise CohortError(graph.edges.place, "feature rows", "only edges", hint)
    for what, option in COLUMNS.items():
        if (file := getattr(inputs, f"edge_{what}")) is None:
            continue
        if getattr(inputs, option) is not None:
            raise CohortError(f"--edge-{what}, {flag_of(option)}", "one of the two", "both")
        beside = tables.read_rows(file) if what == "features" else tables.read_weights(file, what == "times")
        graph.edges = replace(graph.edges, **{what: beside})
    if inputs.nodes is not None:
        if graph.num_nodes not in (None, inputs.nodes):
            raise CohortError("--nodes", f"{graph.num_nodes}, as the source says", str(inputs.nodes))
        graph.num_nodes = inputs.nodes


def _open_table(path: Path, wanted: Sequence[str] | None) -> tuple[Table, list[int], list[str]]:
    """A table, and the numbers and names of its columns, all of them or those that are wanted."""
    table = tables.open_table(path, tables.GUESSED.judged_by(wanted))
    numbers = table.choose(wanted)
    return table, numbers, [table.titles[i] for i in numbers]


def _demand_order(table: Table, chosen: list[int]) -> None:
    """Raises CohortError where a column of ids, which nobody has asked for, has another order than the rows."""
    for i, name in enumerate(table.titles):
        if name.lower() not in IDS or i in chosen:
            continue
        try:
            ids = table.read([i], np.float64)
        except (CohortError, ValueError):  # texts number no nodes
            continue
        off = np.flatnonzero(ids != np.arange(len(ids)))
        if len(off):
            hint = f"sort the table by {name}, or, for a graph of one node type, pass the ids with --node-ids FILE"
            expected = f"row i to be node i: {name} {off[0]} in row {off[0]}"
            raise CohortError(str(table.path), expected, f"{name} {ids[off[0]]:.0f}", hint)


def _features(path: Path, inputs: SourceOptions, notes: list[str]) -> Rows:
    """The rows of a file; of a table, the columns that are features."""
    if tables.kind_of(path) not in TABLES:
        return tables.read_rows(path, inputs.raw)
    table, numbers, names = _open_table(path, inputs.feature_columns)
    odd = [name for name in names if name.lower() in NO_FEATURES]
    if odd and not inputs.feature_columns:
        others = spans(names, odd)
        hint = f"say which are: --feature-columns {others or 'A,B,C:F'}; row i is node i, whatever its id"
        raise CohortError(str(path), "only columns of features", f"{' and '.join(odd)} among them", hint)
    of = "" if len(names) == len(table.titles) else f" of {len(table.titles)}"
    if inputs.node_ids is None:
        _demand_order(table, numbers)
    notes.append(f"{path.name}: {len(names)}{of} columns taken as features: {shortened(names)}")
    return Rows.of_table(table, numbers if inputs.feature_columns else None)


def _labels(path: Path, inputs: SourceOptions, task: str) -> Labels:
    """The labels of a file; of a table, the column that is meant."""
    if tables.kind_of(path) not in TABLES:
        return Labels(str(path), lambda: tables.read_array(path))
    wanted = inputs.label_columns
    table, numbers, names = _open_table(path, wanted)
    ids = [name for name in names if name.lower() in IDS]
    if not wanted and len(names) > 1 and (ids or task != "multilabel"):
        others = [name for name in names if name not in ids]
        best = next((name for name in others if name.lower() in NO_FEATURES), others[-1] if others else "A")
        hint = f"--label-columns {best} takes only that column; row i is node i, whatever its id"
        if not ids:
            hint += "; --task multilabel takes all, each a label of its own"
        raise CohortError(str(path), "one column, the label of each node", shortened(names), hint)
    if inputs.node_ids is None:
        _demand_order(table, numbers)
    return Labels(str(path), lambda: table.read(numbers))
