#!/usr/bin/env bash
# dynetx's time_slice(t_from, t_to) returns "interactions present in [t_from, t_to]", and time_slice(t) those of t, but
# those that are there at t_to lose it: a slice of one snapshot has all edges in interactions() and none at that time.
#
# Needs: python3, PyPI; dynetx==0.3.2 networkx==3.6.1 in a temporary venv. Seen: those. Guess before the run: both ends
# count, as documented.
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
graph = dynetx.DynGraph()
for time in (0, 1, 2):
    graph.add_path([0, 1, 2, 3], t=time)
times = graph.temporal_snapshots_ids()
print("snapshots", times, "interactions at each", [graph.number_of_interactions(t=time) for time in times])
seen = {}
for first, last in ((0, 2), (1, 2), (2, None)):
    part = graph.time_slice(first, last)
    seen[first, last] = {time: part.number_of_interactions(t=time) for time in times}
    print("slice", (first, last), "interactions at each snapshot", seen[first, last], part.interactions())
assert seen == {(0, 2): {0: 3, 1: 3, 2: 0}, (1, 2): {0: 0, 1: 3, 2: 0}, (2, None): {0: 0, 1: 0, 2: 0}}
PYTHON
