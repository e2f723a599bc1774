"""What the commands about data sets share."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from rich.console import Console

from cohort_gnn.base.errors import CohortError, why
from cohort_gnn.base.renamed import rename
from cohort_gnn.base.tables import TextTable
from cohort_gnn.base.units import parse_number
from cohort_gnn.dataset.arrays import any_between
from cohort_gnn.dataset.reader import open_one_type
from cohort_gnn.dataset.stored_graph import StoredGraph
from cohort_gnn.dataset.tasks import tasks_of
from cohort_gnn.spec.graph import NO_TIME, EdgeType


def number(text: str) -> int:
    """ "2.4M", "1e6" or "17" as an integer, for argparse."""
    try:
        return parse_number(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def parts(text: str) -> tuple[float, ...]:
    """ "0.6,0.2,0.2" as floats."""
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected shares such as 0.6,0.2,0.2, found {text!r}") from None


def add_common(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--split-ratio",
        dest="split",
        type=parts,
        default=(0.6, 0.2, 0.2),
        metavar="0.6,0.2,0.2",
        help="shares of the nodes for training, validation and test, at random; default: 0.6,0.2,0.2",
    )
    rename(command, "--split", "--split-ratio")
    command.add_argument("--seed", type=number, default=0, help="seed of all random numbers; default: %(default)s")
    command.add_argument("--overwrite", action="store_true", help="replace OUT if it is a data set")


def summary(data: StoredGraph) -> str:
    features = ", ".join(f"{table.feature_dim} x {table.feature_dtype}" for table in data.feature_tables)
    count = len(data.edge_types)
    types = f"{len(data.node_types)} node types, {count} relation{'' if count == 1 else 's'}"
    contents = types if len(data.node_types) + count > 2 else features or "no features"
    tasks = tasks_of(data.path)
    learned = [aims(data)] if data.num_classes or not tasks else []
    learned += [f"task{'s' * (len(tasks) > 1)} {', '.join(tasks)}"] if tasks else []
    return f"{data.num_nodes:,} nodes, {data.num_edges:,} edges, {contents}, {', '.join(learned)}"


def aims(data: StoredGraph) -> str:
    """The task, in words."""
    if data.num_classes == 0:
        return "no labels"
    by_task = {"classification": f"{data.num_classes} classes", "multilabel": f"{data.num_classes} labels"}
    return by_task.get(data.task, "one number per node")


def tables_of_types(data: StoredGraph) -> list[TextTable]:
    """The node types, and the relations."""
    nodes = TextTable("Node types", ["node type", "nodes", "features"])
    for name, table in data.node_types.items():
        features = f"{table.feature_dim} x {table.feature_dtype}" if table.feature_dtype else "none"
        features += ", encoded" if table.encoded_rows else ""
        features += "" if table.node_times is None else f", times {span_of(table.node_times)}"
        nodes.rows.append([name + (" (target)" if name == data.target else ""), f"{table.num_nodes:,}", features])
    edges = TextTable("Relations", ["relation", "edges", "reverse of"])
    for type_, relation in data.edge_types.items():
        cell, rows = f"{relation.num_edges:,}", relation.edge_table
        cell += "" if relation.edge_weights is None else ", with weights"
        times = relation.edge_times
        cell += "" if times is None else f", times {span_of(times)}"
        cell += "" if rows is None else f", features {rows.feature_dim} x {rows.feature_dtype}"
        cell += ", encoded" if rows is not None and rows.encoded_rows else ""
        edges.rows.append([", ".join(type_), cell, ", ".join(relation.reverse_of or ())])
    return [nodes, edges]


def span_of(times: np.ndarray) -> str:
    """The first and the last of times, in words; those of nodes and edges that are always there are left out."""
    known = times[times != NO_TIME]
    return f"{known.min():,} to {known.max():,}" if len(known) else "none"


def edges_missed(data: StoredGraph, spans: Mapping[EdgeType, tuple[int, int]]) -> str:
    """The times of edges of these relations, in words, if none of them is in its relation's span, whose ends count;
    else empty."""
    lists = {name: data.edge_types[name].edge_times for name in spans}
    known = {name: times for name, times in lists.items() if times is not None and len(times)}
    if any(any_between(times, *spans[name]) for name, times in known.items()):
        return ""
    return " and ".join(dict.fromkeys(map(span_of, known.values())))


def lines_on_stderr() -> Console:
    """For lines beside a result: whole on a pipe, and without colours for numbers and paths in them."""
    return Console(stderr=True, highlight=False, soft_wrap=True)


def rows_to_draw(path: Path) -> tuple[np.ndarray, str]:
    """The rows [R, D] of an array or a data set, and the name of their type."""
    if path.is_dir():
        data = open_one_type(path)
        if data.x is None:
            raise CohortError(f"--rows {path}", "a data set with raw rows", "only encoded rows", "prepare a copy of it")
        return data.x, data.feature_dtype
    try:
        rows = np.load(path, mmap_mode="r")
    except (OSError, ValueError) as error:
        raise CohortError(f"--rows {path}", "a .npy file or a data set", why(error, "another file")) from error
    if rows.ndim != 2 or 0 in rows.shape or rows.dtype.name not in ("float32", "float16", "uint8"):
        actual = f"{list(rows.shape)} of {rows.dtype}"
        raise CohortError(f"--rows {path}", "rows [R, D] of float32, float16 or uint8, at least one", actual)
    return rows, rows.dtype.name
