#!/usr/bin/env bash
# hypernetx reads an empty list among lists of nodes as one more node, NaN, and makes all ids floats: 2^53 + 1 becomes
# 2^53, and two nodes are one. Rows of incidence_matrix are in the order of the names, "n10" before "n2", not in that of
# .nodes; index=True gives theirs. Of parallel entries the first weight is kept.
#
# Needs: python3, PyPI; hypernetx==2.4.3 pandas==2.3.3 numpy==1.26.4 in a temporary venv. Seen: those. Guess before the
# run: an edge without nodes, or none; rows in the order of .nodes; weights added up, as by SciPy.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check hypernetx==2.4.3 pandas==2.3.3 numpy==1.26.4
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import hypernetx as hnx
import numpy as np
import pandas as pd

print("hypernetx", hnx.__version__, "pandas", pd.__version__, "numpy", np.__version__)
ids = [[2**53, 1], [2**53 + 1, 2]]
nodes = [list(hnx.Hypergraph(edges).nodes) for edges in (ids, [*ids, []])]
print("nodes", nodes[0], "beside an empty edge", nodes[1])
assert len(nodes[0]) == 4 and len(nodes[1]) == 4 and np.isnan(nodes[1]).sum() == 1
named = hnx.Hypergraph({"e1": ["n2", "n10"], "e2": ["n2"], "e3": ["n1"]})
sums = np.asarray(named.incidence_matrix().sum(axis=1)).ravel().tolist()
degrees = [named.degree(node) for node in named.nodes]
print("nodes", list(named.nodes), "sums of the rows", sums, "degrees", degrees)
table = pd.DataFrame({"edges": ["a", "a", "a"], "nodes": [1, 1, 2], "weight": [2.0, 3.0, 4.0]})
weights = hnx.Hypergraph(table, cell_weight_col="weight").incidence_matrix(weights=True).toarray().ravel().tolist()
print("weights 2, 3 of one entry and 4 of another:", weights)
assert list(named.nodes) == ["n2", "n10", "n1"] and degrees == [2, 1, 1] and sums == [1, 1, 2] and weights == [2, 4]
PYTHON
