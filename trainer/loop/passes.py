"""Passes over the seeds of a run's splits: what the sampler is asked for, and what batches get besides."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from cohort_gnn.dataset import StoredGraph
from cohort_gnn.dataset.learned import learned
from cohort_gnn.dataset.tasks import Task
from cohort_gnn.spec.run import TrainerSpec
from cohort_gnn.trainer.loader.source import BatchSource, OfPairs, Pass
from cohort_gnn.trainer.loop.links import HeldOutLinks, draws_of_pairs, seeds_of_links
from cohort_gnn.trainer.loop.seed_parts import seeds_by_rank
from cohort_gnn.trainer.loop.seeds import NodeAges, Seeds, SeedSlot, seeds_of_task


def seeds_of_run(
    data: StoredGraph, options: TrainerSpec
) -> tuple[Task, dict[str, Seeds], dict[str, HeldOutLinks] | None]:
    """What a run learns, the seeds of its splits, and the held-out links of a run that learns links."""
    task = learned(data, options.task_name)
    if options.targets == "link":
        return task, *seeds_of_links(data, task, options)
    return task, seeds_of_task(task, data.first_node[task.node_type], options.in_time), None


class Passes:
    """Passes over the seeds of a run.

    Args:
        options: of the run.
        source: of its batches.
        splits: the seeds by split.
        data: with the times of nodes, where the model reads ages of some.

    Attributes:
        seed_sets: their numbers by split.
        sizes: the numbers of seeds by split.
    """

    def __init__(self, options: TrainerSpec, source: BatchSource, splits: Mapping[str, Seeds], data: StoredGraph):
        self._options, self._source = options, source
        source.labels_of_seeds = True
        self.seed_sets: dict[str, int] = {}
        for name, seeds in splits.items():
            ids, sizes = seeds.ids, None
            if name == "train" and options.parts:
                ids, sizes = seeds_by_rank(ids, **options.parts)
            weights, times = (None, seeds.target_weights), (None, seeds.target_times)
            self.seed_sets[name] = source.add_seeds(ids, sizes, seeds.times, weights, times)
        self.sizes = {name: len(seeds) for name, seeds in splits.items()}
        self._labels = {
            name: torch.tensor(seeds.labels, device=source.device)
            for name, seeds in splits.items()
            if seeds.labels is not None
        }
        self._ages, self._seed_times, spans = None, {}, options.graph.age_spans
        if spans:
            self._ages = NodeAges(data, spans, source.device)
            known = {name: seeds.times for name, seeds in splits.items() if seeds.times is not None}
            self._seed_times = {name: torch.tensor(own, device=source.device) for name, own in known.items()}

    def ask(self, name: str, fanout: list[int], epoch: int = 0, shuffle: bool = False, done: int = 0) -> Pass:
        """Has the sampler make a pass over a split's seeds, less the ``done`` first steps."""
        options, coarse = self._options, name == "train" and self.is_coarse(epoch)
        arguments = (options.batch_size, epoch, shuffle, done, self._pairs_of(name))
        fields = {"plane_a": coarse} | (options.trees or {})
        return self._source.request(self.seed_sets[name], fanout * len(options.graph.edge_types), *arguments, **fields)

    def slots(self, which: Pass, split: str, num_steps: int) -> Iterator[Any]:
        """The slots of the first steps of a pass over a split, with what its seeds have of their own."""
        slots, labels, pairs = self._source.slots(which, num_steps), self._labels.get(split), self._pairs_of(split)

        def own(slot) -> SeedSlot:
            ages = self._ages.nodes_of(slot, self._seed_times[split], pairs) if self._ages else {}
            return SeedSlot(slot, labels, ages)

        return slots if labels is None and not self._ages else map(own, slots)

    def is_coarse(self, epoch: int) -> bool:
        """Whether training reads features with an error in this epoch."""
        return epoch < self._options.coarse_epochs

    def _pairs_of(self, split: str) -> OfPairs:
        """What a pass over a split draws for pairs."""
        is_of_pairs = self._options.targets == "link" and split == "train"
        return draws_of_pairs(self._options) if is_of_pairs else OfPairs()
