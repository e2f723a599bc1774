"""The seeds of a run's splits, with the times and labels that they have of their own, and what batches get of these."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cohort_gnn.dataset import StoredGraph
from cohort_gnn.dataset.learned import labels_or_unknown, rows_of, seen_until
from cohort_gnn.dataset.tasks import SPLITS, Task
from cohort_gnn.trainer.loader.source import OfPairs


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
            rows.nodes + first,
            seen_until(task, rows) if in_time else None,
            labels_or_unknown(task, split) if task.name else None,
        )
        for split, rows in rows_of(task).items()
    }


def labels_of(task: Task) -> dict[str, np.ndarray]:
    """The labels of the rows of each split."""
    return {split: labels_or_unknown(task, split) for split in SPLITS}


class NodeAges:
    """How old the nodes of batches are at the time of their seed.

    Args:
        names: of the node types whose ages are wanted; nodes of these types have times.
        device: that of the batches, where the times lie, of 8 bytes each.
    """

    def __init__(self, data: StoredGraph, names: Iterable[str], device: torch.device):
        self._node_types = list(data.types.counts)
        self._times = {name: torch.tensor(data.node_types[name].node_times, device=device) for name in names}

    def nodes_of(self, slot: Any, seed_times: Tensor, pairs: OfPairs) -> dict[str, Tensor]:
        """int64 [nodes] of each of the types, with negative ones where nodes have no time.

        Args:
            slot: with a batch of trees.
            seed_times: int64 [any], of all seeds that the pass is over, or of all pairs.
            pairs: what the pass draws for pairs.
        """
        now, trees = seed_times[slot.input_id], slot.tree
        if pairs.negative_mode != "none":
            trees = pairs.pairs_of(trees, slot.num_inputs, len(slot.endpoints))
        sizes = [sum(per_hop) for per_hop in slot.nodes_of_types]
        parts = zip(self._node_types, slot.n_id.split(sizes), trees.split(sizes), strict=True)
        return {name: now[tree] - self._times[name][ids] for name, ids, tree in parts if name in self._times}


class SeedSlot:
    """A slot with what its seeds have of their own; all else is the slot's.

    Args:
        labels: of all seeds of the pass; ``y`` are those of the batch. None: the slot has them.
        ages: of its nodes by type, which become ``ages``; empty: nobody reads them.
    """

    def __init__(self, slot: Any, labels: Tensor | None, ages: dict[str, Tensor]):
        self._slot, self.ages = slot, ages
        if labels is not None:
            self.y = labels[slot.input_id]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._slot, name)
