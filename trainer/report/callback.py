"""Who is told of a run as it goes."""

from typing import Any

from cohort.trainer.report.metrics import EpochReport, RunReport


class Callback:
    """Hooks of a run of ``cohort train``; a subclass overrides those that it needs.

    ``--callbacks package.module:Class`` makes one of each class in every trainer, without arguments; ranks other than 0
    call the hooks as well, with the same numbers. What a hook raises ends the run. Progress, summary, checkpoints and
    all else that a run leaves are callbacks as well.

    ``trainer`` has ``options`` (cohort.spec.run.TrainerSpec), ``model``, ``optimizer``, ``device``, ``out`` (the run's
    folder), ``ranks.rank``, ``report`` (of the run so far), ``task`` ("train" or "validate": of the pass that runs) and
    ``stops_early``, which a hook may set: then the run ends after the epoch.
    """

    def run_begins(self, trainer) -> None:
        """Model and optimizer are made, and those of a resumed run have their state."""

    def epoch_begins(self, trainer, epoch: int) -> None:
        """Epochs count from 0; one that is resumed in its middle begins again."""

    def pass_begins(self, trainer) -> None:
        """Training, validation or test."""

    def step_begins(self, trainer) -> None:
        """The batch is there."""

    def step_ended(self, trainer, batch) -> None:
        """A step on ``batch`` (``batch.num_seeds``, ...) of this rank was started; on a GPU it may still run."""

    def epoch_ended(self, trainer, report: EpochReport) -> None:
        """Training and validation of an epoch are done: ``report.loss``, ``report.val_metrics``, ``report.seconds``."""

    def run_stops(self, trainer) -> None:
        """The run is told to stop, or its sampler has gone: nothing follows; all ranks have done the same steps."""

    def epochs_end(self, trainer) -> None:
        """No other epoch follows, as all are done, the run stops or it fails."""

    def run_ended(self, trainer, report: RunReport) -> None:
        """The test is done: ``report.test_metrics``, ``report.epochs``."""

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps of the callback: numbers, text, lists, dicts, tensors."""
        return {}

    def load_state(self, state: dict[str, Any]) -> None:
        """Takes up what ``state()`` gave, before ``run_begins``."""


HOOKS = [name for name in vars(Callback) if name.split("_")[-1] in ("begins", "ended", "stops", "end")]


def name_of(callback: Callback) -> str:
    """What a checkpoint calls it."""
    return f"{type(callback).__module__}:{type(callback).__qualname__}"
