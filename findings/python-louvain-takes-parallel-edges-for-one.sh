#!/usr/bin/env bash
# python-louvain's best_partition and modularity take a networkx.MultiGraph, but count parallel edges in the degrees and
# once in the communities: a modularity of 0.09 is -0.62, and all nodes are one community. Of the same graph with the
# numbers of parallel edges as weights, they give what networkx gives of both.
#
# Needs: python3, PyPI; python-louvain==0.16 networkx==3.6.1 numpy==2.4.6 scipy==1.17.1 in a temporary venv. Seen:
# those. Guess before the run: a MultiGraph gives the communities of a graph with the numbers as weights.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check \
  python-louvain==0.16 networkx==3.6.1 numpy==2.4.6 scipy==1.17.1
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
from importlib.metadata import version

import community
import networkx

print("python-louvain", version("python-louvain"), "networkx", networkx.__version__)
counts = {(0, 1): 2, (1, 2): 5, (2, 0): 2, (3, 4): 1, (4, 5): 1, (3, 5): 1, (2, 3): 30}
parallel = networkx.MultiGraph([pair for pair, count in counts.items() for _ in range(count)])
weighted = networkx.Graph()
weighted.add_weighted_edges_from((*pair, count) for pair, count in counts.items())
groups = {0: 0, 1: 0, 2: 1, 3: 1, 4: 2, 5: 2}
found, theirs, parts = {}, {}, {}
for name, graph in {"parallel": parallel, "weighted": weighted}.items():
    found[name] = round(community.modularity(groups, graph), 3)
    theirs[name] = round(networkx.community.modularity(graph, [{0, 1}, {2, 3}, {4, 5}]), 3)
    parts[name] = len(set(community.best_partition(graph, random_state=0).values()))
    assert len(networkx.community.louvain_communities(graph, seed=0)) == 3
print("modularity:", found, "of networkx:", theirs, "communities:", parts)
assert theirs["parallel"] == theirs["weighted"] == found["weighted"] > 0 and found["parallel"] < -0.5
assert parts == {"parallel": 1, "weighted": 3}
PYTHON
