"""A run that was told to stop goes on as if nothing had happened; what cannot go on says why."""

import json
import os
import random
import resource
import shutil
import signal
import time

import pytest
import torch
from processes import ALL_TESTS, SECONDS_TO_END, cohort, here, processes_of, ran, wait_until
from resumable import EPOCHS, OPTIONS, results_of

from cohort_gnn.base.errors import CohortError

TWO = ["--ranks", "2"]
PARTS = [*TWO, "--cliques", "none", "--partition", "--cache-ratio", "0.2"]
LAYERS = ["--sampling", "labor", "--batch-dependency", "4", "--layer-dependency", "--importance-sampling"]

pytestmark = pytest.mark.usefixtures("shm")


def position(out) -> tuple[int, int]:
    """(epoch, step) of the checkpoint."""
    state = torch.load(out / "checkpoint.pt", weights_only=True)
    return state["epoch"], state["step"]


# The signals of a run's stops; by night each alone, too.
STOPS = [[signal.SIGTERM, signal.SIGINT]]
STOPS += [[number] * 2 for number in (signal.SIGTERM, signal.SIGINT)] * ALL_TESTS


# One rank is also stopped by test_a_terminal_tells_all_processes_and_the_launcher_decides.
@pytest.mark.parametrize("more", [[*PARTS, *LAYERS], *[[], TWO, PARTS] * ALL_TESTS], ids=" ".join)
@pytest.mark.parametrize("numbers", STOPS, ids=lambda numbers: "-".join(number.name for number in numbers))
def test_a_run_that_is_told_to_stop_goes_on_in_the_middle_of_an_epoch(
    launch, undisturbed, numbers, more, graph, tmp_path
):
    more = [*more, "--seed-order", str(graph / "labels.npy")] if LAYERS[0] in more else more
    run, out = launch.train(*more), tmp_path / "run"
    moments = random.Random(sum(numbers))
    stops = []
    for number in numbers:
        run.await_checkpoint()
        time.sleep(moments.random() * 0.1)
        said = run.stop(number)
        assert f"cohort train --resume {out}" in said and "Traceback" not in said
        assert processes_of(out) == {} and not list(out.glob("*.tmp"))
        stops.append(position(out))
        run = launch("--resume", out)
    assert run.wait() == 0, run.errors.read_text()
    assert results_of(out) == undisturbed(*more)
    assert any(step for _, step in stops), f"in the middle of an epoch: {stops}"
    events = json.loads((out / "timeline.json").read_text())["traceEvents"]
    assert 1 + max(event["pid"] for event in events) // 2 == (2 if more else 1)


def test_a_terminal_tells_all_processes_and_the_launcher_decides(launch, undisturbed, tmp_path):
    run, out = launch.train(), tmp_path / "run"
    for number in (signal.SIGINT, signal.SIGHUP):
        run.await_checkpoint()
        pids = run.pids()
        for pid in [*pids["trainer"], *pids["sampler"]]:
            os.kill(pid, number)
        run.stop(number)
        run = launch("--resume", out)
    assert run.wait() == 0, run.errors.read_text()
    assert results_of(out) == undisturbed()


@pytest.mark.parametrize("more", [[], *[TWO] * ALL_TESTS], ids=["one", *["two"] * ALL_TESTS])
def test_a_checkpoint_every_few_steps(launch, undisturbed, tmp_path, more):
    run, out = launch.train("--checkpoint-every", "5", *more), tmp_path / "run"
    run.await_checkpoint()
    run.launcher.kill()
    run.wait()
    wait_until(lambda: not processes_of(out), SECONDS_TO_END, "ending the children")
    epoch, step = position(out)
    steps_an_epoch = 16 if more else 32
    assert (epoch * steps_an_epoch + step) % 5 == 0 or not more, "one trainer also writes when its launcher dies"
    ran("train", "--resume", out, "--quiet", "--checkpoint-every", "1000000")
    assert results_of(out) == undisturbed(*more)
    assert position(out) == (EPOCHS, 0), "the last one is always written"
    before = results_of(out)
    assert cohort("train", "--resume", out, "--quiet").returncode == 0, "a run that has ended only repeats its test"
    assert results_of(out) == before


def test_a_run_with_a_planned_cache_reports_of_it_when_it_goes_on(graph, tmp_path):
    out = tmp_path / "run"
    options = [*OPTIONS, "--epochs", 3, "--cache-ratio", 0.2, "--quiet", "--out", out]
    ran("train", graph, *options)
    before = results_of(out)
    assert before["summary"]["cache"]["measured"]
    ran("train", "--resume", out)
    assert results_of(out) == before


def test_a_run_without_a_checkpoint_begins_at_the_beginning(launch, undisturbed, tmp_path):
    out = tmp_path / "run"
    run = launch.train()
    wait_until((out / "run.json").exists, 30, "starting")
    run.launcher.kill()
    run.wait()
    for left in ("summary.json.1-01234567.tmp", "checkpoint.pt.1-01234567.tmp"):
        (out / left).touch()
    (out / "mine.tmp").touch()
    (out / "checkpoint.pt").unlink(missing_ok=True)
    again = ran("train", "--resume", out)
    assert f"no checkpoint.pt in {out}: the run starts from the beginning" in again.stderr
    assert results_of(out) == undisturbed()
    assert [path.name for path in out.iterdir() if path.suffix == ".tmp"] == ["mine.tmp"]


def test_a_new_run_in_the_folder_of_another_forgets_its_checkpoint(graph, tmp_path):
    out = tmp_path / "run"
    for seed in (1, 2):
        options = [*OPTIONS, "--seed", seed, "--epochs", 2, "--quiet", "--checkpoint-every", 1000, "--out", out]
        ran("train", graph, *options, "--overwrite")
        state = torch.load(out / "checkpoint.pt", weights_only=True)
        assert state["identity"]["seed"] == seed and len(state["report"]["epochs"]) == 2


# --- a full disk -----------------------------------------------------------------------------------------------------


class FileLimit:
    """The trainer may not write files of more than 1 KB."""

    def __init__(self, run):
        [self.pid] = run.pids()["trainer"]

    def begin(self) -> None:
        self.before = resource.prlimit(self.pid, resource.RLIMIT_FSIZE, (1024, resource.RLIM_INFINITY))

    def end(self) -> None:
        resource.prlimit(self.pid, resource.RLIMIT_FSIZE, self.before)


def survives(run, out, full, undisturbed) -> None:
    run.await_checkpoint()
    full.begin()
    names = ("checkpoint.pt", "metrics.jsonl", "summary.json")
    said = [f"warning: {out / name} was not written, and the run continues without it" for name in names]
    wait_until(lambda: all(any(text in line for line in run.lines) for text in said), 30, "warnings")
    assert torch.load(out / "checkpoint.pt", weights_only=True)["format"] == "cohort checkpoint", "the one before"
    full.end()
    assert run.wait() == 0, run.errors.read_text()
    assert results_of(out) == undisturbed()
    assert not list(out.glob("*.tmp"))


def test_a_run_goes_on_when_files_may_not_grow(launch, undisturbed, tmp_path):
    run = launch.train()
    wait_until(lambda: run.pids()["trainer"], 30, "starting")
    survives(run, tmp_path / "run", FileLimit(run), undisturbed)


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def done(graph, tmp_path_factory, shm):
    """The folder of a run of two epochs, which tests leave as it is."""
    out = tmp_path_factory.mktemp("done") / "run"
    ran("train", graph, *OPTIONS, "--epochs", 2, "--quiet", "--out", out)
    return out


@pytest.fixture
def copied(done, tmp_path):
    return shutil.copytree(done, tmp_path / "copied")


def refused(words: list[str], *arguments) -> None:
    result = here("train", *arguments)
    assert result.returncode == 1, result.stdout + result.stderr
    assert "Traceback" not in result.stderr
    for word in words:
        assert word in result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--eval-fanout", "5,3"], ["--eval-fanout: expected no value, as ", "found 5,3"]),
        (["--lr", "0.5"], ["--lr: expected 0.01, as ", "run.json has it, found 0.5", "hint: leave it out"]),
        (["--lr", "0.003"], ["--lr: expected 0.01", "found 0.003"]),  # though it is the default
        (["--fanout", "5,4"], ["--fanout: expected 5,3", "found 5,4"]),
        (["--epochs", "1"], ["--epochs: expected at least 2, as ", "found 1"]),
        (["--overwrite"], ["--resume, --overwrite: expected one of the two, found both"]),
        (["--ranks", "2"], ["--ranks: expected 1 trainer", "found 2"]),
        (["--amp"], ["--amp: expected off", "found on"]),
        (["--out", "elsewhere"], ["--out: expected ", "where the run continues, found elsewhere"]),
        (["--callbacks", "nowhere:Logs"], ["--callbacks nowhere:Logs: expected package.module:Class", "hint: modules"]),
    ],
    ids=lambda value: value[0].strip("-") if isinstance(value, list) else None,
)
def test_options_that_contradict_the_run_are_refused(done, arguments, words):
    before = (done / "run.json").read_bytes()
    refused(words, "--resume", done, *arguments)
    assert (done / "run.json").read_bytes() == before


def test_a_run_of_several_machines_goes_on_on_as_many(copied):
    run = json.loads((copied / "run.json").read_text())
    (copied / "run.json").write_text(json.dumps(run | {"machines": {"hosts": ["a", "b"]}}))
    (copied / "checkpoint.pt").unlink()
    refused(["--resume: expected 2 machines, as of the run, found 1", "hint: continue"], "--resume", copied)


def test_a_run_that_fails_before_its_first_step_replaces_no_other(graph, copied):
    before = {file.name: file.read_bytes() for file in copied.glob("*.pt")}
    env = os.environ | {"COHORT_HOST_MEMORY_BYTES": "1000"}
    failed = cohort("train", graph, *OPTIONS, "--quiet", "--overwrite", "--out", copied, env=env)
    assert failed.returncode == 1 and "found 1.00 KB available" in failed.stderr
    assert f"the results of the earlier run in {copied} are still there" in failed.stderr
    assert before == {file.name: file.read_bytes() for file in copied.glob("*.pt")} and len(before) == 2


def test_a_run_whose_checkpoint_is_damaged_is_not_told_to_go_on_from_it(copied):
    file = copied / "checkpoint.pt"
    file.write_bytes(file.read_bytes()[:-100])
    again = here("train", "--resume", copied, "--epochs", 3, "--quiet")
    assert again.returncode == 1 and "to continue" not in again.stderr
    assert "without it, --resume starts the run from the beginning" in again.stderr
    file.unlink()
    ran("train", "--resume", copied, "--epochs", 3, "--quiet")
    assert position(copied) == (3, 0)


def test_a_config_and_a_data_set_that_contradict_the_run_are_refused(done, tmp_path):
    (tmp_path / "run.toml").write_text("batch-size = 64\n")
    refused(["--batch-size: expected 32", "found 64"], "--resume", done, "--config", tmp_path / "run.toml")
    refused([f"{tmp_path}", "expected"], tmp_path, "--resume", done)


def test_a_run_goes_on_with_its_data_set_where_that_is_now(graph, copied, cora, tmp_path):
    run = json.loads((copied / "run.json").read_text())
    run["sampler"]["dataset"] = str(tmp_path / "before")
    (copied / "run.json").write_text(json.dumps(run))
    words = f"{tmp_path / 'before'}: expected the data set of the run, found no such folder"
    refused([words, f"hint: if it was moved: cohort train --resume {copied} DIR"], "--resume", copied)
    (tmp_path / "now").symlink_to(graph)
    ran("train", "--resume", copied, tmp_path / "now", "--epochs", 3)
    assert len(json.loads((copied / "summary.json").read_text())["epochs"]) == 3
    before = (copied / "run.json").read_bytes()
    words = f"{cora}: expected the data set that the run was started on, found one with other description, splits"
    refused([words, "hint: name the folder of that data set"], "--resume", copied, cora, "--epochs", 4)
    assert (copied / "run.json").read_bytes() == before


def test_results_come_back_where_a_new_run_does_not_start(copied, graph):
    before = {path.name: path.read_bytes() for path in copied.iterdir() if not path.name.endswith(".log")}
    arguments = [graph, *OPTIONS, "--compress", "both", "--overwrite", "--out", copied]
    refused(["a data set with encoded rows", f"the results of the earlier run in {copied} are still there"], *arguments)
    assert {path.name: path.read_bytes() for path in copied.iterdir() if not path.name.endswith(".log")} == before


def test_a_run_that_is_done_goes_on_for_more_epochs(copied, graph, tmp_path):
    """As if it had been begun with so many; and it says what it does, though it was quiet before."""
    more = ran("train", "--resume", copied, "--epochs", 4)
    assert "continues in epoch 3, after step 0" in more.stdout
    assert more.stdout.splitlines()[-1] == f"results: {copied}  (cohort report {copied})"
    ran("train", graph, *OPTIONS, "--epochs", 4, "--quiet", "--out", tmp_path / "at-once")
    assert results_of(copied) == results_of(tmp_path / "at-once")
    again = cohort("train", "--resume", copied)
    accuracy = json.loads((copied / "summary.json").read_text())["test_accuracy"]
    assert f"cohort: all 4 epochs are done; test accuracy {100 * accuracy:.2f} %" in again.stdout, again.stderr
    assert "loss -" not in again.stdout and "continues" not in again.stdout
    assert cohort("train", "--resume", copied, "--quiet").stdout == ""


def test_a_new_run_does_not_take_the_place_of_one_that_has_finished_an_epoch(copied, graph):
    before = {path.name: path.read_bytes() for path in copied.iterdir()}
    hint = f"hint: --resume {copied} continues it; --overwrite replaces it"
    refused([f"{copied}: expected a new folder, found a run of 2 epochs", hint], graph, *OPTIONS, "--out", copied)
    assert {path.name: path.read_bytes() for path in copied.iterdir()} == before
    hint = f"hint: this is a run: cohort train --resume {copied}"
    refused([f"{copied}: expected the folder of a data set, found the folder of a run", hint], copied)


def test_nor_that_of_one_that_has_saved_a_checkpoint(graph, tmp_path):
    for name in ("run.json", "checkpoint.pt"):
        (tmp_path / name).touch()
    words = f"{tmp_path}: expected a new folder, found a run in its first epoch"
    refused([words, f"hint: --resume {tmp_path} continues it"], graph, *OPTIONS, "--out", tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"run.json", "checkpoint.pt"}


@pytest.mark.parametrize("more", [[], ["--overwrite"]])
def test_nor_that_of_files_that_are_no_runs(graph, tmp_path, more):
    for name in ("model.pt", "report-mine.png"):
        (tmp_path / name).write_text("mine")
    words = f"{tmp_path}: expected a new folder or the folder of a run, found model.pt, but no run.json beside it"
    refused([words], graph, *OPTIONS, *more, "--out", tmp_path)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "model.pt": "mine",
        "report-mine.png": "mine",
    }
    (tmp_path / "model.pt").unlink()
    ran("train", graph, *OPTIONS, *more, "--epochs", 1, "--quiet", "--out", tmp_path)
    assert (tmp_path / "report-mine.png").read_text() == "mine"


def test_options_that_say_the_same_are_taken(copied, graph):
    same = [graph, *OPTIONS, "--epochs", 2, "--out", copied, "--quiet", "--checkpoint-every", 3]
    ran("train", "--resume", copied, *same)


def test_what_is_no_run_is_refused(copied, tmp_path):
    refused(["nowhere: expected the folder of a run, found no such folder", "--out"], "--resume", tmp_path / "nowhere")
    for text in ("{", "[]", '{"trainer": {"task": "digest"}}', "\x00\xff"):
        (copied / "run.json").write_text(text, encoding="latin-1")
        refused(["run.json: expected the run.json of cohort train"], "--resume", copied)
    assert here("train").returncode == 2


def test_a_folder_that_a_run_works_in_is_left_alone(launch, graph, tmp_path):
    from cohort_gnn.launch.run import folder as run_folder

    run = launch.train("--epochs", 1000)
    run.await_checkpoint()
    with pytest.raises(CohortError, match="expected a folder that no other run uses"):
        with run_folder.sole_use(tmp_path / "run"):
            pass
    run.stop(signal.SIGTERM)
    with run_folder.sole_use(tmp_path / "run"):
        pass
