"""The predictions for the rows of a task, as a table in the form of the task's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from cohort_gnn.base.files import replacing
from cohort_gnn.dataset import StoredGraph, original_ids
from cohort_gnn.dataset.learned import rows_of
from cohort_gnn.dataset.tasks import Task
from cohort_gnn.trainer.models.targets import Targets
from cohort_gnn.trainer.predict.score_tables import NamedNodes, columns_of_scores, write_table

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
    nodes = NamedNodes(original_ids(data.path, task.node_type), None, data.node_types[task.node_type].num_nodes)
    columns: dict[str, Any] = {task.id_column or "id": nodes.named(np.asarray(rows.nodes))}
    if rows.times is not None:
        columns[task.time_column or "time"] = _times(np.asarray(rows.times), task.time_unit)
    columns |= columns_of_scores(targets, task.class_names or [], False, None)(np.ascontiguousarray(scores))
    with replacing(path) as temporary:
        write_table(temporary, path.suffix, iter([columns]))


def _times(times: np.ndarray, unit: str | None) -> Any:
    """Timestamps of UTC without a zone; integers where the unit is not known."""
    import pyarrow as pa

    if unit is None:
        return pa.array(times)
    if unit == "days":
        times, unit = times * DAY, "s"
    return pa.array(times, pa.timestamp(unit))
