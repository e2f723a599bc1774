"""The training loop of ``cohort train``."""

import copy
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from cohort.trainer.cache_report import measured
from cohort.trainer.floor import Floor
from cohort.trainer.gpu_memory import peak_beside_slots
from cohort.trainer.metrics import EpochReport, RunReport, StepClock, append_line
from cohort.trainer.models import SampledGNN, model_input
from cohort.trainer.progress import Progress
from cohort.trainer.ranks import Ranks
from cohort.trainer.recorder import Recorder
from cohort.trainer.source import BatchSource, Pass


@dataclass
class TrainOptions:
    """The member "trainer" of run.json."""

    model: str
    fanout: list[int]
    eval_fanout: list[int]
    batch_size: int
    hidden: int
    epochs: int
    lr: float
    weight_decay: float
    dropout: float
    seed: int
    num_classes: int
    feature_dim: int
    quiet: bool = False
    profile: bool = False  # see recorder.py
    max_batches: int | None = None  # of each pass; for a run that is only to be measured


class Trainer:
    """Trains a model on the batches of one source.

    Args:
        options: what to train.
        source: where this trainer's batches come from.
        ranks: the trainers of the run; a step's loss is the mean over the labelled seeds of all their batches.
        splits: int64 ids of "train", "val" and "test".
        out: the run's folder.
        bytes_per_second: what links to GPU memory, peers and the host give; None: unknown.
    """

    def __init__(
        self,
        options: TrainOptions,
        source: BatchSource,
        ranks: Ranks,
        splits: dict[str, np.ndarray],
        out: Path,
        bytes_per_second: list[float] | None = None,
    ):
        self.options, self.source, self.ranks, self.out = options, source, ranks, out
        self.quiet = options.quiet or ranks.rank > 0
        self.device = source.device
        self.seed_sets = {name: source.add_seeds(ids) for name, ids in splits.items()}
        self.sizes = {name: len(ids) for name, ids in splits.items()}
        torch.manual_seed(options.seed)
        self.model = SampledGNN(
            options.model,
            options.feature_dim,
            options.hidden,
            options.num_classes,
            len(options.fanout),
            options.dropout,
        ).to(self.device)
        self.shared_model = ranks.share(self.model)
        if ranks.rank > 0:  # the same weights everywhere, but a dropout of its own
            torch.manual_seed(options.seed + ranks.rank)
        self.optimizer = self._optimizer_of(self.model)
        self.floor = Floor(self.device, bytes_per_second)
        self.recorder = Recorder(self.device, options.epochs, options.profile)
        self.report = RunReport(device=str(self.device), num_ranks=ranks.size)

    def run(self) -> RunReport:
        """All epochs, validation after each, the test with the weights that did best in validation."""
        best_weights = None
        asked = self._ask_for_epoch(0)
        with Progress(self.options.epochs, self.sizes["train"], self.quiet, self.ranks.size) as progress:
            for epoch in range(self.options.epochs):
                train_pass, val_pass = asked
                if epoch + 1 < self.options.epochs:  # so that the sampler need not stop between passes
                    asked = self._ask_for_epoch(epoch + 1)
                self.recorder.epoch_begins(epoch)
                report = self.train_epoch(epoch, train_pass, progress)
                report.val_accuracy = self.evaluate(val_pass) if val_pass else None
                self.recorder.epoch_ended(self.ranks, self.out)
                self._keep(report)
                if self._is_best(report):
                    best_weights = copy.deepcopy(self.model.state_dict())
        self.model.load_state_dict(best_weights)
        if self.sizes["test"]:
            self.report.test_accuracy = self.evaluate(self._ask("test", self.options.eval_fanout))
        if self.device.type == "cuda" and self.report.cache is None:
            peak_bytes = peak_beside_slots(self.device, self.source.slots_bytes)
            self.report.trainer_peak_bytes = max(self.ranks.gather(peak_bytes))
        if self.options.max_batches is None:
            self._find_floor()
        self._write_summary()
        return self.report

    def train_epoch(self, epoch: int, which: Pass, progress: Progress) -> EpochReport:
        """This rank's share of a pass over the training seeds; the report's loss is the mean over labelled seeds."""
        self.model.train()
        report = EpochReport(epoch)
        loss_sum = torch.zeros((), device=self.device)
        num_labelled = torch.zeros((), device=self.device)
        self.recorder.pass_begins("train")
        clock = self.ranks.clock = StepClock(self.device)
        for batch, slot in self._batches(which):
            self.recorder.step_begins(clock.step_begins())
            loss, labelled = self._step(batch)
            self.recorder.step_ended(clock.step_ended(), slot)
            loss_sum += loss * labelled
            num_labelled += labelled
            report.add(slot)
            self.floor.add(slot)
            progress.step(epoch, batch.batch_size, loss_sum, num_labelled, clock)
        report.wait_seconds, report.train_seconds, report.all_reduce_seconds = clock.totals()
        report.seconds = time.perf_counter() - clock.start
        self.ranks.clock = None
        report.loss = (self.ranks.sum(loss_sum) / num_labelled.clamp(min=1)).item()
        report.merge(self.ranks.gather(report))
        return report

    def _step(self, batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Forward to optimizer step; (this rank's part of the mean loss, labelled seeds of all), both on the device."""
        self.optimizer.zero_grad(set_to_none=True)
        y = batch.y[: batch.batch_size]
        labelled = self.ranks.sum((y >= 0).sum())
        scores = self._seed_scores(self.shared_model, batch)
        loss = F.cross_entropy(scores, y, ignore_index=-1, reduction="sum") / labelled.clamp(min=1)
        loss.backward()
        self.optimizer.step()
        return loss.detach(), labelled

    def _find_floor(self) -> None:
        """Times steps of a copy of the model on a batch that lies ready, while the sampler has nothing to do."""
        for batch, _ in self.source.batches(self._ask("train", self.options.fanout, shuffle=True), 1):
            ready = batch
        model = copy.deepcopy(self.model).train()
        optimizer = self._optimizer_of(model)

        def step() -> None:
            optimizer.zero_grad(set_to_none=True)
            F.cross_entropy(self._seed_scores(model, ready), ready.y[: ready.batch_size], ignore_index=-1).backward()
            optimizer.step()

        own_seconds = 0.0
        if ready.batch_size > 0:
            own_seconds = self.floor.time_step(step) * self.options.batch_size / ready.batch_size
        self.floor.step_seconds = max(self.ranks.gather(own_seconds))
        self.report.floor = {
            "step_seconds": self.floor.step_seconds,
            "epochs": [self.floor.of(epoch, self.options.batch_size, self.ranks.size) for epoch in self.report.epochs],
        }

    def _optimizer_of(self, model: torch.nn.Module) -> torch.optim.Optimizer:
        return torch.optim.Adam(model.parameters(), lr=self.options.lr, weight_decay=self.options.weight_decay)

    @staticmethod
    def _seed_scores(model: torch.nn.Module, batch) -> torch.Tensor:
        """float32 [batch_size, num_classes]"""
        scores = model(model_input(batch.x), batch.edge_index, batch.num_sampled_nodes, batch.num_sampled_edges)
        return scores[: batch.batch_size]

    @torch.no_grad()
    def evaluate(self, which: Pass) -> float:
        """Share of the pass's labelled seeds, those of all ranks, that are classified right."""
        self.model.eval()
        right, labelled = counts = torch.zeros(2, device=self.device)
        read = EpochReport(0)
        self.recorder.pass_begins("validate")
        clock = StepClock(self.device)
        for batch, slot in self._batches(which):
            self.recorder.step_begins(clock.step_begins())
            y = batch.y[: batch.batch_size]
            right += ((self._seed_scores(self.model, batch).argmax(dim=1) == y) & (y >= 0)).sum()
            labelled += (y >= 0).sum()
            self.recorder.step_ended(clock.step_ended(), slot)
            read.add(slot)
        for row_tiers in self.ranks.gather(read.row_tiers):
            self.report.add_bytes(row_tiers)
        self.ranks.sum(counts)
        return (right / labelled.clamp(min=1)).item()

    def _batches(self, which: Pass):
        """(batch, slot) of the pass, or of its first `max_batches` steps."""
        return self.source.batches(which, min(which.num_steps, self.options.max_batches or which.num_steps))

    def _ask(self, name: str, fanout: list[int], epoch: int = 0, shuffle: bool = False) -> Pass:
        return self.source.request(self.seed_sets[name], fanout, self.options.batch_size, epoch, shuffle)

    def _ask_for_epoch(self, epoch: int) -> tuple[Pass, Pass | None]:
        """Training in a new order each epoch; validation always on the same draws, so that epochs compare."""
        train = self._ask("train", self.options.fanout, epoch, shuffle=True)
        return train, self._ask("val", self.options.eval_fanout) if self.sizes["val"] else None

    def _keep(self, report: EpochReport) -> None:
        self.report.epochs.append(report)
        self.report.add_bytes(report.row_tiers)
        if self.report.cache:
            self.report.cache["measured"] = measured(self.report.epochs)
        if self.ranks.rank == 0:
            append_line(self.out / "metrics.jsonl", asdict(report))
        self._write_summary()

    def _write_summary(self) -> None:
        if self.ranks.rank == 0:
            self.report.write(self.out / "summary.json")

    def _is_best(self, report: EpochReport) -> bool:
        """True when this epoch's weights are the ones to keep: best in validation, or the last without validation."""
        if report.val_accuracy is not None and self.report.val_accuracy is not None:
            if report.val_accuracy <= self.report.val_accuracy:
                return False
        self.report.val_accuracy, self.report.best_epoch = report.val_accuracy, report.epoch
        return True
