"""``cohort bench step`` on the CPU: every kind of layers on the same batches."""

import json

import pytest
from processes import here, ran, refused

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


def test_learned_rows_are_part_of_the_step(papers, tmp_path):
    options = ["--device", "cpu", "--fanout", "4,3", "--batch-size", 16, "--hidden", 8, "--steps", 2]
    options += ["--models", "rsage", "--layers", "cohort", "--amp", "off", "--dropout", 0]
    losses = []
    for featureless in ("zero", "embed"):
        ran("bench", "step", papers, *options, "--featureless", featureless, "--out", tmp_path / featureless)
        losses.append(json.loads((tmp_path / featureless).read_text())["loss"])
    assert losses[0] != losses[1]


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
