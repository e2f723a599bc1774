"""bench/tune_grid.py: the grid, what it gives to `cohort tune`, how both are compared, and what it says."""

import argparse
import json
import math
import tomllib
from types import SimpleNamespace

import pytest
from documents import ROOT, module

from cohort_gnn.base.errors import CohortError
from cohort_gnn.launch.options.parser import add_options, given_in
from cohort_gnn.launch.report import charts as report_charts
from cohort_gnn.spec.options import options_of
from cohort_gnn.spec.run import RunSpec

tune_grid = module(ROOT / "bench/tune_grid.py")
TINY = ["--device", "cpu", "--fanout", "4,3", "--batch-size", "100", "--hidden", "8", "--epochs", "2"]


def arguments(*texts) -> argparse.Namespace:
    return tune_grid.build_parser().parse_args(["data", *map(str, texts)])


class FakeTrials:
    """Runs that take what a function of their options says; None: they fail."""

    def __init__(self, seconds_of):
        self.seconds_of, self.lines, self.is_over_time = seconds_of, [], False
        self.base, self.device, self.spec = {"hidden": 8}, "cuda", RunSpec()

    def run(self, told: dict, options: dict) -> dict:
        seconds = self.seconds_of(options)
        self.lines.append(told | {"options": options} | ({"seconds": seconds} if seconds else {"failure": "no memory"}))
        return self.lines[-1]


def test_all_points_run_once_before_any_runs_again():
    times = iter([5.0, 1.0, 4.0, 2.0, 9.0, None])
    trials = FakeTrials(lambda options: next(times))
    cells = [(0.0, 0), (0.2, 16)]
    assert tune_grid.measure_grid(trials, trials.base, cells, 3) == {(0.0, 0): 5.0, (0.2, 16): 2.0}
    assert [line["options"] for line in trials.lines[:2]] == [
        {"hidden": 8},
        {"hidden": 8, "cache_ratio": 0.2, "sampler_sms": 16},
    ]
    with pytest.raises(CohortError, match="no memory"):
        tune_grid.measure_grid(FakeTrials(lambda options: None), {}, cells, 1)


def test_the_two_run_in_turn_and_medians_are_compared(monkeypatch):
    args = arguments("--cache-ratio", "0,0.2", "--sampler-sms", "0,16", "--finals", 3)
    extra = iter([0.0, 0.5, 0.1, 0.0, 0.2, 0.1])

    def seconds_of(options):
        if len(trials.lines) < 4:
            return {0.0: 3.0, 0.2: 2.0}[options.get("cache_ratio", 0.0)] - options.get("sampler_sms", 0) / 100
        return options.get("slots", 0) + 1.0 + next(extra)

    trials = FakeTrials(seconds_of)
    monkeypatch.setattr(tune_grid, "tune", lambda args, trials: {"hidden": 8, "slots": 4})
    found = tune_grid.compare(args, trials)
    assert found.best == (0.2, 16) and not found.is_same
    assert [line["step"] for line in trials.lines[4:]] == ["best of the grid", "chosen by tuning"] * 3
    assert (found.best_seconds, found.chosen_seconds) == (1.1, 5.1) and found.distance == pytest.approx(4 / 1.1)
    monkeypatch.setattr(tune_grid, "tune", lambda args, trials: {"hidden": 8, "cache_ratio": 0.2, "sampler_sms": 16})
    trials.lines.clear()
    found = tune_grid.compare(args, trials)
    assert found.is_same and found.distance == 0 and len(trials.lines) == 4, "there is nothing to compare"


def test_a_failure_in_the_last_runs_is_no_result(monkeypatch):
    trials = FakeTrials(lambda options: None if "slots" in options else 1.0)
    monkeypatch.setattr(tune_grid, "tune", lambda args, trials: {"slots": 4})
    with pytest.raises(CohortError, match="no memory"):
        tune_grid.compare(arguments("--cache-ratio", "0"), trials)


def test_columns_are_the_sms_where_there_are_some():
    assert tune_grid.columns_of(arguments(), "cuda", True) == [0, 16, 32, 48]
    assert tune_grid.columns_of(arguments("--sampler-sms", "8,0"), "cuda", True) == [8, 0]
    assert tune_grid.columns_of(arguments(), "cpu", True) == tune_grid.columns_of(arguments(), "cuda", False) == [0]
    with pytest.raises(CohortError, match="--sampler-sms: expected a GPU"):
        tune_grid.columns_of(arguments("--sampler-sms", "0,8"), "cpu", True)


def test_tuning_gets_what_was_given(tmp_path, monkeypatch):
    (tmp_path / "base.toml").write_text("slots = 6\nlr = 0.01\n")
    args = arguments("--slots", 3, "--no-mps", "--fanout", "-1,5", "--config", tmp_path / "base.toml", "--minutes", 3)
    commands = []

    def ran(command, **options):
        commands.append(command)
        (tmp_path / "tune").mkdir()
        (tmp_path / "tune/run.toml").write_text("# best\nbatch-size = 8192\nepochs = 7\nfanout = [-1, 5]\n")
        (tmp_path / "tune/tune.json").write_text('{"trials": [1, 2]}')
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(tune_grid.subprocess, "run", ran)
    bound = SimpleNamespace(left=100.0, slowest=4.0)
    lines = []
    spec = RunSpec(batch_size=8192)
    trials = SimpleNamespace(
        spec=spec, out=tmp_path, dataset=tmp_path / "data", epochs=3, bound=bound, add=lines.append
    )
    assert tune_grid.tune(args, trials) == {"batch_size": 8192, "fanout": [-1, 5]}
    words = commands[0][3:]
    assert words[:2] == ["tune", str(tmp_path / "data")] and "--no-mps" in words
    pairs = dict(zip(words, words[1:], strict=False))
    assert (pairs["--slots"], pairs["--fanout"], pairs["--batch-size"]) == ("3", "-1,5", "8192"), "not the file's slots"
    assert (pairs["--cache-ratios"], pairs["--epochs"]) == ("0.0,0.05,0.2,1.1", "3")
    assert float(pairs["--minutes"]) == pytest.approx((100 - 7 * 4) / 60) and "--sampler-sms" not in words
    assert pairs["--config"] == str(tmp_path / "base.toml") and lines[0]["trials"] == 2
    bound.left = 28.0
    with pytest.raises(CohortError, match="none left after the grid"):
        tune_grid.tune(args, trials)


def found(**changed) -> tune_grid.Found:
    grid = {(0.0, 0): 0.3, (0.0, 16): 0.2, (0.2, 0): 0.25, (0.2, 16): math.inf}
    known = {"grid": grid, "chosen": {"cache_ratio": 0.2, "slots": 4}, "best_seconds": 0.2, "chosen_seconds": 0.21}
    return tune_grid.Found(**known | {"is_same": False} | changed)


def test_the_tables_tell_the_grid_and_the_distance():
    grid, both = tune_grid.tables_of(found(), "cuda")
    assert grid.columns == ["cache ratio", "0", "16"]
    assert grid.rows == [["0", "0.3000", "0.2000"], ["0.2", "0.2500", "failed"]]
    assert [row[1:] for row in both.rows] == [
        ["cache-ratio 0, sampler-sms 16", "0.2000"],
        ["cache-ratio 0.2, sampler-sms 0, slots 4", "0.2100"],
    ]
    assert "+5.00 % from the best" in both.note and "no effect" in tune_grid.tables_of(found(), "cpu")[0].note


def test_the_picture_frames_both(monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(report_charts, "png_of", lambda figure: figure)
    axes = tune_grid.draw(found()).axes[0]
    middles = [(each.get_x() + each.get_width() / 2, each.get_y() + each.get_height() / 2) for each in axes.patches]
    assert middles == [pytest.approx((1, 0)), pytest.approx((0, 1))]
    assert [text.get_text() for text in axes.texts] == ["0.3000", "0.2000", "0.2500", "failed"]
    elsewhere = tune_grid.draw(found(chosen={"cache_ratio": 0.5}))
    assert len(elsewhere.axes[0].patches) == 1, "tuning has chosen what the grid has not"


def lines_of(out) -> list[dict]:
    return [json.loads(line) for line in (out / "tune-grid.jsonl").read_text().splitlines()]


def test_on_the_cpu(cora, shm, tmp_path):
    options = ["--cache-ratio", "0.1", "--slots", "4", "--finals", "1", "--minutes", "2", "--out", str(tmp_path)]
    code = tune_grid.main([str(cora), *TINY, *options])
    lines = lines_of(tmp_path)
    assert [line["step"] for line in lines] == ["grid", "tuning", "best of the grid", "chosen by tuning", "result"]
    point, tuning, best, chosen, result = lines
    shared = {"device": "cpu", "fanout": [4, 3], "batch_size": 100, "hidden": 8}
    assert point["options"] == best["options"] == shared | {"cache_ratio": 0.1}
    assert tuning["options"] == chosen["options"] == shared, "a cache has no effect on the CPU"
    told = json.loads((tmp_path / "tune/tune.json").read_text())
    assert told["not_varied"]["slots"] == "given" and told["epochs"] == 2 and tuning["trials"] == len(told["trials"])
    assert tomllib.loads((tmp_path / "tune/run.toml").read_text())["hidden"] == 8
    assert (result["best_seconds"], result["chosen_seconds"]) == (best["seconds"], chosen["seconds"])
    assert result["distance"] == pytest.approx(chosen["seconds"] / best["seconds"] - 1)
    assert code == int(result["distance"] > 0.05) and result["best"] == {"cache_ratio": 0.1, "sampler_sms": 0}
    pytest.importorskip("matplotlib")
    assert (tmp_path / "tune-grid.png").read_bytes().startswith(b"\x89PNG")


def test_too_little_time(cora, shm, tmp_path, capsys):
    options = ["--epochs", "1000000", "--minutes", "0.01", "--out", str(tmp_path)]
    assert tune_grid.main([str(cora), *TINY, *options]) == 1
    assert "--minutes: expected time for the grid" in capsys.readouterr().err
    assert [line["failure"][:17] for line in lines_of(tmp_path)] == ["the time was over"]


@pytest.mark.gpu
def test_on_a_gpu(cora, shm, tmp_path):
    options = ["--device", "cuda", "--cache-ratio", "0,0.5", "--sampler-sms", "0,16", "--reuse", "--slots", "3"]
    options += ["--compress", "none", "--finals", "1", "--minutes", "20", "--out", str(tmp_path)]
    code = tune_grid.main([str(cora), *TINY[2:], *options])
    lines = lines_of(tmp_path)
    points = [(line["cache_ratio"], line["sampler_sms"]) for line in lines if line["step"] == "grid"]
    assert points == [(0, 0), (0, 16), (0.5, 0), (0.5, 16)] and all("seconds" in line for line in lines[:4])
    told = json.loads((tmp_path / "tune/tune.json").read_text())
    assert set(told["not_varied"]) == {"reuse", "slots", "compress"}
    assert code == int(lines[-1]["distance"] > 0.05)


def test_every_option_can_be_said_in_words():
    spec = RunSpec(fanout=[-1, 5], reuse=False, amp=True, cache_ratio=[0.1, 0.25], gpus=[1, 0])
    said = {each.name: getattr(spec, each.name) for each in options_of(RunSpec)}
    words = tune_grid.as_words({name: value for name, value in said.items() if value is not None})
    parser = argparse.ArgumentParser()
    add_options(parser, RunSpec)
    assert RunSpec(**given_in(parser.parse_args(list(map(str, words))), RunSpec)) == spec
