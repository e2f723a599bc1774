"""The loss that options name: whether it fits the data set, and the weights of its classes."""

import logging
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset import StoredGraph
from cohort_gnn.dataset.learned import labels_or_unknown
from cohort_gnn.dataset.tasks import Task
from cohort_gnn.launch.run.times import learns_links, task_of
from cohort_gnn.spec.run import RunSpec

LOG = logging.getLogger(__name__)
MAJORITY = 0.95  # of the training labels: accuracy hardly says anything of a class with more
Spec = TypeVar("Spec", bound=RunSpec)


def check_loss(spec: RunSpec, data: StoredGraph) -> None:
    """Raises CohortError for options of the loss that do not fit the task of a run, or each other."""
    task = "link" if learns_links(spec, data) else str(task_of(spec, data).targets)
    if spec.loss == "focal" and task not in ("classification", "multilabel"):
        hint = "bce, softmax and margin are the losses of links" if task == "link" else "leave it out"
        raise CohortError("--loss focal", "classes or several labels to learn", task, hint)
    if spec.focal_gamma is not None and spec.loss != "focal":
        actual = f"--loss {spec.loss}" if task == "link" or spec.loss != "bce" else "the loss of nodes by default"
        raise CohortError("--focal-gamma", "--loss focal", actual, "leave it out, or add --loss focal")
    if spec.class_weights is not None and ":" in spec.loss:
        hint = f"{spec.loss} may have weights of its own"
        raise CohortError("--class-weights", "cross entropy or focal loss", f"--loss {spec.loss}", hint)
    if spec.class_weights is not None and task != "classification":
        hint = "leave it out; --loss focal is for several labels, too" if task == "multilabel" else "leave it out"
        raise CohortError("--class-weights", "classes to learn", task, hint)


def weights_of_classes(spec: RunSpec, data: StoredGraph) -> list[float] | None:
    """What --class-weights gives each class; None: the option is not there.

    "balanced": n / (C x n_c) of the training labels alone, as in scikit-learn: n labels of C classes, n_c of class c; 0
    for classes without a training label.

    Raises:
        CohortError: the file has no such numbers.
    """
    if spec.class_weights is None or spec.task == "link" or task_of(spec, data).targets != "classification":
        return None
    if spec.class_weights != "balanced":
        return _read(Path(spec.class_weights), task_of(spec, data).num_classes)
    counts = _label_counts(task_of(spec, data))
    return [float(counts.sum() / ((counts > 0).sum() * count)) if count else 0.0 for count in counts]


def label_deviation(spec: RunSpec, data: StoredGraph) -> float | None:
    """The standard deviation of the training labels, by which nmae divides the mean absolute error, as of a sample (n -
    1); None: nmae is not measured.

    Raises:
        CohortError: there is none, or it is 0.
    """
    if "nmae" not in (*(spec.metrics or ()), spec.monitor) or spec.task == "link":
        return None
    y = labels_or_unknown(task_of(spec, data), "train").astype(np.float64)
    y = y[~np.isnan(y)]
    if len(y) < 2 or y.min() == y.max():
        raise CohortError("nmae", "training labels that differ", "none", "rmse and mae need none")
    return float(y.std(ddof=1))


def with_whole_path(spec: Spec) -> Spec:
    """The options with a file of weights by its absolute path: a run that is resumed elsewhere finds it."""
    if spec.class_weights in (None, "balanced"):
        return spec
    return replace(spec, class_weights=str(Path(spec.class_weights).expanduser().absolute()))


def warn_of_majority(spec: RunSpec, data: StoredGraph) -> None:
    """Warns where nearly all training labels are of one class, and names the options that help and are not there."""
    if spec.task == "link" or task_of(spec, data).targets != "classification":
        return
    counts, cures = _label_counts(task_of(spec, data)), []
    share = counts.max(initial=0) / max(1, counts.sum())
    if share <= MAJORITY:
        return
    if share == 1:
        LOG.warning(f"all training labels are of class {counts.argmax()}, the only one that can be learned of them")
        return
    if spec.class_weights is None:
        cures.append("--class-weights balanced lets all classes count the same")
    if not {"average_precision", "auroc", "f1"} & {*(spec.metrics or ()), spec.monitor}:
        cures.append("--metrics average_precision tells models apart that accuracy does not")
    if cures:
        LOG.warning(f"{100 * share:.1f} % of the training labels are of class {counts.argmax()}: {'; '.join(cures)}")


def _label_counts(task: Task) -> np.ndarray:
    """int64 [classes]: how many training rows have each as their label."""
    y = labels_or_unknown(task, "train")
    return np.bincount(y[(y >= 0) & (y < task.num_classes)], minlength=task.num_classes)


def _read(file: Path, num_classes: int) -> list[float]:
    place, expected = f"--class-weights {file}", f"{num_classes} numbers of at least 0, one for each class"
    try:
        path = file.expanduser()
        values = (
            np.load(path, allow_pickle=False) if file.suffix == ".npy" else np.loadtxt(path, delimiter=",", ndmin=1)
        )
        values = np.asarray(values, np.float64)
    except (OSError, ValueError) as error:
        actual = "no such file" if isinstance(error, FileNotFoundError) else str(error)[:200]
        raise CohortError(place, expected, actual) from error
    if values.size != num_classes or max(values.shape) != num_classes:
        raise CohortError(place, expected, f"shape {list(values.shape)}")
    values = values.reshape(-1)
    if not (np.isfinite(values) & (values >= 0)).all() or not values.any():
        raise CohortError(place, expected, f"{values.tolist()}"[:80], "a class of weight 0 is not learned")
    return values.tolist()
