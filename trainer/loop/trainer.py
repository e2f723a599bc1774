"""The training loop of ``cohort train``."""

import copy
import itertools
import logging
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch

from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.files import FileWriter
from cohort_gnn.dataset.columns import AS_BEFORE_HINT, Columns, first_difference, read_columns
from cohort_gnn.spec.losses import loss_name
from cohort_gnn.spec.results import EpochReport, RunReport
from cohort_gnn.spec.run import TrainerSpec
from cohort_gnn.trainer.loader.sm_partition import divide_gpu
from cohort_gnn.trainer.loader.source import AllRows, BatchSource, Pass
from cohort_gnn.trainer.loader.step_clock import StepClock
from cohort_gnn.trainer.loop.epoch import RunningEpoch
from cohort_gnn.trainer.loop.links import HeldOutLinks
from cohort_gnn.trainer.loop.passes import Passes
from cohort_gnn.trainer.loop.ranks import Agreement, Ranks, StepSums
from cohort_gnn.trainer.loop.step import TrainStep, adam, step_of
from cohort_gnn.trainer.loop.stop import StopRequest
from cohort_gnn.trainer.models.metrics import WholeSplit
from cohort_gnn.trainer.models.own import model_of
from cohort_gnn.trainer.models.targets import LinkTargets, mean_loss, targets_for
from cohort_gnn.trainer.models.weights import start_from
from cohort_gnn.trainer.report.callback import HOOKS, Callback, name_of

LOG = logging.getLogger(__name__)


class Trainer:
    """Trains a model on the batches of one source.

    Args:
        options: what to train.
        source: where this trainer's batches come from.
        ranks: the trainers of the run; a step's loss is the mean over the labelled seeds of all their batches.
        passes: over the seeds of "train", "val" and "test".
        out: the run's folder.
        callbacks: who is told of the run, in this order.
        stop: how the trainer hears that it is to end.
        all_rows: the rows that batches name, where they have none (see BatchSource.all_rows).
        links: of "val" and "test", the links that the rows of the split's nodes score; None: links are not predicted.
        about: members of the run's report that are known before.

    Attributes:
        report: of the run so far.
        monitor: the metric by which epochs are compared.
        running: the epoch that is under way.
        best_model: parameters of the epoch that did best in validation.
        task: "train" or "validate", of the pass that runs; "": none has begun.
        num_steps: of that pass, those done before it was resumed included.
        clock: of that pass.
        writer: of files that take long.
        stops_early: whether the epoch that is under way is the last.
        scores_of_test: float32 [rows, outputs], of a task of the data set, once they are there; of a task of links the
            best targets, int64 [sources, K].
    """

    def __init__(
        self,
        options: TrainerSpec,
        source: BatchSource,
        ranks: Ranks,
        passes: Passes,
        out: Path,
        callbacks: Sequence[Callback],
        stop: StopRequest | None = None,
        all_rows: AllRows = None,
        links: dict[str, HeldOutLinks] | None = None,
        **about,
    ):
        self.options, self.source, self.ranks, self.out = options, source, ranks, out
        self.passes, self.sizes = passes, passes.sizes
        self.callbacks, self.stop, self.all_rows = callbacks, stop or StopRequest(), all_rows
        self.device, self.quiet = source.device, options.quiet or ranks.rank > 0
        self.targets, self.links = targets_for(options, source.device), links or {}
        self.monitor = options.monitor or self.targets.metric
        others = dict.fromkeys([*(options.metrics or ()), self.monitor])
        self.whole_split = WholeSplit([name for name in others if name not in self.targets.summed], options.targets)
        self._hooks: dict = {name: [] for name in HOOKS}  # of the callbacks that override them
        for callback, name in itertools.product(callbacks, HOOKS):
            if getattr(type(callback), name) is not getattr(Callback, name):
                self._hooks[name].append(getattr(callback, name))
        self._agreement = Agreement(source.device, self.stop)
        in_table = source.rows_in == "table"
        source.last_hop_global = in_table and options.model_kind.skips_last_ids and not options.trees
        divide_gpu(source, options.sampler_sms)
        torch.set_float32_matmul_precision(options.matmul_precision)
        torch.manual_seed(options.seed)
        self.model = model_of(options).to(self.device)
        if options.init and ranks.rank == 0:
            text, is_whole = start_from(options.init, self.model)
            LOG.log(logging.INFO if is_whole else logging.WARNING, text, extra={"is_shown": not self.quiet})
            before, now = read_columns(options.init), read_columns(out)
            if Columns() not in (before, now) and (what := first_difference(before, now)):
                LOG.warning(f"{what} mean something else than those of {options.init}; {AS_BEFORE_HINT}")
        ranks.spread(self.model)
        if ranks.rank > 0:  # the same weights everywhere, but a dropout of its own
            torch.manual_seed(options.seed + ranks.rank)
        self.optimizer = adam(self.model, self.device, options.lr, options.weight_decay)
        sums = StepSums(list(self.model.parameters()), ranks.sum, self._agreement) if ranks.size > 1 else None
        self.step = self._step_of(self.model, self.optimizer, sums)
        self.report = RunReport(
            task=options.targets,
            loss_name=loss_name(options),
            device=str(self.device),
            num_ranks=ranks.size,
            rows_in_place=in_table,
            last_hop_global=source.last_hop_global,
            coarse_epochs=options.coarse_epochs,
            coarse_error=options.coarse_error,
            **about,
        )
        self.running = RunningEpoch(0, self.device)
        self.best_model: dict | None = None
        self.writer = FileWriter()
        self.clock: StepClock | None = None
        self.task, self.num_steps, self.stops_early = "", 0, False
        self.scores_of_test: torch.Tensor | None = None

    def run(self) -> None:
        """All epochs, validation after each, the test with the weights that did best in validation."""
        with self.writer:
            self._tell("run_begins")
            try:
                with self.stop.later():
                    self._run_epochs()
            finally:
                self._tell("epochs_end")
            self.model.load_state_dict(self.best_model)
            if self.sizes["test"]:
                test = self.passes.ask("test", self.options.hops_of_evaluation)
                self.report.test_metrics, read = self.evaluate(test, "test")
                for row_tiers in self.ranks.gather(read):
                    self.report.add_bytes(row_tiers)
                self.report.test_accuracy = self.report.test_metrics.get("accuracy")
            self._tell("run_ended", self.report)

    def _run_epochs(self) -> None:
        """Runs the epochs that are left, first the rest of the one that is under way."""
        first, num_epochs = self.running.epoch, self.options.epochs
        if first >= num_epochs:
            return
        asked = self._ask_for_epoch(first, self.running.step)
        for epoch in range(first, num_epochs):
            if self.stops_early:
                self.say(f"the run ends early, after {epoch} of {num_epochs} epochs")
                break
            train_pass, val_pass = asked
            if epoch + 1 < num_epochs:  # so that the sampler need not stop between passes
                asked = self._ask_for_epoch(epoch + 1)
            self._tell("epoch_begins", epoch)
            report, read = self.train_epoch(train_pass), None
            begin = time.perf_counter()
            if val_pass:
                report.val_metrics, read = self.evaluate(val_pass, "val")
            report.validate_seconds = time.perf_counter() - begin
            reports, reads = zip(*self.ranks.gather((report, read)), strict=True)
            report.merge(reports)
            for row_tiers in filter(None, reads):
                self.report.add_bytes(row_tiers)
            report.val_accuracy = report.val_metrics.get("accuracy")
            self.running = self.running.next()
            self.step.reset()
            self._tell("epoch_ended", report)

    def train_epoch(self, which: Pass) -> EpochReport:
        """The rest of a pass over the training seeds. The loss is the mean over labelled seeds of all ranks, the report
        otherwise this rank's."""
        running, step = self.running, self.step
        self.model.train()
        clock = running.go_on()
        self._begin_pass("train", clock)
        self.ranks.clock = clock
        for slot in self._slots(which, "train"):
            clock.step_begins()
            self._tell("step_begins")
            step(slot)
            clock.step_ended()
            running.add(slot)
            stops = self._agreement.stops() if self.ranks.size > 1 else self.stop.asked
            self._tell("step_ended", slot)
            if stops:
                self._stop()
            clock = self.clock = self.ranks.clock = running.go_on()  # a checkpoint has paused it
        running.pause()
        self.ranks.clock = None
        report = copy.deepcopy(running.report)
        report.coarse = self.passes.is_coarse(running.epoch)
        report.loss = mean_loss(self.ranks.sum(step.loss_sum.clone()), step.num_labelled, self.options.max_batches)
        return report

    @torch.no_grad()
    def evaluate(self, which: Pass, split: str) -> tuple[dict[str, float], dict]:
        """How good the model is on the labelled seeds or the links of a split, by a pass over its seeds, those of all
        ranks: a number by name, first that of ``monitor``; and what this rank read, as EpochReport.row_tiers."""
        self.model.eval()
        self.ranks.spread_buffers(self.model)
        sums = torch.zeros(self.targets.num_sums + 1, dtype=torch.float64, device=self.device)
        read = EpochReport(0)
        clock = StepClock(self.device)
        self._begin_pass("validate", clock)
        scores, links = self.step.scores, self.links.get(split)
        keeps_scores = split == "test" and self.options.task_name is not None
        num_rows = self.sizes[split] if links or keeps_scores else 0
        rows = torch.zeros(num_rows, self.options.num_classes, device=self.device)
        for slot in self._slots(which, split):
            clock.step_begins()
            self._tell("step_begins")
            if links:
                rows[slot.input_id] = scores.score_slot(slot)
            else:
                batch_scores, y = scores.score_slot(slot), slot.y[: slot.num_seeds]
                if keeps_scores:
                    rows[slot.input_id] = batch_scores
                sums[:-1] += self.targets.sums(batch_scores, y)
                self.whole_split.add(batch_scores, y)
            clock.step_ended()
            self._tell("step_ended", slot)
            read.add(slot)
            if self.stop.asked:
                sums[-1] += 1  # ranks that stop
                break
        if links:
            assert isinstance(self.targets, LinkTargets)
            sums[:-1] = links.sums(rows, self.model.link_decoder, self.targets, self.ranks)
        if self.ranks.sum(sums)[-1] > 0:
            self._stop()
        if keeps_scores:
            best = links.ranked.best.to(self.device) if links and links.ranked else rows
            self.scores_of_test = self.ranks.sum(best)
        metrics = self.targets.metrics(sums[:-1]) | self.whole_split.metrics(self.ranks.gather_rows)
        compared = {self.monitor: metrics[self.monitor]} if self.monitor in metrics else {}
        return compared | metrics, read.row_tiers

    def step_of_a_copy(self) -> TrainStep:
        """Steps of a copy of the model, without other ranks.

        The run's own steps forget their CUDA graphs: a GPU need not have room for the memory of both.
        """
        self.step.forget_graphs()
        with torch.no_grad():  # parameters of torch.jit would be results of a computation, which no optimizer takes
            model = copy.deepcopy(self.model).train()
        for own, copied in zip(self.model.parameters(), model.parameters(), strict=True):
            copied.requires_grad_(own.requires_grad)
        return self._step_of(model, adam(model, self.device, self.options.lr, self.options.weight_decay))

    def say(self, text: str) -> None:
        """Logs a line, of the first rank alone; of a quiet run for the log alone."""
        if self.ranks.rank == 0:
            LOG.info(text, extra={"is_shown": not self.quiet})

    def state(self) -> dict:
        """The members of a checkpoint, less its identity; all ranks call it, after the same step."""
        self.running.pause()
        random = {"cpu": torch.get_rng_state()}  # gathered as arrays, whose pickles are plain bytes
        if self.device.type == "cuda":
            random["device"] = torch.cuda.get_rng_state(self.device)
        own = {
            "random": {name: values.numpy() for name, values in random.items()},
            "report": asdict(self.running.report),
            "loss_sum": self.step.loss_sum.item(),
            "num_labelled": self.step.num_labelled.item(),
            "callbacks": {name_of(callback): callback.state() for callback in self.callbacks},
        }
        ranks = self.ranks.gather(own)
        for rank_state in ranks:
            rank_state["random"] = {name: torch.from_numpy(values) for name, values in rank_state["random"].items()}
        return {
            "epoch": self.running.epoch,
            "step": self.running.step,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "rows": self.step.rows and self.step.rows.state_dict(),
            "best_model": self.best_model,
            "report": self.report.members(),
            "ranks": ranks,
        }

    def load_state(self, state: dict) -> None:
        """Restores the state of an earlier trainer in a new one."""
        own, best = state["ranks"][self.ranks.rank], state["best_model"]
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.step.rows:
            self.step.rows.load_state_dict(state["rows"])
        self.best_model = best and {name: values.to(self.device) for name, values in best.items()}
        self.running = RunningEpoch(state["epoch"], self.device, state["step"], own["report"])
        self.step.reset(own["loss_sum"], own["num_labelled"])
        self.report.take_up(state["report"])
        for callback in self.callbacks:
            callback.load_state(own["callbacks"].get(name_of(callback), {}))
        torch.set_rng_state(own["random"]["cpu"])
        if self.device.type == "cuda":
            torch.cuda.set_rng_state(own["random"]["device"], self.device)

    def _tell(self, hook: str, *what) -> None:
        for tell in self._hooks[hook]:
            tell(self, *what)

    def _begin_pass(self, task: str, clock: StepClock) -> None:
        self.task, self.clock = task, clock
        self._tell("pass_begins")

    def _stop(self) -> None:
        self._tell("run_stops")
        self.stop.leave()

    def _slots(self, which: Pass, split: str):
        """The slots of a pass over a split, or of its first `max_batches` steps; if they fail, the run stops first."""
        num_steps = min(which.num_steps, self.options.max_batches or which.num_steps)
        self.num_steps = num_steps + (self.running.step if self.task == "train" else 0)
        try:
            yield from self.passes.slots(which, split, num_steps)
        except CohortError:
            if self.ranks.size == 1 and self.running.epoch < self.options.epochs:
                self._tell("run_stops")
            raise

    def _ask_for_epoch(self, epoch: int, done: int = 0) -> tuple[Pass, Pass | None]:
        """Training in a new order each epoch; validation always on the same draws, so that epochs compare.

        Args:
            done: steps of training that are left out.
        """
        train = self.passes.ask("train", self.options.fanout, epoch, shuffle=True, done=done)
        return train, self.passes.ask("val", self.options.hops_of_evaluation) if self.sizes["val"] else None

    def _step_of(self, model: torch.nn.Module, optimizer: torch.optim.Adam, sums: StepSums | None = None) -> TrainStep:
        """Steps of a model; without ``sums`` without other ranks."""
        ranks = self.ranks if sums else None
        return step_of(self.options, model, optimizer, self.device, self.all_rows, ranks, sums)
