#!/usr/bin/env bash
# graspologic sorts the nodes of a networkx graph: rows of import_graph and of its spectral embeddings are in the
# order of the names, "n10" before "n2", not in that of graph.nodes, as networkx.to_numpy_array has them. Nothing is
# returned that says so. Its leiden and node2vec_embed leave out nodes without edges; both return names.
#
# Needs: python3, PyPI; graspologic==3.4.4 networkx==3.6.1 numpy==1.26.4 in a temporary venv. Seen: those. Guess
# before the run: the order of graph.nodes.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check graspologic==3.4.4 networkx==3.6.1 numpy==1.26.4
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import graspologic
import networkx as nx
import numpy as np
from graspologic.embed import node2vec_embed
from graspologic.partition import leiden
from graspologic.utils import import_graph

print("graspologic", graspologic.__version__, "networkx", nx.__version__)
graph = nx.Graph()
graph.add_nodes_from(["n2", "n10", "n1"])
graph.add_edge("n2", "n10", weight=5.0)
adjacency, expected = import_graph(graph), nx.to_numpy_array(graph)
by_name = nx.to_numpy_array(graph, nodelist=sorted(graph.nodes))
print("nodes", list(graph.nodes), "weights by networkx", expected.sum(1), "by graspologic", adjacency.sum(1))
assert np.array_equal(adjacency, by_name) and not np.array_equal(adjacency, expected)
communities = leiden(graph, random_seed=1)
rows, names = node2vec_embed(graph, dimensions=2, num_walks=2, walk_length=4, workers=1, random_seed=1)
print("of three nodes, leiden has", sorted(communities), "node2vec_embed", names, rows.shape)
assert sorted(communities) == names == ["n10", "n2"] and rows.shape == (2, 2)
PYTHON
