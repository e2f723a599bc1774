"""base/programs.py: what programs have in common."""

import json
import os
import resource
import subprocess
import sys
import time
from functools import partial
from types import SimpleNamespace

import pytest

from cohort_gnn.base import programs

PROGRAM = """
import os, sys
from cohort_gnn.base.programs import open_closed_streams

open_closed_streams()
print(sys.stdin.read(), file=sys.stderr)
print("heard", flush=True)
os.execvp("sh", ["sh", "-c", "cat && echo heard && echo heard >&2"])
"""


def test_standard_streams_that_are_closed_lead_nowhere():
    done = subprocess.run([sys.executable, "-c", PROGRAM], preexec_fn=lambda: os.closerange(0, 3))
    assert done.returncode == 0


def test_an_empty_log_on_a_full_disk_says_so(tmp_path, monkeypatch):
    log = tmp_path / "sampler.log"
    assert programs.log_tail(log) == "    (the log is empty)"
    monkeypatch.setattr(programs.shutil, "disk_usage", lambda path: SimpleNamespace(free=0))
    log.touch()
    assert programs.log_tail(log) == f"    (the log is empty: nothing more can be written to {tmp_path})"
    log.write_text("why\n")
    assert programs.log_tail(log) == "    why"


@pytest.mark.parametrize(
    ("code", "said"),
    [(3, "ended with exit code 3"), (-9, "was ended by SIGKILL"), (-40, "was ended by signal 40")],
)
def test_how_a_process_ended(code, said):
    assert programs.how_ended(code) == said


def test_the_sampler_says_that_a_limit_of_file_sizes_stops_it(cora, tmp_path, shm):
    options = {
        "dataset": str(cora),
        "fanout": [2],
        "batch_size": 8,
        "split": "train",
        "max_batches": 3,
        "refresh": True,
    }
    (tmp_path / "options.json").write_text(json.dumps(options))
    command = [programs.program("cohort-sampler"), "--presample", str(tmp_path / "options.json")]
    limit = (4096, resource.getrlimit(resource.RLIMIT_FSIZE)[1])
    limited = partial(resource.setrlimit, resource.RLIMIT_FSIZE, limit)
    done = subprocess.run(command, preexec_fn=limited, capture_output=True, text=True)
    assert done.returncode == 1 and "File too large\n  hint: raise the limit of file sizes: ulimit -f" in done.stderr


def test_a_process_runs_until_its_last_thread_has_ended():
    """One that a signal ends keeps its files while a thread is still copying one."""
    first_thread_ends = (
        "import ctypes, threading; threading.Thread(target=input).start(); ctypes.CDLL(None).syscall(60, 0)"
    )
    process = subprocess.Popen([sys.executable, "-c", first_thread_ends], stdin=subprocess.PIPE)
    while programs.start_time_of(process.pid) is not None:
        time.sleep(0.01)
    assert programs.runs(process.pid) and not programs.has_ended(process)
    programs.end_processes([process], 60.0)
    assert programs.has_ended(process) and not programs.runs(process.pid)
    assert process.returncode is not None
