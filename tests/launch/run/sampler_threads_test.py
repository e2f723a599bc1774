"""--sampler-threads, and that options which the sampler knows by the same name reach it."""

import json
import subprocess
from pathlib import Path

import pytest
from processes import SECONDS_TO_END, SECONDS_TO_START, processes_of, wait_until

from cohort_gnn.base.programs import program
from cohort_gnn.spec.options import options_of
from cohort_gnn.spec.run import SamplerSpec

pytestmark = pytest.mark.usefixtures("shm")


def test_the_sampler_has_so_many_threads(launch):
    fewest = None
    for count in (1, 3):
        large = ["--batch-size", 1000, "--fanout", "30,30"]  # of small batches one thread draws
        run = launch.train("--sampler-threads", count, "--epochs", 10000, "--overwrite", *large)
        run.await_checkpoint()
        assert json.loads((run.out / "run.json").read_text())["sampler"]["sampler_threads"] == count
        (pid,) = run.pids()["sampler"]
        threads = Path(f"/proc/{pid}/task")
        if fewest is None:
            fewest = min(len(list(threads.iterdir())) for _ in range(100))
        else:
            least = fewest + 2
            wait_until(lambda at=threads, n=least: len(list(at.iterdir())) >= n, SECONDS_TO_START, "a team of threads")
        run.launcher.kill()
        run.wait()
        wait_until(lambda run=run: not processes_of(run.out), SECONDS_TO_END, "ending the children")


def test_what_is_handed_on_by_name_is_an_option_of_the_sampler():
    table = subprocess.run([program("cohort-sampler"), "--options"], capture_output=True, text=True, check=True).stdout
    names = [line.split("`")[1] for line in table.splitlines()[2:] if line]
    assert len(names) == len(set(names)) > 30
    assert {each.name for each in options_of(SamplerSpec) if each.for_sampler} <= set(names)
