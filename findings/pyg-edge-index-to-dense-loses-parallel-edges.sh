#!/usr/bin/env bash
# PyG's EdgeIndex.to_dense() has 1 where a pair of nodes has several edges, and of edges with values the last one's: its
# product with a matrix, to_sparse_coo().to_dense() and utils.to_dense_adj count or add them all.
#
# Needs: python3, PyPI; torch-geometric==2.8.1 torch==2.15.0 in a temporary venv (5 GB). Seen: those. Guess before the
# run: 2, as the matrix of the product.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check torch-geometric==2.8.1 torch==2.15.0
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import torch
import torch_geometric
from torch_geometric.utils import to_dense_adj

print("torch_geometric", torch_geometric.__version__, "torch", torch.__version__)
edges = torch_geometric.EdgeIndex([[0, 0, 1], [1, 1, 0]], sparse_size=(2, 2), sort_order="row")
values = torch.tensor([5.0, 3.0, 7.0])
found = {
    "to_dense": edges.to_dense().tolist(),
    "to_dense of values": edges.to_dense(value=values).tolist(),
    "times the identity": edges.matmul(torch.eye(2)).tolist(),
    "to_sparse_coo": edges.to_sparse_coo().to_dense().tolist(),
    "to_dense_adj": to_dense_adj(edges.as_tensor())[0].tolist(),
}
for name, matrix in found.items():
    print(name, matrix)
assert found.pop("to_dense") == [[0, 1], [1, 0]] and found.pop("to_dense of values") == [[0, 3], [7, 0]]
assert all(matrix == [[0, 2], [1, 0]] for matrix in found.values())
PYTHON
