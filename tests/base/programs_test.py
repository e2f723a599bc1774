"""base/programs.py: what programs have in common."""

import os
import subprocess
import sys

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
