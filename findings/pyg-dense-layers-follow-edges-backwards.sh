#!/usr/bin/env bash
# PyG's DenseSAGEConv, DenseGraphConv, DenseGINConv and DenseGCNConv give node i what row i of the adjacency matrix
# names, and row i of to_dense_adj has the targets of node i: of a directed graph they add up the rows of other nodes
# than SAGEConv and the others do with the same edge_index. With the transposed matrix they agree, GCN but for its
# degrees.
#
# Needs: python3, PyPI; torch-geometric==2.8.1 torch==2.15.0 in a temporary venv (5 GB). Seen: those. Guess before the
# run: a dense layer of to_dense_adj(edge_index) is the sparse one of edge_index.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check torch-geometric==2.8.1 torch==2.15.0
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import torch
import torch_geometric
from torch_geometric.nn import DenseGINConv, DenseGraphConv, DenseSAGEConv, GINConv, GraphConv, SAGEConv
from torch_geometric.utils import to_dense_adj

print("torch_geometric", torch_geometric.__version__, "torch", torch.__version__)
torch.manual_seed(0)
x, edge_index = torch.randn(3, 4), torch.tensor([[0, 1], [1, 2]])  # 0 -> 1 -> 2
adjacency, linear = to_dense_adj(edge_index), torch.nn.Linear(4, 4)
pairs = {"GIN": (DenseGINConv(linear), GINConv(linear))}
layers = ("SAGE", DenseSAGEConv(4, 4), SAGEConv(4, 4)), ("Graph", DenseGraphConv(4, 4), GraphConv(4, 4))
for name, dense, sparse in layers:
    neighbours = sparse.lin_l if name == "SAGE" else sparse.lin_rel
    own = sparse.lin_r if name == "SAGE" else sparse.lin_root
    neighbours.weight, own.weight = dense.lin_rel.weight, dense.lin_root.weight
    neighbours.bias = dense.lin_root.bias if dense.lin_rel.bias is None else dense.lin_rel.bias
    pairs[name] = dense, sparse
for name, (dense, sparse) in pairs.items():
    expected = sparse(x, edge_index)
    difference = (dense(x, adjacency)[0] - expected).abs().max().item()
    turned = (dense(x, adjacency.transpose(1, 2))[0] - expected).abs().max().item()
    print(name, "difference to the sparse layer", difference, "with the transposed matrix", turned)
    assert difference > 0.1 and turned < 1e-6
PYTHON
