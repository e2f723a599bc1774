"""`cohort dataset import`: graphs of other formats become data sets, in bounded memory. No pickle is ever loaded."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cohort.base.errors import CohortError
from cohort.dataset import arrays
from cohort.dataset.convert import ConvertOptions, write_graph
from cohort.dataset.graph import Graph
from cohort.dataset.layouts import tables
from cohort.dataset.layouts.graphbolt import METADATA, read_graphbolt
from cohort.dataset.layouts.igb import find_igb, read_igb
from cohort.dataset.layouts.legion import is_legion, read_legion
from cohort.dataset.layouts.npz import read_npz
from cohort.dataset.layouts.ogb import is_ogb, read_ogb
from cohort.dataset.layouts.planetoid import is_planetoid, read_planetoid
from cohort.dataset.layouts.pyg import read_data
from cohort.dataset.progress import Progress, silent
from cohort.dataset.text_file import TextOptions

EDGE_LISTS = ("csv", "parquet", "npy")
FORMATS = ("auto", "npz", *EDGE_LISTS, "ogb", "pyg", "igb", "graphbolt", "legion")
ONES = "ones"


@dataclass(frozen=True)
class SourceOptions:
    """What a source does not say itself, or what is to be read in the place of what it says.

    Attributes:
        destinations: file of the edges' destinations, when the source has their sources alone.
        text: how the lines of an edge list are made.
        features: file of the rows, or "ones": one column of ones.
        raw: columns and type of a `features` of bare numbers.
        labels: file of numbers [V], or [V, labels].
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
    labels: Path | None = None
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
    """Turns a graph of another format into a data set. FORMAT.md says what is read of each.

    Args:
        format: one of FORMATS; "auto" looks at the source.
        note: told what a user should know about what was read.
        options: fields of ConvertOptions.

    Raises:
        CohortError: for input that is missing, damaged or out of range.
    """
    path = Path(source)
    if not path.exists():
        raise CohortError(str(path), "a file or folder to import", "no such file or folder")
    kind = detect(path) if format == "auto" else format
    graph = _read(path, kind, inputs)
    _replace(graph, inputs)
    for text in graph.notes:
        note(text)
    if inputs.node_ids is not None:
        options["node_ids"] = arrays.integers(str(inputs.node_ids), tables.read_ids(inputs.node_ids))
    _demand_task(graph, options.get("task", "classification"), kind)
    write_graph(graph, out, ConvertOptions(**options), progress)


def _demand_task(graph: Graph, task: str, kind: str) -> None:
    """Raises CohortError for a task that the source's labels are not for."""
    if task not in arrays.TASKS:
        raise CohortError("--task", " or ".join(arrays.TASKS), repr(task))
    if task != "classification" and graph.labels is not None and not graph.any_task:
        hint = "give the targets with --labels FILE, and leave --format's out"
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
            raise CohortError(str(source), "a source whose format is known", f"a file {source.name}", hint)
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
    raise CohortError(str(source), "a folder of a format that is known", "none", f"--format {'|'.join(FORMATS[1:])}")


def _read(path: Path, kind: str, inputs: SourceOptions) -> Graph:
    if kind in EDGE_LISTS:
        edges = tables.read_edges(path, inputs.destinations, inputs.text)
        column = inputs.weight_column
        weights = None if column is None else tables.read_weight_column(path, column, inputs.text)
        return Graph(name=path.name.split(".")[0], edges=edges, edge_weights=weights)
    if inputs.weight_column is not None:
        raise CohortError("--weight-column", f"an edge list: {', '.join(EDGE_LISTS)}", f"format {kind}")
    readers = {"npz": read_npz, "ogb": read_ogb, "igb": read_igb, "graphbolt": read_graphbolt, "legion": read_legion}
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


def _replace(graph: Graph, inputs: SourceOptions) -> None:
    """Puts what the options name in the place of what the source has."""
    if inputs.features is not None and str(inputs.features) != ONES:
        graph.features = tables.read_rows(inputs.features, inputs.raw)
    elif inputs.features is not None:
        graph.features = None
    elif graph.features is None:
        hint = f"give --features FILE, or --features {ONES} for one column of ones"
        raise CohortError(graph.edges.place, "feature rows", "edges alone", hint)
    if inputs.labels is not None:
        graph.labels, graph.any_task = tables.labels_of(inputs.labels), True
    if inputs.edge_weights is not None:
        if inputs.weight_column is not None:
            raise CohortError("--edge-weights, --weight-column", "one of the two", "both")
        graph.edge_weights = tables.read_weights(inputs.edge_weights)
    if inputs.splits is not None:
        graph.splits = tables.splits_of(inputs.splits)
    if inputs.nodes is not None:
        if graph.num_nodes not in (None, inputs.nodes):
            raise CohortError("--nodes", f"{graph.num_nodes}, as the source says", str(inputs.nodes))
        graph.num_nodes = inputs.nodes
