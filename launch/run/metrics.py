"""Whether the metrics that options name fit the task and the labels of a data set."""

import numpy as np

from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.spelling import did_you_mean
from cohort_gnn.dataset import StoredGraph
from cohort_gnn.dataset.learned import labels_or_unknown
from cohort_gnn.dataset.tasks import Task
from cohort_gnn.launch.run.times import task_of
from cohort_gnn.spec.metrics import OF_TASK, is_of, names_of, ranked
from cohort_gnn.spec.run import RunSpec

NEED_BOTH = ("auroc", "average_precision")  # nodes that have a class and nodes that have it not


def check_metrics(spec: RunSpec, data: StoredGraph) -> None:
    """Raises CohortError for metrics of another task, and for one to monitor that the labels of validation leave
    undefined."""
    task = "link" if spec.task == "link" else str(task_of(spec, data).targets)
    for flag, names in {"--metrics": spec.metrics or [], "--monitor": [spec.monitor] if spec.monitor else []}.items():
        for name in names:
            if not is_of(task, name):
                tasks = [other for other in OF_TASK if is_of(other, name)]
                hint = did_you_mean(name, OF_TASK[task]) or f"{name} is a metric of {' and '.join(tasks)}"
                raise CohortError(flag, f"metrics of {task}: {', '.join(names_of(task))}", name, hint)
            if ranked(name) and spec.decoder == "mlp":
                hint = "mrr and hits@k rank among the negatives of split-links, with any decoder"
                raise CohortError(f"{flag} {name}", "--decoder dot or distmult", "--decoder mlp", hint)
    if spec.monitor in NEED_BOTH and not _has_both(task_of(spec, data)):
        hint = f"--split-ratio of the import makes another split; or leave --monitor {spec.monitor} out"
        expected = "validation nodes that have a class or label and others that have it not"
        raise CohortError(f"--monitor {spec.monitor}", expected, f"none in {data.path}", hint)


def _has_both(task: Task) -> bool:
    y = labels_or_unknown(task, "val")
    if task.targets == "classification":
        return len(np.unique(y[y >= 0])) > 1
    return bool(((y == 0).any(axis=0) & (y == 1).any(axis=0)).any())
