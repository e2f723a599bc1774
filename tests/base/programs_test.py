"""base/programs.py: what programs have in common."""

import os
import subprocess
import sys
from types import SimpleNamespace

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
