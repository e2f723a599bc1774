"""What others have written runs nothing and opens nothing: run folders, files of options, the current folder, ports."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from processes import ALL_TESTS, cohort, ran, refused

import cohort_gnn as package
from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset import generate

pytestmark = pytest.mark.usefixtures("shm")
TINY = ["--device", "cpu", "--fanout", "4,3", "--batch-size", "50", "--hidden", "8", "--quiet"]
OWN = """
import pathlib

import torch
import cohort_gnn as cohort

(pathlib.Path(__file__).parent / "imported").touch()


class Net(torch.nn.Module):
    def __init__(self, in_channels, hidden_channels, num_layers, out_channels, dropout):
        super().__init__()
        self.lin = torch.nn.Linear(in_channels, out_channels)

    def forward(self, x, edge_index):
        return self.lin(x)


class Log(cohort.Callback):
    def epoch_ended(self, trainer, report):
        (trainer.out / "log.txt").write_text(f"{report.epoch}")
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("strangers") / "data"
    generate(folder, kind="sbm", nodes=400, edges=4000, dim=6, classes=4, split=(0.25, 0.25, 0.25))
    return folder


@pytest.fixture(scope="module")
def runs(data):
    """Finished runs: "own" with a class of the user's, "log" with a callback."""
    folder = data.parent
    (folder / "own.py").write_text(OWN)
    for name, words in (("own", ["--model", "own:Net"]), ("log", ["--callbacks", "own:Log"])):
        ran("train", data, *TINY, "--epochs", 1, *words, "--out", folder / name, cwd=folder)
    return folder


@pytest.fixture
def stranger(runs, tmp_path):
    """The runs in another folder, where the module leaves a file when it is imported."""
    for name in ("own", "log"):
        shutil.copytree(runs / name, tmp_path / name)
    shutil.copy(runs / "own.py", tmp_path)
    return tmp_path


IN_RUN = "expected a class that the command line names, too, found"


@pytest.mark.parametrize(
    ("run", "option", "name"),
    [("own", "model", "own:Net"), ("log", "callbacks", "own:Log")],
    ids=["model", "callbacks"],
)
def test_a_run_goes_on_with_a_class_only_if_the_command_line_names_it(stranger, run, option, name):
    words = ["train", "--resume", stranger / run, "--epochs", 2, "--quiet"]
    result = cohort(*words, cwd=stranger)
    refused(
        result, 1, f"run.json: {option}: {IN_RUN} {name} in the file alone", f"if you trust it, add --{option} {name}"
    )
    assert not (stranger / "imported").exists()
    done = ran(*words, f"--{option}", name, cwd=stranger)
    assert (stranger / "imported").exists(), done.stderr
    assert len(json.loads((stranger / run / "summary.json").read_text())["epochs"]) == 2


def test_callbacks_of_a_run_can_be_left_out(stranger):
    (stranger / "none.toml").write_text("callbacks = []\n")
    done = ran("train", "--resume", stranger / "log", "--epochs", 2, "--config", "none.toml", cwd=stranger)
    assert not (stranger / "imported").exists(), done.stderr


def test_a_model_is_applied_only_if_the_call_names_its_class(data, stranger, monkeypatch):
    result = cohort("predict", stranger / "own", data, "--out", stranger / "p.npy", "--device", "cpu", cwd=stranger)
    refused(result, 1, "run.json: model: expected a built-in model, found own:Net", 'model="own:Net") runs it')
    monkeypatch.chdir(stranger)
    for given, expected in ((None, "a built-in model"), ("own:Other", "own:Other")):
        with pytest.raises(CohortError, match=f"expected {expected}, found own:Net"):
            package.load_model("own", model=given)
    assert not (stranger / "imported").exists() and "own" not in sys.modules
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert type(package.load_model("own", model="own:Net")).__name__ == "Net"
    sys.modules.pop("own")
    with pytest.raises(CohortError, match="expected own:Net, found sage"):
        package.load_model("log", model="own:Net")


@pytest.mark.parametrize("option", ['model = "own:Net"', 'callbacks = ["own:Log"]', 'callbacks = "own:Log"'])
@pytest.mark.parametrize("command", ["train", "tune"])
def test_a_file_of_options_names_no_code_by_itself(data, stranger, option, command):
    (stranger / "options.toml").write_text(option)
    words = [command, data, "--device", "cpu", "--config", "options.toml", "--out", stranger / "out"]
    result = cohort(*words, cwd=stranger)
    refused(result, 1, f"options.toml: {option.split()[0]}: {IN_RUN} own:", "if you trust it, add --")
    assert not (stranger / "imported").exists() and not (stranger / "out").exists()


@pytest.mark.parametrize("option", ["--model", *["--callbacks"] * ALL_TESTS])
def test_a_tuning_hands_on_the_classes_that_its_command_line_names(data, stranger, option):
    name = "own:Net" if option == "--model" else "own:Log"
    words = [data, *TINY[:-1], "--minutes", 1, "--epochs", 2, "--compress", "none", "--slots", 4, option, name]
    done = ran("tune", *words, "--out", stranger / "tuned", cwd=stranger)
    assert f"--config {stranger / 'tuned/run.toml'} {option} {name}\n" in done.stdout


NAMES = [*sorted(sys.stdlib_module_names - set(sys.builtin_module_names)), "torch", "numpy", "cohort_gnn", "rich"]
LIKELY = ["random", "queue", "token", "calendar", "statistics", "tomllib", "torch", "numpy", "rich"]
SHADOW = "open(__file__ + '.imported', 'w').close()\nraise ImportError(__name__)\n"


MODULE = (sys.executable, "-m", "cohort_gnn")
COMMAND = (str(Path(package.__path__[0]) / "bin/cohort"),)


@pytest.mark.fresh
@pytest.mark.parametrize(
    ("command", "start"),
    [
        ("train", COMMAND),
        *[("train", MODULE)] * ALL_TESTS,
        *[(each, start) for each in ("predict", "doctor", "run", "tune") for start in (COMMAND, MODULE)] * ALL_TESTS,
    ],
)
def test_files_of_the_current_folder_are_no_modules(data, runs, tmp_path, command, start):
    """A user's random.py, queue.py, token.py or calendar.py; the user's own module is found there all the same. (What
    Python itself imports for -m it takes from there.)"""
    for name in NAMES if start == COMMAND else LIKELY:
        (tmp_path / f"{name}.py").write_text(SHADOW)
    (tmp_path / "mine.py").write_text(OWN.replace("import pathlib", "import pathlib, calendar, random, token"))
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts/script.py").write_text("import random, torch, helper")
    (tmp_path / "scripts/helper.py").touch()
    words = {
        "train": ["train", data, *TINY, "--epochs", 1, "--model", "mine:Net", "--ranks", 2, "--out", "run"],
        "predict": ["predict", runs / "log", data, "--device", "cpu", "--out", "p.npy"],
        "doctor": ["doctor", "--json"],
        "run": ["run", "--ranks", 2, "scripts/script.py"],
        "tune": ["tune", data, *TINY[:-1], "--minutes", 1, "--epochs", 2, "--compress", "none", "--slots", 4],
    }[command]
    done = subprocess.run([*start, *map(str, words)], cwd=tmp_path, capture_output=True, text=True)
    assert list(tmp_path.rglob("*.imported")) == [], done.stderr
    assert done.returncode == 0, done.stderr
    if command == "doctor":
        assert {each["verdict"] for each in json.loads(done.stdout) if each["name"] == "PyTorch"} == {"ok"}


RANK = """
import sys, time
import torch.distributed as dist
from cohort_gnn import NeighborLoader
dist.init_process_group("gloo")
loader = NeighborLoader(sys.argv[1], [4], batch_size=50, device="cpu")
for batch in loader:
    dist.barrier()
    time.sleep(0.1)
loader.close()
dist.destroy_process_group()
"""


def listening(root: int) -> set[str]:
    """Addresses on which a process and those below it listen, as /proc/net/tcp has them."""
    inodes, pids = set(), [root]
    while pids:
        folder = Path(f"/proc/{pids.pop()}")
        try:
            pids += [int(pid) for task in folder.glob("task/*/children") for pid in task.read_text().split()]
            inodes |= {os.readlink(fd) for fd in (folder / "fd").iterdir()}
        except OSError:  # it has just ended
            continue
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in inodes:
                found.add(fields[1].partition(":")[0])
    return found


LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}


@pytest.mark.parametrize(
    ("words", "has_port"),
    [
        (["train", "DATA", *TINY, "--epochs", "8", "--ranks", "2", "--out", "OUT"], True),
        (["run", "--device", "cpu", "--ranks", "2", "SCRIPT", "DATA"], True),
        (["train", "DATA", *TINY, "--epochs", "4", "--out", "OUT"], False),
    ],
    ids=["train of two ranks", "script of two ranks", "train"],
)
def test_runs_of_one_machine_have_no_port_that_others_reach(data, tmp_path, monkeypatch, words, has_port):
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    (tmp_path / "script.py").write_text(RANK)
    paths = {"DATA": data, "OUT": tmp_path / "out", "SCRIPT": tmp_path / "script.py"}
    command = [sys.executable, "-m", "cohort_gnn", *(str(paths.get(word, word)) for word in words)]
    with open(tmp_path / "said", "w") as said:
        process = subprocess.Popen(command, stdout=said, stderr=said)
    seen = set()
    while process.poll() is None:
        seen |= listening(process.pid)
        time.sleep(0.02)
    assert process.returncode == 0, (tmp_path / "said").read_text()
    assert seen <= LOOPBACK and bool(seen) == has_port
