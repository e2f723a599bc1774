"""``cohort bench step`` on the CPU: every kind of layers on the same batch."""

import json

import pytest
from processes import cohort

from cohort.launch.main import main

pytestmark = pytest.mark.usefixtures("shm")


def test_every_kind_of_layers_takes_the_same_step(cora, tmp_path):
    out = tmp_path / "bench.jsonl"
    options = ["--device", "cpu", "--batch-size", 200, "--hidden", 16, "--steps", 2, "--dropout", 0, "--out", out]
    done = cohort("bench", "step", cora, *options)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    kinds = {(line["model"], line["layers"], line["amp"]) for line in lines}
    both = {(model, layers, amp) for model in ("sage", "gcn", "gat") for layers in ("pyg", "cohort") for amp in (0, 1)}
    assert kinds == both | {("sage", "csr", False)} and len(lines) == len(kinds)
    for model in ("sage", "gcn", "gat"):
        losses = [line["loss"] for line in lines if line["model"] == model and not line["amp"]]
        assert max(losses) - min(losses) < 1e-3 * max(losses), "twelve steps of the same training"
    assert all(line["seeds"] == 200 and line["nodes"] > 1000 and line["ms"] > 0 for line in lines)
    rows = [row.split() for row in done.stdout.splitlines() if row.split()[:1] == ["sage"]]
    assert [row[1] for row in rows] == ["pyg", "pyg", "csr", "cohort", "cohort"]
    assert float(rows[3][-2]) == pytest.approx(lines[0]["ms"] / lines[3]["ms"], abs=0.01)


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
def test_what_cannot_be_measured_is_said_before(cora, capsys, arguments, words):
    assert main(["bench", "step", str(cora), "--device", "cpu", *arguments]) == 1
    assert words in capsys.readouterr().err
