#!/usr/bin/env bash
# igraph's two adjacency matrices of an undirected graph differ: get_adjacency() counts a loop twice and
# get_adjacency_sparse() once; with weights, the first has the last of parallel edges and the second their sum. The sum of
# a row of the sparse matrix is not the degree then, which counts loops twice.
#
# Needs: python3, PyPI; igraph==1.0.0 scipy==1.17.1 in a temporary venv. Seen: those. Guess before the run: equal matrices.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check igraph==1.0.0 scipy==1.17.1
cd "$work"
venv/bin/python - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import igraph

print("igraph", igraph.__version__)
graph = igraph.Graph([(0, 0), (0, 1), (0, 1)])
graph.es["weight"] = [5.0, 1.0, 2.0]
counts = graph.get_adjacency().data, graph.get_adjacency_sparse().toarray().tolist()
weights = graph.get_adjacency(attribute="weight").data, graph.get_adjacency_sparse("weight").toarray().tolist()
print("edges, dense and sparse:", *counts, "weights:", *weights, "degrees:", graph.degree())
assert counts == ([[2, 2], [2, 0]], [[1, 2], [2, 0]]) and graph.degree() == [4, 2]
assert weights == ([[5, 2], [2, 0]], [[5, 3], [3, 0]])
PYTHON
