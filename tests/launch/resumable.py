"""Runs that are stopped and taken up again, and what two runs that computed the same have in common."""

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from processes import SECONDS_TO_START, hear_hangups, processes_of, ran, wait_until

import cohort_gnn as cohort
from cohort_gnn.dataset.partitioning.partition import parts_file

NUM_NODES, NUM_CLASSES, DIM = 1500, 5, 12
NUM_SEEDS = 1000  # of training: 32 batches of 32, the last of 8
OPTIONS = ["--device", "cpu", "--fanout", "5,3", "--batch-size", "32", "--hidden", "16", "--lr", "0.01", "--seed", "4"]
EPOCHS = 9
RECORDER = """
import os, signal
from pathlib import Path
from cohort_gnn import Callback
from cohort_gnn.trainer.bench.digest import digest

class Digests(Callback):
    '''Writes a line for each step of its rank's training; the file `kill` says after which the trainer is killed.'''

    def step_ended(self, trainer, batch):
        if trainer.task != "train":
            return
        rank, epoch, step = trainer.ranks.rank, trainer.running.epoch, trainer.running.step
        with open(f"digests-{rank}", "a") as file:
            print(epoch, step, digest(batch, all_rows=trainer.all_rows), file=file)
        kill = Path("kill")
        if kill.exists() and kill.read_text() == f"{rank} {epoch} {step}":
            for write in trainer.writer._waiting:
                write.result()
            kill.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
"""


def small_graph(folder: Path) -> Path:
    """A data set whose labels can be learned; its nodes are divided into two parts."""
    generator = torch.Generator().manual_seed(3)
    labels = torch.randint(NUM_CLASSES, (NUM_NODES,), generator=generator)
    ids = torch.randperm(NUM_NODES, generator=generator)
    written = cohort.from_tensors(
        folder,
        x=torch.rand(NUM_NODES, DIM, generator=generator) + F.one_hot(labels, DIM) * 0.5,
        y=labels,
        edge_index=torch.randint(NUM_NODES, (2, 10000), generator=generator),
        train_ids=ids[:NUM_SEEDS],
        val_ids=ids[NUM_SEEDS:1250],
        test_ids=ids[1250:],
    )
    np.save(parts_file(written, 2), torch.randint(2, (NUM_NODES,), generator=generator).int().numpy())
    return written


class Launch:
    """A running `cohort train`, quiet, with its standard error in a file beside `out`.

    Args:
        before: what the launcher's process does before all else (preexec_fn).
        folder: the current folder of its processes.

    Attributes:
        lines: of its standard output, as they come.
    """

    def __init__(self, out: Path, *arguments, before: Callable = hear_hangups, folder: Path | None = None):
        self.out, self.errors = out, out.with_suffix(".err")
        self.lines: list[str] = []
        with open(self.errors, "w") as errors:
            command = [sys.executable, "-m", "cohort_gnn", "train", *map(str, arguments), "--quiet"]
            self.launcher = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=folder,
                preexec_fn=before,
            )
        self._reader = threading.Thread(target=lambda: self.lines.extend(self.launcher.stdout), daemon=True)
        self._reader.start()

    def pids(self) -> dict[str, list[int]]:
        """Of the launcher, the sampler and the trainers, those that run."""
        found = {"launcher": [self.launcher.pid], "sampler": [], "trainer": []}
        for pid, argv in processes_of(self.out / "run.json").items():
            found["sampler" if argv[0].endswith("/cohort-sampler") else "trainer"].append(pid)
        return found

    def wait(self) -> int:
        """The exit code, when it has ended."""
        code = self.launcher.wait(timeout=120)
        self._reader.join()
        return code

    def stop(self, number: signal.Signals) -> str:
        """Sends a signal to the launcher; what it has said when it ended with the signal's exit code."""
        self.launcher.send_signal(number)
        assert self.wait() == 128 + number, self.errors.read_text()
        return self.errors.read_text()

    def await_checkpoint(self) -> None:
        """Waits for a checkpoint of this run, or its end."""
        path = self.out / "checkpoint.pt"
        before = path.stat().st_mtime_ns if path.exists() else None

        def written() -> bool:
            return path.exists() and path.stat().st_mtime_ns != before

        wait_until(lambda: written() or self.launcher.poll() is not None, SECONDS_TO_START, "a checkpoint")


def without_times(value):
    """The same nest, less what the clock has measured: times and rates."""
    if isinstance(value, dict):
        return {
            name: without_times(member) for name, member in value.items() if not name.endswith(("seconds", "per_s"))
        }
    return [without_times(member) for member in value] if isinstance(value, list) else value


def results_of(out: Path) -> dict:
    """What RUN/summary.json and RUN/metrics.jsonl hold but for times, as far as a later part of the run says it too."""
    summary = without_times(json.loads((out / "summary.json").read_text()))
    assert summary.pop("floor")["epochs"] and summary.pop("start")["parts"], "a run at its end has floors: times"
    lines = [without_times(json.loads(line)) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return {"summary": summary, "metrics": lines}


def learned(out: Path) -> tuple:
    """What a run has computed: equal to the last bit, or not."""
    summary = results_of(out)["summary"]
    names = ("loss", "val_accuracy", "num_seeds", "num_nodes", "num_edges")
    return summary["test_accuracy"], [[epoch[name] for name in names] for epoch in summary["epochs"]]


def demand_going_on(graph: Path, folder: Path, *options, stops: int = 1) -> list[int]:
    """A run that is stopped at checkpoints and taken up again ends with the results and weights of one that is not.

    Returns:
        at which step of its epoch it was stopped, each time.
    """
    undisturbed, out, steps = folder / "undisturbed", folder / "run", []
    ran("train", graph, *options, "--quiet", "--out", undisturbed)
    for stop in range(stops):
        begun = Launch(out, "--resume", out) if stop else Launch(out, graph, *options, "--out", out)
        begun.await_checkpoint()
        begun.stop(signal.SIGTERM)
        steps.append(torch.load(out / "checkpoint.pt", weights_only=True)["step"])
    ran("train", "--resume", out, "--quiet")
    assert results_of(out) == results_of(undisturbed)
    first, second = (torch.load(run / "model.pt", weights_only=True) for run in (out, undisturbed))
    assert first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)
    return steps


def record_batches(folder: Path) -> list:
    """Options of runs whose processes have this current folder: their trainers write digests of batches there."""
    folder.mkdir(exist_ok=True)
    (folder / "recorder.py").write_text(RECORDER)
    return ["--callbacks", "recorder:Digests"]


def recorded(folder: Path, rank: int) -> list[tuple[int, int, str]]:
    """(epoch, steps done in it, digest) of each batch that a rank has trained on, in order."""
    lines = (folder / f"digests-{rank}").read_text().splitlines()
    return [(int(epoch), int(step), digest) for epoch, step, digest in map(str.split, lines)]
