"""``cohort predict``: the scores, or classes, that a trained model gives to every node of a graph."""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from cohort.base.errors import CohortError
from cohort.base.units import byte_count
from cohort.cache.budget import available_host_bytes
from cohort.launch.arguments import add_device_option
from cohort.launch.devices import resolve_device

QUIET = ("-W", "ignore:`torch.jit.script` is deprecated:FutureWarning")  # PyG's, as it is imported


def register(commands) -> None:
    """Adds the command."""
    parser = commands.add_parser("predict", help="apply a trained model to every node", description=__doc__)
    parser.add_argument("run", type=Path, metavar="RUN", help="folder of a run of cohort train")
    parser.add_argument("dataset", type=Path, metavar="DIR", help="folder of a data set, the run's or another")
    parser.add_argument(
        "--out", type=Path, required=True, metavar="PRED.npy", help="file to write: float32 scores [V, classes]"
    )
    parser.add_argument(
        "--classes",
        action="store_true",
        help="write answers instead: the best class of each node, int64 [V]; of several labels 1 for those it has,"
        " uint8 [V, labels]; of numbers those, float32 [V]",
    )
    add_device_option(parser)
    parser.add_argument(
        "--memory",
        type=byte_count,
        help="host memory to take; hidden layers that are larger lie in files beside PRED.npy (default: half of what is"
        " left)",
    )
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    parser.set_defaults(func=predict)


def predict(args: argparse.Namespace) -> int:
    """Runs the command; the exit code is that of its program, 128 + n when signal n ended it."""
    out = args.out.absolute()
    if not out.parent.is_dir():
        raise CohortError(str(out.parent), "an existing folder", "none", "make it, or choose another --out")
    if not (args.run / "run.json").is_file():
        hint = "name the folder that cohort train was given as --out"
        raise CohortError(str(args.run), "the folder of a run", "no run.json in it", hint)
    job = {
        "run": str(args.run),
        "dataset": str(args.dataset),
        "out": str(out),
        "classes": args.classes,
        "device": resolve_device(args.device),
        "memory_bytes": available_host_bytes() // 2 if args.memory is None else args.memory,
        "quiet": args.quiet,
        "owner_pid": os.getpid(),
    }
    with tempfile.NamedTemporaryFile("w", prefix="cohort-predict-", suffix=".json") as file:
        json.dump(job, file)
        file.flush()
        return _run([sys.executable, *QUIET, "-m", "cohort.trainer.predict", file.name])


def _run(command: list[str]) -> int:
    """The exit code of a program. Ctrl-C reaches it as well, and SIGTERM is handed on: it ends first."""
    process = subprocess.Popen(command)
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    try:
        code = process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return code if code >= 0 else 128 - code
