"""The messages at the end of an import: choices that decide the result, and likely mistakes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from cohort_gnn.dataset.importing.options import ConvertOptions
from cohort_gnn.dataset.layouts.graph import Graph
from cohort_gnn.dataset.reader import Dataset, open_one_type
from cohort_gnn.dataset.reader import open as open_dataset
from cohort_gnn.dataset.tables.column_names import may_be_two_types
from cohort_gnn.dataset.tasks import SPLITS, Task, TaskRows

EDGES_AT_ONCE = 1 << 22
FROM_ONE = "node 0 has no edges: do ids start at 1? --node-ids takes a file of ids, one per row"

TWO_TYPES = "{} and {}: equal ids are one node; if these are ids of two node types, describe both in a graph.yaml"


def outcome(graph: Graph, out: Path, options: ConvertOptions, *, labels: str, numbered_by_hand: bool) -> list[str]:
    """Lines about classes that are not used, splits, what was made of the edges, and types that no edge reaches.

    Args:
        out: folder of the data set.
        labels: name of the file that has them.
        numbered_by_hand: the source is a list of edges that somebody wrote, not a published data set.
    """
    lines = _labels_and_splits_told(graph, open_dataset(out), options, labels)
    if graph.has_names:
        return lines + _unreached_told(open_dataset(out))
    data = open_one_type(out)
    if numbered_by_hand and not options.rename and options.node_ids is None and _leaves_out_node_0(data, options):
        lines.insert(len(lines) - 1, FROM_ONE)
    (edges,) = graph.edges.values()
    columns = edges.describe_columns() if numbered_by_hand else ""
    if numbered_by_hand and edges.ends is not None and may_be_two_types(*edges.ends):
        lines.append(TWO_TYPES.format(*edges.ends))
    return [*lines, f"edges: {columns}{_direction_told(data, options)}"]


def _labels_and_splits_told(graph: Graph, data: Any, options: ConvertOptions, labels: str) -> list[str]:
    """Lines about nodes without a label, classes that are not used, and the splits."""
    lines = []
    classes = data.y[data.y >= 0] if data.task == "classification" else np.arange(data.num_classes)
    if graph.labels and data.task == "classification" and len(classes) < len(data.y):
        lines.append(f"{labels}: {len(data.y) - len(classes):,} of {len(data.y):,} nodes have no label (-1)")
    used = np.count_nonzero(np.bincount(classes))
    if used < data.num_classes:
        some = "" if data.y.min() >= 0 else "[y >= 0]"
        cure = f"renumber with numpy.unique(y{some}, return_inverse=True)"
        lines.append(f"{labels}: {data.num_classes:,} classes, {used:,} of them used; {cure}")
    origin = f"from {graph.splits_from}" if graph.splits else f"random, seed {options.seed}"
    origin = "by time" if graph.split_times and not graph.splits else origin
    if not graph.labels:
        origin = "no labels"
    sizes = {name: len(getattr(data, f"{name}_ids")) for name in SPLITS}
    if graph.labels or not graph.tasks:
        lines.append(f"splits: {_counts(sizes)} ({origin})")
    for name, read in graph.tasks.items():
        task = read()
        lines.append(f"task {name}: {_counts({split: rows.num_rows for split, rows in task.splits.items()})}")
        lines += _early_rows_told(task, data.node_types[task.node_type].node_times)
    return lines


def _early_rows_told(task: Task, node_times: np.ndarray | None) -> list[str]:
    """A line about rows of a task that are earlier than their nodes."""
    early = {}
    for split, rows in task.splits.items():
        if node_times is not None and rows.times is not None:
            nodes = rows.nodes if isinstance(rows, TaskRows) else rows.sources
            early[split] = int(np.count_nonzero(node_times[nodes] > rows.times))
    if not any(early.values()):
        return []
    cure = f"leave them out: features of {task.node_type} are known to them too soon; or are the times in other units?"
    return [f"task {task.name}: rows earlier than their own nodes, {_counts(early)}; {cure}"]


def _counts(sizes: dict[str, int]) -> str:
    return ", ".join(f"{name} {size:,}" for name, size in sizes.items())


def _unreached_told(data: Any) -> list[str]:
    unreached = [type_ for type_ in data.node_types if all(target != type_ for _, _, target in data.edge_types)]
    verb = "receives" if len(unreached) == 1 else "receive"
    cure = "--reverse-edges adds the reverse of each relation"
    return [f"{', '.join(unreached)} {verb} no edges; {cure}"] if unreached else []


def _direction_told(data: Dataset, options: ConvertOptions) -> str:
    share = 1.0 if options.undirected else data.reversed_share()
    if share == 1:
        return "undirected (each in both directions)"
    return f"directed ({int(100 * share)} % have their reverse; --undirected adds it to the others)"


def _leaves_out_node_0(data: Dataset, options: ConvertOptions) -> bool:
    """Whether other nodes have edges and node 0 none but to itself; sources are read only where none points to it."""
    into_0 = int(data.indptr[1])
    if np.any(data.indices[:into_0]):
        return False
    if data.num_edges == into_0 * data.num_nodes and np.array_equal(data.indices, np.arange(data.num_edges)):
        return False  # no edges, or a loop at each node
    starts = () if options.undirected else range(into_0, data.num_edges, EDGES_AT_ONCE)
    return all(np.all(data.indices[first : first + EDGES_AT_ONCE]) for first in starts)
