#!/usr/bin/env bash
# networkx-temporal's slice(bins=5), which is documented as the number of snapshots to return, leaves spans without
# edges out: of events at 0, 1, 9 and 10 there are two snapshots, one after the other, and the last has the number of
# another span than in a graph without a gap. Models that go from snapshot to snapshot see no pause.
#
# Needs: python3, PyPI; networkx-temporal==1.4.4 networkx==3.6.1 pandas==2.3.3 in a temporary venv. Seen: those. Guess
# before the run: five snapshots, some without edges.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check \
  networkx-temporal==1.4.4 networkx==3.6.1 pandas==2.3.3
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
from importlib.metadata import version

import networkx_temporal

print("networkx-temporal", version("networkx-temporal"))
seen = {}
for name, times in {"whole": range(11), "gap": (0, 1, 9, 10)}.items():
    graph = networkx_temporal.temporal_graph(directed=True, multigraph=True)
    for time in times:
        graph.add_edge(1, 2, time=time)
    cut = graph.slice(attr="time", bins=5)
    seen[name] = [part.number_of_edges() for part in cut]
    print(name, "snapshots", len(cut), cut.names, "edges", seen[name])
assert seen == {"whole": [3, 2, 2, 2, 2], "gap": [2, 2]}
PYTHON
