"""What somebody meets who uses Cohort for the first time: names that are there, and refusals before anything starts."""

import os
import subprocess
import sys
import warnings

import pytest
import torch
from processes import cohort, here, ran, refused

from cohort_gnn.dataset import open as open_dataset
from cohort_gnn.launch.main import COMMANDS, build_parser
from cohort_gnn.trainer.loader.arguments import ids_of
from cohort_gnn.trainer.report.progress import DelayedScalar

SMALL = ["--device", "cpu", "--fanout", "2", "--hidden", 4]


@pytest.mark.parametrize("name", ["nn.SAGEConv", "dataset.open", "ibp.fetch"])
def test_packages_come_with_cohort(name):
    """In a process of its own: here others have imported them."""
    code = f"import cohort_gnn as cohort; print(cohort.{name}.__name__)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.strip() == name.partition(".")[2], result.stderr


@pytest.mark.fresh
def test_help_waits_for_no_large_package():
    code = "import sys; from cohort_gnn.launch.main import build_parser; build_parser(); print(*sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    imported = set(result.stdout.split())
    assert "cohort_gnn.launch.run.train" in imported, result.stderr
    assert not imported & {"torch", "torch_geometric", "scipy.sparse", "matplotlib.figure"}
    result = subprocess.run(
        [sys.executable, "-c", code.replace("parser()", "parser('--help')")], capture_output=True, text=True
    )
    assert not any(".run.train" in name for name in result.stdout.split()) and "cohort_gnn.launch.main" in result.stdout


def test_a_command_is_parsed_alone_as_among_all():
    def commands_of(parser) -> dict:
        return next(action for action in parser._actions if action.choices).choices

    all_commands = build_parser()
    among_all = commands_of(all_commands)
    assert list(among_all) == list(COMMANDS)
    for name, parser in among_all.items():
        assert commands_of(build_parser(name))[name].format_help() == parser.format_help()
    assert build_parser("--help").format_help() == all_commands.format_help()


def test_splits_of_a_data_set_are_seeds_without_a_warning(cora):
    data = open_dataset(cora)
    assert not data.train_ids.flags.writeable
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ids_of(data.train_ids, data.num_nodes).tolist() == data.train_ids.tolist()


def test_a_run_in_the_place_of_another_removes_its_reports(cora, tmp_path, shm):
    """Of one that has finished no epoch they go without being asked for, which is said."""
    reports = [tmp_path / "report.html", tmp_path / "report-epochs.png"]
    said = f"cohort: deleting the results of an earlier run in {tmp_path} (--resume continues a run)\n"
    (tmp_path / "run.json").touch()
    for options, expected in (([], said), (["--overwrite"], "")):
        for report in reports:
            report.write_text("of this run")
        result = cohort("train", cora, *SMALL, "--epochs", 1, "--quiet", *options, "--out", tmp_path)
        assert (result.returncode, result.stderr) == (0, expected)
        assert not any(report.exists() for report in reports)


@pytest.mark.parametrize("arguments", [["dataset", "info"], ["doctor"]], ids=" ".join)
def test_a_reader_may_leave_early(cora, arguments):
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "cohort_gnn", *arguments, str(cora)]
    result = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    told = [line for line in result.stderr.splitlines() if "measuring the bandwidth" not in line]  # on a GPU, once
    assert (result.returncode, told) == (1, [])


def test_the_bar_shows_the_loss_of_the_first_step_on_the_cpu():
    assert DelayedScalar().latest(torch.tensor(0.25)) == "0.2500"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train", "DIR", "--cache-bytes", "1GB,big"], "--cache-bytes: expected bytes such as 20GB"),
        (["plan", "DIR", "--gpu-memory", "big"], "--gpu-memory: expected bytes such as 20GB"),
        (["predict", "RUN", "DIR", "--out", "a.npy", "--memory", "-1"], "--memory: expected bytes such as 20GB"),
        (["dataset", "import", "a.csv", "OUT", "--memory", "big"], "--memory: expected bytes such as 20GB"),
        (["train", "DIR", "--slots", "2.5"], "--slots: expected an integer from 2 to 64, found 2.5"),
        (["run"], "the following arguments are required: SCRIPT\n"),
    ],
)
def test_an_argument_that_is_none_says_what_one_looks_like(arguments, words):
    refused(here(*arguments), 2, words)


def test_folders_that_are_no_runs_are_named(tmp_path):
    refused(here("inspect", tmp_path / "none"), 1, "none: expected the folder of a run, found no such folder")
    tuned, file = tmp_path / "tuned", tmp_path / "file"
    tuned.mkdir()
    for path in (tuned / "tune.json", file):
        path.write_text("{}")
    wrong = {tmp_path: "no run.json in it", tmp_path / "none": "no such folder", file: "a file"}
    wrong[tuned] = f"the folder of cohort tune\n  hint: name one of its runs, such as {tuned / 'trial-01'}"
    for command, *rest in (["report"], ["predict", tmp_path, "--out", tmp_path / "a.npy"]):
        for folder, found in wrong.items():
            refused(here(command, folder, *rest), 1, f"{folder}: expected the folder of a run, found {found}")
    for name in ("data/meta.json", "run/run.json"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("{}")
    swapped = here("predict", tmp_path / "data", tmp_path / "run", "--out", tmp_path / "a.npy")
    found = "expected the folder of a run, found the folder of a data set"
    refused(swapped, 1, f"{tmp_path / 'data'}: {found}", f"cohort predict {tmp_path / 'run'} {tmp_path / 'data'}")


def test_a_graph_without_labels_says_where_labels_come_from(tmp_path):
    (tmp_path / "edges.csv").write_text("src,dst\n0,1\n1,2\n2,0\n")
    ran("dataset", "import", tmp_path / "edges.csv", tmp_path / "data", "--features", "ones")
    refused(here("train", tmp_path / "data"), 1, "at least one node to train on", "dataset import --labels FILE")
    refused(
        here("plan", tmp_path / "data", "--num-gpus", 2, "--cliques", "none", "--partition"), 1, "found no such file"
    )
    info = here("dataset", "info", tmp_path / "data")
    num_bytes = sum(file.stat().st_size for file in (tmp_path / "data").iterdir())
    assert f"size              {num_bytes / 1000:.2f} KB\n" in info.stdout, info.stdout
