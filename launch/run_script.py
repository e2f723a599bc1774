"""``cohort run``: runs a training script of your own with everything around it."""

import argparse
import os
import subprocess
import sys
from pathlib import Path

from cohort.base.errors import CohortError
from cohort.launch.devices import resolve_device
from cohort.launch.mps import end_with_parent
from cohort.launch.runs import start_mps
from cohort.launch.supervise import Stopped, stop_on_signals


def register(commands) -> None:
    """Adds the command."""
    parser = commands.add_parser("run", help="run your own script", description=__doc__)
    parser.add_argument("--device", choices=["auto", "cuda", "cpu"], default="auto")
    parser.add_argument("script", type=Path)
    parser.add_argument("args", nargs=argparse.REMAINDER, help="arguments of the script")
    parser.set_defaults(func=run_script)


def run_script(args: argparse.Namespace) -> int:
    """Runs the script under an MPS daemon when there is a GPU; returns the script's exit code."""
    if not args.script.is_file():
        raise CohortError(str(args.script), "a Python script", "no such file")
    stop_on_signals()
    mps = start_mps() if resolve_device(args.device) == "cuda" else None
    process = None
    try:
        env = os.environ | (mps.env if mps else {}) | {"COHORT_RUN": "1"}
        process = subprocess.Popen([sys.executable, str(args.script), *args.args], env=env, preexec_fn=end_with_parent)
        code = process.wait()
        return code if code >= 0 else 128 - code
    except Stopped as stop:
        return 128 + stop.number
    finally:
        if process and process.poll() is None:
            _stop(process, mps)
        if mps:
            mps.stop()


def _stop(process: subprocess.Popen, mps) -> None:
    process.terminate()
    try:
        process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        if mps:
            mps.terminate_client(process.pid)
        process.kill()
        process.wait()
