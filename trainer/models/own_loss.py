"""A loss of the user's own, which --loss names."""

from collections.abc import Callable

import torch
from torch import Tensor

from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.importing import imported
from cohort_gnn.spec.run import TrainerSpec
from cohort_gnn.trainer.models.targets import LinkTargets, Targets, targets_for


class OwnLoss:
    """Calls a function of the user's for the labelled nodes of a batch, or for its links.

    Args:
        function: gets float32 scores [n, outputs] and the labels, as ``batch.y`` has them, of nodes that have one; or
            the scores [n, 1 + K] of links and their negatives, and int64 zeros [n], the column of the link. It returns
            the loss of each, float32 [n]; the loss of a step is their mean over all ranks.
        targets: what is learned.
        place: names the function in errors.
    """

    def __init__(self, function: Callable[[Tensor, Tensor], Tensor], targets: Targets, place: str):
        self._function, self._is_link, self._place = function, isinstance(targets, LinkTargets), place

    def count(self, y: Tensor) -> Tensor:
        """int64 []: how many nodes have labels, or how many links there are."""
        return self._counted(y).sum()

    def loss_sum(self, scores: Tensor, y: Tensor) -> Tensor:
        """float32 []: the sum of what the function returns.

        Raises:
            CohortError: it returns something else.
        """
        counts = self._counted(y)
        labels = y.new_zeros(len(y)) if self._is_link else y
        if not counts.any():  # of a trainer for which no batch is left
            return scores[counts].sum()
        losses = self._function(scores[counts], labels[counts])
        shape = [int(counts.sum())]
        if not isinstance(losses, Tensor) or list(losses.shape) != shape:
            actual = f"shape {list(losses.shape)}" if isinstance(losses, Tensor) else type(losses).__name__
            hint = 'no mean and no sum: reduction="none" of the losses of torch'
            raise CohortError(self._place, f"a tensor {shape}, the loss of each node or link", actual, hint)
        if scores.requires_grad and not losses.requires_grad:
            hint = "compute them from the scores by torch, without detach(), item() and numpy()"
            raise CohortError(self._place, "losses with gradients", f"{losses.dtype} without", hint)
        return losses.float().sum()

    def _counted(self, y: Tensor) -> Tensor:
        """bool [n]"""
        if self._is_link:
            return torch.ones(len(y), dtype=torch.bool, device=y.device)
        unknown = y.isnan() if y.dtype.is_floating_point else y == (-1 if y.dtype == torch.int64 else 255)
        return ~(unknown.all(dim=1) if unknown.dim() > 1 else unknown)


def loss_for(options: TrainerSpec, device: torch.device) -> Targets | OwnLoss:
    """What makes the loss of a step.

    Raises:
        CohortError: the function that --loss names cannot be imported, or is none.
    """
    targets = targets_for(options, device)
    if ":" not in options.loss:
        return targets
    function = imported("--loss", options.loss)
    if not callable(function):
        raise CohortError(f"--loss {options.loss}", "a function", type(function).__name__)
    return OwnLoss(function, targets, f"--loss {options.loss}")
