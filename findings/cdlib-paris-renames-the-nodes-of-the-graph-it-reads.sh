#!/usr/bin/env bash
# cdlib.algorithms.paris numbers the nodes of the caller's own graph anew: after the call the graph has nodes 0, 1, 2,
# and its names are gone, so that joins by name find nothing, and joins of ids find other nodes. The communities have
# the old names. louvain and leiden leave the graph as it is.
#
# Needs: python3, PyPI; cdlib==0.4.1 igraph==1.0.0 leidenalg==0.12.0 networkx==3.6.1 numpy==1.26.4 in a temporary
# venv. Seen: those. Guess before the run: the graph stays as it is.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check \
  cdlib==0.4.1 igraph==1.0.0 leidenalg==0.12.0 networkx==3.6.1 numpy==1.26.4
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
from importlib.metadata import version

import networkx as nx
from cdlib import algorithms

print("cdlib", version("cdlib"), "networkx", nx.__version__)
graph = nx.Graph([(30, 20), (20, 10), (10, 30), (40, 50), (50, 0), (0, 40), (30, 40)])
before = list(graph.nodes)
algorithms.louvain(graph), algorithms.leiden(graph)
assert list(graph.nodes) == before
communities = algorithms.paris(graph).communities
print("nodes before", before, "after", list(graph.nodes), "communities", communities)
print("neighbours of node 0 were", [40, 50], "and are", sorted(graph[0]))
assert sorted(sum(communities, [])) == sorted(before)
assert sorted(graph.nodes) == list(range(6)) and list(graph[0]) != [50, 40]
PYTHON
