#!/usr/bin/env bash
# NetworKit: Ctrl-C while an algorithm runs.
#
# Needs: python3, PyPI; networkit==11.3 numpy==2.4.6 in a temporary venv. Seen: those. Guess before the run:
# KeyboardInterrupt, as elsewhere, at once or at the end of the call.
# Seen: "RuntimeError: Received CTRL+C/SIGINT", from a handler of NetworKit's own. A loop over seeds or parameters that goes
# on after an Exception of one of them goes on after Ctrl-C, too, and handlers of Python's signal module are not called.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check networkit==11.3 numpy==2.4.6
cd "$work"
venv/bin/python - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import os
import signal
import subprocess
import sys
import time

import networkit
import numpy

print("networkit", networkit.__version__, "numpy", numpy.__version__)
random, nodes = numpy.random.default_rng(0), 60_000
graph = networkit.GraphFromCoo(tuple(random.integers(nodes, size=(2, 600_000))), n=nodes)


def interrupted() -> str:
    """What the call raises for a SIGINT after a second; it would take minutes."""
    send = "import os, sys, time; time.sleep(1); os.kill(int(sys.argv[1]), 2)"
    sender = subprocess.Popen([sys.executable, "-S", "-c", send, str(os.getpid())])
    try:
        networkit.centrality.Betweenness(graph).run()
        return "nothing"
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    finally:
        sender.wait()


found = interrupted()
print("Ctrl-C in the middle:", found)
came = []
signal.signal(signal.SIGINT, lambda *_: came.append(True))
again = interrupted()
time.sleep(0.1)
print("with a handler of the script's own:", again, "| its calls:", len(came))
assert found == again == "RuntimeError: Received CTRL+C/SIGINT" and not came
PYTHON
