#!/usr/bin/env bash
# METIS in Python: SIGTERM while a graph is divided.
#
# Needs: python3, PyPI; pymetis==2025.2.2 in a temporary venv. Seen: that. Guess before the run: Python's handler is
# called when the C function returns, as with other libraries; without a handler, the process ends at once.
# Seen: METIS sets a handler of its own for the time of the call. The call ends with "Caught an unknown exception!", which
# looks like an error of the graph, and Python's handler is never called. Afterwards SIGTERM stays blocked, in this thread
# and in processes that it starts: neither `kill` nor SLURM nor `docker stop` ends them before they send SIGKILL.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" -q install pymetis==2025.2.2
"$work/venv/bin/python" - <<'END'
import importlib.metadata
import os
import random
import signal
import subprocess
import sys
import time

import pymetis

random.seed(0)
NODES = 60_000
neighbors = [set() for _ in range(NODES)]
for _ in range(10 * NODES):
    a, b = random.randrange(NODES), random.randrange(NODES)
    if a != b:
        neighbors[a].add(b)
        neighbors[b].add(a)
neighbors = [sorted(each) for each in neighbors]
begun = time.monotonic()
pymetis.part_graph(8, neighbors)
seconds = time.monotonic() - begun
print("pymetis", importlib.metadata.version("pymetis"), f"divides the graph in {seconds:.1f} s")


came = []
signal.signal(signal.SIGTERM, lambda *_: came.append("SIGTERM"))
os.kill(os.getpid(), signal.SIGTERM)
time.sleep(0.1)
assert came == ["SIGTERM"] and not signal.pthread_sigmask(signal.SIG_BLOCK, [])
send = "import os, sys, time; time.sleep(float(sys.argv[1])); os.kill(int(sys.argv[2]), 15)"
sender = subprocess.Popen([sys.executable, "-S", "-c", send, str(seconds / 2), str(os.getpid())])
try:
    pymetis.part_graph(8, neighbors)
    said = "a partition"
except RuntimeError as error:
    said = f"RuntimeError: {error}"
sender.wait()
time.sleep(0.1)
print("a SIGTERM in the middle:", said, "| calls of the handler:", len(came) - 1)
assert said == "RuntimeError: Caught an unknown exception!" and len(came) == 1

signal.signal(signal.SIGTERM, signal.SIG_DFL)
blocked = [number.name for number in signal.pthread_sigmask(signal.SIG_BLOCK, [])]
os.kill(os.getpid(), signal.SIGTERM)
time.sleep(0.1)
print("blocked afterwards:", *blocked, "| another SIGTERM, without any handler: the process runs on")
assert blocked == ["SIGTERM"]
END
