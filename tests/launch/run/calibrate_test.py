"""`--cache-ratio auto`: the trainer's peak is measured by a short run, once, and remembered beside the data."""

import dataclasses
import json
import math
import shutil
import signal

import numpy as np
import pytest
from processes import ran

from cohort_gnn.base import files
from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.log import shown
from cohort_gnn.cache.options import memory_needs
from cohort_gnn.dataset import open as open_dataset
from cohort_gnn.launch import main
from cohort_gnn.launch.run import calibrate
from cohort_gnn.launch.run.calibrate import HEADROOM, peak_file, peak_key, trainer_bytes
from cohort_gnn.launch.run.programs import run_programs
from cohort_gnn.launch.run.stopping import STOP_SIGNALS
from cohort_gnn.launch.run.supervise import ReportedFailure
from cohort_gnn.spec.graph import EDGE_TYPE, NODE_TYPE
from cohort_gnn.spec.meta import read_meta
from cohort_gnn.spec.run import SamplerSpec, TrainerSpec, as_json

pytestmark = pytest.mark.usefixtures("shm", "aloud")

PEAK = 5_000_000_001


@pytest.fixture
def aloud():
    """What is logged is on standard error, as in a command."""
    with shown("stderr"):
        yield


@pytest.fixture
def data(cora, tmp_path):
    """Cora in a folder of its own."""
    folder = tmp_path / "cora"
    shutil.copytree(cora, folder, ignore=shutil.ignore_patterns("hotness-*", "peak-*"))
    return folder


def run_of(data, **trainer) -> dict:
    """What becomes run.json, on the CPU."""
    sizes = {"num_classes": 7, "feature_dim": 1433}
    spec = TrainerSpec(fanout=[4, 3], batch_size=100, hidden=8, epochs=2, lr=0.01, quiet=True, **sizes)
    sampler = {"dataset": str(data), "device": "cpu", "num_ranks": 1, "topology": "auto", "compress": "auto"}
    return {"mps": False, "sampler": sampler | {"reuse": True}, "trainer": {"task": "train"} | as_json(spec) | trainer}


class Measurements:
    """Stands for the short run."""

    def __init__(self):
        self.num = 0

    def __call__(self, run: dict) -> int:
        self.num += 1
        return PEAK


@pytest.fixture
def measurements(monkeypatch):
    found = Measurements()
    monkeypatch.setattr(calibrate, "_measure", found)
    return found


def test_of_a_data_set_that_cannot_be_written_the_user_keeps_the_peak(read_only, measurements, capsys):
    before = sorted(read_only.iterdir())
    for _ in range(2):
        assert trainer_bytes(open_dataset(read_only), run_of(read_only)) == math.ceil(HEADROOM * PEAK)
    assert measurements.num == 1 and sorted(read_only.iterdir()) == before
    assert "warning" not in capsys.readouterr().err


def test_a_peak_that_cannot_be_kept_is_measured_again(read_only, measurements, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null/nowhere")

    def refuse(path, _text):
        raise OSError(30, "Read-only file system", str(path))

    monkeypatch.setattr(files, "write_whole", refuse)
    for _ in range(2):
        assert trainer_bytes(open_dataset(read_only), run_of(read_only)) == math.ceil(HEADROOM * PEAK)
    said = capsys.readouterr().err
    assert measurements.num == 2 and "warning: the result is not kept" in said and str(read_only) in said


def test_what_others_use_of_the_gpus_is_left_to_them(data, measurements, monkeypatch):
    run = run_of(data)
    run["sampler"] |= {"device": "cuda", "gpus": [0, 2]}
    asked = []
    for used in ([1_000, 3_000_000_000], [7_000_000_000, 500]):
        monkeypatch.setattr(
            calibrate, "ask_sampler", lambda *words, used=used: asked.append(words) or {"used_bytes": used}
        )
        assert trainer_bytes(open_dataset(data), run) == math.ceil(HEADROOM * PEAK) + max(used)
    assert measurements.num == 1 and asked == [("--memory", "0", "2")] * 2


@pytest.mark.parametrize("used", [(2_000_000_000, 2_000_000_000), (6_000_000_000, 2_000_000_000), (PEAK, PEAK)])
def test_what_others_use_is_no_part_of_the_peak(data, monkeypatch, used):
    """Before and after it is measured."""
    run, answers = run_of(data), iter(used)
    run["sampler"] |= {"device": "cuda", "gpus": [0]}
    monkeypatch.setattr(calibrate, "ask_sampler", lambda *_: {"used_bytes": [next(answers)]})

    def short_run(folder, *_, **__):
        (folder / "summary.json").write_text(json.dumps({"trainer_peak_bytes": PEAK}))
        return 0

    monkeypatch.setattr(calibrate, "run_programs", short_run)
    if min(used) < PEAK:
        assert calibrate._measure(run) == PEAK - 2_000_000_000
        return
    with pytest.raises(CohortError, match="other programs change it") as error:
        calibrate._measure(run)
    assert "--trainer-bytes" in error.value.hint


def test_the_peak_is_measured_once(data, measurements, capsys):
    assert trainer_bytes(open_dataset(data), run_of(data)) == math.ceil(HEADROOM * PEAK)
    (file,) = data.glob("peak-*")
    first = capsys.readouterr().err
    assert "10 batches without a cache" in first and "5.00 GB" in first and str(file) in first
    again = run_of(data, epochs=9, lr=1.0, weight_decay=0.1, seed=5, quiet=False)
    assert trainer_bytes(open_dataset(data), again) == math.ceil(HEADROOM * PEAK)
    assert measurements.num == 1 and capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("part", "changed"),
    [
        ("trainer", {"model": "gat"}),
        ("trainer", {"hidden": 16}),
        ("trainer", {"fanout": [4, 3, 2], "eval_fanout": [4, 3, 2]}),
        ("trainer", {"eval_fanout": [-1, -1]}),
        ("trainer", {"batch_size": 200}),
        ("trainer", {"dropout": 0.0}),
        ("nodes", {"x": np.zeros((2708, 32), np.float32)}),
        ("sampler", {"num_ranks": 2}),
        ("sampler", {"topology": "gpu"}),
        ("trainer", {"compress": "none"}),
        ("data", {"num_classes": 8}),
        ("nodes", {"feature_dtype": "float16"}),
        ("nodes", {"num_rows": 2709}),
        ("edges", {"indices": np.arange(4)}),
    ],
    ids=str,
)
def test_what_changes_the_peak_has_a_file_of_its_own(data, part, changed):
    run, opened = run_of(data), open_dataset(data)
    before = peak_file(data, peak_key(opened, run))
    if part == "data":
        opened = dataclasses.replace(opened, **changed)
    elif part == "nodes":
        table = dataclasses.replace(opened.node_types[NODE_TYPE], **changed)
        opened = dataclasses.replace(opened, node_types={NODE_TYPE: table})
    elif part == "edges":
        edges = dataclasses.replace(opened.edge_types[EDGE_TYPE], **changed)
        opened = dataclasses.replace(opened, edge_types={EDGE_TYPE: edges})
    else:
        run[part].update(changed)
    assert peak_file(data, peak_key(opened, run)) != before


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[:30],
        lambda text: "[1]",
        lambda text: text.replace(str(PEAK), "0"),
        lambda text: text.replace(str(PEAK), "1e9"),
        lambda text: text.replace(str(PEAK), "true"),
        lambda text: text.replace('"sage"', '"gcn"'),
        lambda text: text.replace("trainer_peak_bytes", "peak_bytes"),
    ],
)
def test_a_damaged_file_is_said_and_measured_again(data, measurements, capsys, damage):
    trainer_bytes(open_dataset(data), run_of(data))
    (file,) = data.glob("peak-*")
    good = file.read_text()
    file.write_text(damage(good))
    assert file.read_text() != good
    capsys.readouterr()
    assert trainer_bytes(open_dataset(data), run_of(data)) == math.ceil(HEADROOM * PEAK) and measurements.num == 2
    assert f"{file} is damaged" in capsys.readouterr().err and file.read_text() == good


def test_the_short_run_takes_some_batches_of_each_pass(data, tmp_path):
    handlers = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    try:
        assert run_programs(tmp_path, run_of(data, max_batches=3), show_output=False) == 0
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert [(epoch["num_batches"], epoch["num_seeds"]) for epoch in summary["epochs"]] == [(3, 300)] * 2
    assert summary["trainer_peak_bytes"] is None and 0 <= summary["test_accuracy"] <= 1


def test_the_short_run_needs_a_gpu_and_leaves_signals_as_they_were(data, monkeypatch):
    handlers = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    run = run_of(data)
    with pytest.raises(CohortError, match="a run without a GPU"):
        calibrate._measure(run)
    assert {number: signal.getsignal(number) for number in STOP_SIGNALS} == handlers
    assert "channel" not in run["sampler"] and run["trainer"]["max_batches"] is None, "the real run is as it was"


def test_a_short_run_that_fails_ends_the_command_with_its_code(data, monkeypatch):
    monkeypatch.setattr(calibrate, "run_programs", lambda *_, **__: 130)
    with pytest.raises(ReportedFailure) as end:
        calibrate._measure(run_of(data))
    assert end.value.code == 130

    def end_so(*_):
        raise end.value

    monkeypatch.setattr(main, "_run", end_so)
    assert main.main([]) == 130


@pytest.mark.gpu
@pytest.mark.alone  # other tests change what is in use
def test_auto_on_a_gpu_measures_then_runs(data, tmp_path):
    options = ["--device", "cuda", "--fanout", "4,3", "--batch-size", 100, "--hidden", 8, "--epochs", 2, "--quiet"]
    arguments = ["train", data, *options, "--cache-ratio", "auto", "--gpu-memory", "20GB"]
    result = ran(*arguments, "--out", tmp_path / "run")
    assert "measuring the trainer's memory by 10 batches without a cache" in result.stderr
    (file,) = data.glob("peak-*")
    peak = json.loads(file.read_text())["trainer_peak_bytes"]
    run = json.loads((tmp_path / "run/run.json").read_text())
    meta = read_meta(data)
    spec = SamplerSpec(fanout=[4, 3], batch_size=100, slots=4, trainer_bytes=0)
    slots_bytes = memory_needs(spec, meta, []).slots_bytes
    topology_bytes = sum(np.load(data / f"{name}.npy", mmap_mode="r").nbytes for name in ("indptr", "indices"))
    (kept,) = run["sampler"]["cache_bytes"]
    used = 20_000_000_000 - slots_bytes - math.ceil(HEADROOM * peak) - topology_bytes - kept
    assert 0 < used < 20_000_000_000, "of the GPU by others, the asking program among them"
    assert run["sampler"]["topology"] == "gpu", "it and all rows have room"
    assert run["trainer"]["max_batches"] is None
    assert json.loads((tmp_path / "run/summary.json").read_text())["trainer_peak_bytes"] is None
    again = ran(*arguments, "--out", tmp_path / "again")
    assert "measuring the trainer" not in again.stderr


@pytest.mark.gpu
@pytest.mark.alone
def test_a_run_without_a_cache_reports_its_peak(data, tmp_path):
    options = ["--device", "cuda", "--fanout", "4,3", "--batch-size", 100, "--epochs", 1, "--quiet"]
    ran("train", data, *options, "--out", tmp_path)
    peak = json.loads((tmp_path / "summary.json").read_text())["trainer_peak_bytes"]
    assert peak > 100_000_000, "two CUDA contexts at least"
