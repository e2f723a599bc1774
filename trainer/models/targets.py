"""What a model tells of a node, by the data set's task: the loss of its scores, and how good they are.

Labels ``y`` are int64 [n] classes, -1 for none; float32 [n] numbers, NaN for none; or [n, labels] of 0 and 1, uint8
with 255 for unknown or float32 with NaN. All of it stays on the device and has shapes that a CUDA graph can hold.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from cohort.base.errors import CohortError


class Classes:
    """One of several classes: cross entropy, accuracy."""

    metric, title, is_share, less_is_better = "accuracy", "accuracy", True, False
    num_sums = 2

    def count(self, y: Tensor) -> Tensor:
        """int64 []: how many labels there are, over which the loss is a mean."""
        return (y >= 0).sum()

    def loss_sum(self, scores: Tensor, y: Tensor) -> Tensor:
        """float32 []: of scores float32 [n, outputs], over the labels that there are."""
        return F.cross_entropy(scores, y, ignore_index=-1, reduction="sum")

    def sums(self, scores: Tensor, y: Tensor) -> Tensor:
        """float64 [num_sums]: what adds up over batches and ranks to what ``metrics`` takes."""
        return torch.stack([((scores.argmax(dim=1) == y) & (y >= 0)).sum(), (y >= 0).sum()]).double()

    def metrics(self, sums: Tensor) -> dict[str, float]:
        """By name; none where nothing is labelled."""
        right, labelled = sums.tolist()
        return {"accuracy": right / labelled} if labelled else {}

    def best(self, scores: Tensor) -> Tensor:
        """int64 [n]: the answer, here a class."""
        return scores.argmax(dim=1)


class Numbers:
    """A number: mean squared error; RMSE and MAE."""

    metric, title, is_share, less_is_better = "rmse", "RMSE", False, True
    num_sums = 3

    def count(self, y: Tensor) -> Tensor:
        return (~y.isnan()).sum()

    def loss_sum(self, scores: Tensor, y: Tensor) -> Tensor:
        return self._errors(scores, y).square().sum()

    def sums(self, scores: Tensor, y: Tensor) -> Tensor:
        errors = self._errors(scores, y).double()
        return torch.stack([errors.square().sum(), errors.abs().sum(), self.count(y).double()])

    def metrics(self, sums: Tensor) -> dict[str, float]:
        squares, magnitudes, known = sums.tolist()
        return {"rmse": (squares / known) ** 0.5, "mae": magnitudes / known} if known else {}

    def best(self, scores: Tensor) -> Tensor:
        """float32 [n]"""
        return scores[:, 0]

    def _errors(self, scores: Tensor, y: Tensor) -> Tensor:
        """float32 [n], 0 without a label."""
        known = ~y.isnan()
        return (scores[:, 0] - torch.where(known, y, 0)) * known


class Labels:
    """Any of several labels: binary cross entropy of each; F1 over the answers for all nodes and labels (micro)."""

    metric, title, is_share, less_is_better = "micro_f1", "F1", True, False
    num_sums = 4

    def count(self, y: Tensor) -> Tensor:
        return _known(y).sum()

    def loss_sum(self, scores: Tensor, y: Tensor) -> Tensor:
        known = _known(y)
        wanted = torch.where(known, y, 0).to(scores.dtype)
        weight = known.to(scores.dtype)
        return F.binary_cross_entropy_with_logits(scores, wanted, weight, reduction="sum")

    def sums(self, scores: Tensor, y: Tensor) -> Tensor:
        told, known = scores > 0, _known(y)
        has = y == 1
        return torch.stack([(told & has).sum(), (told & known).sum(), has.sum(), known.sum()]).double()

    def metrics(self, sums: Tensor) -> dict[str, float]:
        right, told, there, known = sums.tolist()
        return {"micro_f1": 2 * right / max(told + there, 1)} if known else {}

    def best(self, scores: Tensor) -> Tensor:
        """uint8 [n, labels]: 1 for those that are told."""
        return (scores > 0).to(torch.uint8)


def _known(y: Tensor) -> Tensor:
    """bool, as ``y``."""
    return ~y.isnan() if y.dtype.is_floating_point else y != 255


def is_better(targets, found: float, best: float) -> bool:
    """Whether a metric is better than the best so far; NaN, of weights that diverged, is the worst of all."""
    if math.isnan(found) or math.isnan(best):
        return math.isnan(best) and not math.isnan(found)
    return found < best if targets.less_is_better else found > best


def mean_loss(loss_sum: Tensor, num_labelled: Tensor, max_batches: int | None = None) -> float:
    """The mean over the labels of an epoch, or of its first `max_batches`, those of all ranks; both are sums [].

    Raises:
        CohortError: there are none in a whole epoch: nothing was learned.
    """
    if max_batches is None and num_labelled.item() == 0:
        hint = "train_ids.npy and labels.npy of the data set must name the same nodes: import it again"
        raise CohortError("the training nodes", "labels of some of them", "none: no node has one", hint)
    return (loss_sum / num_labelled.clamp(min=1)).item()


Targets = Classes | Numbers | Labels
CLASSES = Classes()
_OF_TASK: dict[str, Targets] = {"classification": CLASSES, "regression": Numbers(), "multilabel": Labels()}


def targets_of(task: str) -> Targets:
    """What is learned for a data set's task.

    Raises:
        CohortError: there is no such task.
    """
    if task not in _OF_TASK:
        raise CohortError("task", ", ".join(_OF_TASK), repr(task))
    return _OF_TASK[task]
