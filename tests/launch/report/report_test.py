"""`cohort report`: its tables, page and charts say what summary.json says; what is no finished run is refused."""

import json
import os
import shutil
import socket
import struct
import sys
from datetime import datetime
from statistics import median

import pytest
import torch
from processes import here, ran, summary_of
from report_reader import columns_of, page_of

from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.units import format_bytes
from cohort_gnn.launch import main
from cohort_gnn.launch.report import charts as report_charts
from cohort_gnn.launch.report.results import LISTS, ROWS, read_run
from cohort_gnn.launch.report.tables import advice, cautions, course_table, epoch_table, headline, result_table

TRAIN = ["--device", "cpu", "--fanout", "4,3", "--batch-size", 100, "--hidden", 8, "--epochs", 3, "--quiet"]
SECTIONS = ["What ran", "Result", "Learning curves", "Time", "Bytes", "Options"]
TIERS = ["local", "peer", "host", "recent", "disk", "remote"]
TIMES = [f"{name}seconds" for name in ("", "wait_", "train_", "all_reduce_", "sample_", "fetch_")]
CHARTS = ["report-epochs.png", "report-loss.png", "report-validation.png"]
BY_TIER = [
    f"report-{kind}-{what}.png" for kind in ("lists", "rows") for what in ("bytes", "hits")
]  # where there are two


@pytest.fixture(scope="module")
def runs(cora, tmp_path_factory, shm):
    """A folder with the runs `cached` (a cache of 10 %) and `two` (two ranks)."""
    folder = tmp_path_factory.mktemp("report")
    for name, options in {"cached": ["--cache-ratio", 0.1], "two": ["--ranks", 2]}.items():
        ran("train", cora, *TRAIN, *options, "--out", folder / name)
    return folder


@pytest.fixture
def drawn():
    pytest.importorskip("matplotlib")


def is_a_png(data: bytes) -> bool:
    width, height = struct.unpack(">II", data[16:24])
    return data[:8] == b"\x89PNG\r\n\x1a\n" and data[-8:-4] == b"IEND" and width > height > 400


def test_a_run_with_a_cache(runs, tmp_path, drawn):
    result = ran("report", runs / "cached", "--out", tmp_path / "deep/out")
    out, summary = tmp_path / "deep/out", summary_of(runs / "cached")
    assert sorted(path.name for path in out.iterdir()) == sorted([*CHARTS, *BY_TIER, "report.html"])
    assert not list((runs / "cached").glob("report*"))
    page = page_of(out)
    tables = page.tables
    assert [each for each in page.titles if each in SECTIONS] == SECTIONS
    times = []
    for epoch in summary["epochs"]:
        cells = [f"{epoch[name]:.4f}" for name in (*TIMES, "loss")]
        times.append([str(epoch["epoch"] + 1), "CPU", *cells, f"{100 * epoch['val_accuracy']:.2f} %"])
    assert tables["Time of each epoch"][0][-2:] == ["loss", "val accuracy"]
    assert tables["Time of each epoch"][1:] == times
    (planned,), (measured,) = summary["cache"]["predicted"], summary["cache"]["measured"]
    later = summary["epochs"][1:]
    batches = sum(epoch["num_batches"] for epoch in later)
    rows, lists = tables["Feature rows of a batch"], tables["Neighbour lists of a batch"]
    assert rows[0] == ["rank", "from", "rows", "rows %", "bytes", "GB/s", "rows % planned", "bytes planned"]
    used = [tier for tier in TIERS if measured["hit_rate"][tier] or planned["hit_rate"][tier]]
    assert [row[1] for row in rows[1:]] == used and "peer" not in used, "empty tiers are left out"
    for row in rows[1:]:
        tier = row[1]
        reads = sum(epoch["row_tiers"][tier]["rows"] for epoch in later) / batches
        rate = measured["gb_per_s"][tier]
        assert row == [
            *("CPU", tier, f"{reads:,.1f}", f"{100 * measured['hit_rate'][tier]:.2f}"),
            *(format_bytes(measured["bytes"][tier]), "-" if rate is None else f"{rate:.2f}"),
            *(f"{100 * planned['hit_rate'][tier]:.2f}", format_bytes(planned["bytes"][tier])),
        ]
    for row in lists[1:]:
        assert row[3:] == [
            *(f"{100 * measured['list_hit_rate'][row[1]]:.2f}", format_bytes(measured["list_bytes"][row[1]])),
            *(f"{100 * planned['list_hit_rate'][row[1]]:.2f}", format_bytes(planned["list_bytes"][row[1]])),
        ]
    (held,) = json.loads((runs / "cached/plan.json").read_text())["ranks"]
    assert tables["Cache"][1][3:5] == [format_bytes(held["used_bytes"]), f"{held['features']['rows']:,}"]
    assert ["accuracy in the test", f"{100 * summary['test_accuracy']:.2f} %"] in tables["Result"]
    floor, seconds = summary["floor"]["epochs"][-1], summary["epochs"][-1]["seconds"]
    told = f"{floor['seconds']:.4f} s, set by {floor['bottleneck']}; it took {seconds:.4f} s"
    assert ["floor of the last epoch", told] in tables["Course"]
    assert (
        ["feature rows", "read from the data set's file without a copy; each read counts"] in tables["Course"]
    ) == summary["rows_in_place"]
    assert ["batch_size", "100"] in tables["Options"]
    printed = [columns_of(line) for line in result.stdout.splitlines()]
    assert all(row in printed for row in [*times, *rows[1:], *lists[1:]])


def test_what_ran_is_told(runs, drawn):
    assert here("report", runs / "cached").returncode == 0
    told, run = dict(page_of(runs / "cached").tables["What ran"][1:]), read_run(runs / "cached")
    assert told["command"].startswith("cohort train ") and "--cache-ratio 0.1" in told["command"]
    assert "2,708 nodes, 10,556 edges; features 1433; 7 classes" in told["graph"] and "train 1,625" in told["graph"]
    assert told["host"].startswith(socket.gethostname()) and told["GPUs"] == "none: on the CPU"
    assert f"torch {torch.__version__.partition('+')[0]}" in told["versions"] and told["ranks"] == "CPU"
    assert datetime.strptime(told["started"], "%Y-%m-%d %H:%M:%S %z") and told["time"].endswith("3 epochs")
    share, what = headline(run)
    assert share == f"{100 * run.summary['test_accuracy']:.2f} %" and what.startswith("accuracy in the test, ")
    assert result_table(run).rows[-1][0] == "accuracy for the most common class alone"


def test_a_model_that_has_learned_nothing_is_told(runs, tmp_path):
    def spoil(summary):
        summary["test_metrics"], summary["baselines"]["test"] = {"accuracy": 0.99}, 0.99
        summary["epochs"][1]["loss"] = None

    assert cautions(read_run(runs / "cached")) == []
    assert cautions(read_run(changed(runs, tmp_path / "run", "cached", spoil))) == [
        "test accuracy 99.00 % is hardly better than naming the most common class for every node: 99.00 %",
        "the loss was not finite in epoch 2",
    ]


def test_each_rank_has_its_rows_and_the_charts_are_in_the_page(runs, drawn):
    assert here("report", runs / "two").returncode == 0
    page, summary = page_of(runs / "two"), summary_of(runs / "two")
    times = []
    for epoch in summary["epochs"]:
        parts = enumerate(epoch["ranks"])
        times += [[str(epoch["epoch"] + 1), f"r{i}", *(f"{part[name]:.4f}" for name in TIMES)] for i, part in parts]
    assert len(times) == 6 and [row[:-2] for row in page.tables["Time of each epoch"][1:]] == times
    assert page.tables["Time of each epoch"][2][-2:] == ["", ""], "the loss of all ranks stands in the first one's row"
    assert float(times[0][5]) > 0, "gradients are added up"
    rows = page.tables["Feature rows of a batch"]
    assert "rows % planned" not in rows[0] and "Cache" not in page.tables
    for rank in range(2):
        parts = [epoch["ranks"][rank] for epoch in summary["epochs"][1:]]
        read = sum(part["row_tiers"]["host"]["bytes"] for part in parts) / sum(part["num_batches"] for part in parts)
        assert [f"r{rank}", "host", format_bytes(read)] in [[*row[:2], row[4]] for row in rows]
    assert page.tags.isdisjoint({"script", "link", "iframe", "object"})
    assert len(page.links) == len(CHARTS) and all(link.startswith("data:image/png;base64,") for link in page.links)
    assert all(is_a_png((runs / "two" / name).read_bytes()) for name in CHARTS)


def test_runs_beside_each_other(runs, tmp_path, drawn):
    ran("report", runs / "cached", runs / "two", runs / "cached", cwd=tmp_path)
    charts = ["report-loss.png", "report-runs.png", "report-validation.png"]
    assert sorted(path.name for path in (tmp_path / "report").iterdir()) == [*charts, "report.html"]
    assert all(is_a_png((tmp_path / "report" / name).read_bytes()) for name in charts)
    page = page_of(tmp_path / "report")
    order = ["What ran", "Results", "Learning curves", "Time and bytes"]
    assert [each for each in page.titles if each in order] == order
    parts = [page.tables[name] for name in ("What differs", "Results", "Time and bytes")]
    assert [part[0][1:] for part in parts] == [[str(runs / name) for name in ("cached", "two", "cached")]] * 3
    found = {row[0]: row[1:] for part in parts for row in part[1:]}
    names = list(found)
    assert names.index("num_ranks") < names.index("cache_bytes") < names.index("median epoch s")
    assert found["num_ranks"] == ["1", "2", "1"] and found["cache_policy"] == ["plan", "-", "plan"]
    assert not {"batch_size", "channel", "plan_file", "hotness"} & set(names), "equal, or nobody's choice"
    summaries = [summary_of(runs / name) for name in ("cached", "two", "cached")]
    epochs = [[(epoch["ranks"] or [epoch])[0] for epoch in summary["epochs"][1:]] for summary in summaries]
    medians = {name: [median(epoch[name] for epoch in each) for each in epochs] for name in TIMES}
    for name, label in {"seconds": "epoch", "wait_seconds": "wait", "fetch_seconds": "fetch"}.items():
        assert found[f"median {label} s"] == [f"{value:.4f}" for value in medians[name]]
    ratio = medians["seconds"][1] / medians["seconds"][0]
    assert found["epoch / epoch of the first run"] == ["1.00", f"{ratio:.2f}", "1.00"]
    planned = summaries[0]["cache"]["predicted"][0]["hit_rate"]["local"]
    assert found["rows % local, planned"] == [f"{100 * planned:.2f}", "-", f"{100 * planned:.2f}"]
    host = [
        sum(epoch["host_bytes"] for epoch in summary["epochs"][1:])
        / sum(epoch["num_batches"] for epoch in summary["epochs"][1:])
        for summary in summaries
    ]
    assert found["bytes of rows host"] == [format_bytes(count) for count in host]
    assert found["test %"] == [f"{100 * summary['test_accuracy']:.2f}" for summary in summaries]
    assert "rows % peer" not in found, "nothing is read there or planned"


def changed(runs, folder, name: str, change):
    """A copy of a run where `change` has been applied to summary.json."""
    shutil.copytree(runs / name, folder, ignore=shutil.ignore_patterns("report*"))
    summary = summary_of(folder)
    change(summary)
    (folder / "summary.json").write_text(json.dumps(summary))
    return folder


def test_what_comes_from_files_is_no_markup(runs, tmp_path, drawn, capsys):
    run = changed(runs, tmp_path / "$\\frac$ <b>&[red]", "cached", lambda summary: summary.update(device="<i>"))
    options = json.loads((run / "run.json").read_text())
    options["trainer"]["model"] = "<script>alert(1)</script>\n\x1b[31m"
    (run / "run.json").write_text(json.dumps(options))
    assert main.main(["report", str(run)]) == 0
    page = page_of(run)
    assert page.tags.isdisjoint({"script", "b", "i"})
    assert ["model", "<script>alert(1)</script>\\n\\x1b[31m"] in page.tables["Options"]
    assert page.tables["Time of each epoch"][1][1] == "<I>"
    assert main.main(["report", str(run), str(runs / "two"), "--out", str(tmp_path / "both")]) == 0
    assert "$\\frac$ <b>&[red]" in capsys.readouterr().out
    assert page_of(tmp_path / "both").tables["What differs"][0][1] == "$\\frac$ <b>&[red]"


def test_gpus_and_many_epochs(runs, tmp_path, drawn):
    def lengthen(summary):
        first = summary["epochs"][0]
        summary["epochs"] = [first | {"epoch": i} for i in range(150)]

    run = changed(runs, tmp_path / "long", "two", lengthen)
    options = json.loads((run / "run.json").read_text())
    options["sampler"]["gpus"] = [3, 5]
    (run / "run.json").write_text(json.dumps(options))
    read = read_run(run)
    assert len(epoch_table(read).rows) == 300
    short = epoch_table(read, is_short=True)
    assert [row[:2] for row in short.rows[::2]] == [[str(i), "GPU 3"] for i in (1, 2, 3, 147, 148, 149, 150)]
    assert "143 epochs in the middle are left out" in short.note
    assert is_a_png(report_charts.draw_epochs(read))


@pytest.mark.parametrize(
    ("wait", "changes", "told"),
    [
        (0.8, {}, ["80 % of an epoch", "--cache-ratio auto", "cohort dataset prepare", "--reuse"]),
        (0.8, {"reuse": True, "dataset": "gone"}, ["80 % of an epoch", "--cache-ratio auto"]),
        (0.05, {}, []),
        (0.8, {"fetch": 0.1}, []),  # it waits for sampling
        (0.8, {"device": "cpu"}, []),
        (0.8, {"floor": "network"}, ["80 % of an epoch", "--cache-ratio auto", "--host-bytes"]),
        (0.8, {"floor": "network", "device": "cpu"}, ["80 % of an epoch", "--host-bytes"]),
    ],
)
def test_what_shortens_a_long_wait_for_rows_is_told(runs, tmp_path, wait, changes, told):
    def waiting(summary):
        summary["device"] = changes.get("device", "GPU")
        for part in (part for epoch in summary["epochs"] for part in (epoch, *epoch["ranks"])):
            part |= {"seconds": 1.0, "wait_seconds": wait, "sample_seconds": 0.2}
            part["fetch_seconds"] = changes.get("fetch", 0.9)
        summary["floor"]["epochs"][-1]["bottleneck"] = changes.get("floor", "pcie")

    run = read_run(changed(runs, tmp_path / "run", "two", waiting))
    run.options |= {"reuse": False} | {name: value for name, value in changes.items() if name in ("reuse", "dataset")}
    texts = ["80 % of an epoch", "--cache-ratio auto", "cohort dataset prepare", "--reuse", "--host-bytes"]
    assert [text for text in texts if text in advice(run)] == told
    assert course_table(run).note == advice(run)


def test_epochs_that_the_summary_lacks_are_read_from_their_lines(runs, tmp_path):
    """Of a run that is under way or was killed, perhaps in the middle of a line."""
    whole = read_run(runs / "two")
    run = changed(runs, tmp_path / "run", "two", lambda summary: summary["epochs"].pop())
    assert read_run(run).epochs == whole.epochs
    lines = (run / "metrics.jsonl").read_text()
    (run / "metrics.jsonl").write_text(lines + lines[:100])
    assert read_run(run).epochs == whole.epochs
    (run / "metrics.jsonl").write_text(lines + lines[:100] + "\n")
    with pytest.raises(CohortError, match=f"metrics.jsonl: line {len(whole.epochs) + 1}: expected the JSON"):
        read_run(run)


def test_a_plan_by_a_stand_in_expects_nothing(runs, tmp_path):
    def forget(summary):
        summary["cache"]["predicted"] = [dict.fromkeys(("hit_rate", "bytes", "list_hit_rate", "list_bytes"))]

    run = read_run(changed(runs, tmp_path / "degree", "cached", forget))
    uses = [use for kind in (ROWS, LISTS) for use in run.uses(kind).values()]
    assert {(use.planned_share, use.planned_bytes) for use in uses} == {(None, None)}
    assert sum(run.uses(ROWS)[tier].share for tier in TIERS) == pytest.approx(1)


def test_a_plan_says_nothing_of_rows_that_are_read_in_place(runs, tmp_path):
    assert read_run(runs / "cached").uses(ROWS)["local"].planned_share is not None
    run = read_run(changed(runs, tmp_path / "run", "cached", lambda summary: summary.update(rows_in_place=True)))
    assert run.uses(ROWS)["local"].planned_share is None
    assert run.uses(LISTS)["local"].planned_share is not None


def test_a_run_of_which_nobody_knows_the_least_time_is_reported(runs, tmp_path, drawn):
    def forget(summary):
        summary["floor"]["epochs"] = []

    run = changed(runs, tmp_path / "run", "cached", forget)
    assert main.main(["report", str(run)]) == 0
    assert main.main(["report", str(run), str(runs / "two"), "--out", str(tmp_path / "both")]) == 0


def drop(*path):
    """A change that removes the member at the end of the path."""

    def change(summary):
        *outer, last = path
        for name in outer:
            summary = summary[name]
        del summary[last]

    return change


@pytest.mark.parametrize(
    ("change", "place", "found"),
    [
        (drop("epochs"), "summary.json: expected", "the key epochs"),
        (drop("epochs", 1, "wait_seconds"), "summary.json: epochs[1]: ", "the key wait_seconds"),
        (drop("epochs", 2, "row_tiers", "recent"), "epochs[2].row_tiers: ", "the key recent"),
        (drop("cache", "predicted", 0, "list_bytes"), "cache.predicted[0]: ", "the key list_bytes"),
        (drop("val_metrics"), "summary.json: expected", "the key val_metrics"),
        (lambda summary: summary.update(epochs=7), "epochs: ", "expected a list, found an integer"),
        (lambda summary: summary["epochs"].insert(0, None), "epochs[0]: ", "expected keys with values, found nothing"),
        (lambda summary: summary["epochs"][0].update(seconds="1"), "epochs[0].seconds: ", "found a text"),
        (lambda summary: summary["epochs"][0].update(seconds=float("nan")), "the JSON that cohort train writes", ""),
        (lambda summary: summary["epochs"][0].update(seconds=True), "epochs[0].seconds: ", "found true or false"),
        (lambda summary: summary.update(num_ranks=2), "epochs[0].ranks: ", "one for each of 2 ranks, found 1"),
        (lambda summary: summary["cache"].update(predicted=[]), "cache.predicted: ", "one for each of 1 ranks"),
        (lambda summary: summary["epochs"].clear(), "a run that has finished an epoch", "none in summary.json"),
        (lambda summary: summary.update(val_metrics=[1]), "val_metrics: ", "expected keys with values, found a list"),
        (lambda summary: summary.update(test_metrics={"a": "b"}), "test_metrics[...]: ", "found a text"),
    ],
    ids=range(15),
)
def test_a_summary_of_another_kind_is_refused(runs, tmp_path, capsys, change, place, found):
    refused(changed(runs, tmp_path / "run", "cached", change), tmp_path / "out", capsys, place, found)


@pytest.mark.parametrize("name", ["run.json", "summary.json", "metrics.jsonl"])
def test_a_pipe_is_not_waited_for(runs, tmp_path, capsys, name):
    run = changed(runs, tmp_path / "run", "cached", lambda summary: None)
    (run / name).unlink(missing_ok=True)
    os.mkfifo(run / name)
    refused(run, tmp_path / "out", capsys, f"{name}: expected a file", "a pipe or a device")


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("summary.json", None, "summary.json: expected the results of the run, found none beside metrics.jsonl of "),
        ("summary.json", '{"epochs": [', "expected the JSON that cohort train writes"),
        ("summary.json", '{"x": ' + "[" * 100_000, "expected the JSON that cohort train writes"),
        ("summary.json", b"\xff", "expected the JSON that cohort train writes"),
        ("summary.json", "[]", "summary.json: expected keys with values, found a list"),
        ("run.json", None, "expected the folder of a run, found no run.json in it"),
        ("run.json", '{"sampler": {}}', "run.json: expected the key "),
        ("plan.json", '{"ranks": []}', "plan.json: ranks: expected one for each of 1 ranks, found 0"),
        ("plan.json", '{"ranks": [{}]}', "plan.json: ranks[0]: expected the key "),
    ],
    ids=range(9),
)
def test_a_damaged_file_is_refused(runs, tmp_path, capsys, name, text, words):
    run = changed(runs, tmp_path / "run", "cached", lambda summary: None)
    if text is None:
        (run / name).unlink()
    else:
        (run / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    refused(run, tmp_path / "out", capsys, words)


def refused(run, out, capsys, *words: str) -> None:
    """Alone and beside a folder that is no run: exit code 1, place and cure on standard error, nothing written."""
    before = sorted(run.iterdir())
    for arguments in ([run], [run, "--out", out], [run, run / "no", "--out", out]):
        assert main.main(["report", *map(str, arguments)]) == 1
        said = capsys.readouterr()
        assert said.out == "" and said.err.startswith(f"cohort: {run}") and "hint:" in said.err
        assert all(word in said.err for word in words)
    assert sorted(run.iterdir()) == before and not out.exists()


def test_all_runs_must_be_runs(runs, tmp_path, capsys):
    assert main.main(["report", str(runs / "cached"), str(tmp_path / "no"), "--out", str(tmp_path / "out")]) == 1
    said = capsys.readouterr()
    assert said.out == "" and f"{tmp_path / 'no'}: expected the folder of a run" in said.err
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written(runs, tmp_path, drawn, capsys):
    (tmp_path / "file").write_text("")
    assert main.main(["report", str(runs / "cached"), "--out", str(tmp_path / "file")]) == 1
    said = capsys.readouterr().err
    assert f"{tmp_path / 'file'}: expected a folder that can be written" in said and "choose another --out" in said


def test_without_matplotlib_there_are_tables(runs, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    for folders in ([runs / "cached"], [runs / "cached", runs / "two"]):
        assert main.main(["report", *map(str, folders), "--out", str(tmp_path / "out")]) == 0
        assert capsys.readouterr().out.count("pip install matplotlib") == 1
        assert "<img" not in (tmp_path / "out/report.html").read_text() and not list(tmp_path.glob("out/*.png"))
