"""One run of a sampler and its trainers, from folder to exit code."""

import contextlib
import json
import logging
import os
import shlex
import time
from pathlib import Path

from cohort_gnn.base.early import EarlyProgram
from cohort_gnn.base.files import demand_writable, write_whole
from cohort_gnn.base.log import RunLog
from cohort_gnn.base.programs import program, python
from cohort_gnn.channel.run_folder import RunFolder, rank_folders
from cohort_gnn.dataset.columns import read_columns, write_columns
from cohort_gnn.dataset.components import copy_components
from cohort_gnn.dataset.treatment import copy_treatment
from cohort_gnn.launch.options.own_code import own_code_words
from cohort_gnn.launch.run.machines import Meeting
from cohort_gnn.launch.run.mps import start_mps
from cohort_gnn.launch.run.stopping import Stopped, heed_stop, ignore_stop_signals, stop_on_signals
from cohort_gnn.launch.run.supervise import Supervisor, rank_environment
from cohort_gnn.spec import files

LOG = logging.getLogger(__name__)


def run_programs(
    out: Path,
    run: dict,
    show_output: bool,
    inherited: tuple[int, ...] = (),
    is_kept: bool = True,
    meeting: Meeting | None = None,
    notes: RunLog | None = None,
    early: EarlyProgram | None = None,
) -> int:
    """Starts a sampler and its trainers on ``run`` (what becomes run.json), watches them; returns the exit code.

    ``run["sampler"]`` gets ``channel`` and ``owner_pid`` here, ``run`` the monotonic second at which they ``began``.
    0: all ended well; 1: one failed, reported on standard error; 128 + n: stopped by signal n.

    Args:
        inherited: descriptors that the processes hold open as long as they live.
        is_kept: the folder stays when the run has ended.
        meeting: with the other machines of the run, if there are any.
        notes: go to trainer.log, too.
        early: a trainer that waits to be told; a run of one trainer with ``show_output`` takes it.
    """
    stop_on_signals()
    before = _written_at(out / files.CHECKPOINT)
    try:
        with contextlib.ExitStack() as cleanup:
            supervisor = _start(out, run, show_output, inherited, cleanup, meeting, notes, early)
            try:
                code = supervisor.watch()
                heed_stop()  # one that came at the very end is for whoever called us, too
            except Stopped as stop:
                supervisor.stop_trainers()
                if meeting:
                    meeting.announce_end(f"stopped by signal {stop.number}")
                raise
    except Stopped as stop:
        kept = f"; what is finished is in {out}" if is_kept else ""
        LOG.info(f"stopped by signal {stop.number}{kept}")
        code = 128 + stop.number
    saved = _written_at(out / files.CHECKPOINT)
    if saved is not None and (code > 1 or (code == 1 and saved != before)):  # the one before may be why it failed
        folder = out.parent if meeting and meeting.machine.rank else out
        everywhere = ", on every machine" if meeting else ""
        words = shlex.join(["cohort", "train", "--resume", str(folder), *own_code_words(run["trainer"])])
        LOG.info(f"to continue: {words}{everywhere}")
    return code


def _written_at(file: Path) -> int | None:
    return file.stat().st_mtime_ns if file.exists() else None


def _start(
    out: Path,
    run: dict,
    show_output: bool,
    inherited: tuple[int, ...],
    cleanup: contextlib.ExitStack,
    meeting: Meeting | None,
    notes: RunLog | None,
    early: EarlyProgram | None,
) -> Supervisor:
    """What must be undone goes to ``cleanup``; signals are ignored from there on."""
    folder = RunFolder()
    cleanup.callback(folder.remove)
    for dead in folder.swept:
        LOG.info(f"removed the files of a dead run: {dead}")
    on_gpu = run["sampler"]["device"] == "cuda"
    mps = start_mps() if on_gpu and run["mps"] else None
    if mps:
        cleanup.callback(mps.stop)
    run["time_sliced"] = on_gpu and mps is None
    if early and (run["sampler"]["num_ranks"] > 1 or meeting):  # the trainers' environments have their places
        early.drop()
        early = None
    run["began"] = early.began if early else time.monotonic()
    run["sampler"] |= {"channel": str(folder.path), "owner_pid": os.getpid(), "end_with_parent": True}
    hint = "make room, or check its permissions; a new run may have another --out"
    with demand_writable(out / files.RUN, "a file that can be written", hint):
        write_whole(out / files.RUN, json.dumps(run, indent=2) + "\n")
        write_columns(out, read_columns(run["sampler"]["dataset"]))
        copy_treatment(Path(run["sampler"]["dataset"]), out)
        copy_components(Path(run["sampler"]["dataset"]), out)
    num_ranks = run["sampler"]["num_ranks"]
    num_trainers = 1 if run["trainer"]["task"] == "digest" else num_ranks  # one digests the batches of all ranks
    channels = rank_folders(folder.path, num_ranks)
    supervisor = Supervisor(channels, mps, inherited, meeting)
    cleanup.callback(supervisor.stop)
    cleanup.callback(ignore_stop_signals)
    owners = run["sampler"].get("row_owners")  # it answers the samplers of other machines
    listener = (owners["listener"],) if owners else ()
    command = [program("cohort-sampler"), str(out / files.RUN)]
    supervisor.start("sampler", command, out / "sampler.log", {}, descriptors=listener)
    command = python("-m", "cohort_gnn.trainer", str(out / files.RUN))
    machines = run.get("machines", {"interface": "lo", "first_rank": 0, "num_ranks": num_trainers})
    among_all = machines["interface"], machines["first_rank"], machines["num_ranks"]
    for rank in range(num_trainers):
        log = out / (f"trainer-{rank}.log" if rank else "trainer.log")
        env = rank_environment(rank, num_trainers, *among_all)
        with_notes = notes if rank == 0 else None
        if with_notes is not None:
            with_notes.begin(log)
        supervisor.start("trainer", command, log, env, rank, show_output, with_notes is not None, early=early)
    if meeting:
        meeting.begins(channels)
    return supervisor
