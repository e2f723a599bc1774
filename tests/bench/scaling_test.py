"""bench/scaling.py: what it varies, the lines it lays through sizes, and a small measurement on the CPU."""

import json
import statistics
from pathlib import Path

import numpy as np
import pytest
from documents import ROOT, module

from cohort_gnn import dataset
from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset import open as open_dataset
from cohort_gnn.launch.report import charts as report_charts
from cohort_gnn.spec.run import RunSpec

scaling = module(ROOT / "bench/scaling.py")
SMALL = ["--device", "cpu", "--batch-size", "40", "--hidden", "8", "--epochs", "2"]


def series(size: str, xs: list[float], seconds: list[float]) -> scaling.Series:
    """Of runs of 1000 seeds."""
    lines = [{size: x, "seconds": each, "seeds": 1000} for x, each in zip(xs, seconds, strict=True)]
    told = {"fanout": [5, 10], "edges": 7e6, "rows": 3e6, "batches": 24}
    return scaling.Series("GPUs" if size == "ranks" else size, size, size, [told | line for line in lines])


def test_a_line_is_laid_by_least_squares():
    line = scaling.line_through([1, 2, 4], [3.0, 5.0, 9.0])
    assert (line.slope, line.start) == pytest.approx((2, 1)) and line.largest == pytest.approx(0, abs=1e-12)
    line = scaling.line_through([0, 1, 2], [1.0, 4.0, 1.0])
    assert (line.slope, line.start) == pytest.approx((0, 2), abs=1e-12)
    assert line.deviations == pytest.approx([-0.5, 1, -0.5]) and line.largest == pytest.approx(1)
    assert scaling.line_through([1, 2], [3.0, 5.0]) is None, "it would say nothing"
    assert scaling.line_through([1, 1, 2], [3.0, 3.1, 5.0]) is None


def test_gpus_are_compared_by_seeds_a_second():
    found = series("ranks", [1, 2, 4], [1.0, 0.5, 0.4])
    assert found.ys == [1000, 2000, 2500]
    table = scaling.table_of(found)
    column = table.columns.index("efficiency %")
    assert [row[column] for row in table.rows] == ["100.0", "100.0", "62.5"]
    assert [row[column - 1] for row in table.rows] == ["1,000", "2,000", "2,500"]
    deviations = [float(row[-1]) for row in table.rows]
    assert f"largest deviation {max(map(abs, deviations)):.2f} %" in table.note


def test_the_table_has_what_the_line_says():
    table = scaling.table_of(series("edges", [1e6, 2e6, 4e6], [0.2, 0.3, 0.5]))
    assert [row[-2] for row in table.rows] == ["0.2000", "0.3000", "0.5000"]
    assert [float(row[-1]) for row in table.rows] == [0, 0, 0]
    assert "epoch s = 1e-07 x edges +0.1" in table.note
    pair = scaling.table_of(series("edges", [1e6, 2e6], [0.2, 0.3]))
    assert [row[-2:] for row in pair.rows] == [["-", "-"]] * 2 and "less than three sizes" in pair.note


def test_the_picture_has_a_panel_a_series(monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(report_charts, "png_of", lambda figure: figure)
    found = [series("edges", [1, 2, 3], [1.0, 2.0, 4.0]), series("ranks", [1, 2], [1.0, 0.6]), series("rows", [], [])]
    figure = scaling.draw(found)
    assert [len(axes.lines) for axes in figure.axes] == [2, 2, 0], "points and their line, or what would be ideal"
    points, ideal = figure.axes[1].lines
    assert list(points.get_ydata()) == pytest.approx([1000, 1000 / 0.6]) and ideal.get_linestyle() == ":"
    assert figure.axes[0].get_xlabel() == "edges, an epoch" and figure.axes[1].get_ylabel() == "seeds a second"


def test_a_share_of_the_training_nodes(graph, tmp_path):
    whole = open_dataset(graph)
    part = open_dataset(scaling.with_train_share(graph, 0.25, tmp_path / "part"))
    assert len(part.train_ids) == round(0.25 * len(whole.train_ids))
    assert set(part.train_ids) < set(whole.train_ids) and part.train_ids[-1] >= np.quantile(whole.train_ids, 0.7)
    assert np.array_equal(part.val_ids, whole.val_ids) and np.array_equal(part.indices, whole.indices)
    again = open_dataset(scaling.with_train_share(graph, 1e-9, tmp_path / "part"))
    assert len(again.train_ids) == 1 and len(open_dataset(graph).train_ids) == len(whole.train_ids)


class FakeTrials:
    """Runs on four GPUs whose epochs take as long as their options are long."""

    def __init__(self, out):
        self.device, self.gpus, self.out, self.dataset = "cuda", dict.fromkeys(range(4), "GPU"), out, out / "data"
        self.spec = RunSpec()
        self.base, self.calls = {"hidden": 8, "fanout": [[1, 1], [2, 2]], "gpus": [3], "ranks": [1, 2]}, []

    def run(self, told: dict, options: dict, dataset) -> dict:
        self.calls.append((options, dataset))
        counts = dict.fromkeys(("edges", "rows", "seeds", "batches"), 10)
        return told | counts | ({"failure": "no memory"} if told["ranks"] == 4 else {"seconds": 1.0})


def parsed(*texts):
    return scaling.build_parser().parse_args(["data", "--fanout", "1,1/2,2", "--train-shares", "1", *texts])


def test_on_gpus_each_has_a_trainer(tmp_path):
    trials = FakeTrials(tmp_path)
    edges, rows, gpus = scaling.measure(parsed(), trials)
    one = {"hidden": 8, "fanout": [2, 2], "gpus": [0]}
    assert [options for options, _ in trials.calls] == [
        one | {"fanout": [1, 1]},
        one,
        one | {"gpus": [0, 1]},
        one | {"gpus": [0, 1, 2, 3]},
    ]
    assert {dataset for _, dataset in trials.calls} == {trials.dataset}
    assert (edges.xs, rows.xs, gpus.size, gpus.xs) == ([10, 10], [10], "GPUs", [1, 2]), "failed runs are left out"


def test_gpus_that_are_named_are_those_to_use(tmp_path):
    trials = FakeTrials(tmp_path)
    trials.spec = RunSpec(gpus=[3, 1])
    scaling.measure(parsed(), trials)
    assert [options["gpus"] for options, _ in trials.calls] == [[3], [3], [3, 1]]
    with pytest.raises(CohortError, match="--ranks: expected at most 2, the GPUs to use, found 3"):
        scaling.measure(parsed("--ranks", "1,3"), trials)


@pytest.fixture(scope="module")
def graph(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("scaling") / "graph"
    dataset.generate(folder, kind="sbm", nodes=1000, edges=6000, dim=16, classes=4, split=(0.15, 0.1, 0.1))
    return folder


@pytest.fixture(scope="module")
def measured(graph, tmp_path_factory, shm):
    """(folder, exit code) of three fanouts, two shares and two numbers of trainers."""
    out = tmp_path_factory.mktemp("scaling")
    options = ["--fanout", "1,2/3,2/6,4", "--train-shares", "0.5,1", "--ranks", "1,2", "--out", str(out)]
    return out, scaling.main([str(graph), *SMALL, *options])


def test_a_run_is_made_once(measured):
    out, code = measured
    lines = [json.loads(line) for line in (out / "scaling.jsonl").read_text().splitlines()]
    assert code == 0 and [(line["fanout"], line["train_share"], line["ranks"]) for line in lines] == [
        ([1, 2], 1, 1),
        ([3, 2], 1, 1),
        ([6, 4], 1, 1),
        ([6, 4], 0.5, 1),
        ([6, 4], 1, 2),
    ]
    for number, line in enumerate(lines, 1):
        epoch = json.loads((out / f"run-{number:02}" / "summary.json").read_text())["epochs"][1]
        assert line["seconds"] == (epoch["ranks"][0] if epoch["ranks"] else epoch)["seconds"]
        for size in ("edges", "seeds", "batches"):
            assert line[size] == epoch[f"num_{size}"]
        assert line["rows"] == epoch["row_tiers"]["host"]["rows"] > epoch["num_nodes"], "all are read from the host"
        assert line["options"]["hidden"] == 8 and line["device"] == "cpu"


def test_the_sizes_are_as_varied(measured, graph):
    lines = [json.loads(line) for line in (measured[0] / "scaling.jsonl").read_text().splitlines()]
    few, more, whole, half, two = lines
    assert few["edges"] < more["edges"] < whole["edges"] and few["seeds"] == whole["seeds"]
    assert whole["seeds"] == len(open_dataset(graph).train_ids) and half["seeds"] == round(whole["seeds"] / 2)
    assert 0.3 < half["rows"] / whole["rows"] < 0.7
    assert (two["edges"], two["rows"], two["batches"]) == (whole["edges"], whole["rows"], whole["batches"])


def test_times_are_medians_of_the_epochs_after_the_first(graph, tmp_path, shm):
    scaling.main(
        [str(graph), *SMALL[:-1], "4", "--fanout", "2,2", "--ranks", "1", "--train-shares", "1", "--out", str(tmp_path)]
    )
    (line,) = [json.loads(line) for line in (tmp_path / "scaling.jsonl").read_text().splitlines()]
    epochs = json.loads((tmp_path / "run-01/summary.json").read_text())["epochs"][1:]
    assert line["seconds"] == statistics.median(epoch["seconds"] for epoch in epochs)
    assert line["edges"] == pytest.approx(statistics.mean(epoch["num_edges"] for epoch in epochs))


def test_runs_that_the_time_does_not_allow_are_told(graph, tmp_path, shm, capsys):
    options = ["--fanout", "2,2/3,3", "--ranks", "1", "--train-shares", "1", "--out", str(tmp_path)]
    options += ["--epochs", "1000000", "--minutes", "0.02"]
    assert scaling.main([str(graph), *SMALL, *options]) == 1
    lines = [json.loads(line) for line in (tmp_path / "scaling.jsonl").read_text().splitlines()]
    assert [line["failure"][:11] for line in lines] == ["the time wa", "no time was"]
    assert "no time was left" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--epochs", "1"], "--epochs: expected at least 2"),
        (["--shape", "reddit"], "DIR, --shape: expected one of the two, found both"),
        (["--out", "/dev/null/out"], "/dev/null/out: expected a folder that can be written"),
        (["--config", "nowhere.toml"], "nowhere.toml: expected a TOML file of options"),
    ],
)
def test_arguments_that_contradict_themselves(graph, tmp_path, capsys, options, words):
    assert scaling.main([str(graph), "--device", "cpu", "--out", str(tmp_path / "out"), *options]) == 1
    assert words in capsys.readouterr().err and not (tmp_path / "out").exists()


@pytest.mark.parametrize("options", [["--train-shares", "0.5,1.5"], ["--train-shares", "0"], ["--ranks", "0"]])
def test_sizes_that_are_none(graph, options, capsys):
    with pytest.raises(SystemExit):
        scaling.main([str(graph), *options])
    assert options[0] in capsys.readouterr().err
