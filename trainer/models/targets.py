"""The targets of a model, by the data set's task: the loss of its scores, and their metrics.

Labels ``y`` are int64 [n] classes, -1 for none; float32 [n] numbers, NaN for none; or [n, labels] of 0 and 1, uint8
with 255 for unknown or float32 with NaN. All of it stays on the device and has shapes that a CUDA graph can hold.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from cohort_gnn.base.errors import CohortError
from cohort_gnn.spec.losses import gamma_of
from cohort_gnn.spec.metrics import ERRORS, HITS, OF_TASK, ranked
from cohort_gnn.spec.run import TrainerSpec


class Classes:
    """One of several classes: cross entropy or focal loss, accuracy.

    Attributes:
        gamma: of the focal loss, see `focal`; None: cross entropy.
        weights: float32 [classes], by which the loss of a node of the class counts; None: by 1. The loss of a run is
            the sum of these losses over the number of labels; torch divides by the sum of the weights.
        metric: by which epochs are compared without --monitor.
        summed: the metrics that ``metrics`` makes of sums; for others see metrics.py.
    """

    metric, summed = "accuracy", ("accuracy",)
    num_sums = 2

    def __init__(self, gamma: float | None = None, weights: Tensor | None = None):
        self.gamma, self.weights = gamma, weights

    def count(self, y: Tensor) -> Tensor:
        """int64 []: how many labels there are, over which the loss is a mean."""
        return (y >= 0).sum()

    def loss_sum(self, scores: Tensor, y: Tensor) -> Tensor:
        """float32 []: of scores float32 [n, outputs], over the labels that there are."""
        if self.gamma is None:
            return F.cross_entropy(scores, y, self.weights, ignore_index=-1, reduction="sum")
        losses = focal(F.cross_entropy(scores, y, ignore_index=-1, reduction="none"), self.gamma)
        return (losses if self.weights is None else losses * self.weights[y.clamp(min=0)]).sum()

    def sums(self, scores: Tensor, y: Tensor) -> Tensor:
        """float64 [num_sums]: what adds up over batches and ranks to what ``metrics`` takes."""
        return torch.stack([((scores.argmax(dim=1) == y) & (y >= 0)).sum(), (y >= 0).sum()]).double()

    def metrics(self, sums: Tensor) -> dict[str, float]:
        """The metrics by name; empty where nothing is labelled."""
        right, labelled = sums.tolist()
        return {"accuracy": right / labelled} if labelled else {}

    def constant(self, y: Tensor) -> float | None:
        """What the metric would be if all nodes got the same answer, the one that is best for these labels; None where
        nothing is labelled."""
        counts = y[y >= 0].bincount()
        return counts.max().item() / counts.sum().item() if len(counts) else None

    def best(self, scores: Tensor) -> Tensor:
        """int64 [n]: the answer, here a class."""
        return scores.argmax(dim=1)


class Numbers:
    """A number: mean squared error; RMSE and MAE.

    Args:
        deviation: of the training labels, by which NMAE divides MAE; None: NMAE is not measured.
    """

    metric, num_sums = "rmse", 3

    def __init__(self, deviation: float | None = None):
        self._deviation = deviation
        self.summed = ("rmse", "mae") if deviation is None else ("rmse", "mae", "nmae")

    def count(self, y: Tensor) -> Tensor:
        return (~y.isnan()).sum()

    def loss_sum(self, scores: Tensor, y: Tensor) -> Tensor:
        return self._errors(scores, y).square().sum()

    def sums(self, scores: Tensor, y: Tensor) -> Tensor:
        errors = self._errors(scores, y).double()
        return torch.stack([errors.square().sum(), errors.abs().sum(), self.count(y).double()])

    def metrics(self, sums: Tensor) -> dict[str, float]:
        squares, magnitudes, known = sums.tolist()
        if not known:
            return {}
        metrics = {"rmse": (squares / known) ** 0.5, "mae": magnitudes / known}
        return metrics if self._deviation is None else metrics | {"nmae": metrics["mae"] / self._deviation}

    def constant(self, y: Tensor) -> float | None:
        known = y[~y.isnan()].double()
        return known.std(correction=0).item() if len(known) else None

    def best(self, scores: Tensor) -> Tensor:
        """float32 [n]"""
        return scores[:, 0]

    def _errors(self, scores: Tensor, y: Tensor) -> Tensor:
        """float32 [n], 0 without a label."""
        known = ~y.isnan()
        return (scores[:, 0] - torch.where(known, y, 0)) * known


class MultiLabel:
    """Any of several labels: binary cross entropy of each; F1 over the answers for all nodes and labels (micro)."""

    metric, summed = "micro_f1", ("micro_f1",)
    num_sums = 4

    def __init__(self, gamma: float | None = None):
        self.gamma = gamma

    def count(self, y: Tensor) -> Tensor:
        return _known(y).sum()

    def loss_sum(self, scores: Tensor, y: Tensor) -> Tensor:
        known = _known(y)
        wanted = torch.where(known, y, 0).to(scores.dtype)
        weight = known.to(scores.dtype)
        if self.gamma is None:
            return F.binary_cross_entropy_with_logits(scores, wanted, weight, reduction="sum")
        losses = F.binary_cross_entropy_with_logits(scores, wanted, reduction="none")
        return (focal(losses, self.gamma) * weight).sum()

    def sums(self, scores: Tensor, y: Tensor) -> Tensor:
        predicted, known = scores > 0, _known(y)
        has = y == 1
        return torch.stack([(predicted & has).sum(), (predicted & known).sum(), has.sum(), known.sum()]).double()

    def metrics(self, sums: Tensor) -> dict[str, float]:
        right, predicted, there, known = sums.tolist()
        return {"micro_f1": 2 * right / max(predicted + there, 1)} if known else {}

    def constant(self, y: Tensor) -> float | None:
        known, has = _known(y).sum(dim=0).double(), (y == 1).sum(dim=0).double()
        order = (has / known.clamp(min=1)).argsort(descending=True)  # the best answer has the most common labels
        predicted, right = known[order].cumsum(0), has[order].cumsum(0)
        return (2 * right / (predicted + has.sum()).clamp(min=1)).max().item() if known.sum() else None

    def best(self, scores: Tensor) -> Tensor:
        """uint8 [n, labels]: 1 for the predicted labels."""
        return (scores > 0).to(torch.uint8)


class LinkTargets:
    """Which of some targets a source has an edge to: scores float32 [n, 1 + K] have the edge first, then K negatives.
    Here ``y`` [n, ...] says how many links there are.

    Metrics are means over the links, by the rank r of the edge's score among the 1 + K, where equal ones share theirs:
    "mrr" of 1 / r, "hits@k" of r <= k, "auc" of (1 + K - r) / K, the share of the negatives that score lower. Where all
    links share their negatives, "auc" is the area under the ROC curve.

    Args:
        loss: of a link: "bce", binary cross entropy of the 1 + K scores, the mean; "softmax", cross entropy of the edge
            among all; "margin", how much the edge's score is less than 1 above a negative's, the mean.
        ranked: names of metrics among all targets, whose sums, and the number of sources, come after those of links
            (see loop/ranked_links.py).
        among_negatives: there are metrics among negatives; a task of links has none.
    """

    metric = "mrr"

    def __init__(self, loss: str = "bce", ranked: Sequence[str] = (), among_negatives: bool = True):
        self.loss, self.ranked = loss, ranked
        self._names = OF_TASK["link"] if among_negatives else ()
        self.summed = (*self._names, *ranked)
        self.num_link_sums = len(self._names) + 1 if among_negatives else 0
        self.num_sums = self.num_link_sums + (len(ranked) + 1 if ranked else 0)

    def count(self, y: Tensor) -> Tensor:
        return y.new_tensor(y.shape[0])

    def loss_sum(self, scores: Tensor, y: Tensor) -> Tensor:
        own, others = scores[:, :1], scores[:, 1:]
        if self.loss == "softmax":
            return F.cross_entropy(scores, y.new_zeros(y.shape[0]), reduction="sum")
        if self.loss == "margin":
            return F.relu(1 - own + others).sum() / others.shape[1]
        wanted = torch.zeros_like(scores)
        wanted[:, 0] = 1
        return F.binary_cross_entropy_with_logits(scores, wanted, reduction="sum") / scores.shape[1]

    def sums(self, scores: Tensor, y: Tensor | None = None) -> Tensor:
        own, others = scores[:, :1], scores[:, 1:]
        rank = 1 + (others > own).sum(dim=1) + (others == own).sum(dim=1) / 2
        rank[~scores.isfinite().all(dim=1)] = scores.shape[1]  # of weights that diverged
        return self._sums_of(rank, others.shape[1])

    def sums_among(self, scores: Tensor, others: Tensor) -> Tensor:
        """The sums of edges whose scores [n] rank among the same ``others`` [m]."""
        ordered = others.sort().values
        above = len(others) - torch.searchsorted(ordered, scores, right=True)
        not_below = len(others) - torch.searchsorted(ordered, scores)
        rank = 1 + (above + not_below) / 2
        rank[~(scores.isfinite() & others.isfinite().all())] = 1 + len(others)  # of weights that diverged
        return self._sums_of(rank, len(others))

    def _sums_of(self, rank: Tensor, num_negatives: int) -> Tensor:
        hits = [(rank <= k).sum() for k in HITS]
        lower = (1 + num_negatives - rank.double()) / num_negatives
        return torch.stack([(1 / rank.double()).sum(), *hits, lower.sum(), rank.new_tensor(len(rank))]).double()

    def metrics(self, sums: Tensor) -> dict[str, float]:
        parts = (self._names, sums[: self.num_link_sums]), (self.ranked, sums[self.num_link_sums :])
        metrics: dict[str, float] = {}
        for names, totals in parts:
            if names and (count := totals[-1].item()):
                metrics |= {name: total / count for name, total in zip(names, totals[:-1].tolist(), strict=True)}
        return metrics

    def constant(self, y: Tensor) -> float | None:
        return None

    def best(self, scores: Tensor) -> Tensor:
        raise CohortError("--classes", "a run that learned classes", "one of --task link", "leave it out")


def focal(losses: Tensor, gamma: float) -> Tensor:
    """(1 - p)^gamma (-log p), of the cross entropies -log p: those of nodes whose class has a high probability p count
    less (Lin et al., Focal Loss for Dense Object Detection, ICCV 2017, equation 4). gamma 0 leaves them as they are."""
    return (-torch.expm1(-losses)).clamp(min=1e-12) ** gamma * losses  # of 0, a root has no gradient


def _known(y: Tensor) -> Tensor:
    """bool, as ``y``."""
    return ~y.isnan() if y.dtype.is_floating_point else y != 255


def baselines_of(labels: Mapping[str, np.ndarray], targets: "Targets") -> dict[str, float]:
    """{"val", "test": the metric of one answer for all nodes of the split}, of those that have labels.

    Args:
        labels: of the rows of each split.
    """
    metrics = {name: targets.constant(torch.tensor(labels[name])) for name in ("val", "test")}
    return {name: value for name, value in metrics.items() if value is not None}


def is_better(metric: str, value: float, best: float) -> bool:
    """Whether a metric is better than the best so far; NaN, of weights that diverged, is the worst of all."""
    if math.isnan(value) or math.isnan(best):
        return math.isnan(best) and not math.isnan(value)
    return value < best if metric in ERRORS else value > best


def mean_loss(loss_sum: Tensor, num_labelled: Tensor, max_batches: int | None = None) -> float:
    """The mean over the labels of an epoch, or of its first `max_batches`, those of all ranks; both are sums [].

    Raises:
        CohortError: there are none in a whole epoch: nothing was learned.
    """
    if max_batches is None and num_labelled.item() == 0:
        hint = "train_ids.npy and labels.npy of the data set must name the same nodes: import it again"
        raise CohortError("the training nodes", "labels of some of them", "none: no node has one", hint)
    return (loss_sum / num_labelled.clamp(min=1)).item()


Targets = Classes | Numbers | MultiLabel | LinkTargets
CLASSES = Classes()
_OF_TASK: dict[str, Targets] = {"classification": CLASSES, "regression": Numbers(), "multilabel": MultiLabel()}
_OF_TASK |= {"link": LinkTargets()}


def targets_of(task: str) -> Targets:
    """What is learned for a data set's task, or for "link", with the task's own loss.

    Raises:
        CohortError: there is no such task.
    """
    if task not in _OF_TASK:
        raise CohortError("task", ", ".join(_OF_TASK), repr(task))
    return _OF_TASK[task]


def targets_for(options: TrainerSpec, device: torch.device) -> Targets:
    """What a run learns with these options; its weights of classes are on the device."""
    gamma, weights = gamma_of(options), options.weights_of_classes
    if options.targets == "classification":
        return Classes(gamma, None if weights is None else torch.tensor(weights, dtype=torch.float32, device=device))
    if options.targets == "link":
        return LinkTargets(options.loss, ranked_metrics(options), among_negatives=options.task_name is None)
    return MultiLabel(gamma) if options.targets == "multilabel" else Numbers(options.label_deviation)


def ranked_metrics(options: TrainerSpec) -> list[str]:
    """The metrics among all targets that a run measures."""
    names = [*(options.metrics or ()), *([options.monitor] if options.monitor else [])]
    return [name for name in dict.fromkeys(names) if ranked(name)]
