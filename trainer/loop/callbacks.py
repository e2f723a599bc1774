"""Callbacks that options ask for, and a user's."""

import math
from typing import TYPE_CHECKING

import torch

from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.importing import imported
from cohort_gnn.spec.results import EpochReport
from cohort_gnn.spec.run import TrainerSpec
from cohort_gnn.trainer.report.callback import HOOKS, Callback

if TYPE_CHECKING:
    from cohort_gnn.trainer.loop.trainer import Trainer


class LearningRate(Callback):
    """--lr-schedule: the rate of each epoch, by the number of epochs."""

    def run_begins(self, trainer: "Trainer") -> None:
        """On a GPU the rate becomes a tensor, which CUDA graphs of the step read."""
        if trainer.device.type == "cuda":
            for group in trainer.optimizer.param_groups:
                group["lr"] = torch.tensor(float(group["lr"]), device=trainer.device)

    def epoch_begins(self, trainer: "Trainer", epoch: int) -> None:
        rate = trainer.options.lr * factor_of(trainer.options.lr_schedule, epoch, trainer.options.epochs)
        rows = trainer.step.rows.param_groups if trainer.step.rows else []
        for group in trainer.optimizer.param_groups + rows:
            if isinstance(group["lr"], torch.Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate


def factor_of(schedule: str, epoch: int, num_epochs: int) -> float:
    """The factor of the learning rate: 1 in epoch 0; except for "constant", it falls to 0 after the last epoch.

    "cosine": (1 + cos(pi e / E)) / 2 (Loshchilov and Hutter, SGDR, ICLR 2017); "linear": 1 - e / E.
    """
    share = epoch / num_epochs
    return {"constant": 1.0, "linear": 1.0 - share, "cosine": 0.5 * (1.0 + math.cos(math.pi * share))}[schedule]


class EarlyStopping(Callback):
    """--patience: the run ends after so many epochs without a better validation."""

    def run_begins(self, trainer: "Trainer") -> None:
        epochs = trainer.report.epochs  # of a run that is resumed
        if epochs:
            self.epoch_ended(trainer, epochs[-1])

    def epoch_ended(self, trainer: "Trainer", report: EpochReport) -> None:
        best, patience = trainer.report.best_epoch, trainer.options.patience
        if report.val_metrics and best is not None and patience is not None and report.epoch - best >= patience:
            trainer.stops_early = True


def callbacks_of(options: TrainerSpec) -> list[Callback]:
    """The callbacks that the options ask for.

    Raises:
        CohortError: a class of --callbacks cannot be imported or made, is no Callback, or overrides no hook.
    """
    callbacks: list[Callback] = []
    if options.lr_schedule != "constant":
        callbacks.append(LearningRate())
    if options.patience is not None:
        callbacks.append(EarlyStopping())
    if options.tensorboard:
        from cohort_gnn.trainer.loop.tensorboard import TensorBoard

        callbacks.append(TensorBoard())
    for name in options.callbacks or ():
        class_ = imported("--callbacks", name)
        try:
            made = class_()
        except Exception as error:  # noqa: BLE001 (whatever a user's class raises)
            said = f"{type(error).__name__}: {error}"
            raise CohortError(f"--callbacks {name}", "a class that is made without arguments", said) from error
        if not isinstance(made, Callback):
            raise CohortError(f"--callbacks {name}", "a subclass of cohort.Callback", type(made).__name__)
        if all(getattr(type(made), hook) is getattr(Callback, hook) for hook in HOOKS):
            hint = f"hooks are {', '.join(HOOKS)}: help(cohort.Callback)"
            raise CohortError(f"--callbacks {name}", "a class with at least one hook", "none", hint)
        callbacks.append(made)
    return callbacks
