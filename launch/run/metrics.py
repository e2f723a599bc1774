"""Whether the metrics that options name fit the task and the labels of a data set."""

import numpy as np

from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.spelling import did_you_mean
from cohort_gnn.base.units import format_bytes
from cohort_gnn.cache.budget import available_host_bytes
from cohort_gnn.dataset import StoredGraph
from cohort_gnn.dataset.learned import labels_or_unknown
from cohort_gnn.dataset.tasks import Task
from cohort_gnn.launch.options.devices import gpu_memory, resolve_device
from cohort_gnn.launch.run.job import types_of_run
from cohort_gnn.launch.run.losses import label_deviation
from cohort_gnn.launch.run.times import is_in_time, learns_links, seed_times, task_name, task_of
from cohort_gnn.spec.metrics import OF_TASK, RANKED, is_of, names_of, ranked
from cohort_gnn.spec.run import RunSpec

NEED_BOTH = ("auroc", "average_precision")  # nodes that have a class and nodes that have it not


def check_metrics(spec: RunSpec, data: StoredGraph) -> None:
    """Raises CohortError for metrics of another task, and for one to monitor that the labels of validation leave
    undefined."""
    task = "link" if learns_links(spec, data) else str(task_of(spec, data).targets)
    for flag, names in {"--metrics": spec.metrics or [], "--monitor": [spec.monitor] if spec.monitor else []}.items():
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
                raise CohortError(f"{flag} {name}", "--decoder dot or distmult", "--decoder mlp", hint)
    _check_memory(spec, data)
    label_deviation(spec, data)
    if spec.monitor in NEED_BOTH and not _has_both(task_of(spec, data)):
        hint = f"--split-ratio of the import makes another split; or leave --monitor {spec.monitor} out"
        expected = "validation nodes that have a class or label and others that have it not"
        raise CohortError(f"--monitor {spec.monitor}", expected, f"none in {data.path}", hint)


def _check_memory(spec: RunSpec, data: StoredGraph) -> None:
    """Raises CohortError where the rows of all targets at all times of validation or test, which ranks among all
    targets need in time, take more than half of the memory."""
    if not is_in_time(spec, data) or not any(ranked(name) for name in (*(spec.metrics or ()), spec.monitor or "")):
        return
    relation = types_of_run(spec, data).relation
    assert relation is not None
    num_targets = data.node_types[relation[2]].num_nodes
    times = seed_times(spec, data) or {}
    num_rows, split = max(
        (len(np.unique(own)) * num_targets, split) for split, own in times.items() if split != "train"
    )
    present = gpu_memory(spec) if resolve_device(spec.device) == "cuda" else available_host_bytes()
    needed = num_rows * spec.hidden * 4
    if present is not None and needed > present // 2:
        expected = f"at most {format_bytes(present // 2)} of rows, half of the memory"
        actual = (
            f"{format_bytes(needed)}: {num_targets:,} targets at each of {num_rows // num_targets:,} times of {split}"
        )
        hint = "rank among negatives (mrr), at fewer times, or without times (--time-attr none)"
        raise CohortError("metrics among all targets, in time", expected, f"{actual} x {spec.hidden} of --hidden", hint)


def _has_both(task: Task) -> bool:
    y = labels_or_unknown(task, "val")
    if task.targets == "classification":
        return len(np.unique(y[y >= 0])) > 1
    return bool(((y == 0).any(axis=0) & (y == 1).any(axis=0)).any())
