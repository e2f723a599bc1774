#!/usr/bin/env bash
# rustworkx.PyGraph.from_adjacency_matrix reads what is on and above the diagonal alone: a lower triangle gives a graph
# without edges, silently, and of a matrix whose halves differ the upper one wins. networkx and igraph (mode="max") have
# all edges of the same matrices.
#
# Needs: python3, PyPI; rustworkx==0.18.1 networkx==3.6.1 igraph==1.0.0 numpy==2.4.6 in a temporary venv. Seen: those.
# Guess before the run: an edge for each entry, or an error for matrices that are not symmetric.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check \
  rustworkx==0.18.1 networkx==3.6.1 igraph==1.0.0 numpy==2.4.6
cd "$work"
venv/bin/python - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import igraph
import networkx as nx
import numpy as np
import rustworkx as rx

print("rustworkx", rx.__version__, "networkx", nx.__version__, "igraph", igraph.__version__)
lower = np.array([[0.0, 0, 0], [1, 0, 0], [0, 5, 0]])
both = np.array([[0.0, 2, 0], [1, 0, 0], [0, 5, 0]])
for name, matrix, seen in (("lower triangle", lower, []), ("both", both, [(0, 1, 2.0)])):
    edges = list(rx.PyGraph.from_adjacency_matrix(matrix).weighted_edge_list())
    of_networkx = list(nx.from_numpy_array(matrix).edges(data="weight"))
    of_igraph = igraph.Graph.Weighted_Adjacency(matrix, mode="max").get_edgelist()
    print(name, "rustworkx", edges, "networkx", of_networkx, "igraph", of_igraph)
    assert edges == seen and len(of_networkx) == len(of_igraph) == 2
PYTHON
