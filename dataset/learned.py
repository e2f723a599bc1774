"""What a run learns: a task of the data set by its name, or else the splits and labels of the data set."""

from collections.abc import Mapping
from typing import cast

import numpy as np

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset.stored_graph import StoredGraph
from cohort_gnn.dataset.tasks import SPLITS, LinkRows, Task, TaskRows, open_task

UNKNOWN = {"classification": -1, "regression": np.nan, "multilabel": 255}


def learned(data: StoredGraph, name: str | None = None) -> Task:
    """The task of this name; None: that of the splits, whose rows have the times of their nodes, if these have some.

    Rows of splits with ids of no nodes have unknown labels: the sampler refuses such ids.

    Raises:
        CohortError: there is no such task, or something is wrong with its files.

    Example:
        >>> learned(open_dataset("data/shop"), "churn").splits["train"].nodes
        array([17, 17, 4, ...])
    """
    if name is not None:
        return open_task(data.path, name)
    ids = {split: np.asarray(getattr(data, f"{split}_ids")) for split in SPLITS}
    times = data.node_types[data.target].node_times
    splits = {
        split: TaskRows(rows, None if times is None else _rows_of_nodes(times, rows, 0), _rows_of_nodes(data.y, rows))
        for split, rows in ids.items()
    }
    return Task(
        name="", kind="node", node_type=data.target, splits=splits, targets=data.task, num_classes=data.num_classes
    )


def labels_or_unknown(task: Task, split: str) -> np.ndarray:
    """The labels of a split's rows, as TaskRows has them; those of a test that has none are unknown: -1, NaN or 255."""
    rows, known = rows_of(task)[split], rows_of(task)["train"].labels
    assert known is not None
    if rows.labels is not None:
        return np.asarray(rows.labels)
    unknown = np.nan if known.dtype.kind == "f" else UNKNOWN[str(task.targets)]
    return np.full((rows.num_rows, *known.shape[1:]), unknown, known.dtype)


def rows_of(task: Task) -> Mapping[str, TaskRows]:
    """The splits of a task of nodes.

    Raises:
        CohortError: it is one of links.
    """
    if task.kind != "node":
        raise CohortError(f"--task {task.name}", "a task with labels of nodes", "one of links", "leave it out")
    return cast(Mapping[str, TaskRows], task.splits)


def seen_until(task: Task, rows: TaskRows | LinkRows) -> np.ndarray | None:
    """int64 [n]: the times up to which rows of a task see the graph; None: they have no times."""
    if rows.times is None or task.rows_until is None:
        return rows.times
    return np.minimum(rows.times, task.rows_until)


def link_rows_of(task: Task) -> Mapping[str, LinkRows]:
    """The splits of a task of links."""
    assert task.kind == "link"
    return cast(Mapping[str, LinkRows], task.splits)


def _rows_of_nodes(values: np.ndarray, nodes: np.ndarray, unknown: float | None = None) -> np.ndarray:
    is_node = (nodes >= 0) & (nodes < len(values))
    if is_node.all():
        return np.asarray(values[nodes])
    if unknown is None:
        unknown = np.nan if values.dtype.kind == "f" else -1 if values.dtype.kind == "i" else 255
    chosen = np.full((len(nodes), *values.shape[1:]), unknown, values.dtype)
    chosen[is_node] = values[nodes[is_node]]
    return chosen
