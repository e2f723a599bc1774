"""`cohort tune`: what it varies, trials that are real runs, the files it leaves, and that nothing else stays."""

import argparse
import json
import math
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from processes import ALL_TESTS, SECONDS_TO_START, cohort, here, processes_of, ran, refused, wait_until

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset import open as open_dataset
from cohort_gnn.launch import main
from cohort_gnn.launch.options.parser import spec_of
from cohort_gnn.launch.tune.command import _make_fresh
from cohort_gnn.launch.tune.output import TuneResults, conclude, trial_table
from cohort_gnn.launch.tune.search import Axis
from cohort_gnn.launch.tune.space import Room, as_toml, axes_of, options_at, same_as, start_of, train_options
from cohort_gnn.launch.tune.trial import STOP_SECONDS, Trial
from cohort_gnn.spec.graph import EDGE_TYPE
from cohort_gnn.spec.meta import read_meta
from cohort_gnn.spec.run import RunSpec

START = {"cache_ratio": 0.0, "sampler_sms": 0, "slots": 4, "reuse": True, "compress": "auto"}
TINY = ["--device", "cpu", "--fanout", "4,3", "--batch-size", 100, "--hidden", 8]


def arguments(*texts) -> argparse.Namespace:
    return main.build_parser().parse_args(["tune", "data", *map(str, texts)])


def spec(*texts) -> RunSpec:
    return spec_of(arguments(*texts), RunSpec)


def data(raw: bool = True, encoded: bool = False):
    """What tuning looks at of a data set: 1000 nodes, 4000 edges."""
    arrays = {name: SimpleNamespace(nbytes=count) for name, count in {"indptr": 8008, "indices": 16000}.items()}
    rows = {"x": b"" if raw else None, "encoded_rows": "features.ibp" if encoded else None}
    tables, edges = [SimpleNamespace(**rows)], {EDGE_TYPE: SimpleNamespace(**arrays)}
    return SimpleNamespace(path=None, feature_tables=tables, edge_types=edges)


def test_what_is_varied():
    axes, fixed = axes_of(arguments(), "cuda", data(encoded=True))
    assert [axis.name for axis in axes] == list(START) and fixed == {}
    assert axes[0].values == (1.1, 0.5, 0.2, 0.1, 0.05, 0.01, 0.0)
    assert axes[4].values == ("auto", "none", "cache", "host", "both")
    axes, fixed = axes_of(arguments("--slots", 4, "--cache-ratio", 0.1), "cuda", data(raw=False, encoded=True))
    assert [axis.name for axis in axes] == ["sampler_sms", "reuse", "compress"]
    assert axes[2].values == ("auto", "host", "both")
    assert fixed == {"cache_ratio": "given", "slots": "given"}, "though 4 is the default"
    axes, fixed = axes_of(arguments("--cache-bytes", "1GB", "--reuse"), "cuda", data())
    assert [axis.name for axis in axes] == ["sampler_sms", "slots", "compress"] and axes[2].values == ("none", "cache")
    assert fixed == {"cache_ratio": "--cache-bytes is given", "reuse": "given"}
    axes, fixed = axes_of(arguments("--cache-ratios", "0,0.3"), "cpu", data(encoded=True))
    assert axes == [Axis("slots", (3, 4, 6)), Axis("compress", ("auto", "none", "host"))]
    assert set(fixed.values()) == {"no effect on the CPU"}
    assert axes_of(arguments("--cache-ratios", "0,0.3"), "cuda", data())[0][0].values == (0.3, 0.0)
    fixed = axes_of(arguments("--coarse-epochs", 2), "cuda", data(encoded=True))[1]
    assert fixed == {"compress": "--coarse-epochs is given"}


def test_options_of_a_file_are_where_to_begin(tmp_path):
    path = tmp_path / "base.toml"
    path.write_text('cache-ratio = 0.2\nslots = 6\nepochs = 50\nout = "runs/x"\nquiet = true\nmodel = "gat"\n')
    args = arguments("--config", path, "--epochs", 2, "--out", tmp_path)  # of the tuning, not of the runs
    assert axes_of(args, "cuda", data())[1] == {}
    start = start_of(spec_of(args, RunSpec), is_prepared=True)
    assert start == START | {"cache_ratio": 0.2, "slots": 6}
    at = options_at(args, start)
    own = {"epochs": 50, "out": Path("runs/x"), "quiet": True}
    given = {"slots": 6, "cache_ratio": [0.2], "model": "gat"} | own
    assert at(start) == given
    assert at(start | {"cache_ratio": 0.0, "sampler_sms": 8}) == {
        name: value for name, value in given.items() if name != "cache_ratio"
    } | {"sampler_sms": 8}
    assert train_options(arguments("--quiet", "--epochs", 5, "--out", "x")) == {}


def test_starts():
    assert start_of(spec(), is_prepared=False) == START | {"compress": "none"}
    assert start_of(spec("--cache-ratio", "auto"), True)["cache_ratio"] == "auto"
    assert start_of(spec("--cache-ratio", "0.1,0.2"), True)["cache_ratio"] == [0.1, 0.2]
    assert start_of(spec("--cache-ratio", "0"), True)["cache_ratio"] == 0
    assert start_of(spec("--cache-bytes", "1GB"), True) == START | {"cache_ratio": None}


META = {  # 1 MB of rows
    "version": 1,
    "nodes": [{"count": 1000, "features": {"dim": 250, "dtype": "float32"}}],
    "edges": [{"count": 4000}],
    "target": {"task": "classification", "label_dtype": "int64", "num_classes": 2},
}


@pytest.mark.parametrize(
    ("ratio", "device", "compress", "meant"),
    [
        (0.0, "cuda", "auto", "host"),  # without a cache there are no rows in slabs
        (0.0, "cuda", "cache", "none"),
        (0.1, "cuda", "auto", "both"),
        (0.1, "cuda", "cache", "cache"),
        (1.1, "cuda", "auto", "host"),  # raw rows have room in it
        ([1.1, 1.1], "cuda", "auto", "host"),
        ([1.1, 0.5], "cuda", "auto", "both"),
        ("auto", "cuda", "auto", "auto"),  # that is known when the run is
        (None, "cuda", "auto", "auto"),
        (0.1, "cpu", "auto", "host"),
    ],
)
def test_compression_that_means_the_same_is_tried_once(ratio, device, compress, meant):
    point = START | {"cache_ratio": ratio, "compress": compress}
    assert same_as(point, device, META) == point | {"compress": meant}


def fitting(*texts, peak=None) -> list[float]:
    options = spec("--cache-policy", "degree", "--batch-size", 10, "--fanout", 2, *texts)
    room = Room(options, META, data())
    room.learn(peak)
    return [ratio for ratio in (0.0, 0.1, 0.5, 1.1) if room.fits(START | {"cache_ratio": ratio})]


def test_ratios_fit_by_the_rule_of_the_plan():
    assert fitting("--gpu-memory", "1GB") == [0.0, 0.1, 0.5, 1.1]
    assert fitting("--gpu-memory", "1800KB") == [0.0, 0.1, 0.5]
    assert fitting("--gpu-memory", "1800KB", "--trainer-bytes", "600KB") == [0.0, 0.1]
    assert fitting("--gpu-memory", "1800KB", peak=600_000) == [0.0, 0.1], "as the first trial has seen it"
    assert fitting("--gpu-memory", "1800KB", "--trainer-bytes", "1KB", peak=600_000) == [0.0, 0.1, 0.5]


def test_the_largest_batch_is_the_one_that_was_counted(cora, shm):
    meta = read_meta(cora)
    options = spec("--gpu-memory", "1GB", "--batch-size", 10, "--fanout", "2", "--presample-batches", 2)
    room = Room(options, meta, open_dataset(cora))
    assert room.fits(START | {"cache_ratio": 0.5}) and not room.fits(START | {"cache_ratio": 100.0})


def test_types_share_the_cache(tmp_path, shm):
    folder = tmp_path / "typed"
    ran("dataset", "generate", folder, "--kind", "typed", "--nodes", 1200, "--edges", 9000, "--dim", 32)
    graph, meta = open_dataset(folder), read_meta(folder)
    axes, _ = axes_of(arguments("--model", "rsage"), "cuda", graph)
    assert axes[4].values == ("none", "cache"), "no type has encoded rows"
    assert same_as(START | {"cache_ratio": 1.3}, "cuda", meta)["compress"] == "host"
    assert same_as(START | {"cache_ratio": 0.5}, "cuda", meta)["compress"] == "both"
    options = spec("--gpu-memory", "20MB", "--batch-size", 10, "--fanout", "2,2", "--presample-batches", 2)
    room = Room(options, meta, graph)
    assert room.fits(START | {"cache_ratio": 0.5}) and not room.fits(START | {"cache_ratio": 200.0})
    assert len(list(folder.glob("hotness-*"))) == 1, "what both plans were made by"


def test_every_option_comes_back_from_a_file(tmp_path):
    texts = ["--fanout", "-1,5", "--cache-ratio", "0.1,0.25", "--lr", "1e-5", "--no-mps", "--line-ns", "1,2,3"]
    texts += ["--gpus", "0,1", "--gpu-memory", "80GB", "--seed", str(2**62), "--eval-fanout", "4,4", "--cliques", "2x4"]
    texts += ["--bandwidth", "1500,360,51.5", "--weight-decay", "0.5", "--order", "asis", "--sampler-sms", "16"]
    options = train_options(arguments(*texts))
    (tmp_path / "run.toml").write_text("# a line\n" + as_toml(options))
    assert spec("--config", tmp_path / "run.toml") == spec(*texts)


def test_files_that_runs_read_are_found_from_other_folders(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = train_options(arguments("--seed-order", "parts.npy", "--init", "runs/before", "--model", "gat"))
    assert options == {"seed_order": str(tmp_path / "parts.npy"), "init": tmp_path / "runs/before", "model": "gat"}


@pytest.fixture(scope="module")
def tuned(cora, tmp_path_factory, shm):
    """(folder, what was said) of tuning on the CPU, from options of a file."""
    folder = tmp_path_factory.mktemp("tune")
    (folder / "base.toml").write_text('epochs = 7\nlr = 0.01\nmodel = "gcn"\n')
    options = [*TINY, "--config", folder / "base.toml", "--epochs", 2, "--minutes", 0.6]
    result = ran("tune", cora, *options, "--out", folder / "out")
    assert processes_of(folder) == {}
    return folder / "out", result


def test_trials_are_runs_and_the_best_is_told(tuned):
    out, result = tuned
    found = json.loads((out / "tune.json").read_text())
    trials = found["trials"]
    assert trials[0]["options"] == START | {"compress": "none"} and 2 <= len(trials) <= 3
    assert not found["stopped"] and set(found["not_varied"]) == {"cache_ratio", "sampler_sms", "reuse", "compress"}
    for number, trial in enumerate(trials, 1):
        assert (trial["trial"], trial["folder"], trial["failure"]) == (number, f"trial-{number:02}", None)
        run = json.loads((out / trial["folder"] / "run.json").read_text())
        summary = json.loads((out / trial["folder"] / "summary.json").read_text())
        assert run["sampler"]["num_slots"] == trial["options"]["slots"] and run["trainer"]["lr"] == 0.01
        assert [epoch["epoch"] for epoch in summary["epochs"]] == [0, 1]
        for name in ("seconds", "wait_seconds", "train_seconds", "sample_seconds", "fetch_seconds"):
            assert trial[name] == summary["epochs"][1][name], "the first epoch is not counted"
        read, batches = (sum(epoch[name] for epoch in summary["epochs"]) for name in ("host_bytes", "num_batches"))
        assert trial["host_bytes"] >= read / batches and trial["hit_rate"] == 0
    least = min(trial["seconds"] for trial in trials)
    chosen = trials[found["best"] - 1]
    assert chosen is trials[0] or chosen["seconds"] <= 1.02 * least < trials[0]["seconds"]
    for trial in trials:
        assert f"{trial['seconds']:.4f}" in result.stdout and f"trial {trial['trial']}: " in result.stderr
    assert "no effect on the CPU" in result.stdout and f"cohort report {out / chosen['folder']}" in result.stdout


def test_train_takes_the_file(tuned, cora, tmp_path):
    out, _ = tuned
    number = json.loads((out / "tune.json").read_text())["best"]
    ran("train", cora, "--config", out / "run.toml", "--quiet", "--out", tmp_path / "run")
    own, best_ran = (
        json.loads((folder / "run.json").read_text()) for folder in (tmp_path / "run", out / f"trial-{number:02}")
    )
    assert own["trainer"].pop("epochs") == 7 and best_ran["trainer"].pop("epochs") == 2
    assert own["trainer"] == best_ran["trainer"]
    for each in (own, best_ran):
        del each["sampler"]["channel"], each["sampler"]["owner_pid"]
    assert own["sampler"] == best_ran["sampler"]
    seconds = json.loads((out / "tune.json").read_text())["trials"][number - 1]["seconds"]
    assert f"an epoch took {seconds:.4f} s" in (out / "run.toml").read_text().splitlines()[0]


@pytest.mark.parametrize(
    ("number", "moment"),
    [
        (signal.SIGINT, "second"),
        (signal.SIGTERM, "first"),
        *[(signal.SIGINT, "first"), (signal.SIGTERM, "second")] * ALL_TESTS,
    ],
)
def test_it_is_told_to_stop(cora, shm, tmp_path, number, moment):
    out = tmp_path / "out"
    epochs = 2 if moment == "second" else 1_000_000
    command = ["tune", *map(str, [cora, *TINY, "--out", out, "--epochs", epochs])]
    with open(tmp_path / "said", "w") as said:
        tuning = subprocess.Popen([sys.executable, "-m", "cohort_gnn", *command], stdout=said, stderr=said)
    trial = out / ("trial-02" if moment == "second" else "trial-01")
    wait_until(lambda: len(processes_of(trial / "run.json")) == 2, SECONDS_TO_START, "starting the trial")
    tuning.send_signal(number)
    assert tuning.wait(timeout=STOP_SECONDS) == 128 + number
    assert processes_of(out) == {} and shm.runs() == []
    text = (tmp_path / "said").read_text()
    assert f"stopped by signal {number}" in text and "Traceback" not in text
    if moment == "first":
        assert "no trial had ended" in text and [path.name for path in out.iterdir()] == ["trial-01"]
        return
    found = json.loads((out / "tune.json").read_text())
    assert found["stopped"] and found["best"] == 1 and len(found["trials"]) == 1
    assert "batch-size = 100" in (out / "run.toml").read_text() and "best: trial 1" in text


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ([], ["the trainer", "the training nodes: expected labels"]),
        (["--model", "gat", "--hidden", 30], ["cohort: --hidden: expected a multiple of 4"]),
        (["--eval-fanout", "1"], ["cohort: --eval-fanout: expected 2 hops"]),
        (
            ["--epochs", 1000000, "--minutes", 0.001],
            ["--minutes 0.001: expected time for one run of 1000000 epochs", "the time was over"],
        ),
        (["--epochs", 1], ["--epochs: expected at least 2"]),
        (["--cache-ratio", 0.1, "--cache-ratios", "0,1"], ["expected one of the two, found both"]),
    ],
    ids=["trainer", "model", "arguments", "minutes", "epochs", "ratios"],
)
def test_the_first_trial_fails(cora, shm, tmp_path, more, words):
    data = cora if more else without_labels(cora, tmp_path / "data")
    result = cohort("tune", data, *TINY, *more, "--out", tmp_path / "out")
    assert (result.returncode, result.stdout) == (1, ""), result.stderr
    assert all(word in result.stderr for word in words) and "Traceback" not in result.stderr, result.stderr
    assert processes_of(tmp_path) == {}
    assert not list(tmp_path.glob("out/*.json")) and not list(tmp_path.glob("out/run.toml"))


def without_labels(data: Path, copy: Path) -> Path:
    """A copy of a data set on which trainers fail."""
    shutil.copytree(data, copy)
    np.save(copy / "labels.npy", np.full_like(np.load(data / "labels.npy"), -1))
    return copy


def test_what_is_refused_before_any_trial(cora, tmp_path):
    (tmp_path / "file").write_text("")
    for arguments, words in (
        ([tmp_path / "nowhere", "--out", tmp_path / "out"], "nowhere"),
        ([cora, "--device", "cpu", "--out", tmp_path / "file"], "expected a folder that can be written"),
    ):
        result = here("tune", *arguments)
        assert (result.returncode, result.stdout) == (1, "") and words in result.stderr, result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def trial_of(folder, number: int, cost: float | None, **changed) -> Trial:
    """A trial that took so long; None: it failed."""
    trial = Trial(number, folder / f"trial-{number:02}", START | changed, {"hidden": 8} | changed)
    if cost is None:
        trial.failure = "x" * 300
        return trial
    names = ("seconds", "wait_seconds", "train_seconds", "all_reduce_seconds", "sample_seconds", "fetch_seconds")
    trial.times = dict(zip(names, (cost, cost - 0.1, 0.1, 0.0, 0.01, cost - 0.05), strict=True))
    trial.host_bytes, trial.hit_rate, trial.planned_hit_rate = 1e6, 0.25, 0.5
    return trial


@pytest.mark.parametrize(("file", "overwrite"), [("run.json", True), ("tune.json", False), ("run.toml", True)])
def test_a_folder_of_results_is_left_alone(cora, tmp_path, file, overwrite):
    (tmp_path / file).write_text("{}")
    result = here("tune", cora, *TINY, "--out", tmp_path, *["--overwrite"] * overwrite)
    found = "run.toml, which no tuning has written" if file == "run.toml" else "the folder of"
    refused(result, 1, f"{tmp_path}: expected a new folder, found {found}")
    assert [path.name for path in tmp_path.iterdir()] == [file]


def test_an_earlier_tuning_is_replaced_whole(tmp_path):
    """One that found nothing without being asked to."""
    for overwrite in (True, False):
        for name in ("trial-07", "trial-1-mine"):
            (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / "trial-07" / "options.toml").touch()
        if overwrite:
            (tmp_path / "tune.json").write_text("{}")
        _make_fresh(tmp_path, overwrite)
        assert {path.name for path in tmp_path.iterdir()} == {"trial-1-mine", *["earlier"] * overwrite}
        if overwrite:
            assert {path.name for path in (tmp_path / "earlier").iterdir()} == {"trial-07", "tune.json"}
            with pytest.raises(CohortError, match="found the folder of an earlier tuning"):
                _make_fresh(tmp_path, overwrite=False)
            shutil.rmtree(tmp_path / "earlier")
    (tmp_path / "trial-08").mkdir()
    with pytest.raises(CohortError, match="found trial-08, which no tuning has written"):
        _make_fresh(tmp_path, overwrite=True)


def test_an_earlier_tuning_is_there_until_there_is_another(cora, tmp_path):
    (tmp_path / "trial-01").mkdir()
    (tmp_path / "trial-01" / "options.toml").touch()
    (tmp_path / "tune.json").write_text('{"mine": 1}')
    command = ["tune", cora, *TINY, "--epochs", 2, "--out", tmp_path, "--overwrite", "--minutes"]
    for _ in range(2):
        done = here(*command, 0.001)  # not even one run
        assert done.returncode == 1 and f"the earlier tuning is in {tmp_path / 'earlier'}" in done.stderr, done.stderr
        assert (tmp_path / "earlier" / "tune.json").read_text() == '{"mine": 1}'
        assert (tmp_path / "earlier" / "trial-01" / "options.toml").exists() and not (tmp_path / "tune.json").exists()
    done = here(*command, 0.4)
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "earlier").exists() and "mine" not in (tmp_path / "tune.json").read_text()


def test_the_table_has_a_row_trial_of(tmp_path):
    trials = [trial_of(tmp_path, 1, 0.5), trial_of(tmp_path, 2, 0.3, cache_ratio=1.1)]
    trials += [trial_of(tmp_path, 3, 0.4, cache_ratio=0.1), trial_of(tmp_path, 4, 0.35, cache_ratio=0.1, sampler_sms=8)]
    trials += [trial_of(tmp_path, 5, None, cache_ratio=0.5)]
    results = TuneResults(tmp_path, tmp_path / "data", "cuda", 3, START, {"slots": "given"}, trials, False)
    conclude(results, quiet=False)
    table = trial_table(results)
    assert table.columns[:4] == ["trial", "cache-ratio", "sampler-sms", "epoch s"], "the options that differ"
    assert [row[-1][:8] for row in table.rows] == ["as given", "best", "", "", "failed: "]
    assert table.rows[1][1:3] == ["1.1", "0"] and table.rows[1][-4:-1] == ["1.00 MB", "50.00", "25.00"]
    assert len(table.rows[4][-1]) < 150 and "slots (given)" in table.note
    assert (
        "cache_ratio" not in (tmp_path / "run.toml").read_text()
        and "cache-ratio = 1.1" in (tmp_path / "run.toml").read_text()
    )


@pytest.mark.parametrize(
    ("cost", "spread", "is_kept"),
    [(0.995, 0.0, True), (0.9, 0.0, False), (0.97, 0.2, True), (0.97, 0.0, False), (0.9, 0.2, False), (1.01, 0, True)],
)
def test_options_that_gain_less_than_epochs_differ_are_not_taken(tmp_path, capsys, cost, spread, is_kept):
    trials = [trial_of(tmp_path, 1, 1.0), trial_of(tmp_path, 2, cost, slots=6)]
    trials[1].spread = spread
    fixed = {"cache_ratio": "given"}
    conclude(TuneResults(tmp_path, tmp_path / "data", "cuda", 3, START, fixed, trials, False), quiet=False)
    said = capsys.readouterr()
    assert ("best: trial 1, the options as given" in said.out) == is_kept
    noise = min(max(0.02 * cost, spread), 0.04 * cost)
    told = f"trial 2, slots 6, took {1 - cost:.4f} s less: within the difference of {noise:.4f} s between epochs"
    assert (told in said.out) == (is_kept and cost < 1)
    assert ("slots = 6" in (tmp_path / "run.toml").read_text()) != is_kept


def test_a_trial_that_fails_or_takes_too_long(cora, shm, tmp_path):
    small = {"device": "cpu", "fanout": [4, 3], "hidden": 30}
    failed = Trial(1, tmp_path / "failed", START, small)
    failed.run(without_labels(cora, tmp_path / "data"), 2, 60, lambda: None)
    assert failed.cost == math.inf and not failed.is_over_time
    assert failed.failure.startswith("CohortError: the training nodes") and "the trainer" in failed.message
    assert "to continue" not in failed.message
    (failed.folder / "tune.log").write_text("")  # as on a full disk
    failed._fail(1)
    assert (
        failed.message.startswith(f"{failed.folder}/tune.log: expected why")
        and "exit code 1\n  hint:" in failed.message
    )
    slow = Trial(2, tmp_path / "slow", START, small)
    slow.run(cora, 1_000_000, 1, lambda: None)
    assert slow.is_over_time and slow.cost == math.inf and "the time was over after" in slow.failure
    assert processes_of(tmp_path) == {} and shm.runs() == []


@pytest.mark.gpu
def test_on_a_gpu_the_cache_is_varied(cora, shm, tmp_path):
    options = ["--fanout", "4,3", "--batch-size", 100, "--hidden", 8, "--epochs", 2, "--minutes", 4]
    out = tmp_path / "out"
    options += ["--cache-ratios", "0,0.5", "--slots", 3, "--out", out]
    ran("tune", cora, "--device", "cuda", *options, timeout=300)
    found = json.loads((out / "tune.json").read_text())
    ratios = {trial["options"]["cache_ratio"]: trial for trial in found["trials"] if not trial["failure"]}
    assert set(ratios) == {0.0, 0.5} and found["not_varied"] == {"slots": "given"}
    assert ratios[0.5]["hit_rate"] == pytest.approx(ratios[0.5]["planned_hit_rate"], abs=0.1)
    assert processes_of(out) == {}
