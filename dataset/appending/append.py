"""`cohort dataset append`: new nodes and edges in a data set, as if it had been imported with them."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np

from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.spelling import did_you_mean
from cohort_gnn.base.units import format_bytes
from cohort_gnn.dataset.appending.conversion import AGAIN, Appending
from cohort_gnn.dataset.appending.folder import link_files, replaced_folder
from cohort_gnn.dataset.changes import record_step, state_of
from cohort_gnn.dataset.components import FILE as COMPONENTS
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
from cohort_gnn.dataset.importing.convert import MIN_MEMORY
from cohort_gnn.dataset.importing.edge_data import ProgressCall
from cohort_gnn.dataset.importing.from_tables import described_tables, without_folder
from cohort_gnn.dataset.importing.importer import EDGE_LISTS, detect, read_source
from cohort_gnn.dataset.importing.kept import RECORD as SOURCE_RECORD
from cohort_gnn.dataset.importing.options import ConvertOptions
from cohort_gnn.dataset.layouts.described import NO_STREAMS, described_graph
from cohort_gnn.dataset.layouts.description import DESCRIPTION, HINT, Description
from cohort_gnn.dataset.layouts.graph import Graph, Nodes
from cohort_gnn.dataset.layouts.node_ids import KnownNodes
from cohort_gnn.dataset.layouts.streams import ONES, Edges, Rows
from cohort_gnn.dataset.layouts.tensor_files import file_of
from cohort_gnn.dataset.links import LinkEdges, held_out_of, with_held_out
from cohort_gnn.dataset.meta import META
from cohort_gnn.dataset.original_ids import FILE, original_ids
from cohort_gnn.dataset.prepared import PREPARED_FOLDER, is_prepared
from cohort_gnn.dataset.reader import open as open_dataset
from cohort_gnn.dataset.stored_graph import StoredGraph
from cohort_gnn.dataset.structured import read_structured
from cohort_gnn.dataset.tables.parts import part_files
from cohort_gnn.dataset.tables.table import TableFile
from cohort_gnn.dataset.treatment import FILE as TREATMENT
from cohort_gnn.dataset.treatment import Treatment, read_treatment
from cohort_gnn.dataset.writer import demand_split
from cohort_gnn.spec.graph import EDGE_TYPE, NODE_TYPE, EdgeType
from cohort_gnn.spec.meta import by_type
from cohort_gnn.spec.options import flag_of
from cohort_gnn.spec.types import Bytes, checked_arguments

PARTITION = re.compile(r"partition-\d+\.npy")
SHARDS = "shards"
NO_EDGES = np.empty(0, np.int64)
FLAGS = {"reverse": "--reverse-edges", "dedupe": "--dedupe", "self_loops": "--self-loops"}

Value = TypeVar("Value")


@dataclass(frozen=True)
class EdgeTreatment:
    """What the import did to the edges, for data sets without import.json: options of `cohort dataset import`; None:
    nobody said."""

    undirected: bool = False
    reverse: bool | None = None
    dedupe: bool | None = None
    self_loops: Literal["keep", "remove", "add"] | None = None


@checked_arguments
def append(
    dataset: str | os.PathLike,
    *,
    edges: str | os.PathLike | None = None,
    remove_edges: str | os.PathLike | None = None,
    format: str = "auto",
    inputs: SourceOptions = AS_IT_IS,
    treatment: EdgeTreatment = EdgeTreatment(),
    rename: bool = False,
    ids: bool = True,
    split: Sequence[float] | None = None,
    seed: int = 0,
    memory: Bytes = 4_000_000_000,
    progress: ProgressCall = lambda what, fraction: None,
    note: Callable[[str], None] = lambda text: None,
) -> None:
    """Puts new nodes and edges into a data set, and takes edges out of it. All files are then those of an import of all
    data, with the nodes in this order, and with the categories, means and classes that the data set has.

    New nodes get the next numbers. The data set is the old one or the new one at any moment, also when the process is
    killed; programs that have the old one open keep it. Learned statistics, splits and labels of nodes that were there
    stay as they are.

    Args:
        edges: an edge list, or a description (graph.yaml) of new nodes and edges; None: only what `inputs` names.
        remove_edges: likewise, edges that go: all with these ends.
        format: of `edges` and `remove_edges`; "auto": guessed from the names of files.
        inputs: rows of features, labels and splits of new nodes, weights, times and features of new edges.
        treatment: for a data set that no import wrote.
        rename: ids of new edges that no node has are new nodes, in ascending order.
        ids: False: edges name nodes by their numbers, of a data set that has not kept the ids of its nodes.
        split: shares of new nodes with labels for training, validation and test, at random.
        memory: bytes for sorting and for pieces of files.
        note: function that gets messages for the user.

    Raises:
        CohortError: for input that is missing, damaged, or unlike what the data set has; another append is at work.

    Example:
        >>> append("data/shop", edges="orders-of-today.parquet")
    """
    for source in (edges, remove_edges):
        if source is not None and not file_of(Path(source)).exists() and not part_files(Path(source)):
            raise CohortError(str(source), "a file or folder of edges", "no such file or folder", "check the path")
    demand_files(inputs)
    _demand_source(edges, remove_edges, inputs)
    is_described = edges is not None and (detect(Path(edges)) if format == "auto" else format) == "yaml"
    if is_described and remove_edges is None:
        demand_no_edge_list(inputs, "yaml")
    plain = _edges_alone(inputs)
    append_graph(
        dataset,
        lambda old: _read_new(edges, format, inputs, old),
        None if remove_edges is None else lambda old: _read_new(remove_edges, format, plain, old),
        inputs=inputs,
        treatment=treatment,
        rename=rename,
        ids=ids,
        split=split,
        seed=seed,
        memory=memory,
        progress=progress,
        note=note,
    )


@checked_arguments
def append_from_tables(
    dataset: str | os.PathLike,
    *,
    nodes: Mapping[str, Mapping[str, Any]] | None = None,
    edges: Mapping[EdgeType, Mapping[str, Any]] | None = None,
    treatment: EdgeTreatment = EdgeTreatment(),
    ids: bool = True,
    split: Sequence[float] | None = None,
    seed: int = 0,
    memory: Bytes = 4_000_000_000,
    progress: ProgressCall = lambda what, fraction: None,
    note: Callable[[str], None] = lambda text: None,
) -> None:
    """Puts tables of new nodes and edges into a data set: pandas, polars, DuckDB, pyarrow and others.

    Args:
        nodes: {node type: its table of new rows and what its columns mean}, as `from_tables` takes them.
        edges: {edge type: its table of new edges and what its columns mean}, likewise; their ends are ids or numbers of
            nodes that there were or that are new.
        treatment, ids, split, seed, memory, progress, note: as of `append`.

    Raises:
        CohortError: as `from_tables` and `append` do; nothing has changed then.

    Example:
        >>> today = pandas.DataFrame({"payer": ["u17"], "payee": ["u4"]})
        >>> append_from_tables("data/payments", edges={("user", "pays", "user"): {"table": today}})
    """
    folder = Path(dataset).expanduser().resolve()
    with described_tables(folder, nodes or {}, edges or {}) as (path, description, streams):
        append_graph(
            folder,
            lambda old: _described(path, description, old, streams),
            treatment=treatment,
            ids=ids,
            split=split,
            seed=seed,
            memory=memory,
            progress=progress,
            note=without_folder(path.parent, note),
        )


def append_graph(
    dataset: str | os.PathLike,
    read: Callable[[StoredGraph], Graph],
    read_removed: Callable[[StoredGraph], Graph] | None = None,
    *,
    inputs: SourceOptions = AS_IT_IS,
    treatment: EdgeTreatment = EdgeTreatment(),
    rename: bool = False,
    ids: bool = True,
    split: Sequence[float] | None = None,
    seed: int = 0,
    memory: Bytes = 4_000_000_000,
    progress: ProgressCall = lambda what, fraction: None,
    note: Callable[[str], None] = lambda text: None,
) -> None:
    """Puts a graph into a data set, and takes the edges of another out of it; the rest as of `append`.

    Args:
        read: gives the graph for the data set as it is, with its types.
    """
    path = Path(dataset).expanduser().resolve()
    if memory < MIN_MEMORY:
        raise CohortError("--memory", f"at least {format_bytes(MIN_MEMORY)}", format_bytes(memory))
    if split is not None:
        demand_split(split, seed)
    with replaced_folder(path) as out:
        old = open_dataset(path)
        _demand_own_rows(path)
        known = _treatment_of(path, treatment)
        graph = read(old)
        removed = None if read_removed is None else read_removed(old)
        _demand_ids_known([graph] if removed is None else [graph, removed], path, known, ids)
        _demand_same_ends([graph] if removed is None else [graph, removed], path, known)
        options = ConvertOptions(
            memory=memory,
            transpose=known.transpose,
            reverse=known.reverse,
            dedupe=known.dedupe,
            self_loops=known.self_loops,
            row_normalize=known.row_normalize,
            pca=known.pca,
            rename=rename,
            node_ids=node_ids_of(inputs),
            task=old.task,
            seed=seed,
        )
        _take_inputs(graph, inputs, options, old, known)
        _demand_known_order(graph, old, known)
        _demand_same_unit(graph, path, known)
        meta = by_type(json.loads((path / META).read_bytes()))
        work = Appending(graph, options, progress, old=old, meta=meta, out=out, removed=removed, split=split)
        work.run()
        _finish(work, path, note)
        for text in _links_seen(open_dataset(out), work.changed):
            note(text)


def _demand_source(
    edges: str | os.PathLike | None, remove_edges: str | os.PathLike | None, inputs: SourceOptions
) -> None:
    """Raises CohortError for options of edges without edges, and where there is nothing to do."""
    if edges is None:
        named = () if remove_edges is not None else ("columns",)
        for name in (*named, *COLUMNS.values(), "edge_weights", "edge_times", "edge_features", "destinations"):
            if getattr(inputs, name) is not None:
                raise CohortError(flag_of(name), "edges that it is of", "none", "--edges FILE names them")
    if edges is None and remove_edges is None and inputs.features is None and inputs.nodes is None:
        hint = "--edges SOURCE, --features FILE or --remove-edges SOURCE"
        raise CohortError("append", "new nodes or edges, or edges to take out", "none", hint)


def _demand_own_rows(path: Path) -> None:
    """Raises CohortError for the renumbered copy that `cohort dataset prepare --reorder` makes."""
    if is_prepared(path):
        hint = "append to the data set above it, and prepare that one again"
        raise CohortError(str(path), "a data set", "the renumbered copy of one", hint)


def _treatment_of(path: Path, said: EdgeTreatment) -> Treatment:
    """What the import did, by its record or else by the options.

    Raises:
        CohortError: nothing is known, or the two contradict each other.
    """
    known = read_treatment(path)
    reverse = True if said.undirected else said.reverse
    values = {"reverse": reverse, "dedupe": True if said.undirected else said.dedupe, "self_loops": said.self_loops}
    if known is None:
        if missing := [name for name, value in values.items() if value is None]:
            flags = {"reverse": "--no-reverse-edges", "dedupe": "--no-dedupe", "self_loops": "--self-loops keep"}
            hint = f"say what was done to its edges, such as {' '.join(flags[name] for name in missing)}"
            raise CohortError(str(path / TREATMENT), "what the import did to the edges", "no such file", hint)
        return Treatment(transpose=False, **values)  # type: ignore[arg-type]
    for name, value in values.items():
        if value is not None and value != getattr(known, name):
            hint = f"leave it out: what {path / TREATMENT} says is done"
            flag = "--undirected" if said.undirected and value is True else FLAGS[name]
            raise CohortError(flag, str(getattr(known, name)), str(value), hint)
    return known


# --- what comes -----------------------------------------------------------------------------------------------------


def _read_new(source: str | os.PathLike | None, format: str, inputs: SourceOptions, old: StoredGraph) -> Graph:
    """The graph of what comes: nodes of each type of the data set, and edges of some of its relations."""
    if source is None:
        graph = Graph.homogeneous(Edges.in_memory("append", NO_EDGES, NO_EDGES), name="")
        return _by_types_of(replace(graph, nodes={} if old.has_names else graph.nodes, edges={}), old)
    path = Path(source)
    kind = detect(path) if format == "auto" else format
    if kind == "yaml":
        return _read_description(path, old)
    if kind in EDGE_LISTS:
        return _demand_one_type(read_source(path, kind, inputs), path, old)
    expected = f"an edge list ({', '.join(EDGE_LISTS)}) or a {DESCRIPTION}"
    raise CohortError(str(path), expected, f"format {kind}", f"write its new nodes and edges as tables: {HINT}")


def _edges_alone(inputs: SourceOptions) -> SourceOptions:
    """How edges are read of which only the ends matter."""
    names = ("columns", "separator", "header", "comment", "null")
    return SourceOptions(**{name: getattr(inputs, name) for name in names})


def _demand_one_type(graph: Graph, path: Path, old: StoredGraph) -> Graph:
    """The graph of an edge list; raises CohortError where its numbers do not say which nodes are meant."""
    if old.has_names:
        expected = f"a {DESCRIPTION}, since the data set has several types"
        raise CohortError(str(path), expected, "an edge list", f"name the tables of new nodes and edges there: {HINT}")
    if (old.path / FILE).exists():
        hint = "write one node type with its id, and the relation with its source and target"
        raise CohortError(str(path), f"a {DESCRIPTION}, since nodes have ids in {FILE}", "an edge list", hint)
    return graph


def _read_description(path: Path, old: StoredGraph) -> Graph:
    file = path / DESCRIPTION if path.is_dir() else path
    return _described(file, read_structured(file, "YAML", Description, "nodes and edges of a graph", HINT), old)


def _described(
    file: Path, description: Description, old: StoredGraph, streams: Mapping[str, TableFile] = NO_STREAMS
) -> Graph:
    """The graph of a description, with the types of the data set; `streams`: as `described_graph` takes them."""
    if description.tasks:
        raise CohortError(f"{file}: tasks", "new nodes and edges", "tasks, which stay as they are", "leave them out")
    known = {type_: _known_nodes(old, type_) for type_ in old.node_types}
    if not old.has_names:
        names = {*description.nodes, *(end for edges in description.edges for end in (edges.type[0], edges.type[2]))}
        if len(names) > 1:
            raise CohortError(str(file), f"one node type, as {old.path} has", f"{', '.join(sorted(names))}", HINT)
        _demand_same_names(file, description, old)
        known = dict.fromkeys(names, known[NODE_TYPE])
    return _by_types_of(described_graph(file, description, streams, known), old)


def _demand_same_names(file: Path, description: Description, old: StoredGraph) -> None:
    """Raises CohortError where a description has another node type or relation than that of a graph of one type."""
    treatment = read_treatment(old.path)
    if treatment is None or (called := treatment.called) is None:
        return
    expected = f"{', '.join(called)}, as in the first import of {old.path}"
    others = [type_ for type_ in description.nodes if type_ != called[0]]
    others += [", ".join(edges.type) for edges in description.edges if edges.type != called]
    if others:
        raise CohortError(str(file), expected, others[0], f"name it so, if it is the same; else {AGAIN}")


def _known_nodes(old: StoredGraph, type_: str) -> KnownNodes:
    prefix = f"{type_}." if old.key_of(type_) else ""
    ids = original_ids(old.path, type_) if (old.path / f"{prefix}{FILE}").exists() else None
    return KnownNodes(str(old.path), old.node_types[type_].num_nodes, ids)


def _by_types_of(graph: Graph, old: StoredGraph) -> Graph:
    """A described graph with the types of the data set: of each a number of new nodes, and of some relations edges.

    Raises:
        CohortError: the data set lacks one of the types.
    """
    nodes, edges, ids, targets = graph.nodes, graph.edges, graph.ids, graph.targets
    if not old.has_names:
        if len(edges) > 1:
            raise CohortError(graph.place, f"one relation, as {old.path} has", f"{len(edges)}", HINT)
        nodes, targets, ids = _without_name(nodes), _without_name(targets), _without_name(ids)
        edges = dict.fromkeys([EDGE_TYPE], *edges.values()) if edges else {}
    for what, names, there in (("node type", nodes, old.node_types), ("relation", edges, old.edge_types)):
        if unknown := [name for name in names if name not in there]:
            known = [name if isinstance(name, str) else ", ".join(name) for name in there]
            actual = unknown[0] if isinstance(unknown[0], str) else ", ".join(unknown[0])
            hint = did_you_mean(actual, known) or AGAIN
            raise CohortError(graph.place, f"a {what} of {old.path}: {'; '.join(known)}", actual, hint)
    others = [name for name, learned in targets.items() if name != old.target and learned.labels is not None]
    if others:
        raise CohortError(graph.place, f"labels of {old.target} alone, as {old.path} has", others[0], "leave them out")
    chosen = targets.get(old.target)
    if chosen is not None:
        graph.labels, graph.splits, graph.splits_from = chosen.labels, chosen.splits, chosen.splits_from
        graph.split_times = chosen.split_times
    every = {type_: nodes.get(type_, Nodes(0)) for type_ in old.node_types}
    return replace(graph, nodes=every, edges=edges, ids=ids, target=old.target, has_names=old.has_names)


def _without_name(by_type: Mapping[str, Value]) -> dict[str, Value]:
    """The same of the only node type, under the name that it has where types have none."""
    return dict.fromkeys([NODE_TYPE], *by_type.values()) if by_type else {}


def _take_inputs(
    graph: Graph, inputs: SourceOptions, options: ConvertOptions, old: StoredGraph, known: Treatment
) -> None:
    """Puts the files that the options name in the place of those of the source."""
    demand_options_fit(graph, inputs, replace(options, transpose=False, row_normalize=False, pca=None))
    if inputs.target not in (None, old.target):
        raise CohortError("--target", f"{old.target}, as {old.path} has", inputs.target, "leave it out")
    ids = options.node_ids
    replace_task(graph, inputs, old.task, ids, old.node_types[old.target].num_nodes)
    if not graph.has_names:
        _take_rows(graph, inputs, old, ids)
    if not options.rename and not any(nodes.features or nodes.num_nodes for nodes in graph.nodes.values()):
        for flag, files in (("--labels", inputs.labels), ("--splits", inputs.splits), ("--node-ids", ids)):
            if files is not None:
                raise CohortError(flag, "new nodes that it is of", "none", "--features FILE has their rows")
    if graph.split_times is not None and graph.splits is None:
        hint = "--split-ratio divides the new nodes at random; or a column with train, val and test"
        raise CohortError(f"{graph.place}: split", "splits of the new nodes", "by_time, of all nodes", hint)
    new = [type_ for type_, nodes in graph.nodes.items() if nodes.features is not None]
    if known.pca is not None and new and not (old.path / COMPONENTS).exists():
        raise CohortError(str(old.path / COMPONENTS), "the components of the import (--pca)", "no such file", AGAIN)


def _take_rows(graph: Graph, inputs: SourceOptions, old: StoredGraph, ids: np.ndarray | None) -> None:
    """The rows and the number of new nodes of a graph of one type."""
    there, (nodes,) = old.num_nodes, graph.nodes.values()
    more = None if inputs.nodes is None else inputs.nodes - there
    if more is not None and more < 0:
        raise CohortError("--nodes", f"at least the {there} nodes that there are", str(inputs.nodes), "leave it out")
    is_ones = str(inputs.features) == ONES
    edges = graph.edges or {EDGE_TYPE: Edges.in_memory("no edges", NO_EDGES, NO_EDGES)}
    has_edges = bool(graph.edges)
    graph.edges = edges
    replace_graph(graph, replace(inputs, nodes=None), ids, needs_rows=False, first=there)
    graph.edges = graph.edges if has_edges else {}
    (nodes,) = graph.nodes.values()
    if nodes.num_nodes not in (None, 0, more) and more is not None:
        raise CohortError("--nodes", f"{there + (nodes.num_nodes or 0)}, as the source says", str(inputs.nodes))
    if is_ones:
        if more is None and ids is None:
            raise CohortError(
                "--features ones", "the number of nodes", "none", "--nodes V says how many there are then"
            )
        count = len(ids) if more is None and ids is not None else more or 0
        nodes = replace(nodes, num_nodes=count, features=Rows.ones("--features ones", count) if count else None)
    elif more is not None:
        nodes = replace(nodes, num_nodes=more)
    graph.nodes = {NODE_TYPE: nodes}


def _demand_known_order(graph: Graph, old: StoredGraph, known: Treatment) -> None:
    """Raises CohortError where edges of equal times would stand in another order than after an import of all."""
    if graph.has_names or not known.reverse:
        return
    (relation,) = old.edge_types.values()
    if old.node_types[NODE_TYPE].node_times is not None and relation.edge_table is not None:
        expected = "edges without features, where nodes have times and each edge its reverse"
        raise CohortError(graph.place, expected, "features", AGAIN)


def _demand_ids_known(graphs: Sequence[Graph], path: Path, known: Treatment, ids: bool) -> None:
    """Raises CohortError where ids of nodes, which the data set has not kept, would be read as numbers of nodes."""
    if not ids and not known.drops_ids:
        raise CohortError("--no-ids", "a data set that was imported with --no-ids", str(path), "leave it out")
    edges = [relation for graph in graphs for relation in graph.edges.values()]
    if ids and known.drops_ids and edges:
        expected = f"ids of the nodes of {path}, which was imported with --no-ids"
        hint = (
            "--no-ids says that these edges have numbers of nodes (row i is node i); else import all data with its ids"
        )
        raise CohortError(edges[0].place, expected, "none", hint)


def _demand_same_ends(graphs: Sequence[Graph], path: Path, known: Treatment) -> None:
    """Raises CohortError where sources are in the column that had the targets in the first import."""
    for relation, edges in (pair for graph in graphs for pair in graph.edges.items()):
        before = known.ends.get(".".join(relation))
        if before is not None and before[0] != before[1] and edges.ends == before[::-1]:
            source, target = before
            hint = f"--columns {source},{target} (source: {source}, target: {target}) says which are which"
            expected = f"{source} -> {target}, as in the first import of {path}"
            raise CohortError(edges.place, expected, f"{target} -> {source}", hint)


def _demand_same_unit(graph: Graph, path: Path, known: Treatment) -> None:
    """Raises CohortError where times are in another unit than those of the first import."""
    if None not in (known.time_unit, graph.time_unit) and known.time_unit != graph.time_unit:
        expected = f"the unit of the times of {path}: {known.time_unit}"
        raise CohortError(f"{graph.place}: time_unit", expected, str(graph.time_unit), f"--time-unit {known.time_unit}")


# --- the new folder -------------------------------------------------------------------------------------------------


def _finish(work: Appending, path: Path, note: Callable[[str], None]) -> None:
    """Writes meta.json and the record of what changed, and brings over what stays."""
    out, old, meta = work.out, work.old, json.loads((path / META).read_bytes())
    if meta["version"] == 3:
        meta |= {"nodes": work.meta["nodes"], "edges": work.meta["edges"]}
    else:
        meta |= {"num_nodes": work.meta["nodes"][0]["count"], "num_edges": work.meta["edges"][0]["count"]}
    (out / META).write_text(json.dumps(meta, indent=2) + "\n")
    for folder in (work.added, work.folder, out / "removed"):
        shutil.rmtree(folder, ignore_errors=True)
    record_step(out, old, state_of(path), work.changed)
    stale = _stale(work, path)
    link_files(path, out, lambda name: name in stale)
    for name, cure in stale.items():
        note(f"{name} is left out, which does not fit any more{cure}")
    for text in work.graph.notes:
        note(text)
    edges = sum(relation["count"] for relation in work.meta["edges"]) - old.num_edges
    lists = sum(map(len, work.changed.values()))
    note(f"{sum(work.new_nodes.values()):,} new nodes, {edges:+,} edges, {lists:,} lists of in-neighbours changed")


def _links_seen(data: StoredGraph, changed: Mapping[EdgeType, np.ndarray]) -> Iterator[str]:
    """Lines about held-out links that are among the edges of lists that changed."""
    for relation in with_held_out(data):
        lists, nodes = data.edge_types[relation], changed.get(relation, NO_EDGES)
        for split, held in held_out_of(LinkEdges(data, relation)).items():
            pairs = held.pairs[np.isin(held.pairs[:, 1], nodes)].tolist()
            are_seen = (source in lists.indices[slice(*lists.indptr[target : target + 2])] for source, target in pairs)
            if count := sum(are_seen):
                text = f"{count:,} of {len(held.pairs):,} {split} links are edges of the graph, where models see them"
                yield f"{text}; --remove-edges takes them out"


def _stale(work: Appending, path: Path) -> Mapping[str, str]:
    """Files and folders of the data set that do not fit the new one, and how they are made again."""
    old, stale = work.old, {}
    if any(work.new_nodes.values()):
        for name in filter(PARTITION.fullmatch, os.listdir(path)):
            parts = name.removesuffix(".npy").rpartition("-")[2]
            stale[name] = f"; cohort dataset partition {path} --parts {parts} makes it again"
    for type_, relation in work.underived.items():
        derive = f"; cohort dataset derive {path} {type_} --mean-of {relation[0]} --over {relation[1]} makes it again"
        stale[f"{type_}.features.npy"] = derive
    again = f"; cohort dataset prepare {path} makes it again"
    others = {*work.underived, *(type_ for type_, count in work.new_nodes.items() if count)}
    grown = [old.node_types[type_] for type_ in others]
    tables = [*grown, *(old.edge_types[relation].edge_table for relation in work.changed)]
    if (path / PREPARED_FOLDER / META).exists():
        stale[PREPARED_FOLDER] = f"{again}, with --reorder"
    elif any(table is not None and table.encoded_rows is not None for table in tables):
        stale[PREPARED_FOLDER] = again
    if (path / SHARDS).exists() and others:
        stale[SHARDS] = f"; cohort dataset shard {path} makes it again"
    if (path / SOURCE_RECORD).exists():
        stale[SOURCE_RECORD] = ": the data set is no longer that of its tables alone"
    return stale
