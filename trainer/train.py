"""The training loop of ``cohort train``."""

import copy
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from cohort.trainer.metrics import EpochReport, RunReport, StepClock, append_line
from cohort.trainer.models import SampledGNN, model_input
from cohort.trainer.progress import Progress
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


class Trainer:
    """Trains a model on the batches of one source.

    Args:
        options: what to train.
        source: where batches come from.
        splits: int64 ids of "train", "val" and "test".
        out: the run's folder.
    """

    def __init__(self, options: TrainOptions, source: BatchSource, splits: dict[str, np.ndarray], out: Path):
        self.options, self.source, self.out = options, source, out
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
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=options.lr, weight_decay=options.weight_decay)
        self.report = RunReport(device=str(self.device))

    def run(self) -> RunReport:
        """All epochs, validation after each, the test with the weights that did best in validation."""
        best_weights = None
        asked = self._ask_for_epoch(0)
        with Progress(self.options.epochs, self.sizes["train"], self.options.quiet) as progress:
            for epoch in range(self.options.epochs):
                train_pass, val_pass = asked
                if epoch + 1 < self.options.epochs:  # so that the sampler need not stop between passes
                    asked = self._ask_for_epoch(epoch + 1)
                report = self.train_epoch(epoch, train_pass, progress)
                report.val_accuracy = self.evaluate(val_pass) if val_pass else None
                self._keep(report)
                if self._is_best(report):
                    best_weights = copy.deepcopy(self.model.state_dict())
        self.model.load_state_dict(best_weights)
        if self.sizes["test"]:
            self.report.test_accuracy = self.evaluate(self._ask("test", self.options.eval_fanout))
        self.report.write(self.out / "summary.json")
        return self.report

    def train_epoch(self, epoch: int, which: Pass, progress: Progress) -> EpochReport:
        """One pass over the training seeds; the report's loss is the mean over labelled seeds."""
        self.model.train()
        report = EpochReport(epoch)
        loss_sum = torch.zeros((), device=self.device)
        num_labelled = torch.zeros((), device=self.device)
        clock = StepClock(self.device)
        for batch, slot in self.source.batches(which):
            clock.step_begins()
            loss, labelled = self._step(batch)
            clock.step_ended()
            loss_sum += loss * labelled
            num_labelled += labelled
            report.add(slot)
            progress.step(epoch, batch.batch_size, loss_sum, num_labelled, clock)
        report.wait_seconds, report.train_seconds = clock.totals()
        report.seconds = time.perf_counter() - clock.start
        report.loss = (loss_sum / num_labelled.clamp(min=1)).item()
        return report

    def _step(self, batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Forward to optimizer step; (mean loss, number of labelled seeds), both on the device."""
        self.optimizer.zero_grad(set_to_none=True)
        y = batch.y[: batch.batch_size]
        labelled = (y >= 0).sum()
        loss = F.cross_entropy(self._seed_scores(batch), y, ignore_index=-1, reduction="sum") / labelled.clamp(min=1)
        loss.backward()
        self.optimizer.step()
        return loss.detach(), labelled

    def _seed_scores(self, batch) -> torch.Tensor:
        """float32 [batch_size, num_classes]"""
        scores = self.model(model_input(batch.x), batch.edge_index, batch.num_sampled_nodes, batch.num_sampled_edges)
        return scores[: batch.batch_size]

    @torch.no_grad()
    def evaluate(self, which: Pass) -> float:
        """Share of the pass's labelled seeds that are classified right."""
        self.model.eval()
        right = torch.zeros((), device=self.device)
        labelled = torch.zeros((), device=self.device)
        for batch, slot in self.source.batches(which):
            y = batch.y[: batch.batch_size]
            right += ((self._seed_scores(batch).argmax(dim=1) == y) & (y >= 0)).sum()
            labelled += (y >= 0).sum()
            self.report.bytes["host"] += slot.host_bytes
        return (right / labelled.clamp(min=1)).item()

    def _ask(self, name: str, fanout: list[int], epoch: int = 0, shuffle: bool = False) -> Pass:
        return self.source.request(self.seed_sets[name], fanout, self.options.batch_size, epoch, shuffle)

    def _ask_for_epoch(self, epoch: int) -> tuple[Pass, Pass | None]:
        """Training in a new order each epoch; validation always on the same draws, so that epochs compare."""
        train = self._ask("train", self.options.fanout, epoch, shuffle=True)
        return train, self._ask("val", self.options.eval_fanout) if self.sizes["val"] else None

    def _keep(self, report: EpochReport) -> None:
        self.report.epochs.append(report)
        self.report.bytes["host"] += report.host_bytes
        append_line(self.out / "metrics.jsonl", asdict(report))
        self.report.write(self.out / "summary.json")

    def _is_best(self, report: EpochReport) -> bool:
        """True when this epoch's weights are the ones to keep: best in validation, or the last without validation."""
        if report.val_accuracy is not None and self.report.val_accuracy is not None:
            if report.val_accuracy <= self.report.val_accuracy:
                return False
        self.report.val_accuracy, self.report.best_epoch = report.val_accuracy, report.epoch
        return True
