"""`cohort dataset import`: graphs of other formats become data sets, in bounded memory. No pickle is ever loaded."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.files import write_whole
from cohort_gnn.dataset import arrays
from cohort_gnn.dataset.importing.beside import (
    AS_IT_IS,
    COLUMNS,
    SourceOptions,
    demand_files,
    demand_no_edge_list,
    demand_options_fit,
    node_ids_of,
    replace_graph,
    replace_task,
)
from cohort_gnn.dataset.importing.convert import write_graph
from cohort_gnn.dataset.importing.databases import is_relbench
from cohort_gnn.dataset.importing.describe import describe, settled
from cohort_gnn.dataset.importing.edge_data import ProgressCall
from cohort_gnn.dataset.importing.options import ConvertOptions
from cohort_gnn.dataset.importing.outcome import outcome
from cohort_gnn.dataset.layouts import tables
from cohort_gnn.dataset.layouts.chunked import METADATA as CHUNKED
from cohort_gnn.dataset.layouts.chunked import read_chunked
from cohort_gnn.dataset.layouts.described import read_described
from cohort_gnn.dataset.layouts.description import DESCRIPTION
from cohort_gnn.dataset.layouts.foreign import demand_no_foreign
from cohort_gnn.dataset.layouts.graph import Graph
from cohort_gnn.dataset.layouts.graphbolt import METADATA, read_graphbolt
from cohort_gnn.dataset.layouts.igb import find_igb, is_igbh, read_igb
from cohort_gnn.dataset.layouts.legion import is_legion, read_legion
from cohort_gnn.dataset.layouts.mag240m import find_mag240m, read_mag240m
from cohort_gnn.dataset.layouts.matrix_market import read_matrix_market
from cohort_gnn.dataset.layouts.npz import read_npz
from cohort_gnn.dataset.layouts.ogb import is_ogb, read_ogb
from cohort_gnn.dataset.layouts.planetoid import is_planetoid, read_planetoid
from cohort_gnn.dataset.layouts.pyg import HINT as PYG_HINT
from cohort_gnn.dataset.layouts.pyg import read_data
from cohort_gnn.dataset.layouts.tensor_files import ARRAYS, file_of, is_tensor_file
from cohort_gnn.dataset.reader import is_dataset
from cohort_gnn.dataset.tables.known_files import demand_fetched, demand_unknown
from cohort_gnn.dataset.tables.parts import part_files
from cohort_gnn.spec.options import flag_of

EDGE_LISTS = ("csv", "parquet", "arrow", *ARRAYS)
FETCH_HINT = "Cohort downloads nothing: fetch a published data set with its own library, then name the folder it made"


def import_graph(
    source: str | os.PathLike,
    out: str | os.PathLike,
    *,
    format: str = "auto",
    as_proposed: bool = False,
    inputs: SourceOptions = AS_IT_IS,
    progress: ProgressCall = lambda what, fraction: None,
    note: Callable[[str], None] = lambda text: None,
    **options: Any,
) -> None:
    """Turns a graph in another format into a data set. FORMAT.md describes the content that is read.

    Args:
        format: one of FORMATS; "auto": guessed from the names of files.
        as_proposed: tables of a database are described by what `cohort dataset describe` proposes, which the data set
            keeps as graph.yaml.
        note: function that gets messages for the user about the source, and at the end about the result.
        options: fields of ConvertOptions.

    Raises:
        CohortError: for input that is missing, damaged or out of range.
        TypeError: there is no option of a name.
    """
    ConvertOptions.named(options)  # refuses wrong ones before anything is read
    path = Path(source)
    if not file_of(path).exists() and not part_files(path):
        hint = "" if path.suffix else FETCH_HINT
        raise CohortError(str(path), "a file or folder to import", "no such file or folder", hint)
    if is_dataset(path):
        hint = "use it as it is; copy it with cp -a"
        raise CohortError(str(path), "a graph of another format", "a data set of Cohort already", hint)
    demand_files(inputs)
    proposal = _proposal(path, format) if as_proposed else None
    kind = "yaml" if proposal is not None else detect(path) if format == "auto" else format
    _demand_ids_elsewhere(kind, inputs, options)
    labels, by_hand = (inputs.labels or path).name, kind in (*EDGE_LISTS, "npz")
    if proposal is None:
        graph = read_source(path, kind, inputs)
    else:
        graph = read_described(path if path.is_dir() else path.parent / DESCRIPTION, proposal.encode())
    write_source(graph, out, kind, inputs, labels=labels, by_hand=by_hand, progress=progress, note=note, **options)
    if proposal is not None:
        write_whole(Path(out) / DESCRIPTION, proposal)
        for text in settled(proposal):
            note(f"proposed: {text}")
        note(f"columns are what was proposed: {Path(out) / DESCRIPTION}")


def _proposal(source: Path, format: str) -> str:
    """The graph.yaml that is proposed for tables of a database.

    Raises:
        CohortError: there is one already, or the format is another.
    """
    if format != "auto":
        raise CohortError("--as-proposed", "no --format", format, "leave one of the two out")
    demand_no_description(source)
    return describe(source)


def demand_no_description(source: Path) -> None:
    """Raises CohortError for a folder that has a description, of which none is to be proposed."""
    if source.is_dir() and (source / DESCRIPTION).exists():
        raise CohortError("--as-proposed", f"tables without {DESCRIPTION}", f"{source / DESCRIPTION}", "leave it out")


def write_source(
    graph: Graph,
    out: str | os.PathLike,
    kind: str,
    inputs: SourceOptions = AS_IT_IS,
    *,
    labels: str = "label",
    by_hand: bool = False,
    progress: ProgressCall = lambda what, fraction: None,
    note: Callable[[str], None] = lambda text: None,
    **options: Any,
) -> None:
    """Writes a graph that has been read, with what the options put in its place, as a data set.

    Args:
        kind: its format.
        labels: what messages call its labels.
        by_hand: somebody numbered the nodes of an edge list; it is no published data set.
        options: fields of ConvertOptions.
    """
    graph.choose_target(inputs.target)
    graph.demand_types()
    graph = graph.without_names()
    for name, problem in graph.missing.items():
        if getattr(inputs, name) is None:
            raise problem
    ids = node_ids_of(inputs)
    if ids is not None:
        options["node_ids"] = ids
    converted = ConvertOptions.named(options)
    demand_options_fit(graph, inputs, converted)
    replace_task(graph, inputs, converted.task, ids)
    replace_graph(graph, inputs, ids)
    for text in graph.notes:
        note(text)
    _demand_task(graph, converted.task, kind)
    said = len(graph.notes)
    write_graph(graph, out, converted, progress)
    for text in graph.notes[said:] + outcome(graph, Path(out), converted, labels=labels, numbered_by_hand=by_hand):
        note(text)


def _demand_ids_elsewhere(kind: str, inputs: SourceOptions, options: dict[str, Any]) -> None:
    """Raises CohortError for an option about ids where a description names their columns."""
    flag = "--rename" if options.get("rename") else "--node-ids" if inputs.node_ids is not None else ""
    if flag and kind == "yaml":
        hint = f"leave {flag} out: the key id of a node type names its column of ids, integers or texts"
        raise CohortError(flag, "a graph without a description of its ids", f"{DESCRIPTION}, which has one", hint)


def _demand_task(graph: Graph, task: str, kind: str) -> None:
    """Raises CohortError for a task that the source's labels are not for."""
    if task not in arrays.TASKS:
        raise CohortError("--label-type", " or ".join(arrays.TASKS), repr(task))
    if task != "classification" and graph.labels is not None and not graph.any_task:
        hint = "pass the targets with --labels FILE, which replaces the labels of the format"
        raise CohortError(
            f"--label-type {task}", f"classification: the labels of format {kind} are classes", task, hint
        )


def import_npz(source: str | os.PathLike, out: str | os.PathLike, **options: Any) -> None:
    """Turns an .npz file (or a folder of .npy files) into a data set; options as those of import_graph."""
    import_graph(source, out, format="npz", **options)


def detect(source: Path) -> str:
    """The format of a file or folder, by its names.

    Raises:
        CohortError: when it looks like none.
    """
    hint = f"--format {'|'.join(FORMATS[1:])}"
    demand_fetched(file_of(source))
    if source.is_dir():
        if is_relbench(source) and not (source / DESCRIPTION).exists():
            cure = f"cohort dataset describe {source} > {source}/{DESCRIPTION} proposes one, --as-proposed takes it"
            raise CohortError(str(source), f"{DESCRIPTION}, which says what its columns are", "tables alone", cure)
        for kind, (looks_so, _) in FOLDERS.items():
            if looks_so(source):
                return kind
        demand_no_foreign(source)
        if inside := sorted(path for path in source.iterdir() if path.is_dir() and _looks_known(path)):
            raise CohortError(str(source), "a folder in a known format", "a folder above one", f"name {inside[0]}")
        if (table_option := tables.kind_of(source)) is not None:
            return table_option
        raise CohortError(str(source), "a folder in a known format", "none", hint)
    if source.name == METADATA:
        return "graphbolt"
    if tables.kind_of(source) is None:
        demand_no_foreign(source)
    if source.suffix in (".yaml", ".yml"):
        return "yaml"
    format_name = "dgl" if source.suffix == ".json" else tables.kind_of(source)
    if format_name is None:
        demand_unknown(source, "a source in a known format")
        raise CohortError(str(source), "a source in a known format", f"a file {source.name}", hint)
    return "pyg" if format_name == "pt" and not is_tensor_file(source, PYG_HINT) else format_name


def _looks_known(folder: Path) -> bool:
    """Whether a folder is in a format of FOLDERS."""
    return any(looks_so(folder) for looks_so, _ in FOLDERS.values())


def read_source(path: Path, kind: str, inputs: SourceOptions) -> Graph:
    """The graph of a source in a format of FORMATS, with the columns that the options name."""
    options = {what: option for what, option in COLUMNS.items() if getattr(inputs, option) is not None}
    if kind in EDGE_LISTS:
        if part_files(path) and (inputs.edge_weights or inputs.edge_times or inputs.edge_features):
            tables.demand_part_order(tables.open_table(path, inputs.text("edges"), kind=kind))
        text, chosen = inputs.text("edges"), {what: getattr(inputs, option) for what, option in options.items()}
        others = [name for names in chosen.values() for name in ([names] if isinstance(names, str) else names)]
        edges = tables.read_edges(path, inputs.destinations, text, inputs.columns, others, kind)
        wanted = tables.wanted_of_edges(inputs.columns, others)
        for what, option in options.items():
            clock = inputs.clock if what == "times" else None
            column = tables.read_columns(path, what, flag_of(option), chosen[what], text, wanted, kind, clock)
            edges = edges.with_column(column)
        return Graph.homogeneous(edges, name=file_of(path).name.split(".")[0])
    if kind not in FOLDERS:
        raise CohortError("--format", " or ".join(FORMATS), kind)
    demand_no_edge_list(inputs, kind)
    return FOLDERS[kind][1](path)


def _read_pyg(path: Path) -> Graph:
    read = _pyg_reader(path)
    if read is None:
        expected = "a Data file, or a folder with raw/ind.NAME.* or processed/data.pt"
        raise CohortError(str(path), expected, "neither", "FORMAT.md lists the layouts that are known")
    return read()


def _pyg_reader(path: Path) -> Callable[[], Graph] | None:
    """The reader of a file of PyG, or of a folder of its data sets; None if it is neither."""
    if not path.is_dir():
        return lambda: read_data(path)
    for folder in (path, path / "raw"):
        if is_planetoid(folder):
            return lambda: read_planetoid(folder)
    processed = path / "processed" / "data.pt"
    return (lambda: read_data(processed, path.resolve().name)) if processed.exists() else None


# Format -> how a folder of it looks, and what reads a folder or a file of it; the first one that fits is taken.
FOLDERS: dict[str, tuple[Callable[[Path], bool], Callable[[Path], Graph]]] = {
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
    "mtx": (lambda path: False, read_matrix_market),
}
FORMATS = ("auto", *EDGE_LISTS, *FOLDERS)
