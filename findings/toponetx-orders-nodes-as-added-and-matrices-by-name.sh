#!/usr/bin/env bash
# TopoNetX's SimplicialComplex has nodes and get_node_attributes in the order of their additions, but matrices and
# get_simplex_attributes in the order of their names: features that are stacked from the first belong to other rows
# of the matrix, silently.
#
# Needs: python3, PyPI; toponetx==0.2.0 networkx==3.6.1 numpy==2.4.6 scipy==1.17.1 in a temporary venv. Seen: those.
# Guess before the run: one order, that of the additions, as in networkx.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check \
  toponetx==0.2.0 networkx==3.6.1 numpy==2.4.6 scipy==1.17.1
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
from importlib.metadata import version

import numpy as np
import toponetx

print("toponetx", version("toponetx"))
whole = toponetx.SimplicialComplex()
for node, feature in ((30, 3.0), (10, 1.0), (20, 2.0)):
    whole.add_node(node, x=feature)
whole.add_simplex([30, 10])
nodes = [tuple(node)[0] for node in whole.nodes]
features = whole.get_node_attributes("x")
index, _ = whole.adjacency_matrix(0, index=True)
rows = [name[0] for name in index]
sums = whole.adjacency_matrix(0) @ np.array(list(features.values()))
print("nodes", nodes, "node attributes", features, "simplex attributes", whole.get_simplex_attributes("x", 0))
print("rows of matrices", rows, "sums over neighbours, by these rows", sums.tolist(), "of 10 it is 3, of 30 it is 1")
assert nodes == list(features) == [30, 10, 20] and rows == [10, 20, 30]
assert [name[0] for name in whole.get_simplex_attributes("x", 0)] == rows and sums.tolist() == [2, 0, 3]
PYTHON
