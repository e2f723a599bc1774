"""The seeds of a run's splits, with the times and labels that they have of their own."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from cohort_gnn.dataset.learned import labels_or_unknown, rows_of
from cohort_gnn.dataset.tasks import SPLITS, Task


@dataclass(frozen=True, eq=False)
class Seeds:
    """The seeds of a split.

    Attributes:
        ids: int64 [n], nodes of all types numbered through; to learn links, pairs int64 [n, 2].
        times: int64 [n]: edges up to these are drawn; None: edges of any time.
        labels: of each seed, as of a task (dataset/tasks.py); None: those of nodes, which batches have.
        target_weights: of pairs, by which targets of negatives are drawn, as `weight_sums` makes them; None: all weigh
            the same.
        target_times: since when targets are there, as `nodes_by_time` makes them; None: at any time.
    """

    ids: np.ndarray
    times: np.ndarray | None = None
    labels: np.ndarray | None = None
    target_weights: np.ndarray | None = None
    target_times: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.ids)


def seeds_of_task(task: Task, first: int, in_time: bool) -> dict[str, Seeds]:
    """The seeds of "train", "val" and "test".

    Args:
        first: what is added to ids: nodes of several types are numbered through.
        in_time: edges up to the times of seeds are drawn.
    """
    return {
        split: Seeds(
            rows.nodes + first, rows.times if in_time else None, labels_or_unknown(task, split) if task.name else None
        )
        for split, rows in rows_of(task).items()
    }


def labels_of(task: Task) -> dict[str, np.ndarray]:
    """The labels of the rows of each split."""
    return {split: labels_or_unknown(task, split) for split in SPLITS}


class LabelledSlot:
    """A slot whose ``y`` are labels that its seeds have of their own; all else is the slot's."""

    def __init__(self, labels: Tensor, slot: Any):
        self._slot = slot
        self.y = labels[slot.input_id]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._slot, name)
