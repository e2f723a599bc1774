"""Whether a run draws edges up to the times of its seeds, and how."""

import logging
from collections.abc import Mapping
from typing import Any

import numpy as np

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset import StoredGraph
from cohort_gnn.dataset.learned import learned, rows_of
from cohort_gnn.dataset.links import edge_type_named
from cohort_gnn.dataset.tasks import Task, TaskRows, demand_later
from cohort_gnn.spec.options import flag_of
from cohort_gnn.spec.run import RunSpec

LOG = logging.getLogger(__name__)
OTHER_TASKS = ("digest", "step", "batches")  # of the trainer's program, which run.json has in the same place
IMPORT_HINT = "cohort dataset import reads times of nodes and edges: `time` in graph.yaml, --edge-times, --time-column"


def task_of(spec: RunSpec, data: StoredGraph) -> Task:
    """What a run with these options learns of nodes.

    Raises:
        CohortError: --task names none of the data set's tasks, or one of links.
    """
    return learned(data, task_name(spec))


def rows_of_run(spec: RunSpec, data: StoredGraph) -> Mapping[str, TaskRows]:
    """The splits of `task_of`."""
    return rows_of(task_of(spec, data))


def task_name(spec: RunSpec) -> str | None:
    """Of the task of the data set that --task names.

    Raises:
        CohortError: programs of Cohort are called so.
    """
    if spec.task in OTHER_TASKS:
        hint = f"rename its folder: tasks/{spec.task}"
        raise CohortError(f"--task {spec.task}", f"a name other than {', '.join(OTHER_TASKS)}", spec.task, hint)
    return None if spec.task in (None, "node", "link") else spec.task


def is_in_time(spec: RunSpec, data: StoredGraph, task: Task | None) -> bool:
    """Whether seeds get edges up to their times alone. ``task``: that of `task_of`; None: links are learned.

    Raises:
        CohortError: --time-attr asks for times that edges or seeds do not have.
    """
    if spec.time_attr == "none":
        return False
    has_times = any(relation.edge_times is not None for relation in data.edge_types.values())
    seeds_have = task is not None and rows_of(task)["train"].times is not None
    if spec.time_attr == "edge_time":
        if task is None:
            hint = "leave it out; cohort.LinkNeighborLoader has time_attr and edge_label_time"
            raise CohortError("--time-attr edge_time", "--task node, or a task of the data set", "--task link", hint)
        if not has_times:
            raise CohortError("--time-attr edge_time", f"times of edges in {data.path}", "none", IMPORT_HINT)
        if not seeds_have:
            expected = f"times of the seeds: of the nodes of {task.node_type}, or of a task that --task names"
            raise CohortError("--time-attr edge_time", expected, "none", IMPORT_HINT)
    return has_times and seeds_have


def check_times(spec: RunSpec, data: StoredGraph) -> None:
    """Raises CohortError for options of draws in time that do not fit the data set, or each other."""
    task = None if spec.task == "link" else task_of(spec, data)
    if not is_in_time(spec, data, task):
        for name in ("temporal_strategy", "time_window", "overlapping_times"):
            if getattr(spec, name) != getattr(RunSpec, name):
                actual = "--time-attr none" if spec.time_attr == "none" else "a run that does not use times"
                raise CohortError(flag_of(name), "--time-attr edge_time", actual, "leave it out")
        return
    assert task is not None
    time_windows(spec, data)
    if not task.overlapping_times and spec.overlapping_times == "refuse":
        demand_later(task, f"--task {task.name}" if task.name else str(data.path), "--overlapping-times allow")
    refused = {"weight_attr": spec.weight_attr is not None, "partition": spec.partition}
    for name, is_set in refused.items():
        if is_set:
            hint = "leave it out, or say --time-attr none"
            raise CohortError(flag_of(name), "a run that does not use times", "--time-attr edge_time", hint)
    if spec.cache_ratio == "auto":
        hint = "slots take more memory for trees: say --cache-bytes or a number"
        raise CohortError("--cache-ratio", "a number, for draws in time", "auto", hint)


def time_windows(spec: RunSpec, data: StoredGraph) -> list[int] | None:
    """[edge types], -1 where a relation has none; None: there is no --time-window.

    Raises:
        CohortError: it names a relation that the data set does not have, or one without times.
    """
    if spec.time_window is None:
        return None
    if spec.time_window.isdecimal():
        return [int(spec.time_window)] * len(data.edge_types)
    windows = dict.fromkeys(data.edge_types, -1)
    for part in spec.time_window.split(","):
        name, _, window = part.rpartition("=")
        relation = edge_type_named(data, name, "--time-window")
        if data.edge_types[relation].edge_times is None:
            hint = "leave it out: edges without times are always there"
            raise CohortError(f"--time-window {part}", "a relation with times", "none", hint)
        windows[relation] = int(window)
    return list(windows.values())


def trees_of(spec: RunSpec, data: StoredGraph, task: Task) -> dict[str, Any] | None:
    """Fields of requests (channel/request.h) for a run in which each seed has a tree of its own: one in time, and one
    whose task has a node in several rows; None: seeds share nodes."""
    if is_in_time(spec, data, task):
        draw = "last" if spec.temporal_strategy == "last" else "uniform"
        return {"disjoint": True, "draw": draw, "time_window": time_windows(spec, data) or []}
    repeats = task.name and any(len(np.unique(rows.nodes)) < rows.num_rows for rows in rows_of(task).values())
    return {"disjoint": True} if repeats else None


def counted_seeds(spec: RunSpec, data: StoredGraph, split: str = "train") -> tuple[np.ndarray, dict[str, Any] | None]:
    """What the short run that counts reads for a cache is to draw, of a run that learns a task or draws in time: seeds
    int64 [n], of all node types numbered through; and as `presample` takes them, the trees of these."""
    task = task_of(spec, data)
    rows, trees = rows_of(task)[split], trees_of(spec, data, task)
    if trees is not None and is_in_time(spec, data, task):
        trees["times"] = rows.times
    return rows.nodes + data.first_node[task.node_type], trees


def say_whether_times_are_used(spec: RunSpec, data: StoredGraph) -> None:
    """Names times of edges that a run does not use, and how it would."""
    task = None if spec.task == "link" else task_of(spec, data)
    if all(relation.edge_times is None for relation in data.edge_types.values()) or is_in_time(spec, data, task):
        return
    why = "as --time-attr none says" if spec.time_attr == "none" else "seeds have no times"
    if task is None:
        why = "--task link does not (cohort.LinkNeighborLoader has time_attr)"
    LOG.info(f"edge times are not used: neighbours are drawn whatever their time ({why})")
