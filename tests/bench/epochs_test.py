"""bench/epochs.py: small graphs of the published shapes, on the CPU."""

import contextlib
import io
import json

import numpy as np
import pytest
from documents import ROOT, module

from cohort_gnn.dataset import open as open_dataset

pytestmark = pytest.mark.usefixtures("shm")
main = module(ROOT / "bench/epochs.py").main
figure = module(ROOT / "bench/figure.py")
SMALL = ["--device", "cpu", "--epochs", 2, "--hidden", 8]


@pytest.fixture(scope="module")
def benched(tmp_path_factory, shm):
    """(folder, what was printed) of all modes on a products of 1225 nodes, and of one mode on it again."""
    folder = tmp_path_factory.mktemp("bench")
    common = ["--shape", "products", "--scale", 0.0005, "--data", folder / "data", *SMALL]
    common = [*map(str, [*common, "--cache-ratio", 0.1, "--out", folder / "bench.jsonl"])]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        assert main(common) == 0
    written = (folder / "data/products-0.0005/meta.json").stat().st_mtime_ns
    assert main([*common, "--modes", "M"]) == 0
    assert (folder / "data/products-0.0005/meta.json").stat().st_mtime_ns == written, "the graph is kept"
    return folder, printed.getvalue()


def test_a_line_a_mode_is_appended(benched):
    lines = [json.loads(line) for line in (benched[0] / "bench.jsonl").read_text().splitlines()]
    assert [line["mode"] for line in lines] == ["none", "C", "M", "C/M", "M"]
    data = open_dataset(benched[0] / "data/products-0.0005")
    assert (data.num_nodes, data.num_edges, data.feature_dim) == (1225, 61859, 100)
    for line in lines:
        run = benched[0] / "data/runs" / f"products-0.0005-{line['mode'].replace('/', '')}"
        epoch = json.loads((run / "summary.json").read_text())["epochs"][1]
        assert line["batches"] == epoch["num_batches"] == 25  # 98 seeds in batches of 4
        assert (
            line["shares"] == {"local": 0, "peer": 0, "host": 1, "recent": 0, "disk": 0, "remote": 0}
            and line["rows"] == "Gaussian"
        )
        if line is not lines[2]:  # its run's folder holds the later run of the mode
            assert line["seconds"] == epoch["seconds"] and line["wait_seconds"] == epoch["wait_seconds"]
    plain, _, coded, _, _ = (line["host_bytes"] for line in lines)
    assert plain / coded > 1.05, "exponents are left out"
    held = [line["held_rows"][0] for line in lines]
    assert held[1] > held[0] == held[2], "more encoded rows in as many bytes"


def test_the_table_tells_how_much_faster_than_none(benched):
    none, _, coded, *_ = [json.loads(line) for line in (benched[0] / "bench.jsonl").read_text().splitlines()]
    row = next(line.split() for line in benched[1].splitlines() if line.split()[:1] == ["M"])
    assert row[1] == f"{coded['seconds']:.4f}" and row[-1] == f"{none['seconds'] / coded['seconds']:.2f}"


def test_its_lines_can_be_drawn(benched, tmp_path):
    pytest.importorskip("matplotlib")
    (bars,) = figure.panels_of(figure.read_lines(benched[0] / "bench.jsonl"))
    assert list(bars.lines) == ["none", "C", "M", "C/M"] and bars.gain("M", "host_bytes") > 1.05
    assert figure.main([str(benched[0] / "bench.jsonl"), "--png", str(tmp_path / "a.png")]) == 0
    assert (tmp_path / "a.png").exists()


def test_scaled_up_shapes_draw_their_rows(tmp_path, capsys):
    np.save(tmp_path / "rows.npy", np.eye(9, 20, dtype=np.float32))
    common = ["--data", str(tmp_path / "data"), *map(str, SMALL), "--scale", "0.0005"]
    common += ["--out", str(tmp_path / "bench.jsonl"), "--modes", "M"]
    assert main([*common, "--shape", "cora-su", "--rows", str(tmp_path / "rows.npy")]) == 0
    (line,) = [json.loads(line) for line in (tmp_path / "bench.jsonl").read_text().splitlines()]
    assert line["rows"] == str(tmp_path / "rows.npy") and line["host_bytes"] > 0
    assert open_dataset(tmp_path / "data/cora-su-0.0005").feature_dim == 20


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--shape", "cora-su"], "--rows, --shape cora-su: expected a table of rows to draw from, found None"),
        (["--shape", "reddit", "--rows", "x.npy"], "expected none: the rows of this shape are Gaussian"),
        (["--shape", "reddit", "--scale", "0"], "--scale: expected above 0"),
        (["--shape", "reddit", "--out", "/dev/null/x"], "/dev/null/x: expected a file that can be appended to"),
    ],
)
def test_arguments_that_contradict_themselves(tmp_path, capsys, arguments, words):
    out = [] if "--out" in arguments else ["--out", str(tmp_path / "bench.jsonl")]
    assert main(["--data", str(tmp_path / "data"), *arguments, *out]) == 1
    assert words in capsys.readouterr().err and not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("option", "value"), [("--cache-ratio", "-1"), ("--cache-ratio", "nan"), ("--minutes", "nan"), ("--minutes", "-1")]
)
def test_numbers_that_mean_nothing_are_refused(capsys, option, value):
    with pytest.raises(SystemExit):
        main(["--shape", "products", f"{option}={value}"])
    assert "expected a number" in capsys.readouterr().err


def test_a_mode_that_fails_is_told(tmp_path, capsys):
    common = ["--shape", "products", "--scale", "0.0005", "--data", str(tmp_path / "data")]
    common += [*map(str, SMALL), "--modes", "none", "--gpus", "0", "--out", str(tmp_path / "bench.jsonl")]
    assert main(common) == 1
    assert "failure" in json.loads((tmp_path / "bench.jsonl").read_text())
