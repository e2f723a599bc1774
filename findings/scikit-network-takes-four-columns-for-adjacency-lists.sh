#!/usr/bin/env bash
# scikit-network's from_csv takes an edge list of four columns (source, target, weight, time, as KONECT and temporal
# graphs have it) for lists of neighbours: weights and times become nodes, and edges. Three columns are weighted edges.
# The documentation says that data_structure is guessed from the first rows of the file.
#
# Needs: python3, PyPI; scikit-network==0.33.5 in a temporary venv. Seen: that. Guess before the run: the weights are
# read, and a fourth column is left out or refused.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check scikit-network==0.33.5
cd "$work"
venv/bin/python - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
from importlib.metadata import version

from sknetwork.data import from_csv

print("scikit-network", version("scikit-network"))
with open("edges.tsv", "w") as file:
    file.write("0\t1\t2\t9\n1\t2\t3\t9\n")
guessed = from_csv("edges.tsv", directed=True)
said = from_csv("edges.tsv", directed=True, data_structure="edge_list")
print("two edges: guessed", guessed.shape, guessed.nnz, "edges; said to be edges", said.shape, said.nnz)
assert guessed.shape == (10, 10) and guessed.nnz == 8
assert said.nnz == 2
PYTHON
