#!/usr/bin/env bash
# dynetx's interactions_per_snapshots counts an edge that is added for one snapshot as 1, one that is added with an end
# as a half at each of its snapshots, and one that write_interactions wrote and read_interactions read as 2 at the first
# and 1 at the others. number_of_interactions(t=) is 1 for all of them.
#
# Needs: python3, PyPI; dynetx==0.3.2 networkx==3.6.1 in a temporary venv. Seen: those.
# Expected, though not written down before: 1 at each
# snapshot, however the edge was added.
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
graph, apart = dynetx.DynGraph(), dynetx.DynGraph()
graph.add_interaction(4, 5, t=0, e=3)
for time in range(3):
    apart.add_interaction(4, 5, t=time)
dynetx.write_interactions(graph, "graph.txt")
again = dynetx.read_interactions("graph.txt", nodetype=int, timestamptype=int)
seen = {}
for name, one in {"with an end": graph, "one by one": apart, "read": again}.items():
    counts = {time: one.number_of_interactions(t=time) for time in range(3)}
    seen[name] = list(one.interactions_per_snapshots().values())
    print(name, "interactions", one.interactions(), "counted", counts, "per snapshot", seen[name])
    assert counts == {0: 1, 1: 1, 2: 1}
assert seen == {"with an end": [0.5, 0.5, 0.5], "one by one": [1, 1, 1], "read": [2, 1, 1]}
PYTHON
