#!/usr/bin/env bash
# dynetx's directed graphs list one of two opposite edges, with the times of the other: of 1 to 2 at times 0 to 4 and
# 2 to 1 at time 7, interactions() has 2 to 1 at times 0 to 4. The graph has both, by has_interaction.
#
# Needs: python3, PyPI; dynetx==0.3.2 networkx==3.6.1 in a temporary venv. Seen: those. Guess before the run: both
# edges, each with its times.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check dynetx==0.3.2 networkx==3.6.1
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
from importlib.metadata import version

import dynetx

print("dynetx", version("dynetx"))
graph = dynetx.DynDiGraph()
graph.add_interaction(1, 2, t=0, e=5)
graph.add_interaction(2, 1, t=7)
times = {pair: [t for t in range(10) if graph.has_interaction(*pair, t=t)] for pair in ((1, 2), (2, 1))}
listed = [(source, target, of["t"]) for source, target, of in graph.interactions()]
print("times by has_interaction", times, "interactions()", listed)
assert times == {(1, 2): [0, 1, 2, 3, 4], (2, 1): [7]}
assert listed == [(2, 1, [[0, 4]])]
PYTHON
