"""Turns the user's options for the cache into members of run.json for the sampler."""

import contextlib
import hashlib
import json
import logging
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.files import demand_writable, scratch_folder, user_cache
from cohort_gnn.base.programs import ask_sampler
from cohort_gnn.cache import _native
from cohort_gnn.cache.budget import MemoryNeeds, budgets, demand_one_each
from cohort_gnn.cache.interconnect import MEASURED_BANDWIDTH, machine_bandwidth
from cohort_gnn.cache.planner import ELEMENT_BYTES
from cohort_gnn.spec.meta import read_meta
from cohort_gnn.spec.run import SamplerSpec
from cohort_gnn.spec.types import Topology

LOG = logging.getLogger(__name__)


def row_tables(meta: dict) -> list[tuple[int, int]]:
    """Nodes, and bytes of a raw feature row (0: no features), of each node type of a data set with this meta.json, as
    spec.meta.read_meta() returns it."""
    return [(nodes["count"], _row_bytes(nodes)) for nodes in meta["nodes"]]


def _row_bytes(described: dict) -> int:
    has = described.get("features")
    return has["dim"] * ELEMENT_BYTES[has["dtype"]] if has else 0


def edge_row_bytes_of(meta: dict) -> int:
    """Bytes of the widest row that an edge of a data set with this meta.json has; 0: no edge has one."""
    return max(map(_row_bytes, meta["edges"]))


def num_nodes_of(meta: dict) -> int:
    """Nodes of all types of a data set with this meta.json."""
    return sum(count for count, _ in row_tables(meta))


def raw_bytes_of(meta: dict) -> int:
    """Bytes of all raw feature rows of a data set with this meta.json."""
    return sum(count * row_bytes for count, row_bytes in row_tables(meta))


def label_bytes_of(meta: dict) -> int:
    """Bytes of a node's label, or labels, of a data set with this meta.json."""
    target = meta["target"]
    width = target["num_classes"] if target["task"] == "multilabel" else 1
    return width * {"int64": 8, "float32": 4, "uint8": 1}[target["label_dtype"]]


def bytes_of_nodes(meta: dict) -> int:
    """What every GPU holds of the nodes themselves: labels and ids."""
    return _native.bytes_of_nodes(num_nodes_of(meta), label_bytes_of(meta))


def presample(
    dataset: Path,
    fanout: list[int],
    batch_size: int,
    max_batches: int = 200,
    split: str = "train",
    refresh: bool = False,
    seeds: np.ndarray | None = None,
    draws: dict[str, Any] | None = None,
    trees: dict[str, Any] | None = None,
) -> dict:
    """Has the sampler count what it reads, unless the data set has the counts (`refresh`: even then).

    A list of `fanout` for each relation follows the one before, if there are several.

    Where the data set's folder cannot be written, the user's cache folder gets the counts.

    Args:
        seeds: int64 [n], in place of those of a split; of several node types numbered through.
        draws: how neighbours are drawn, as `SamplerSpec.draws` has it; None: uniformly.
        trees: of disjoint batches, fields of requests (`TrainerSpec.trees`), and "times", int64 [n] of `seeds`.

    Returns:
        What ``cohort-sampler --presample`` says: {"file", "batches", "reused", "max_batch_nodes", "max_batch_edges"}.

    Raises:
        CohortError: the split has no seeds, or there is no folder that can be written.
    """
    options: dict = {
        "dataset": str(writable_folder(dataset.absolute())),
        "fanout": fanout,
        "batch_size": batch_size,
        "split": split,
        "max_batches": max_batches,
        "refresh": refresh,
    } | {name: value for name, value in (draws or {}).items() if value is not None}
    scratch = Path(tempfile.gettempdir())
    with (
        demand_writable(scratch, hint="TMPDIR names another folder for seeds to be counted"),
        scratch_folder("presample") as folder,
    ):
        if seeds is not None:
            options["seeds"] = str(folder / "seeds.npy")
            np.save(options["seeds"], np.ascontiguousarray(seeds, np.int64))
        options |= trees or {}
        if "times" in options:
            options["times"] = str(folder / "times.npy")
            np.save(options["times"], np.ascontiguousarray((trees or {})["times"], np.int64))
        file = folder / "options.json"
        file.write_text(json.dumps(options))
        return ask_sampler("--presample", str(file))


def writable_folder(dataset: Path) -> Path:
    """The data set's folder, or one in the user's cache folder with links to its files, where counts can lie.

    Raises:
        CohortError: neither can be written.
    """
    if os.access(dataset, os.W_OK):
        return dataset
    folder = user_cache() / f"counts-{hashlib.sha256(str(dataset.resolve()).encode()).hexdigest()[:16]}"
    with demand_writable(folder, hint="the cache is planned by counts that are kept there: set XDG_CACHE_HOME"):
        folder.mkdir(parents=True, exist_ok=True)
        for path in dataset.iterdir():
            with contextlib.suppress(FileExistsError):  # a link of an earlier time, or counts that were made since
                (folder / path.name).symlink_to(path)
    return folder


def wants_auto_cache(spec: SamplerSpec) -> bool:
    """Whether the cache of a run gets the memory that slots and trainer do not use."""
    return spec.cache_ratio == "auto" and spec.cache_bytes is None and spec.cache_policy != "none"


def topology_of(spec: SamplerSpec, device: str) -> Topology:
    """--topology, but where the cache takes all that is left, it alone decides about neighbour lists in GPU memory."""
    return "host" if device == "cuda" and spec.topology == "auto" and wants_auto_cache(spec) else spec.topology


def cache_members(
    spec: SamplerSpec,
    dataset: Path,
    num_ranks: int,
    on_gpu: bool,
    clique_seeds: list[tuple[list[int], np.ndarray]] | None = None,
    gpus: list[int] | None = None,
    edge_ids: bool = False,
    trees: dict[str, Any] | None = None,
) -> dict:
    """The members of run.json's "sampler" that make the cache, and leave rows on the disk; empty without both.

    Args:
        spec: the options; its fanout (of each relation) and batch size are those of the run's training, the seeds
            counted those of the split "train".
        on_gpu: the cache is used, and not only planned.
        clique_seeds: (ranks, seeds int64 [n]) of each clique, where cliques train on seeds of their own.
        gpus: ordinals of those whose links are measured; None: all that are visible.
        edge_ids: whether batches have them.
        trees: of disjoint batches, as `presample` takes them, for the seeds of the one clique.

    Raises:
        CohortError: as `presample` and `budgets` do; and no node has features.
    """
    host_options = {} if spec.host_bytes is None else {"host_bytes": spec.host_bytes, "ahead": spec.ahead}
    has_cache = spec.cache_ratio is not None or spec.cache_bytes is not None
    if not has_cache and not host_options:
        return {}
    if spec.cache_policy == "none":
        return host_options | {"cache_policy": "none"}
    demand_one_each(num_ranks, spec.cache_ratio, spec.cache_bytes)  # before counting, which takes time
    meta = read_meta(dataset)
    if raw_bytes_of(meta) == 0:
        options = "--cache-ratio, --cache-bytes" if has_cache else "--host-bytes"
        raise CohortError(
            options, "features to cache" if has_cache else "features to keep", f"none in {dataset}", "leave it out"
        )
    counts = []
    if spec.cache_policy == "plan":
        for seeds in [None] if clique_seeds is None else [seeds for _, seeds in clique_seeds]:
            reads = presample(
                dataset,
                spec.fanout,
                spec.batch_size,
                spec.presample_batches,
                seeds=seeds,
                draws=spec.draws,
                trees=trees,
            )
            counts.append(reads)
            if not reads["reused"]:
                what = "cache" if has_cache else "host memory"
                LOG.info(
                    f"counted what {reads['batches']} batches of the sampler read, for the {what}: {reads['file']}"
                )
    hotness: dict = {"hotness": counts[0]["file"]} if counts else {}
    if counts and clique_seeds is not None:
        rank_file = {
            rank: relation["file"] for (ranks, _), relation in zip(clique_seeds, counts, strict=True) for rank in ranks
        }
        hotness = {"rank_hotness": [rank_file[rank] for rank in range(num_ranks)]}
    if not has_cache:
        return host_options | hotness
    needs = memory_needs(spec, meta, counts, edge_ids, disjoint=trees is not None)
    cache_bytes = budgets(num_ranks, raw_bytes_of(meta), spec.cache_ratio, spec.cache_bytes, needs)
    bandwidth = spec.bandwidth or (machine_bandwidth(gpus=gpus) if on_gpu else MEASURED_BANDWIDTH)
    return (
        {
            "cache_bytes": cache_bytes,
            "cache_policy": spec.cache_policy,
            "cliques": spec.cliques,
            "bytes_per_second": [1e9 * rate for rate in bandwidth],
            "seconds_per_line": [1e-9 * nanoseconds for nanoseconds in spec.line_ns],
        }
        | hotness
        | host_options
        | ({"pool_share": 1.0} if spec.cache_ratio == "auto" else {})  # this cache leaves room for trainer and pools
    )


def memory_needs(
    spec: SamplerSpec, meta: dict, counts: list[dict], edge_ids: bool = False, disjoint: bool = False
) -> MemoryNeeds:
    """What a GPU needs beside the cache; a batch of unknown size is at most the whole graph.

    With several node types, rows count as wide as the widest.
    """
    largest = (num_nodes_of(meta), sum(edges["count"] for edges in meta["edges"]))
    if counts:
        largest = tuple(max(count[name] for count in counts) for name in ("max_batch_nodes", "max_batch_edges"))
    is_homogeneous = len(meta["nodes"]) == len(meta["edges"]) == 1
    slot_bytes = _native.slot_bytes(
        num_nodes=num_nodes_of(meta),
        num_relations=len(meta["edges"]),
        batch_size=spec.batch_size,
        # The sampler knows no worst case of other graphs, none of trees that is near, and none of importance sampling.
        fanout=spec.fanout if is_homogeneous and not disjoint and not spec.importance_sampling else [-1],
        most_nodes=largest[0],
        most_edges=largest[1],
        label_bytes=label_bytes_of(meta),
        edge_ids=edge_ids,
        edge_weights=spec.use_edge_weights or spec.importance_sampling,
        edge_row_bytes=edge_row_bytes_of(meta) if spec.use_edge_features else 0,
    )
    pool_bytes = _native.pool_bytes(
        num_slots=spec.slots,
        num_nodes=num_nodes_of(meta),
        most_nodes=largest[0],
        reuse=spec.reuse,
        row_bytes=max(row_bytes for _, row_bytes in row_tables(meta)),
    )
    slots_bytes = spec.slots * slot_bytes + pool_bytes
    # They are in the trainer's peak, where that was measured.
    node_bytes = bytes_of_nodes(meta) if spec.trainer_bytes is None else 0
    return MemoryNeeds(spec.gpu_memory, slots_bytes, spec.trainer_bytes, node_bytes)
