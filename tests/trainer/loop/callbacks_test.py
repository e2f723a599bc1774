"""Models, callbacks, schedules and early ends of a user's own; a line an epoch."""

import json
import math
import os
import re
import subprocess
import sys
import types

import pytest
import torch
from processes import ALL_TESTS, cohort, ran, refused

from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.importing import imported
from cohort_gnn.dataset import generate
from cohort_gnn.nn import NodeEmbedding, RowAdam
from cohort_gnn.spec.run import TrainerSpec
from cohort_gnn.trainer.loop.callbacks import EarlyStopping, LearningRate, callbacks_of, factor_of
from cohort_gnn.trainer.loop.step import adam
from cohort_gnn.trainer.models.own import callable_of, load_model, model_of
from cohort_gnn.trainer.program import code_of
from cohort_gnn.trainer.report.callback import Callback

pytestmark = pytest.mark.usefixtures("shm")
TINY = ["--device", "cpu", "--fanout", "4,3", "--batch-size", "50", "--hidden", "8"]
SIZES = {"num_classes": 4, "feature_dim": 6}
OWN = """
import atexit
import os
import sys
import threading

import torch
import cohort_gnn as cohort


class Net(torch.nn.Module):
    def __init__(self, in_channels, hidden_channels, num_layers, out_channels, dropout):
        super().__init__()
        self.lin = torch.jit.script(torch.nn.Linear(in_channels, out_channels))
        self.turn = torch.nn.Parameter(torch.ones(out_channels, dtype=torch.complex64))

    def forward(self, x, edge_index):
        rows = (self.lin(x) * self.turn).real
        return rows.index_add(0, edge_index[1], rows[edge_index[0]])


class Log(cohort.Callback):
    lines = []

    def run_begins(self, trainer):
        self.lines.append(f"begins {trainer.options.epochs}")

    def step_ended(self, trainer, batch):
        if trainer.task == "train":
            self.lines.append(f"step {batch.num_seeds}")

    def state(self):
        return {"lines": self.lines}

    def load_state(self, state):
        self.lines = [*state["lines"], "resumed"]

    def epoch_ended(self, trainer, report):
        self.lines.append(f"epoch {report.epoch} {report.loss >= 0}")
        trainer.stops_early = report.epoch == 1

    def run_ended(self, trainer, report):
        (trainer.out / "log.txt").write_text("\\n".join([*self.lines, f"{len(report.epochs)}"]))
        atexit.register(print, "the last word")
        self.unclosed = open(trainer.out / "unclosed.txt", "w")
        self.unclosed.write("in a buffer")


class Full(cohort.Callback):
    def run_begins(self, trainer):
        if refused := os.environ.get("REFUSED"):
            (trainer.out / refused).mkdir()


class Leaving(cohort.Callback):
    def epoch_ended(self, trainer, report):
        sys.exit("that is enough")


class Misnamed(cohort.Callback):
    def on_epoch_end(self, trainer, report):
        pass


class Locked(Net):
    def __init__(self, *sizes, **options):
        super().__init__(*sizes, **options)
        self.lock = threading.Lock()


class Other:
    pass


class Still(torch.nn.Module):
    def __init__(self, **sizes):
        super().__init__()


class Extra(torch.nn.Linear):
    def __init__(self, **sizes):
        super().__init__(2, 2)

    def get_extra_state(self):
        return {"steps": 0}


class Expanded(torch.nn.Linear):
    def __init__(self, **sizes):
        super().__init__(2, 2)
        self.register_buffer("scale", torch.ones(1).expand(4))


class Needy(cohort.Callback):
    def __init__(self, log):
        self.log = log
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own") / "data"
    generate(folder, kind="sbm", nodes=400, edges=4000, dim=6, classes=4, split=(0.25, 0.25, 0.25))
    return folder


@pytest.fixture
def own(tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "broken.py").write_text("class Net(\n")
    return tmp_path


def test_a_model_and_a_callback_of_ones_own(data, own):
    run = own / "run"
    options = [*TINY, "--epochs", 5, "--model", "own:Net", "--callbacks", "own:Log", "--out", run]
    done = ran("train", data, *options, cwd=own)
    assert (run / "log.txt").read_text().splitlines() == [
        "begins 5", "step 50", "step 50", "epoch 0 True", "step 50", "step 50", "epoch 1 True", "2",
    ]  # fmt: skip
    assert (run / "unclosed.txt").read_text() == "in a buffer"
    assert "cohort: the run ends early, after 2 of 5 epochs" in done.stdout and "the last word\n" in done.stdout
    summary = json.loads((run / "summary.json").read_text())
    assert len(summary["epochs"]) == 2 and 0 <= summary["test_accuracy"] <= 1
    code = f"import cohort_gnn as cohort; print(type(cohort.load_model({str(run)!r}, model='own:Net')).__name__)"
    loaded = subprocess.run([sys.executable, "-c", code], cwd=own, capture_output=True, text=True)
    assert loaded.stdout == "Net\n", loaded.stderr
    refused(cohort("predict", run, data, "--out", own / "p.npy", cwd=own), 1, "expected a built-in model", "own:Net")
    named = ["--model", "own:Net", "--callbacks", "own:Log"]
    ran("train", "--resume", run, "--quiet", *named, cwd=own)
    assert len(json.loads((run / "summary.json").read_text())["epochs"]) > 2
    told = (run / "log.txt").read_text().splitlines()
    of_before = ["begins 5", "step 50", "step 50", "epoch 0 True", "step 50", "step 50", "epoch 1 True"]
    assert told[:9] == [*of_before, "resumed", "begins 5"]


@pytest.mark.parametrize("refused", ["model.pt", "summary.json"])
def test_a_run_without_its_results_has_failed_and_resume_writes_them(data, own, refused):
    run = own / "run"
    named = ["--model", "own:Locked", "--callbacks", "own:Full"]
    options = [*TINY, "--epochs", 2, *named, "--out", run]
    done = cohort("train", data, *options, cwd=own, env=os.environ | {"REFUSED": refused})
    assert done.returncode == 1
    assert (
        "the floor leaves training steps out: no copy of the model can be made (cannot pickle '_thread" in done.stdout
    )
    assert f"{run / refused} was not written, and the run continues without it" in done.stderr + done.stdout
    assert f"{run / refused}: expected a result of the finished run, written, found" in done.stderr
    assert f"to continue: cohort train --resume {run} {' '.join(named)}\n" in done.stderr
    (run / refused).rmdir()
    done = ran("train", "--resume", run, *named, cwd=own)
    assert (run / refused).is_file(), done.stderr


def test_what_a_callback_exits_with_is_said(data, own):
    options = [*TINY, "--epochs", 2, "--callbacks", "own:Leaving", "--out", own / "run"]
    done = cohort("train", data, *options, cwd=own)
    assert done.returncode == 1 and "it said: SystemExit: that is enough\n" in done.stderr
    log = (own / "run/trainer.log").read_text()
    assert log.splitlines()[-1] == "that is enough" and "Traceback" not in log


@pytest.mark.parametrize(("code", "expected"), [(None, 0), (0, 0), (143, 143), ("a reason", 1)])
def test_exit_codes_are_those_of_python(code, expected):
    assert code_of(SystemExit(code)) == expected


# By night by an interpreter that has not imported PyG, as one that is forked has: it takes 10 s.
@pytest.mark.parametrize("start", [pytest.param("fresh", marks=pytest.mark.fresh) if ALL_TESTS else "forked"])
def test_a_model_of_pyg_trains_and_is_loaded(data, tmp_path, start):
    options = [*TINY, "--epochs", 2, "--model", "torch_geometric.nn:GraphSAGE", "--out", tmp_path / "run"]
    ran("train", data, *options)
    log = (tmp_path / "run/trainer.log").read_text().splitlines()
    told = [line for line in log if not re.match(r"[\d-]{10} [\d:]{8} (epoch|test|warning: test) ", line)]
    assert len(log) >= 3 and told == [], "no warnings of PyG"
    model = load_model(tmp_path / "run", model="torch_geometric.nn:GraphSAGE")
    assert type(model).__module__.startswith("torch_geometric") and not model.training


def test_sizes_by_hop_reach_a_model_that_takes_them():
    model = model_of(TrainerSpec(model="torch_geometric.nn:GraphSAGE", hidden=5, fanout=[2, 2], **SIZES)).eval()
    x, edges = torch.randn(6, 6), torch.tensor([[1, 2, 3, 4, 5], [0, 0, 1, 1, 2]])
    trimmed = callable_of(model, 4)(x, edges, [1, 2, 3], [2, 3])
    torch.testing.assert_close(trimmed[:1], model(x, edges)[:1])
    assert trimmed.shape[0] < 6


@pytest.mark.parametrize(
    ("returned", "classes", "expected"),
    [
        (lambda x: x[:, :3], 4, r"a tensor \[nodes, 4\], found shape \[6, 3\]"),
        (lambda x: (x, x), 4, r"a tensor \[nodes, 4\], found tuple"),
        # Which a loss of numbers would compare with every seed.
        (lambda x: x[:1].mean(1, keepdim=True), 1, r"a row for each of 2 seeds, found shape \[1, 1\]"),
    ],
)
def test_what_a_model_returns_has_a_column_for_each_class_and_a_row_for_each_seed(returned, classes, expected):
    class Net(torch.nn.Module):
        def forward(self, x, edge_index):
            return returned(x)

    with pytest.raises(CohortError, match=f"Net.forward: expected {expected}"):
        callable_of(Net(), classes)(torch.ones(6, 6), torch.zeros(2, 0, dtype=torch.int64), [2, 4], [0])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--model", "own:None"], ["--model own:None", "expected package.module:Class"]),
        (["--model", "own:Other"], ["--model own:Other", "expected a class that takes in_channels"]),
        (
            ["--model", "own:Still"],
            ["--model own:Still", "expected parameters with gradients"],
        ),
        (["--model", "own:Extra"], ["own:Extra: state_dict()['_extra_state']", "a tensor, to keep it, found dict"]),
        (["--model", "own:Expanded"], ["own:Expanded: scale", "found an expanded one, shape [4]", "add .clone()"]),
        (
            ["--callbacks", "own:Needy"],
            ["--callbacks own:Needy", "expected a class that is made without arguments, found TypeError"],
        ),
        (["--callbacks", "own:Other"], ["--callbacks own:Other", "expected a subclass of cohort.Callback"]),
        (
            ["--callbacks", "own:Misnamed"],
            [
                "--callbacks own:Misnamed",
                "expected a class with at least one hook",
                "hooks are run_begins, epoch_begins",
            ],
        ),
        (["--callbacks", "nowhere:Log"], ["--callbacks nowhere:Log", "No module named 'nowhere'"]),
        (["--callbacks", "own.part:Log"], ["--callbacks own.part:Log", "No module named 'own.part'"]),
        (["--model", "broken:Net"], ["--model broken:Net", "broken.py: '(' was never closed"]),
    ],
    ids=str,
)
def test_what_is_no_model_or_callback_is_refused(data, own, options, words):
    result = cohort("train", data, *TINY, *options, "--out", own / "run", cwd=own)
    refused(result, 1, *words)


def test_the_rate_falls_by_epochs():
    assert [factor_of("linear", epoch, 4) for epoch in range(4)] == [1.0, 0.75, 0.5, 0.25]
    assert factor_of("cosine", 0, 4) == 1.0 and factor_of("cosine", 2, 4) == pytest.approx(0.5)
    assert factor_of("cosine", 3, 4) == pytest.approx((1 + math.cos(math.pi * 0.75)) / 2)
    model = torch.nn.Linear(2, 2)
    options = TrainerSpec(lr=0.1, lr_schedule="linear", epochs=4, **SIZES)
    rows = RowAdam(NodeEmbedding(5, 2), lr=0.1)
    step = types.SimpleNamespace(rows=rows)
    trainer = types.SimpleNamespace(options=options, optimizer=adam(model, torch.device("cpu"), 0.1), step=step)
    LearningRate().epoch_begins(trainer, 3)
    assert trainer.optimizer.param_groups[0]["lr"] == pytest.approx(0.025)
    assert rows.param_groups[0]["lr"] == pytest.approx(0.025)


@pytest.mark.gpu
def test_a_gpu_run_with_all_of_them(data, own):
    options = ["--device", "cuda", "--fanout", "4,3", "--batch-size", 50, "--hidden", 8, "--epochs", 6, "--quiet"]
    options += ["--lr-schedule", "cosine", "--clip-norm", 0.5, "--patience", 5]
    losses = {}
    for graphs in ("--cuda-graphs", "--no-cuda-graphs"):
        ran("train", data, *options, "--norm", "layer", graphs, "--out", own / graphs.strip("-"))
        epochs = json.loads((own / graphs.strip("-") / "summary.json").read_text())["epochs"]
        losses[graphs] = [epoch["loss"] for epoch in epochs]
    assert losses["--cuda-graphs"] == pytest.approx(losses["--no-cuda-graphs"], rel=1e-3)
    ran("train", data, *options, "--model", "own:Net", "--callbacks", "own:Log", "--out", own / "run", cwd=own)


def test_a_run_ends_after_epochs_without_a_better_validation(data, tmp_path):
    options = [*TINY, "--epochs", 40, "--patience", 2, "--lr", 0.0000001, "--quiet", "--out", tmp_path / "run"]
    ran("train", data, *options)
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    last = summary["epochs"][-1]["epoch"]
    assert last == summary["best_epoch"] + 2 < 39
    ran("train", "--resume", tmp_path / "run", "--quiet")
    assert len(json.loads((tmp_path / "run/summary.json").read_text())["epochs"]) == last + 1, "it is over"


@pytest.mark.parametrize("task", ["node", "link"])
def test_patience_needs_a_validation(tmp_path, task):
    generate(tmp_path / "data", kind="sbm", nodes=40, edges=80, dim=6, classes=4, split=(0.5, 0, 0.5))
    options = [*TINY, "--task", task, "--patience", 2, "--out", tmp_path / "run"]
    refused(
        cohort("train", tmp_path / "data", *options), 1, f"--patience: expected validation {task}s in", "found none"
    )


def test_patience_counts_from_the_best_epoch():
    trainer = types.SimpleNamespace(options=TrainerSpec(patience=2, **SIZES), stops_early=False)
    for epoch, best, stops in ((0, 0, False), (1, 0, False), (2, 2, False), (3, 2, False), (4, 2, True)):
        trainer.report = types.SimpleNamespace(best_epoch=best, epochs=[])
        EarlyStopping().epoch_ended(trainer, types.SimpleNamespace(epoch=epoch, val_metrics={"accuracy": 0.5}))
        assert trainer.stops_early == stops


def test_gradients_are_clipped(data, tmp_path):
    losses = {}
    for norm in (1e-6, 1e6):
        out = tmp_path / f"{norm:g}"
        ran("train", data, *TINY, "--epochs", 3, "--clip-norm", norm, "--quiet", "--out", out)
        losses[norm] = [epoch["loss"] for epoch in json.loads((out / "summary.json").read_text())["epochs"]]
    plain = tmp_path / "plain"
    cohort("train", data, *TINY, "--epochs", 3, "--quiet", "--out", plain)
    unclipped = [epoch["loss"] for epoch in json.loads((plain / "summary.json").read_text())["epochs"]]
    assert losses[1e6] == unclipped != losses[1e-6]


def test_options_make_callbacks():
    assert callbacks_of(TrainerSpec(**SIZES)) == []
    made = callbacks_of(TrainerSpec(lr_schedule="cosine", patience=3, **SIZES))
    assert [type(each) for each in made] == [LearningRate, EarlyStopping] and all(
        isinstance(each, Callback) for each in made
    )
    with pytest.raises(CohortError) as error:
        imported("--callbacks", "json:nothing")
    assert (error.value.place, error.value.expected) == ("--callbacks json:nothing", "package.module:Class")


def test_each_epoch_has_a_line_on_a_pipe_that_may_close(data, tmp_path):
    done = cohort("train", data, *TINY, "--epochs", 3, "--out", tmp_path / "run")
    lines = [line for line in done.stdout.splitlines() if line.startswith("epoch ") and ": loss" in line]
    assert [line.split(":")[0] for line in lines] == ["epoch 1/3", "epoch 2/3", "epoch 3/3"]
    assert all(word in lines[0] for word in ("validation", " s, wait ", "seeds/s"))
    options = ["--epochs", "30", "--out", str(tmp_path / "cut")]
    command = [sys.executable, "-m", "cohort_gnn", "train", str(data), *TINY, *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
    process.stdout.close()
    process.stderr.read()
    process.wait(timeout=120)
    summary = json.loads((tmp_path / "cut/summary.json").read_text())
    assert len(summary["epochs"]) == 30, "the run goes on"
