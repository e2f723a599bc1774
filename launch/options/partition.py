"""Cliques of GPUs that train on the seeds of parts of their own: whose seeds are whose, and what that gains."""

from pathlib import Path

import numpy as np

from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.machine import devices
from cohort_gnn.cache.planner import MAX_CLIQUE_GPUS, cliques_named
from cohort_gnn.dataset import open as open_dataset
from cohort_gnn.dataset.partitioning.partition import load_parts, parts_file


def cliques_of_ranks(text: str, gpus: list[int], on_gpu: bool, machine: dict | None = None) -> list[list[int]]:
    """The ranks of a run whose GPUs read each other's memory, every rank once, as the sampler has them.

    Args:
        text: what --cliques says.
        gpus: of each rank, among the visible ones.
        on_gpu: without GPUs, "auto" leaves each rank alone.
    """
    if text != "auto" or not on_gpu:
        return cliques_named("none" if text == "auto" else text, len(gpus))
    rank_of = {gpu: rank for rank, gpu in enumerate(gpus)}
    cliques = [sorted(rank_of[gpu] for gpu in clique if gpu in rank_of) for clique in (machine or devices())["cliques"]]
    most = MAX_CLIQUE_GPUS
    return sorted(clique[at : at + most] for clique in cliques for at in range(0, len(clique), most))


def clique_seeds(dataset: Path, cliques: list[list[int]], split: str = "train") -> list[np.ndarray]:
    """Each clique's seeds, int64 [n], nodes of several types numbered through: clique c has those of part c.

    Raises:
        CohortError: there is one clique only, no such partition, or a clique without seeds.
    """
    if len(cliques) < 2:
        hint = "GPUs that read each other's memory share one cache: leave --partition out, or name --cliques"
        raise CohortError("--partition", "at least two cliques of GPUs", "one", hint)
    parts = load_parts(dataset, len(cliques))
    data = open_dataset(dataset)
    ids = np.asarray(getattr(data, f"{split}_ids")) + data.first_node[data.target]
    part_of = parts[ids]
    seeds = [ids[part_of == part] for part in range(len(cliques))]
    for part, own in enumerate(seeds):
        if len(own) == 0:
            file, hint = str(parts_file(dataset, len(cliques))), "partition again: training nodes are shared out evenly"
            raise CohortError(file, f"seeds of {split} in every part", f"none in part {part}", hint)
    return seeds


def describe_gain(with_parts: list[float], without: list[float]) -> str:
    """What a plan with parts gains.

    Args:
        with_parts, without: shares of each GPU's row reads that host memory need not serve.
    """
    after, before = (100 * sum(shares) / len(shares) for shares in (with_parts, without))
    return (
        f"partition: {after:.1f} % of the rows read are in GPU memory, {before:.1f} % without ({after - before:+.1f})"
    )
