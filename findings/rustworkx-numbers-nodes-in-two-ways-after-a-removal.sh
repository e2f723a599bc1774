#!/usr/bin/env bash
# Once a node is removed from a graph of rustworkx, its edge list keeps the numbers of the nodes, which have a gap, and
# the rows of adjacency_matrix do not: row 1 is node 2. The next node that is added takes the number of the removed one.
#
# Needs: python3, PyPI; rustworkx==0.18.1 numpy==2.4.6 in a temporary venv. Seen: those. Guess before the run: the matrix
# has an empty row for the removed node; numbers are not given twice.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check rustworkx==0.18.1 numpy==2.4.6
cd "$work"
venv/bin/python - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import rustworkx as rx

print("rustworkx", rx.__version__)
graph = rx.PyDiGraph()
graph.add_nodes_from(["a", "b", "c", "d"])
graph.add_edges_from([(0, 1, 1.0), (2, 3, 2.0), (3, 0, 3.0)])
graph.remove_node(1)
matrix = rx.adjacency_matrix(graph, weight_fn=float)
print("edges", list(graph.weighted_edge_list()), "matrix", matrix.tolist())
assert list(graph.weighted_edge_list()) == [(2, 3, 2.0), (3, 0, 3.0)]
assert matrix.tolist() == [[0, 0, 0], [0, 0, 2], [3, 0, 0]]
number = graph.add_node("e")
print("the number of the next node:", number)
assert number == 1
PYTHON
