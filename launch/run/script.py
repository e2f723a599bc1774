"""``cohort run``: runs a training script of your own, under MPS on a GPU, and once per GPU or rank."""

import argparse
import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from cohort_gnn.base.cuda_files import remove_cuda_files
from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.machine import devices
from cohort_gnn.base.programs import POLITE, end_processes, end_with_parent, how_ended
from cohort_gnn.launch.options.devices import resolve_device
from cohort_gnn.launch.options.parser import add_options, spec_of
from cohort_gnn.launch.run.job import count_ranks
from cohort_gnn.launch.run.mps import start_mps
from cohort_gnn.launch.run.stopping import Stopped, handlers_kept, ignore_stop_signals, pause, stop_on_signals
from cohort_gnn.launch.run.supervise import POLL_SECONDS, rank_environment
from cohort_gnn.spec.run import SamplerSpec

LOG = logging.getLogger(__name__)

STOP_SECONDS = 5.0


def register(parser) -> None:
    """Adds the arguments of the command."""
    parser.description = __doc__
    add_options(
        parser,
        SamplerSpec,
        only=("device", "gpus", "ranks"),
        gpus="numbers of the visible GPUs to use, with one process each, e.g. 0,1 (default: one process for all)",
        ranks="number of processes on the CPU (default 1); on GPUs there is one for each of --gpus",
    )
    parser.add_argument("script", type=Path, metavar="SCRIPT", help="a Python file")
    parser.add_argument("args", nargs=argparse.REMAINDER, help="arguments of the script").required = False
    parser.set_defaults(func=run_script)


def run_script(args: argparse.Namespace) -> int:
    """Runs the script, under an MPS daemon when there is a GPU; returns its exit code.

    With several --gpus or --ranks it runs once on each, in the environment that torchrun gives; the first that fails
    ends the others, and its exit code is returned.
    """
    if not args.script.is_file():
        actual = "a folder" if args.script.is_dir() else "no such file"
        raise CohortError(str(args.script), "a Python script", actual)
    mps, processes, began = None, [], time.time()
    with handlers_kept():
        stop_on_signals()
        try:
            spec = spec_of(args, SamplerSpec)
            device = resolve_device(spec.device)
            num_ranks = count_ranks(spec, device)
            mps = start_mps() if device == "cuda" else None
            with _meeting(num_ranks) as store:
                env = POLITE | os.environ | (mps.env if mps else {}) | store
                env |= {"CUDA_VISIBLE_DEVICES": ""} if spec.device == "cpu" else _visible(spec.gpus, env)
                command = [sys.executable, str(args.script), *args.args]
                for rank in range(num_ranks):
                    own = env | rank_environment(rank, num_ranks)
                    processes.append(subprocess.Popen(command, env=own, preexec_fn=end_with_parent))
                codes = [process.poll() for process in processes]
                while None in codes and not any(codes):  # till all have ended well, or one has not
                    pause(POLL_SECONDS)
                    codes = [process.poll() for process in processes]
            return _code_of(codes, processes)
        except Stopped as stop:
            return 128 + stop.number
        finally:
            ignore_stop_signals()
            end_processes(processes, STOP_SECONDS, mps.terminate_client if mps else None)
            remove_cuda_files([process.pid for process in processes], began)
            if mps:
                mps.stop()


def _code_of(codes: list[int | None], processes: list[subprocess.Popen]) -> int:
    """The exit code of the first process that has failed, of which a line says how; 0: none has."""
    code, process = next((pair for pair in zip(codes, processes, strict=True) if pair[0]), (0, None))
    if process is None or not code:
        return 0
    if len(processes) > 1 or code < 0:
        name = f"rank {processes.index(process)}" if len(processes) > 1 else "the script"
        cause = "; did memory run out?" if code == -signal.SIGKILL else ""
        LOG.info(f"{name} (process {process.pid}) {how_ended(code)}{cause}")
    return code if code > 0 else 128 - code


@contextlib.contextmanager
def _meeting(num_ranks: int):
    """Holds the store by which torch.distributed joins the processes; yields what tells them of it. It listens on a
    port, as ``init_process_group`` takes no file from the environment; no other machine reaches this port."""
    if num_ranks == 1:
        yield {}
        return
    from torch.distributed import TCPStore

    host = "127.0.0.1"
    listener = socket.create_server((host, 0))  # torch's own would listen on every address of the machine
    port = listener.getsockname()[1]
    how = {"is_master": True, "wait_for_workers": False, "master_listen_fd": listener.detach()}
    store = TCPStore(host, port, **how)  # noqa: F841 (it serves as long as it lives)
    address = {"MASTER_ADDR": host, "MASTER_PORT": str(port)}
    yield address | {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "0"}


def _visible(chosen: list[int] | None, env: Mapping[str, str]) -> dict[str, str]:
    """The variables that make the chosen GPUs, of those visible in ``env``, the only visible ones, in this order."""
    if chosen is None:
        return {}
    num_gpus = len(devices()["gpus"])
    if max(chosen) >= num_gpus:
        raise CohortError("--gpus", f"some of the {num_gpus} that are visible, numbered from 0", str(max(chosen)))
    visible = env.get("CUDA_VISIBLE_DEVICES")
    names = visible.split(",") if visible else list(map(str, range(num_gpus)))
    return {"CUDA_VISIBLE_DEVICES": ",".join(names[gpu] for gpu in chosen)}
