#!/usr/bin/env bash
# cdlib's louvain reads the attribute "weight" of the edges, and its leiden, label_propagation, walktrap and
# greedy_modularity do not, unless weights="weight" (greedy_modularity: weight="weight") is given: two groups that
# weights of 10 and 0.01 separate are one community. Its modularity has the weights, so that scores of the two are
# compared.
#
# Needs: python3, PyPI; cdlib==0.4.1 igraph==1.0.0 leidenalg==0.12.0 networkx==3.6.1 numpy==1.26.4 in a temporary
# venv. Seen: those. Guess before the run: all read the weight, as louvain does, or none.
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
graph = nx.complete_graph(6)
for one, other in graph.edges:
    graph[one][other]["weight"] = 10.0 if (one < 3) == (other < 3) else 0.01
seen = {}
for name in ("louvain", "leiden", "label_propagation", "walktrap", "greedy_modularity"):
    option = {} if name == "louvain" else {"weight" if name == "greedy_modularity" else "weights": "weight"}
    find = getattr(algorithms, name)
    seen[name] = [sorted(map(sorted, find(graph, **chosen).communities)) for chosen in ({}, option)]
    print(name, "by default", seen[name][0], "with weights", seen[name][1])
groups, whole = [[0, 1, 2], [3, 4, 5]], [[0, 1, 2, 3, 4, 5]]
assert seen.pop("louvain") == [groups, groups] and all(found == [whole, groups] for found in seen.values())
PYTHON
