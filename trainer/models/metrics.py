"""Metrics that do not add up over batches: they need the scores of a whole split at once.

They are written here, and not taken of a library: torchmetrics imports for seconds, at the start of each run, and
keeps scores as this does.
"""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor


class WholeSplit:
    """Metrics of the scores of all nodes of a split, those of all ranks.

    Batches of a pass are added; ``metrics`` then gathers the scores of all ranks on each of them, so that all have the
    same numbers, and forgets them. A rank keeps 4 bytes a score of its own nodes, and of all nodes while it measures.

    Args:
        names: of spec/metrics.py, of the task.
        task: of the data set.

    Examples:
        >>> split = WholeSplit(["auroc"], "classification")
        >>> split.add(torch.tensor([[0.2, 0.4], [0.5, 0.1], [0.0, 0.1]]), torch.tensor([1, 0, 1]))
        >>> split.metrics()
        {'auroc': 1.0}
    """

    def __init__(self, names: Sequence[str], task: str):
        self._names, self._task = names, task
        self._kept: list[tuple[Tensor, Tensor]] = []

    def add(self, scores: Tensor, y: Tensor) -> None:
        """Keeps the scores of a batch, float32 [n, outputs], and a copy of its labels ``y``, as targets.py has them."""
        if self._names:
            self._kept.append((scores, y.clone()))

    def metrics(self, gather: Callable[[Tensor], Tensor] = lambda values: values) -> dict[str, float]:
        """The metrics by name, NaN where scores are not finite or the labels leave one undefined; empty where nothing
        is labelled.

        Args:
            gather: makes a tensor the rows of every rank's.
        """
        if not self._names:
            return {}
        scores, y = (gather(torch.cat(values)) for values in zip(*self._kept, strict=True))
        self._kept = []
        return measured(self._names, self._task, scores, y)


def measured(names: Sequence[str], task: str, scores: Tensor, y: Tensor) -> dict[str, float]:
    """The metrics of float32 scores [n, outputs] and labels ``y``; nodes without a label are left out.

    - "auroc": the area under the ROC curve; "average_precision": the sum of the precision at each score times what the
      recall rises there, without interpolation; "f1": of the classes or labels that are answered.
    - Of two classes, these are of class 1, whose score is the difference of the two. Of several, each class is measured
      against the rest by its probability (softmax), and the mean is taken (macro); of several labels, each label by
      its score. The mean leaves out what has no value: for the areas classes and labels that all nodes or none have
      (for "average_precision": none), for "f1" classes that are neither there nor answered; such labels count as 0.
    - "r2": 1 - the sum of squared errors / the sum of squared distances from the mean; where all numbers are equal, 1
      without an error, otherwise 0.
    """
    if task == "regression":
        known = ~y.isnan()
        return {"r2": _r2(scores[known, 0].double(), y[known].double())} if known.any() else {}
    answers = _answers_of_labels(scores, y) if task == "multilabel" else _answers_of_classes(scores, y)
    if not answers:
        return {}
    functions = {"auroc": _auroc, "average_precision": _average_precision, "f1": _f1}
    is_finite = all(score.isfinite().all() for score, _, _ in answers)
    values = {name: [functions[name](*answer) for answer in answers] for name in names} if is_finite else {}
    if task == "multilabel" and "f1" in values:
        values["f1"] = [value or 0.0 for value in values["f1"]]
    return {name: _mean(values.get(name, [])) for name in names}


Answer = tuple[Tensor, Tensor, Tensor]  # of a class: scores float64 [n], whether it is there and whether it is said [n]


def _answers_of_classes(scores: Tensor, y: Tensor) -> list[Answer]:
    scores, y = scores[y >= 0], y[y >= 0]
    if not len(y):
        return []
    said = scores.argmax(dim=1)
    if scores.shape[1] == 2:
        return [(scores[:, 1].double() - scores[:, 0].double(), y == 1, said == 1)]
    total = scores.double().logsumexp(dim=1)
    return [((scores[:, c].double() - total).exp(), y == c, said == c) for c in range(scores.shape[1])]


def _answers_of_labels(scores: Tensor, y: Tensor) -> list[Answer]:
    """Labels that no node is known to have or not are left out."""
    known = ~y.isnan() if y.dtype.is_floating_point else y != 255
    columns = [c for c in range(y.shape[1]) if known[:, c].any()]
    known_of_columns = ((scores[known[:, c], c].double(), y[known[:, c], c] == 1) for c in columns)
    return [(score, there, score > 0) for score, there in known_of_columns]


def _mean(values: list[float | None]) -> float:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else math.nan


def _counts(score: Tensor, there: Tensor) -> tuple[Tensor, Tensor]:
    """float64 [different scores], the highest first: how many nodes with this score have the class, and have it not."""
    _, place, counts = score.unique(return_inverse=True, return_counts=True)
    have = torch.zeros(len(counts), dtype=torch.float64, device=score.device)
    have.index_add_(0, place, there.double())
    return have.flip(0), (counts - have).flip(0)


def _auroc(score: Tensor, there: Tensor, said: Tensor) -> float | None:
    """The share of the pairs of a node that has the class and one that has it not in which the first scores higher;
    equal scores count half."""
    have, have_not = _counts(score, there)
    pairs = have.sum() * have_not.sum()
    above = have.cumsum(0) - have / 2
    return ((have_not * above).sum() / pairs).item() if pairs else None


def _average_precision(score: Tensor, there: Tensor, said: Tensor) -> float | None:
    have, have_not = _counts(score, there)
    right = have.cumsum(0)
    precision = right / (right + have_not.cumsum(0))
    return ((have * precision).sum() / have.sum()).item() if have.any() else None


def _f1(score: Tensor, there: Tensor, said: Tensor) -> float | None:
    """2 x right / (there + said)."""
    right, both = (there & said).sum().item(), (there.sum() + said.sum()).item()
    return 2 * right / both if both else None


def _r2(score: Tensor, y: Tensor) -> float:
    errors, spread = (score - y).square().sum().item(), (y - y.mean()).square().sum().item()
    return 1 - errors / spread if spread else float(errors == 0)
