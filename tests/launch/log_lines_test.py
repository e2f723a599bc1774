"""What a run says while it runs: lines on a pipe and in trainer.log, which also has all notes and warnings."""

import logging
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from processes import ran

import cohort_gnn
from cohort_gnn.base import progress_lines
from cohort_gnn.base.units import format_seconds
from cohort_gnn.launch.main import main
from cohort_gnn.spec.results import hardly_better
from cohort_gnn.trainer.models.targets import Classes, MultiLabel, Numbers
from cohort_gnn.trainer.report.start import StartBar

TRAIN = ["--device", "cpu", "--fanout", "4,3", "--batch-size", 200, "--hidden", 8, "--epochs", 2]
STAMP = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d "
LINE = r"epoch {}/2, batch \d of 9: loss (-|\d\.\d{{4}}), [\d,]+ seeds/s, wait \d+ %, train \d+ %"
END = r"(, ends in about [\d.]+ s \(\w+ \d\d:\d\d:\d\d\))?"
VALIDATION = r"epoch {}/2, validation, batch \d of 3: [\d,]+ seeds/s, wait \d+ %, train \d+ %"
TEST = r"test, batch \d of 3: [\d,]+ seeds/s, wait \d+ %, train \d+ %"


@pytest.fixture(scope="module")
def uncounted(cora, tmp_path_factory, shm):
    """A data set of which no reads were counted yet."""
    folder = tmp_path_factory.mktemp("uncounted") / "cora"
    shutil.copytree(cora, folder, ignore=shutil.ignore_patterns("hotness-*"))
    return folder


def trained(data, out, *options, **how):
    done = ran("train", data, *TRAIN, "--out", out, *options, **how)
    return done, (out / "trainer.log").read_text().splitlines()


def test_a_pipe_and_the_log_get_lines_while_an_epoch_runs(uncounted, tmp_path):
    done, log = trained(uncounted, tmp_path / "run", "--log-seconds", "1e-6", "--cache-ratio", 0.1)
    said = done.stdout.splitlines()
    for epoch in (1, 2):
        for form in (LINE + END, VALIDATION, r"epoch {}/2: loss .*, validation .*"):
            pattern = form.format(epoch)
            assert any(re.fullmatch(pattern, line) for line in said), pattern
            assert any(re.fullmatch(STAMP + pattern, line) for line in log), pattern
    assert sum(bool(re.fullmatch(LINE.format(1) + END, line)) for line in said) == 9, "one a step, as all take longer"
    for pattern in (TEST, r"test accuracy .* %, at the best validation .*"):
        assert any(re.fullmatch(pattern, line) for line in said)
        assert any(re.fullmatch(STAMP + pattern, line) for line in log)
    assert any(re.fullmatch(STAMP + r"counted what \d+ batches .*", line) for line in log), "a note of the command"
    assert all(re.match(STAMP, line) for line in log)


def test_a_short_run_has_a_line_an_epoch(cora, tmp_path):
    done, log = trained(cora, tmp_path / "run")
    assert ", batch " not in done.stdout and done.stdout.count("epoch 1/2: loss") == 1
    assert [re.sub(STAMP, "", line)[:9] for line in log] == ["epoch 1/2", "epoch 2/2", "test accu"]


def test_a_quiet_run_and_a_terminal_have_the_lines_in_the_log(cora, tmp_path):
    options = ["--log-seconds", "1e-6"]
    done, log = trained(cora, tmp_path / "quiet", "--quiet", *options)
    assert done.stdout == "" and any(re.fullmatch(STAMP + LINE.format(2) + END, line) for line in log)
    terminal = os.environ | {"FORCE_COLOR": "1"}  # rich takes a pipe for a terminal then
    done, log = trained(cora, tmp_path / "terminal", *options, env=terminal)
    assert ", batch " not in done.stdout and any(re.fullmatch(STAMP + LINE.format(2) + END, line) for line in log)


def test_a_start_that_takes_long_is_told(tmp_path, caplog):
    (tmp_path / "start.jsonl").write_text('{"part": "feature rows", "bytes": 5000000000, "at": 1.0}\n')
    with caplog.at_level(logging.INFO, "cohort_gnn"), StartBar(tmp_path, False, 1e-6) as look:
        look()
    assert re.fullmatch(r"waiting for the first batch since .* s: feature rows, 5.00 GB", caplog.messages[0])
    caplog.clear()
    with caplog.at_level(logging.INFO, "cohort_gnn"), StartBar(tmp_path, True, 1e-6) as look:
        look()
    assert caplog.messages == []


def test_a_model_that_names_one_class_is_warned_of(tmp_path, shm):
    nodes, random = 2000, np.random.default_rng(0)
    labels = (np.arange(nodes) % 100 == 0).astype(np.int64)  # 1 %
    x = random.standard_normal((nodes, 4), dtype=np.float32)
    edges = random.integers(0, nodes, (2, 8000))
    splits = {"train": range(1000), "val": range(1000, 1500), "test": range(1500, 2000)}
    ids = {f"{name}_ids": np.array(ids) for name, ids in splits.items()}
    data = cohort_gnn.from_tensors(tmp_path / "data", x=x, y=labels, edge_index=edges, **ids)
    done, log = trained(data, tmp_path / "run", "--epochs", 10, "--lr", 0.05)
    told = "test accuracy 99.00 % is hardly better than naming the most common class for every node: 99.00 %"
    assert f"cohort: warning: {told}" in done.stdout
    assert any(line.endswith(f"warning: {told}") for line in log)


def test_one_answer_for_all_is_measured_by_each_metric():
    assert Classes().constant(torch.tensor([0, 1, 1, -1])) == pytest.approx(2 / 3)
    assert Classes().constant(torch.tensor([-1])) is None
    assert Numbers().constant(torch.tensor([1.0, 3.0, float("nan")])) == 1.0
    y = torch.tensor([[1, 0], [1, 255], [1, 1]], dtype=torch.uint8)
    assert MultiLabel().constant(y) == pytest.approx(max(2 * 3 / (3 + 4), 2 * 4 / (5 + 4)))
    assert hardly_better("accuracy", 0.992, 0.99) == "" and hardly_better("accuracy", 0.9901, 0.99)
    assert hardly_better("rmse", 0.5, 1.0) == "" and "naming the mean" in hardly_better("rmse", 0.99, 1.0)
    assert hardly_better("mrr", 0.1, None) == "" and hardly_better("accuracy", 0.5, 0.9)


def test_times_have_two_units():
    told = [format_seconds(seconds) for seconds in (0.04, 59.94, 60, 3725, 90_000, 86_400)]
    assert told == ["0.0 s", "59.9 s", "1 min 0 s", "1 h 2 min", "1 d 1 h", "1 d 0 h"]


def test_long_work_without_a_terminal_says_how_far_it_is(tmp_path, monkeypatch, capsys):
    told: list[str] = []
    monkeypatch.setattr(progress_lines, "LINE_SECONDS", 0.0)
    lines = progress_lines.ProgressLines(told.append)
    lines.at("layers", 0.0)
    lines.at("layers", 0.5)
    assert told[0] == "layers: 0 %" and re.fullmatch(r"layers: 50 %, ends in about \d.* s", told[1])
    source = Path(__file__).parents[1] / "data/cora.npz"
    for words in (["import", source, tmp_path / "cora"], ["prepare", tmp_path / "cora"]):
        assert main(["dataset", *map(str, words)]) == 0
        assert re.search(r"^[a-z ]+: \d+ %", capsys.readouterr().err, re.MULTILINE), words[0]
