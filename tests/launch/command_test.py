"""The command `cohort`: what it prints, writes, refuses and returns."""

import argparse
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from processes import cohort, here, ran, refused, summary_of

from cohort_gnn.base.errors import CohortError
from cohort_gnn.launch.run import script as run_script

pytestmark = pytest.mark.usefixtures("shm")

SMALL = ["--device", "cpu", "--fanout", "5,3", "--batch-size", "256", "--hidden", "16"]
EPOCH_KEYS = {"seconds", "wait_seconds", "train_seconds", "sample_seconds", "fetch_seconds", "loss"}


def results(summary: dict) -> list:
    """What must not depend on the clock."""
    epochs = [(epoch["loss"], epoch["val_accuracy"], epoch["num_edges"]) for epoch in summary["epochs"]]
    return [summary["test_accuracy"], summary["val_accuracy"], summary["best_epoch"], summary["bytes"], epochs]


@pytest.fixture(scope="module")
def trained(cora, tmp_path_factory, shm):
    """(out, finished process) of one run of 3 epochs, started twice in the same folder."""
    out = tmp_path_factory.mktemp("train") / "run"
    ran("train", cora, *SMALL, "--epochs", 3, "--seed", 4, "--out", out)
    (out / "first.json").write_text((out / "summary.json").read_text())
    return out, cohort("train", cora, *SMALL, "--epochs", 3, "--seed", 4, "--overwrite", "--out", out)


def test_the_same_seed_gives_the_same_results(trained):
    out, again = trained
    assert again.returncode == 0, again.stderr
    assert results(summary_of(out)) == results(json.loads((out / "first.json").read_text()))


def test_the_summary_has_its_stable_keys(trained):
    summary = summary_of(trained[0])
    assert set(summary) >= {"test_accuracy", "val_accuracy", "epochs", "bytes"}
    assert set(summary["bytes"]) == {"host", "peer", "local", "recent", "disk", "remote"}
    assert len(summary["epochs"]) == 3 and all(set(epoch) >= EPOCH_KEYS for epoch in summary["epochs"])
    assert summary["bytes"]["host"] > sum(epoch["host_bytes"] for epoch in summary["epochs"]) > 0
    assert summary["epochs"][2]["loss"] < summary["epochs"][0]["loss"]
    assert 0.3 < summary["test_accuracy"] <= 1  # 7 classes; three epochs learn something


def test_rows_and_lists_are_counted_by_tier(cora, tmp_path):
    """On the CPU all is host memory; rows are raw: 1433 float32."""
    ran("train", cora, *SMALL, "--epochs", 2, "--layers", "pyg", "--quiet", "--out", tmp_path / "run")
    for epoch in summary_of(tmp_path / "run")["epochs"]:
        rows, lists = epoch["row_tiers"], epoch["list_tiers"]
        assert list(rows) == list(lists) == ["local", "peer", "host", "recent", "disk", "remote"]
        assert rows["host"]["rows"] == epoch["num_nodes"]
        assert rows["host"]["bytes"] == epoch["host_bytes"] == epoch["num_nodes"] * 1433 * 4
        assert rows["host"]["seconds"] == pytest.approx(epoch["fetch_seconds"])
        assert lists["host"]["bytes"] == 4 * epoch["num_edges"] + 16 * lists["host"]["lists"]
        assert 0 < lists["host"]["lists"] < epoch["num_nodes"]
        for tier in ("local", "peer", "recent", "disk", "remote"):
            assert not any(rows[tier].values()) and not any(lists[tier].values())


def test_every_epoch_has_a_floor_and_the_table_names_it(trained):
    summary = summary_of(trained[0])
    floors = summary["floor"]["epochs"]
    assert len(floors) == 3 and summary["floor"]["step_seconds"] > 0
    for floor in floors:
        assert floor["seconds"] == floor[floor["bottleneck"]] > 0
        assert floor["sampler"] > 0 and floor["trainer"] > 0 and floor["pcie"] == floor["nvlink"] == 0
    assert f"{floors[2]['seconds']:.4f} s, set by {floors[2]['bottleneck']}; it took" in trained[1].stdout


def test_wait_and_train_are_parts_of_the_epoch(trained):
    for epoch in summary_of(trained[0])["epochs"]:
        assert epoch["wait_seconds"] > 0 and epoch["train_seconds"] > 0
        assert epoch["wait_seconds"] + epoch["train_seconds"] <= epoch["seconds"] + 1e-6


def test_the_terminal_shows_the_table(trained):
    shown = trained[1].stdout
    for word in ("CPU", "wait", "train", "sample", "fetch", "host", "loss", "val accuracy", "test accuracy"):
        assert word in shown
    last, accuracy = summary_of(trained[0])["epochs"][-1], summary_of(trained[0])["test_accuracy"]
    assert f"{100 * accuracy:.2f} %" in shown and f"{last['num_edges'] / last['num_batches']:,.0f} edges" in shown
    assert shown.splitlines()[-1] == f"results: {trained[0]}  (cohort report {trained[0]})"


def test_logs_lie_beside_the_results(trained):
    assert {path.name for path in trained[0].iterdir()} >= {"sampler.log", "trainer.log", "run.json"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("epoch = 3\n", ["run.toml: epoch:", "unknown option"]),
        ("epochs = 0\n", ["run.toml: epochs:", "at least 1"]),
        ("gpu = -1\n", ["run.toml: gpu:", "numbers of GPUs"]),
        ("gpus = [1, 1]\n", ["run.toml: gpus:", "each once"]),
        ('epochs = "many"\n', ["run.toml: epochs:", "many"]),
        ('model = "transformer"\n', ["run.toml: model:", "sage or gcn or gat"]),
        ('quiet = "yes"\n', ["run.toml: quiet:", "true or false"]),
        ("dropout = 1.5\n", ["run.toml: dropout:", "at least 0 and below 1"]),
        ("epochs 3\n", ["run.toml:", "an option in TOML"]),
        ("[train]\nepochs = 3\n", ["run.toml: train:", "unknown option"]),
    ],
    ids=str,
)
def test_a_bad_file_of_options_is_refused(cora, tmp_path, capsys, text, words):
    from cohort_gnn.launch.main import main

    (tmp_path / "run.toml").write_text(text)
    assert main(["train", str(cora), "--config", str(tmp_path / "run.toml"), "--out", str(tmp_path / "out")]) == 1
    said = capsys.readouterr().err
    assert all(word in said for word in words), said
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "arguments",
    ["--fanout 5,x", "--model mlp", "--weight-decay -1", f"--seed {2**64}", "--gpus 0,x", "--no-such-option"],
)
def test_bad_arguments_exit_with_2(cora, capsys, arguments):
    from cohort_gnn.launch.main import main

    with pytest.raises(SystemExit) as end:
        main(["train", str(cora), *arguments.split()])
    assert end.value.code == 2
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith("cohort train: error: ") and said[1:] == ["see: cohort train --help"]


@pytest.mark.parametrize("words", [[], ["dataset"], ["bench"]], ids=lambda words: " ".join(words) or "cohort")
def test_a_command_that_is_not_finished_gets_help(words, capsys):
    from cohort_gnn.launch.main import main

    with pytest.raises(SystemExit) as end:
        main(words)
    said = capsys.readouterr()
    assert end.value.code == 0 and said.err == "" and said.out.startswith(" ".join(["usage: cohort", *words]))


def test_every_option_has_a_group_and_a_sentence():
    from cohort_gnn.launch.main import build_parser
    from cohort_gnn.spec.options import GROUPS

    commands = next(action for action in build_parser()._actions if action.dest == "func" or action.choices).choices
    for name in ("train", "plan", "digest"):
        groups = {group.title: group._group_actions for group in commands[name]._action_groups}
        grouped = [action.dest for title in GROUPS for action in groups.get(title, [])]
        shown = (action for action in groups["options"] if action.help != argparse.SUPPRESS)  # without old names
        left = {action.dest for action in shown} - {"help"}
        assert {"fanout", "batch_size", "cache_ratio", "bandwidth"} <= set(grouped)
        assert not {each for each in left if not each.startswith("debug")} - {"batches"}
        for action in (action for actions in groups.values() for action in actions):
            assert not action.help.startswith(("of ", "as ", "that ", "whose ")), f"{name}: {action.dest}"


def test_arguments_that_do_not_fit_together(cora, tmp_path):
    empty = here("train", cora, "--device", "cpu", "--out", "")
    refused(empty, 1, "what follows --out: expected a value, found an empty argument", "a variable of the shell")
    (tmp_path / "file").write_text("")
    refused(here("train", cora, "--fanout", "5,5", "--eval-fanout", "5"), 1, "--eval-fanout", "2 hops")
    refused(here("train", cora, "--device", "cpu", "--out", tmp_path / "file"), 1, str(tmp_path / "file"), "--out")
    refused(here("digest", cora, "--device", "cpu", "--slots", "1"), 2, "expected an integer from 2 to 64, found 1")
    refused(here("train", cora, "--device", "cpu", "--gpus", "0,1"), 1, "--gpus: expected GPUs", "--ranks N")
    refused(here("train", cora, "--device", "cpu", "--gpus", "2"), 1, "--gpus: expected GPUs, found only the CPU")
    refused(here("run", "--device", "cpu", "--gpus", "0", __file__), 1, "--gpus: expected GPUs")
    (tmp_path / "run.toml").write_text("cliques = 2\ncache-ratio = 0.1\n")
    refused(here("train", cora, "--device", "cpu", "--config", tmp_path / "run.toml"), 1, "cliques: expected", "2")
    heads = ["--model", "gat", "--hidden", "30", "--out", tmp_path / "run"]
    failed = here("train", cora, "--device", "cpu", *heads)
    refused(failed, 1, "--hidden: expected a multiple of 4")
    assert failed.stderr.startswith("cohort: --hidden") and not (tmp_path / "run").exists()  # before anything is made


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="there is a GPU")
def test_a_gpu_that_is_not_there(cora, tmp_path):
    result = here("train", cora, "--device", "cuda", "--out", tmp_path / "run")
    refused(result, 1, "--device cuda: expected a GPU", "use --device cpu")
    assert not (tmp_path / "run").exists()


def digest_lines(data, *arguments) -> list[str]:
    result = ran("digest", data, "--device", "cpu", "--fanout", "4,4", "--batch-size", "300", *arguments)
    return result.stdout.splitlines()


def test_digests_depend_on_the_seed_alone(cora):
    lines = digest_lines(cora, "--batches", 9, "--seed", 1)
    assert len(set(lines)) == 9  # 1625 training seeds: 6 batches an epoch
    assert [line.split()[0] for line in lines] == [f"0:{i}" for i in range(6)] + [f"1:{i}" for i in range(3)]
    assert all(re.fullmatch(r"\d+:\d+ \d+ \d+ [0-9a-f]{32}", line) for line in lines)
    poisoned = ["--debug-slow-fetch-us", "2000", "--debug-poison-slots"]
    assert digest_lines(cora, "--batches", 9, "--seed", 1, "--slots", 5, *poisoned) == lines
    for ranks in (2, 3):
        assert digest_lines(cora, "--batches", 9, "--seed", 1, "--ranks", ranks) == lines
    other = digest_lines(cora, "--batches", 3, "--seed", 2)
    assert len(other) == 3 and not set(other) & set(lines)


def test_digest_of_a_data_set_without_training_seeds(tmp_path):
    import torch

    from cohort_gnn import from_tensors

    nodes = torch.arange(5)
    data = from_tensors(tmp_path / "data", x=torch.zeros(5, 2), y=nodes, edge_index=torch.stack([nodes, nodes]),
                        train_ids=nodes[:0], val_ids=nodes[:2], test_ids=nodes[2:])  # fmt: skip
    refused(here("digest", data, "--device", "cpu"), 1, f"{data}/train_ids.npy: expected at least one node")


SCRIPT = """
import os, sys
from cohort_gnn import NeighborLoader
with NeighborLoader(sys.argv[1], [4, 4], batch_size=500, device="cpu") as loader:
    print(sum(batch.batch_size for batch in loader), sys.argv[2:])
sys.exit(7)
"""


def test_run_passes_arguments_and_the_exit_code_through(cora, tmp_path, shm):
    (tmp_path / "script.py").write_text(SCRIPT)
    result = cohort("run", "--device", "cpu", tmp_path / "script.py", cora, "--epochs", "3")
    assert (result.returncode, result.stdout) == (7, "2708 ['--epochs', '3']\n"), result.stderr
    assert shm.runs() == []
    refused(cohort("run", tmp_path / "nowhere.py"), 1, "nowhere.py", "no such file")
    refused(cohort("run", tmp_path), 1, "expected a Python script, found a folder")


@pytest.mark.parametrize(
    ("ranks", "end", "code", "said"),
    [
        (1, "sys.exit(5)", 5, r""),
        (
            1,
            "os.kill(os.getpid(), 9)",
            137,
            r"cohort: the script \(process \d+\) was ended by SIGKILL; did memory .*\n",
        ),
        (2, "rank and sys.exit(5)", 5, r"cohort: rank 1 \(process \d+\) ended with exit code 5\n"),
        (2, "rank and os.kill(os.getpid(), 11)", 139, r"cohort: rank 1 \(process \d+\) was ended by SIGSEGV\n"),
    ],
)
def test_run_says_which_rank_has_failed_and_how(tmp_path, ranks, end, code, said):
    text = f"import os, sys, time\nrank = int(os.environ.get('RANK', 1))\n{end}\ntime.sleep(60)\n"
    (tmp_path / "script.py").write_text(text)
    result = cohort("run", "--device", "cpu", "--ranks", ranks, tmp_path / "script.py")
    assert result.returncode == code and re.fullmatch(said, result.stderr), result.stderr


def test_a_gpu_that_a_script_cannot_have_is_refused(monkeypatch):
    monkeypatch.setattr(run_script, "devices", lambda: {"gpus": [{}, {}]})
    assert run_script._visible([1], {}) == {"CUDA_VISIBLE_DEVICES": "1"}
    assert run_script._visible([1, 0], {"CUDA_VISIBLE_DEVICES": "5,3"}) == {"CUDA_VISIBLE_DEVICES": "3,5"}
    assert run_script._visible(None, {}) == {}
    with pytest.raises(CohortError, match="--gpus: expected some of the 2 that are visible, numbered from 0, found 2"):
        run_script._visible([2], {})


def test_a_run_whose_output_nobody_takes_ends_well(cora, tmp_path):
    out = tmp_path / "run"
    command = [sys.executable, "-m", "cohort_gnn", "train", cora, "--device", "cpu", "--epochs", 1, "--out", out]
    with open("/dev/full", "w") as full:
        result = subprocess.run(list(map(str, command)), stdout=full, stderr=subprocess.PIPE, text=True, timeout=120)
    assert "Traceback" not in result.stderr, result.stderr
    assert json.loads((out / "summary.json").read_text())["test_accuracy"] is not None


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(11, "Resource temporarily unavailable"), "processes: expected room for another, found Resource"),
        (OSError(24, "Too many open files"), "open files: expected room for another, found Too many open files"),
        (
            OSError(28, "No space left on device"),
            "what is written: expected room for it, found No space left on device",
        ),
        (OSError(2, "No usable temporary directory found"), "TMPDIR: expected a folder that can be written, found No"),
        (OSError(2, "No such file"), "[Errno 2] No such file"),
        (OSError(13, "Permission denied", "x.npy"), "x.npy: Permission denied"),
    ],
    ids=range(6),
)
def test_what_the_system_refuses_has_a_place(monkeypatch, capsys, cora, error, said):
    from cohort_gnn.launch import main

    monkeypatch.setattr("cohort_gnn.launch.report.command.read_run", Mock(side_effect=error))
    assert main.main(["report", str(cora)]) == 1
    assert capsys.readouterr().err.startswith(f"cohort: {said}")


def test_a_current_folder_that_was_removed_is_told(cora, tmp_path, monkeypatch, capsys):
    from cohort_gnn.launch.main import main

    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert main(["dataset", "info", str(cora)]) == 1
    assert capsys.readouterr().err.startswith("cohort: the current folder: expected one that exists, found that it was")


@pytest.mark.parametrize("command", ["digest", "dataset info"])
def test_output_that_a_full_disk_refuses_is_named(cora, command):
    words = [sys.executable, "-m", "cohort_gnn", *command.split(), str(cora)]
    with open("/dev/full", "w") as full:
        result = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, timeout=120)
    assert result.returncode == 1 and "Traceback" not in result.stderr
    assert ": expected room for " in result.stderr and "found No space left on device" in result.stderr


def test_digests_of_which_nobody_reads_more_end_well(cora, shm):
    words = [sys.executable, "-m", "cohort_gnn", "digest", str(cora), "--device", "cpu", "--batches", "100"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as digests:
        assert digests.stdout.readline().startswith("0:0 ")
        digests.stdout.close()
        assert (digests.wait(120), digests.stderr.read()) == (0, "")
    assert shm.runs() == []


@pytest.mark.gpu
def test_host_memory_that_is_too_small_is_named_before_anything_is_pinned(cora, tmp_path, monkeypatch):
    monkeypatch.setenv("COHORT_HOST_MEMORY_BYTES", "1000000")
    result = cohort("train", cora, "--device", "cuda", "--out", tmp_path / "run")
    assert result.returncode == 1
    assert "host memory: expected 15.52 MB for features and topology, found 1.00 MB available" in result.stderr


def test_files_are_those_that_meta_json_names(cora, tmp_path, shm):
    data, out = tmp_path / "data", tmp_path / "run"
    shutil.copytree(cora, data)
    meta = json.loads((data / "meta.json").read_text())
    for name in ("train_ids", "labels"):
        (data / f"{name}.npy").rename(data / f"own-{name}.npy")
        meta["files"][name] = f"own-{name}.npy"
    (data / "meta.json").write_text(json.dumps(meta))
    num_seeds = len(np.load(data / "own-train_ids.npy"))
    np.save(data / "train_ids.npy", np.arange(3))  # of an earlier time
    ran("train", data, "--device", "cpu", "--fanout", "3,2", "--epochs", 1, "--quiet", "--out", out)
    assert json.loads((out / "summary.json").read_text())["epochs"][0]["num_seeds"] == num_seeds
