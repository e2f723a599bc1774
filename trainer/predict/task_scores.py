"""The predictions for the rows of a task, as a table in the form of the task's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from cohort_gnn.base.files import replacing
from cohort_gnn.dataset import StoredGraph, original_ids
from cohort_gnn.dataset.learned import link_rows_of, rows_of
from cohort_gnn.dataset.tasks import Task
from cohort_gnn.trainer.models.targets import Targets
from cohort_gnn.trainer.predict.score_tables import NamedNodes, beside, columns_of_scores, write_table

DAY = 86_400  # seconds


def write_task_scores(
    path: Path, data: StoredGraph, task: Task, split: str, scores: np.ndarray, targets: Targets
) -> None:
    """Writes a row for each row of a split, in its order: the id and the time that it has in the source, under the
    source's names of the columns, and the columns of `cohort predict`.

    Args:
        path: of a .parquet or a .csv file, which is written whole or not at all.
        scores: float32 [rows, outputs].
    """
    rows = rows_of(task)[split]
    columns = _columns_of_rows(data, task, rows.nodes, rows.times)
    others = columns_of_scores(targets, task.class_names or [], False, None)(np.ascontiguousarray(scores))
    with replacing(path) as temporary:
        write_table(temporary, path.suffix, iter([beside(columns, others)]))


def write_task_targets(path: Path, data: StoredGraph, task: Task, first_row: np.ndarray, best: np.ndarray) -> None:
    """Writes a row for each source at a time of a test of links, in the order of the test: its id and time, and a list
    of the ids of the best targets, the best first, under the source's names of the columns.

    Args:
        path: as of `write_task_scores`.
        first_row: int64 [sources], where each stands in the test for the first time.
        best: int64 [sources, K]; -1: there are fewer.
    """
    import pyarrow as pa

    rows, order = link_rows_of(task)["test"], np.argsort(first_row)
    places, best = first_row[order], best[order]
    times = None if rows.times is None else rows.times[places]
    columns = _columns_of_rows(data, task, rows.sources[places], times)
    is_there = best >= 0
    offsets = pa.array(np.concatenate([[0], np.cumsum(is_there.sum(axis=1))]), pa.int32())
    ids = _named_nodes(data, str(task.target_type)).named(best[is_there])
    columns = beside(columns, {task.label_column or "targets": pa.ListArray.from_arrays(offsets, ids)})
    with replacing(path) as temporary:
        write_table(temporary, path.suffix, iter([columns]))


def _columns_of_rows(data: StoredGraph, task: Task, nodes: np.ndarray, times: np.ndarray | None) -> dict[str, Any]:
    columns: dict[str, Any] = {task.id_column or "id": _named_nodes(data, task.node_type).named(np.asarray(nodes))}
    if times is not None:
        columns[task.time_column or "time"] = _times(np.asarray(times), task)
    return columns


def _named_nodes(data: StoredGraph, node_type: str) -> NamedNodes:
    return NamedNodes(original_ids(data.path, node_type), None, data.node_types[node_type].num_nodes)


def _times(times: np.ndarray, task: Task) -> Any:
    """Timestamps or dates in the form of the source's column; integers where the unit is not known."""
    import pyarrow as pa
    import pyarrow.compute as pc

    unit = task.time_unit
    if unit is None:
        return pa.array(times)
    if unit == "days":
        times, unit = times * DAY, "s"
    instants = pa.array(times, pa.timestamp(unit, "UTC")).cast(pa.timestamp(unit, task.time_zone or "UTC"))
    if task.time_form == "instants":
        return instants
    clocks = pc.local_timestamp(instants)
    return clocks.cast(pa.date32()) if task.time_form == "dates" else clocks
