#!/usr/bin/env bash
# PyG knows by its length whether an array of a Data is of nodes or of edges. In a graph with as many edges as nodes,
# each array without "edge" in its name is of nodes: subgraph() and batches of loaders then have the weights of other
# edges, in another number than edges. With one edge more, the same code is right. "t", "time", "weight" and "msg" are
# such names.
#
# Needs: python3, PyPI; torch-geometric==2.8.1 torch==2.15.0 in a temporary venv (5 GB). Seen: those. Guess before the
# run: weights of edges go with the edges, however many nodes there are.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check torch-geometric==2.8.1 torch==2.15.0
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import torch
import torch_geometric
from torch_geometric.data import Data

print("torch_geometric", torch_geometric.__version__, "torch", torch.__version__)
ring = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
for num_edges, expected in ((3, [11, 12]), (4, [11, 12, 13])):
    data = Data(x=torch.ones(4, 1), edge_index=ring[:, :num_edges], weight=torch.tensor([10, 11, 12, 13])[:num_edges])
    part = data.subgraph(torch.tensor([1, 2, 3]))
    of_nodes, edges = data.is_node_attr("weight"), part.edge_index.tolist()
    print(num_edges, "edges of 4 nodes: is_node_attr", of_nodes, "subgraph of 1, 2, 3:", edges, part.weight.tolist())
    assert edges == [[0, 1], [1, 2]] and part.weight.tolist() == expected and of_nodes == (num_edges == 4)
data = Data(x=torch.ones(4, 1), edge_index=ring, edge_weight=data.weight)
assert data.subgraph(torch.tensor([1, 2, 3])).edge_weight.tolist() == [11, 12]
PYTHON
