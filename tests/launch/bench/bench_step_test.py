"""``cohort bench step`` on the CPU: every kind of layers on the same batches."""

import itertools
import json

import numpy as np
import pytest
import torch
from processes import here, ran, refused
from torch_geometric.data import HeteroData

from cohort_gnn import NeighborLoader
from cohort_gnn.dataset import Task, TaskRows, from_pyg, write_task
from cohort_gnn.launch.main import main
from cohort_gnn.spec.models import ONE_TYPE

pytestmark = pytest.mark.usefixtures("shm")


def test_every_kind_of_layers_takes_the_same_step(cora, tmp_path):
    out = tmp_path / "bench.jsonl"
    options = ["--device", "cpu", "--batch-size", 30, "--hidden", 16, "--steps", 1, "--dropout", 0, "--out", out]
    done = ran("bench", "step", cora, *options)
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    kinds = {(line["model"], line["layers"], line["amp"]) for line in lines}
    both = {(model, layers, amp) for model in ONE_TYPE for layers in ("pyg", "cohort") for amp in (0, 1)}
    assert kinds == both | {("sage", "csr", False)} and len(lines) == len(kinds)
    for model in ONE_TYPE:
        losses = [line["loss"] for line in lines if line["model"] == model and not line["amp"]]
        assert max(losses) - min(losses) < 1e-3 * max(losses), "the same training on the same batches"
    assert all(line["seeds"] == 30 and line["nodes"] > 300 and line["ms"] > 0 for line in lines)
    assert all(line["batches"] == 4 for line in lines), "one a slot"
    rows = [row.split() for row in done.stdout.splitlines() if row.split()[:1] == ["sage"]]
    assert [row[1] for row in rows] == ["pyg", "pyg", "csr", "cohort", "cohort"]
    assert float(rows[3][-2]) == pytest.approx(lines[0]["ms"] / lines[3]["ms"], abs=0.01)


@pytest.fixture(scope="module")
def papers(tmp_path_factory):
    """Three node types, one of which has features; 120 papers to train on."""
    out = tmp_path_factory.mktemp("data") / "papers"
    sizes = ["--nodes", "1200", "--edges", "6K", "--dim", "8", "--classes", "3"]
    assert main(["dataset", "generate", str(out), "--kind", "typed", *sizes]) == 0
    return out


def test_models_of_typed_graphs_take_the_same_steps_with_both_kinds_of_layers(papers, tmp_path):
    out = tmp_path / "bench.jsonl"
    options = ["--device", "cpu", "--fanout", "4,3", "--batch-size", 16, "--hidden", 8, "--steps", 3, "--dropout", 0]
    options += ["--slots", 3, "--out", out]
    done = ran("bench", "step", papers, *options)
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    kinds = [(line["model"], line["layers"], line["amp"]) for line in lines]
    layers = [("pyg", False), ("pyg", True), ("cohort", False), ("cohort", True)]
    assert kinds == [(model, *each) for model in ("rsage", "rgcn", "rgat", "hgt") for each in layers]
    for model in ("rsage", "rgcn", "rgat", "hgt"):
        losses = [line["loss"] for line in lines if line["model"] == model and not line["amp"]]
        assert losses[0] == pytest.approx(losses[1], rel=1e-3), "the same training on the same batches"
    assert len({(line["nodes"], line["edges"]) for line in lines}) == 1
    assert all(line["batches"] == 3 and line["seeds"] == 16 and line["edges"] > 100 for line in lines)
    assert all(line["ms"] >= line["least_ms"] > 0 for line in lines)
    rows = [row.split() for row in done.stdout.splitlines() if row.split()[:1] == ["rgat"]]
    assert [row[1] for row in rows] == ["pyg", "pyg", "cohort", "cohort"]
    ms = {line["layers"]: line["ms"] for line in lines if line["model"] == "rgat" and not line["amp"]}
    assert float(rows[2][-2]) == pytest.approx(ms["pyg"] / ms["cohort"], abs=0.01)


@pytest.mark.gpu
def test_steps_on_a_gpu_have_a_peak_of_memory(papers, tmp_path):
    out = tmp_path / "bench.jsonl"
    options = ["--device", "cuda", "--fanout", "4,3", "--batch-size", 16, "--hidden", 8, "--steps", 3, "--out", out]
    ran("bench", "step", papers, *options, "--layers", "pyg,cohort")
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(lines) == 16 and all(line["peak_bytes"] > 0 and line["ms"] > 0 for line in lines)


def test_steps_of_a_task_take_its_batches_in_time(tmp_path):
    """Those of a loader, whose model reads the ages of items."""
    generator, rng, data = torch.Generator().manual_seed(3), np.random.default_rng(3), HeteroData()
    data["user"].x, data["item"].num_nodes = torch.randn(60, 4, generator=generator), 40
    data["item"].time = torch.randint(50, (40,), generator=generator)
    data["user", "buys", "item"].edge_index = torch.from_numpy(np.stack([np.arange(900) % 60, np.arange(900) % 40]))
    data["user", "buys", "item"].edge_time = torch.from_numpy(rng.integers(100, size=900))
    from_pyg(data, tmp_path / "set", target="user", reverse_edges=True)
    nodes, times, labels = rng.integers(60, size=120), rng.integers(50, 70, 120), rng.integers(2, size=120)
    splits = {
        name: TaskRows(nodes, times + later, labels) for name, later in {"train": 0, "val": 20, "test": 40}.items()
    }
    write_task(tmp_path / "set", Task("churn", "node", "user", splits, targets="classification", num_classes=2))
    how = {"input_time": times, "time_attr": "edge_time", "batch_size": 16, "shuffle": True, "device": "cpu"}
    with NeighborLoader(tmp_path / "set", [4, 3], ("user", nodes), **how) as loader:
        sizes = [batch.num_nodes for batch in itertools.islice(loader, 4)]
    options = ["--task", "churn", "--device", "cpu", "--fanout", "4,3", "--batch-size", 16, "--hidden", 8, "--steps", 1]
    options += ["--models", "rsage", "--layers", "cohort", "--amp", "off", "--out", tmp_path / "bench.jsonl"]
    ran("bench", "step", tmp_path / "set", *options)
    line = json.loads((tmp_path / "bench.jsonl").read_text())
    assert line["nodes"] == round(np.mean(sizes)) and line["seeds"] == 16 and np.isfinite(line["loss"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--models", "sage"], "--model: expected rsage, rgcn, rgat or hgt, for the types of"),
        (["--layers", "csr"], "--layers csr: expected sage among --models, and --amp off or both"),
        (["--models", "hgt", "--hidden", "10"], "--hidden: expected a multiple of 4, the --heads of hgt"),
        (["--models", "rgcn", "--heads", "2"], "--heads: expected --model rgat or hgt, found --model rgcn"),
    ],
)
def test_what_does_not_fit_a_typed_graph_is_refused(papers, arguments, words):
    refused(here("bench", "step", papers, "--device", "cpu", *arguments), 1, words)


def test_unknown_models_are_refused(papers, capsys):
    with pytest.raises(SystemExit):
        main(["bench", "step", str(papers), "--models", "rsage,rgin"])
    assert "--models" in (error := capsys.readouterr().err) and "rgin" in error


def test_sms_need_a_gpu(cora, capsys):
    assert main(["bench", "step", str(cora), "--device", "cpu", "--sms", "132,100"]) == 1
    assert "--sms: expected a GPU shared by MPS" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--ranks", "2"], "--ranks, --gpus: expected one trainer, found 2"),
        (["--out", "/dev/null/x"], "/dev/null/x: expected a file that can be appended to"),
    ],
)
def test_what_cannot_be_measured_is_said_before(cora, arguments, words):
    refused(here("bench", "step", cora, "--device", "cpu", *arguments), 1, words)
