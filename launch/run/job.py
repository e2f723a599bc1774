"""From the options of a run to run.json."""

from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np

from cohort_gnn import ibp
from cohort_gnn.base.errors import CohortError
from cohort_gnn.cache import options as cache_plan
from cohort_gnn.cache.budget import beside_topology
from cohort_gnn.cache.disk import remembered_rates
from cohort_gnn.cache.interconnect import machine_bandwidth
from cohort_gnn.cache.planner import raw_row_bytes
from cohort_gnn.dataset import StoredGraph
from cohort_gnn.dataset import open as open_folder
from cohort_gnn.dataset.links import link_edges, with_held_out
from cohort_gnn.dataset.tasks import tasks_of
from cohort_gnn.launch.options.devices import gpu_memory, resolve_device
from cohort_gnn.launch.options.parser import values_of
from cohort_gnn.launch.options.partition import clique_seeds, cliques_of_ranks, parts_file
from cohort_gnn.launch.run.losses import label_deviation, weights_of_classes, with_whole_path
from cohort_gnn.launch.run.times import (
    age_spans,
    counted_pairs,
    counted_seeds,
    is_in_time,
    learns_links,
    metric_of_task,
    task_name,
    task_of,
    trees_of,
)
from cohort_gnn.spec.graph import GraphTypes
from cohort_gnn.spec.options import options_of
from cohort_gnn.spec.run import RunSpec, SamplerSpec, TrainerSpec

Spec = TypeVar("Spec", bound=RunSpec)


def open_to_train(folder: Path) -> StoredGraph:
    """The data set in a folder, whose path is absolute then."""
    return replace(open_folder(folder), path=folder.absolute())


def demand_train_nodes(data: StoredGraph) -> None:
    """Raises CohortError for a data set whose training split is empty."""
    if len(data.train_ids) == 0:
        hint = "write the data set with another --split-ratio"
        if tasks := tasks_of(data.path):
            hint = f"--task {tasks[0]} learns a task of the data set (it has {', '.join(tasks)})"
        elif data.num_classes == 0:
            hint = "no node has a label: cohort dataset import --labels FILE gives them some"
        raise CohortError(str(data.path / "train_ids.npy"), "at least one node to train on", "none", hint)


def topology_bytes(data: StoredGraph, weight_attr: str | None) -> int:
    """Bytes of the neighbour lists of all relations, and of what draws by weight read in addition."""
    lists = data.edge_types.values()
    weight_bytes = 4 * sum(len(relation.indptr) + len(relation.indices) for relation in lists) if weight_attr else 0
    return weight_bytes + sum(relation.indptr.nbytes + relation.indices.nbytes for relation in lists)


def takes_edge_features(spec: SamplerSpec, data: StoredGraph) -> bool:
    """Whether batches have the features of their edges: the data set has some, and the command or model reads them."""
    reads = not isinstance(spec, RunSpec) or spec.model_kind.takes_edge_features
    return spec.use_edge_features and reads and bool(data.edge_tables)


def with_task(spec: Spec, data: StoredGraph) -> Spec:
    """The options with the task that they name, or else that of the data set; with its metric to monitor.

    Raises:
        CohortError: the data set has no task of that name.
    """
    spec = replace(spec, task=spec.task or ("link" if with_held_out(data) else "node"))
    return replace(spec, monitor=spec.monitor or metric_of_task(spec, data))


def trainer_spec(spec: RunSpec, data: StoredGraph) -> TrainerSpec:
    """The options with what follows from the data set."""
    check_sampler_sms(spec)
    types, parts = types_of_run(spec, data), None
    task = None if learns_links(spec, data) else task_of(spec, data)
    tables = [relation.edge_table for relation in data.edge_types.values()] if takes_edge_features(spec, data) else []
    edge_dims = [0 if table is None else table.feature_dim for table in tables]
    spans = age_spans(spec, data, types)
    spec = replace(spec, time_encoding="relative" if spans else None)  # as a run has it that began before the option
    if spec.partition:
        cliques = _rank_cliques(spec)
        parts = {"parts": str(parts_file(data.path, len(cliques))), "cliques": cliques}
    return TrainerSpec(
        **values_of(with_whole_path(spec)),
        coarse_error=coarse_error(spec, data),
        weights_of_classes=weights_of_classes(spec, data),
        label_deviation=label_deviation(spec, data),
        num_classes=spec.hidden if task is None else task.num_classes,
        feature_dim=types.feature_dims[types.target],
        targets="link" if task is None else str(task.targets),
        types=replace(types, edge_dims=edge_dims, age_spans=spans) if spec.model_kind.several_types else None,
        edge_dim=max(edge_dims, default=0),
        parts=parts,
        task_name=task_name(spec),
        class_names=None if task is None else task.class_names,
        in_time=is_in_time(spec, data),
        trees=trees_of(spec, data),
    )


def types_of_run(spec: RunSpec, data: StoredGraph) -> GraphTypes:
    """The types of the data set, with the relation or the node type that the run predicts."""
    if spec.task == "link":
        return replace(data.types, relation=link_edges(data, spec.relation).relation)
    task = task_of(spec, data)
    if task.target_type is not None:
        return replace(data.types, relation=(task.node_type, task.name, task.target_type))
    return replace(data.types, target=task.node_type)


def coarse_error(spec: RunSpec, data: StoredGraph) -> float:
    """The relative error bound of features in coarse epochs, of the node type with the largest; 0: there are none.

    Raises:
        CohortError: the data set has no rows of codec planes, or they do not stay encoded.
    """
    if not spec.coarse_epochs:
        return 0.0
    place = f"--coarse-epochs {spec.coarse_epochs}"
    if spec.compress not in ("auto", "both"):
        raise CohortError(place, "--compress both or auto: rows that stay encoded", f"--compress {spec.compress}")
    files = [table.encoded_rows for table in data.node_types.values() if table.encoded_rows]
    bound = max((ibp.load(file, verify=False).profile.error_bound for file in files), default=0.0)
    if bound == 0.0:
        hint = f"encode them with: cohort dataset prepare {data.path} --codec planes"
        raise CohortError(place, "feature rows of codec planes", f"none in {data.path}", hint)
    return bound


def sampler_members(spec: SamplerSpec, dataset: Path, plan_file: Path | None = None, in_place: bool = False) -> dict:
    """The member "sampler" of run.json, less what the run itself adds.

    Args:
        plan_file: where the sampler is to write what it expects of the cache, if there is one.
        in_place: on the CPU, the trainer reads rows in the data set's file, where it can.
    """
    if isinstance(spec, RunSpec) and spec.coarse_epochs:
        spec = replace(spec, compress="both")  # plane A is a part of encoded rows
    device = resolve_device(spec.device)
    num_ranks = count_ranks(spec, device)
    own_seeds, data = None, open_folder(dataset)
    spec = replace(spec, use_edge_features=takes_edge_features(spec, data))
    if spec.partition:
        cliques = _rank_cliques(spec)
        own_seeds = list(zip(cliques, clique_seeds(dataset, cliques), strict=True))
    planned = replace(spec, fanout=spec.fanout * len(data.edge_types))
    if spec.cache_ratio == "auto":
        planned = replace(planned, gpu_memory=gpu_memory(spec))
    trees = None
    if isinstance(spec, RunSpec) and spec.task is not None:
        seeds, batch_size, trees = planned_seeds(spec, data)
        if seeds is not None:
            own_seeds = [(list(range(num_ranks)), seeds)]
        planned = replace(planned, batch_size=batch_size)
    cache = cache_plan.cache_members(
        planned, dataset, num_ranks, device == "cuda", own_seeds, gpus_of(spec), trees=trees
    )
    topology = cache_plan.topology_of(spec, device)
    if topology != spec.topology:
        in_gpu = topology_bytes(data, spec.weight_attr)
        weights = [relation.edge_weights for relation in data.edge_types.values()] if spec.use_edge_weights else []
        in_gpu += sum(array.nbytes for array in weights if array is not None)
        tables = [(table.num_nodes, raw_row_bytes(table)) for table in data.node_types.values()]
        if kept := beside_topology(cache["cache_bytes"], in_gpu, tables):
            topology, cache["cache_bytes"] = "gpu", kept
    members = {
        "dataset": str(dataset),
        "device": device,
        "num_ranks": num_ranks,
        "gpus": gpus_of(spec) if device == "cuda" else None,
        "topology": topology,
        "num_slots": spec.slots,
        "reuse": spec.reuse if device == "cuda" else None,
        "edge_weights": spec.use_edge_weights or None,
        "edge_features": spec.use_edge_features or None,
        "in_place": in_place or None,
        "edge_times": True if trees and "times" in trees else None,
        "plan_file": str(plan_file) if plan_file and "cache_bytes" in cache else None,
        "poison_slots": spec.debug_poison_slots,
        "slow_fetch_us": spec.debug_slow_fetch_us,
        "illegal_access_batch": spec.debug_illegal_access_batch,
    } | {option.name: getattr(spec, option.name) for option in options_of(SamplerSpec) if option.for_sampler}
    if device == "cuda" and plan_file and "bytes_per_second" not in cache:  # what a run is compared with
        bandwidth = spec.bandwidth or machine_bandwidth(gpus=gpus_of(spec))
        members["bytes_per_second"] = [1e9 * rate for rate in bandwidth]
    return {name: value for name, value in members.items() if value is not None} | cache


def disk_rate(spec: RunSpec, data: StoredGraph) -> dict[str, float]:
    """{"disk_rows_per_second": of the slowest drive with rows that --host-bytes leaves there}; {}: no row stays there.

    Raises:
        CohortError: the disk cannot be measured, which is done once a drive.
    """
    files = [table.encoded_rows for table in data.node_types.values() if table.encoded_rows is not None]
    if (
        spec.host_bytes is None
        or spec.feature_placement == "partitioned"
        or sum(file.stat().st_size for file in files) <= spec.host_bytes
    ):
        return {}
    return {"disk_rows_per_second": min(remembered_rates(file)["rows_per_second"] for file in files)}


def planned_seeds(spec: RunSpec, data: StoredGraph, split: str = "train") -> tuple[np.ndarray | None, int, dict | None]:
    """What the cache of a run is planned for: (int64 [n], the nodes that batches begin with, of several node types
    numbered through, None: those of the split; how many of them a batch has; as `presample` takes them, their trees).
    Of links, these are the nodes that may be endpoints of a link or a negative."""
    if not learns_links(spec, data):
        seeds, trees = counted_seeds(spec, data, split)
        return seeds, spec.batch_size, trees
    if spec.seed_order != "shuffle":
        hint = "leave it out: links are shuffled"
        raise CohortError("--seed-order", "nodes to learn of, which have communities", "links", hint)
    size = (2 + (0 if spec.negatives_from == "batch" else spec.negatives)) * spec.batch_size
    if is_in_time(spec, data):
        pairs, trees = counted_pairs(spec, data)
        return pairs, size, trees
    types = types_of_run(spec, data)
    firsts = types.first_node
    return np.concatenate([firsts[name] + np.arange(types.counts[name]) for name in types.outputs]), size, None


def gpus_of(spec: SamplerSpec) -> list[int]:
    """The GPUs of --gpus, by default the first one."""
    return spec.gpus or [0]


def count_ranks(spec: SamplerSpec, device: str) -> int:
    """How many trainers: one for each of --gpus, or what --ranks says on the CPU."""
    if device == "cpu" and spec.gpus:
        hint = "--gpus has the numbers of GPUs: leave it out; --ranks N starts N trainers on the CPU"
        raise CohortError("--gpus", "GPUs", "only the CPU", hint)
    num_ranks = (spec.ranks if device == "cpu" else len(spec.gpus or [])) or 1
    if spec.ranks not in (None, num_ranks):
        raise CohortError("--ranks", f"{num_ranks}, one for each of --gpus", str(spec.ranks))
    return num_ranks


def check_sampler_sms(spec: RunSpec) -> None:
    """Raises CohortError where --sampler-sms has no GPU to divide."""
    if not spec.sampler_sms:
        return
    if resolve_device(spec.device) == "cpu":
        raise CohortError("--sampler-sms", "a GPU", "--device cpu", "leave the option out")
    if not spec.mps:
        raise CohortError("--sampler-sms", "MPS", "--no-mps: the GPU is time-sliced", "leave one of the two out")


def _rank_cliques(spec: SamplerSpec) -> list[list[int]]:
    device = resolve_device(spec.device)
    num_ranks = count_ranks(spec, device)
    on_gpu = device == "cuda"
    return cliques_of_ranks(spec.cliques, gpus_of(spec) if on_gpu else list(range(num_ranks)), on_gpu)
