"""The training loop of ``cohort train``."""

import copy
import functools
import logging
from pathlib import Path

import numpy as np
import torch

from cohort.base.errors import CohortError
from cohort.base.files import FileWriter
from cohort.spec import files
from cohort.spec.run import TrainerSpec
from cohort.trainer.loop.callbacks import Callback, callbacks_of
from cohort.trainer.loop.checkpoint import CheckpointFile, on_cpu
from cohort.trainer.loop.epoch import RunningEpoch
from cohort.trainer.loop.resume import state_of, take_up
from cohort.trainer.loop.seed_parts import seeds_by_rank
from cohort.trainer.loop.sm_partition import divide_gpu
from cohort.trainer.loop.step import Scores, TrainStep, adam
from cohort.trainer.messages import unless_full
from cohort.trainer.models.own import callable_of, model_of
from cohort.trainer.models.targets import is_better, mean_loss, targets_of
from cohort.trainer.models.weights import save_model
from cohort.trainer.ranks import Agreement, Ranks, StepSums
from cohort.trainer.report.cache_report import ReadsByRank
from cohort.trainer.report.floor import Floor
from cohort.trainer.report.gpu_memory import peak_beside_slots
from cohort.trainer.report.metrics import EpochReport, MetricsFile, RunReport, warn_of_divergence
from cohort.trainer.report.progress import Progress, test_result
from cohort.trainer.report.recorder import Recorder
from cohort.trainer.report.start import start_told
from cohort.trainer.source import BatchSource, Pass
from cohort.trainer.step_clock import StepClock
from cohort.trainer.stop import StopRequest

LOG = logging.getLogger(__name__)


class Trainer:
    """Trains a model on the batches of one source.

    Args:
        options: what to train.
        source: where this trainer's batches come from.
        ranks: the trainers of the run; a step's loss is the mean over the labelled seeds of all their batches.
        splits: int64 ids of "train", "val" and "test".
        out: the run's folder.
        bytes_per_second: what links to GPU memory, peers and the host give; None: unknown.
        checkpoint: where to write what ``resume()`` takes up; None: nowhere.
        stop: how the trainer hears that it is to end.
        all_rows: the data set's features, where batches have none (see BatchSource.all_rows).
    """

    def __init__(
        self,
        options: TrainerSpec,
        source: BatchSource,
        ranks: Ranks,
        splits: dict[str, np.ndarray],
        out: Path,
        bytes_per_second: list[float] | None = None,
        checkpoint: CheckpointFile | None = None,
        stop: StopRequest | None = None,
        all_rows: torch.Tensor | None = None,
    ):
        self.options, self.source, self.ranks, self.out = options, source, ranks, out
        self.targets = targets_of(options.targets)
        self.checkpoint, self.stop = checkpoint, stop or StopRequest()
        self.agreement = Agreement(source.device, self.stop)
        self.quiet = options.quiet or ranks.rank > 0
        self.device = source.device
        source.labels_of_seeds = True
        source.last_hop_global = all_rows is not None and options.model == "sage"  # GCN asks sources for their degrees
        own = {"train": seeds_by_rank(splits["train"], **options.parts)} if options.parts else {}
        self.seed_sets = {name: source.add_seeds(*own.get(name, (ids,))) for name, ids in splits.items()}
        self.sizes = {name: len(ids) for name, ids in splits.items()}
        divide_gpu(source, options.sampler_sms)
        torch.set_float32_matmul_precision(options.matmul_precision)
        torch.manual_seed(options.seed)
        self.model = model_of(options).to(self.device)
        self.all_rows = all_rows
        ranks.spread(self.model)
        if ranks.rank > 0:  # the same weights everywhere, but a dropout of its own
            torch.manual_seed(options.seed + ranks.rank)
        self.optimizer = adam(self.model, self.device, options.lr, options.weight_decay)
        sums = StepSums(list(self.model.parameters()), ranks.sum, self.agreement) if ranks.size > 1 else None
        self.step = self._step_of(self.model, self.optimizer, sums)
        self.floor = Floor(self.device, bytes_per_second)
        self.recorder = Recorder(self.device, options.epochs, options.profile, rank=ranks.rank)
        self.report = RunReport(task=options.targets, device=str(self.device), num_ranks=ranks.size)
        self.reads = ReadsByRank()
        self.running = RunningEpoch(0, self.device)
        self.start: tuple[float, float] | None = None  # monotonic seconds: the run began, this program had its packages
        self.best_model: dict | None = None  # parameters of the epoch that did best in validation
        self.writer = FileWriter()  # of what takes long
        self.callbacks = callbacks_of(options)
        self._of_steps = [each for each in self.callbacks if type(each).step_ended is not Callback.step_ended]
        self.stops_early = False  # after the epoch that is under way

    def resume(self) -> None:
        """Takes up what the checkpoint holds; where there is none, the run begins at the beginning.

        Raises:
            CohortError: it is damaged, or of another run.
        """
        state = self.checkpoint.read()
        if state is not None:
            take_up(self, state, self.checkpoint.path)
            if self.running.epoch < self.options.epochs:
                self._say(f"goes on in epoch {self.running.epoch + 1}, after step {self.running.step}")

    def run(self) -> RunReport:
        """All epochs, validation after each, the test with the weights that did best in validation."""
        with self.writer:
            self._run()
        return self.report

    def _run(self) -> None:
        metrics = MetricsFile(self.out / files.METRICS, self.report.epochs) if self.ranks.rank == 0 else None
        was_done = self.running.epoch >= self.options.epochs
        for each in self.callbacks:
            each.run_begins(self)
        with self.stop.later():
            self._run_epochs(metrics)
        self.model.load_state_dict(self.best_model)
        self._keep_model(self.best_model)  # a disk may have been full when it was the best
        if self.sizes["test"]:
            self.report.test_metrics = self.evaluate(self._ask("test", self.options.hops_of_evaluation))
            self.report.test_accuracy = self.report.test_metrics.get("accuracy")
        if was_done:
            self._say(f"all {self.running.epoch} epochs are done; {test_result(self.report)}")
        if self.device.type == "cuda" and self.report.cache is None:
            own = peak_beside_slots(self.device, self.source.slots_bytes)
            self.report.trainer_peak_bytes = max(self.ranks.gather(own))
        if self.options.max_batches is None:
            self._find_floor()
        with unless_full(self.out / files.SUMMARY):
            self._write_summary(synced=True)
        for each in self.callbacks:
            each.run_ended(self, self.report)

    def _run_epochs(self, metrics: MetricsFile | None) -> None:
        """Those that are left, the one that is under way first."""
        first = self.running.epoch
        asked = self._ask_for_epoch(first, self.running.step) if first < self.options.epochs else None
        quiet = self.quiet or asked is None
        with Progress(self.options.epochs, self.sizes["train"], quiet, self.ranks.size, self._seeds_done()) as progress:
            for epoch in range(first, self.options.epochs):
                if self.stops_early:
                    self._say(f"the run ends early, after {epoch} of {self.options.epochs} epochs")
                    break
                train_pass, val_pass = asked
                if epoch + 1 < self.options.epochs:  # so that the sampler need not stop between passes
                    asked = self._ask_for_epoch(epoch + 1)
                self.recorder.epoch_begins(epoch)
                for each in self.callbacks:
                    each.epoch_begins(self, epoch)
                report = self.train_epoch(train_pass, progress)
                report.val_metrics = self.evaluate(val_pass) if val_pass else {}
                report.val_accuracy = report.val_metrics.get("accuracy")
                self.recorder.epoch_ended(self.ranks, self.out)
                self._keep(report, metrics)
                progress.epoch_ended(report, self.targets)
                for each in self.callbacks:
                    each.epoch_ended(self, report)
                self.running = self.running.next()
                self.step.reset()
                if self.options.checkpoint_every is None or epoch + 1 == self.options.epochs or self.stops_early:
                    self._save()

    def train_epoch(self, which: Pass, progress: Progress) -> EpochReport:
        """The rest of a pass over the training seeds; of all ranks, the loss is the mean over labelled seeds."""
        running, step = self.running, self.step
        self.model.train()
        self.recorder.pass_begins("train")
        clock = self.ranks.clock = running.go_on()
        for slot in self._slots(which):
            self.recorder.step_begins(clock.step_begins())
            step(slot)
            self.recorder.step_ended(clock.step_ended(), slot)
            running.add(slot)
            self.floor.add(slot)
            progress.step(running.epoch, slot.num_seeds, step.loss_sum, step.num_labelled, clock)
            stops = self.agreement.stops() if self.ranks.size > 1 else self.stop.asked
            for each in self._of_steps:
                each.step_ended(self, slot.num_seeds)
            if stops or self._is_due():
                self._save()
                clock = self.ranks.clock = running.go_on()
            if stops:
                self.stop.leave()
        running.pause()
        self.ranks.clock = None
        report = copy.deepcopy(running.report)
        report.loss = mean_loss(self.ranks.sum(step.loss_sum.clone()), step.num_labelled, self.options.max_batches)
        report.merge(self.ranks.gather(report))
        return report

    def _is_due(self) -> bool:
        """Whether a checkpoint is to be written after this step."""
        every = self.options.checkpoint_every
        return every is not None and self._steps_done() % every == 0

    def _steps_done(self) -> int:
        of_an_epoch = self.source.steps_of(self.seed_sets["train"], self.options.batch_size)
        return self.running.epoch * of_an_epoch + self.running.step

    def _seeds_done(self) -> int:
        """Of a run that is taken up again."""
        in_epoch = self.running.step * self.options.batch_size * self.ranks.size
        return self.running.epoch * self.sizes["train"] + min(in_epoch, self.sizes["train"])

    def _save(self) -> None:
        """Writes a checkpoint of all ranks, after the same step of each; a full disk is said, and the run goes on."""
        if self.checkpoint is None or self.options.max_batches is not None:
            return
        self.running.pause()
        state = state_of(self)
        if self.ranks.rank == 0:
            self.writer.write(functools.partial(self._write_checkpoint, on_cpu(state)))

    def _write_checkpoint(self, state: dict) -> None:
        with unless_full(self.checkpoint.path):
            self.checkpoint.write(state)

    def _step_of(self, model: torch.nn.Module, optimizer: torch.optim.Adam, sums: StepSums | None = None) -> TrainStep:
        """Steps of a model; without ``sums`` without other ranks."""
        options = self.options
        on_gpu, is_pygs = (
            self.device.type == "cuda",
            options.layers == "pyg" or options.edge_weights or options.has_own_model,
        )
        graphs_of = options.batch_size if options.cuda_graphs and on_gpu and not is_pygs else None
        return TrainStep(
            self._scores_of(model), optimizer, self.device, graphs_of, self.targets, sums, options.clip_norm
        )

    def _step_of_a_copy(self) -> TrainStep:
        """Steps of a copy of the model, without other ranks."""
        model = copy.deepcopy(self.model).train()
        return self._step_of(model, adam(model, self.device, self.options.lr, self.options.weight_decay))

    def _scores_of(self, model: torch.nn.Module) -> Scores:
        is_fused = self.options.layers == "cohort" and not self.options.has_own_model
        return Scores(callable_of(model), self.options.amp, is_fused, self.all_rows)

    def _say(self, text: str) -> None:
        if not self.quiet:
            LOG.info(text)

    def _find_floor(self) -> None:
        """Times steps of a copy of the model on a batch that lies ready, while the sampler has nothing to do."""
        for slot in self.source.slots(self._ask("train", self.options.fanout, shuffle=True), 1):
            ready = slot
        if ready.num_seeds > 0:
            step = functools.partial(self._step_of_a_copy(), ready)
            self.floor.step_seconds = self.floor.time_step(step) * self.options.batch_size / ready.num_seeds
        self.floor.join(self.ranks.gather(self.floor))
        how = self.options.batch_size, self.ranks.size, self.device.type == "cuda" and self.source.sampler_sms == 0
        floors = [self.floor.of(epoch, *how) for epoch in self.report.epochs]
        self.report.floor = {"step_seconds": self.floor.step_seconds, "epochs": floors}

    @torch.no_grad()
    def evaluate(self, which: Pass) -> dict[str, float]:
        """How good the model is on the pass's labelled seeds, those of all ranks: a number by name."""
        self.model.eval()
        sums = torch.zeros(self.targets.num_sums + 1, dtype=torch.float64, device=self.device)
        read = EpochReport(0)
        self.recorder.pass_begins("validate")
        clock = StepClock(self.device)
        scores = self._scores_of(self.model)
        for slot in self._slots(which):
            self.recorder.step_begins(clock.step_begins())
            sums[:-1] += self.targets.sums(scores.of_slot(slot), slot.y[: slot.num_seeds])
            self.recorder.step_ended(clock.step_ended(), slot)
            read.add(slot)
            if self.stop.asked:
                sums[-1] += 1  # ranks that stop
                break
        read_by_rank = self.ranks.gather(read.row_tiers)
        if self.ranks.sum(sums)[-1] > 0:
            self._save()
            self.stop.leave()
        for row_tiers in read_by_rank:
            self.report.add_bytes(row_tiers)
        return self.targets.metrics(sums[:-1])

    def _slots(self, which: Pass):
        """The slots of the pass, or of its first `max_batches` steps; where they fail, the state is saved first."""
        try:
            yield from self.source.slots(which, min(which.num_steps, self.options.max_batches or which.num_steps))
        except CohortError:
            if self.ranks.size == 1 and self.running.epoch < self.options.epochs:
                self._save()
            raise

    def _ask(self, name: str, fanout: list[int], epoch: int = 0, shuffle: bool = False, done: int = 0) -> Pass:
        return self.source.request(self.seed_sets[name], fanout, self.options.batch_size, epoch, shuffle, done)

    def _ask_for_epoch(self, epoch: int, done: int = 0) -> tuple[Pass, Pass | None]:
        """Training in a new order each epoch; validation always on the same draws, so that epochs compare.

        Args:
            done: steps of training that are left out.
        """
        train = self._ask("train", self.options.fanout, epoch, shuffle=True, done=done)
        return train, self._ask("val", self.options.hops_of_evaluation) if self.sizes["val"] else None

    def _keep(self, report: EpochReport, metrics: MetricsFile | None) -> None:
        """Takes an epoch that is done into the run's results."""
        self.report.epochs.append(report)
        self.reads.add(report)
        self.report.add_bytes(report.row_tiers)
        if self.report.cache:
            self.report.cache["measured"] = self.reads.shares()
        if self._is_best(report):
            self.best_model = copy.deepcopy(self.model.state_dict())
            self._keep_model(self.best_model)
        if metrics:
            warn_of_divergence(self.report.epochs)
            with unless_full(self.out / files.METRICS):
                metrics.append(report)
        with unless_full(self.out / files.SUMMARY):
            self._write_summary(synced=False)

    def _keep_model(self, weights: dict) -> None:
        """For cohort predict; not of a run that is only to be measured."""
        if self.ranks.rank == 0 and self.options.max_batches is None:
            self.writer.write(functools.partial(save_model, self.out, on_cpu(weights)))

    def _write_summary(self, synced: bool) -> None:
        if self.start is not None and self.report.start is None and self.source.first_batch_at is not None:
            self.report.start = start_told(self.source.folder, *self.start, self.source.first_batch_at)
        if self.ranks.rank == 0:
            self.report.write(self.out / files.SUMMARY, synced)

    def _is_best(self, report: EpochReport) -> bool:
        """True when this epoch's weights are the ones to keep: best in validation, or the last without validation."""
        metric = self.targets.metric
        if metric in report.val_metrics and metric in self.report.val_metrics:
            if not is_better(self.targets, report.val_metrics[metric], self.report.val_metrics[metric]):
                return False
        self.report.val_accuracy, self.report.val_metrics = report.val_accuracy, report.val_metrics
        self.report.best_epoch = report.epoch
        return True
