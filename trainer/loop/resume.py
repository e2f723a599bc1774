"""When a run writes its checkpoint, and how another one goes on from it."""

import functools

from cohort_gnn.base.errors import CohortError
from cohort_gnn.spec.results import EpochReport
from cohort_gnn.trainer.loop.checkpoint import DAMAGED, CheckpointFile, on_cpu
from cohort_gnn.trainer.report.callback import Callback
from cohort_gnn.trainer.report.messages import unless_full

LEAST_SECONDS = 1.0  # of training between the checkpoints of two epochs: shorter epochs would mostly write them


class Checkpoints(Callback):
    """Writes checkpoints of all ranks, after the same step of each; a full disk is said, and the run goes on.

    The last of a run's callbacks: what the others do at the same moment is in it.
    """

    def __init__(self, file: CheckpointFile):
        self._file = file
        self._saved: tuple[int, int] | None = None  # the position of the last one
        self._seconds = 0.0  # of the first rank's epochs that have ended since; the same on all ranks

    def resume(self, trainer, has_file: bool = True) -> None:
        """Has a new trainer take up what the checkpoint holds; where there is none, it begins at the beginning.

        Of several machines each has a file, and all go on from the one that is furthest.

        Args:
            has_file: False on a machine that is new to the run.

        Raises:
            CohortError: it is damaged, or of another run.
        """
        ranks = trainer.ranks
        state = self._file.read() if has_file and ranks.local_rank == 0 else None
        positions = ranks.gather((-1, -1) if state is None else (state["epoch"], state["step"]))
        state = ranks.share(state, positions.index(max(positions)))
        if state is None:
            return
        try:
            trainer.load_state(state)
        except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
            actual = f"{type(error).__name__}: {error}"
            raise CohortError(str(self._file.path), "the state of such a run", actual, DAMAGED) from error
        if trainer.running.epoch < trainer.options.epochs:
            trainer.say(f"continues in epoch {trainer.running.epoch + 1}, after step {trainer.running.step}")

    def step_ended(self, trainer, batch) -> None:
        every, running = trainer.options.checkpoint_every, trainer.running
        if every is not None and trainer.task == "train":
            steps = trainer.source.steps_of(trainer.passes.seed_sets["train"], trainer.options.batch_size)
            if (running.epoch * steps + running.step) % every == 0:
                self._save(trainer)

    def epoch_ended(self, trainer, report: EpochReport) -> None:
        first = EpochReport(report.epoch, **report.ranks[0]) if report.ranks else report
        self._seconds += first.between_seconds + first.seconds
        is_due = trainer.options.checkpoint_every is None and self._seconds >= LEAST_SECONDS
        if is_due or trainer.stops_early or trainer.running.epoch == trainer.options.epochs:
            self._save(trainer)

    def run_stops(self, trainer) -> None:
        self._save(trainer)

    def _save(self, trainer) -> None:
        position = trainer.running.epoch, trainer.running.step
        # A checkpoint of what has not begun would take the place of earlier results.
        if position in (self._saved, (0, 0)):
            return
        self._saved, self._seconds = position, 0.0
        state = trainer.state()
        if trainer.ranks.local_rank == 0:
            trainer.writer.write(functools.partial(self._write, on_cpu(state)))

    def _write(self, state: dict) -> None:
        with unless_full(self._file.path):
            self._file.write(state)
