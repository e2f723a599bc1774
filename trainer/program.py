"""What the trainer program of ``cohort train``, ``digest`` and ``bench`` does with a run.json."""

import json
import logging
import os
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import NoReturn

import torch

from cohort_gnn.base.early import Argument
from cohort_gnn.base.ending import lost_signals_repeated
from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.late_meta import load_meta
from cohort_gnn.base.log import logged
from cohort_gnn.base.programs import end_program, flush_output
from cohort_gnn.channel.run_folder import rank_folders
from cohort_gnn.dataset import open as open_dataset
from cohort_gnn.spec import files
from cohort_gnn.spec.run import TrainerSpec, from_json
from cohort_gnn.trainer.loader import _native
from cohort_gnn.trainer.loader.machine import ProcessRank
from cohort_gnn.trainer.loader.source import BatchSource, wait_for_channel
from cohort_gnn.trainer.loop.callbacks import callbacks_of
from cohort_gnn.trainer.loop.checkpoint import CheckpointFile, identity_of
from cohort_gnn.trainer.loop.passes import Passes, seeds_of_run
from cohort_gnn.trainer.loop.ranks import Ranks
from cohort_gnn.trainer.loop.results import Results
from cohort_gnn.trainer.loop.resume import Checkpoints
from cohort_gnn.trainer.loop.seeds import labels_of
from cohort_gnn.trainer.loop.stop import StopRequest
from cohort_gnn.trainer.loop.trainer import Trainer
from cohort_gnn.trainer.models.targets import baselines_of, targets_of
from cohort_gnn.trainer.report.cache_report import predicted
from cohort_gnn.trainer.report.floor import LowerBound
from cohort_gnn.trainer.report.gpu_memory import MemoryPeak
from cohort_gnn.trainer.report.log_lines import LogLines
from cohort_gnn.trainer.report.messages import OtherRanksError, printing, with_cure_for_lack_of_memory
from cohort_gnn.trainer.report.progress import Progress
from cohort_gnn.trainer.report.recorder import Recorder
from cohort_gnn.trainer.report.start import StartBar

LOG = logging.getLogger("cohort_gnn.trainer")  # __name__ is that of the program


def main(run_json: Path, loaded_at: float) -> int:
    """Runs what the member "trainer" of run.json says; returns the exit code.

    Args:
        loaded_at: seconds of time.monotonic() when this program had its packages.
    """
    run = json.loads(run_json.read_text())
    num_ranks = run["sampler"]["num_ranks"]
    # A rank that waits for a dead one in an all-reduce would never come to handle SIGTERM.
    several = num_ranks > 1 or "machines" in run
    _native.end_with_parent(run["sampler"]["owner_pid"], signal.SIGKILL if several else signal.SIGTERM)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the launcher's business
    stop = StopRequest()
    signal.signal(signal.SIGTERM, stop.on_signal)
    options = run["trainer"]
    if not is_ours(options):
        load_meta()
    digests = options["task"] == "digest"
    own_rank = int(os.environ["LOCAL_RANK"]) if num_ranks > 1 and not digests else 0
    machines = run.get("machines", {"first_rank": 0, "num_ranks": num_ranks})
    first, num_all = machines["first_rank"], machines["num_ranks"]
    if run["sampler"]["device"] == "cpu":
        _native.keep_freed_memory()
    elif not digests:
        # PyTorch's context on the GPU and cuBLAS are made ready while the sampler still has its own to do.
        one = torch.ones(1, 1, device=f"cuda:{run['sampler']['gpus'][own_rank]}")
        torch.cuda.synchronize((one @ one).device)
    folders = rank_folders(Path(run["sampler"]["channel"]), num_ranks)
    sources = []
    try:
        for rank, folder in enumerate(folders):
            if digests or rank == own_rank:
                is_quiet = first + rank > 0 or run["trainer"].get("quiet", True)
                with StartBar(folder, is_quiet, run["trainer"].get("log_seconds")) as look:
                    wait_for_channel(folder, look)
                sources.append(BatchSource(folder, rank=first + rank, num_ranks=num_all))
        if digests:
            from cohort_gnn.trainer.bench.digest import print_digests

            with printing():
                print_digests(sources, run)
        elif run["trainer"]["task"] == "step":
            from cohort_gnn.trainer.bench.steps import measure_steps

            measure_steps(sources[0], run, run_json.parent)
        elif run["trainer"]["task"] == "batches":
            from cohort_gnn.trainer.bench.batches import take_batches

            take_batches(sources[0], run, run_json.parent)
        else:
            process_rank = ProcessRank(first + own_rank, num_all, own_rank, num_ranks)
            with with_cure_for_lack_of_memory():
                _train(sources[0], process_rank, run, run_json.parent, stop, loaded_at)
        for source in sources:
            source.leave()
    except BaseException as error:
        for source in sources:
            source.fail(f"{type(error).__name__}: {error}")
        raise
    return 0


def _train(source, process_rank, run: dict, out: Path, stop: StopRequest, loaded_at: float) -> None:
    options = from_json(run["trainer"], TrainerSpec, str(out / files.RUN))
    if run.get("time_sliced") and options.sampler_sms:
        LOG.info("--sampler-sms has no effect: without MPS the two programs take turns")
        options.sampler_sms = 0
    if run.get("resume") and (out / files.CHECKPOINT).exists():
        options.init = None  # the checkpoint has the weights
    dataset = Path(run["sampler"]["dataset"])
    data = open_dataset(dataset)
    if dataset.stat().st_ino != run.get("dataset_inode", dataset.stat().st_ino):  # the sampler has the one before, too
        actual = "one that another command has replaced since the start"
        raise CohortError(str(dataset), "a data set that stays as it is", actual, "run this command again")
    task, seeds, links = seeds_of_run(data, options)
    if source.device.type == "cuda":
        torch.cuda.set_device(source.device)
    machines = run.get("machines", {"store": Path(run["sampler"]["channel"]) / "store", "has_checkpoint": True})
    ranks = Ranks(process_rank, source.device, machines["store"])
    checkpoints = Checkpoints(CheckpointFile(out / files.CHECKPOINT, identity_of(run)))
    only_measured = options.max_batches is not None
    floor = LowerBound(source.device, run["sampler"].get("bytes_per_second"), run.get("disk_rows_per_second"))
    callbacks = [
        Recorder(),
        MemoryPeak(),
        *([] if only_measured else [floor]),
        Results(run["began"], loaded_at),
        Progress(),
        LogLines(),
        *callbacks_of(options),
        *([] if only_measured else [checkpoints]),
    ]
    by_machine = ranks.gather(predicted(run["sampler"]) if ranks.local_rank == 0 else [])
    expected = None if None in by_machine else [shares for rank_shares in by_machine for shares in rank_shares]
    about = {
        "baselines": {} if task.kind == "link" else baselines_of(labels_of(task), targets_of(options.targets)),
        "time_sliced": run.get("time_sliced", False),
        "cache": None if expected is None else {"predicted": expected, "measured": []},
    }
    all_rows = source.all_rows(dataset)
    arguments = options, source, ranks, Passes(options, source, seeds, data), out, callbacks, stop, all_rows
    trainer = Trainer(*arguments, links=links, **about)
    if run.get("resume"):
        checkpoints.resume(trainer, machines["has_checkpoint"])
    trainer.run()
    if ranks.rank == 0 and trainer.scores_of_test is not None and options.max_batches is None:
        from cohort_gnn.trainer.predict.task_scores import write_task_scores, write_task_targets

        scores = trainer.scores_of_test.cpu().numpy()
        if links:
            write_task_targets(out / files.TEST_SCORES, data, task, links["test"].first_row, scores)
        else:
            write_task_scores(out / files.TEST_SCORES, data, task, "test", scores, trainer.targets)
    ranks.leave()


def is_ours(options: dict) -> bool:
    """Whether a run computes with Cohort's own layers, models, losses and callbacks alone."""
    named = " ".join(str(options.get(name)) for name in ("model", "loss", "callbacks"))
    return options.get("layers") == "cohort" and ":" not in named


def code_of(end: SystemExit) -> int:
    """The exit code that Python gives it: None is 0; of what is no number, which is printed, 1."""
    if end.code is None or isinstance(end.code, int):
        return end.code or 0
    print(end.code, file=sys.stderr)
    return 1


def run_program(argument: Argument) -> NoReturn:
    """Runs what the argument, the path of a run.json, says, and ends the process."""
    exit_code, loaded_at = 1, time.monotonic()
    path = Path(argument.get())
    try:
        with logged(), lost_signals_repeated():
            exit_code = main(path, loaded_at)
    except CohortError as error:
        print(f"cohort: {error}", file=sys.stderr)
    except SystemExit as stop:
        exit_code = code_of(stop)
    except OtherRanksError:
        traceback.print_exc()
        exit_code = os.EX_UNAVAILABLE  # the launcher lets the others' reason come first
    except BaseException:
        traceback.print_exc()
    flush_output()
    sys.stderr.flush()
    # Without destructors: after a failure they may wait for a process that is gone, and with several ranks Python ends
    # gloo's threads where C++ answers with abort() ("terminate called without an active exception").
    if exit_code != 0 or os.environ.get("WORLD_SIZE", "") not in ("", "1"):
        os._exit(exit_code)
    end_program(exit_code)
