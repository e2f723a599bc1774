"""bench/figure.py: which lines of a file it compares, what it says of them, and what it draws."""

import json

import pytest
from documents import ROOT, module

from cohort_gnn.launch.report import charts as report_charts

figure = module(ROOT / "bench/figure.py")
main, mean_gain, panels_of = figure.main, figure.mean_gain, figure.panels_of
read_lines, table_of = figure.read_lines, figure.table_of

TOLD = {"bench": "epoch", "scale": 1.0, "rows": "Gaussian", "device": "cuda", "gpus": "0", "machine": ["H200"]}
TOLD |= {"reuse": "off", "cache_ratio": 0.01}


def line(shape: str, mode: str, seconds: float, host_bytes: float, **changed) -> dict:
    """What bench/epochs.py appends: a quarter of the epoch is training, and fetching takes as long as waiting."""
    times = {"seconds": seconds, "wait_seconds": 0.75 * seconds, "train_seconds": 0.25 * seconds}
    times["fetch_seconds"] = times["wait_seconds"]
    return TOLD | {"shape": shape, "mode": mode, "host_bytes": host_bytes} | times | changed


LINES = [
    line("products", "M", 9.0, 9e6),  # a later one takes its place
    line("products", "none", 0.3, 480e6),
    {"bench": "fetch", "dataset": "products"},
    line("reddit", "none", 1.0, 320e6),
    line("reddit", "M", 0.8, 160e6),
    line("products", "C", 0.3, 0),
    line("products", "M", 0.2, 400e6),
    TOLD | {"shape": "products", "mode": "M", "failure": "no memory"},
]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "bench.jsonl"
    path.write_text("\n".join(map(json.dumps, LINES)) + "\n\n")
    return path


def test_the_last_line_of_a_mode_that_ended_counts(file):
    panels = panels_of(read_lines(file))
    assert [(bars.title, list(bars.lines)) for bars in panels] == [
        ("products", ["none", "C", "M"]),
        ("reddit", ["none", "M"]),
    ]
    assert panels[0].lines["M"]["seconds"] == 0.2
    assert panels[0].gain("M", "host_bytes") == pytest.approx(1.2)
    assert panels[0].gain("C", "host_bytes") is None and panels[0].gain("C/M", "seconds") is None


def test_only_what_was_measured_alike_is_compared():
    lines = [LINES[1], line("products", "M", 0.06, 100e6, reuse="on"), LINES[3]]
    panels = panels_of(lines)
    assert [bars.title for bars in panels] == ["products, reuse off", "products, reuse on", "reddit"]
    assert panels[1].gain("M", "seconds") is None, "there is no epoch without encoded rows to compare with"
    assert mean_gain(panels) == "M against none: no shape has both"


def test_the_table_has_a_row_a_mode_and_the_mean_of_the_shapes(file):
    table = table_of(panels_of(read_lines(file)))
    rows = {(row[0], row[1]): row[2:] for row in table.rows}
    assert len(rows) == len(table.rows) == 5 and {len(row) for row in table.rows} == {len(table.columns)}
    assert rows["products", "M"] == ["0.2000", "0.1500", "0.0500", "0.1500", "1.50", "1.20", "1.50"]
    assert rows["products", "C"][-2:] == ["-", "1.00"]
    assert "mean of 2 shapes: 1.38 (+37.5 %)" in table.note  # of 1.5 and 1.25


def test_panels_stack_their_parts_in_rows_of_four(monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(report_charts, "png_of", lambda figure: figure)
    bar = {"seconds": 3.0, "wait_seconds": 2.0, "train_seconds": 1.0, "all_reduce_seconds": 0.0}
    shared = bar | {"seconds": 3.5, "all_reduce_seconds": 0.5}
    panels = [figure.Panel(f"${i}", [bar, shared if i == 5 else bar], ["none", "M"]) for i in range(6)]
    drawn = figure.draw_panels(panels)
    assert len(drawn.axes) == 8 and [axes.axison for axes in drawn.axes] == [True] * 6 + [False] * 2
    heights = [patch.get_path().vertices[:, 1].max() for patch in drawn.axes[5].patches]
    assert heights == [2.0, 3.0, 3.5]
    assert [text.get_text() for text in drawn.axes[0].texts] == ["3 s", "3 s"]
    names = [text.get_text() for text in drawn.axes[3].get_legend().get_texts()]
    assert names == ["wait", "train", "all-reduce"], "though one panel alone has it"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "a file that bench/epochs.py has appended to"),
        ('{"bench": "step"}', "lines of bench/epochs.py, found none that ended"),
        (json.dumps(LINES[-1]), "lines of bench/epochs.py, found none that ended"),
        (json.dumps(LINES[1] | {"seconds": "soon"}), "line 1: expected seconds in it"),
        (json.dumps(LINES[1] | {"mode": "D"}), "line 1: expected a mode of none, C, M, C/M"),
    ],
)
def test_files_without_what_is_drawn(tmp_path, capsys, text, words):
    (tmp_path / "a.jsonl").write_text(text)
    assert main([str(tmp_path / "a.jsonl"), "--png", str(tmp_path / "a.png")]) == 1
    assert words in capsys.readouterr().err and not (tmp_path / "a.png").exists()


def test_a_picture_that_cannot_be_written(file, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    assert main([str(file), "--png", str(tmp_path / "nowhere/a.png")]) == 1
    assert "name another place" in capsys.readouterr().err
