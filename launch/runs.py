"""One run of sampler and trainer, from folder to exit code."""

import json
import os
import sys
from pathlib import Path

from cohort.base.files import write_atomically
from cohort.base.programs import program
from cohort.channel.run_folder import RunFolder
from cohort.launch.mps import Mps
from cohort.launch.supervise import Stopped, Supervisor


def run_two_processes(out: Path, run: dict, show_output: bool) -> int:
    """Starts sampler and trainer on ``run`` (what becomes run.json), watches them; returns the exit code.

    ``run["sampler"]`` gets ``channel`` and ``owner_pid`` here. 0: both ended well; 1: one failed, reported on standard
    error; 128 + n: stopped by signal n.
    """
    folder = RunFolder()
    for dead in folder.swept:
        print(f"cohort: removed what a dead run left behind: {dead}", file=sys.stderr)
    mps = None
    supervisor = None
    try:
        mps = start_mps() if run["sampler"]["device"] == "cuda" and run.pop("mps", True) else None
        run["time_sliced"] = run["sampler"]["device"] == "cuda" and mps is None
        run["sampler"] |= {"channel": str(folder.path), "owner_pid": os.getpid(), "end_with_parent": True}
        write_atomically(out / "run.json", json.dumps(run, indent=2) + "\n")
        supervisor = Supervisor(folder.path, mps)
        supervisor.start("sampler", [program("cohort-sampler"), str(out / "run.json")], out / "sampler.log")
        trainer = supervisor.start(
            "trainer", [sys.executable, "-m", "cohort.trainer", str(out / "run.json")], out / "trainer.log", show_output
        )
        return supervisor.watch(trainer)
    except Stopped as stop:
        print(f"cohort: stopped by signal {stop.number}; what is finished is in {out}", file=sys.stderr)
        return 128 + stop.number
    finally:
        if supervisor:
            supervisor.stop()
        if mps:
            mps.stop()
        folder.remove()


def start_mps() -> Mps | None:
    """The MPS daemon for a run on a GPU; None, said aloud, when there is none to be had."""
    mps = Mps()
    if mps.active:
        return mps
    print(
        f"cohort: no MPS ({mps.problem}): sampler and trainer will be time-sliced on the GPU, and wait for each other",
        file=sys.stderr,
    )
    return None
