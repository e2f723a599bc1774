"""Whether the metrics that options name fit the task and the labels of a data set."""

import logging

import numpy as np

from cohort_gnn.base.distinct import distinct
from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.spelling import did_you_mean
from cohort_gnn.base.units import format_bytes
from cohort_gnn.cache.budget import available_host_bytes
from cohort_gnn.dataset import StoredGraph
from cohort_gnn.dataset.learned import labels_or_unknown
from cohort_gnn.dataset.links import held_out_of, link_edges
from cohort_gnn.dataset.tasks import Task
from cohort_gnn.launch.options.devices import gpu_memory, resolve_device
from cohort_gnn.launch.run.job import types_of_run
from cohort_gnn.launch.run.losses import label_deviation
from cohort_gnn.launch.run.times import is_in_time, learns_links, metric_of_task, seed_times, task_name, task_of
from cohort_gnn.spec.metrics import HITS, OF_TASK, RANKED, is_of, names_of, ranked
from cohort_gnn.spec.run import RunSpec

LOG = logging.getLogger(__name__)
NEED_BOTH = ("auroc", "average_precision")  # nodes that have a class and nodes that have it not


def check_metrics(spec: RunSpec, data: StoredGraph) -> None:
    """Raises CohortError for metrics of another task, and for one to monitor that the labels of validation leave
    undefined."""
    task, monitor = "link" if learns_links(spec, data) else str(task_of(spec, data).targets), "--monitor"
    if is_of_task := spec.monitor is not None and spec.monitor == metric_of_task(spec, data):
        monitor = f"the metric of --task {spec.task}"
    for flag, names in {"--metrics": spec.metrics or [], monitor: [spec.monitor] if spec.monitor else []}.items():
        for name in names:
            if not is_of(task, name):
                tasks = [other for other in OF_TASK if is_of(other, name)]
                hint = did_you_mean(name, OF_TASK[task]) or f"{name} is a metric of {' and '.join(tasks)}"
                raise CohortError(flag, f"metrics of {task}: {', '.join(names_of(task))}", name, hint)
            if task == "link" and task_name(spec) and not ranked(name):
                hint = "a task of links has no negatives to rank among"
                raise CohortError(flag, ", ".join(f"{kind}@K" for kind in RANKED), name, hint)
            if ranked(name) and spec.decoder == "mlp":
                hint = "mrr and hits@k rank among the negatives of split-links, with any decoder"
                hint = "an mlp cannot rank all targets" if task_name(spec) else hint
                raise CohortError(f"{flag} {name}", "--decoder dot or distmult", "--decoder mlp", hint)
    if spec.monitor in certain_hits(spec, data):
        hint = "compare epochs by mrr, or hold links out with more: cohort dataset split-links --negatives N"
        expected = "as many negatives of each held-out link"
        raise CohortError(f"{monitor} {spec.monitor}", expected, "fewer, so that it is 100 % of any model", hint)
    _check_memory(spec, data)
    label_deviation(spec, data)
    if spec.monitor in NEED_BOTH and num_validated(spec, data) and not _has_both(task_of(spec, data)):
        other = "" if task_name(spec) else "--split-ratio of the import makes another split; or "
        hint = f"{other}leave --monitor {spec.monitor} out"
        hint = f"compare epochs by another metric: --monitor {OF_TASK[task][0]}" if is_of_task else hint
        expected = "validation nodes that have a class or label and others that have it not"
        raise CohortError(f"{monitor} {spec.monitor}", expected, f"none in {data.path}", hint)


def say_which_hits_are_certain(spec: RunSpec, data: StoredGraph) -> None:
    """Names the metrics that held-out links have too few negatives for."""
    if hits := certain_hits(spec, data):
        cause = "links are held out with too few negatives: cohort dataset split-links --negatives N"
        LOG.info(f"{', '.join(hits)} are 100 % of any model, as {cause}")


def certain_hits(spec: RunSpec, data: StoredGraph) -> list[str]:
    """The metrics hits@k with k above the number of negatives that a link of validation or test competes with."""
    held_out = held_out_of(link_edges(data, spec.relation)) if spec.task == "link" else {}
    counts = [held.negatives.shape[not held.shared] for held in held_out.values() if len(held.pairs)]
    return [f"hits@{k}" for k in HITS if counts and k > min(counts)]


def num_validated(spec: RunSpec, data: StoredGraph) -> int:
    """Links or nodes of validation."""
    if spec.task != "link":
        return task_of(spec, data).splits["val"].num_rows
    held_out = held_out_of(link_edges(data, spec.relation))
    return len(held_out["val"].pairs) if held_out else 0


def _check_memory(spec: RunSpec, data: StoredGraph) -> None:
    """Raises CohortError where the rows of all targets at all times of validation or test, which ranks among all
    targets need in time, take more than half of the memory."""
    if not is_in_time(spec, data) or not any(ranked(name) for name in (*(spec.metrics or ()), spec.monitor or "")):
        return
    relation = types_of_run(spec, data).relation
    assert relation is not None
    num_targets = data.node_types[relation[2]].num_nodes
    times = seed_times(spec, data, seen=True) or {}
    num_rows, split = max((len(distinct(own)) * num_targets, split) for split, own in times.items() if split != "train")
    present = gpu_memory(spec) if resolve_device(spec.device) == "cuda" else available_host_bytes()
    needed = num_rows * spec.hidden * 4
    if present is not None and needed > present // 2:
        expected = f"at most {format_bytes(present // 2)} of rows, half of the memory"
        actual = (
            f"{format_bytes(needed)}: {num_targets:,} targets at each of {num_rows // num_targets:,} times of {split}"
        )
        among = "" if task_name(spec) else "among negatives (mrr), "
        hint = f"rank {among}at fewer times, or without times (--time-attr none)"
        raise CohortError("metrics among all targets, in time", expected, f"{actual} x {spec.hidden} of --hidden", hint)


def _has_both(task: Task) -> bool:
    y = labels_or_unknown(task, "val")
    if task.targets == "classification":
        return len(np.unique(y[y >= 0])) > 1
    return bool(((y == 0).any(axis=0) & (y == 1).any(axis=0)).any())
