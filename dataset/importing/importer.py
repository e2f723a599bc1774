"""`cohort dataset import`: graphs of other formats become data sets, in bounded memory. No pickle is ever loaded."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cohort.base.errors import CohortError
from cohort.dataset import arrays
from cohort.dataset.importing.convert import ConvertOptions, write_graph
from cohort.dataset.importing.outcome import outcome
from cohort.dataset.layouts import tables
from cohort.dataset.layouts.graph import (
    Graph,
    Rows,
    edges_of_arrays,
    rows_of_matrix,
    rows_of_parquet,
    rows_of_text,
    weights_of_array,
)
from cohort.dataset.layouts.graphbolt import METADATA, read_graphbolt
from cohort.dataset.layouts.igb import find_igb, read_igb
from cohort.dataset.layouts.legion import is_legion, read_legion
from cohort.dataset.layouts.npz import Source, read_npz
from cohort.dataset.layouts.ogb import is_ogb, read_ogb
from cohort.dataset.layouts.parquet_file import ParquetFile
from cohort.dataset.layouts.planetoid import is_planetoid, read_planetoid
from cohort.dataset.layouts.pyg import MASKS, read_data
from cohort.dataset.layouts.text_file import TextFile, TextOptions, choose_columns, options_for, shortened, spans
from cohort.dataset.progress import Progress, silent
from cohort.dataset.reader import is_dataset
from cohort.dataset.reader import open as open_dataset
from cohort.dataset.writer import SPLITS

EDGE_LISTS = ("csv", "parquet", "npy")
FORMATS = ("auto", "npz", *EDGE_LISTS, "ogb", "pyg", "igb", "graphbolt", "legion")
ONES = "ones"
IDS = ("id", "node_id")
NO_FEATURES = (*IDS, "label", "labels", "y")  # what columns are called that a model must not learn from
FETCH_HINT = "Cohort downloads nothing: fetch a published data set with its own library, then name the folder it made"


@dataclass(frozen=True)
class SourceOptions:
    """What a source does not say itself, or what is to be read in the place of what it says.

    Attributes:
        destinations: file of the edges' destinations, when the source has their sources alone.
        text: how the lines of an edge list are made.
        features: file of the rows, or "ones": one column of ones.
        raw: columns and type of a `features` of bare numbers.
        feature_columns: of `features` in a table: names, numbers from 0, or FIRST:LAST; None: all.
        labels: file of numbers [V], or [V, labels].
        label_columns: of `labels` in a table, as `feature_columns`; None: its only one, with several labels all.
        edge_weights: file of numbers [E], in the order of the edges.
        weight_column: of an edge list, the name or number of the column that has them.
        splits: files of train, val and test ids, or of bool masks [V].
        nodes: how many there are.
        node_ids: file of the id of each row.
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
    splits: Sequence[Path] | None = None
    nodes: int | None = None
    node_ids: Path | None = None


def import_graph(
    source: str | os.PathLike,
    out: str | os.PathLike,
    *,
    format: str = "auto",
    inputs: SourceOptions = SourceOptions(),
    progress: Progress = silent,
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
    _replace(graph, inputs, options.get("task", "classification"))
    for text in graph.notes:
        note(text)
    if inputs.node_ids is not None:
        options["node_ids"] = arrays.integers(str(inputs.node_ids), tables.read_ids(inputs.node_ids))
    _demand_task(graph, options.get("task", "classification"), kind)
    converted = ConvertOptions(**options)
    write_graph(graph, out, converted, progress)
    labels, by_hand = (inputs.labels or path).name, kind in (*EDGE_LISTS, "npz")
    for text in outcome(graph, open_dataset(out), converted, labels=labels, numbered_by_hand=by_hand):
        note(text)


def _demand_files(inputs: SourceOptions) -> None:
    """Raises CohortError for a file that is named beside the source and is not there."""
    named = {
        "--destinations": [inputs.destinations],
        "--features": [inputs.features if str(inputs.features) != ONES else None],
        "--labels": [inputs.labels],
        "--edge-weights": [inputs.edge_weights],
        "--splits": inputs.splits or [],
        "--node-ids": [inputs.node_ids],
    }
    for option, paths in named.items():
        for path in paths:
            if path is not None and not path.exists():
                raise CohortError(str(path), f"the file that {option} names", "no such file", "check the path")


def _demand_task(graph: Graph, task: str, kind: str) -> None:
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
    if not source.is_dir():
        kind = {"pt": "pyg"}.get(tables.kind_of(source) or "", tables.kind_of(source))
        if source.name.endswith((".yaml", ".yml")):
            kind = "graphbolt"
        if kind is None:
            hint = f"--format {'|'.join(FORMATS[1:])}"
            raise CohortError(str(source), "a source in a known format", f"a file {source.name}", hint)
        return kind
    looks = {
        "ogb": is_ogb(source),
        "pyg": _pyg_reader(source) is not None,
        "graphbolt": (source / METADATA).exists(),
        "legion": is_legion(source),
        "igb": find_igb(source) is not None,
        "npz": any(source.glob("*.npy")),
    }
    for kind, fits in looks.items():
        if fits:
            return kind
    raise CohortError(str(source), "a folder in a known format", "none", f"--format {'|'.join(FORMATS[1:])}")


def _read(path: Path, kind: str, inputs: SourceOptions) -> Graph:
    if kind in EDGE_LISTS:
        edges = tables.read_edges(path, inputs.destinations, inputs.text)
        column = inputs.weight_column
        weights = None if column is None else tables.read_weight_column(path, column, inputs.text)
        return Graph(name=path.name.split(".")[0], edges=edges, edge_weights=weights)
    if inputs.weight_column is not None:
        raise CohortError("--weight-column", f"an edge list: {', '.join(EDGE_LISTS)}", f"format {kind}")
    readers = {"npz": _read_npz, "ogb": read_ogb, "igb": read_igb, "graphbolt": read_graphbolt, "legion": read_legion}
    readers["pyg"] = _read_pyg
    if kind not in readers:
        raise CohortError("--format", " or ".join(FORMATS), kind)
    return readers[kind](path)


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


def _read_npz(path: Path) -> Graph:
    """Arrays as FORMAT.md names them, or as PyG does; with those splits that there are."""
    inputs = Source(path)
    if "edge_index" in inputs.keys and not {"src", "adj_indptr"} & set(inputs.keys):
        graph = _read_pyg_arrays(inputs)
    else:
        for key in () if "adj_indptr" in inputs.keys else ("src", "dst", "x", "labels"):
            inputs.demand(key)
        graph = read_npz(path)
    for names in (MASKS, SPLITS):
        there = [key for key in names if key in inputs.keys]
        read = inputs.mask if names is MASKS else inputs.__getitem__
        if there:
            graph.take_splits(path, {key: (lambda key=key, read=read: read(key)) for key in there}, names)
    return graph


def _read_pyg_arrays(inputs: Source) -> Graph:
    """x, edge_index, y and edge_weight, as PyG names them."""
    ends = inputs["edge_index"]
    arrays.demand_shape(inputs.place("edge_index"), ends, (2, None))
    x = arrays.features(inputs.place("x"), inputs["x"])
    src, dst = arrays.edges(inputs.place("edge_index: "), ends[0], ends[1], len(x))
    weights = inputs["edge_weight"] if "edge_weight" in inputs.keys else None
    label = next((key for key in ("y", "labels") if key in inputs.keys), None)
    return Graph(
        name=inputs.path.resolve().stem,
        edges=edges_of_arrays(inputs.place("edge_index"), src, dst),
        features=rows_of_matrix(inputs.place("x"), x),
        edge_weights=None if weights is None else weights_of_array(inputs.place("edge_weight"), weights),
        labels=(lambda: (inputs.place(label), inputs[label])) if label else None,
        num_nodes=len(x),
        any_task=True,
    )


def _replace(graph: Graph, inputs: SourceOptions, task: str) -> None:
    """Puts what the options name in the place of what the source has."""
    for option, chosen, file in (
        ("--feature-columns", inputs.feature_columns, inputs.features),
        ("--label-columns", inputs.label_columns, inputs.labels),
    ):
        if chosen and (file is None or tables.kind_of(file) not in ("csv", "parquet")):
            raise CohortError(option, "a .csv or .parquet file that has columns", str(file or "none"))
    if inputs.features is not None and str(inputs.features) != ONES:
        graph.features = _features(inputs.features, inputs, graph.notes)
    elif inputs.features is not None:
        graph.features = None
    elif graph.features is None:
        hint = f"pass --features FILE, or --features {ONES} for one column of ones"
        raise CohortError(graph.edges.place, "feature rows", "only edges", hint)
    if inputs.labels is not None:
        graph.labels, graph.any_task = _labels(inputs.labels, inputs, task), True
    if inputs.edge_weights is not None:
        if inputs.weight_column is not None:
            raise CohortError("--edge-weights, --weight-column", "one of the two", "both")
        graph.edge_weights = tables.read_weights(inputs.edge_weights)
    if inputs.splits is not None:
        graph.splits, graph.splits_from = tables.splits_of(inputs.splits), "--splits"
    if inputs.nodes is not None:
        if graph.num_nodes not in (None, inputs.nodes):
            raise CohortError("--nodes", f"{graph.num_nodes}, as the source says", str(inputs.nodes))
        graph.num_nodes = inputs.nodes


class _Table:
    """The columns of a text or a Parquet file, all of them or those that are wanted."""

    def __init__(self, path: Path, wanted: Sequence[str] | None):
        self.path, self.is_text = path, tables.kind_of(path) == "csv"
        self.file = TextFile(path, options_for(wanted)) if self.is_text else ParquetFile(path)
        self.titles = self.file.titles if self.is_text else self.file.names
        self.numbers = choose_columns(str(path), self.titles, wanted) if wanted else list(range(len(self.titles)))
        self.names = [self.titles[i] for i in self.numbers]

    def demand_order(self) -> None:
        """Raises CohortError where a column of ids, which nobody has asked for, has another order than the rows."""
        for i, name in enumerate(self.titles):
            if name.lower() not in IDS or i in self.numbers:
                continue
            ids = self._column(i)
            off = np.flatnonzero(ids != np.arange(len(ids)))
            if len(off):
                hint = f"sort the table by {name}, or pass the ids with --node-ids FILE"
                expected = f"row i to be node i: {name} {off[0]} in row {off[0]}"
                raise CohortError(str(self.path), expected, f"{name} {ids[off[0]]:.0f}", hint)

    def _column(self, i: int) -> np.ndarray:
        """One column of numbers; of texts, none: they number no nodes."""
        try:
            if self.is_text:
                return self.file.read(np.float64, [i])[:, 0]
            parts = [columns[0] for columns in self.file.batches([self.titles[i]], 1 << 20)]
            return np.concatenate(parts).astype(np.float64) if parts else np.empty(0)
        except (CohortError, ValueError):
            return np.empty(0)

    def rows(self, wanted: bool) -> Rows:
        if self.is_text:
            return rows_of_text(self.file, self.numbers if wanted else None)
        return rows_of_parquet(self.file, self.names)

    def array(self) -> np.ndarray:
        """[V], or [V, columns]"""
        if self.is_text:
            found = self.file.read(np.float64, self.numbers)
        else:
            parts = [np.column_stack(columns) for columns in self.file.batches(self.names, 1 << 20)]
            found = np.concatenate(parts) if parts else np.empty((0, 1), np.int64)
        return found[:, 0] if found.shape[1] == 1 else found


def _features(path: Path, inputs: SourceOptions, notes: list[str]) -> Rows:
    """The rows of a file; of a table, the columns that are features."""
    if tables.kind_of(path) not in ("csv", "parquet"):
        return tables.read_rows(path, inputs.raw)
    table = _Table(path, inputs.feature_columns)
    odd = [name for name in table.names if name.lower() in NO_FEATURES]
    if odd and not inputs.feature_columns:
        others = spans(table.names, odd)
        hint = f"say which are: --feature-columns {others or 'A,B,C:F'}; row i is node i, whatever its id"
        raise CohortError(str(path), "only columns of features", f"{' and '.join(odd)} among them", hint)
    of = "" if len(table.names) == len(table.titles) else f" of {len(table.titles)}"
    if inputs.node_ids is None:
        table.demand_order()
    notes.append(f"{path.name}: {len(table.names)}{of} columns taken as features: {shortened(table.names)}")
    return table.rows(bool(inputs.feature_columns))


def _labels(path: Path, inputs: SourceOptions, task: str) -> Callable[[], tuple[str, np.ndarray]]:
    """The labels of a file; of a table, the column that is meant."""
    if tables.kind_of(path) not in ("csv", "parquet"):
        return tables.labels_of(path)
    wanted = inputs.label_columns
    table = _Table(path, wanted)
    ids = [name for name in table.names if name.lower() in IDS]
    if not wanted and len(table.names) > 1 and (ids or task != "multilabel"):
        others = [name for name in table.names if name not in ids]
        best = next((name for name in others if name.lower() in NO_FEATURES), others[-1] if others else "A")
        hint = f"--label-columns {best} takes only that column; row i is node i, whatever its id"
        if not ids:
            hint += "; --task multilabel takes all, each a label of its own"
        raise CohortError(str(path), "one column, the label of each node", shortened(table.names), hint)
    if inputs.node_ids is None:
        table.demand_order()
    return lambda: (str(path), table.array())
