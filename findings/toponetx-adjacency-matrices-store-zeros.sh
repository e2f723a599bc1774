#!/usr/bin/env bash
# The sparse adjacency matrices of TopoNetX's simplicial, cell and combinatorial complexes store zeros on the diagonal:
# an edge list of their rows and columns, as networkx and PyG make it, has a self loop at each node that has an edge.
#
# Needs: python3, PyPI; toponetx==0.2.0 networkx==3.6.1 numpy==2.4.6 scipy==1.17.1 in a temporary venv. Seen: those.
# Expected, though not written down before: the entries are the edges.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check \
  toponetx==0.2.0 networkx==3.6.1 numpy==2.4.6 scipy==1.17.1
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
from importlib.metadata import version

import networkx
import toponetx

print("toponetx", version("toponetx"), "networkx", networkx.__version__)
pairs = toponetx.CombinatorialComplex()
pairs.add_cells_from([[1, 2], [2, 3]], ranks=1)
matrices = {
    "simplicial": toponetx.SimplicialComplex([[1, 2], [2, 3]]).adjacency_matrix(0),
    "cell": toponetx.CellComplex([[1, 2, 3, 4]]).adjacency_matrix(0),
    "combinatorial": pairs.adjacency_matrix(0, 1),
}
for name, matrix in matrices.items():
    graph = networkx.from_scipy_sparse_array(matrix)
    loops = networkx.number_of_selfloops(graph)
    print(name, "entries", matrix.nnz, "not zero", matrix.count_nonzero(), "self loops in networkx", loops)
    assert matrix.nnz == matrix.count_nonzero() + matrix.shape[0] and loops == matrix.shape[0]
PYTHON
