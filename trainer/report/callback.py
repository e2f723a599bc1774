"""Hooks that the trainers call during a run."""

from typing import Any

from cohort_gnn.spec.results import EpochReport, RunReport


class Callback:
    """Hooks of a run of ``cohort train``; a subclass overrides the hooks that it needs.

    Examples:
        >>> class Log(cohort.Callback):  # in own.py
        ...     def epoch_ended(self, trainer, report):
        ...         print(report.epoch, report.loss)
        >>> summary = cohort.train("data/cora", "runs/cora", callbacks=["own:Log"])  # doctest: +SKIP

    ``--callbacks package.module:Class`` creates one object of each class, without arguments, in every trainer. All
    ranks call the hooks, with the same numbers. An exception in a hook ends the run. Progress, summary, checkpoints and
    all other results of a run are written by callbacks, too.

    ``trainer`` has ``options`` (cohort.spec.run.TrainerSpec), ``model``, ``optimizer``, ``device``, ``out`` (the run's
    folder), ``ranks.rank``, ``report`` (of the run so far), ``task`` ("train" or "validate", for the current pass) and
    ``stops_early``: if a hook sets it, the run ends after the epoch.
    """

    def run_begins(self, trainer) -> None:
        """Model and optimizer exist; in a resumed run, they have their saved state."""

    def epoch_begins(self, trainer, epoch: int) -> None:
        """An epoch begins; epochs count from 0. Called again for an epoch that is resumed in the middle."""

    def pass_begins(self, trainer) -> None:
        """A pass begins: training, validation or test."""

    def step_begins(self, trainer) -> None:
        """The batch of the step has arrived."""

    def step_ended(self, trainer, batch) -> None:
        """A step of this rank on ``batch`` (``batch.num_seeds``, ...) was started; on a GPU it may still be running."""

    def epoch_ended(self, trainer, report: EpochReport) -> None:
        """Training and validation of an epoch are done: ``report.loss``, ``report.val_metrics``, ``report.seconds``."""

    def run_stops(self, trainer) -> None:
        """The run stops on a signal, or because its sampler has ended; all ranks have done the same steps."""

    def epochs_end(self, trainer) -> None:
        """No other epoch follows: all epochs are done, or the run stops or fails."""

    def run_ended(self, trainer, report: RunReport) -> None:
        """The test is done: ``report.test_metrics``, ``report.epochs``."""

    def state(self) -> dict[str, Any]:
        """The callback's state for a checkpoint: numbers, text, lists, dicts, tensors."""
        return {}

    def load_state(self, state: dict[str, Any]) -> None:
        """Restores the result of ``state()``; called before ``run_begins``."""


HOOKS = [name for name in vars(Callback) if name.split("_")[-1] in ("begins", "ended", "stops", "end")]


def name_of(callback: Callback) -> str:
    """The name of a callback in a checkpoint."""
    return f"{type(callback).__module__}:{type(callback).__qualname__}"
