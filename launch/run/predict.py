"""``cohort predict``: applies a trained model to all nodes: scores, classes, or the best targets of links."""

import argparse
import contextlib
import json
import logging
import os
import re
import signal
import subprocess
import time
from pathlib import Path

from cohort_gnn.base.cuda_files import remove_cuda_files
from cohort_gnn.base.errors import CohortError, not_a_run
from cohort_gnn.base.files import demand_output, demand_regular, remove_temporaries
from cohort_gnn.base.programs import POLITE, end_processes, python
from cohort_gnn.cache.budget import available_host_bytes
from cohort_gnn.dataset.meta import array_files
from cohort_gnn.dataset.tasks import NS_OF_UNIT, instant_of, open_task, tasks_of
from cohort_gnn.launch.options.devices import resolve_device
from cohort_gnn.launch.options.parser import add_options, kind, spec_of
from cohort_gnn.launch.run.stopping import Stopped, handlers_kept, pause, stop_on_signals
from cohort_gnn.launch.run.supervise import POLL_SECONDS, begin_child
from cohort_gnn.spec import files
from cohort_gnn.spec.run import SamplerSpec
from cohort_gnn.spec.run_file import read_run_json
from cohort_gnn.spec.types import Bytes, Positive, Probability, Time

LOG = logging.getLogger(__name__)

YEAR_10000 = 253_402_300_800 * 10**9  # nanoseconds since 1970
STOP_SECONDS = 15.0  # for its program to finish a piece of the graph, and to remove what it has written so far


def register(parser) -> None:
    """Adds the arguments of the command."""
    parser.description = __doc__
    parser.add_argument("run", type=Path, metavar="RUN", help="folder of a run of cohort train")
    parser.add_argument("dataset", type=Path, metavar="DIR", help="folder of a data set, the run's or another")
    parser.add_argument(
        "--out",
        type=Path,
        required=True,
        metavar="FILE",
        help=".npy: float32 scores [V, classes]; a model that predicts links: float32 rows [V, hidden]. .parquet or"
        " .csv: a table with the ids that nodes had in the source, the predicted class by its name, and the"
        " probability of each class",
    )
    parser.add_argument(
        "--classes",
        action="store_true",
        help="write predictions instead of scores: class index (int64 [V]); multi-label: 0/1 matrix (uint8 [V, L]);"
        " regression: value (float32 [V]); in a table: no probabilities of other classes",
    )
    parser.add_argument(
        "--nodes",
        type=Path,
        metavar="IDS",
        help="write only these nodes (with --top-k: sources), in this order: .npy, .csv or .parquet file of one column"
        " with their ids in the source, or their numbers if they had none",
    )
    parser.add_argument(
        "--at-time",
        type=_time_given,
        metavar="T",
        help="a run that used times of edges: predict from the edges that exist at this time, in the unit of the data"
        " set's times; of a task whose times are timestamps or dates also as 2024-07-01 or 2024-07-01T12:00+02:00",
    )
    parser.add_argument(
        "--threshold",
        type=kind(Probability),
        metavar="P",
        help="a table of two classes or of several labels: predict the second class, or a label, from this probability"
        " on (default: 0.5)",
    )
    parser.add_argument(
        "--node-type",
        metavar="TYPE",
        help="a model that predicts links between two node types: the node type whose rows are written",
    )
    parser.add_argument(
        "--top-k",
        type=kind(Positive),
        metavar="K",
        help="a model that predicts links: write the K targets with the best scores for each source instead, best"
        " first: int64 [sources, K]; -1: there are fewer. In a table: a row for each, with the ids of both, the rank"
        " and the score",
    )
    parser.add_argument(
        "--exclude-seen",
        action=argparse.BooleanOptionalAction,
        help="--top-k leaves out targets that the source is linked to (default); the source itself always",
    )
    _add_keeping(parser)
    add_options(parser, SamplerSpec, only=("device",))
    parser.add_argument(
        "--memory",
        type=kind(Bytes),
        help="host memory to use; larger hidden layers are kept in files beside PRED.npy (default: half of the free"
        " memory)",
    )
    parser.add_argument("--quiet", action="store_true", help="print no progress bar")
    parser.set_defaults(func=predict)


def _add_keeping(parser) -> None:
    """Adds the options of rows that stay for later."""
    parser.add_argument(
        "--keep",
        type=Path,
        metavar="FOLDER",
        help="keep the rows of all layers for a later --update, float32: the hidden columns of each layer and the"
        " scores, of each node",
    )
    parser.add_argument(
        "--update",
        type=Path,
        metavar="FOLDER",
        help="compute only what has changed in DIR since a predict with --keep FOLDER: edges, nodes, features; the"
        " output is, byte for byte, that of a predict of all. --keep keeps its rows, in the same folder or another",
    )


def _time_given(text: str) -> int | str:
    """An integer, or a timestamp, which the task explains."""
    return text if re.match(r"\d+-", text) else kind(Time)(text)


def _instant_of(args: argparse.Namespace) -> int:
    """--at-time as the times of the run's task are; warns of an integer that is no year of theirs, as 20240701 is."""
    run = read_run_json(args.run, "trainer", "sampler")
    name, folder = run["trainer"].get("task_name"), Path(run["sampler"].get("dataset", args.dataset))
    has_task = name is not None and name in tasks_of(args.dataset)
    if isinstance(args.at_time, int):
        unit = open_task(args.dataset, name).time_unit if has_task else None
        if unit is not None and args.at_time * NS_OF_UNIT[unit] >= YEAR_10000:
            text = f"--at-time {args.at_time}: after the year 9999, as times of --task {name} are {unit} since 1970"
            LOG.warning(f"{text}; a date is 2024-07-01")
        return args.at_time
    task = open_task(args.dataset if has_task else folder, name) if name is not None else None
    return instant_of(task, args.at_time, "--at-time")


def demand_all_rows(args: argparse.Namespace) -> None:
    """Raises CohortError for --keep and --update beside --top-k, which computes other rows."""
    for name in ("keep", "update"):
        if getattr(args, name) is not None and args.top_k is not None:
            hint = "--node-type TYPE in place of --top-k writes rows of nodes, which can be kept"
            raise CohortError(f"--{name}", "no --top-k beside it", "--top-k", hint)


def predict(args: argparse.Namespace) -> int:
    """Runs the command; the exit code is that of its program, 128 + n when signal n ended it."""
    out = args.out.absolute()
    names = (files.RUN, files.MODEL, files.CHECKPOINT, files.SUMMARY, files.METRICS)
    inputs = [args.dataset / "meta.json", *(args.run / name for name in names)]
    with contextlib.suppress(OSError, ValueError, KeyError, AttributeError, TypeError):  # the program says why
        demand_regular(args.dataset / "meta.json")
        meta = json.loads((args.dataset / "meta.json").read_text())
        inputs += [args.dataset / name for name in array_files(meta)]
    demand_output(out, inputs)  # none of the run's files and of the data set's
    if out.suffix not in (".npy", ".parquet", ".csv"):
        hint = f"--out {args.out.with_suffix('.npy')}"
        raise CohortError("--out", "a name that ends in .npy, .parquet or .csv", str(args.out), hint)
    if args.threshold is not None and out.suffix == ".npy":
        raise CohortError("--threshold", "a table as --out", args.out.name, "--out NAME.parquet")
    if args.nodes is not None:
        demand_regular(args.nodes)
    if args.exclude_seen is not None and args.top_k is None:
        raise CohortError("--exclude-seen", "--top-k beside it", "none", "--top-k K, or leave it out")
    if args.top_k is not None and (args.classes or args.node_type):
        raise CohortError("--top-k", "no --classes and no --node-type beside it", "one of them", "leave it out")
    device = resolve_device(spec_of(args, SamplerSpec).device)
    demand_all_rows(args)
    if not (args.run / "run.json").is_file():
        if (args.dataset / "run.json").is_file():
            raise not_a_run(args.run, f"the run comes first: cohort predict {args.dataset} {args.run}")
        raise not_a_run(args.run)
    job = {
        "run": str(args.run),
        "dataset": str(args.dataset),
        "out": str(out),
        "classes": args.classes,
        "node_type": args.node_type,
        "top_k": args.top_k,
        "exclude_seen": args.exclude_seen,
        "nodes": None if args.nodes is None else str(args.nodes.absolute()),
        "threshold": args.threshold,
        "at_time": None if args.at_time is None else _instant_of(args),
        "device": device,
        "memory_bytes": available_host_bytes() // 2 if args.memory is None else args.memory,
        "keep": None if args.keep is None else str(args.keep.absolute()),
        "update": None if args.update is None else str(args.update.absolute()),
        "quiet": args.quiet,
        "owner_pid": os.getpid(),
    }
    argument = json.dumps(job)
    command = python("-m", "cohort_gnn.trainer.predict", argument)
    early = getattr(args, "early", None)
    with handlers_kept():
        process, began = None, time.time()
        stop_on_signals()
        try:
            remove_temporaries(out)
            process = early.tell(argument, None, {}) if early else None
            process = process or subprocess.Popen(command, env=POLITE | os.environ, preexec_fn=begin_child)
            while (code := process.poll()) is None:
                pause(POLL_SECONDS)
            if code < 0:
                cure = "; if memory ran out, --memory has it take less" if code == -signal.SIGKILL else ""
                LOG.info(f"the prediction was ended by signal {-code}{cure}")
        except Stopped as stop:
            if process:
                end_processes([process], STOP_SECONDS)
            code = -stop.number
        if code < 0:
            remove_temporaries(out)
        if process:
            remove_cuda_files([process.pid], began)
    return code if code >= 0 else 128 - code
